"""Lucene's BM25: the oracle."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def scores(
    indptr: NDArray[np.int64],
    rows: NDArray[np.int32],
    tf: NDArray[np.float32],
    lengths: NDArray[np.float32],
    idf: NDArray[np.float32],
    query_indptr: NDArray[np.int64],
    query_terms: NDArray[np.int32],
    query_weights: NDArray[np.float32],
    k1: float,
    b: float,
    avg_length: float,
) -> NDArray[np.float64]:
    """Return (n_queries, n) float64; see ``bm25_cpu.scores``."""
    out = np.zeros((len(query_indptr) - 1, len(lengths)))
    for j in range(len(out)):
        for q in range(query_indptr[j], query_indptr[j + 1]):
            term = query_terms[q]
            for p in range(indptr[term], indptr[term + 1]):
                row = rows[p]
                relative = float(lengths[row]) / avg_length if avg_length > 0 else 1.0
                frequency = float(tf[p])
                saturation = frequency / (frequency + k1 * (1 - b + b * relative))
                out[j, row] += float(query_weights[q]) * float(idf[term]) * saturation
    return out
