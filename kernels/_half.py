"""Inner products over half precision rows, whose order of additions is part of the instructions.

A cell is summed in 16 lanes of fused multiply-adds over the dimension, lane c taking elements c,
c + 16, c + 32, ..., and one tree over the lanes at the end (16 to 8, to 4, to 2, to 1). The vector
instructions are written out rather than left to the loop vectoriser, so a cell has the same bits
in a tile of any shape, in any batch, in :func:`row_dot`, and on machines whose registers hold 4,
8 or 16 lanes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numpy.typing import NDArray

from zeromem.kernels._numba import F32, F32_1, I64, I64_1, OUT_F32_2, VOID, kernel
from zeromem.kernels._vector import HALF, LANES, SINGLE, instruction, load, store, vector
from zeromem.kernels._vector import I16 as _I16
from zeromem.kernels._vector import I32 as _I32
from zeromem.kernels._vector import I64 as _I64

PART_BITS = 13
PART_ROWS = 1 << PART_BITS  # rows in every part of a list of parts, but for the last
_LINE = 64  # bytes of a cache line


def _all(value: int, element: ir.Type) -> ir.Constant:
    return ir.Constant(vector(element), [value] * LANES)


def _widen_by_parts(builder: ir.IRBuilder, halves: ir.Value) -> ir.Value:
    """Widen by integer arithmetic: exact, for x86 machines without the F16C instructions."""
    bits = builder.zext(builder.bitcast(halves, vector(_I16)), vector(_I32))
    sign = builder.shl(builder.and_(bits, _all(0x8000, _I32)), _all(16, _I32))
    magnitude = builder.and_(bits, _all(0x7FFF, _I32))
    shifted = builder.shl(magnitude, _all(13, _I32))
    # The exponents' biases differ by 112; a product also makes a subnormal half a normal float.
    scaled = builder.fmul(
        builder.bitcast(shifted, vector(SINGLE)),
        ir.Constant(vector(SINGLE), [2.0**112] * LANES),
    )
    special = builder.icmp_unsigned(">=", magnitude, _all(0x7C00, _I32))  # infinities and NaN
    finite = builder.bitcast(scaled, vector(_I32))
    widened = builder.select(special, builder.or_(shifted, _all(0x7F800000, _I32)), finite)
    return builder.bitcast(builder.or_(widened, sign), vector(SINGLE))


def _widen(context: Any, builder: ir.IRBuilder, halves: ir.Value) -> ir.Value:
    triple, _, features = context.codegen().magic_tuple()
    # Without the instruction, LLVM would call a library function that may not be there.
    if triple.startswith(("x86", "i686", "amd64")) and "+f16c" not in features.split(","):
        return _widen_by_parts(builder, halves)
    return builder.fpext(halves, vector(SINGLE))


def _load_first(
    builder: ir.IRBuilder, address: ir.Value, element: ir.Type, size: int, count: ir.Value
) -> ir.Value:
    """Load ``count`` < 16 elements, with zeros behind them."""
    lanes = cgutils.alloca_once(builder, ir.ArrayType(element, LANES))
    builder.store(ir.Constant(lanes.type.pointee, None), lanes)
    with cgutils.for_range(builder, count) as loop:
        offset = builder.mul(loop.index, _I64(size))
        value = load(builder, builder.add(address, offset), element, size)
        builder.store(value, builder.gep(lanes, [_I64(0), loop.index]))
    return builder.load(builder.bitcast(lanes, vector(element).as_pointer()), align=size)


def _fold(builder: ir.IRBuilder, cells: list[ir.Value]) -> ir.Value:
    """Return one vector whose lane i is the sum of the lanes of ``cells[i]``; at most 16 cells."""
    cells = cells + [ir.Constant(vector(SINGLE), ir.Undefined)] * (LANES - len(cells))
    width = LANES
    while width > 1:
        half = width // 2
        low = [lane for lane in range(2 * LANES) if lane % width < half]
        pick = [ir.Constant(vector(_I32), [lane + add for lane in low]) for add in (0, half)]
        pairs = zip(cells[::2], cells[1::2], strict=True)
        cells = [
            builder.fadd(
                builder.shuffle_vector(a, b, pick[0]), builder.shuffle_vector(a, b, pick[1])
            )
            for a, b in pairs
        ]
        width = half
    return cells[0]


def _sums(
    context: Any,
    builder: ir.IRBuilder,
    rows: list[ir.Value],
    queries: list[ir.Value],
    dim: ir.Value,
    prefetch: ir.Value,
) -> list[ir.Value]:
    """Return the 16 partial sums of each cell, query by query, row by row.

    Meanwhile what lies ``prefetch`` bytes behind the rows' elements is fetched.
    """
    singles = vector(SINGLE)
    fma_type = ir.FunctionType(singles, [singles] * 3)
    fma = cgutils.get_or_insert_function(builder.module, fma_type, "llvm.fma.v16f32")
    place = ir.IntType(8).as_pointer()
    fetch_type = ir.FunctionType(ir.VoidType(), [place, _I32, _I32, _I32])
    fetch = cgutils.get_or_insert_function(builder.module, fetch_type, "llvm.prefetch.p0")
    sums = [
        cgutils.alloca_once_value(builder, ir.Constant(singles, [0.0] * LANES))
        for _ in range(len(rows) * len(queries))
    ]

    def add_products(left: list[ir.Value], right: list[ir.Value]) -> None:
        left = [_widen(context, builder, halves) for halves in left]
        for total, (query, row) in zip(sums, ((q, r) for q in right for r in left), strict=True):
            builder.store(builder.call(fma, [row, query, builder.load(total)]), total)

    def ahead(addresses: list[ir.Value], elements: ir.Value, size: int) -> list[ir.Value]:
        offset = builder.mul(elements, _I64(size))
        return [builder.add(address, offset) for address in addresses]

    whole = builder.and_(dim, _I64(-LANES))
    with cgutils.for_range_slice(builder, _I64(0), whole, _I64(LANES), inc=True) as (first, _):
        here = ahead(rows, first, 2)
        # Line after line: the rows' own order of access looks random to the hardware's prefetch.
        start = builder.add(rows[0], prefetch)
        done = builder.mul(first, _I64(2 * len(rows)))
        for line in range(0, 2 * LANES * len(rows), _LINE):
            offset = builder.add(done, _I64(line))
            later = builder.inttoptr(builder.add(start, offset), place)
            builder.call(fetch, [later, _I32(0), _I32(3), _I32(1)])  # to read, into every cache
        add_products(
            [load(builder, a, vector(HALF), 2) for a in here],
            [load(builder, a, singles, 4) for a in ahead(queries, first, 4)],
        )
    rest = builder.sub(dim, whole)
    with builder.if_then(builder.icmp_signed(">", rest, _I64(0))):
        add_products(
            [_load_first(builder, a, HALF, 2, rest) for a in ahead(rows, whole, 2)],
            [_load_first(builder, a, SINGLE, 4, rest) for a in ahead(queries, whole, 4)],
        )
    return [builder.load(total) for total in sums]


def tile(n_rows: int, n_queries: int) -> Any:
    """Return what computes ``n_rows`` x ``n_queries`` cells inside a compiled kernel.

    ``(row, query, query_stride, dim, out, out_stride, prefetch)``: the address of the first of the
    float16 rows, which lie side by side; that of the first float32 query, and the bytes from one
    to the next; the dimension; the address of the first cell, and the bytes from one query's to
    the next's; how many bytes behind the rows to fetch for later. ``n_rows`` is a power of two up
    to 16.
    """
    together = min(n_queries, LANES // n_rows)

    @instruction(types.void, *[types.int64] * 7)
    def compute(context: Any, builder: ir.IRBuilder, *values: ir.Value) -> None:
        row, query, query_stride, dim, out, out_stride, prefetch = values

        def steps(base: ir.Value, stride: ir.Value, count: int) -> list[ir.Value]:
            return [builder.add(base, builder.mul(stride, _I64(i))) for i in range(count)]

        rows = steps(row, builder.mul(dim, _I64(2)), n_rows)
        queries = steps(query, query_stride, n_queries)
        cells = _sums(context, builder, rows, queries, dim, prefetch)
        places = steps(out, out_stride, n_queries)
        for first in range(0, n_queries, together):
            totals = _fold(builder, cells[first * n_rows : (first + together) * n_rows])
            for i, place in enumerate(places[first : first + together]):
                lanes = [i * n_rows + lane for lane in range(n_rows)]
                mask = ir.Constant(vector(_I32, n_rows), lanes)
                store(builder, builder.shuffle_vector(totals, totals, mask), place, 4)

    return compute


@instruction(types.float32, types.int64, types.int64, types.int64)
def _dot(
    context: Any, builder: ir.IRBuilder, row: ir.Value, query: ir.Value, dim: ir.Value
) -> ir.Value:
    totals = _fold(builder, _sums(context, builder, [row], [query], dim, _I64(0)))
    return builder.extract_element(totals, _I32(0))


@instruction(types.void, types.int64, types.int64, types.int64)
def _widen_row(
    context: Any, builder: ir.IRBuilder, row: ir.Value, out: ir.Value, dim: ir.Value
) -> None:
    def moved(base: ir.Value, elements: ir.Value, size: int) -> ir.Value:
        return builder.add(base, builder.mul(elements, _I64(size)))

    whole = builder.and_(dim, _I64(-LANES))
    with cgutils.for_range_slice(builder, _I64(0), whole, _I64(LANES), inc=True) as (first, _):
        halves = load(builder, moved(row, first, 2), vector(HALF), 2)
        store(builder, _widen(context, builder, halves), moved(out, first, 4), 4)
    rest = builder.sub(dim, whole)
    halves = _load_first(builder, moved(row, whole, 2), HALF, 2, rest)
    lanes = cgutils.alloca_once(builder, ir.ArrayType(SINGLE, LANES))
    store(builder, _widen(context, builder, halves), builder.ptrtoint(lanes, _I64), 4)
    with cgutils.for_range(builder, rest) as loop:
        value = builder.load(builder.gep(lanes, [_I64(0), loop.index]))
        store(builder, value, moved(out, builder.add(whole, loop.index), 4), 4)


@kernel(VOID(I64_1, I64_1, OUT_F32_2))
def take(addresses: NDArray[np.int64], rows: NDArray[np.int64], out: NDArray[np.float32]) -> None:
    """Write rows of the parts at ``addresses`` to ``out`` (k, dim) float32; they must exist."""
    dim = out.shape[1]
    for i in range(len(rows)):
        row = rows[i]
        place = addresses[row >> PART_BITS] + (row & (PART_ROWS - 1)) * dim * 2
        _widen_row(place, out.ctypes.data + i * dim * 4, dim)


@kernel(F32(I64_1, I64, F32_1))
def row_dot(addresses: NDArray[np.int64], row: int, query: NDArray[np.float32]) -> float:
    """Return the inner product of one row and ``query``: the bits that ``dense_cpu.scores`` gives.

    For use in other compiled kernels, whose callers keep the parts alive.

    Parameters
    ----------
    addresses : (n_parts,) int64
        Where each part of the float16 rows starts; row r is in part ``r >> 13``.
    row : int64
    query : (dim,) float32

    Returns
    -------
    float32
    """
    dim = len(query)
    place = addresses[row >> PART_BITS] + (row & (PART_ROWS - 1)) * dim * 2
    total: float = _dot(place, query.ctypes.data, dim)
    return total


@instruction(types.void, types.int64, types.int64)
def _fetch(context: Any, builder: ir.IRBuilder, start: ir.Value, size: ir.Value) -> None:
    place = ir.IntType(8).as_pointer()
    fetch_type = ir.FunctionType(ir.VoidType(), [place, _I32, _I32, _I32])
    fetch = cgutils.get_or_insert_function(builder.module, fetch_type, "llvm.prefetch.p0")
    with cgutils.for_range_slice(builder, _I64(0), size, _I64(_LINE), inc=True) as (offset, _):
        later = builder.inttoptr(builder.add(start, offset), place)
        builder.call(fetch, [later, _I32(0), _I32(3), _I32(1)])  # to read, into every cache


@kernel(VOID(I64_1, I64, I64))
def fetch_row(addresses: NDArray[np.int64], row: int, dim: int) -> None:
    """Ask for a row that is soon to be read, so that its wait overlaps other work."""
    _fetch(addresses[row >> PART_BITS] + (row & (PART_ROWS - 1)) * dim * 2, 2 * dim)


@kernel(F32(I64_1, I64, I64, I64))
def pair_dot(addresses: NDArray[np.int64], one: int, other: int, dim: int) -> float:
    """Return the inner product of two of the rows, which have ``dim`` columns; see ``row_dot``."""
    widened = np.empty(dim, np.float32)
    place = addresses[one >> PART_BITS] + (one & (PART_ROWS - 1)) * dim * 2
    _widen_row(place, widened.ctypes.data, dim)
    total: float = row_dot(addresses, other, widened)
    return total
