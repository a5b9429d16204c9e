"""Weighted sums of normalised signals, and maxima over units, one question at a time."""

from __future__ import annotations

import numpy as np
from numba import types
from numpy.typing import NDArray

from zeromem.errors import InvalidInputError
from zeromem.kernels._check import as_array, check_shape
from zeromem.kernels._numba import BOOL_2, F32_1, F32_2, I64_1, OUT_F32_2, VOID, kernel

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


@kernel(VOID(F32_2, I64_1, I64_1, OUT_F32_2))
def _span_max(scores, starts, ends, out):
    for j in range(len(scores)):
        for s in range(len(starts)):
            best = scores[j, starts[s]]
            for i in range(starts[s] + 1, ends[s]):
                best = max(best, scores[j, i])
            out[j, s] = best


def span_max(
    scores: NDArray[np.float32], starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Return the largest score in each half-open range of columns.

    Parameters
    ----------
    scores : (b, n) float32
    starts, ends : (m,) int64
        0 <= start < end <= n.

    Returns
    -------
    (b, m) float32

    Raises
    ------
    InvalidInputError
    """
    scores = as_array(scores, "scores", np.float32, 2)
    starts = as_array(starts, "starts", np.int64, 1)
    ends = as_array(ends, "ends", np.int64, 1)
    check_shape(ends, "ends", starts.shape)
    if len(starts) and not (
        starts.min() >= 0 and ends.max() <= scores.shape[1] and (starts < ends).all()
    ):
        raise InvalidInputError(
            f"spans must be non-empty ranges of {scores.shape[1]} columns, got starts "
            f"{starts.min()} to {starts.max()}, ends {ends.min()} to {ends.max()}"
        )
    out = np.empty((len(scores), len(starts)), np.float32)
    _span_max(scores, starts, ends, out)
    return out
