"""Weighted sums of normalised signals: the oracle."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def combine(
    signals: NDArray[np.float32], weights: NDArray[np.float32], mask: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return (b, n) float64; see ``combine_cpu.combine``."""
    n_signals, b, n = signals.shape
    out = np.full((b, n), np.nan)
    for j in range(b):
        allowed = mask[j % len(mask)]
        if not allowed.any():
            continue
        out[j, allowed] = 0.0
        for s in range(n_signals):
            values = signals[s, j, allowed].astype(np.float64)
            low, high = values.min(), values.max()
            if high > low:
                out[j, allowed] += float(weights[s]) * (values - low) / (high - low)
    return out
