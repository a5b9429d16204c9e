"""Inverted lists that grow: a chain of new values behind each key, and chains made into CSR."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from zeromem.kernels._numba import (
    F32_1,
    I32_1,
    I64,
    I64_1,
    OUT_F32_1,
    OUT_I32_1,
    OUT_I64_1,
    VOID,
    kernel,
)

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Float32 = NDArray[np.float32]


@kernel(VOID(OUT_I32_1, I32_1, I64, OUT_I32_1))
def _link(head, keys, start, older):
    for j in range(len(keys)):
        older[j] = head[keys[j]]
        head[keys[j]] = start + j


@kernel(VOID(I64_1, I32_1, I32_1, OUT_I64_1))
def _ends(indptr, head, older, out):
    n_base = len(indptr) - 1
    total = np.int64(0)
    for key in range(len(head)):
        if key < n_base:
            total += indptr[key + 1] - indptr[key]
        entry = head[key]
        while entry >= 0:
            total += 1
            entry = older[entry]
        out[key + 1] = total


@kernel(VOID(I64_1, I32_1, F32_1, I32_1, I32_1, I32_1, F32_1, I64_1, OUT_I32_1, OUT_F32_1))
def _seal(indptr, values, counts, head, older, tail_values, tail_counts, ends, out, weight):
    n_base = len(indptr) - 1
    counted = len(weight) > 0
    for key in range(len(head)):
        to = ends[key]
        if key < n_base:
            for at in range(indptr[key], indptr[key + 1]):
                out[to] = values[at]
                if counted:
                    weight[to] = counts[at]
                to += 1
        # The chain leads from the newest value to the oldest.
        to = ends[key + 1]
        entry = head[key]
        while entry >= 0:
            to -= 1
            out[to] = tail_values[entry]
            if counted:
                weight[to] = tail_counts[entry]
            entry = older[entry]


def link(head: Int32, keys: Int32, start: int) -> Int32:
    """Put one entry for each of ``keys`` in front of its chain.

    Parameters
    ----------
    head : (n_keys,) int32
        Newest entry of each key, -1 for none; changed in place.
    keys : (k,) int32
        In order of the entries.
    start : int
        Number of the first entry.

    Returns
    -------
    older : (k,) int32
        The entry that was the newest of its key before, or -1.
    """
    older = np.empty(len(keys), np.int32)
    _link(head, keys, start, older)
    return older


def seal(
    indptr: Int64,
    values: Int32,
    counts: Float32,
    head: Int32,
    older: Int32,
    tail_values: Int32,
    tail_counts: Float32,
) -> tuple[Int64, Int32, Float32]:
    """Make one CSR of sealed lists and the chains behind them, values in order of arrival.

    Parameters
    ----------
    indptr : (n_base_keys + 1,) int64
    values : (n_base,) int32
    counts : (n_base,) or (0,) float32
        Empty where the lists have none.
    head : (n_keys,) int32
        n_keys >= n_base_keys.
    older, tail_values : (n_tail,) int32
    tail_counts : (n_tail,) or (0,) float32

    Returns
    -------
    indptr : (n_keys + 1,) int64
    values : (n,) int32
    counts : (n,) or (0,) float32
    """
    ends = np.zeros(len(head) + 1, np.int64)
    _ends(indptr, head, older, ends)
    out = np.empty(int(ends[-1]), np.int32)
    counted = len(counts) > 0 or len(tail_counts) > 0
    weight = np.empty(len(out) if counted else 0, np.float32)
    _seal(indptr, values, counts, head, older, tail_values, tail_counts, ends, out, weight)
    return ends, out, weight
