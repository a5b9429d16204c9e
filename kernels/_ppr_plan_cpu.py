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
from numpy.typing import NDArray

from zeromem.errors import InvalidInputError
from zeromem.kernels._ppr import as_arrays, bad_number, bad_previous, check_options, two_follow
from zeromem.kernels._ppr_layout_cpu import (
    CELL,
    ENTITY,
    INDPTR,
    NUMBER,
    PREVIOUS,
    SLICE,
    TWICE,
    WINDOW,
    fill,
    inspect,
    lay_entities,
    lay_turns,
    number_entities,
)  # fmt: skip


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
        return int(self.factors.shape[1])

    @property
    def k(self) -> int:
        """How many entities are kept."""
        return int(self.entity_degree.shape[1]) - SLICE


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
    most = n // WINDOW + 2
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
    wrong = inspect(*graph[:5], following, count)
    if wrong:
        raise _error(wrong, graph.previous, m)
    starts = np.empty((len(graph.offsets), 4), np.int64)
    starts[:, :2] = graph.offsets
    number_entities(count, number, starts)
    n_hubs, k = starts[-1, 2:].tolist()
    slices, hubs = np.empty(1 - (n_hubs - k) // SLICE, np.int64), np.empty((n_hubs, 3), np.int64)
    cursor = cursor[:k]
    lay_entities(count, number, n_hubs, slices, hubs, cursor)
    at, windows = scratch.take(n, np.int64), scratch.take(most * 4, np.int64).reshape(-1, 4)
    chains, order = scratch.take(n * 2, np.int32).reshape(-1, 2), scratch.take(rows, np.int32)
    turn_slices = scratch.take(rows // SLICE + 1, np.int64)
    turn_hubs, sizes = scratch.take(n * 3, np.int64).reshape(-1, 3), np.empty(4, np.int64)
    lay_turns(
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
    fill(
        *graph[:5], float(adjacency_weight), float(damping), turn_row, following, number,
        named, at, cursor, by_turn.slices[-1], n_hubs, by_turn.column, by_turn.weight,
        by_entity.column, by_entity.weight, place, share, fold, factors, entity_degree,
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
        return int(-(-length * np.dtype(dtype).itemsize // 64) * 64)

    def take(self, length: int, dtype: Any) -> NDArray[Any]:
        """Return the next array."""
        start, self._at = self._at, self._at + self._size(length, dtype)
        array: NDArray[Any] = self._bytes[start : self._at].view(dtype)[:length]
        return array


def _words(slices: NDArray[np.int64], hubs: NDArray[np.int64]) -> int:
    """Return how many words the entries of rows take, padding included."""
    return CELL + int(hubs[-1, 2] if len(hubs) else slices[-1])


def _rows(slices: NDArray[np.int64], words: NDArray[np.int32], hubs: NDArray[np.int64]) -> Rows:
    return Rows(slices, words[:-CELL], words[CELL:].view(np.float32), hubs)


def _error(wrong: int, previous: NDArray[np.int32], m: int) -> InvalidInputError:
    if wrong == PREVIOUS:
        late = (previous < -1) | (previous >= np.arange(len(previous)))
        turn = int(late.argmax())
        return bad_previous(turn, int(previous[turn]))
    return {
        INDPTR: InvalidInputError(
            "mention_indptr must run from 0 to len(mention_entity) and not decrease"
        ),
        ENTITY: InvalidInputError(f"mention_entity must be in [0, {m})"),
        NUMBER: bad_number("mention_weight and inverse_degree"),
        TWICE: two_follow(),
    }[wrong]
