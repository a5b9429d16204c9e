"""Evidence as a pure function of (index, questions): batches, and what they are cut into."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zeromem.index import Index
from zeromem.query.parts import parts_of
from zeromem.query.piece import Piece, Timer, after_walk, before_walk
from zeromem.query.questions import Encode, Read, read
from zeromem.query.ranked import Options, Ranked
from zeromem.types import QueryProfile

Array = NDArray[Any]

# Questions that are worked on together, and cells of their (questions x turns) arrays: more
# questions make more of each look at the memory until their arrays leave the caches.
BATCH = 32
_CELLS = 1 << 21


@dataclass(frozen=True, slots=True)
class Work:
    """Questions to one memory.

    Attributes
    ----------
    index : Index
    profiles : sequence of QueryProfile
    encode : callable
        Texts to (n, dim) float32 unit rows. Memories whose callables are equal are encoded for
        together.
    """

    index: Index
    profiles: Sequence[QueryProfile]
    encode: Encode


def retrieve(
    index: Index, profiles: Sequence[QueryProfile], encode: Encode, options: Options, timer: Timer
) -> list[Ranked]:
    """Answer a batch of questions; each gets what it would get alone.

    Parameters
    ----------
    index : Index
    profiles : sequence of QueryProfile
    encode : callable
        Texts to (n, dim) float32 unit rows.
    options : Options
    timer : Timer
        Gets the time of each stage.
    """
    return retrieve_many([Work(index, profiles, encode)], options, timer)[0]


def retrieve_many(works: Sequence[Work], options: Options, timer: Timer) -> list[list[Ranked]]:
    """Answer questions to many memories at once; each gets what it would get alone.

    On the CPU pieces of the batch are worked on by all cores; on a device the memories' walks are
    one walk over a block-diagonal graph.

    Parameters
    ----------
    works : sequence of Work
        Their indexes share a backend.
    options : Options
    timer : Timer
    """
    found = [[Ranked.nothing(p) for p in w.profiles if not len(w.index)] for w in works]
    asked = [work for work in works if len(work.index) and work.profiles]
    if not asked:
        return found
    with timer.stage("encode"):
        batches = [Batch.of(work) for work in asked]
        encode_all(batches)
    backend = asked[0].index.backend
    pieces = [(batch, piece) for batch in batches for piece in batch.pieces(backend.n_threads)]
    done = backend.around_walk(
        [piece for _, piece in pieces], lambda piece: before_walk(piece, options), after_walk
    )
    ranked: dict[int, list[Ranked]] = {}
    for (batch, piece), rows in zip(pieces, done, strict=True):
        ranked.setdefault(id(batch.work), []).extend(rows)
        timer.add(piece.timer)
    return [ranked.get(id(work), own) for work, own in zip(works, found, strict=True)]


@dataclass(slots=True)
class Batch:
    """One memory's questions, each a group that its parts follow."""

    work: Work
    groups: list[int]
    asked: list[Read]
    vectors: Array
    names: dict[str, Array]

    @classmethod
    def of(cls, work: Work) -> Batch:
        parted = work.index.config.fusion.part_weight > 0
        groups = [(p, *(parts_of(p) if parted else ())) for p in work.profiles]
        asked = read([p for group in groups for p in group], work.index.arrays)
        names = sorted({name for question in asked for name in question.unknown})
        nothing = np.zeros((0, work.index.dim), np.float32)
        return cls(work, list(map(len, groups)), asked, nothing, dict.fromkeys(names, nothing))

    def pieces(self, n_threads: int) -> list[Piece]:
        """Cut the batch so that a piece fits the caches and no thread waits long for another."""
        n = len(self.groups)
        most = max(1, min(BATCH, _CELLS // len(self.work.index)))
        n_pieces = -(-n // most)
        if n >= 2 * n_threads:
            n_pieces = -(-n_pieces // n_threads) * n_threads
        borders = np.linspace(0, n, n_pieces + 1).astype(int).tolist()
        ends = np.cumsum([0, *self.groups])
        found = []
        for first, last in pairwise(borders):
            own = ends[first : last + 1]
            rows = slice(own[0], own[-1])
            vectors = self.vectors[rows]
            piece = Piece(self.work.index, self.asked[rows], vectors, self.names, own - own[0])
            if first < last:
                found.append(piece)
        return found


def encode_all(batches: Sequence[Batch]) -> None:
    """Fill in the vectors of contents and unknown names, by one call for each encoder."""
    by_encoder: dict[Encode, list[Batch]] = {}
    for batch in batches:
        by_encoder.setdefault(batch.work.encode, []).append(batch)
    for encode, own in by_encoder.items():
        texts = [[*(q.content for q in batch.asked), *batch.names] for batch in own]
        vectors = encode([text for part in texts for text in part])
        first = 0
        for batch, part in zip(own, texts, strict=True):
            rows = vectors[first : first + len(part)]
            batch.vectors = rows[: len(batch.asked)]
            batch.names = dict(zip(batch.names, rows[len(batch.asked) :], strict=True))
            first += len(part)
