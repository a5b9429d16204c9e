"""Mentions of titles: a context that names another context's title is linked to it (observed)."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zeromem.index.segment import TITLE, Segment
from zeromem.text import terms

Array = NDArray[Any]

# One common word ("Her", "It") is too often no title; the entity recogniser finds those it is.
_SHORTEST, _LONGEST = 2, 8
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


def title_mentions(s: Segment) -> tuple[Array, Array]:
    """Find where turns name a title of this memory, word for word in lexical terms.

    Parameters
    ----------
    s : Segment

    Returns
    -------
    turn, entity : (m,) int32
        Sorted by turn, each pair once.
    """
    none = np.zeros(0, np.int32)
    names = np.unique(s.mentions[s.mentions[:, 1] == TITLE, 2]).tolist()
    word = {w: i for i, w in enumerate(s.vocabulary)}
    by_length: dict[int, list[tuple[tuple[int, ...], int]]] = defaultdict(list)
    for entity, title in zip(names, terms([s.entities[e] for e in names]), strict=True):
        ids = tuple(word.get(w, -1) for w in title)
        if _SHORTEST <= len(ids) <= _LONGEST and -1 not in ids:
            by_length[len(ids)].append((ids, entity))
    turn_of = np.repeat(np.arange(len(s), dtype=np.int32), np.diff(s.term_indptr))
    found: list[tuple[Array, Array]] = [(none, none)]
    for length, titles in sorted(by_length.items()):
        found.append(_matches(s.term, turn_of, length, titles))
    turn = np.concatenate([t for t, _ in found])
    entity_ids = np.concatenate([e for _, e in found])
    pairs = np.unique(np.stack([turn, entity_ids], axis=1), axis=0)
    return pairs[:, 0], pairs[:, 1]


def _matches(
    term: Array, turn_of: Array, length: int, titles: list[tuple[tuple[int, ...], int]]
) -> tuple[Array, Array]:
    """Find n-grams of one length by hash, then word by word: a hash alone may lie."""
    n = len(term) - length + 1
    if n <= 0:
        return np.zeros(0, np.int32), np.zeros(0, np.int32)
    wanted = np.array([ids for ids, _ in titles], np.int32)
    entity = np.array([e for _, e in titles], np.int32)
    title_hash = np.zeros(len(wanted), np.uint64)
    text_hash = np.zeros(n, np.uint64)
    for i in range(length):
        title_hash = (title_hash + wanted[:, i].astype(np.uint64) + np.uint64(1)) * _MULTIPLIER
        text_hash = (text_hash + term[i : i + n].astype(np.uint64) + np.uint64(1)) * _MULTIPLIER
    order = np.argsort(title_hash, kind="stable")
    low = np.searchsorted(title_hash[order], text_hash, side="left")
    high = np.searchsorted(title_hash[order], text_hash, side="right")
    at = np.repeat(np.arange(n), high - low)
    nth = np.arange(len(at)) - np.repeat(np.cumsum(high - low) - (high - low), high - low)
    title = order[np.repeat(low, high - low) + nth]
    same = turn_of[at] == turn_of[at + length - 1]
    for i in range(length):
        same &= term[at + i] == wanted[title, i]
    return turn_of[at[same]], entity[title[same]]
