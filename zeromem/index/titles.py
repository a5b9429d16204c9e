"""Mentions of titles: a context that names another context's title is linked to it (observed)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zeromem.index.segment import TITLE
from zeromem.index.state import State
from zeromem.text import terms

Array = NDArray[Any]

# One common word ("Her", "It") is too often no title; the entity recogniser finds those it is.
_SHORTEST, _LONGEST = 2, 8


def add_titles(state: State, before: State, mentions: Array) -> State:
    """Take up the titles that new turns bear.

    A title is looked for where its words are words of this memory by the turn that bears it, so
    that what it links does not hang on what came later.

    Parameters
    ----------
    state : State
        Holds the new turns, but for their titles.
    before : State
        What it was without them.
    mentions : (m, 3) int32
        Of the new turns.
    """
    bearers = mentions[mentions[:, 1] == TITLE]
    if not len(bearers):
        return state
    entity, first = np.unique(bearers[:, 2], return_index=True)
    order = np.argsort(first, kind="stable")
    entity, turn = entity[order], bearers[first[order], 0]
    fresh = ~before.lists["titled"].any(entity)
    wanted = _words(state, before, entity[fresh], turn[fresh])
    if not wanted:
        return state
    c, n = state.columns, len(state.columns["title_entity"])
    words = [ids for ids, _ in wanted]
    columns = c.extended(
        title_indptr=c["title_indptr"][-1] + np.cumsum([len(ids) for ids in words]),
        title_term=np.array([i for ids in words for i in ids], np.int32),
        title_entity=np.array([e for _, e in wanted], np.int32),
    )
    lists, first = state.lists["title_first"], np.array([ids[0] for ids in words], np.int32)
    title_first = lists.extended(
        max(len(lists), int(first.max()) + 1), first, np.arange(n, n + len(wanted), dtype=np.int32)
    )
    return replace(state, columns=columns, lists={**state.lists, "title_first": title_first})


def _words(state: State, before: State, entity: Array, turn: Array) -> list[tuple[list[int], int]]:
    """Term ids of those titles that are looked for, with their entities."""
    vocabulary, names = state.names["vocabulary"], state.names["entities"]
    c, start = state.columns, len(before)
    # Ids are in order of first appearance: the newest one tells which words were known by a turn.
    newest = np.maximum.accumulate(c["term"][c["term_indptr"][start] :])
    ends = c["term_indptr"][turn + 1] - c["term_indptr"][start]
    found = []
    texts = terms([names.name(e) for e in entity.tolist()])
    for e, end, text in zip(entity.tolist(), ends.tolist(), texts, strict=True):
        ids = [vocabulary.get(w, -1) for w in text]
        if not _SHORTEST <= len(ids) <= _LONGEST or min(ids) < 0:
            continue
        known = max(len(before.names["vocabulary"]), int(newest[end - 1]) + 1 if end else 0)
        if max(ids) < known:
            found.append((ids, e))
    return found


def titles_in(state: State, turns: Array) -> tuple[Array, Array]:
    """Find every title that some turns name: (turn, entity), a pair once for each place."""
    from zeromem.kernels import titles_cpu  # compiles: a memory opens without it

    c = state.columns
    found = titles_cpu.in_turns(
        turns.astype(np.int32), c["term_indptr"], c["term"], c["title_indptr"], c["title_term"],
        state.lists["title_first"].kernel_args,
    )  # fmt: skip
    return found[:, 0], c["title_entity"][found[:, 1]]


def turns_naming_new(state: State, before: State) -> Array:
    """Old turns that name one of the titles which new turns brought, ascending."""
    c, first = state.columns, len(before.columns["title_entity"])
    if first == len(c["title_entity"]):
        return np.zeros(0, np.int32)
    from zeromem.kernels import titles_cpu

    found = titles_cpu.in_old(
        c["title_indptr"], c["title_term"], first, c["term_indptr"], c["term"],
        before.lists["postings"].kernel_args, len(before),
    )  # fmt: skip
    return np.unique(found[:, 0])
