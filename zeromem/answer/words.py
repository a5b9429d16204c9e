"""The forms under which two words of a question and its evidence are the same."""

from __future__ import annotations

import functools
from collections.abc import Iterable

from zeromem.answer.relations import RELATED, SAME
from zeromem.text import canonical, terms

_KEPT = 1 << 16

# Names recur in every sentence and every question.
folded = functools.lru_cache(_KEPT)(canonical)


@functools.lru_cache(_KEPT)
def key(word: str) -> str:
    """The form under which two words are the same: short names of one thing, then the stem."""
    low = word.lower()
    low = SAME.get(low, low)
    stemmed = terms([low])[0]
    return stemmed[0] if stemmed else low


def keys(words: Iterable[str]) -> list[str]:
    """The key of each word."""
    return [key(w) for w in words]


@functools.cache
def _related() -> dict[str, frozenset[str]]:
    return {key(word): frozenset(keys(group)) for word, group in RELATED.items()}


def related_to(word_key: str) -> frozenset[str]:
    """Keys of the words that speak of the same thing in everyday English."""
    return _related().get(word_key, frozenset())
