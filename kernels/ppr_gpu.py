"""Personalized PageRank (eq. 10) on a device: the Chebyshev semi-iteration over all nodes.

A step is one sparse product and one combination, and leaves 1/3 of the error at damping 0.6. (The
host's form solves the chains of turns exactly and needs half as many steps; a chain is a sequence
of dependent additions, which is what a device is worst at.)

On CuPy's arrays a step is the fused kernel of ``_ppr_cuda``; on NumPy's, where tests run, it is two
products of the array module (``matrix_product``, which on CuPy's is cuSPARSE). ``ppr_torch`` has it
in torch.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zeromem.kernels._namespace import namespace
from zeromem.kernels._ppr import (
    Arrays,
    PPRResult,
    as_arrays,
    chebyshev,
    check_graph,
    check_options,
    check_reset,
    memory_of,
    memory_sums,
)

# A hub's row is cut into parts of so many terms: float32 keeps its digits in a sum of a few, and a
# device is not kept waiting by one long row.
PART = 128


class Transition(NamedTuple):
    """``P^T = A D^-1`` in CSR, (n + m) × (n + m), with the rows' parts; made by ``transition``.

    Attributes
    ----------
    indptr, indices, data : int64, int32, float32
    part_indptr : (n_parts + 1,) int64
        Each part's terms. A row has one part, if it is no hub.
    part_row : (n_parts,) int32
    row_parts : (n + m + 1,) int64
        Each row's parts.
    """

    indptr: Any
    indices: Any
    data: Any
    part_indptr: Any
    part_row: Any
    row_parts: Any


class Memories(NamedTuple):
    """Which node belongs to which of several packed memories; made by ``memories``.

    Attributes
    ----------
    of : (n + m,) int64
    parts : CSR (n_parts, n + m) float64
        Nodes of one memory, side by side.
    rows : CSR (n_memories, n_parts) float64
    """

    of: Any
    parts: Any
    rows: Any

    def sums(self, values: Any) -> Any:
        """Add up each memory's rows in float64: (n_memories, b).

        As two products, since a device takes as long for each sum of its own as for all together.
        """
        return self.rows @ (self.parts @ values.astype(np.float64))


def memories(xp: Any, sparse: Any, offsets: NDArray[np.int64]) -> Memories | None:
    """Return what adds up the memories of a pack (``Packed.offsets``); None where it is one.

    Worth keeping: it depends on the pack alone.
    """
    count = len(offsets) - 1
    n, m = offsets[-1].tolist()
    if count == 1 or not n + m:
        return None
    # The turns of each memory in order, then its entities: all nodes, one after another.
    start = np.concatenate([offsets[:-1, 0], n + offsets[:-1, 1]])
    length = np.diff(offsets, axis=0).T.ravel()
    n_parts = (length + PART - 1) // PART
    span = np.repeat(np.arange(2 * count), n_parts)
    within = np.arange(len(span)) - np.repeat(np.cumsum(n_parts) - n_parts, n_parts)
    indptr = np.append(start[span] + PART * within, n + m)
    memory = span % count
    rows = np.concatenate([[0], np.cumsum(np.bincount(memory, minlength=count))])
    order = np.argsort(memory, kind="stable")
    parts = (xp.ones(n + m), xp.arange(n + m), xp.asarray(indptr))
    whole = (xp.ones(len(span)), xp.asarray(order), xp.asarray(rows))
    return Memories(
        xp.asarray(np.repeat(np.arange(2 * count) % count, length)),
        sparse.csr_matrix(parts, shape=(len(span), n + m)),
        sparse.csr_matrix(whole, shape=(count, len(span))),
    )


def transition(
    previous: Any,
    mention_indptr: Any,
    mention_entity: Any,
    mention_weight: Any,
    inverse_degree: Any,
    adjacency_weight: float,
) -> Transition:
    """Return the transition matrix of a graph, in the namespace of its arrays.

    The parameters are those of ``ppr_cpu.ppr``. Worth keeping: it depends on the graph alone.

    Raises
    ------
    InvalidInputError
    """
    graph = (previous, mention_indptr, mention_entity, mention_weight, inverse_degree)
    xp, _ = namespace(*graph)
    arrays = as_arrays(xp, *graph)
    check_graph(xp, arrays)
    return _transition(xp, arrays, adjacency_weight)


def _transition(xp: Any, arrays: Arrays, adjacency_weight: float) -> Transition:
    n, n_nodes = len(arrays.previous), len(arrays.inverse_degree)
    later = xp.flatnonzero(arrays.previous >= 0)
    earlier = arrays.previous[later].astype(np.int64)
    counts = arrays.mention_indptr[1:] - arrays.mention_indptr[:-1]
    turn = xp.searchsorted(
        arrays.mention_indptr[1:], xp.arange(len(arrays.mention_entity)), side="right"
    )
    entity = arrays.mention_entity.astype(np.int64) + n
    linked = xp.full(len(later), adjacency_weight, np.float32)
    row = xp.concatenate([later, earlier, turn, entity])
    column = xp.concatenate([earlier, later, entity, turn])
    weight = xp.concatenate([linked, linked, arrays.mention_weight, arrays.mention_weight])
    # Rows in order, each with its columns in order: the order of additions is part of the result.
    order = xp.argsort(row * n_nodes + column, kind="stable")
    column = column[order]
    counts = xp.bincount(row, minlength=n_nodes)
    indptr = _cumulated(xp, counts)
    row_parts = _cumulated(xp, xp.maximum((counts + PART - 1) // PART, 1))
    part_row = xp.searchsorted(row_parts[1:], xp.arange(int(row_parts[-1])), side="right")
    starts = indptr[part_row] + PART * (xp.arange(len(part_row)) - row_parts[part_row])
    return Transition(
        indptr,
        column.astype(np.int32),
        weight[order] * arrays.inverse_degree[column],
        xp.concatenate([starts, indptr[-1:]]).astype(np.int64),
        part_row.astype(np.int32),
        row_parts,
    )


def _cumulated(xp: Any, counts: Any) -> Any:
    return xp.concatenate([xp.zeros(1, np.int64), xp.cumsum(counts).astype(np.int64)])


def ppr(
    previous: Any,
    mention_indptr: Any,
    mention_entity: Any,
    mention_weight: Any,
    inverse_degree: Any,
    reset: Any,
    adjacency_weight: float,
    damping: float,
    tol: float,
    *,
    offsets: Any = None,
    matrix: Transition | None = None,
    loops: Any = None,
    packed: Memories | None = None,
) -> PPRResult:
    """Return scores in the namespace of the arrays; see ``ppr_cpu.ppr``.

    ``matrix`` is ``transition(…)`` of the same graph; it is made here where it is not given.
    ``loops``, on a device, is ``_ppr_cuda.Loops(cupy, matrix)``; it keeps the recorded CUDA graphs
    from call to call. ``offsets`` is a NumPy array in any case; ``packed`` is ``memories(…)`` of
    it, made here where it is not given.
    """
    graph = (previous, mention_indptr, mention_entity, mention_weight, inverse_degree)
    xp, sparse = namespace(*graph, reset)
    check_options(adjacency_weight, damping, tol)
    arrays = as_arrays(xp, *graph, offsets)
    if loops is not None:
        matrix = loops.matrix
    elif matrix is None:
        check_graph(xp, arrays)
        matrix = _transition(xp, arrays, adjacency_weight)
    packed = packed or memories(xp, sparse, arrays.offsets)
    reset = check_reset(xp, reset, arrays, packed.sums if packed else None)
    steps = chebyshev(damping, tol, halved=False)
    if not reset.size:
        return PPRResult(reset.copy(), len(steps), 0.0)
    if loops is None and xp is np:
        x, before = iterate(matrix_product(xp, sparse, matrix), reset, damping, steps)
    else:
        from zeromem.kernels import _ppr_cuda

        loops = loops or _ppr_cuda.Loops(xp, matrix)
        x, before = loops.iterate(reset, damping, steps)
    scores, residual = normalized(xp, x, before, arrays, packed)
    return PPRResult(scores, len(steps), residual)


def iterate(
    product: Any, reset: Any, damping: float, steps: list[tuple[float, float, float]]
) -> tuple[Any, Any]:
    """Return the last two iterates of array code, whose product with P^T is ``product``."""
    x, before = reset, 0.0 * reset
    for of_new, _, of_before in steps:
        x, before = of_new * (damping * product(x) + reset) + of_before * before, x
    return x, before


def matrix_product(xp: Any, sparse: Any, matrix: Transition) -> Any:
    """Return the product with P^T as two: the parts of rows, and the rows of parts."""
    n_parts, n_nodes = len(matrix.part_row), len(matrix.indptr) - 1
    parts = sparse.csr_matrix(
        (matrix.data, matrix.indices, matrix.part_indptr), shape=(n_parts, n_nodes)
    )
    ones = xp.ones(n_parts, np.float32)
    rows = sparse.csr_matrix((ones, xp.arange(n_parts), matrix.row_parts), shape=(n_nodes, n_parts))
    return lambda x: rows @ (parts @ x)


def normalized(
    xp: Any, x: Any, before: Any, arrays: Arrays, packed: Memories | None = None
) -> tuple[Any, float]:
    """Scale each memory's columns to a sum of 1; return them, and the residual.

    pi is proportional to x: the mass that power iteration returns from dangling nodes is in the
    factor.
    """

    def sums_of(values: Any) -> Any:
        return packed.sums(values) if packed else memory_sums(xp, values, arrays)

    sums = sums_of(x)
    scale = xp.where(sums > 0, 1 / xp.where(sums > 0, sums, 1), 0)
    residual = float((sums_of(abs(x - before)) * scale).max())
    if len(scale) == 1:
        return x * scale.astype(np.float32), residual
    of = packed.of if packed else xp.asarray(memory_of(arrays))
    return x * scale.astype(np.float32)[of], residual
