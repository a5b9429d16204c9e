"""Inner products of vectors and queries: the oracle."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def scores(vectors: NDArray[np.float32], queries: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return (b, n) float64: cell (j, i) is the inner product of query j and vector i."""
    out = np.zeros((len(queries), len(vectors)))
    for j, query in enumerate(np.asarray(queries, dtype=np.float64)):
        for i, vector in enumerate(np.asarray(vectors, dtype=np.float64)):
            out[j, i] = (vector * query).sum()
    return out
