"""Sentences by rule, and long texts into turns at sentence borders."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from zeromem.text import word_spans

Int32 = NDArray[np.int32]
Span = tuple[int, int]

# A blank line, or a line that opens a list item, heading, quotation, table row or fence.
_BLOCK = re.compile(
    r"\n[^\S\n]*\n\s*|\n(?=[^\S\n]*(?:[-*+\u2022\u2013][^\S\n]|#{1,6}[^\S\n]|>|\||```|\d{1,3}[.)]\s))"
)
# Possessive, and only from a run's first mark: a megabyte of "!" must not take its square in time.
_END = re.compile(
    r"(?<![.!?\u2026])[.!?\u2026]++[\"'\u201d\u2019)\]]*+(?=\s)"
    r"|[\u3002\uff01\uff1f]++[\u300d\u300f\uff09]*|\n+"
)
# Words before a full stop that does not end a sentence; single capitals are initials.
_ABBREVIATION = re.compile(
    r"(?:\b(?:mr|mrs|ms|dr|prof|st|jr|sr|vs|etc|e\.g|i\.e|cf|no|vol|fig|approx|dept|est|inc|ltd|co"
    r"|gen|col|lt|sgt|capt|rev|hon|jan|feb|mar|apr|jun|jul|aug|sep|sept|oct|nov|dec)|\b[A-Z])\.$",
    re.IGNORECASE,
)
_LONG_WORD = 20


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Where a text's turns and sentences lie; as in ``TraceFeatures``."""

    turns: Int32
    sentences: Int32
    sentence_turn: Int32


def rule_sentences(text: str) -> list[Span]:
    """Find sentences by punctuation and line ends: ranges without the whitespace around them."""
    spans: list[Span] = []
    start = 0
    for match in _END.finditer(text):
        before = text[max(start, match.start() - 12) : match.end()]
        if match.group()[0] == "." and len(match.group()) == 1 and _ABBREVIATION.search(before):
            continue
        spans += _trimmed(text, start, match.end())
        start = match.end()
    return spans + _trimmed(text, start, len(text))


def cut(text: str, limit: int) -> list[Span]:
    """Cut a text into consecutive ranges of at most `limit` characters that cover it.

    Cuts fall behind a line, else a sentence, else a space, where the second half of the range has
    one.
    """
    ranges: list[Span] = []
    start = 0
    while len(text) - start > limit:
        end = start + limit
        for mark in ("\n", ". ", " "):
            if (at := text.rfind(mark, start + limit // 2, end)) >= 0:
                end = at + len(mark)
                break
        ranges.append((start, end))
        start = end
    return [*ranges, (start, len(text))] if start < len(text) else ranges


def layout(text: str, sentences: Iterable[Span], max_words: int) -> Layout:
    """Divide a text into sentences, and pack them into turns of at most `max_words` words.

    Parameters
    ----------
    text : str
    sentences : iterable of (start, end)
        An annotator's, in order. What lies between them becomes sentences too, blocks (paragraphs,
        list items) divide them, and one that is longer than a turn is cut at lines, else words.
    max_words : int
        A CJK character counts as a word, and each further 20 characters of a long word count as
        one more, as do 20 characters in a row that are no words, so that no blob passes for short.
    """
    found: list[Span] = []
    for start, end in _gapless(text, sentences):
        for a, z in _blocks(text, start, end):
            found += _fitting(text, a, z, max_words)
    turns: list[list[int]] = []
    sentence_turn: list[int] = []
    room = 0
    for start, end in found:
        n = _weight(text, start, end)
        if not turns or n > room:
            turns.append([start, end])
            room = max_words
        room -= n
        turns[-1][1] = end
        sentence_turn.append(len(turns) - 1)
    return Layout(
        np.asarray(turns, np.int32).reshape(-1, 2),
        np.asarray(found, np.int32).reshape(-1, 2),
        np.asarray(sentence_turn, np.int32),
    )


def _trimmed(text: str, start: int, end: int) -> list[Span]:
    """Return the range without outer whitespace, or nothing where nothing is left."""
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    return [(start, end)] if start < end else []


def _gapless(text: str, sentences: Iterable[Span]) -> Iterator[Span]:
    done = 0
    for start, end in sorted(sentences):
        start, end = max(start, done), min(end, len(text))
        if end <= start:
            continue
        yield from _trimmed(text, done, start)
        yield from _trimmed(text, start, end)
        done = end
    yield from _trimmed(text, done, len(text))


def _blocks(text: str, start: int, end: int) -> Iterator[Span]:
    for match in _BLOCK.finditer(text, start, end):
        yield from _trimmed(text, start, match.end())
        start = match.end()
    yield from _trimmed(text, start, end)


def _weight(text: str, start: int, end: int) -> int:
    return sum(weight for _, _, weight in _atoms(text, start, end, end - start))


def _fitting(text: str, start: int, end: int, max_words: int) -> Sequence[Span]:
    """Return the range whole where it fits a turn, else in pieces that do."""
    if end - start <= max_words or _weight(text, start, end) <= max_words:
        return [(start, end)]
    pieces: list[Span] = []
    opened = line = before = start  # the piece's start, its last line's start, the last atom's end
    room = max_words
    for a, z, weight in _atoms(text, start, end, max_words * _LONG_WORD):
        if "\n" in text[before:a]:
            line = a
        while weight > room and a > opened:
            border = line if line > opened else a
            pieces += _trimmed(text, opened, border)
            opened = border
            room = max_words - _weight(text, border, a)
        room -= weight
        before = z
    return [*pieces, *_trimmed(text, opened, end)]


def _atoms(text: str, start: int, end: int, longest: int) -> Iterator[tuple[int, int, int]]:
    """Yield (start, end, weight): words, and wordless stretches that are as long as words.

    None is longer than `longest` characters.
    """
    done = start
    for a, z in word_spans(text[start:end]):
        a, z = start + a, start + z
        if a - done > _LONG_WORD:
            for at in range(done, a, longest):
                yield at, min(at + longest, a), (min(at + longest, a) - at) // _LONG_WORD
        for at in range(a, z, longest):
            yield at, min(at + longest, z), 1 + (min(at + longest, z) - at - 1) // _LONG_WORD
        done = z
    if end - done > _LONG_WORD:
        for at in range(done, end, longest):
            yield at, min(at + longest, end), (min(at + longest, end) - at) // _LONG_WORD
