"""The entity–context graph of eq. 3-4, brought up to date where turns came."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zeromem.config import GraphConfig
from zeromem.index.columns import Columns
from zeromem.index.segment import SPEAKER, TITLE
from zeromem.index.state import State, ranges
from zeromem.index.titles import add_titles, titles_in, turns_naming_new

Array = NDArray[Any]


class Rows(NamedTuple):
    """Some rows of B.

    Attributes
    ----------
    indptr, entity, weight : CSR of k turns × entities; int64, int32, float32
    """

    indptr: Array
    entity: Array
    weight: Array

    def sums(self) -> Array:
        """Sum of each row: (k,) float64."""
        row = np.repeat(np.arange(len(self.indptr) - 1), np.diff(self.indptr))
        return np.bincount(row, weights=self.weight, minlength=len(self.indptr) - 1)


def extend_graph(state: State, before: State, mentions: Array, config: GraphConfig) -> State:
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
        return replace(state, columns=_built(state, config))
    rows = mention_weights(state, np.arange(len(before), len(state)), mentions, config)
    if len(stale):
        return replace(state, columns=_spliced(state, before, stale, rows, config))
    return replace(state, columns=_appended(state, before, rows, config))


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
    columns = c.extended(sentence_entity_indptr=ends, sentence_entity=entity.astype(np.int32))
    bearers = mentions[mentions[:, 1] == TITLE]
    turn, title = _pairs(bearers[:, 0], bearers[:, 2], m)
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


def mention_weights(state: State, turns: Array, mentions: Array, config: GraphConfig) -> Rows:
    """w(d, e), eq. 4, of some turns, plus the edges that metadata gives.

    Parameters
    ----------
    state : State
    turns : (k,) int
        Ascending.
    mentions : (m, 3) int32
        Of these turns.
    config : GraphConfig
    """
    m = max(1, state.n_entities)
    row = np.searchsorted(turns, mentions[:, 0])
    sentence, entity = mentions[:, 1], mentions[:, 2]
    keys = row * m + entity
    found = sentence >= 0
    if not config.speaker_mentions:
        found &= ~state.columns["spoken"][entity]
    pair, counts = np.unique(keys[found], return_counts=True)
    weight: Array = counts.astype(np.float64)
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
    return Rows(indptr, (pair % m).astype(np.int32), weight.astype(np.float32))


def _appended(state: State, before: State, new: Rows, config: GraphConfig) -> Columns:
    """Append rows of B, and bring the degrees up to date that they change."""
    c = state.columns.extended(
        mention_indptr=state.columns["mention_indptr"][-1] + new.indptr[1:],
        mention_entity=new.entity,
        mention_weight=new.weight,
        turn_mass=new.sums(),
    )
    mass = _grown(c["entity_mass"], state.n_entities)
    np.add.at(mass, new.entity, _units(new.weight, config))
    c = c.replaced(entity_mass=mass)
    joined = c["previous"][len(before) :]
    joined = joined[(joined >= 0) & (joined < len(before))]
    turns = np.concatenate((joined, np.arange(len(before), len(state))))
    return _with_degrees(c, before, state, turns, new.entity, config)


def _spliced(state: State, before: State, stale: Array, new: Rows, config: GraphConfig) -> Columns:
    """Make some old rows of B anew and append the new ones."""
    c = state.columns
    mentions = c["mentions"]
    rows = stale.astype(np.int64)
    again = mention_weights(state, rows, mentions[np.isin(mentions[:, 0], rows)], config)
    indptr = c["mention_indptr"]
    held = ranges(indptr, rows)
    mass = _grown(c["entity_mass"], state.n_entities)
    old = c["mention_entity"][held], c["mention_weight"][held]
    np.subtract.at(mass, old[0], _units(old[1], config))
    for part in (again, new):
        np.add.at(mass, part.entity, _units(part.weight, config))
    lengths = np.diff(indptr)
    lengths[rows] = np.diff(again.indptr)
    turn_mass = np.concatenate((c["turn_mass"], new.sums()))
    turn_mass[rows] = again.sums()
    c = c.replaced(
        mention_indptr=np.concatenate(
            ([0], np.cumsum(np.concatenate((lengths, np.diff(new.indptr)))))
        ),
        mention_entity=_woven(c["mention_entity"], indptr, rows, again.entity, again, new.entity),
        mention_weight=_woven(c["mention_weight"], indptr, rows, again.weight, again, new.weight),
        turn_mass=turn_mass,
        entity_mass=mass,
    )
    joined = c["previous"][len(before) :]
    joined = joined[(joined >= 0) & (joined < len(before))]
    turns = np.concatenate((rows, joined, np.arange(len(before), len(state))))
    entities = np.concatenate((old[0], again.entity, new.entity))
    return _with_degrees(c, before, state, turns, entities, config)


def _woven(old: Array, indptr: Array, rows: Array, values: Array, again: Rows, new: Array) -> Array:
    """Put other values in place of some rows' and append new ones."""
    parts, at = [], 0
    starts, ends, cuts = indptr[rows].tolist(), indptr[rows + 1].tolist(), again.indptr.tolist()
    for i, (start, end) in enumerate(zip(starts, ends, strict=True)):
        parts += [old[at:start], values[cuts[i] : cuts[i + 1]]]
        at = end
    return np.concatenate((*parts, old[at:], new))


def _built(state: State, config: GraphConfig) -> Columns:
    """Make all of B anew."""
    rows = mention_weights(state, np.arange(len(state)), state.columns["mentions"], config)
    mass = np.zeros(state.n_entities, np.int64)
    np.add.at(mass, rows.entity, _units(rows.weight, config))
    c = state.columns.replaced(
        mention_indptr=rows.indptr,
        mention_entity=rows.entity,
        mention_weight=rows.weight,
        turn_mass=rows.sums(),
        entity_mass=mass,
    )
    return c.replaced(inverse_degree=_inverse(degrees(c, config)))


def _grown(column: Array, n: int) -> Array:
    """Append zeros."""
    return np.concatenate((column, np.zeros(n - len(column), column.dtype)))


def _with_degrees(
    c: Columns, before: State, state: State, turns: Array, entities: Array, config: GraphConfig
) -> Columns:
    """Bring the inverse degrees of some nodes up to date; the others keep theirs."""
    n, old = len(state), c["inverse_degree"]
    turns_before, entities_before = np.split(old, [len(before)])
    inverse = np.concatenate((_grown(turns_before, n), _grown(entities_before, state.n_entities)))
    inverse[turns] = _inverse(_turn_degree(c, turns, config))
    inverse[n + entities] = _inverse(c["entity_mass"][entities] * unit(config))
    return c.replaced(inverse_degree=inverse)


def degrees(c: Columns, config: GraphConfig) -> Array:
    """Degrees of all turns, then of all entities: (n + m,) float64."""
    turns = _turn_degree(c, np.arange(len(c["turn_mass"])), config)
    return np.concatenate((turns, c["entity_mass"] * unit(config)))


def _turn_degree(c: Columns, turns: Array, config: GraphConfig) -> Array:
    neighbours = (c["previous"][turns] >= 0).astype(np.int64) + (c["following"][turns] >= 0)
    degree: Array = c["turn_mass"][turns] + config.adjacency_weight * neighbours
    return degree


def _inverse(degree: Array) -> Array:
    found: Array = np.zeros(len(degree), np.float32)
    walked = degree > 0
    found[walked] = 1.0 / degree[walked]
    return found


def _units(weight: Array, config: GraphConfig) -> Array:
    units: Array = np.rint(weight.astype(np.float64) / unit(config)).astype(np.int64)
    return units


def unit(config: GraphConfig) -> float:
    """What entities' degrees are whole multiples of: a 2^-40th of the greatest weight, or less."""
    greatest = 1.0 + config.title_weight + config.speaker_weight
    return 2.0 ** (math.ceil(math.log2(greatest)) - 40)
