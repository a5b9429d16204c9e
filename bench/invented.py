"""Pronounceable words and names that nobody has, and the few real words between them.

Every word here is its own stem and no stop word (a test says so), so that the lexical terms of a
text can be told without reading it.
"""

from __future__ import annotations

from collections.abc import Sequence


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# All are in the lexical index's list of stop words. (A single letter before a full stop would be
# taken for an initial.)
FUNCTION = _words("the to and of in it is for with that at on be as are but they into by")
OPENERS = ("The", "It", "They", "And", "But", "There", "Then", "That", "In", "At")
COMMON = _words(
    """book train garden music water friend dog cat bread river market school paper window kitchen
    letter phone camera song game boat forest lake hill road street shop hotel room door chair lamp
    clock shirt shoe hat coat ring box bag cup plate bowl knife fork soup salad rice lemon tea milk
    honey salt sugar cake pie egg fish meat plan trip ticket photo film show band guitar piano drum
    class test exam job work team boss club park beach sun rain snow wind storm cold warm blue red
    green black white brown long short tall small big old new good bad fast slow late soft hard loud
    calm clean fresh sweet bitter sharp round flat deep high low rich poor quick smart kind proud
    glad sad sick went came took gave found lost sold bought sent kept left met saw heard told said
    felt thought knew grew built drew wrote read spoke began drove flew rode swam ran walk talk cook
    paint plant visit help start finish open close fix wash pack wait call ask yesterday today two
    seven"""
)
TIME_WORDS = frozenset(("yesterday", "today"))
NUMBER_WORDS = frozenset(("two", "seven"))

_ONSETS = _words("b d f g k l m n p r s t v z ch sh br dr gr kr tr st")
_SYLLABLES = [onset + vowel for vowel in "aeiou" for onset in _ONSETS]
# Shares no factor with the number of words of any length, so that multiplying only shuffles them.
_STRIDE = 7919


def invented(first: int, last: int, endings: Sequence[str]) -> list[str]:
    """Return the words of these numbers, all different, the short ones first.

    Parameters
    ----------
    first, last : int
        Half-open range of numbers, from 0.
    endings : sequence of str
        Vowel and consonants that close every word. Words of different endings differ.
    """
    lasts = [onset + ending for ending in endings for onset in _ONSETS]
    heads = len(_SYLLABLES)
    words: list[str] = []
    base, n_heads = 0, 1
    while base < last:
        size = heads**n_heads * len(lasts)
        for number in range(max(first, base) - base, min(last, base + size) - base):
            head, tail = divmod(number * _STRIDE % size, len(lasts))
            parts = []
            for _ in range(n_heads):
                head, syllable = divmod(head, heads)
                parts.append(_SYLLABLES[syllable])
            words.append("".join(parts) + lasts[tail])
        base += size
        n_heads += 1
    return words


def content_words(n: int) -> list[str]:
    """Return the n words that texts are made of, in the order in which they come into use."""
    return [*COMMON[:n], *invented(0, max(n - len(COMMON), 0), ("o", "u"))]


def names(n: int) -> list[str]:
    """Return n different names; every fourth is a first name and a surname."""
    first = [word.capitalize() for word in invented(0, 400, ("an",))]
    last = [word.capitalize() for word in invented(0, n, ("a",))]
    return [
        f"{first[i * _STRIDE % len(first)]} {word}" if i % 4 == 3 else word
        for i, word in enumerate(last)
    ]


def speakers(n: int) -> list[str]:
    """Return n different first names of those who speak."""
    return [word.capitalize() for word in invented(0, n, ("el",))]
