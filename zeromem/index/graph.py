"""The entity–context graph of eq. 3-4, brought up to date where turns came."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zeromem.config import GraphConfig
from zeromem.index.columns import Columns
from zeromem.index.segment import SPEAKER, TITLE
from zeromem.index.state import State, ranges
from zeromem.index.titles import add_titles, titles_in, turns_naming_new

Array = NDArray[Any]


def extend_graph(
    state: State, before: State, mentions: Array, config: GraphConfig
) -> State:
    """Bring the graph up to date with new turns.

    Rows of B are appended. Old rows change only where new turns tell something about old ones:
    a title that they name, a speaker whom they name, or every entity's idf.

    Parameters
    ----------
    state : State
        Holds the new turns and what follows from each of them alone; the graph is ``before``'s.
    before : State
        What it was without them.
    mentions : (m, 3) int32
        Of the new turns.
    config : GraphConfig
    """
    state, newly_spoken = _add_speakers(state, before)
    state = _add_lists(state, len(before), mentions)
    stale = np.zeros(0, np.int32)
    if config.title_links:
        state = add_titles(state, before, mentions)
        stale = turns_naming_new(state, before)
    if not config.speaker_mentions:
        stale = np.union1d(stale, _turns_mentioning(before, newly_spoken))
    if config.idf_weighting:
        n = np.arange(len(state))
        return replace(state, columns=_built(state, n, config))
    fresh = np.arange(len(before), len(state))
    indptr, entity, weight = mention_weights(state, fresh, mentions, config)
    if len(stale):
        return replace(state, columns=_spliced(state, stale, (indptr, entity, weight), config))
    return replace(state, columns=_appended(state, before, indptr, entity, weight, config))


def _add_speakers(state: State, before: State) -> tuple[State, Array]:
    """Mark entities that are speakers' names; return which old ones have become that."""
    entities, speakers = state.names["entities"], state.names["speakers"]
    n_old = before.n_entities
    spoken = [entities.name(e) in speakers for e in range(n_old, len(entities))]
    fresh = [speakers.name(s) for s in range(len(before.names["speakers"]), len(speakers))]
    newly = [e for name in fresh if 0 <= (e := entities.get(name, -1)) < n_old]
    at = np.array(newly, np.int64)
    columns = state.columns.changed("spoken", at, True, np.array(spoken, np.bool_))
    return replace(state, columns=columns), at


def _add_lists(state: State, start: int, mentions: Array) -> State:
    """Append to the lists between sentences and entities, and from titles to their turns."""
    m = state.n_entities
    c = state.columns
    first = int(c["sentence_indptr"][start])
    place = mentions[mentions[:, 1] >= 0]
    sentence, entity = _pairs(place[:, 1] - first, place[:, 2], m)
    n_new = int(c["sentence_indptr"][-1]) - first
    ends = np.cumsum(np.bincount(sentence, minlength=n_new)) + c["sentence_entity_indptr"][-1]
    columns = c.extended(
        sentence_entity_indptr=ends, sentence_entity=entity.astype(np.int32)
    )
    turn, title = _pairs(*mentions[mentions[:, 1] == TITLE][:, (0, 2)].T, m)
    lists = {
        **state.lists,
        "entity_sentences": state.lists["entity_sentences"].extended(m, entity, sentence + first),
        "titled": state.lists["titled"].extended(m, title, turn),
    }
    return replace(state, columns=columns, lists=lists)


def _pairs(rows: Array, columns: Array, width: int) -> tuple[Array, Array]:
    """Distinct pairs, ascending."""
    keys = np.unique(rows.astype(np.int64) * width + columns)
    return keys // max(1, width), keys % max(1, width)


def _turns_mentioning(state: State, entities: Array) -> Array:
    """Turns whose sentences mention one of some entities, ascending."""
    sentences = [state.lists["entity_sentences"].of(e) for e in entities.tolist()]
    if not sentences:
        return np.zeros(0, np.int32)
    indptr = state.columns["sentence_indptr"]
    turns: Array = np.searchsorted(indptr, np.concatenate(sentences), side="right") - 1
    return np.unique(turns).astype(np.int32)


def mention_weights(
    state: State, turns: Array, mentions: Array, config: GraphConfig
) -> tuple[Array, Array, Array]:
    """w(d, e), eq. 4, of some turns, plus the edges that metadata gives.

    Parameters
    ----------
    state : State
    turns : (k,) int
        Ascending.
    mentions : (m, 3) int32
        Of these turns.
    config : GraphConfig

    Returns
    -------
    indptr, entity, weight : CSR of k turns × entities, float32
    """
    m = max(1, state.n_entities)
    row = np.searchsorted(turns, mentions[:, 0])
    sentence, entity = mentions[:, 1], mentions[:, 2]
    keys = row * m + entity
    found = sentence >= 0
    if not config.speaker_mentions:
        found &= ~state.columns["spoken"][entity]
    pair, count = np.unique(keys[found], return_counts=True)
    weight = count.astype(np.float64)
    if config.title_links and len(state.columns["title_entity"]):
        turn, title = titles_in(state, turns)
        linked = np.setdiff1d(np.searchsorted(turns, turn) * m + title, pair)
        order = np.argsort(np.concatenate((pair, linked)), kind="stable")
        pair = np.concatenate((pair, linked))[order]
        weight = np.concatenate((weight, np.ones(len(linked))))[order]
    if config.idf_weighting:
        n, df = len(state), np.bincount(pair % m, minlength=m)
        weight = weight * np.log1p((n - df + 0.5) / (df + 0.5))[pair % m]
    total = np.bincount(pair // m, weights=weight, minlength=len(turns))
    weight = weight * (1.0 / np.where(total == 0, 1.0, total))[pair // m]
    parts, weights = [pair], [weight]
    for kind, extra in ((TITLE, config.title_weight), (SPEAKER, config.speaker_weight)):
        if extra > 0:
            parts.append(np.unique(keys[sentence == kind]))
            weights.append(np.full(len(parts[-1]), extra))
    if sum(map(len, parts)) > len(pair):
        pair, inverse = np.unique(np.concatenate(parts), return_inverse=True)
        weight = np.bincount(inverse, weights=np.concatenate(weights), minlength=len(pair))
    indptr = np.zeros(len(turns) + 1, np.int64)
    np.cumsum(np.bincount(pair // m, minlength=len(turns)), out=indptr[1:])
    return indptr, (pair % m).astype(np.int32), weight.astype(np.float32)


def _appended(
    state: State, before: State, indptr: Array, entity: Array, weight: Array, config: GraphConfig
) -> Columns:
    """Append rows of B, and bring the degrees up to date that they change."""
    c, n_old = state.columns, len(before)
    wide = weight.astype(np.float64)
    rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    degree = np.zeros(state.n_entities)
    degree[: before.n_entities] = c["entity_degree"]
    # One after the other, in order of rows: as if all had been added up at once.
    np.add.at(degree, entity, wide)
    c = c.extended(
        mention_indptr=c["mention_indptr"][-1] + indptr[1:],
        mention_entity=entity,
        mention_weight=weight,
        turn_mass=np.bincount(rows, weights=wide, minlength=len(indptr) - 1),
    ).replaced(entity_degree=degree)
    fresh = np.arange(n_old, len(state))
    joined = c["previous"][n_old:]
    changed = np.concatenate((joined[(joined >= 0) & (joined < n_old)], fresh))
    old = c["inverse_degree"]
    inverse = np.empty(len(state) + len(degree), np.float32)
    inverse[:n_old] = old[:n_old]
    inverse[changed] = _inverse(_turn_degree(c, changed, config))
    entities = inverse[len(state) :]
    entities[: before.n_entities] = old[n_old:]
    entities[before.n_entities :] = 0
    entities[entity] = _inverse(degree[entity])
    return c.replaced(inverse_degree=inverse)


def _spliced(
    state: State, stale: Array, fresh: tuple[Array, Array, Array], config: GraphConfig
) -> Columns:
    """Make some old rows of B anew and append the new ones."""
    c = state.columns
    rows = stale.astype(np.int64)
    mentions = c["mentions"]
    own = mentions[np.isin(mentions[:, 0], rows)]
    indptr, entity, weight = mention_weights(state, rows, own, config)
    parts = []
    for old, again, new in (
        (c["mention_entity"], entity, fresh[1]), (c["mention_weight"], weight, fresh[2])
    ):  # fmt: skip
        kept = np.ones(len(old), np.bool_)
        kept[ranges(c["mention_indptr"], rows)] = False
        gone = np.concatenate(([0], np.cumsum(~kept)))
        at = np.repeat(c["mention_indptr"][rows], np.diff(indptr))
        at = at - gone[at]
        parts.append(np.concatenate((np.insert(old[kept], at, again), new)))
    lengths = np.diff(c["mention_indptr"])
    lengths[rows] = np.diff(indptr)
    ends = np.concatenate(([0], np.cumsum(np.concatenate((lengths, np.diff(fresh[0]))))))
    return _with_degrees(state, ends, parts[0], parts[1], config)


def _built(state: State, turns: Array, config: GraphConfig) -> Columns:
    """Make all of B anew."""
    return _with_degrees(
        state, *mention_weights(state, turns, state.columns["mentions"], config), config
    )


def _with_degrees(
    state: State, indptr: Array, entity: Array, weight: Array, config: GraphConfig
) -> Columns:
    n, m = len(state), state.n_entities
    wide = weight.astype(np.float64)
    rows = np.repeat(np.arange(n), np.diff(indptr))
    c = state.columns.replaced(
        mention_indptr=indptr,
        mention_entity=entity,
        mention_weight=weight,
        turn_mass=np.bincount(rows, weights=wide, minlength=n),
        entity_degree=np.bincount(entity, weights=wide, minlength=m),
    )
    degree = np.concatenate((_turn_degree(c, np.arange(n), config), c["entity_degree"]))
    return c.replaced(inverse_degree=_inverse(degree))


def _turn_degree(c: Columns, turns: Array, config: GraphConfig) -> Array:
    neighbours = (c["previous"][turns] >= 0).astype(np.int64) + (c["following"][turns] >= 0)
    degree: Array = c["turn_mass"][turns] + config.adjacency_weight * neighbours
    return degree


def _inverse(degree: Array) -> Array:
    found: Array = np.zeros(len(degree), np.float32)
    walked = degree > 0
    found[walked] = 1.0 / degree[walked]
    return found
