"""Personalized PageRank (eq. 10): Chebyshev iteration over the entities, turns solved exactly.

With ``z = x / degree`` the equation ``x = damping P^T x + r`` is symmetric. Its turns are chains (a
turn and the one before it), a tridiagonal system that one pass forth and one back solve; so the
iteration runs over the entities alone, and a sweep leaves 1/9 of the error at damping 0.6, where
Chebyshev on all nodes leaves 1/3 and power iteration 0.6. ``_ppr_plan_cpu`` has the rest.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Executor
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from zeromem.errors import InvalidInputError
from zeromem.kernels._check import as_array, check_shape
from zeromem.kernels._lanes import absolute, fma, item, lanes_of, load, occupied, splat, store
from zeromem.kernels._numba import (
    F32_1,
    F32_2,
    F64,
    F64_2,
    I32_1,
    I64,
    I64_1,
    I64_2,
    OUT_F32_1,
    OUT_F32_2,
    OUT_F64_2,
    OUT_U8_1,
    U8_1,
    VOID,
    kernel,
)
from zeromem.kernels._ppr import PPRResult, bad_reset, chebyshev, check_options
from zeromem.kernels._ppr_plan_cpu import Plan, prepare

# Columns that are swept together. 16 float32 are a cache line, and lines are read in pairs: a block
# makes the most of each random access, and the tables of 448K tokens stay in the cache.
WIDTHS = (1, 4, 16, 32)

# A hub adds up tens of thousands of terms: in parts of parts, so that float32 keeps its digits.
_PART = 64


# The functions below are inlined into the stages, where their lanes stay in registers; they are
# small enough for LLVM to do so, and a larger one would pass its lanes through memory.


@njit(forceinline=True)
def _part(zero, index, weight, table, lo, hi):
    """Add up ``weight * table[index]`` over ``lo:hi``."""
    total = zero
    while lo < hi:
        at = np.int64(item(index, lo)) * lanes_of(zero)
        total = fma(item(weight, lo), load(table, at, zero), total)
        lo += 1
    return total


@njit(forceinline=True)
def _pair(zero, index, weight, table, lo, hi):
    """Add up as ``_part`` does, in two halves at a time: one alone waits for each addition."""
    first, second = zero, zero
    half = (hi - lo) >> 1
    for p in range(lo, lo + half):
        at = np.int64(item(index, p)) * lanes_of(zero)
        first = fma(item(weight, p), load(table, at, zero), first)
        at = np.int64(item(index, p + half)) * lanes_of(zero)
        second = fma(item(weight, p + half), load(table, at, zero), second)
    return (first + second) + _part(zero, index, weight, table, lo + 2 * half, hi)


@njit(forceinline=True)
def _row(zero, index, weight, table, lo, hi):
    """Add up a row: in one go, or a hub in parts of parts."""
    if hi - lo <= _PART:
        return _part(zero, index, weight, table, lo, hi)
    total = zero
    while lo < hi:
        middle = zero
        end = min(lo + _PART * _PART, hi)
        while lo < end:
            stop = min(lo + _PART, end)
            middle = middle + _pair(zero, index, weight, table, lo, stop)
            lo = stop
        total = total + middle
    return total


@njit(forceinline=True)
def _add_to(totals, row, lanes, edge):
    """Add ``lanes`` to a row of float64 totals."""
    store(edge, 0, lanes)
    for j in range(lanes_of(lanes)):
        totals[row, j] += edge[j]


@njit(forceinline=True)
def _gather(zero, rows, lo, hi, flat, first, b, c, live, base, totals, edge):
    """Copy the rows of the reset that are not zero to ``c``, and add them up."""
    while lo < hi:
        stop = min(lo + 1024, hi)
        plain, positive = zero, zero
        for i in range(lo, stop):
            value = load(flat, np.int64(item(rows, i)) * b + first, zero)
            live[base + i] = occupied(value)
            if live[base + i]:
                store(c, (base + i) * lanes_of(zero), value)
                plain = plain + value
                positive = positive + absolute(value)
        _add_to(totals, 0, plain, edge)
        _add_to(totals, 1, positive, edge)
        lo = stop


@njit(forceinline=True)
def _fold(zero, leaf_row, leaf_turn, ratio, lo, hi, flat, first, b, c, live, totals, edge):
    """Add the reset of leaves to their turns'."""
    plain, positive = zero, zero
    for i in range(lo, hi):
        value = load(flat, np.int64(item(leaf_row, i)) * b + first, zero)
        if occupied(value):
            plain = plain + value
            positive = positive + absolute(value)
            turn = np.int64(item(leaf_turn, i))
            if turn >= 0:
                at = turn * lanes_of(zero)
                before = load(c, at, zero) if live[turn] else zero
                store(c, at, fma(item(ratio, i), value, before))
                live[turn] = True
    _add_to(totals, 0, plain, edge)
    _add_to(totals, 1, positive, edge)
    _add_to(totals, 2, plain, edge)


@njit(forceinline=True)
def _turns(zero, chain_start, factors, indptr, entity, weight, c, live, z, u, with_entities):
    """Solve for the turns, given the entities: forth along each chain, and back.

    The way back along a chain goes step by step with the way forth along the next: it waits for
    each of its products, the other for memory.
    """
    lower = factors[0]
    width = lanes_of(zero)
    lo = np.int64(0)
    start = back = np.int64(0)
    returning = zero
    for chain in range(len(chain_start) - 1):
        begin = np.int64(item(chain_start, chain))
        end = np.int64(item(chain_start, chain + 1))
        carry = zero
        for i in range(begin, end):
            value = zero
            if with_entities:
                hi = item(indptr, i + 1)
                value = _row(zero, entity, weight, z, lo, hi)
                lo = hi
            if live[i]:
                value = value + load(c, i * width, zero)
            carry = fma(item(lower, i), carry, value)
            store(u, i * width, carry)
            if back > start:
                back -= 1
                returning = _return(returning, factors, u, back)
        while back > start:
            back -= 1
            returning = _return(returning, factors, u, back)
        returning = zero
        start, back = begin, end
    while back > start:
        back -= 1
        returning = _return(returning, factors, u, back)


@njit(forceinline=True)
def _return(carry, factors, u, i):
    """Finish turn ``i``, given the one after it."""
    at = i * lanes_of(carry)
    carry = fma(item(factors[1], i), carry, item(factors[2], i) * load(u, at, carry))
    store(u, at, carry)
    return carry


@njit(forceinline=True)
def _entities(zero, inverse, indptr, turn, weight, c, live, n, u, z, z_before, step):
    """Replace ``z_before`` by the next z: the Chebyshev combination, given the turns."""
    of_new, of_now, of_before = np.float32(step[0]), np.float32(step[1]), np.float32(step[2])
    width = lanes_of(zero)
    lo = np.int64(0)
    for e in range(len(inverse)):
        hi = item(indptr, e + 1)
        total = _row(zero, turn, weight, u, lo, hi)
        lo = hi
        if live[n + e]:
            total = total + load(c, (n + e) * width, zero)
        value = fma(of_now, load(z, e * width, zero), (of_new * item(inverse, e)) * total)
        store(z_before, e * width, fma(of_before, load(z_before, e * width, zero), value))


@njit(forceinline=True)
def _weigh(zero, weight, table, lo, hi, totals, row, edge):
    """Add ``weight * table`` over ``lo:hi`` to a row of totals."""
    width = lanes_of(zero)
    while lo < hi:
        stop = min(lo + _PART, hi)
        first, second = zero, zero
        half = (stop - lo) >> 1
        for i in range(lo, lo + half):
            first = fma(item(weight, i), load(table, i * width, zero), first)
            second = fma(item(weight, i + half), load(table, (i + half) * width, zero), second)
        if lo + 2 * half < stop:
            second = fma(item(weight, stop - 1), load(table, (stop - 1) * width, zero), second)
        _add_to(totals, row, first + second, edge)
        lo = stop


@njit(forceinline=True)
def _change(zero, weight, z, z_before, lo, hi, totals, row, edge):
    """Add the L1 change of the entities to a row of totals."""
    width = lanes_of(zero)
    total = zero
    for e in range(lo, hi):
        step = absolute(load(z, e * width, zero) - load(z_before, e * width, zero))
        total = fma(item(weight, e), step, total)
    _add_to(totals, row, total, edge)


@njit(forceinline=True)
def _scatter(scale, weight, table, rows, lo, hi, flat, first, b):
    """Write ``scale * (weight * table)`` to the rows of the scores."""
    width = lanes_of(scale)
    for i in range(lo, hi):
        value = scale * (item(weight, i) * load(table, i * width, scale))
        store(flat, np.int64(item(rows, i)) * b + first, value)


def _kernels(width: int) -> tuple[Any, Any, Any]:
    """Compile the three stages for ``width`` columns. Each of them has the bits it has alone."""

    @kernel(
        I64(
            I32_1, I32_1, I32_1, I32_1, F32_2, I64_2, F32_2, I64, OUT_F32_1, OUT_U8_1, OUT_F64_2,
            OUT_F64_2,
        )
    )  # fmt: skip
    def take(
        turn_row, entity_row, leaf_row, leaf_turn, leaf_weight, starts, reset, first, c, live,
        leaves, totals,
    ):  # fmt: skip
        """Copy the reset, and add up each memory's leaves; return a lane that is wrong, or -1."""
        n, b = len(turn_row), reset.shape[1]
        zero = splat(np.float32(0), width)
        edge = np.zeros(width, np.float32)
        flat = reset.reshape(-1)
        for memory in range(len(starts) - 1):
            totals[:] = 0.0
            lo, hi = starts[memory], starts[memory + 1]
            _gather(zero, turn_row, lo[0], hi[0], flat, first, b, c, live, 0, totals, edge)
            _gather(zero, entity_row, lo[1], hi[1], flat, first, b, c, live, n, totals, edge)
            _fold(
                zero, leaf_row, leaf_turn, leaf_weight[1], lo[2], hi[2], flat, first, b, c, live,
                totals, edge,
            )  # fmt: skip
            leaves[memory] = totals[2]
            for j in range(width):
                total = totals[0, j]
                if totals[1, j] != total or not (abs(total - 1) < 1e-3 or total == 0):
                    totals[0, 0] = total
                    return j
        return -1

    @kernel(
        VOID(
            I32_1, F32_2, I64_1, I32_1, F32_1, I64_1, I32_1, F32_1, F32_2, F64_2, F32_1, U8_1,
            OUT_F32_1, OUT_F32_1, OUT_F32_1,
        )
    )  # fmt: skip
    def sweep(
        chain_start, factors, turn_indptr, turn_entity, turn_weight, entity_indptr, entity_turn,
        entity_weight, entity_degree, steps, c, live, u, z, z_before,
    ):  # fmt: skip
        """Iterate; the last z is in ``z`` where the number of steps is even."""
        zero = splat(np.float32(0), width)
        n = factors.shape[1]
        z[:] = 0
        z_before[:] = 0
        # Twice, so that each is compiled for its constant: asking at each turn costs a third more.
        _turns(
            zero, chain_start, factors, turn_indptr, turn_entity, turn_weight, c, live, z, u, False
        )
        for step in range(len(steps)):
            _entities(
                zero, entity_degree[0], entity_indptr, entity_turn, entity_weight, c, live, n,
                u, z, z_before, steps[step],
            )  # fmt: skip
            z, z_before = z_before, z
            _turns(
                zero, chain_start, factors, turn_indptr, turn_entity, turn_weight, c, live, z, u,
                True,
            )  # fmt: skip

    @kernel(
        F64(
            I32_1, I32_1, F32_2, I32_1, F32_2, I32_1, I32_1, F32_2, I64_2, F32_2, I64, F32_1, U8_1,
            F32_1, F32_1, F32_1, F64_2, OUT_F64_2, OUT_F32_2,
        )
    )  # fmt: skip
    def put(
        turn_row, alone, factors, entity_row, entity_degree, leaf_row, leaf_turn, leaf_weight,
        starts, reset, first, c, live, u, z, z_before, leaves, totals, scores,
    ):  # fmt: skip
        """Write x, each memory's columns scaled to a sum of 1; return the residual.

        pi is proportional to x: the mass that power iteration returns from dangling nodes is in the
        factor.
        """
        n, b = len(turn_row), reset.shape[1]
        zero = splat(np.float32(0), width)
        edge = np.zeros(width, np.float32)
        r, s = reset.reshape(-1), scores.reshape(-1)
        residual = 0.0
        for memory in range(len(starts) - 1):
            lo, hi = starts[memory], starts[memory + 1]
            totals[0] = leaves[memory]
            totals[1] = 0.0
            _weigh(zero, factors[4], u, lo[0], hi[0], totals, 0, edge)
            _weigh(zero, entity_degree[1], z, lo[1], hi[1], totals, 0, edge)
            _change(zero, entity_degree[1], z, z_before, lo[1], hi[1], totals, 1, edge)
            for kind in range(3, 5):
                for a in range(lo[kind], hi[kind]):
                    i = np.int64(alone[a])
                    if live[i]:
                        _add_to(totals, 0, load(c, i * width, zero), edge)
            for j in range(width):
                scale_j = 1 / totals[0, j] if totals[0, j] > 0 else 0.0
                residual = max(residual, totals[1, j] * scale_j)
                edge[j] = scale_j
            scale = load(edge, 0, zero)
            _scatter(scale, factors[3], u, turn_row, lo[0], hi[0], s, first, b)
            _scatter(scale, entity_degree[1], z, entity_row, lo[1], hi[1], s, first, b)
            for i in range(lo[2], hi[2]):
                row = np.int64(item(leaf_row, i)) * b + first
                value = load(r, row, zero)
                turn = np.int64(item(leaf_turn, i))
                if turn >= 0:
                    value = fma(item(leaf_weight[0], i), load(u, turn * width, zero), value)
                store(s, row, scale * value)
            for kind in range(3, 5):
                for a in range(lo[kind], hi[kind]):
                    i = np.int64(alone[a])
                    row = np.int64(turn_row[i] if i < n else entity_row[i - n]) * b + first
                    store(s, row, scale * (load(c, i * width, zero) if live[i] else zero))
        return residual

    return take, sweep, put


_STAGES = {width: _kernels(width) for width in WIDTHS}


def aligned(n: int) -> NDArray[np.float32]:
    """Return ``n`` float32 that start at a cache line: a row of 16 is then one line and not two."""
    array = np.empty(n + 15, np.float32)
    start = -array.ctypes.data % 64 // 4
    return array[start : start + n]


class _Workspace(threading.local):
    """A thread's scratch memory: allocated once, not in each call (fresh pages cost as much)."""

    def __init__(self) -> None:
        self._table, self._flags = np.empty(0, np.float32), np.empty(0, np.uint8)

    def get(self, size: int, rows: int) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
        if len(self._table) < size:
            self._table = aligned(size)
        if len(self._flags) < rows:
            self._flags = np.empty(rows, np.uint8)
        return self._table[:size], self._flags[:rows]


_WORKSPACE = _Workspace()


def block(
    plan: Plan,
    steps: NDArray[np.float64],
    reset: NDArray[np.float32],
    first: int,
    width: int,
    scores: NDArray[np.float32],
) -> float:
    """Solve for ``width`` columns of ``reset`` from ``first`` on, without the GIL.

    Blocks write apart from each other, so any number of them may run at once. Returns the residual.

    Raises
    ------
    InvalidInputError
        A column of ``reset`` is no distribution.
    """
    past = first + width - reset.shape[1]
    if past <= 0:
        wrong, result = _run(plan, steps, reset, first, width, scores)
    else:
        wide = np.zeros((len(reset), width), np.float32)
        wide[:, :-past] = reset[:, first:]
        out = np.empty_like(wide)
        wrong, result = _run(plan, steps, wide, 0, width, out)
        scores[:, first:] = out[:, :-past]
    if wrong >= 0:
        raise bad_reset(first + wrong, result)
    return result


def _run(
    plan: Plan,
    steps: NDArray[np.float64],
    reset: NDArray[np.float32],
    first: int,
    width: int,
    scores: NDArray[np.float32],
) -> tuple[int, float]:
    """Run the stages; return -1 and the residual, or a wrong lane and what it sums to."""
    take, sweep, put = _STAGES[width]
    n, k = len(plan.turn_row), len(plan.entity_row)
    work, live = _WORKSPACE.get((2 * n + 3 * k) * width, n + k)
    c, u, z, z_before = np.split(work, np.cumsum([n + k, n, k]) * width)
    leaves, totals = np.zeros((len(plan.starts) - 1, width)), np.zeros((3, width))
    rows = plan.turn_row, plan.entity_row, plan.leaf_row, plan.leaf_turn, plan.leaf_weight
    wrong = take(*rows, plan.starts, reset, first, c, live, leaves, totals)
    if wrong >= 0:
        return wrong, float(totals[0, 0])
    by_turn = plan.turn_indptr, plan.turn_entity, plan.turn_weight
    by_entity = plan.entity_indptr, plan.entity_turn, plan.entity_weight, plan.entity_degree
    sweep(plan.chain_start, plan.factors, *by_turn, *by_entity, steps, c, live, u, z, z_before)
    if len(steps) % 2:
        z, z_before = z_before, z
    residual: float = put(
        plan.turn_row, plan.alone, plan.factors, plan.entity_row, plan.entity_degree, *rows[2:],
        plan.starts, reset, first, c, live, u, z, z_before, leaves, totals, scores,
    )  # fmt: skip
    return -1, residual


def blocks(b: int) -> Iterator[tuple[int, int]]:
    """Yield ``(first, width)`` of the blocks of ``b`` columns; the last may be wider than it is."""
    for first in range(0, b, WIDTHS[-1]):
        yield first, next(w for w in WIDTHS if w >= min(b - first, WIDTHS[-1]))


def ppr(
    previous: NDArray[np.int32],
    mention_indptr: NDArray[np.int64],
    mention_entity: NDArray[np.int32],
    mention_weight: NDArray[np.float32],
    inverse_degree: NDArray[np.float32],
    reset: NDArray[np.float32],
    adjacency_weight: float,
    damping: float,
    tol: float,
    *,
    offsets: NDArray[np.int64] | None = None,
    plan: Plan | None = None,
    pool: Executor | None = None,
) -> PPRResult:
    """Return pi of ``pi = (1 - damping) r + damping (P^T pi + lost r)``, where ``P = D^-1 A``.

    ``lost`` is the mass on dangling nodes, so a column that starts with sum 1 keeps it.

    Parameters
    ----------
    previous : (n,) int32
        The turn before each in its session, an earlier row; -1 for none. No turn is named twice.
    mention_indptr, mention_entity, mention_weight : (n + 1,) int64, (nnz,) int32, (nnz,) float32
        B in CSR: the edges of turn t to entities, non-negative (eq. 4).
    inverse_degree : (n + m,) float32
        1 / degree of the turns, then of the entities; 0 for a dangling node.
    reset : (n + m, b) float32, non-negative
        r; each column sums to 1, or is all zero and then stays so; in each memory, where several
        are packed.
    adjacency_weight : float
        The weight of the edge between a turn and the one before it.
    damping : float
        gamma, the probability of following an edge, in [0, 1).
    tol : float
        Bound of the relative L1 error of a column, not counting float32's rounding (some 5e-7).
    offsets : (n_memories + 1, 2) int64, optional
        Where each packed memory's turns and entities start: ``_ppr.pack``.
    plan : Plan, optional
        ``prepare(…)`` of the same graph and damping; made here where it is not given.
    pool : concurrent.futures.Executor, optional
        Blocks of columns are handed to its ``map``.

    Returns
    -------
    PPRResult
        A column does not depend on the other columns, on the threads, or on the memories that it is
        packed with, to the last bit.

    Raises
    ------
    InvalidInputError
    """
    check_options(adjacency_weight, damping, tol)
    if plan is None:
        graph = (previous, mention_indptr, mention_entity, mention_weight, inverse_degree)
        plan = prepare(*graph, adjacency_weight, damping, offsets=offsets)
    elif plan.damping != damping:
        raise InvalidInputError(
            f"plan must be prepared for damping {damping!r}, got one for {plan.damping!r}"
        )
    n_nodes = len(plan.turn_row) + len(plan.entity_row) + len(plan.leaf_row)
    reset = as_array(reset, "reset", np.float32, 2)
    check_shape(reset, "reset", (n_nodes, reset.shape[1]))
    b = reset.shape[1]
    steps = np.array(chebyshev(damping, tol, halved=True))
    scores = aligned(n_nodes * b).reshape(n_nodes, b)

    def solve(place: tuple[int, int]) -> float:
        return block(plan, steps, reset, *place, scores)

    work = list(blocks(b))
    done = pool.map(solve, work) if pool and len(work) > 1 else map(solve, work)
    return PPRResult(scores, len(steps), max(done, default=0.0))
