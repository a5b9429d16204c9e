"""One ranking of a question and its parts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from zeromem.kernels._noise import NOISE

Array = NDArray[Any]


def fold(rows: Array, scores: Array, indptr: Array, weight: float) -> tuple[Array, Array]:
    """Make one ranking of each group: its first, plus the best of the others times ``weight``.

    Scores are min-max-normalised first (eq. 12), as they are of different questions.

    Parameters
    ----------
    rows, scores : (b, k) int32, (b, k) float32
        Best first, padded with -1.
    indptr : (n_groups + 1,) int
        Rankings of each group.
    weight : float

    Returns
    -------
    rows, scores : (n_groups, k)
    """
    whole_rows, whole_scores = rows[indptr[:-1]].copy(), scores[indptr[:-1]].copy()
    for group in np.flatnonzero(np.diff(indptr) > 1).tolist():
        members = range(indptr[group], indptr[group + 1])
        found = np.unique(rows[members.start : members.stop])
        found = found[found >= 0]
        shares = np.zeros((len(members), len(found)))
        for share, member in zip(shares, members, strict=True):
            there = rows[member] >= 0
            own = scores[member][there]
            if len(own):
                low, high = own.min(), own.max()
                apart = high - low > NOISE * max(abs(low), abs(high))
                at = np.searchsorted(found, rows[member][there])
                share[at] = (own - low) / (high - low) if apart else 1.0
        total = shares[0] + weight * shares[1:].max(axis=0)
        order = np.lexsort((found, -total))[: rows.shape[1]]
        whole_rows[group], whole_scores[group] = -1, 0
        whole_rows[group, : len(order)] = found[order]
        whole_scores[group, : len(order)] = total[order]
    return whole_rows, whole_scores
