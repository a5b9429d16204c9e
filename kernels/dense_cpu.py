"""Inner products of float16 vectors and queries, each summed in one fixed order."""

from __future__ import annotations

from concurrent.futures import Executor
from typing import Any

import numpy as np
from numba.core.registry import cpu_target
from numpy.typing import NDArray

from zeromem.kernels._check import as_array, check_shape
from zeromem.kernels._half import PART_BITS, PART_ROWS, tile
from zeromem.kernels._numba import F32_2, I64, I64_1, VOID, kernel

# How many queries a tile takes: its sums fill 16 of 32 vector registers, or, where registers have
# 8 lanes, 8 of 16. The shape changes no bit of a cell.
_WIDE = "+avx512f" in cpu_target.target_context.codegen().magic_tuple()[2].split(",")
_QUERIES = 4 if _WIDE else 2
_BLOCK_BYTES = 16 << 10  # rows that stay in the nearest cache while all queries pass over them
_AHEAD = 4096  # bytes; at 0 the widest tile reads from memory at half the rate
_JOB = 16 << 20  # products in one piece of work for a pool: about 0.3 ms
_JOB_ROWS = 256

# With few queries, memory is what a tile waits for: fewer rows at a time read it more in order.
_tile_4 = tile(4, 4)
_tile_3 = tile(4, 3)
_tile_2 = tile(2, 2)
_tile_1 = tile(2, 1)
_cell = tile(1, 1)


@kernel(VOID(I64, I64, I64, F32_2, I64, I64))
def _block(row, n, dim, queries, out, out_stride):
    """Score ``n`` rows that lie side by side from address ``row``."""
    b = len(queries)
    row_bytes = 2 * dim
    stride = 4 * dim
    for j in range(0, b, _QUERIES):
        query = queries.ctypes.data + j * stride
        cells = out + j * out_stride
        few = min(b - j, _QUERIES)
        ahead = _AHEAD if j == 0 else 0  # later queries find the rows in the cache
        step = 4 if few > 2 else 2
        whole = n - n % step
        for i in range(0, whole, step):
            place = row + i * row_bytes
            cell = cells + 4 * i
            if few == 1:
                _tile_1(place, query, stride, dim, cell, out_stride, ahead)
            elif few == 2:
                _tile_2(place, query, stride, dim, cell, out_stride, ahead)
            elif few == 3:
                _tile_3(place, query, stride, dim, cell, out_stride, ahead)
            else:
                _tile_4(place, query, stride, dim, cell, out_stride, ahead)
        for i in range(whole, n):
            for c in range(few):
                cell = cells + c * out_stride + 4 * i
                _cell(row + i * row_bytes, query + c * stride, stride, dim, cell, out_stride, 0)


@kernel(VOID(I64_1, I64, I64, F32_2, I64, I64))
def _scores(addresses, start, stop, queries, out, out_stride):
    """Score rows ``start`` to ``stop``; ``out`` is the address of query 0's cell of row 0."""
    dim = queries.shape[1]
    rows = max(4, _BLOCK_BYTES // (2 * dim + 1) // 4 * 4)
    while start < stop:
        within = start & (PART_ROWS - 1)
        n = min(rows, stop - start, PART_ROWS - within)
        row = addresses[start >> PART_BITS] + 2 * dim * within
        _block(row, n, dim, queries, out + 4 * start, out_stride)
        start += n


def scores(
    vectors: Any, queries: NDArray[np.float32], pool: Executor | None = None
) -> NDArray[np.float32]:
    """Return the inner product of every query with every vector.

    A cell depends on its own vector and query alone, to the last bit: a question asked alone
    scores as it does in any batch, with any number of threads, and a vector scores alike wherever
    its row lies; ``_half.row_dot`` gives the same bits again. A half widens to float32 exactly,
    and every product is fused with its sum in float32.

    Parameters
    ----------
    vectors : Chunks
        ``len(vectors)`` float16 rows of ``vectors.dim`` elements in parts of 8192, which start at
        ``vectors.addresses``.
    queries : (b, dim) float32
    pool : Executor, optional
        Scores blocks of rows at the same time; the kernel holds no lock.

    Returns
    -------
    (b, n) float32

    Raises
    ------
    InvalidInputError
        On another dtype of the queries, or widths that differ.
    """
    queries = as_array(queries, "queries", np.float32, 2)
    check_shape(queries, "queries", (len(queries), vectors.dim))
    b, n = len(queries), len(vectors)
    out = np.empty((b, n), np.float32)
    if b == 0 or n == 0:
        return out
    arguments = (queries, out.ctypes.data, 4 * n)
    step = max(_JOB_ROWS, _JOB // (b * max(vectors.dim, 1)) // _JOB_ROWS * _JOB_ROWS)
    if pool is None or step >= n:
        _scores(vectors.addresses, 0, n, *arguments)
        return out

    def score(start: int) -> None:
        _scores(vectors.addresses, start, min(start + step, n), *arguments)

    for _ in pool.map(score, range(0, n, step)):
        pass
    return out
