"""Personalized PageRank (eq. 10): the oracle."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from zeromem.kernels._ppr import PPRResult


def ppr(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    data: NDArray[np.float32],
    dangling: NDArray[np.bool_],
    reset: NDArray[np.float32],
    damping: float,
    n_iter: int,
) -> PPRResult:
    """Return float64 scores by a dense matrix; see ``ppr_cpu.ppr``."""
    r = np.asarray(reset, dtype=np.float64)
    n_nodes = len(r)
    PT = np.zeros((n_nodes, n_nodes))
    for i in range(n_nodes):
        for p in range(indptr[i], indptr[i + 1]):
            PT[i, indices[p]] += float(data[p])
    pi, before = r, r
    for _ in range(n_iter):
        before = pi
        lost = np.array([column[dangling].sum() for column in pi.T])
        pi = (1 - damping) * r + damping * (PT @ pi + lost * r)
    change = [np.abs(column).sum() for column in (pi - before).T]
    return PPRResult(pi, n_iter, max(change, default=0.0))
