"""The best k rows of each question: the oracle."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def topk(
    scores: NDArray[np.float32], mask: NDArray[np.bool_] | None, k: int
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Return rows (b, k) and scores (b, k): descending, ties by row, NaN and masked rows out."""
    rows = np.full((len(scores), k), -1, np.int32)
    best = np.zeros((len(scores), k))
    for j, line in enumerate(scores):
        allowed = (
            np.ones(len(line), bool) if mask is None else np.broadcast_to(mask, scores.shape)[j]
        )
        candidates = [i for i in range(len(line)) if allowed[i] and not np.isnan(line[i])]
        candidates.sort(key=lambda i: (-float(line[i]), i))
        for place, i in enumerate(candidates[:k]):
            rows[j, place] = i
            best[j, place] = line[i]
    return rows, best
