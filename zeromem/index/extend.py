"""An index with further turns: what they hold is appended, what they change is brought up to date.

Everything that is derived is a function of the turns alone and never of how they came: rows are
added up in order, one after the other, and what an addition touches is computed as it would be
from scratch.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zeromem import _hierarchy
from zeromem.config import Config
from zeromem.index.features import ASKS
from zeromem.index.graph import extend_graph
from zeromem.index.hierarchy import extend_hierarchy, inverse
from zeromem.index.segment import Segment
from zeromem.index.state import BASE, NAMES, VECTORS, State

Array = NDArray[Any]


def extend(state: State, s: Segment, config: Config) -> State:
    """Append the turns of a segment.

    Parameters
    ----------
    state : State
    s : Segment
        Newer than all there are.
    config : Config
    """
    longer, mentions = append(state, s)
    return derive(longer, state, mentions, config)


def append(state: State, s: Segment) -> tuple[State, Array]:
    """Append what the turns give: columns, names and vectors.

    Returns
    -------
    State
        Its derived parts are those of ``state``.
    mentions : (m, 3) int32
        The new ones.
    """
    c, n = state.columns, len(state)
    names, ids = dict(state.names), {}
    for kind in NAMES[:-1]:
        names[kind], found = names[kind].extended(getattr(s, kind))
        ids[kind] = np.append(found, np.int32(-1))  # the last entry answers id -1
    turn, place, entity = s.mentions.T
    placed = np.where(place < 0, place, place + int(c["sentence_indptr"][-1]))
    mentions = np.stack([turn + n, placed, ids["entities"][entity]], axis=1).astype(np.int32)
    new: dict[str, Any] = {name: getattr(s, name) for name in BASE if hasattr(s, name)}
    new |= {
        "speaker": ids["speakers"][s.speaker],
        "session": ids["sessions"][s.session],
        "source": ids["sources"][s.source],
        "term": ids["vocabulary"][s.term],
        "term_indptr": s.term_indptr[1:] + c["term_indptr"][-1],
        "sentence_indptr": np.cumsum(np.bincount(s.sentence_turn, minlength=len(s)))
        + c["sentence_indptr"][-1],
        "mentions": mentions,
    }
    vectors = dict(state.vectors)
    # An entity keeps the vector that it came with.
    fresh = ids["entities"][:-1] >= state.n_entities
    for kind, rows in zip(
        VECTORS, (s.turn_vectors, s.sentence_vectors, s.entity_vectors[fresh]), strict=True
    ):
        vectors[kind] = vectors[kind].extended(rows)
    return State(c.extended(**new), names, vectors, state.lists), mentions


def derived(state: State, config: Config) -> State:
    """Derive anew, under a configuration, all that follows from a state's turns.

    Parameters
    ----------
    state : State
        Columns, names and vectors are kept.
    config : Config
    """
    nothing = State.empty(state.vectors["turn_vectors"].dim)
    columns = nothing.columns.replaced(**{name: state.columns[name] for name in BASE})
    names = {**state.names, "groups": nothing.names["groups"]}
    base = State(columns, names, state.vectors, nothing.lists)
    return derive(base, nothing, state.columns["mentions"], config) if len(state) else base


def derive(state: State, before: State, mentions: Array, config: Config) -> State:
    """Bring what is derived up to date with turns that were appended to ``before``."""
    start = len(before)
    state = _norms(state, before)
    state = _lexical(state, start)
    state = _groups(state, start, config.hierarchy.half_informative)
    columns = extend_hierarchy(
        state.columns, state.vectors["turn_vectors"], start, len(state.names["sessions"]),
        config.hierarchy,
    )  # fmt: skip
    return extend_graph(replace(state, columns=columns), before, mentions, config.graph)


def _norms(state: State, before: State) -> State:
    new = {}
    for kind in VECTORS:
        vectors = state.vectors[kind]
        rows = vectors.take(np.arange(len(before.vectors[kind]), len(vectors)))
        at = np.arange(len(rows) + 1, dtype=np.int32)
        norms = _hierarchy.norms(
            np.stack([at[:-1], at[1:]], axis=1), rows,
            np.ones(len(rows), np.float32),
        )  # fmt: skip
        new[kind.replace("vectors", "inverse_norm")] = inverse(norms)
    return replace(state, columns=state.columns.extended(**new))


def _lexical(state: State, start: int) -> State:
    """Append each turn's distinct terms to their postings."""
    c, n_terms = state.columns, max(1, len(state.names["vocabulary"]))
    indptr = c["term_indptr"]
    lengths = np.diff(indptr[start:])
    turn = np.repeat(np.arange(len(lengths)), lengths)
    pairs, counts = np.unique(turn * n_terms + c["term"][indptr[start] :], return_counts=True)
    postings = state.lists["postings"].extended(
        len(state.names["vocabulary"]), pairs % n_terms, pairs // n_terms + start,
        counts.astype(np.float32),
    )  # fmt: skip
    return replace(
        state,
        columns=c.extended(lengths=lengths.astype(np.float32)),
        lists={**state.lists, "postings": postings},
    )


def _groups(state: State, start: int, half_informative: float) -> State:
    """Add new turns to the sums of who speaks: speaker and role together."""
    c = state.columns
    speaker, role = c["speaker"][start:], c["role"][start:]
    names, group = state.names["groups"].extended(
        f"{s} {r}" for s, r in zip(speaker.tolist(), role.tolist(), strict=True)
    )
    columns = c.extended(group=group)
    n_tokens = c["n_tokens"][start:]
    for name, values in (
        ("group_turns", np.ones(len(group), np.int64)),
        ("group_asking", ((c["flags"][start:] & ASKS) > 0).astype(np.float64)),
        ("group_informing", n_tokens / (n_tokens + half_informative)),
    ):
        total = np.zeros(len(names), values.dtype)
        total[: len(c[name])] = c[name]
        np.add.at(total, group, values)  # one after the other, in order of rows
        columns = columns.replaced(**{name: total})
    return replace(state, columns=columns, names={**state.names, "groups": names})
