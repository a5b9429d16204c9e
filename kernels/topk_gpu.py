"""The best k rows of each question, by stable sorts."""

from __future__ import annotations

from typing import Any

import numpy as np

from zeromem.kernels._check import as_array, check_mask, check_range
from zeromem.kernels._namespace import namespace


def topk(scores: Any, mask: Any, k: int) -> tuple[Any, Any]:
    """Return (b, k) int32 and (b, k) float32 in ``scores``' namespace; see ``topk_cpu.topk``."""
    xp, _ = namespace(scores, mask)
    scores = as_array(scores, "scores", np.float32, 2, xp)
    check_range(k, "k", 0, 2**31 - 1)
    invalid = xp.isnan(scores)
    if mask is not None:
        mask = xp.asarray(mask)
        check_mask(mask, scores.shape)
        invalid = invalid | ~as_array(xp.atleast_2d(mask), "mask", np.bool_, 2, xp)
    b, n = scores.shape
    rows = xp.full((b, k), -1, np.int32)
    best = xp.zeros((b, k), np.float32)
    width = min(k, n)
    if width == 0 or b == 0:
        return rows, best
    order = xp.argsort(xp.where(invalid, np.float32(np.inf), -scores), axis=1, kind="stable")
    # Rows that score -inf tie with the invalid ones; a second stable sort puts these last.
    last = xp.argsort(xp.take_along_axis(invalid, order, axis=1), axis=1, kind="stable")
    order = xp.take_along_axis(order, last, axis=1)[:, :width]
    valid = ~xp.take_along_axis(invalid, order, axis=1)
    rows[:, :width] = xp.where(valid, order, -1)
    best[:, :width] = xp.where(valid, xp.take_along_axis(scores, order, axis=1), 0)
    return rows, best
