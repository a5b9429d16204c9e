"""Personalized PageRank (eq. 10): Chebyshev iteration over the entities, turns solved exactly.

With ``z = x / degree`` the equation ``x = damping P^T x + r`` is symmetric. Its turns are chains (a
turn and the one before it), a tridiagonal system that one pass forth and one back solve; so the
iteration runs over the entities alone, and a sweep leaves 1/9 of the error at damping 0.6, where
Chebyshev on all nodes leaves 1/3 and power iteration 0.6. ``_ppr_plan_cpu`` lays out the graph,
``_ppr_stages_cpu`` has the compiled stages.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Executor

import numpy as np
from numpy.typing import NDArray

from zeromem.errors import InvalidInputError
from zeromem.kernels._check import as_array, check_shape
from zeromem.kernels._ppr import PPRResult, bad_reset, chebyshev, check_options
from zeromem.kernels._ppr_layout_cpu import SLICE
from zeromem.kernels._ppr_plan_cpu import Plan, prepare
from zeromem.kernels._ppr_stages_cpu import STAGES, WIDTHS


def aligned(n: int) -> NDArray[np.float32]:
    """Return ``n`` float32 that start at a cache line: a row of 16 is then one line and not two."""
    array = np.empty(n + 15, np.float32)
    start = -array.ctypes.data % 64 // 4
    return array[start : start + n]


class _Workspace(threading.local):
    """A thread's scratch memory: allocated once, not in each call (fresh pages cost as much)."""

    def __init__(self) -> None:
        self._table, self._flags = np.empty(0, np.float32), np.empty(0, np.uint8)
        self._own = np.empty(0, np.int32)

    def get(
        self, size: int, rows: int, nodes: int
    ) -> tuple[NDArray[np.float32], NDArray[np.uint8], NDArray[np.int32]]:
        if len(self._table) < size:
            self._table = aligned(size)
        if len(self._flags) < rows:
            self._flags = np.empty(rows, np.uint8)
        if len(self._own) < nodes:
            self._own = np.empty(nodes, np.int32)
        return self._table[:size], self._flags[:rows], self._own


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
    take, sweep, put = STAGES[width]
    turns, entities = plan.n + SLICE, plan.k + SLICE
    rows = turns + entities
    work, live, own = _WORKSPACE.get((2 * rows + entities) * width, rows, len(reset))
    # The last z is where the table has it, whatever the number of steps.
    z_before, table, c = np.split(work, np.cumsum([entities, rows]) * width)
    n_own, totals = np.zeros(len(plan.starts), np.int64), np.zeros((3, width))
    mass = np.zeros((len(plan.starts) - 1, width))
    node = plan.place, plan.share, plan.fold, plan.starts, plan.n, reset, first
    wrong = take(*node, c, live, own, n_own, mass, totals)
    if wrong >= 0:
        return wrong, float(totals[0, 0])
    sweep(
        plan.windows, plan.chains, plan.factors, plan.turn_order, plan.by_turn, plan.by_entity,
        plan.entity_degree, steps, c, live, table, z_before,
    )  # fmt: skip
    residual: float = put(
        *node, plan.factors, plan.entity_degree, own, n_own, mass, totals, table, z_before, scores
    )
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
    n_nodes = len(plan.place)
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
