"""The best k rows of each question: a bound that leaves few of them, and one sort of these."""

from __future__ import annotations

from typing import Any

import numpy as np

from zeromem.kernels._check import as_array, check_mask, check_range
from zeromem.kernels._namespace import namespace

_MIN_GROUPS = 256


def topk(scores: Any, mask: Any, k: int) -> tuple[Any, Any]:
    """Return (b, k) int32 and (b, k) float32 in ``scores``' namespace; see ``topk_cpu.topk``."""
    xp, _ = namespace(scores, mask)
    scores = as_array(scores, "scores", np.float32, 2, xp)
    check_range(k, "k", 0, 2**31 - 1)
    chosen = ~xp.isnan(scores)
    if mask is not None:
        mask = xp.asarray(mask)
        check_mask(mask, scores.shape)
        chosen &= as_array(xp.atleast_2d(mask), "mask", np.bool_, 2, xp)
    b, n = scores.shape
    rows = xp.full((b, k), -1, np.int32)
    best = xp.zeros((b, k), np.float32)
    width = min(k, n)
    if width == 0 or b == 0:
        return rows, best
    chosen &= scores >= _bound(scores, chosen, width, xp)
    question, row = xp.nonzero(chosen)  # question by question, row by row
    score = scores[question, row]
    # Integers in the order of the floats (of a negative one, all bits but the sign are turned),
    # and before them the question: one stable sort, in which ties stay in the order of rows.
    bits = (score + np.float32(0)).view(np.int32)  # the sum makes -0 equal to 0
    rising = (bits ^ ((bits >> 31) & np.int32(0x7FFFFFFF))).astype(np.int64)
    order = xp.argsort((question.astype(np.int64) << 32) + (0x7FFFFFFF - rising), kind="stable")
    count = chosen.sum(axis=1)
    first = xp.cumsum(count) - count
    question = question[order]
    place = xp.arange(len(order)) - first[question]
    kept = place < width
    question, place, order = question[kept], place[kept], order[kept]
    rows[question, place] = row[order]
    best[question, place] = score[order]
    return rows, best


def _bound(scores: Any, allowed: Any, k: int, xp: Any) -> Any:
    """Return (b, 1): what the k best of each question reach, and hardly more; see ``topk_cpu``."""
    b, n = scores.shape
    groups = max(4 * k, _MIN_GROUPS)
    if n < 4 * groups:
        return xp.full((b, 1), -np.inf, np.float32)
    padded = xp.full((b, -(-n // groups) * groups), -np.inf, np.float32)
    padded[:, :n] = xp.where(allowed, scores, np.float32(-np.inf))
    top = xp.sort(padded.reshape(b, -1, groups).max(axis=1), axis=1)
    return top[:, groups - k : groups - k + 1]
