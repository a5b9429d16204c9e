"""All that queries read: flat arrays over the scope's turns, derived from them alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zeromem.index.chunks import Chunks
from zeromem.index.lists import Lists
from zeromem.index.names import Names
from zeromem.index.state import State

Array = NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Turns:
    """What the log's rows and their features say of n turns, in log order.

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
    sentence_indptr : (n + 1,) int64
    sentence_span : (n_sentences, 2) int32
        Character ranges in the trace's text.
    mentions : (n_mentions, 3) int32
        Turn, sentence (``TITLE`` or ``SPEAKER`` where it is the trace's), entity; ordered by turn.
    vocabulary, entities, speakers, sessions, sources : Names
        In order of first appearance.
    """

    lsn: Array
    span: Array
    n_tokens: Array
    flags: Array
    speaker: Array
    source: Array
    session: Array
    role: Array
    time: Array
    encoded: Array
    term_indptr: Array
    term: Array
    sentence_indptr: Array
    sentence_span: Array
    mentions: Array
    vocabulary: Names
    entities: Names
    speakers: Names
    sessions: Names
    sources: Names

    def __len__(self) -> int:
        return len(self.lsn)


@dataclass(frozen=True, eq=False)
class Graph:
    """Nodes are the n turns, then the m entities. Edges are undirected (eq. 3).

    A turn has edges to its neighbours in its session (``Arrays.previous``), of the configuration's
    adjacency weight, and to entities by B.

    Attributes
    ----------
    mention_indptr, mention_entity, mention_weight : CSR of B, n × m; int64, int32, float32
        w(d, e) of eq. 4 with the configuration's title and speaker edges; ascending within a turn.
    inverse_degree : (n + m,) float32
        1 / sum of each node's edges; 0 for a dangling node.
    sentence_entity_indptr, sentence_entity : CSR of sentences × entities; int64, int32
        Distinct, ascending.
    entity_sentences : Lists
        Its transpose.
    titled : Lists
        From entities to the turns whose title they are.
    """

    mention_indptr: Array
    mention_entity: Array
    mention_weight: Array
    inverse_degree: Array
    sentence_entity_indptr: Array
    sentence_entity: Array
    entity_sentences: Lists
    titled: Lists


@dataclass(frozen=True, slots=True, eq=False)
class Arrays:
    """An index of n turns, z sentences and m entities. All arrays are read-only.

    Attributes
    ----------
    turns : Turns
    turn_vectors, sentence_vectors, entity_vectors : Chunks
        float16. A turn's is the mean of its tokens' states, not normalised; the others are unit
        rows. Pending ones are zero.
    turn_inverse_norm, sentence_inverse_norm, entity_inverse_norm : (n,), (z,), (m,) float32
        1 / norm of each row; 0 for a zero row.
    previous, following : (n,) int32
        The turn before and after in the same session; -1 for none.
    window_inverse_norm : (n,) float32
        1 / norm of the token-weighted sum of the turns of the window centred on each turn.
    episode_of : (n,) int32
        The first turn of each turn's episode, which names the episode.
    episode_inverse_norm : (n,) float32
        At an episode's first turn 1 / norm of the token-weighted sum of its turns; else 0.
    postings : Lists
        From terms to the turns that have them, with how often.
    lengths : (n,) float32
        Terms of each turn.
    graph : Graph
    group : (n,) int32
        Who speaks: speaker and role together, in order of first appearance.
    group_asks, group_informative : (n_groups,) float32
        Mean of a group's turns: whether they ask, and how much they say (saturating in length).
    """

    turns: Turns
    turn_vectors: Chunks
    sentence_vectors: Chunks
    entity_vectors: Chunks
    turn_inverse_norm: Array
    sentence_inverse_norm: Array
    entity_inverse_norm: Array
    previous: Array
    following: Array
    window_inverse_norm: Array
    episode_of: Array
    episode_inverse_norm: Array
    postings: Lists
    lengths: Array
    graph: Graph
    group: Array
    group_asks: Array
    group_informative: Array

    @classmethod
    def of(cls, state: State) -> Arrays:
        """Show an index's parts to readers; nothing is copied but what is small."""
        c = state.columns
        names = {kind: names for kind, names in state.names.items() if kind != "groups"}
        turns: dict[str, Any] = {f.name: c[f.name] for f in fields(Turns) if f.name in c}
        graph: dict[str, Any] = {f.name: c[f.name] for f in fields(Graph) if f.name in c}
        own: dict[str, Any] = {f.name: c[f.name] for f in fields(cls) if f.name in c}
        counted = np.maximum(c["group_turns"], 1)
        return cls(
            turns=Turns(**turns | names),
            **(own | dict(state.vectors)),
            postings=state.lists["postings"],
            graph=Graph(
                **graph,
                entity_sentences=state.lists["entity_sentences"],
                titled=state.lists["titled"],
            ),
            group_asks=(c["group_asking"] / counted).astype(np.float32),
            group_informative=(c["group_informing"] / counted).astype(np.float32),
        )

    def __len__(self) -> int:
        return len(self.turns)

    @property
    def names(self) -> Mapping[str, int]:
        """Every name that a question may hold: entities, titles and speakers are all entities."""
        return self.turns.entities
