"""Weighted means of consecutive vectors: the oracle."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def pool(
    vectors: NDArray[np.float32], weights: NDArray[np.float32], spans: NDArray[np.int32]
) -> NDArray[np.float64]:
    """Return (m, dim) float64: per span the weighted mean of its rows, scaled to unit norm."""
    out = np.zeros((len(spans), np.shape(vectors)[1]))
    for m, (start, stop) in enumerate(spans):
        for i in range(start, stop):
            out[m] += float(weights[i]) * np.asarray(vectors[i], dtype=np.float64)
        norm = np.sqrt((out[m] ** 2).sum())
        if norm > 0:
            out[m] /= norm
    return out
