"""What the host's form of ``ppr`` makes of a graph once: the order and factors of its sweeps.

An entity that one turn mentions can be solved for as part of that turn, and is (half of all
entities, as a rule). The others are stored both ways, by turn and by entity. Turns lie chain by
chain; entities by how often they are mentioned, so that what is looked up most lies together.

Rows of mentions are short, and a loop over rows of mixed lengths waits for its branches more than
for memory. So 16 rows of about one length lie side by side as a slice (sliced ELLPACK): entry j of
all of them, then entry j + 1, padded with weights of 0. Longer rows, of hubs, follow one by one.
Eight entries' columns and then their weights are a cache line.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from zeromem.errors import InvalidInputError
from zeromem.kernels._lanes import item
from zeromem.kernels._numba import (
    F32_1,
    F64,
    I32_1,
    I64,
    I64_1,
    OUT_F32_1,
    OUT_F32_2,
    OUT_I32_1,
    OUT_I32_2,
    OUT_I64_1,
    OUT_I64_2,
    VOID,
    kernel,
)
from zeromem.kernels._ppr import as_arrays, bad_number, bad_previous, check_options, two_follow

SLICE = 16  # rows of a slice; also how far a table may be read or written past its end
CELL = 8  # entries of a cache line: their columns, then their weights
STEP = 2 * SLICE  # from an entry of a slice's row to the next, in words
HUB = 32  # the longest row in a slice
# Turns of a window: as long as its chains go. Its rows are sorted by length, and its part of the
# table of turns is still in the first cache when its chains are solved.
_WINDOW = 512


class Rows(NamedTuple):
    """Rows of mentions, in slices and one by one.

    Attributes
    ----------
    slices : (n_slices + 1,) int64
        Where each slice starts.
    column, weight : int32, float32
        Of the entry at p, what is looked up and ``damping * w``: views of the same memory, so that
        8 values of p count and the next 8 do not.
    hubs : (n_hubs, 3) int64
        Which row is a hub, and where its entries start and end.
    """

    slices: NDArray[np.int64]
    column: NDArray[np.int32]
    weight: NDArray[np.float32]
    hubs: NDArray[np.int64]


class Plan(NamedTuple):
    """A graph as the sweeps read it, k of its m entities kept; made by ``prepare``.

    A table has the turns by position, ``SLICE`` rows of padding, and the kept entities by number.

    Attributes
    ----------
    place : (n + m,) int32
        Of each node in the order of the graph: its row in the table; of an entity that is not kept,
        the row of the one turn that mentions it.
    share : (n + m,) float32
        By what that row is multiplied to get the node's x.
    fold : (n + m,) float32
        By what the node's reset is multiplied to be added to that row's; -1 for a node that has
        the row to itself. The reset of the others is part of their x.
    starts : (n_memories + 1, 4) int64
        Where each memory's turns, entities, kept hubs and other kept entities start.
    windows : (n_windows + 1, 4) int64
        Where each window's turns, chains, slices and hubs start.
    chains : (n_chains, 2) int32
        First position of each chain, and the one behind its last; long ones first in a window.
    factors : (4, n) float32
        Of the turns' tridiagonal system: lower, upper and inverse pivot; and the turns' degrees
        with the weights of their leaves.
    turn_order : (SLICE * n_slices,) int32
        The position of each row of ``by_turn.slices``.
    by_turn, by_entity : Rows
        The kept mentions. Slices of entities start with the first that is no hub.
    entity_degree : (2, k + SLICE) float32
        Inverse degrees, and degrees.
    damping : float
    """

    place: NDArray[np.int32]
    share: NDArray[np.float32]
    fold: NDArray[np.float32]
    starts: NDArray[np.int64]
    windows: NDArray[np.int64]
    chains: NDArray[np.int32]
    factors: NDArray[np.float32]
    turn_order: NDArray[np.int32]
    by_turn: Rows
    by_entity: Rows
    entity_degree: NDArray[np.float32]
    damping: float

    @property
    def n(self) -> int:
        """How many turns there are."""
        return self.factors.shape[1]

    @property
    def k(self) -> int:
        """How many entities are kept."""
        return self.entity_degree.shape[1] - SLICE


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
    for e in entity:
        if e < 0 or e >= m:
            return _ENTITY
        count[e] += 1
    # Without a way out of the loop the machine compares many numbers at a time.
    right = 0
    for value in weight:
        right += (value >= 0) & (value < np.inf)
    for value in inverse_degree:
        right += (value >= 0) & (value < np.inf)
    return _OK if right == len(weight) + len(inverse_degree) else _NUMBER


@kernel(VOID(I32_1, OUT_I32_1, OUT_I64_2))
def _number(count, number, starts):
    """Number the kept entities, -1 for the others: all hubs, then each memory's by their mentions.

    Within a memory the numbers depend on it alone, or packing it with others would change bits.
    """
    # By length, that of all hubs as one: the next number, and whether one is given.
    next_of, given = np.zeros(HUB + 2, np.int32), np.ones(HUB + 2, np.int32)
    given[:2] = 0
    hub, first = np.int32(0), np.int32(0)
    for size in count:
        first += size > HUB
    for memory in range(len(starts) - 1):
        starts[memory, 2], starts[memory, 3] = hub, first
        lo, hi = starts[memory, 1], starts[memory + 1, 1]
        next_of[:] = 0
        for e in range(lo, hi):
            next_of[min(count[e], HUB + 1)] += 1
        next_of[:2] = -1
        hub, next_of[HUB + 1] = hub + next_of[HUB + 1], hub
        for length in range(HUB, 1, -1):
            first, next_of[length] = first + next_of[length], first
        for e in range(lo, hi):
            length = min(count[e], HUB + 1)
            number[e] = next_of[length]
            next_of[length] += given[length]
    starts[len(starts) - 1, 2], starts[len(starts) - 1, 3] = hub, first


@kernel(VOID(I32_1, I32_1, I64, OUT_I64_1, OUT_I64_2, OUT_I32_1))
def _lay_entities(count, number, n_hubs, slices, hubs, cursor):
    """Lay out the rows of entities; ``cursor`` is where each of them starts."""
    slices[:] = 0
    for e in range(len(count)):
        if number[e] >= n_hubs:
            at = (number[e] - n_hubs) // SLICE + 1
            slices[at] = max(slices[at], count[e])
    for s in range(len(slices) - 1):
        slices[s + 1] = slices[s] + STEP * slices[s + 1]
    for j in range(n_hubs, len(cursor)):
        lane = (j - n_hubs) % SLICE
        cursor[j] = slices[(j - n_hubs) // SLICE] + lane + (lane & CELL)
    for e in range(len(count)):
        if 0 <= number[e] < n_hubs:
            hubs[number[e], 2] = count[e]
    end = slices[len(slices) - 1]
    for j in range(n_hubs):
        hubs[j, 0], hubs[j, 1] = j, end
        cursor[j] = end
        end += 2 * CELL * -(-hubs[j, 2] // CELL)
        hubs[j, 2] = end


@kernel(
    VOID(
        I32_1, I32_1, I64_1, I32_1, I32_1, OUT_I32_1, OUT_I32_1, OUT_I32_2, OUT_I64_2, OUT_I32_1,
        OUT_I64_1, OUT_I64_2, OUT_I32_1, OUT_I64_1, OUT_I64_1,
    )
)  # fmt: skip
def _lay_turns(
    previous, following, indptr, entity, number, named, turn_row, chains, windows, order, slices,
    hubs, length, at, sizes,
):  # fmt: skip
    """Put the turns in chains and windows, and lay out their rows; ``at`` is where each starts.

    ``named`` gets the number of each mention's entity, ``sizes`` those of windows, slices, hubs and
    chains.
    """
    n = len(previous)
    # By itself: no branch waits for these numbers, so many are looked up at a time.
    for p in range(len(entity)):
        named[p] = item(number, np.int64(item(entity, p)))
    next_of, unsorted = np.zeros(256, np.int64), np.empty((n + 1, 2), np.int32)
    position = chain = n_windows = n_slices = n_hubs = start = 0
    first_chain = 0
    slices[0] = 0
    windows[0] = 0
    for t in range(n):
        if previous[t] < 0:
            unsorted[chain, 0] = position
            row = t
            while row >= 0:
                turn_row[position] = row
                kept = np.int32(0)
                for p in range(item(indptr, row), item(indptr, row + 1)):
                    kept += item(named, p) >= 0
                length[position] = kept
                position += 1
                row = following[row]
            unsorted[chain, 1] = position
            chain += 1
        if position - start < _WINDOW and not (t == n - 1 and position > start):
            continue
        next_of[:] = 0
        for c in range(first_chain, chain):
            next_of[min(unsorted[c, 1] - unsorted[c, 0], 255)] += 1
        place = np.int64(first_chain)
        for size in range(255, -1, -1):
            place, next_of[size] = place + next_of[size], place
        for c in range(first_chain, chain):
            size = min(unsorted[c, 1] - unsorted[c, 0], 255)
            chains[next_of[size], 0] = unsorted[c, 0]
            chains[next_of[size], 1] = unsorted[c, 1]
            next_of[size] += 1
        next_of[: HUB + 1] = 0
        for i in range(start, position):
            next_of[length[i] if length[i] <= HUB else 0] += 1
        first_row = place = np.int64(n_slices * SLICE)
        for size in range(HUB, -1, -1):
            place, next_of[size] = place + next_of[size], place
        for i in range(start, position):
            size = length[i]
            if size > HUB:
                hubs[n_hubs, 0] = i
                n_hubs += 1
                size = 0
            r = next_of[size]
            next_of[size] += 1
            order[r] = i
        for r in range(first_row, place, SLICE):
            size = length[order[r]]
            size = size if size <= HUB else 0
            slices[n_slices + 1] = slices[n_slices] + STEP * size
            for lane in range(SLICE):
                if r + lane < place:
                    at[order[r + lane]] = slices[n_slices] + lane + (lane & CELL)
                else:
                    order[r + lane] = n  # padding of the table
            n_slices += 1
        n_windows += 1
        start, first_chain = position, chain
        windows[n_windows, 0], windows[n_windows, 1] = position, chain
        windows[n_windows, 2], windows[n_windows, 3] = n_slices, n_hubs
    end = slices[n_slices]
    for h in range(n_hubs):
        hubs[h, 1] = end
        at[hubs[h, 0]] = end
        end += 2 * CELL * -(-length[hubs[h, 0]] // CELL)
        hubs[h, 2] = end
    sizes[0], sizes[1], sizes[2], sizes[3] = n_windows, n_slices, n_hubs, chain


@njit(forceinline=True)
def _next(p, is_hub):
    """Return where the next entry of a row is, without a branch: half of the entries are hubs'."""
    in_hub = 1 + CELL * np.int64(p & (CELL - 1) == CELL - 1)
    return p + STEP + np.int64(is_hub) * (in_hub - STEP)


@kernel(
    VOID(
        I32_1, I64_1, I32_1, F32_1, F32_1, F64, F64, I32_1, I32_1, I32_1, I32_1, I64_1, OUT_I32_1,
        I64, I64, OUT_I32_1, OUT_F32_1, OUT_I32_1, OUT_F32_1, OUT_I32_1, OUT_F32_1, OUT_F32_1,
        OUT_F32_2, OUT_F32_2,
    )
)  # fmt: skip
def _fill(
    previous, indptr, entity, weight, inverse_degree, adjacency, damping, turn_row, following,
    number, named, at, cursor, turn_hubs_at, n_hubs, turn_entity, turn_weight, entity_turn,
    entity_weight, place, share, fold, factors, entity_degree,
):  # fmt: skip
    """Fill a plan's arrays. Rows of entities are in the order of the turns' positions."""
    n, k = len(previous), entity_degree.shape[1] - SLICE
    for e in range(len(number)):
        j = number[e]
        # Without branches: which entity is kept is as good as random. The others go to padding.
        kept = j >= 0
        inverse = inverse_degree[n + e] if kept else np.float32(0)
        degree = np.float32(1 / np.float64(inverse)) if inverse > 0 else np.float32(0)
        entity_degree[0, j if kept else k] = inverse
        entity_degree[1, j if kept else k] = degree
        place[n + e] = n + SLICE + j if kept else 0
        share[n + e] = degree
        fold[n + e] = -1 if inverse > 0 else 0
    link = damping * adjacency
    before = 0.0
    for i in range(n):
        row = turn_row[i]
        inverse = inverse_degree[row]
        degree = 1 / np.float64(inverse) if inverse > 0 else 0.0
        pivot = total = degree
        q = at[i]
        is_hub = q >= turn_hubs_at
        for p in range(item(indptr, row), item(indptr, row + 1)):
            j = np.int64(item(named, p))
            flow = np.float32(damping * item(weight, p))
            if j >= 0:
                turn_entity[q] = j
                turn_weight[q] = flow
                q = _next(q, is_hub)
                c = np.int64(item(cursor, j))
                entity_turn[c] = i
                entity_weight[c] = flow
                cursor[j] = _next(c, j < n_hubs)
            else:
                e = n + np.int64(item(entity, p))
                ratio = flow * inverse_degree[e]
                place[e] = i
                share[e] = flow
                fold[e] = ratio
                pivot -= np.float64(flow) * ratio
                total += flow
        # T = D - damping A among turns: the sweep along a chain is Gaussian elimination.
        linked = previous[row] >= 0 and before > 0
        lower = link / before if linked else 0.0
        pivot -= link * lower
        alive = degree > 0 and pivot > 0
        before = pivot if alive else 0.0
        inverse_pivot = 1 / pivot if alive else 0.0
        factors[0, i] = lower
        factors[1, i] = link * inverse_pivot if following[row] >= 0 else 0.0
        factors[2, i] = inverse_pivot
        factors[3, i] = total
        place[row] = i
        share[row] = degree
        fold[row] = -1 if degree > 0 else 0


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
    most = n // _WINDOW + 2
    rows = n + most * SLICE
    scratch = _Memory(
        np.empty, (len(graph.mention_entity), np.int32),
        (m, np.int32), (m, np.int32), (m, np.int32), (n, np.int32), (n, np.int32), (n, np.int32),
        (n, np.int64), (most * 4, np.int64), (n * 2, np.int32), (rows, np.int32),
        (rows // SLICE + 1, np.int64), (n * 3, np.int64),
    )  # fmt: skip
    named = scratch.take(len(graph.mention_entity), np.int32)
    count, number, cursor = (scratch.take(m, np.int32) for _ in range(3))
    following, turn_row, length = (scratch.take(n, np.int32) for _ in range(3))
    wrong = _inspect(*graph[:5], following, count)
    if wrong:
        raise _error(wrong, graph.previous, m)
    starts = np.empty((len(graph.offsets), 4), np.int64)
    starts[:, :2] = graph.offsets
    _number(count, number, starts)
    n_hubs, k = starts[-1, 2:].tolist()
    slices, hubs = np.empty(1 - (n_hubs - k) // SLICE, np.int64), np.empty((n_hubs, 3), np.int64)
    cursor = cursor[:k]
    _lay_entities(count, number, n_hubs, slices, hubs, cursor)
    at, windows = scratch.take(n, np.int64), scratch.take(most * 4, np.int64).reshape(-1, 4)
    chains, order = scratch.take(n * 2, np.int32).reshape(-1, 2), scratch.take(rows, np.int32)
    turn_slices = scratch.take(rows // SLICE + 1, np.int64)
    turn_hubs, sizes = scratch.take(n * 3, np.int64).reshape(-1, 3), np.empty(4, np.int64)
    _lay_turns(
        graph.previous, following, graph.mention_indptr, graph.mention_entity, number, named,
        turn_row, chains, windows, order, turn_slices, turn_hubs, length, at, sizes,
    )  # fmt: skip
    n_windows, n_slices, n_turn_hubs, n_chains = sizes.tolist()
    turn_slices, turn_hubs = turn_slices[: n_slices + 1].copy(), turn_hubs[:n_turn_hubs].copy()

    size, turn_size = _words(slices, hubs), _words(turn_slices, turn_hubs)
    memory = _Memory(
        np.zeros,
        *[(length, np.float32) for length in (*[n + m] * 3, size, turn_size, 4 * n)],
        (2 * (k + SLICE), np.float32),
    )  # fmt: skip
    by_entity = _rows(slices, memory.take(size, np.int32), hubs)
    by_turn = _rows(turn_slices, memory.take(turn_size, np.int32), turn_hubs)
    place = memory.take(n + m, np.int32)
    share, fold = memory.take(n + m, np.float32), memory.take(n + m, np.float32)
    factors = memory.take(4 * n, np.float32).reshape(4, n)
    entity_degree = memory.take(2 * (k + SLICE), np.float32).reshape(2, -1)
    _fill(
        *graph[:5], float(adjacency_weight), float(damping), turn_row, following, number,
        named, at, cursor, by_turn.slices[-1], n_hubs, by_turn.column, by_turn.weight, by_entity.column,
        by_entity.weight, place, share, fold, factors, entity_degree,
    )  # fmt: skip
    for part in (*by_turn, *by_entity):
        part.flags.writeable = False  # arrays in a tuple have one type, as compiled
    return Plan(
        place, share, fold, starts, windows[: n_windows + 1].copy(), chains[:n_chains].copy(),
        factors, order[: n_slices * SLICE].copy(), by_turn, by_entity, entity_degree,
        float(damping),
    )  # fmt: skip


class _Memory:
    """Memory for several arrays at once, by ``np.zeros`` or ``np.empty``.

    Of a large one NumPy asks for huge pages: to touch 4,000 small ones first takes longer than the
    rest of ``prepare``.
    """

    def __init__(self, allocate: Any, *arrays: tuple[int, Any]) -> None:
        self._bytes = allocate(sum(self._size(*array) for array in arrays), np.uint8)
        self._at = 0

    @staticmethod
    def _size(length: int, dtype: Any) -> int:
        return -(-length * np.dtype(dtype).itemsize // 64) * 64

    def take(self, length: int, dtype: Any) -> NDArray[Any]:
        """Return the next array."""
        start, self._at = self._at, self._at + self._size(length, dtype)
        return self._bytes[start : self._at].view(dtype)[:length]


def _words(slices: NDArray[np.int64], hubs: NDArray[np.int64]) -> int:
    """Return how many words the entries of rows take, padding included."""
    return CELL + int(hubs[-1, 2] if len(hubs) else slices[-1])


def _rows(slices: NDArray[np.int64], words: NDArray[np.int32], hubs: NDArray[np.int64]) -> Rows:
    return Rows(slices, words[:-CELL], words[CELL:].view(np.float32), hubs)


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
