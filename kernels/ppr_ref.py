"""Personalized PageRank (eq. 10): the oracle."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from zeromem.kernels._ppr import PPRResult


def ppr(
    previous: NDArray[np.int32],
    mention_indptr: NDArray[np.int64],
    mention_entity: NDArray[np.int32],
    mention_weight: NDArray[np.float32],
    inverse_degree: NDArray[np.float32],
    reset: NDArray[np.float32],
    adjacency_weight: float,
    damping: float,
    tol: float,
    *,
    offsets: NDArray[np.int64] | None = None,
) -> PPRResult:
    """Return float64 scores by power iteration; see ``ppr_cpu.ppr``.

    It iterates until a step changes less than ``tol * (1 - damping)`` in L1, so that what is left
    to change is less than ``tol``.
    """
    n, n_nodes = len(previous), len(reset)
    turn = np.repeat(np.arange(n), np.diff(mention_indptr))
    after = np.flatnonzero(previous >= 0)
    weights = np.concatenate([mention_weight, np.full(len(after), adjacency_weight)])
    starts = np.concatenate([turn, after])
    ends = np.concatenate([n + mention_entity.astype(np.int64), previous[after]])
    half = sp.coo_matrix((weights.astype(np.float64), (starts, ends)), shape=(n_nodes, n_nodes))
    A = (half + half.T).tocsr()
    PT = (sp.diags(inverse_degree.astype(np.float64)) @ A).T.tocsr()
    dangling = inverse_degree == 0
    if offsets is None:
        offsets = np.array([[0, 0], [n, n_nodes - n]])
    memory = np.zeros((len(offsets) - 1, n_nodes), bool)
    for k in range(len(memory)):
        memory[k, offsets[k, 0] : offsets[k + 1, 0]] = True
        memory[k, n + offsets[k, 1] : n + offsets[k + 1, 1]] = True
    r = np.asarray(reset, dtype=np.float64)
    pi, n_iter, change = r, 0, np.inf
    while change > tol * (1 - damping) and n_iter < 100_000:
        before, n_iter = pi, n_iter + 1
        # eq. 10: dangling mass returns to the reset vector, or the scores lose mass.
        lost = np.zeros_like(r)
        for rows in memory:
            lost[rows] = r[rows] * pi[rows & dangling].sum(axis=0)
        pi = (1 - damping) * r + damping * (PT @ pi + lost)
        change = max((np.abs(column).sum() for column in (pi - before).T), default=0.0)
    return PPRResult(pi, n_iter, change)
