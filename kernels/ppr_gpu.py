"""Personalized PageRank (eq. 10) as sparse matrix products."""

from __future__ import annotations

from typing import Any

import numpy as np

from zeromem.kernels._namespace import namespace
from zeromem.kernels._ppr import PPRResult, checked


def ppr(
    indptr: Any,
    indices: Any,
    data: Any,
    dangling: Any,
    reset: Any,
    damping: float,
    n_iter: int,
) -> PPRResult:
    """Return scores in the namespace of the arrays; see ``ppr_cpu.ppr``."""
    xp, sparse = namespace(indptr, indices, data, dangling, reset)
    indptr, indices, data, dangling, reset = checked(
        xp, indptr, indices, data, dangling, reset, damping, n_iter
    )
    n_nodes, b = reset.shape
    if not (n_nodes and b):
        return PPRResult(reset.copy(), n_iter, 0.0)
    # A hub adds up tens of thousands of terms; float32 sums lose the fifth digit there.
    r = reset.astype(np.float64)
    values = data.astype(np.float64)
    PT = sparse.csr_matrix((values, indices, indptr), shape=(n_nodes, n_nodes))
    dangling_idx = xp.flatnonzero(dangling)
    pi, before = r, r
    for _ in range(n_iter):
        before = pi
        # eq. 10: dangling mass returns to the reset vector, or the scores lose mass.
        lost = pi[dangling_idx].sum(axis=0)
        pi = (1 - damping + damping * lost) * r + damping * (PT @ pi)
    residual = float(xp.abs(pi - before).sum(axis=0).max())
    return PPRResult(pi.astype(np.float32), n_iter, residual)
