"""Walks of many memories' questions as one, over a block-diagonal graph.

A device is fast where much is done at once: column j of a packed walk (eq. 10) holds each memory's
j-th question. Packs, and what a device makes of them, are kept for as long as their graphs live.
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Any, TypeVar

import numpy as np

from zeromem.backend import F32, I32, Backend, Graph, Walk
from zeromem.forks import Lock

T = TypeVar("T")
R = TypeVar("R")

_FREE = 12 << 30  # bytes, where nobody says: half of a 24 GB card
# Of a cell of a walk, (nodes x questions): the reset vector and its checks, three vectors of the
# iteration, the scores and the residual, added up in float64.
_CELL_BYTES = 48
_CELLS = 1 << 24  # of one walk: beyond, a device has enough to do
_SMALL = 1 << 21  # cells that cost a device little, and of which any has room
_WARP = 32


class Kept:
    """Values made of objects, found by the objects' identity, for as long as all of these live."""

    def __init__(self) -> None:
        self._values: dict[Any, tuple[list[weakref.ref[Any]], Any]] = {}
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, made_of: Sequence[Any], make: Callable[[], T], *options: Any) -> T:
        """Return the value of these objects and options, made where it is not there.

        Two threads may make it at once: the same value twice.
        """
        key = (*map(id, made_of), *options)
        with self._lock:
            found = self._values.get(key)
            if found is not None:  # behind all others: what is in front was not used for longest
                self._values[key] = self._values.pop(key)
        if found is None:
            values = self._values

            def forget(_: Any) -> None:
                values.pop(key, None)

            # The ids mean these objects until one of them goes, and then the entry does.
            found = self._values[key] = [weakref.ref(part, forget) for part in made_of], make()
        value: T = found[1]
        return value

    def shrink(self, most: int, size: Callable[[Any], int]) -> None:
        """Let go of what was not used for longest, until the sizes sum to ``most``; not of all."""
        with self._lock:
            self._release(sum(size(value) for _, value in self._entries()) - most, size)

    def release(self, least: int, size: Callable[[Any], int]) -> None:
        """Let go of what was not used for longest, ``least`` by size where there is that much."""
        with self._lock:
            self._release(least, size)

    def _entries(self) -> list[tuple[Any, Any]]:
        return [(key, value) for key, (_, value) in list(self._values.items())]

    def _release(self, least: int, size: Callable[[Any], int]) -> None:
        for key, value in self._entries()[:-1]:
            if least <= 0:
                return
            self._values.pop(key, None)
            least -= size(value)


@dataclass(frozen=True, eq=False)
class Pack:
    """Graphs side by side, and what a device made of them; one thread at a time solves."""

    packed: Any
    solver: Any
    lock: Lock = field(default_factory=Lock)

    @property
    def n_bytes(self) -> int:
        """About what it holds on the device."""
        edges = 2 * (len(self.packed.mention_entity) + len(self.packed.previous))
        loops = getattr(self.solver, "loops", None)
        held = 16 * edges + 64 * len(self.packed.inverse_degree)
        return held + (loops.n_bytes if loops is not None else 0)


@dataclass(frozen=True, eq=False)
class _Task:
    """Walks over one graph, side by side as columns."""

    graph: Graph
    previous: I32
    places: list[int]
    resets: list[F32]

    @property
    def columns(self) -> int:
        return sum(reset.shape[1] for reset in self.resets)

    @property
    def nodes(self) -> int:
        return len(self.graph.inverse_degree)

    def walks(self) -> Iterator[tuple[int, F32, slice]]:
        """Each walk's place among all, its reset vectors, and its columns here."""
        stop = 0
        for place, reset in zip(self.places, self.resets, strict=True):
            start, stop = stop, stop + reset.shape[1]
            yield place, reset, slice(start, stop)


class PackedBackend(Backend, ABC):
    """The host's kernels, but walks of many memories as one on a device.

    Parameters
    ----------
    free : callable, optional
        Bytes free on the device, which bound what is worked on at once.
    n_threads : int, optional
        Threads of the host.
    """

    device = "cuda"

    def __init__(self, free: Callable[[], int] | None = None, n_threads: int | None = None) -> None:
        super().__init__(n_threads)
        self._free = free or (lambda: _FREE)
        self._packs = Kept()

    def around_walk(
        self, items: Sequence[T], before: Callable[[T], Walk], after: Callable[[Any, F32], R]
    ) -> list[R]:
        """Return ``after(before(item), pi)`` of each item, with the walks of many as one.

        Items are worked on in groups that the device's memory, and the host's, hold.
        """
        done: list[R] = []
        walks: list[Walk] = []
        cells = 0
        for first in range(0, len(items), self.n_threads):
            new = list(self.map(before, items[first : first + self.n_threads]))
            walks += new
            cells += sum(walk.arguments[2].size for walk in new)
            if first + self.n_threads >= len(items) or cells >= self._most(cells):
                scores = self._walk([walk.arguments for walk in walks])
                pairs = list(zip(walks, scores, strict=True))
                done += self.map(lambda pair: after(*pair), pairs)
                walks, cells = [], 0
        return done

    def ppr(
        self,
        graph: Graph,
        previous: I32,
        reset: F32,
        adjacency_weight: float,
        damping: float,
        tol: float,
    ) -> F32:
        """Eq. 10, scores (n + n_entities, b)."""
        return self._walk([(graph, previous, reset, adjacency_weight, damping, tol)])[0]

    def _most(self, cells: int) -> int:
        """Return how many cells one walk may have, where ``cells`` are wanted in all."""
        if cells <= _SMALL:  # too few to ask the device
            return _CELLS
        return max(1, min(_CELLS, self._free() // (2 * _CELL_BYTES)))

    def _walk(self, walks: Sequence[tuple[Any, ...]]) -> list[F32]:
        """Return the scores of many calls of :meth:`ppr`."""
        most = self._most(2 * sum(walk[2].size for walk in walks))
        found: dict[int, F32] = {}
        for options in dict.fromkeys(walk[3:] for walk in walks):
            tasks = _tasks(walks, options, most)
            for group in _groups(tasks, most):
                found.update(self._walk_group(group, *options))
        return [found[place] for place in range(len(walks))]

    def _walk_group(
        self, group: list[_Task], adjacency_weight: float, damping: float, tol: float
    ) -> Iterator[tuple[int, F32]]:
        # In one order, so that the same memories are the same pack.
        group.sort(key=lambda task: id(task.graph))
        graphs = [task.graph for task in group]

        def make() -> Pack:
            self._packs.shrink(self._free() // 4, lambda kept: int(kept.n_bytes))
            return self._pack(group, adjacency_weight)

        pack = self._packs.get(graphs, make, adjacency_weight)
        n, offsets = len(pack.packed.previous), pack.packed.offsets.tolist()
        # Where each walk's turns, entities and columns are in the pack.
        parts = [
            (place, own, (slice(turn, turn_end), slice(n + entity, n + entity_end)), columns)
            for task, ((turn, entity), (turn_end, entity_end)) in zip(
                group, pairwise(offsets), strict=True
            )
            for place, own, columns in task.walks()
        ]
        width = _padded(max(task.columns for task in group))
        reset = np.zeros((len(pack.packed.inverse_degree), width), np.float32)
        for _, own, (turns, entities), columns in parts:
            n_turns = turns.stop - turns.start
            reset[turns, columns] = own[:n_turns]
            reset[entities, columns] = own[n_turns:]
        with pack.lock:
            scores = self._solve(pack, reset, adjacency_weight, damping, tol)
        for place, _, rows, columns in parts:
            yield place, np.concatenate([scores[part, columns] for part in rows])

    def _pack(self, group: Sequence[_Task], adjacency_weight: float) -> Pack:
        from zeromem.kernels._ppr import pack

        packed = pack(
            [
                (
                    task.previous, task.graph.mention_indptr, task.graph.mention_entity,
                    task.graph.mention_weight, task.graph.inverse_degree,
                )
                for task in group
            ]
        )  # fmt: skip
        return Pack(packed, self._prepare(packed, adjacency_weight))

    @abstractmethod
    def _prepare(self, packed: Any, adjacency_weight: float) -> Any:
        """Return what the device makes of a graph once."""

    @abstractmethod
    def _solve(
        self, pack: Pack, reset: F32, adjacency_weight: float, damping: float, tol: float
    ) -> F32:
        """Return the scores of reset vectors (nodes, columns), both on the host."""


def _tasks(walks: Sequence[tuple[Any, ...]], options: tuple[Any, ...], most: int) -> list[_Task]:
    """Gather the walks of each graph, as many as ``most`` cells hold, those of most columns first.

    A walk that exceeds ``most`` by itself goes alone.
    """
    tasks: dict[int, list[_Task]] = {}
    for place, (graph, previous, reset, *own) in enumerate(walks):
        if tuple(own) != options:
            continue
        room = most // max(1, len(graph.inverse_degree)) - reset.shape[1]
        there = tasks.setdefault(id(graph), [])
        task = next((task for task in there if task.columns <= room), None)
        if task is None:
            task = _Task(graph, previous, [], [])
            there.append(task)
        task.places.append(place)
        task.resets.append(reset)
    return sorted(chain.from_iterable(tasks.values()), key=lambda task: -task.columns)


def _groups(tasks: Sequence[_Task], most: int) -> Iterator[list[_Task]]:
    """Cut tasks, those of most columns first, into groups that are worth one walk.

    A memory of few questions beside one of many costs as much as if it had as many: so a group's
    memories have at least half of the columns of its first, unless the whole is small. Two tasks of
    one graph never meet: they exceed ``most`` together.
    """
    group: list[_Task] = []
    for task in tasks:
        if group:
            width = _padded(group[0].columns)
            cells = width * sum(t.nodes for t in (*group, task))
            alike = 2 * task.columns >= width or cells <= _SMALL
            if cells > most or not alike:
                yield group
                group = []
        group.append(task)
    if group:
        yield group


def _padded(columns: int) -> int:
    """Round up, so that a device makes its loop for a few widths only."""
    if columns > _WARP:
        return -(-columns // _WARP) * _WARP
    return 1 << (columns - 1).bit_length() if columns else 0
