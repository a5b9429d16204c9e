"""The largest score within each range of columns."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from zeromem.errors import InvalidInputError
from zeromem.kernels._check import as_array, check_shape
from zeromem.kernels._numba import F32_2, I64_1, OUT_F32_2, VOID, kernel


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
