"""A run of the log: the turns of consecutive traces as flat arrays, no text among them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from zeromem.index.features import TraceFeatures
from zeromem.index.names import Names
from zeromem.text import canonical
from zeromem.times import EventTime, to_micros
from zeromem.types import ROLES, Role

NO_TIME = np.iinfo(np.int64).min
_OWN_SESSION = "#"
# In place of a sentence, where a trace's metadata names the entity.
TITLE, SPEAKER = -2, -1

Array = NDArray[Any]


class Row(Protocol):
    """What the index needs of a trace beside its features (the store's ``LogRow``)."""

    @property
    def lsn(self) -> int: ...
    @property
    def role(self) -> Role: ...
    @property
    def speaker(self) -> str | None: ...
    @property
    def session(self) -> str | None: ...
    @property
    def time(self) -> EventTime | None: ...
    @property
    def source(self) -> str | None: ...


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """Turns of consecutive traces. Names are local: ids point into this segment's own tuples.

    Attributes
    ----------
    lsn : (n,) int64
        The trace of each turn; the turns of a trace are neighbours, in order.
    span : (n, 2) int32
        Character range in the trace's text.
    n_tokens, flags : (n,) int32
    speaker, source : (n,) int32
        Into ``speakers`` / ``sources``; -1 for none. ``session`` likewise, never -1.
    role : (n,) int32
        Into ``types.ROLES``.
    time : (n, 2) int64
        Event period in microseconds since 1970 UTC, half-open; ``NO_TIME`` where not known.
    encoded : (n,) bool
    term_indptr : (n + 1,) int64
    term : (n_terms,) int32
        Each turn's terms in order, with repeats, into ``vocabulary``.
    sentence_turn : (n_sentences,) int32
    sentence_span : (n_sentences, 2) int32
        Character ranges in the trace's text.
    mentions : (n_mentions, 3) int32
        Turn, sentence (``TITLE`` or ``SPEAKER`` where it is the trace's), entity; ordered by turn.
    turn_vectors : (n, dim) float16
        Not normalised. ``sentence_vectors`` and ``entity_vectors`` are unit rows.
    """

    lsn: Array
    span: Array
    n_tokens: Array
    flags: Array
    speaker: Array
    session: Array
    source: Array
    role: Array
    time: Array
    encoded: Array
    term_indptr: Array
    term: Array
    sentence_turn: Array
    sentence_span: Array
    mentions: Array
    turn_vectors: Array
    sentence_vectors: Array
    entity_vectors: Array
    vocabulary: tuple[str, ...]
    entities: tuple[str, ...]
    speakers: tuple[str, ...]
    sessions: tuple[str, ...]
    sources: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.lsn)

    @classmethod
    def build(cls, rows: Sequence[Row], features: Sequence[TraceFeatures], dim: int) -> Segment:
        """Lay out traces as a segment.

        Parameters
        ----------
        rows : sequence of Row
            Ascending in ``lsn``.
        features : sequence of TraceFeatures
            One for each row. Those not encoded get zero vectors.
        dim : int
            Columns of the vectors.
        """
        speakers, sessions, sources = _Names(), _Names(), _Names()
        words, entities = _Names(), _Names()
        entity_rows: list[Array] = []
        per_trace, terms, mentions, sentence_turns = [], [], [], []
        n_turns = n_sentences = 0
        for row, f in zip(rows, features, strict=True):
            known = len(entities)
            ids = np.fromiter((entities[e] for e in f.entities), np.int32, len(f.entities))
            fresh = np.flatnonzero(ids >= known)
            entity_rows.append(_wide(f.entity_vectors[fresh], dim))
            terms += [[words[w] for w in line.split(" ") if w] for line in f.turn_terms]
            sentence_turns.append(f.sentence_turn + n_turns)
            turn, sentence, entity = f.mentions[:, 0], f.mentions[:, 1], f.mentions[:, 2]
            is_title = np.array([label == "TITLE" for label in f.entity_labels], np.bool_)
            given = np.where(is_title[entity], TITLE, SPEAKER)
            placed = np.where(sentence < 0, given, sentence + n_sentences)
            mentions.append(np.stack([turn + n_turns, placed, ids[entity]], axis=1))
            per_trace.append(
                (
                    row.lsn,
                    speakers.optional(canonical(row.speaker or "")),
                    sessions[session_key(row)],
                    sources.optional(row.source or ""),
                    ROLES.index(row.role),
                    *_micros(row.time),
                )
            )
            n_turns += len(f.turns)
            n_sentences += len(f.sentences)
        counts = [len(f.turns) for f in features]
        table = np.repeat(np.array(per_trace, np.int64).reshape(-1, 7), counts, axis=0)
        mention = _stack(mentions, (0, 3), np.int32)
        return cls(
            lsn=table[:, 0].copy(),
            span=_stack([f.turns for f in features], (0, 2), np.int32),
            n_tokens=_stack([f.turn_tokens for f in features], (0,), np.int32),
            flags=_stack([f.turn_flags for f in features], (0,), np.int32),
            speaker=table[:, 1].astype(np.int32),
            session=table[:, 2].astype(np.int32),
            source=table[:, 3].astype(np.int32),
            role=table[:, 4].astype(np.int32),
            time=table[:, 5:].copy(),
            encoded=np.repeat(np.array([f.encoded for f in features], np.bool_), counts),
            term_indptr=_indptr(map(len, terms), len(terms)),
            term=np.array([t for line in terms for t in line], np.int32),
            sentence_turn=_stack(sentence_turns, (0,), np.int32),
            sentence_span=_stack([f.sentences for f in features], (0, 2), np.int32),
            mentions=mention[np.argsort(mention[:, 0], kind="stable")],
            turn_vectors=_stack([_wide(f.turn_vectors, dim) for f in features], (0, dim), "f2"),
            sentence_vectors=_stack(
                [_wide(f.sentence_vectors, dim) for f in features], (0, dim), "f2"
            ),
            entity_vectors=_stack(entity_rows, (0, dim), "f2"),
            vocabulary=words.tuple(),
            entities=entities.tuple(),
            speakers=speakers.tuple(),
            sessions=sessions.tuple(),
            sources=sources.tuple(),
        )


class _Names(dict[str, int]):
    """Ids in order of first appearance."""

    def __missing__(self, name: str) -> int:
        self[name] = number = len(self)
        return number

    def optional(self, name: str) -> int:
        return self[name] if name else -1

    def tuple(self) -> tuple[str, ...]:
        return tuple(self)


def session_key(row: Row) -> str:
    """Name the session of a trace: its own name; a document without one is a session by itself."""
    if row.session is not None:
        return named_session(row.session)
    return f"{_OWN_SESSION}{row.lsn}" if row.role == "document" else unnamed_session()


def named_session(name: str) -> str:
    """Return the key of a session that has a name; no unnamed session's key equals it."""
    return f"={name}"


def unnamed_session() -> str:
    """Return the key of the session of all that names none, documents aside."""
    return ""


def _micros(time: EventTime | None) -> tuple[int, int]:
    if time is None:
        return NO_TIME, NO_TIME
    return to_micros(time.start), to_micros(time.end)


def _wide(vectors: Array, dim: int) -> Array:
    """Vectors that are still pending are zero."""
    return vectors if vectors.shape[1] == dim else np.zeros((len(vectors), dim), np.float16)


def _stack(parts: Sequence[Array], empty: tuple[int, ...], dtype: Any) -> Array:
    if not parts:
        return np.zeros(empty, dtype)
    return np.concatenate(parts).astype(dtype, copy=False)


def _indptr(counts: Iterable[int], n: int) -> Array:
    indptr = np.zeros(n + 1, np.int64)
    np.cumsum(np.fromiter(counts, np.int64, n), out=indptr[1:])
    return indptr


def first_seen_order(ids: Array) -> Array:
    """Distinct ids in the order in which they first appear."""
    distinct, first = np.unique(ids, return_index=True)
    ordered: Array = distinct[np.argsort(first)]
    return ordered


def renumbered(ids: Array, names: Names) -> tuple[Array, tuple[str, ...], Array]:
    """Renumber ids by first appearance, leaving out names that no id needs; -1 stays.

    Returns
    -------
    ids : int32
    names : tuple of str
    order : (len(names),) int
        The id that each name had.
    """
    order = first_seen_order(ids[ids >= 0])
    new = np.full(len(names) + 1, -1, np.int32)  # the last entry answers id -1
    new[order] = np.arange(len(order), dtype=np.int32)
    return new[ids], tuple(names.name(i) for i in order.tolist()), order
