"""All that queries read: derived from the scope's turns, and from nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zeromem import _hierarchy
from zeromem.backend import Backend
from zeromem.config import Config
from zeromem.index.features import ASKS
from zeromem.index.graph import Graph, build_graph
from zeromem.index.lexical import Postings, count_terms, span_matrix
from zeromem.index.segment import Segment, first_seen_order

Array = NDArray[Any]
_HOUR = 3_600_000_000  # microseconds


@dataclass(frozen=True, slots=True, eq=False)
class Level:
    """The units of one granularity: turns, windows or episodes.

    Attributes
    ----------
    spans : (m, 2) int32
        Half-open ranges of positions.
    vectors : (m, dim) float32
        Unit rows; zero where nothing of the unit is encoded.
    postings : Postings
    """

    spans: Array
    vectors: Array
    postings: Postings


@dataclass(frozen=True, slots=True, eq=False)
class Arrays:
    """The assembled index of a scope.

    Rows are turns in log order. Positions are turns with each session's laid side by side; units
    of the hierarchy are ranges of positions.

    Attributes
    ----------
    turns : Segment
        All turns as one segment.
    order : (n,) int32
        Row at each position; ``position`` is its inverse.
    session_indptr : (n_sessions + 1,) int64
    turn, window, episode : Level
        Turns by row, windows and episodes by position; window i is centred on position i.
    episode_of : (n,) int32
        Episode of each position.
    sentence_vectors : (n_sentences, dim) float32
    entity_vectors : (n_entities, dim) float32
    graph : Graph
    asks : (n,) float32
        1 where a turn ends in a question, less its speaker's mean.
    informative : (n,) float32
        How much a turn says, saturating in its length, less its speaker's mean.
    entity_id, speaker_id, term_id : dict of str to int
    """

    turns: Segment
    order: Array
    position: Array
    session_indptr: Array
    turn: Level
    window: Level
    episode: Level
    episode_of: Array
    sentence_vectors: Array
    entity_vectors: Array
    graph: Graph
    asks: Array
    informative: Array
    entity_id: dict[str, int]
    speaker_id: dict[str, int]
    term_id: dict[str, int]

    def __len__(self) -> int:
        return len(self.turns)

    @property
    def names(self) -> Mapping[str, int]:
        """Every name that a question may hold: entities, titles and speakers are all entities."""
        return self.entity_id


def assemble(s: Segment, config: Config, backend: Backend) -> Arrays:
    """Derive all arrays of a scope from its turns."""
    order, session_indptr = _positions(s.session)
    position = np.empty_like(order)
    position[order] = np.arange(len(order), dtype=np.int32)
    raw = s.turn_vectors[order].astype(np.float32)
    weights = s.n_tokens[order].astype(np.float32)
    h = config.hierarchy
    windows = _hierarchy.windows(session_indptr, h.window)
    window_vectors = backend.pool(raw, weights, windows)
    gap = min(h.gap_hours * _HOUR, float(2**62))
    episodes = _hierarchy.episodes(
        session_indptr, window_vectors, s.time[order], h.depth, h.min_turns, h.max_turns,
        int(gap), h.window,
    )  # fmt: skip
    turns = np.arange(len(s) + 1, dtype=np.int32)
    spans = np.stack([turns[:-1], turns[1:]], axis=1)
    counts = count_terms(s.term_indptr, s.term, len(s.vocabulary))
    by_position = counts[order]
    inner = np.setdiff1d(np.arange(1, len(s)), session_indptr)
    arrays = Arrays(
        turns=s,
        order=order,
        position=position,
        session_indptr=session_indptr,
        turn=Level(spans, _unit(s.turn_vectors), Postings.of(counts)),
        window=_level(windows, window_vectors, by_position),
        episode=_level(episodes, backend.pool(raw, weights, episodes), by_position),
        episode_of=np.repeat(
            np.arange(len(episodes), dtype=np.int32), episodes[:, 1] - episodes[:, 0]
        ),
        sentence_vectors=_unit(s.sentence_vectors),
        entity_vectors=_unit(s.entity_vectors),
        graph=build_graph(s, np.stack([order[inner - 1], order[inner]], axis=1), config.graph),
        asks=_beyond_speaker((s.flags & ASKS) > 0, s.speaker, s.role),
        informative=_beyond_speaker(
            s.n_tokens / (s.n_tokens + config.hierarchy.half_informative), s.speaker, s.role
        ),
        entity_id=_ids(s.entities),
        speaker_id=_ids(s.speakers),
        term_id=_ids(s.vocabulary),
    )
    return arrays


def _level(spans: Array, vectors: Array, by_position: Any) -> Level:
    return Level(
        spans, vectors, Postings.of(span_matrix(spans, by_position.shape[0]) @ by_position)
    )


def _positions(session: Array) -> tuple[Array, Array]:
    """Lay sessions side by side, in order of first appearance; turns keep their order."""
    seen = first_seen_order(session)
    rank = np.empty(len(seen), np.int64)
    rank[seen] = np.arange(len(seen))
    order = np.argsort(rank[session], kind="stable").astype(np.int32)
    indptr = np.zeros(len(seen) + 1, np.int64)
    np.cumsum(np.bincount(rank[session], minlength=len(seen)), out=indptr[1:])
    return order, indptr


def _unit(vectors: Array) -> Array:
    wide = vectors.astype(np.float32)
    norm = np.sqrt(np.einsum("ij,ij->i", wide, wide))
    wide /= np.where(norm == 0, 1.0, norm)[:, None]
    return wide


def _beyond_speaker(values: Array, speaker: Array, role: Array) -> Array:
    """Take each speaker's mean away.

    An assistant writes ten times what a user does and seldom asks. How long or how inquiring a
    turn is says something about it only beside what else its speaker says.
    """
    who = speaker.astype(np.int64) * 16 + role + 16
    _, group = np.unique(who, return_inverse=True)
    mean = np.bincount(group, weights=values) / np.maximum(np.bincount(group), 1)
    centred: Array = (values - mean[group]).astype(np.float32)
    return centred


def _ids(names: tuple[str, ...]) -> dict[str, int]:
    return {name: i for i, name in enumerate(names)}
