"""Inverted lists that grow, said slowly: the oracle of ``lists_cpu.py``."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def link(head: Array, keys: Array, start: int) -> Array:
    """Put one entry for each of ``keys`` in front of its chain: ``lists_cpu.link``."""
    older = []
    for entry, key in enumerate(keys.tolist(), start):
        older.append(head[key])
        head[key] = entry
    return np.array(older, np.int32)


def seal(
    indptr: Array,
    values: Array,
    counts: Array,
    head: Array,
    older: Array,
    tail_values: Array,
    tail_counts: Array,
) -> tuple[Array, Array, Array]:
    """Make one CSR of sealed lists and the chains behind them: ``lists_cpu.seal``."""
    found: list[tuple[int, float]] = []
    ends = [0]
    has_counts = len(counts) > 0 or len(tail_counts) > 0
    for key, entry in enumerate(head.tolist()):
        if key + 1 < len(indptr):
            for at in range(indptr[key], indptr[key + 1]):
                found.append((values[at], counts[at] if has_counts else 0))
        chain = []
        while entry >= 0:
            chain.append((tail_values[entry], tail_counts[entry] if has_counts else 0))
            entry = int(older[entry])
        found += chain[::-1]
        ends.append(len(found))
    weights = [weight for _, weight in found] if has_counts else []
    return (
        np.array(ends, np.int64),
        np.array([value for value, _ in found], np.int32),
        np.array(weights, np.float32),
    )
