"""Personalized PageRank (eq. 10) by power iteration over PT in CSR."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from zeromem.kernels._numba import (
    BOOL_1,
    F32,
    F32_1,
    F32_2,
    F64,
    I32_1,
    I64,
    I64_1,
    OUT_F32_1,
    OUT_F32_2,
    OUT_F64_1,
    VOID,
    kernel,
)
from zeromem.kernels._ppr import PPRResult, checked

# Columns per block: a block of many makes the most of each random access to a row, a block of few
# wastes less where there are few. The width is a constant of the code, so the loops vectorise.
_WIDE, _NARROW = 64, 16

# A row of a hub adds up tens of thousands of terms, in float64 for the sake of the last digits.
# No fused multiply-add and no reordering anywhere, so every width rounds alike: a column alone has
# the bits that it has in a block.


@kernel(F64(I64_1, I32_1, F32_1, BOOL_1, F32_1, F32, I64, OUT_F32_1))
def _column(indptr, indices, data, dangling, reset, damping, n_iter, pi):
    """Iterate one column in place; return the L1 change of the last iteration."""
    n_nodes = len(reset)
    keep = np.float32(1.0) - damping
    following = np.empty(n_nodes, np.float32)
    current = pi.copy()
    for _ in range(n_iter):
        lost = 0.0
        for i in range(n_nodes):
            if dangling[i]:
                lost += current[i]
        # eq. 10: dangling mass returns to the reset vector, or the scores lose mass.
        restart = keep + damping * np.float32(lost)
        for i in range(n_nodes):
            total = 0.0
            for p in range(indptr[i], indptr[i + 1]):
                total += data[p] * current[indices[p]]
            following[i] = restart * reset[i] + damping * np.float32(total)
        current, following = following, current
    change = 0.0
    for i in range(n_nodes):
        pi[i] = current[i]
        change += abs(current[i] - following[i])
    return change


def _block_kernel(width: int) -> Any:
    """Compile the kernel that iterates ``width`` columns in place."""

    @kernel(VOID(I64_1, I32_1, F32_1, BOOL_1, F32_2, F32, I64, OUT_F32_2, OUT_F64_1))
    def block(indptr, indices, data, dangling, reset, damping, n_iter, pi, change):
        n_nodes = len(reset)
        keep = np.float32(1.0) - damping
        current = pi.copy()
        following = np.empty((n_nodes, width), np.float32)
        lost = np.empty(width, np.float64)
        restart = np.empty(width, np.float32)
        total = np.empty(width, np.float64)
        for _ in range(n_iter):
            lost[:] = 0.0
            for i in range(n_nodes):
                if dangling[i]:
                    for c in range(width):
                        lost[c] += current[i, c]
            for c in range(width):
                restart[c] = keep + damping * np.float32(lost[c])
            for i in range(n_nodes):
                total[:] = 0.0
                for p in range(indptr[i], indptr[i + 1]):
                    weight = data[p]
                    j = indices[p]
                    for c in range(width):
                        total[c] += weight * current[j, c]
                for c in range(width):
                    following[i, c] = restart[c] * reset[i, c] + damping * np.float32(total[c])
            current, following = following, current
        change[:] = 0.0
        for i in range(n_nodes):
            for c in range(width):
                pi[i, c] = current[i, c]
                change[c] += abs(current[i, c] - following[i, c])

    return block


_BLOCKS = {width: _block_kernel(width) for width in (_WIDE, _NARROW)}


def ppr(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    data: NDArray[np.float32],
    dangling: NDArray[np.bool_],
    reset: NDArray[np.float32],
    damping: float,
    n_iter: int,
) -> PPRResult:
    """Return ``n_iter`` power iterations of ``pi = (1 - damping) r + damping (PT pi + lost r)``.

    ``lost`` is the mass on dangling nodes, so a column that starts with sum 1 keeps it.

    Parameters
    ----------
    indptr, indices, data : (n_nodes + 1,) int64, (nnz,) int32, (nnz,) float32
        PT in CSR, the transpose of the row-normalised transition matrix.
    dangling : (n_nodes,) bool
        True where P has an empty row.
    reset : (n_nodes, b) float32, non-negative
        r; each column sums to 1, or is all zero and then stays so.
    damping : float
        gamma, the probability of following an edge, in [0, 1).
    n_iter : int
        At least 1. The error is at most ``2 damping ** n_iter`` in L1.

    Returns
    -------
    PPRResult
        A column does not depend on the other columns, to the last bit.

    Raises
    ------
    InvalidInputError
    """
    indptr, indices, data, dangling, reset = checked(
        np, indptr, indices, data, dangling, reset, damping, n_iter
    )
    n_nodes, b = reset.shape
    scores = np.empty((n_nodes, b), np.float32)
    graph = (indptr, indices, data, dangling)
    start, residual = 0, 0.0
    while start < b:
        width = _width(b - start)
        columns = slice(start, min(start + width, b))
        block = np.zeros((n_nodes, width), np.float32)
        block[:, : columns.stop - start] = reset[:, columns]
        pi = block.copy()
        if width == 1:
            change = _column(*graph, block.reshape(-1), damping, n_iter, pi.reshape(-1))
        else:
            changes = np.zeros(width)
            _BLOCKS[width](*graph, block, damping, n_iter, pi, changes)
            change = float(changes.max())
        scores[:, columns] = pi[:, : columns.stop - start]
        residual = max(residual, change)
        start = columns.stop
    return PPRResult(scores, n_iter, residual)


def _width(n_left: int) -> int:
    """Choose the widest kernel that is not mostly padding."""
    if n_left < _NARROW // 2:
        return 1
    return _NARROW if n_left <= 2 * _NARROW else _WIDE
