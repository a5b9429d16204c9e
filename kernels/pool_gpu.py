"""Weighted means of consecutive vectors as one sparse matrix product."""

from __future__ import annotations

from typing import Any

import numpy as np

from zeromem.kernels._check import as_array, check_shape
from zeromem.kernels._namespace import namespace
from zeromem.kernels._spans import check_spans


def pool(vectors: Any, weights: Any, spans: Any) -> Any:
    """Return (m, dim) float32 in the namespace of ``vectors``; see ``pool_cpu.pool``."""
    xp, sparse = namespace(vectors, weights, spans)
    vectors = as_array(vectors, "vectors", np.float32, 2, xp)
    weights = as_array(weights, "weights", np.float32, 1, xp)
    spans = as_array(spans, "spans", np.int32, 2, xp)
    check_shape(weights, "weights", (len(vectors),))
    check_spans(spans, len(vectors))
    lengths = (spans[:, 1] - spans[:, 0]).astype(np.int64)
    indptr = xp.concatenate([xp.zeros(1, np.int64), xp.cumsum(lengths)])
    n_members = int(indptr[-1])
    if n_members == 0:
        return xp.zeros((len(spans), vectors.shape[1]), np.float32)
    # Member p of span m is row start[m] + (p - indptr[m]).
    span_of = xp.searchsorted(indptr, xp.arange(n_members), side="right") - 1
    rows = xp.arange(n_members) - indptr[span_of] + spans[span_of, 0]
    members = sparse.csr_matrix((weights[rows], rows, indptr), shape=(len(spans), len(vectors)))
    sums = members @ vectors
    norms = xp.sqrt((sums.astype(np.float64) ** 2).sum(axis=1))
    return (sums / xp.where(norms > 0, norms, 1.0)[:, None]).astype(np.float32)
