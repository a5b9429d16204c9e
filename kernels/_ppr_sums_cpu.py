"""The sums of the host's ``ppr`` over rows of mentions, for any number of columns.

Every width adds up in the same order. With one column, registers hold 8 rows of a slice or 8 terms
of a long row; with many, they hold the columns. The functions are inlined into the stages, where
their lanes stay in registers.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from zeromem.kernels._lanes import fma, gather, item, lanes_of, load, splat, store
from zeromem.kernels._ppr_layout_cpu import CELL, SLICE, STEP

# A long row adds up tens of thousands of terms: 8 strided sums of at most 64 terms each, added up
# per chunk, so that float32 keeps its digits and no term waits for the one before it.
_CHUNK = 64 * CELL


@njit(forceinline=True)
def _term(zero, column, weight, table, p, total):
    at = np.int64(item(column, p)) * lanes_of(zero)
    return fma(item(weight, p), load(table, at, zero), total)


@njit(forceinline=True)
def sum_slice(zero, column, weight, table, lo, hi, sums):
    """Add up the rows of a slice, each in its order: ``SLICE`` rows of ``sums``."""
    if lanes_of(zero) == 1:
        a, b = splat(np.float32(0), CELL), splat(np.float32(0), CELL)
        for p in range(lo, hi, STEP):
            a = fma(load(weight, p, a), gather(table, column, p, a), a)
            q = p + 2 * CELL
            b = fma(load(weight, q, b), gather(table, column, q, b), b)
        store(sums, 0, a)
        store(sums, CELL, b)
        return
    for lane in range(0, SLICE, 4):
        a, b, c, d = zero, zero, zero, zero
        for p in range(lo + lane + (lane & CELL), hi, STEP):
            a = _term(zero, column, weight, table, p, a)
            b = _term(zero, column, weight, table, p + 1, b)
            c = _term(zero, column, weight, table, p + 2, c)
            d = _term(zero, column, weight, table, p + 3, d)
        store(sums, lane * lanes_of(zero), a)
        store(sums, (lane + 1) * lanes_of(zero), b)
        store(sums, (lane + 2) * lanes_of(zero), c)
        store(sums, (lane + 3) * lanes_of(zero), d)


@njit(forceinline=True)
def sum_long(zero, column, weight, table, lo, hi, sums):
    """Add up ``weight * table[column]`` over a long row."""
    width = lanes_of(zero)
    total = zero
    while lo < hi:
        stop = min(lo + 2 * _CHUNK, hi)
        if width == 1:
            part = splat(np.float32(0), CELL)
            for p in range(lo, stop, 2 * CELL):
                part = fma(load(weight, p, part), gather(table, column, p, part), part)
            store(sums, 0, part)
        else:
            a, b, c, d, e, f, g, h = zero, zero, zero, zero, zero, zero, zero, zero
            for p in range(lo, stop, 2 * CELL):
                a = _term(zero, column, weight, table, p, a)
                b = _term(zero, column, weight, table, p + 1, b)
                c = _term(zero, column, weight, table, p + 2, c)
                d = _term(zero, column, weight, table, p + 3, d)
                e = _term(zero, column, weight, table, p + 4, e)
                f = _term(zero, column, weight, table, p + 5, f)
                g = _term(zero, column, weight, table, p + 6, g)
                h = _term(zero, column, weight, table, p + 7, h)
            _keep(sums, width, a, b, c, d, e, f, g, h)
        total = total + _eight(zero, sums)
        lo = stop
    return total


@njit(forceinline=True)
def _keep(sums, width, a, b, c, d, e, f, g, h):
    store(sums, 0, a)
    store(sums, width, b)
    store(sums, 2 * width, c)
    store(sums, 3 * width, d)
    store(sums, 4 * width, e)
    store(sums, 5 * width, f)
    store(sums, 6 * width, g)
    store(sums, 7 * width, h)


@njit(forceinline=True)
def _eight(zero, sums):
    """Add up the strided sums, always the same way."""
    width = lanes_of(zero)
    a = load(sums, 0, zero) + load(sums, 4 * width, zero)
    b = load(sums, width, zero) + load(sums, 5 * width, zero)
    c = load(sums, 2 * width, zero) + load(sums, 6 * width, zero)
    d = load(sums, 3 * width, zero) + load(sums, 7 * width, zero)
    return (a + c) + (b + d)


@njit(forceinline=True)
def add_to(totals, row, lanes, edge):
    """Add ``lanes`` to a row of float64 totals."""
    store(edge, 0, lanes)
    for j in range(lanes_of(lanes)):
        totals[row, j] += edge[j]


@njit(forceinline=True)
def weigh(zero, weight, table, lo, hi, totals, row, sums):
    """Add ``weight * table`` over the rows ``lo:hi`` to a row of totals."""
    width = lanes_of(zero)
    while lo < hi:
        stop = min(lo + _CHUNK, hi)
        whole = stop - (stop - lo) % CELL
        if width == 1:
            part = splat(np.float32(0), CELL)
            for p in range(lo, whole, CELL):
                part = fma(load(weight, p, part), load(table, p, part), part)
            store(sums, 0, part)
        else:
            a, b, c, d, e, f, g, h = zero, zero, zero, zero, zero, zero, zero, zero
            for p in range(lo, whole, CELL):
                at = p * width
                a = fma(item(weight, p), load(table, at, zero), a)
                b = fma(item(weight, p + 1), load(table, at + width, zero), b)
                c = fma(item(weight, p + 2), load(table, at + 2 * width, zero), c)
                d = fma(item(weight, p + 3), load(table, at + 3 * width, zero), d)
                e = fma(item(weight, p + 4), load(table, at + 4 * width, zero), e)
                f = fma(item(weight, p + 5), load(table, at + 5 * width, zero), f)
                g = fma(item(weight, p + 6), load(table, at + 6 * width, zero), g)
                h = fma(item(weight, p + 7), load(table, at + 7 * width, zero), h)
            _keep(sums, width, a, b, c, d, e, f, g, h)
        for p in range(whole, stop):
            at = (p - whole) * width
            term = fma(item(weight, p), load(table, p * width, zero), load(sums, at, zero))
            store(sums, at, term)
        add_to(totals, row, _eight(zero, sums), sums)
        lo = stop
