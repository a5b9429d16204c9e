"""What the plain forms share: reading vectors and lists, ranking, and min-max normalisation."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zeromem.kernels._noise import NOISE

F64 = NDArray[np.float64]

_PART = 8192  # rows of a part of vectors


def vectors_at(addresses: NDArray[np.int64], rows: Any, dim: int) -> F64:
    """Read rows of float16 vectors whose parts start at ``addresses``: (k, dim)."""
    found = np.empty((len(rows), dim))
    for at, row in enumerate(np.asarray(rows).tolist()):
        start = int(addresses[row // _PART]) + 2 * dim * (row % _PART)
        found[at] = np.frombuffer(ctypes.string_at(start, 2 * dim), np.float16)
    return found


def products(vectors: F64, query: Any) -> F64:
    """Inner products; summed row by row, so that equal rows give equal bits wherever they lie."""
    found: F64 = (vectors * np.asarray(query, np.float64)).sum(axis=1)
    return found


def values_of(lists: Sequence[NDArray[Any]], key: int) -> tuple[list[int], list[float]]:
    """Values of one key of ``Lists.kernel_args``, oldest first, and their counts if they have any.

    They are the sealed ones, and then the chain that leads from the newest back to the oldest.
    """
    indptr, sealed, sealed_counts, head, older, tail, tail_counts = lists
    values: list[int] = []
    counts: list[float] = []
    entry = int(head[key]) if key < len(head) else -1
    while entry >= 0:
        values.append(int(tail[entry]))
        counts.extend(tail_counts[entry : entry + 1].tolist())
        entry = int(older[entry])
    if key < len(indptr) - 1:
        own = slice(indptr[key], indptr[key + 1])
        return sealed[own].tolist() + values[::-1], sealed_counts[own].tolist() + counts[::-1]
    return values[::-1], counts[::-1]


def ranked(scores: Any, mask: NDArray[np.bool_], k: int) -> NDArray[np.int64]:
    """Return the ``k`` best rows within ``mask``, best first, ties by row."""
    rows = np.flatnonzero(mask)
    return rows[np.lexsort((rows, -scores[rows]))][:k]


def normalized(values: F64, among: NDArray[np.bool_], least: float = 0.0) -> F64:
    """Bring values to [0, 1] over the rows ``among``; where those are all alike, to 0.

    They are alike where they differ by no more than float32 arithmetic leaves: of their size, or
    of ``least`` where they are differences of numbers of that size.
    """
    inside = values[among]
    if not len(inside):
        return np.zeros(len(values))
    low, high = inside.min(), inside.max()
    if high - low <= NOISE * max(abs(low), abs(high), least):
        return np.zeros(len(values))
    found: F64 = (values - low) / (high - low)
    return found


def shares(scores: F64) -> F64:
    """Bring a ranking's scores, best first, to [0, 1]; to 1 where they are all alike."""
    if not len(scores) or scores[0] - scores[-1] <= NOISE * max(abs(scores[0]), abs(scores[-1])):
        return np.ones(len(scores))
    found: F64 = (scores - scores[-1]) / (scores[0] - scores[-1])
    return found


def neighbours(link: NDArray[np.int32], radius: int) -> list[NDArray[np.int64]]:
    """Rows one step, two steps, ... ``radius`` steps along a link; -1 past the end."""
    at = np.arange(len(link))
    found = []
    for _ in range(radius):
        at = np.where(at >= 0, link[at], -1)
        found.append(at)
    return found


def windows(
    previous: NDArray[np.int32], following: NDArray[np.int32], radius: int
) -> list[NDArray[np.int64]]:
    """Rows of the window that is centred on each row: its centre, and each further place; -1."""
    centre = np.arange(len(previous))
    return [centre, *neighbours(previous, radius), *neighbours(following, radius)]


def window_sum(values: F64, places: list[NDArray[np.int64]]) -> F64:
    """Sum of each window's rows."""
    found: F64 = np.sum([np.where(at >= 0, values[at], 0.0) for at in places], axis=0)
    return found


def window_max(values: F64, places: list[NDArray[np.int64]]) -> F64:
    """Greatest of each window's rows."""
    found: F64 = np.max([np.where(at >= 0, values[at], -np.inf) for at in places], axis=0)
    return found
