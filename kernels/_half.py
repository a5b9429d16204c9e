"""Inner products over half precision rows, whose order of additions is part of the instructions.

A cell is summed in 16 lanes of fused multiply-adds over the dimension, lane c taking elements c,
c + 16, c + 32, ..., and one tree over the lanes at the end (16 to 8, to 4, to 2, to 1). The vector
instructions are written out rather than left to the loop vectoriser, so a cell has the same bits
in a tile of any shape, in any batch, in :func:`row_dot`, and on machines whose registers hold 4,
8 or 16 lanes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from zeromem.kernels._numba import F32, F32_1, I64, I64_1, kernel

PART_BITS = 13
PART_ROWS = 1 << PART_BITS  # rows in every part of a list of parts, but for the last
LANES = 16
_LINE = 64  # bytes of a cache line

_I16, _I32, _I64 = (ir.IntType(bits) for bits in (16, 32, 64))
_SINGLE, _HALF = ir.FloatType(), ir.HalfType()


def _vector(element: ir.Type, lanes: int = LANES) -> ir.VectorType:
    return ir.VectorType(element, lanes)


def _all(value: int, element: ir.Type) -> ir.Constant:
    return ir.Constant(_vector(element), [value] * LANES)


def _widen_by_parts(builder: ir.IRBuilder, halves: ir.Value) -> ir.Value:
    """Widen by integer arithmetic: exact, for x86 machines without the F16C instructions."""
    bits = builder.zext(builder.bitcast(halves, _vector(_I16)), _vector(_I32))
    sign = builder.shl(builder.and_(bits, _all(0x8000, _I32)), _all(16, _I32))
    magnitude = builder.and_(bits, _all(0x7FFF, _I32))
    shifted = builder.shl(magnitude, _all(13, _I32))
    # The exponents' biases differ by 112; a product also makes a subnormal half a normal float.
    scaled = builder.fmul(
        builder.bitcast(shifted, _vector(_SINGLE)),
        ir.Constant(_vector(_SINGLE), [2.0**112] * LANES),
    )
    special = builder.icmp_unsigned(">=", magnitude, _all(0x7C00, _I32))  # infinities and NaN
    finite = builder.bitcast(scaled, _vector(_I32))
    widened = builder.select(special, builder.or_(shifted, _all(0x7F800000, _I32)), finite)
    return builder.bitcast(builder.or_(widened, sign), _vector(_SINGLE))


def _widen(context: Any, builder: ir.IRBuilder, halves: ir.Value) -> ir.Value:
    triple, _, features = context.codegen().magic_tuple()
    # Without the instruction, LLVM would call a library function that may not be there.
    if triple.startswith(("x86", "i686", "amd64")) and "+f16c" not in features.split(","):
        return _widen_by_parts(builder, halves)
    return builder.fpext(halves, _vector(_SINGLE))


def _load(builder: ir.IRBuilder, address: ir.Value, kind: ir.Type, size: int) -> ir.Value:
    """Load from an integer address that may be aligned to no more than an element."""
    return builder.load(builder.inttoptr(address, kind.as_pointer()), align=size)


def _load_first(
    builder: ir.IRBuilder, address: ir.Value, element: ir.Type, size: int, count: ir.Value
) -> ir.Value:
    """Load ``count`` < 16 elements, with zeros behind them."""
    lanes = cgutils.alloca_once(builder, ir.ArrayType(element, LANES))
    builder.store(ir.Constant(lanes.type.pointee, None), lanes)
    with cgutils.for_range(builder, count) as loop:
        offset = builder.mul(loop.index, ir.Constant(_I64, size))
        value = _load(builder, builder.add(address, offset), element, size)
        builder.store(value, builder.gep(lanes, [_I64(0), loop.index]))
    return builder.load(builder.bitcast(lanes, _vector(element).as_pointer()), align=size)


def _fold(builder: ir.IRBuilder, cells: list[ir.Value]) -> ir.Value:
    """Return one vector whose lane i is the sum of the lanes of ``cells[i]``; at most 16 cells."""
    cells = cells + [ir.Constant(_vector(_SINGLE), ir.Undefined)] * (LANES - len(cells))
    width = LANES
    while width > 1:
        half = width // 2
        low = [lane for lane in range(2 * LANES) if lane % width < half]
        pick = [ir.Constant(_vector(_I32), [lane + add for lane in low]) for add in (0, half)]
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
    vector = _vector(_SINGLE)
    fma_type = ir.FunctionType(vector, [vector] * 3)
    fma = cgutils.get_or_insert_function(builder.module, fma_type, "llvm.fma.v16f32")
    place = ir.IntType(8).as_pointer()
    fetch_type = ir.FunctionType(ir.VoidType(), [place, _I32, _I32, _I32])
    fetch = cgutils.get_or_insert_function(builder.module, fetch_type, "llvm.prefetch.p0")
    sums = [
        cgutils.alloca_once_value(builder, ir.Constant(vector, [0.0] * LANES))
        for _ in range(len(rows) * len(queries))
    ]

    def add_products(left: list[ir.Value], right: list[ir.Value]) -> None:
        left = [_widen(context, builder, halves) for halves in left]
        for total, (query, row) in zip(sums, ((q, r) for q in right for r in left), strict=True):
            builder.store(builder.call(fma, [row, query, builder.load(total)]), total)

    def ahead(addresses: list[ir.Value], elements: ir.Value, size: int) -> list[ir.Value]:
        offset = builder.mul(elements, ir.Constant(_I64, size))
        return [builder.add(address, offset) for address in addresses]

    whole = builder.and_(dim, ir.Constant(_I64, -LANES))
    with cgutils.for_range_slice(
        builder, ir.Constant(_I64, 0), whole, ir.Constant(_I64, LANES), inc=True
    ) as (first, _):
        here = ahead(rows, first, 2)
        # Line after line: the rows' own order of access looks random to the hardware's prefetch.
        start = builder.add(rows[0], prefetch)
        done = builder.mul(first, ir.Constant(_I64, 2 * len(rows)))
        for line in range(0, 2 * LANES * len(rows), _LINE):
            offset = builder.add(done, ir.Constant(_I64, line))
            later = builder.inttoptr(builder.add(start, offset), place)
            builder.call(fetch, [later, _I32(0), _I32(3), _I32(1)])  # to read, into every cache
        add_products(
            [_load(builder, a, _vector(_HALF), 2) for a in here],
            [_load(builder, a, vector, 4) for a in ahead(queries, first, 4)],
        )
    rest = builder.sub(dim, whole)
    with builder.if_then(builder.icmp_signed(">", rest, ir.Constant(_I64, 0))):
        add_products(
            [_load_first(builder, a, _HALF, 2, rest) for a in ahead(rows, whole, 2)],
            [_load_first(builder, a, _SINGLE, 4, rest) for a in ahead(queries, whole, 4)],
        )
    return [builder.load(total) for total in sums]


def tile(n_rows: int, n_queries: int) -> Callable[..., None]:
    """Return what computes ``n_rows`` x ``n_queries`` cells inside a compiled kernel.

    ``(row, query, query_stride, dim, out, out_stride, prefetch)``: the address of the first of the
    float16 rows, which lie side by side; that of the first float32 query, and the bytes from one
    to the next; the dimension; the address of the first cell, and the bytes from one query's to
    the next's; how many bytes behind the rows to fetch for later. ``n_rows`` is a power of two up
    to 16.
    """
    together = min(n_queries, LANES // n_rows)

    @intrinsic
    def compute(typing, row, query, query_stride, dim, out, out_stride, prefetch):  # type: ignore[no-untyped-def]
        def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            row, query, query_stride, dim, out, out_stride, prefetch = arguments

            def steps(base: ir.Value, stride: ir.Value, count: int) -> list[ir.Value]:
                return [
                    builder.add(base, builder.mul(stride, ir.Constant(_I64, i)))
                    for i in range(count)
                ]

            rows = steps(row, builder.mul(dim, ir.Constant(_I64, 2)), n_rows)
            queries = steps(query, query_stride, n_queries)
            cells = _sums(context, builder, rows, queries, dim, prefetch)
            places = steps(out, out_stride, n_queries)
            for first in range(0, n_queries, together):
                few = cells[first * n_rows : (first + together) * n_rows]
                totals = _fold(builder, few)
                for i, place in enumerate(places[first : first + together]):
                    lanes = [i * n_rows + lane for lane in range(n_rows)]
                    mask = ir.Constant(_vector(_I32, n_rows), lanes)
                    found = builder.shuffle_vector(totals, totals, mask)
                    where = builder.inttoptr(place, found.type.as_pointer())
                    builder.store(found, where, align=4)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 7), generate

    return compute


@intrinsic
def _dot(typing, row, query, dim):  # type: ignore[no-untyped-def]
    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        row, query, dim = arguments
        totals = _fold(builder, _sums(context, builder, [row], [query], dim, ir.Constant(_I64, 0)))
        return builder.extract_element(totals, ir.Constant(_I32, 0))

    return types.float32(types.int64, types.int64, types.int64), generate


@kernel(F32(I64_1, I64, F32_1))
def row_dot(addresses, row, query):
    """Return the inner product of one row and ``query``: the bits that ``dense_cpu.scores`` gives.

    For use in other compiled kernels, which keep the parts alive.

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
    return _dot(place, query.ctypes.data, dim)


@intrinsic
def _widened(typing, row, out, dim):  # type: ignore[no-untyped-def]
    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        row, out, dim = arguments
        with cgutils.for_range(builder, dim) as loop:
            offset = builder.mul(loop.index, ir.Constant(_I64, 2))
            halves = builder.insert_element(
                ir.Constant(_vector(_HALF), [0.0] * LANES),
                _load(builder, builder.add(row, offset), _HALF, 2),
                ir.Constant(_I32, 0),
            )
            single = builder.extract_element(_widen(context, builder, halves), ir.Constant(_I32, 0))
            place = builder.add(out, builder.mul(loop.index, ir.Constant(_I64, 4)))
            builder.store(single, builder.inttoptr(place, _SINGLE.as_pointer()), align=4)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@kernel(F32(I64_1, I64, I64, I64))
def pair_dot(addresses, one, other, dim):
    """Return the inner product of two rows of ``dim`` columns; for use in compiled kernels."""
    query = np.empty(dim, np.float32)
    part = addresses[one >> PART_BITS]
    _widened(part + 2 * dim * (one & (PART_ROWS - 1)), query.ctypes.data, dim)
    return row_dot(addresses, other, query)
