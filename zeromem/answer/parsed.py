"""One text of the evidence as sentences: parsed once, however many questions read it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from zeromem.answer.language import NLP, Doc, Span, parse_all
from zeromem.answer.recent import Recent
from zeromem.answer.words import keys
from zeromem.text import canonical, sanitize
from zeromem.timex import TimeMention, find_times

# One text is parsed whole; past this many characters it is cut at a line or sentence border, as
# spaCy's memory grows with the text.
MAX_PARSED = 20_000

# The turns of two or three long conversations; a parse takes about two hundred times its text.
_KEPT_CHARACTERS = 250_000

_SPLIT_WORD = re.compile(r"[A-Za-z]+|\d+(?:[.,]\d+)*|[^\W\d_]+")
_CAPTION = re.compile(r"\[(?:picture|photo|image)[^\]]*\]", re.IGNORECASE)


@dataclass(frozen=True, slots=True, eq=False)
class Sentence:
    """One sentence of one evidence item.

    Attributes
    ----------
    item : int
        Position of the evidence item in R(q).
    index : int
        Position of the sentence in its item.
    start, end : int
        Character range in the item's text.
    text, folded : str
        As it stands, and in canonical form.
    keys : frozenset of str
        Keys of its words.
    words : frozenset of str
        Its tokens in lower case.
    lemmas : tuple of str
        Key of each token's lemma, aligned with ``span``.
    span : spaCy Span
    times : tuple of TimeMention
        Ranges are relative to the item's text.
    speaker : str
        Canonical name of who speaks; empty where unknown.
    asks : bool
    """

    item: int
    index: int
    start: int
    end: int
    text: str
    folded: str
    keys: frozenset[str]
    words: frozenset[str]
    lemmas: tuple[str, ...]
    span: Span
    times: tuple[TimeMention, ...]
    speaker: str
    asks: bool


_parsed: Recent[tuple[NLP, str], tuple[Sentence, ...]] = Recent(_KEPT_CHARACTERS)


def parse(texts: Sequence[str], nlp: NLP) -> list[tuple[Sentence, ...]]:
    """Sentences of each text, as those of item 0 said by nobody.

    Parameters
    ----------
    texts : sequence of str
    nlp : callable
        spaCy's pipeline.
    """
    found = {t: s for t in texts if (s := _parsed.get((nlp, t))) is not None}
    new = [t for t in dict.fromkeys(texts) if t not in found]
    pieces = [(text, offset, part) for text in new for offset, part in _pieces(text)]
    docs = parse_all(nlp, [sanitize(part) for _, _, part in pieces])
    parts: dict[str, list[tuple[int, Doc]]] = {text: [] for text in new}
    for (text, offset, _), doc in zip(pieces, docs, strict=True):
        parts[text].append((offset, doc))
    for text in new:
        found[text] = _parsed.put((nlp, text), tuple(_sentences(text, parts[text])), len(text) + 1)
    return [found[t] for t in texts]


def word_keys(text: str) -> list[str]:
    """Keys of a text's words without a parse."""
    return keys(_SPLIT_WORD.findall(text))


def _sentences(text: str, parts: Iterable[tuple[int, Doc]]) -> list[Sentence]:
    times = find_times(text)
    out: list[Sentence] = []
    for offset, doc in parts:
        for span in _spans(doc):
            start, end = offset + span.start_char, offset + span.end_char
            said = span.text
            lemmas = tuple(keys(t.lemma_ for t in span))
            spoken = keys(w for t in span for w in _SPLIT_WORD.findall(t.text))
            out.append(
                Sentence(
                    item=0,
                    index=len(out),
                    start=start,
                    end=end,
                    text=said,
                    folded=canonical(said),
                    keys=frozenset((*lemmas, *spoken)),
                    words=frozenset(t.lower_ for t in span),
                    lemmas=lemmas,
                    span=span,
                    times=tuple(t for t in times if t.start < end and start < t.end),
                    speaker="",
                    asks=said.rstrip().endswith("?"),
                )
            )
    return out


def _pieces(text: str) -> list[tuple[int, str]]:
    """The text in parts that can be parsed, with their offsets; lines end sentences."""
    parts: list[tuple[int, str]] = []
    for m in re.finditer(r"[^\n]+", text):
        for at in range(m.start(), m.end(), MAX_PARSED):
            parts.append((at, text[at : min(at + MAX_PARSED, m.end())]))
    return parts


def _spans(doc: Doc) -> list[Span]:
    """Sentences; a bracketed caption is one of its own, whatever the parser made of it."""
    found: list[Span] = []
    captions = [m.span() for m in _CAPTION.finditer(doc.text)]
    for sent in doc.sents:
        if not captions:
            found.append(sent)
            continue
        begin = sent.start_char
        for a, b in [*captions, (sent.end_char, sent.end_char)]:
            if a < begin and b > begin:
                begin = min(b, sent.end_char)
            if begin <= a < sent.end_char and a > begin and a != sent.end_char:
                found.append(doc.char_span(begin, a, alignment_mode="contract"))
            if begin <= a < sent.end_char and b > a:
                found.append(doc.char_span(a, min(b, len(doc.text)), alignment_mode="expand"))
                begin = min(b, sent.end_char)
        if begin < sent.end_char:
            found.append(doc.char_span(begin, sent.end_char, alignment_mode="contract"))
    return [s for s in found if s is not None and s.text.strip()]
