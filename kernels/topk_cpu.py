"""The best k rows of each question, by a bounded heap."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from zeromem.kernels._check import as_array, check_mask, check_range
from zeromem.kernels._numba import (
    BOOL,
    BOOL_1,
    BOOL_2,
    F32_1,
    F32_2,
    I32_1,
    I64,
    OUT_F32_1,
    OUT_F32_2,
    OUT_I32_1,
    OUT_I32_2,
    VOID,
    kernel,
)


@kernel(BOOL(F32_1, I32_1, I64, I64))
def _worse(score, row, i, j):
    if score[i] != score[j]:
        return score[i] < score[j]
    return row[i] > row[j]


@kernel(VOID(OUT_F32_1, OUT_I32_1, I64, I64))
def _sift_down(score, row, start, size):
    # The worst kept item is at the root.
    parent = start
    while True:
        child = 2 * parent + 1
        if child >= size:
            return
        if child + 1 < size and _worse(score, row, child + 1, child):
            child += 1
        if not _worse(score, row, child, parent):
            return
        score[parent], score[child] = score[child], score[parent]
        row[parent], row[child] = row[child], row[parent]
        parent = child


@kernel(VOID(F32_2, BOOL_2, OUT_I32_2, OUT_F32_2))
def _topk(scores, mask, rows, best):
    b, n = scores.shape
    k = rows.shape[1]
    for j in range(b):
        score = best[j]
        row = rows[j]
        size = 0
        for i in range(n):
            value = scores[j, i]
            if np.isnan(value) or (len(mask) > 0 and not mask[j % len(mask), i]):
                continue
            if size < k:
                score[size] = value
                row[size] = i
                size += 1
                if size == k:
                    for parent in range(k // 2 - 1, -1, -1):
                        _sift_down(score, row, parent, k)
            elif value > score[0]:  # an equal score of a later row stays out
                score[0] = value
                row[0] = i
                _sift_down(score, row, 0, k)
        if size < k:
            for parent in range(size // 2 - 1, -1, -1):
                _sift_down(score, row, parent, size)
        for last in range(size - 1, 0, -1):
            score[0], score[last] = score[last], score[0]
            row[0], row[last] = row[last], row[0]
            _sift_down(score, row, 0, last)


def topk(
    scores: NDArray[np.float32], mask: NDArray[np.bool_] | None, k: int
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return the k best rows of each question, best first; ties go to the lower row.

    Parameters
    ----------
    scores : (b, n) float32
        NaN is never selected.
    mask : (n,) or (b, n) bool, optional
        Only rows where it is True are selected.
    k : int
        At least 0; may exceed n.

    Returns
    -------
    rows : (b, k) int32
        Padded with -1.
    best : (b, k) float32
        Padded with 0.

    Raises
    ------
    InvalidInputError
    """
    scores = as_array(scores, "scores", np.float32, 2)
    check_range(k, "k", 0, 2**31 - 1)
    allowed = np.empty((0, 0), np.bool_)
    if mask is not None:
        mask = np.asarray(mask)
        check_mask(mask, scores.shape)
        allowed = as_array(np.atleast_2d(mask), "mask", np.bool_, 2)
    rows = np.full((len(scores), k), -1, np.int32)
    best = np.zeros((len(scores), k), np.float32)
    if k and scores.size:
        width = min(k, scores.shape[1])
        kept_rows = np.full((len(scores), width), -1, np.int32)
        kept = np.zeros((len(scores), width), np.float32)
        _topk(scores, allowed, kept_rows, kept)
        rows[:, :width] = kept_rows
        best[:, :width] = kept
    return rows, best


@kernel(I64(F32_1, BOOL_1, OUT_I32_1, OUT_F32_1))
def best(scores, mask, row, score):
    """Fill in the best rows of one question, best first; return how many there are.

    Parameters
    ----------
    scores : (n,) float32
        NaN is never selected.
    mask : (n,) bool
    row : (k,) int32, written
    score : (k,) float32, written
    """
    k = len(row)
    size = 0
    if k == 0:
        return np.int64(0)
    for i in range(len(scores)):
        value = scores[i]
        if not mask[i] or np.isnan(value):
            continue
        if size < k:
            score[size] = value
            row[size] = i
            size += 1
            if size == k:
                for parent in range(k // 2 - 1, -1, -1):
                    _sift_down(score, row, parent, k)
        elif value > score[0]:  # an equal score of a later row stays out
            score[0] = value
            row[0] = i
            _sift_down(score, row, 0, k)
    if size < k:
        for parent in range(size // 2 - 1, -1, -1):
            _sift_down(score, row, parent, size)
    for last in range(size - 1, 0, -1):
        score[0], score[last] = score[last], score[0]
        row[0], row[last] = row[last], row[0]
        _sift_down(score, row, 0, last)
    return np.int64(size)
