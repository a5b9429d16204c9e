"""The words of a synthetic memory as numbers: Zipf's law, Heaps' law, sessions with a topic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from invented import FUNCTION
from numpy.typing import NDArray

Array = NDArray[Any]

N_TOPICS = 40
TOKENS_PER_TURN = 34
_TURN_WORDS = 29.2  # of these, openers and full stops apart
_SHORTEST, _LONGEST = 5.0, 120.0
_BREAK = 0.082  # a sentence ends behind a word within a turn
_FUNCTION_SHARE, _ENTITY_SHARE = 0.29, 0.485  # of the units: a word, or an entity with its word
# Distinct numbers after m draws: share * m ** exponent (Heaps); draws fall as 1 / (rank + shift).
_CONTENT = (7.0, 0.65, 2.7)
_ENTITY = (1.05, 0.85, 8.0)
_TOPICAL, _AGAIN, _WITHIN = 0.4, 0.35, 25


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """All words of a memory in a row, and where its sentences, turns and sessions begin.

    Attributes
    ----------
    kind : (n_words,) int8
        0 function word, 1 content word, 2 entity.
    word : (n_words,) int32
        Its number among those of its kind.
    opens, closes : (n_words,) bool
        First and last word of a sentence.
    turn_indptr : (n + 1,) int64
    session : (n,) int32
    tokens : (n,) int32
    """

    kind: Array
    word: Array
    opens: Array
    closes: Array
    turn_indptr: Array
    session: Array
    tokens: Array


def stream(n_tokens: int, rng: np.random.Generator) -> Stream:
    """Draw the kinds of words and divide them into sentences, turns and sessions."""
    n_units = int(n_tokens / 1.8) + 200
    unit = rng.random(n_units)
    entity = unit > 1 - _ENTITY_SHARE
    # An entity is followed by a content word, so that two names never run into one.
    kind = np.ones((n_units, 2), np.int8)
    kind[unit < _FUNCTION_SHARE, 0] = 0
    kind[entity, 0] = 2
    used = np.ones((n_units, 2), np.bool_)
    used[:, 1] = entity
    kind = kind[used]
    # Tokens by kind; rare words are more pieces than common ones, names too.
    cost = np.array([1.0, 1.6, 2.4])[kind] + (rng.random(len(kind)) - 0.5)
    spent = np.cumsum(cost)
    sigma = 0.7
    wanted = rng.lognormal(np.log(_TURN_WORDS) - sigma**2 / 2, sigma, int(n_tokens / 20) + 50)
    borders = np.cumsum(np.clip(wanted, _SHORTEST, _LONGEST))
    borders = borders[borders < min(spent[-1], n_tokens * _TURN_WORDS / (TOKENS_PER_TURN + 0.2))]
    turn_indptr = np.concatenate(([0], np.unique(np.searchsorted(spent, borders, side="right"))))
    turn_indptr = np.unique(turn_indptr).astype(np.int64)
    n_words = int(turn_indptr[-1])
    opens = np.zeros(n_words + 1, np.bool_)
    opens[1:-1] = rng.random(n_words - 1) < _BREAK
    opens[turn_indptr] = True
    closes = opens[1:]
    opens = opens[:-1]
    n = len(turn_indptr) - 1
    lengths = np.clip(rng.lognormal(np.log(25) - 0.08, 0.4, n // 8 + 4), 4, 80).astype(np.int64)
    session = np.repeat(np.arange(len(lengths)), lengths)[:n].astype(np.int32)
    tokens = np.add.reduceat(np.round(cost[:n_words]) + 2.0 * opens, turn_indptr[:-1])
    word = np.zeros(n_words, np.int32)
    return Stream(kind[:n_words], word, opens, closes, turn_indptr, session,
                   np.maximum(tokens, 1).astype(np.int32))  # fmt: skip


def draw_words(s: Stream, topic: Array, rng: np.random.Generator) -> None:
    """Say which function word, content word or entity each word of the stream is."""
    session = np.repeat(s.session, np.diff(s.turn_indptr))
    for kind in range(3):
        at = np.flatnonzero(s.kind == kind)
        if kind == 0:
            s.word[at] = _zipf(np.full(len(at), len(FUNCTION)), 1.0, rng)
            continue
        share, exponent, shift = (_CONTENT, _ENTITY)[kind - 1]
        known = np.minimum(np.ceil(share * np.arange(1, len(at) + 1) ** exponent), 1e9)
        # At most one new name per mention: the law overtakes that only among the first few.
        fresh = np.diff(known, prepend=0) > 0
        seen = np.cumsum(fresh)
        drawn = _zipf(seen, shift, rng)
        if kind == 1:
            about = topic[session[at]]
            rank = _zipf(np.maximum(seen // N_TOPICS, 1), shift, rng)
            topical = rank * N_TOPICS + about
            drawn = np.where((rng.random(len(at)) < _TOPICAL) & (topical < seen), topical, drawn)
        drawn[fresh] = seen[fresh] - 1
        if kind == 2:
            drawn = drawn[_repeats(session[at], fresh, rng)]
        s.word[at] = drawn


def _zipf(n: Array, shift: float, rng: np.random.Generator) -> Array:
    """Draw one of the n ranks of each place with probability proportional to 1 / (rank + shift)."""
    u = rng.random(len(n))
    return np.minimum((shift * (((n + shift) / shift) ** u - 1)).astype(np.int64), n - 1)


def _repeats(session: Array, fresh: Array, rng: np.random.Generator) -> Array:
    """For each mention, the mention whose entity it names: its own, or one shortly before it."""
    n = len(session)
    source = np.arange(n) - rng.integers(1, _WITHIN, n)
    again = (rng.random(n) < _AGAIN) & ~fresh & (source >= 0)
    again[again] = session[source[again]] == session[again]
    source = np.where(again, source, np.arange(n))
    while True:  # a repeat of a repeat leads back to the first
        further = source[source]
        if (further == source).all():
            return source
        source = further
