"""The compiled stages of the host's ``ppr``: take the reset, sweep, put the scores.

Each is compiled for several widths, columns that are swept together; every one of them adds up in
the same order, so a column has the bits that it has alone. The widths share their code but for the
innermost sums, in ``_ppr_sums_cpu``.

The functions are inlined into the stages, where their lanes stay in registers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from zeromem.kernels._lanes import (
    absolute,
    fma,
    gather,
    item,
    lanes_of,
    load,
    occupied,
    splat,
    store,
)
from zeromem.kernels._numba import (
    F32_1,
    F32_2,
    F64,
    F64_2,
    I32_1,
    I32_2,
    I64,
    I64_1,
    I64_2,
    OUT_F32_1,
    OUT_F32_2,
    OUT_F64_2,
    OUT_I32_1,
    OUT_I64_1,
    OUT_U8_1,
    U8_1,
    VOID,
    kernel,
)
from zeromem.kernels._ppr_layout_cpu import SLICE
from zeromem.kernels._ppr_plan_cpu import Rows
from zeromem.kernels._ppr_sums_cpu import add_to, sum_long, sum_slice, weigh

# 16 float32 are a cache line: a block of as many columns makes the most of each random access, and
# the tables of 448K tokens stay in the cache. (32 are 10% faster, and take 5 s more to compile.)
WIDTHS = (1, 4, 16)

_PART = 1024  # Nodes whose reset is added up in float32

_ROWS = types.NamedTuple((I64_1, I32_1, F32_1, I64_2), Rows)


@njit(forceinline=True)
def _find(zero, lo, hi, flat, b, first, found):
    """List the nodes ``lo:hi`` that have any reset; return how many there are."""
    n_found = 0
    wide = splat(np.float32(0), SLICE)
    row = lo
    while row < hi:
        end = min(row + SLICE, hi)
        # Of a single question's reset nearly all is zero.
        if lanes_of(zero) > 1 or b > 1 or end - row < SLICE or occupied(load(flat, row, wide)):
            for i in range(row, end):
                found[n_found] = i
                n_found += occupied(load(flat, i * b + first, zero))
        row = end
    return n_found


@njit(forceinline=True)
def _take_rows(
    zero, lo, hi, place, fold, flat, b, first, c, live, own, n_own, totals, edge, found
):  # fmt: skip
    """Take the reset of the nodes ``lo:hi``, in parts; list what is apart in ``own``."""
    width = lanes_of(zero)
    for start in range(lo, hi, len(found)):
        plain, positive, apart = zero, zero, zero
        for f in range(_find(zero, start, min(start + len(found), hi), flat, b, first, found)):
            row = np.int64(found[f])
            value = load(flat, row * b + first, zero)
            plain = plain + value
            positive = positive + absolute(value)
            at = np.int64(item(place, row))
            ratio = item(fold, row)
            if ratio < 0:
                store(c, at * width, value)
                live[at] = True
                continue
            apart = apart + value
            own[n_own] = row
            n_own += 1
            if ratio > 0:
                before = load(c, at * width, zero) if live[at] else zero
                store(c, at * width, fma(ratio, value, before))
                live[at] = True
        add_to(totals, 0, plain, edge)
        add_to(totals, 1, positive, edge)
        add_to(totals, 2, apart, edge)
    return n_own


@njit(forceinline=True)
def _reset_turns(zero, c, live, u, lo, hi):
    """Start the turns ``lo:hi`` with their reset alone."""
    width = lanes_of(zero)
    for i in range(lo, hi):
        store(u, i * width, load(c, i * width, zero) if live[i] else zero)


@njit(forceinline=True)
def _turn_rows(zero, rows, order, window, after, c, live, z, u, sums):
    """Start the turns of a window with what they get from entities, and their reset."""
    width = lanes_of(zero)
    for s in range(window[2], after[2]):
        lo, hi = item(rows.slices, s), item(rows.slices, s + 1)
        sum_slice(zero, rows.column, rows.weight, z, lo, hi, sums)
        for lane in range(SLICE):
            i = np.int64(item(order, s * SLICE + lane))
            total = load(sums, lane * width, zero)
            if width == 1 or live[i]:
                total = total + load(c, i * width, zero)
            store(u, i * width, total)
    for h in range(window[3], after[3]):
        i = rows.hubs[h, 0]
        lo, hi = rows.hubs[h, 1], rows.hubs[h, 2]
        total = sum_long(zero, rows.column, rows.weight, z, lo, hi, sums)
        if width == 1 or live[i]:
            total = total + load(c, i * width, zero)
        store(u, i * width, total)


@njit(forceinline=True)
def _forth(carry, lower, u, i):
    """Go from the turn before to turn ``i``."""
    at = i * lanes_of(carry)
    carry = fma(item(lower, i), carry, load(u, at, carry))
    store(u, at, carry)
    return carry


@njit(forceinline=True)
def _back(carry, upper, inverse, u, i):
    """Finish turn ``i``, given the one after it."""
    at = i * lanes_of(carry)
    carry = fma(item(upper, i), carry, item(inverse, i) * load(u, at, carry))
    store(u, at, carry)
    return carry


@njit(forceinline=True)
def _solve_chain(zero, factors, u, lo, hi):
    lower, upper, inverse = factors[0], factors[1], factors[2]
    carry = zero
    for i in range(lo, hi):
        carry = _forth(carry, lower, u, i)
    carry = zero
    for i in range(hi - 1, lo - 1, -1):
        carry = _back(carry, upper, inverse, u, i)


@njit(forceinline=True)
def _solve_chains(zero, chains, factors, u, first, last):
    """Solve chains, four at a time: each step of one waits for the step before it."""
    lower, upper, inverse = factors[0], factors[1], factors[2]
    while first + 4 <= last:
        lo, lo_b = np.int64(chains[first, 0]), np.int64(chains[first + 1, 0])
        lo_c, lo_d = np.int64(chains[first + 2, 0]), np.int64(chains[first + 3, 0])
        hi, hi_b = np.int64(chains[first, 1]), np.int64(chains[first + 1, 1])
        hi_c, hi_d = np.int64(chains[first + 2, 1]), np.int64(chains[first + 3, 1])
        common = min(min(hi - lo, hi_b - lo_b), min(hi_c - lo_c, hi_d - lo_d))
        a, b, c, d = zero, zero, zero, zero
        for i in range(common):
            a = _forth(a, lower, u, lo + i)
            b = _forth(b, lower, u, lo_b + i)
            c = _forth(c, lower, u, lo_c + i)
            d = _forth(d, lower, u, lo_d + i)
        for i in range(lo + common, hi):
            a = _forth(a, lower, u, i)
        for i in range(lo_b + common, hi_b):
            b = _forth(b, lower, u, i)
        for i in range(lo_c + common, hi_c):
            c = _forth(c, lower, u, i)
        for i in range(lo_d + common, hi_d):
            d = _forth(d, lower, u, i)
        a, b, c, d = zero, zero, zero, zero
        for i in range(1, common + 1):
            a = _back(a, upper, inverse, u, hi - i)
            b = _back(b, upper, inverse, u, hi_b - i)
            c = _back(c, upper, inverse, u, hi_c - i)
            d = _back(d, upper, inverse, u, hi_d - i)
        for i in range(hi - common - 1, lo - 1, -1):
            a = _back(a, upper, inverse, u, i)
        for i in range(hi_b - common - 1, lo_b - 1, -1):
            b = _back(b, upper, inverse, u, i)
        for i in range(hi_c - common - 1, lo_c - 1, -1):
            c = _back(c, upper, inverse, u, i)
        for i in range(hi_d - common - 1, lo_d - 1, -1):
            d = _back(d, upper, inverse, u, i)
        first += 4
    for chain in range(first, last):
        _solve_chain(zero, factors, u, np.int64(chains[chain, 0]), np.int64(chains[chain, 1]))


@njit(forceinline=True)
def _combine(like, total, e, inverse, z, z_before, step):
    """Replace ``z_before`` from cell ``e`` on: the Chebyshev combination."""
    value = fma(np.float32(step[1]), load(z, e, like), inverse * total)
    store(z_before, e, fma(np.float32(step[2]), load(z_before, e, like), value))


@njit(forceinline=True)
def _entities(zero, rows, inverse, n, k, c, live, u, z, z_before, step, sums):
    """Replace ``z_before`` by the next z, given the turns; entity 0 is row ``n`` of ``c``."""
    of_new = np.float32(step[0])
    width = lanes_of(zero)
    n_hubs = len(rows.hubs)
    for e in range(n_hubs):
        lo, hi = rows.hubs[e, 1], rows.hubs[e, 2]
        total = sum_long(zero, rows.column, rows.weight, u, lo, hi, sums)
        if width == 1 or live[n + e]:
            total = total + load(c, (n + e) * width, zero)
        _combine(zero, total, e * width, of_new * item(inverse, e), z, z_before, step)
    wide = splat(np.float32(0), SLICE)
    for s in range(len(rows.slices) - 1):
        lo, hi = item(rows.slices, s), item(rows.slices, s + 1)
        sum_slice(zero, rows.column, rows.weight, u, lo, hi, sums)
        first = n_hubs + s * SLICE
        if width == 1:
            total = load(sums, 0, wide) + load(c, n + first, wide)
            scaled = of_new * load(inverse, first, wide)
            _combine(wide, total, first, scaled, z, z_before, step)
        else:
            for e in range(first, min(first + SLICE, k)):
                total = load(sums, (e - first) * width, zero)
                if live[n + e]:
                    total = total + load(c, (n + e) * width, zero)
                scale = of_new * item(inverse, e)
                _combine(zero, total, e * width, scale, z, z_before, step)


@njit(forceinline=True)
def _change(zero, z, z_before, lo, hi):
    """Replace ``z_before`` by how much z differs from it."""
    for at in range(lo * lanes_of(zero), hi * lanes_of(zero)):
        z_before[at] = abs(z[at] - z_before[at])


@njit(forceinline=True)
def _put_rows(scale, factor, place, share, table, lo, hi, flat, b, first):
    """Write ``scale * (share * table)`` to the scores of the nodes ``lo:hi``."""
    width = lanes_of(scale)
    row = lo
    if width == 1 and b == 1:
        wide = splat(np.float32(0), SLICE)
        for row in range(lo, hi - SLICE + 1, SLICE):
            value = load(share, row, wide) * gather(table, place, row, wide)
            store(flat, row, factor * value)
        row = hi - (hi - lo) % SLICE
    for i in range(row, hi):
        at = np.int64(item(place, i)) * width
        store(flat, i * b + first, scale * (item(share, i) * load(table, at, scale)))


def _kernels(width: int) -> tuple[Any, Any, Any]:
    """Compile the three stages for ``width`` columns. Each of them has the bits it has alone."""

    @kernel(
        I64(
            I32_1, F32_1, F32_1, I64_2, I64, F32_2, I64, OUT_F32_1, OUT_U8_1, OUT_I32_1,
            OUT_I64_1, OUT_F64_2, OUT_F64_2,
        )
    )  # fmt: skip
    def take(
        place, share, fold, starts, n, reset, first, c, live, own, n_own, mass, totals
    ):  # fmt: skip
        """Take the reset; return a lane that is wrong, or -1.

        Nodes whose reset is part of their x are listed in ``own``, up to ``n_own`` in a memory, and
        their ``mass`` is added up.
        """
        b = reset.shape[1]
        zero = splat(np.float32(0), width)
        edge = np.zeros(width, np.float32)
        found = np.empty(_PART, np.int32)
        flat = reset.reshape(-1)
        live[:] = False
        if width == 1:
            c[:] = 0
        listed = 0
        for memory in range(len(starts) - 1):
            totals[:] = 0.0
            lo, hi = starts[memory], starts[memory + 1]
            listed = _take_rows(
                zero, lo[0], hi[0], place, fold, flat, b, first, c, live, own, listed,
                totals, edge, found,
            )  # fmt: skip
            listed = _take_rows(
                zero, n + lo[1], n + hi[1], place, fold, flat, b, first, c, live, own, listed,
                totals, edge, found,
            )  # fmt: skip
            n_own[memory + 1] = listed
            mass[memory] = totals[2]
            for j in range(width):
                total = totals[0, j]
                if totals[1, j] != total or not (abs(total - 1) < 1e-3 or total == 0):
                    totals[0, 0] = total
                    return j
        return -1

    @kernel(
        VOID(
            I64_2, I32_2, F32_2, I32_1, _ROWS, _ROWS, F32_2, F64_2, F32_1, U8_1, OUT_F32_1,
            OUT_F32_1,
        )
    )  # fmt: skip
    def sweep(
        windows, chains, factors, order, by_turn, by_entity, entity_degree, steps, c, live, table,
        z_before,
    ):  # fmt: skip
        """Iterate; the last z is in the table, the one before it in ``z_before``."""
        zero = splat(np.float32(0), width)
        sums = np.zeros(SLICE * width, np.float32)
        n = factors.shape[1]
        k = entity_degree.shape[1] - SLICE
        u, z = table[: (n + SLICE) * width], table[(n + SLICE) * width :]
        if len(steps) % 2:
            z, z_before = z_before, z
        u[n * width :] = 0
        z[:] = 0
        z_before[:] = 0
        for w in range(len(windows) - 1):
            _reset_turns(zero, c, live, u, windows[w, 0], windows[w + 1, 0])
            _solve_chains(zero, chains, factors, u, windows[w, 1], windows[w + 1, 1])
        for step in range(len(steps)):
            _entities(
                zero, by_entity, entity_degree[0], n + SLICE, k, c, live, u, z, z_before,
                steps[step], sums,
            )  # fmt: skip
            z, z_before = z_before, z
            for w in range(len(windows) - 1):
                _turn_rows(zero, by_turn, order, windows[w], windows[w + 1], c, live, z, u, sums)
                _solve_chains(zero, chains, factors, u, windows[w, 1], windows[w + 1, 1])

    @kernel(
        F64(
            I32_1, F32_1, F32_1, I64_2, I64, F32_2, I64, F32_2, F32_2, I32_1, I64_1, F64_2,
            OUT_F64_2, F32_1, OUT_F32_1, OUT_F32_2,
        )
    )  # fmt: skip
    def put(
        place, share, fold, starts, n, reset, first, factors, entity_degree, own, n_own, mass,
        totals, table, z_before, scores,
    ):  # fmt: skip
        """Write x, each memory's columns scaled to a sum of 1; return the residual.

        pi is proportional to x: the mass that power iteration returns from dangling nodes is in the
        factor.
        """
        b = reset.shape[1]
        zero = splat(np.float32(0), width)
        sums = np.zeros(SLICE * width, np.float32)
        r, s = reset.reshape(-1), scores.reshape(-1)
        z = table[(n + SLICE) * width :]
        degree, entities = factors[3], entity_degree[1]
        residual = 0.0
        for memory in range(len(starts) - 1):
            lo, hi = starts[memory], starts[memory + 1]
            totals[0] = mass[memory]
            totals[1] = 0.0
            weigh(zero, degree, table, lo[0], hi[0], totals, 0, sums)
            for kind in range(2, 4):
                weigh(zero, entities, z, lo[kind], hi[kind], totals, 0, sums)
                _change(zero, z, z_before, lo[kind], hi[kind])
                weigh(zero, entities, z_before, lo[kind], hi[kind], totals, 1, sums)
            for j in range(width):
                scale_j = 1 / totals[0, j] if totals[0, j] > 0 else 0.0
                residual = max(residual, totals[1, j] * scale_j)
                sums[j] = scale_j
            scale = load(sums, 0, zero)
            _put_rows(scale, sums[0], place, share, table, lo[0], hi[0], s, b, first)
            _put_rows(scale, sums[0], place, share, table, n + lo[1], n + hi[1], s, b, first)
            for at in range(n_own[memory], n_own[memory + 1]):
                row = np.int64(own[at])
                cell = row * b + first
                value = load(table, np.int64(place[row]) * width, zero)
                store(s, cell, scale * fma(item(share, row), value, load(r, cell, zero)))
        return residual

    return take, sweep, put


STAGES = {width: _kernels(width) for width in WIDTHS}
