"""What the host's form of ``ppr`` makes of a graph once: the order and factors of its sweeps.

An entity that one turn mentions can be solved for as part of that turn, and is (half of all
entities, as a rule). The others keep their order and are stored both ways, by turn and by entity.
Turns lie chain by chain, so that a chain is solved with the last turn's value in a register.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from zeromem.errors import InvalidInputError
from zeromem.kernels._numba import (
    F32_1,
    F64,
    I32_1,
    I64,
    I64_1,
    OUT_F32_1,
    OUT_F32_2,
    OUT_I32_1,
    OUT_I64_1,
    VOID,
    kernel,
)
from zeromem.kernels._ppr import as_arrays, bad_number, bad_previous, check_options, two_follow


class Plan(NamedTuple):
    """A graph as the sweeps read it, k of its m entities kept; made by ``prepare``.

    Attributes
    ----------
    turn_row : (n,) int32
        The row of the turn at a position: chains one after another, by their first rows.
    chain_start : (n_chains + 1,) int32
        Where each chain's positions start.
    factors : (5, n) float32
        Of the turns' tridiagonal system: lower, upper and inverse pivot; the degrees; and the
        degrees with the weights of the turn's leaves.
    alone : int32
        Positions of dangling turns, and n + j of kept entities without degree.
    turn_indptr, turn_entity, turn_weight : CSR, n × k
        ``damping * w`` by turn.
    entity_row : (k,) int32
        The row of each kept entity.
    entity_indptr, entity_turn, entity_weight : CSR, k × n
        The same by entity, each in the order of the rows.
    entity_degree : (2, k) float32
        Inverse degrees, and degrees.
    leaf_row, leaf_turn : (m - k,) int32
        The other entities' rows, and the position of the one turn that mentions it, or -1.
    leaf_weight : (2, m - k) float32
        ``damping * w``, and that by the entity's degree.
    starts : (n_memories + 1, 5) int64
        Where each memory's turns, kept entities, leaves, and turns and entities in ``alone`` start.
    damping : float
    """

    turn_row: NDArray[np.int32]
    chain_start: NDArray[np.int32]
    alone: NDArray[np.int32]
    factors: NDArray[np.float32]
    turn_indptr: NDArray[np.int64]
    turn_entity: NDArray[np.int32]
    turn_weight: NDArray[np.float32]
    entity_row: NDArray[np.int32]
    entity_indptr: NDArray[np.int64]
    entity_turn: NDArray[np.int32]
    entity_weight: NDArray[np.float32]
    entity_degree: NDArray[np.float32]
    leaf_row: NDArray[np.int32]
    leaf_turn: NDArray[np.int32]
    leaf_weight: NDArray[np.float32]
    starts: NDArray[np.int64]
    damping: float


_OK, _INDPTR, _ENTITY, _NUMBER, _PREVIOUS, _TWICE = range(6)


@kernel(I64(I32_1, I64_1, I32_1, F32_1, F32_1, OUT_I32_1, OUT_I32_1))
def _inspect(previous, indptr, entity, weight, inverse_degree, following, count):
    """Fill ``following`` (-1 for none) and mentions by entity; return what is wrong, or _OK."""
    n, m = len(previous), len(count)
    following[:] = -1
    count[:] = 0
    if indptr[0] != 0 or indptr[n] != len(entity):
        return _INDPTR
    for t in range(n):
        if indptr[t + 1] < indptr[t] or indptr[t + 1] > len(entity):
            return _INDPTR
        before = previous[t]
        if before < -1 or before >= t:
            return _PREVIOUS
        if before >= 0:
            if following[before] >= 0:
                return _TWICE
            following[before] = t
    for p in range(len(entity)):
        e = entity[p]
        if e < 0 or e >= m:
            return _ENTITY
        count[e] += 1
        if not 0 <= weight[p] < np.inf:
            return _NUMBER
    for value in inverse_degree:
        if not 0 <= value < np.inf:
            return _NUMBER
    return _OK


@kernel(
    VOID(
        I32_1, I64_1, I32_1, F32_1, F32_1, F64, F64, I32_1, I32_1, OUT_I32_1, OUT_I32_1, OUT_F32_2,
        OUT_I64_1,
        OUT_I32_1, OUT_F32_1, OUT_I32_1, OUT_I64_1, OUT_I32_1, OUT_F32_1, OUT_F32_2, OUT_I32_1,
        OUT_I32_1, OUT_F32_2, OUT_I32_1, OUT_I64_1,
    )
)  # fmt: skip
def _fill(
    previous, indptr, entity, weight, inverse_degree, adjacency, damping, following, count,
    turn_row, chain_start, factors, turn_indptr, turn_entity, turn_weight, entity_row,
    entity_indptr, entity_turn, entity_weight, entity_degree, leaf_row, leaf_turn, leaf_weight,
    place, cursor,
):  # fmt: skip
    """Fill a plan's arrays."""
    n, m = len(previous), len(count)
    n_kept = n_leaves = 0
    entity_indptr[0] = 0
    for e in range(m):
        if count[e] > 1:
            place[e] = n_kept
            entity_row[n_kept] = n + e
            inverse = inverse_degree[n + e]
            entity_degree[0, n_kept] = inverse
            entity_degree[1, n_kept] = 1 / np.float64(inverse) if inverse > 0 else 0.0
            cursor[n_kept] = entity_indptr[n_kept]
            entity_indptr[n_kept + 1] = entity_indptr[n_kept] + count[e]
            n_kept += 1
        else:
            place[e] = -1 - n_leaves
            leaf_row[n_leaves] = n + e
            leaf_turn[n_leaves] = -1
            leaf_weight[0, n_leaves] = 0
            leaf_weight[1, n_leaves] = 0
            n_leaves += 1
    position = chain = 0
    for t in range(n):
        if previous[t] < 0:
            chain_start[chain] = position
            chain += 1
            row = t
            while row >= 0:
                turn_row[position] = row
                position += 1
                row = following[row]
    chain_start[chain] = n
    link = damping * adjacency
    before, q = 0.0, 0
    turn_indptr[0] = 0
    for i in range(n):
        row = turn_row[i]
        inverse = inverse_degree[row]
        degree = 1 / np.float64(inverse) if inverse > 0 else 0.0
        pivot = total = degree
        for p in range(indptr[row], indptr[row + 1]):
            j = place[entity[p]]
            flow = damping * weight[p]
            if j >= 0:
                turn_entity[q] = j
                turn_weight[q] = flow
                q += 1
            else:
                leaf = -1 - j
                ratio = flow * inverse_degree[leaf_row[leaf]]
                leaf_turn[leaf] = i
                leaf_weight[0, leaf] = flow
                leaf_weight[1, leaf] = ratio
                pivot -= flow * ratio
                total += flow
        turn_indptr[i + 1] = q
        # T = D - damping A among turns: the sweep along a chain is Gaussian elimination.
        linked = previous[row] >= 0 and before > 0
        lower = link / before if linked else 0.0
        pivot -= link * lower
        alive = degree > 0 and pivot > 0
        before = pivot if alive else 0.0
        factors[0, i] = lower
        factors[1, i] = link / pivot if alive and following[row] >= 0 else 0.0
        factors[2, i] = 1 / pivot if alive else 0.0
        factors[3, i] = degree
        factors[4, i] = total
    # By entity, in the order of the turns' rows and not of their chains: a memory that is packed
    # with others adds up in the order it adds up alone.
    for i in range(n):
        for q in range(turn_indptr[i], turn_indptr[i + 1]):
            j = turn_entity[q]
            entity_turn[cursor[j]] = i
            entity_weight[cursor[j]] = turn_weight[q]
            cursor[j] += 1


def prepare(
    previous: NDArray[np.int32],
    mention_indptr: NDArray[np.int64],
    mention_entity: NDArray[np.int32],
    mention_weight: NDArray[np.float32],
    inverse_degree: NDArray[np.float32],
    adjacency_weight: float,
    damping: float,
    *,
    offsets: NDArray[np.int64] | None = None,
) -> Plan:
    """Return what ``ppr_cpu.ppr`` makes of a graph, to be handed to it as ``plan``.

    It depends on the graph and the damping alone, and is worth keeping where single questions are
    asked. The parameters are those of ``ppr_cpu.ppr``.

    Raises
    ------
    InvalidInputError
    """
    check_options(adjacency_weight, damping, 1.0)
    graph = as_arrays(
        np, previous, mention_indptr, mention_entity, mention_weight, inverse_degree, offsets
    )
    n, m = len(graph.previous), len(graph.inverse_degree) - len(graph.previous)
    following, count = np.empty(n, np.int32), np.empty(m, np.int32)
    wrong = _inspect(*graph[:5], following, count)
    if wrong:
        raise _error(wrong, graph.previous, m)
    many = count > 1
    k, kept = int(many.sum()), int(count[many].sum())
    turn_row, chain_start = np.empty(n, np.int32), np.empty(n + 1, np.int32)
    chain_start = chain_start[: int((graph.previous < 0).sum()) + 1]
    factors = np.empty((5, n), np.float32)
    by_turn = np.empty(n + 1, np.int64), np.empty(kept, np.int32), np.empty(kept, np.float32)
    by_entity = np.empty(k + 1, np.int64), np.empty(kept, np.int32), np.empty(kept, np.float32)
    entity_row, entity_degree = np.empty(k, np.int32), np.empty((2, k), np.float32)
    leaf_row, leaf_turn = np.empty(m - k, np.int32), np.empty(m - k, np.int32)
    leaf_weight = np.empty((2, m - k), np.float32)
    leaves = leaf_row, leaf_turn, leaf_weight
    _fill(
        *graph[:5], float(adjacency_weight), float(damping), following, count, turn_row,
        chain_start, factors, *by_turn, entity_row, *by_entity, entity_degree, *leaves,
        np.empty(m, np.int32), np.empty(k, np.int64),
    )  # fmt: skip
    alone = np.flatnonzero(np.concatenate([factors[3], entity_degree[1]]) == 0).astype(np.int32)
    starts = np.empty((len(graph.offsets), 5), np.int64)
    rows = n + graph.offsets[:, 1]
    starts[:, 0] = graph.offsets[:, 0]
    starts[:, 1] = np.searchsorted(entity_row, rows)
    starts[:, 2] = np.searchsorted(leaf_row, rows)
    starts[:, 3] = np.searchsorted(alone, starts[:, 0])
    starts[:, 4] = np.searchsorted(alone, n + starts[:, 1])
    return Plan(
        turn_row, chain_start, alone, factors, *by_turn, entity_row, *by_entity, entity_degree,
        *leaves, starts, float(damping),
    )  # fmt: skip


def _error(wrong: int, previous: NDArray[np.int32], m: int) -> InvalidInputError:
    if wrong == _PREVIOUS:
        late = (previous < -1) | (previous >= np.arange(len(previous)))
        turn = int(late.argmax())
        return bad_previous(turn, int(previous[turn]))
    return {
        _INDPTR: InvalidInputError(
            "mention_indptr must run from 0 to len(mention_entity) and not decrease"
        ),
        _ENTITY: InvalidInputError(f"mention_entity must be in [0, {m})"),
        _NUMBER: bad_number("mention_weight and inverse_degree"),
        _TWICE: two_follow(),
    }[wrong]
