"""What an index holds, as parts that grow; ``Arrays`` is the readers' view of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zeromem.index.chunks import Chunks
from zeromem.index.columns import Columns
from zeromem.index.lists import Lists
from zeromem.index.names import Names
from zeromem.index.segment import Segment, renumbered

Array = NDArray[Any]

NAMES = ("vocabulary", "entities", "speakers", "sessions", "sources", "groups")
VECTORS = ("turn_vectors", "sentence_vectors", "entity_vectors")
# Whether the lists have counts.
LISTS = {"postings": True, "entity_sentences": False, "titled": False, "title_first": False}

# dtype and shape behind the first axis; an indptr starts with its 0.
_TURN: dict[str, tuple[Any, tuple[int, ...]]] = {
    "lsn": (np.int64, ()),
    "span": (np.int32, (2,)),
    "n_tokens": (np.int32, ()),
    "flags": (np.int32, ()),
    "speaker": (np.int32, ()),
    "source": (np.int32, ()),
    "session": (np.int32, ()),
    "role": (np.int32, ()),
    "time": (np.int64, (2,)),
    "encoded": (np.bool_, ()),
}
# What a log's rows and features give. Everything else follows from it and the configuration.
BASE: dict[str, tuple[Any, tuple[int, ...]]] = {
    **_TURN,
    "term_indptr": (np.int64, ()),
    "term": (np.int32, ()),
    "sentence_indptr": (np.int64, ()),
    "sentence_span": (np.int32, (2,)),
    "mentions": (np.int32, (3,)),
}
DERIVED: dict[str, tuple[Any, tuple[int, ...]]] = {
    "turn_inverse_norm": (np.float32, ()),
    "sentence_inverse_norm": (np.float32, ()),
    "entity_inverse_norm": (np.float32, ()),
    "lengths": (np.float32, ()),
    "previous": (np.int32, ()),
    "following": (np.int32, ()),
    "window_inverse_norm": (np.float32, ()),
    # Of the gap between a turn and the one that follows it in its session; 0 before it is there.
    "similarity": (np.float32, ()),
    "episode_of": (np.int32, ()),
    "episode_inverse_norm": (np.float32, ()),
    "session_last": (np.int32, ()),
    "session_length": (np.int32, ()),
    "mention_indptr": (np.int64, ()),
    "mention_entity": (np.int32, ()),
    "mention_weight": (np.float32, ()),
    "turn_mass": (np.float64, ()),
    # In units of graph.unit: whole numbers add up to the same in any order.
    "entity_mass": (np.int64, ()),
    "inverse_degree": (np.float32, ()),
    "sentence_entity_indptr": (np.int64, ()),
    "sentence_entity": (np.int32, ()),
    # Whether an entity is the name of a speaker.
    "spoken": (np.bool_, ()),
    "title_indptr": (np.int64, ()),
    "title_term": (np.int32, ()),
    "title_entity": (np.int32, ()),
    "group": (np.int32, ()),
    "group_turns": (np.int64, ()),
    "group_asking": (np.float64, ()),
    "group_informing": (np.float64, ()),
}


# Of a name: a str of some letters, its place in a list, and its share of a dict.
_NAME_BYTES = 150


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """An index's parts.

    Attributes
    ----------
    columns : Columns
        Those of ``BASE`` and ``DERIVED``.
    names : mapping of str to Names
        Those of ``NAMES``.
    vectors : mapping of str to Chunks
        Those of ``VECTORS``.
    lists : mapping of str to Lists
        Those of ``LISTS``.
    """

    columns: Columns
    names: Mapping[str, Names]
    vectors: Mapping[str, Chunks]
    lists: Mapping[str, Lists]

    @property
    def n_bytes(self) -> int:
        """Bytes of arrays and, about, of names; what is mapped from a snapshot counts too."""
        arrays = [*self.columns.values()]
        arrays += [part for chunks in self.vectors.values() for part in chunks.parts]
        arrays += [array for lists in self.lists.values() for array in lists.kernel_args]
        names = sum(map(len, self.names.values()))
        return sum(array.nbytes for array in arrays) + _NAME_BYTES * names

    @classmethod
    def empty(cls, dim: int) -> State:
        """Hold no turn."""
        columns = {}
        for name, (dtype, shape) in (BASE | DERIVED).items():
            columns[name] = np.zeros((int(name.endswith("indptr")), *shape), dtype)
        return cls(
            Columns.of(columns),
            {name: Names() for name in NAMES},
            {name: Chunks.of(np.zeros((0, dim), np.float16)) for name in VECTORS},
            {name: Lists.empty(counted=counted) for name, counted in LISTS.items()},
        )

    def __len__(self) -> int:
        """Turns."""
        return len(self.columns["lsn"])

    @property
    def n_entities(self) -> int:
        return len(self.names["entities"])

    def select(self, rows: Array) -> Segment:
        """Copy some turns out, with the names that they need and no others.

        Parameters
        ----------
        rows : (k,) int
            Ascending.
        """
        c = self.columns
        term = c["term"][ranges(c["term_indptr"], rows)]
        sentences = ranges(c["sentence_indptr"], rows)
        first = c["sentence_indptr"][rows]
        n_sentences = c["sentence_indptr"][rows + 1] - first
        # A sentence keeps its place within its turn.
        moved = np.concatenate(([0], np.cumsum(n_sentences)[:-1])) - first if len(rows) else first
        mentions = c["mentions"][ranges(_mention_indptr(c["mentions"], len(self)), rows)]
        turn = np.searchsorted(rows, mentions[:, 0])
        place = mentions[:, 1]
        place = np.where(place < 0, place, place + moved[turn])
        entity, entities, order = renumbered(mentions[:, 2], self.names["entities"])
        parts: dict[str, Any] = {name: c[name][rows] for name in _TURN}
        for column, kind in (("speaker", "speakers"), ("session", "sessions"),
                             ("source", "sources")):  # fmt: skip
            parts[column], parts[kind], _ = renumbered(parts[column], self.names[kind])
        term, vocabulary, _ = renumbered(term, self.names["vocabulary"])
        lengths = c["term_indptr"][rows + 1] - c["term_indptr"][rows]
        return Segment(
            **parts,
            term_indptr=np.concatenate(([0], np.cumsum(lengths))),
            term=term,
            sentence_turn=np.repeat(np.arange(len(rows), dtype=np.int32), n_sentences),
            sentence_span=c["sentence_span"][sentences],
            mentions=np.stack([turn, place, entity], axis=1).astype(np.int32),
            turn_vectors=self._vectors("turn_vectors", rows),
            sentence_vectors=self._vectors("sentence_vectors", sentences),
            entity_vectors=self._vectors("entity_vectors", order),
            vocabulary=vocabulary,
            entities=entities,
        )

    def _vectors(self, kind: str, rows: Array) -> NDArray[np.float16]:
        # As they were: what came from half precision goes back to it.
        return self.vectors[kind].take(rows).astype(np.float16)


def ranges(indptr: Array, rows: Array) -> Array:
    """Entries of some rows of a CSR, in order."""
    starts = indptr[rows]
    lengths = indptr[rows + 1] - starts
    ends = np.cumsum(lengths)
    if not len(ends):
        return np.zeros(0, np.int64)
    entries: Array = np.repeat(starts - ends + lengths, lengths) + np.arange(ends[-1])
    return entries


def _mention_indptr(mentions: Array, n: int) -> Array:
    indptr: Array = np.searchsorted(mentions[:, 0], np.arange(n + 1))
    return indptr
