"""Inner products of float16 vectors and queries: the oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def scores(vectors: Any, queries: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return (b, n) float64: cell (j, i) is the inner product of query j and vector i."""
    out = np.zeros((len(queries), len(vectors)))
    rows = [row for part in vectors.parts for row in part]
    for j, query in enumerate(np.asarray(queries, dtype=np.float64)):
        for i, row in enumerate(rows):
            out[j, i] = (row.astype(np.float64) * query).sum()
    return out


def search(
    vectors: Any, queries: NDArray[np.float32], k: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the rows (b, k) of the k largest products and these; ties by row, padded -1 and 0."""
    rows = np.full((len(queries), k), -1, np.int64)
    best = np.zeros((len(queries), k))
    for j, line in enumerate(scores(vectors, queries)):
        order = np.lexsort((np.arange(len(line)), -line))[:k]
        rows[j, : len(order)] = order
        best[j, : len(order)] = line[order]
    return rows, best
