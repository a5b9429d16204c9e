"""Weighted sums of signals, each normalised over a question's admissible rows."""

from __future__ import annotations

import numpy as np
from numba import types
from numpy.typing import NDArray

from zeromem.kernels._check import as_array, check_shape
from zeromem.kernels._numba import BOOL_2, F32_1, OUT_F32_2, VOID, kernel

_F32_3 = types.Array(types.float32, 3, "C", readonly=True)


@kernel(VOID(_F32_3, F32_1, BOOL_2, OUT_F32_2))
def _combine(signals, weights, mask, out):
    n_signals, b, n = signals.shape
    for j in range(b):
        allowed = mask[j % len(mask)]
        for i in range(n):
            out[j, i] = np.float32(0.0) if allowed[i] else np.float32(np.nan)
        for s in range(n_signals):
            low = np.float32(np.inf)
            high = np.float32(-np.inf)
            for i in range(n):
                if allowed[i]:
                    low = min(low, signals[s, j, i])
                    high = max(high, signals[s, j, i])
            if not high > low:  # all alike: the signal tells nothing apart
                continue
            scale = weights[s] / (high - low)
            for i in range(n):
                if allowed[i]:
                    out[j, i] += scale * (signals[s, j, i] - low)


def combine(
    signals: NDArray[np.float32], weights: NDArray[np.float32], mask: NDArray[np.bool_]
) -> NDArray[np.float32]:
    """Return the weighted sum of signals, each min-max normalised over a question's allowed rows.

    A signal that is the same for all allowed rows counts as 0.

    Parameters
    ----------
    signals : (n_signals, b, n) float32
        Finite.
    weights : (n_signals,) float32
    mask : (1, n) or (b, n) bool
        The rows that may be ranked.

    Returns
    -------
    (b, n) float32
        NaN where not allowed, which ``topk`` never selects.

    Raises
    ------
    InvalidInputError
    """
    signals = as_array(signals, "signals", np.float32, 3)
    weights = as_array(weights, "weights", np.float32, 1)
    check_shape(weights, "weights", (len(signals),))
    mask = as_array(mask, "mask", np.bool_, 2)
    b, n = signals.shape[1:]
    check_shape(mask, "mask", (1 if len(mask) == 1 else b, n))
    out = np.empty(signals.shape[1:], np.float32)
    _combine(signals, weights, mask, out)
    return out
