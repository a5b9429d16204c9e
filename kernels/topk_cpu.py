"""The best k rows of each question, in time that the order of the scores hardly changes.

A bound below the k-th best score comes first: the k-th largest of the maxima of a few hundred
groups, each made of rows far apart, so that sorted scores are spread over all of them.
One pass then keeps the few rows at or above it. Counting at a bisected threshold is a handful of
vector comparisons, so both the bound and the final cut are found without sorting or branching on
scores; what is left, k rows, is sorted by its bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numpy.typing import NDArray

from zeromem.kernels._check import as_array, check_mask, check_range
from zeromem.kernels._numba import (
    BOOL_1,
    BOOL_2,
    F32,
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
from zeromem.kernels._vector import I8, LANES, SINGLE, instruction, load, store, vector

_MIN_GROUPS = 256


def _bits(builder: ir.IRBuilder, lanes: ir.Value) -> ir.Value:
    """Return the 16 truth values as the low bits of an int64."""
    return builder.zext(builder.bitcast(lanes, ir.IntType(LANES)), ir.IntType(64))


def _is_set(builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
    values = load(builder, address, vector(I8), 1)
    return builder.icmp_unsigned("!=", values, values.type(None))


@instruction(types.int64, types.int64, types.float32)
def _at_least(context: Any, builder: ir.IRBuilder, address: ir.Value, bound: ir.Value) -> ir.Value:
    """Bit c says whether float32 c of the 16 at ``address`` is ``bound`` or more; NaN never is."""
    values = load(builder, address, vector(SINGLE), 4)
    bounds = ir.Constant(values.type, ir.Undefined)
    for lane in range(LANES):
        bounds = builder.insert_element(bounds, bound, ir.IntType(32)(lane))
    return _bits(builder, builder.fcmp_ordered(">=", values, bounds))


@instruction(types.int64, types.int64)
def _where_true(context: Any, builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
    """Bit c says whether byte c of the 16 at ``address`` is not 0."""
    return _bits(builder, _is_set(builder, address))


@instruction(types.void, types.int64, types.int64)
def _lift(context: Any, builder: ir.IRBuilder, top: ir.Value, values: ir.Value) -> None:
    """Raise the 16 floats at ``top`` to those at ``values``; a NaN raises nothing."""
    old, new = (load(builder, place, vector(SINGLE), 4) for place in (top, values))
    store(builder, builder.select(builder.fcmp_ordered(">", new, old), new, old), top, 4)


@instruction(types.void, types.int64, types.int64, types.int64)
def _lift_where(
    context: Any, builder: ir.IRBuilder, top: ir.Value, values: ir.Value, allowed: ir.Value
) -> None:
    """Raise as ``_lift`` does, in the lanes whose byte at ``allowed`` is not 0."""
    old, new = (load(builder, place, vector(SINGLE), 4) for place in (top, values))
    here = builder.and_(builder.fcmp_ordered(">", new, old), _is_set(builder, allowed))
    store(builder, builder.select(here, new, old), top, 4)


@instruction(types.int64, types.int64)
def _lowest(context: Any, builder: ir.IRBuilder, bits: ir.Value) -> ir.Value:
    """Return the place of the lowest set bit."""
    return builder.cttz(bits, ir.IntType(1)(1))


@instruction(types.int64, types.int64)
def _n_set(context: Any, builder: ir.IRBuilder, bits: ir.Value) -> ir.Value:
    """Return how many bits are set."""
    return builder.ctpop(bits)


@instruction(types.int32, types.float32)
def _bits_of(context: Any, builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    return builder.bitcast(value, ir.IntType(32))


@instruction(types.float32, types.int32)
def _float_of(context: Any, builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    return builder.bitcast(value, SINGLE)


@kernel(I64(F32))
def _key(value):
    # Integers in the order of the floats: of a negative one, all bits but the sign are turned.
    bits = _bits_of(value)
    return np.int64(bits ^ ((bits >> np.int32(31)) & np.int32(0x7FFFFFFF)))


@kernel(F32(I64))
def _value(key):
    bits = np.int32(key)
    return _float_of(bits ^ ((bits >> np.int32(31)) & np.int32(0x7FFFFFFF)))


@kernel(I64(F32_1, I64, F32))
def _count(values, m, bound):
    total = 0
    whole = m - m % LANES
    address = values.ctypes.data
    for i in range(0, whole, LANES):
        total += _n_set(_at_least(address + 4 * i, bound))
    for i in range(whole, m):
        total += values[i] >= bound
    return total


@kernel(F32(F32_1, I64, I64, I64))
def _bound(values, m, k, slack):
    """Return a bound that k of the first m values reach, and at most ``slack`` more but for ties.

    There are at least k, and no NaN.
    """
    low = high = values[0]
    for i in range(m):
        low = min(low, values[i])
        high = max(high, values[i])
    reached = _key(low)
    missed = _key(high) + 1
    while missed - reached > 1:
        middle = reached + (missed - reached) // 2
        count = _count(values, m, _value(middle))
        if count < k:
            missed = middle
        else:
            reached = middle
            if count <= k + slack:
                break
    return _value(reached)


@kernel(F32(OUT_F32_1, OUT_I32_1, I64, I64))
def _keep_best(values, rows, m, k):
    """Keep the k best of the first m pairs, in their order; return what a later row must reach."""
    bound = _bound(values, m, k, 0)
    above = _value(_key(bound) + 1)
    ties = k - _count(values, m, above)  # the lower rows among equals
    size = 0
    for i in range(m):
        value = values[i]
        if value >= above or (value == bound and ties > 0):
            ties -= value < above
            values[size] = value
            rows[size] = rows[i]
            size += 1
    return above


@kernel(F32(F32_1, BOOL_1, I64))
def _first_bound(scores, mask, k):
    n = len(scores)
    groups = (max(4 * k, _MIN_GROUPS) + LANES - 1) // LANES * LANES
    if n < 4 * groups:
        return np.float32(-np.inf)
    top = np.full(groups, np.float32(-np.inf), np.float32)
    masked = len(mask) > 0
    for start in range(0, n, groups):
        width = min(groups, n - start)
        whole = width - width % LANES
        for j in range(0, whole, LANES):
            here = scores.ctypes.data + 4 * (start + j)
            if masked:
                _lift_where(top.ctypes.data + 4 * j, here, mask.ctypes.data + start + j)
            else:
                _lift(top.ctypes.data + 4 * j, here)
        for j in range(whole, width):
            if scores[start + j] > top[j] and (not masked or mask[start + j]):
                top[j] = scores[start + j]
    return _bound(top, groups, k, k // 8)


@kernel(VOID(F32_1, I32_1, I64, OUT_I32_1, OUT_F32_1))
def _sort_into(values, rows, m, rows_out, scores_out):
    """Write m pairs, descending; equal ones stay in their order."""
    counts = np.zeros((4, 256), np.int32)
    keys = np.empty((2, m), np.uint32)
    order = np.empty((2, m), np.int32)
    for i in range(m):
        # The sum makes -0 equal to 0. Small keys are good scores.
        key = np.uint32(np.int64(0x7FFFFFFF) - _key(values[i] + np.float32(0.0)))
        keys[0, i] = key
        order[0, i] = i
        for digit in range(4):
            counts[digit, (key >> np.uint32(8 * digit)) & np.uint32(255)] += 1
    side = 0
    for digit in range(4):
        shift = np.uint32(8 * digit)
        if counts[digit, (keys[side, 0] >> shift) & np.uint32(255)] == m:
            continue  # all alike here
        total = 0
        for value in range(256):
            counts[digit, value], total = total, total + counts[digit, value]
        for i in range(m):
            key = keys[side, i]
            value = (key >> shift) & np.uint32(255)
            place = counts[digit, value]
            counts[digit, value] = place + 1
            keys[1 - side, place] = key
            order[1 - side, place] = order[side, i]
        side = 1 - side
    for i in range(m):
        rows_out[i] = rows[order[side, i]]
        scores_out[i] = values[order[side, i]]


@kernel(I64(F32_1, BOOL_1, OUT_I32_1, OUT_F32_1))
def best(
    scores: NDArray[np.float32],
    mask: NDArray[np.bool_],
    rows_out: NDArray[np.int32],
    scores_out: NDArray[np.float32],
) -> int:
    """Write the best rows of one question, best first, ties by row; for other compiled kernels.

    Parameters
    ----------
    scores : (n,) float32
        NaN is never selected.
    mask : (n,) bool, or of length 0
        Only rows where it is True are selected; all where it has no length.
    rows_out : (k,) int32
    scores_out : (k,) float32

    Returns
    -------
    int64
        How many were written: k, or as many as there are. The rest is left as it was.
    """
    n = len(scores)
    k = min(len(rows_out), n)
    if k == 0:
        return 0
    room = 4 * k + 8 * LANES
    values = np.empty(room, np.float32)
    rows = np.empty(room, np.int32)
    bound = _first_bound(scores, mask, k)
    size = 0
    address = scores.ctypes.data
    whole = n - n % LANES
    for start in range(0, n, LANES):
        if size > room - LANES:
            bound = _keep_best(values, rows, size, k)
            size = k
        if start < whole:
            bits = _at_least(address + 4 * start, bound)
            if bits == 0:
                continue
        else:
            bits = 0
            for i in range(start, n):
                bits |= np.int64(scores[i] >= bound) << (i - start)
        if len(mask) > 0:
            if start < whole:
                bits &= _where_true(mask.ctypes.data + start)
            else:
                for i in range(start, n):
                    bits &= ~(np.int64(not mask[i]) << (i - start))
        while bits != 0:
            i = start + _lowest(bits)
            bits &= bits - 1
            values[size] = scores[i]
            rows[size] = i
            size += 1
    if size > k:
        _keep_best(values, rows, size, k)
        size = k
    if size > 0:
        _sort_into(values, rows, size, rows_out, scores_out)
    return size


@kernel(VOID(F32_2, BOOL_2, OUT_I32_2, OUT_F32_2))
def _topk(scores, mask, rows, found):
    every = np.empty(0, np.bool_)
    for j in range(len(scores)):
        allowed = mask[j % len(mask)] if len(mask) > 0 else every
        best(scores[j], allowed, rows[j], found[j])


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
    found = np.zeros((len(scores), k), np.float32)
    if k and scores.size:
        _topk(scores, allowed, rows, found)
    return rows, found
