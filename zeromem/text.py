"""Text in its comparable forms: canonical names, lexical terms, words.

Nothing here needs a model, and importing this module loads nothing but the standard library.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Sequence
from functools import cache, lru_cache

# Scripts written without spaces between words, and Hangul, whose particles cling to words: a run of
# these becomes character bigrams, as Lucene's CJK analyser does.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3130-\u318f"
    "\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc"
    "\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
# Soft hyphens, joiners, bidirectional marks and variation selectors change how a word looks, not
# which word it is.
_INVISIBLE = re.compile("[\u00ad\u200c-\u200f\u202a-\u202e\u2060-\u2069\ufe00-\ufe0f\ufeff]+")
_UNREADABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\\s]+")
_REFUSED = re.compile("[\x00\ud800-\udfff]")
_DETERMINER = re.compile(
    r"(?:the|an?|this|that|these|those|my|your|his|her|its|our|their)\s+(?=\S)"
)
_APOSTROPHES = str.maketrans(dict.fromkeys("\u2018\u2019\u02bc", "'"))
# "C#" and "C++" are not "C".
_EDGE_SYMBOLS = frozenset("`~|^=<>\u00b4\u00a8")
_KEPT_AT_END = frozenset("#%")
_BRACKETS = {")": "(", "]": "[", "}": "{"}
_LONGEST_STEMMED = 64


@cache
def _marks() -> str:
    """List the combining marks as a character class: `re` does not take them for letters."""
    points = [c for c in range(0x300, 0x20000) if unicodedata.category(chr(c))[0] == "M"]
    ranges: list[list[int]] = []
    for c in points:
        if ranges and c == ranges[-1][1] + 1:
            ranges[-1][1] = c
        else:
            ranges.append([c, c])
    return "".join(f"{chr(a)}-{chr(z)}" for a, z in ranges)


@cache
def _word_pattern(*, runs: bool) -> re.Pattern[str]:
    """Words; an unspaced run is one match where ``runs``, else each of its characters is."""
    spaced = f"[^\\W{_UNSPACED}]+"
    invisible = "\u00ad\u200c\u200d"
    word = f"{spaced}(?:[{_marks()}{invisible}]+(?:{spaced})?)*"
    return re.compile(f"[{_UNSPACED}]{'+' if runs else ''}|{word}")


def sanitize(text: str) -> str:
    """Replace NUL and lone surrogates, one for one, by U+FFFD: models' tokenizers refuse them.

    Offsets into the result are offsets into `text`.
    """
    return text if text.isascii() and "\0" not in text else _REFUSED.sub("\ufffd", text)


def word_spans(text: str) -> list[tuple[int, int]]:
    """Find the character ranges of words; a CJK (or other unspaced) character is one word.

    >>> word_spans("Hi, 東京!")
    [(0, 2), (4, 5), (5, 6)]
    """
    return [m.span() for m in _word_pattern(runs=False).finditer(text)]


@lru_cache(maxsize=1 << 14)
def canonical(name: str) -> str:
    r"""Return the form under which a name is the same entity wherever it is written.

    NFKC and case folding, inner whitespace collapsed, edge punctuation, leading determiners and
    a closing possessive removed. Idempotent. May be empty.

    >>> canonical("\u201cThe  Golden Gate Bridge\u2019s\u201d")
    'golden gate bridge'
    """
    while True:
        folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
        folded = _strip_edges(_UNREADABLE.sub(" ", _INVISIBLE.sub("", folded)))
        folded = _strip_edges(folded.translate(_APOSTROPHES).removesuffix("'s"))
        if m := _DETERMINER.match(folded):
            folded = folded[m.end() :]
        if folded == name:
            return folded
        name = folded


def _strip_edges(text: str) -> str:
    start, end = 0, len(text)
    while start < end and _is_edge(text[start]):
        start += 1
    while start < end and _is_edge(text[end - 1]) and text[end - 1] not in _KEPT_AT_END:
        opening = _BRACKETS.get(text[end - 1])
        if opening and opening in text[start:end]:  # "Persuasion (film)" keeps its bracket
            break
        end -= 1
    return text[start:end]


def _is_edge(char: str) -> bool:
    return char.isspace() or char in _EDGE_SYMBOLS or unicodedata.category(char)[0] == "P"


def _split(text: str) -> list[str]:
    """Split into unstemmed terms, stop words included."""
    if text.isascii():
        folded = text.lower()
    else:
        folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
        folded = _INVISIBLE.sub("", folded)
    words: list[str] = []
    for word in _word_pattern(runs=True).findall(folded):
        if _is_unspaced(word[0]):
            words += [word[i : i + 2] for i in range(len(word) - 1)] or [word]
        elif len(word) > 1 or word.isdigit():
            words.append(word)
    return words


@cache
def _unspaced_pattern() -> re.Pattern[str]:
    return re.compile(f"[{_UNSPACED}]")


def _is_unspaced(char: str) -> bool:
    return char > "\u0dff" and _unspaced_pattern().match(char) is not None


def terms(texts: Sequence[str]) -> list[list[str]]:
    """Return the lexical index's terms of each text, in order, with repeats.

    bm25s' tokenizer with a splitter of ours: NFKC and case folding, combining marks kept with
    their letters, CJK runs as character bigrams, digits kept at any length, single letters
    dropped, English stop words (bm25s' short list) removed, English stems (Snowball).

    Parameters
    ----------
    texts : sequence of str

    Returns
    -------
    list of list of str
        A term holds no whitespace, no surrogate and no control character.

    Notes
    -----
    A tokenizer is made for each call: bm25s' keeps a vocabulary that would grow for ever, and
    neither it nor a Snowball stemmer may be shared by threads.
    """
    import Stemmer
    from bm25s.tokenization import Tokenizer

    snowball = Stemmer.Stemmer("english")

    def stem(word: str) -> str:
        # A blob of base64 is no English word, and Snowball would walk all of it.
        return snowball.stemWord(word) if len(word) <= _LONGEST_STEMMED else word

    tokenizer = Tokenizer(lower=False, splitter=_split, stopwords="english", stemmer=stem)
    ids = list(tokenizer.streaming_tokenize(texts, allow_empty=False))
    names = {sid: sys.intern(term) for term, sid in tokenizer.stem_to_sid.items()}
    return [[names[sid] for sid in row] for row in ids]


@cache
def _stop_words() -> frozenset[str]:
    import Stemmer
    from bm25s.stopwords import STOPWORDS_EN, STOPWORDS_EN_PLUS

    known = (*STOPWORDS_EN, *STOPWORDS_EN_PLUS)
    words = {part for word in known for part in word.split("'")}
    # The list has "wouldn't" without "would".
    words |= {word.removesuffix("n't") for word in known}
    return frozenset(words) | frozenset(Stemmer.Stemmer("english").stemWords(sorted(words)))


def is_stop(term: str) -> bool:
    """Whether `term` (a word, or its stem) carries no content of its own.

    The list is wider than the one that :func:`terms` removes ("what", "about", "would"): the
    index keeps such terms for their idf, a question's keywords do without them.
    """
    return term.casefold() in _stop_words()
