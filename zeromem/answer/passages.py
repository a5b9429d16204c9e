"""Evidence as sentences, with the statistics that weigh a match."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from zeromem.answer.language import NLP, Doc, Span
from zeromem.answer.relations import RELATED, SAME
from zeromem.text import canonical, sanitize, terms
from zeromem.timex import TimeMention, find_times
from zeromem.types import Evidence

# Texts to unit rows, float32 (n, dim): an encoder's ``encode``.
Encode = Callable[[Sequence[str]], NDArray[np.float32]]

# One text is parsed whole; past this many characters it is cut at a line or sentence border, as
# spaCy's memory grows with the text.
MAX_PARSED = 20_000

_AROUND, _W_AROUND = 2, 0.5  # sentences on each side, and their share of the similarity
_W_BARE = 0.3  # share of the similarity without any name: a short sentence is all speaker otherwise

_SPLIT_WORD = re.compile(r"[A-Za-z]+|\d+(?:[.,]\d+)*|[^\W\d_]+")


def key(word: str) -> str:
    """The form under which two words are the same: short names of one thing, then the stem."""
    low = word.lower()
    low = SAME.get(low, low)
    stemmed = terms([low])[0]
    return stemmed[0] if stemmed else low


class Keys:
    """A cache of :func:`key`: tokenizing word by word is what would cost time."""

    def __init__(self) -> None:
        self._of: dict[str, str] = {}

    def of(self, words: Iterable[str]) -> list[str]:
        words = [SAME.get(w.lower(), w.lower()) for w in words]
        new = [w for w in dict.fromkeys(words) if w not in self._of]
        for word, found in zip(new, terms(new) if new else [], strict=True):
            self._of[word] = found[0] if found else word
        return [self._of[w] for w in words]


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
    text : str
    keys : frozenset of str
        Keys of its words.
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
    keys: frozenset[str]
    span: Span
    times: tuple[TimeMention, ...]
    speaker: str
    asks: bool


@dataclass(frozen=True, slots=True, eq=False)
class Passages:
    """All sentences of R(q) in rank order, with the statistics that weigh a match.

    ``similarity`` maps (item, index) of a sentence to its cosine with the question, where an
    encoder was given: the better half of its own and that of the sentences around it, as one
    event is often told in several; averaged with that of the words alone, names aside.
    """

    evidence: tuple[Evidence, ...]
    sentences: tuple[Sentence, ...]
    keys_of: tuple[frozenset[str], ...]
    frequency: Counter[str]
    speakers: frozenset[str]
    by_item: dict[int, list[Sentence]] = field(default_factory=dict)
    keys: Keys = field(default_factory=Keys)
    related: dict[str, frozenset[str]] = field(default_factory=dict)
    cached: list[str] = field(default_factory=list)
    matches: dict[tuple[str, int, int], list[tuple[int, int, float]]] = field(default_factory=dict)
    similarity: Mapping[tuple[int, int], float] = field(default_factory=dict)
    encode: Encode | None = None
    kinds: dict[tuple[str, str], float] = field(default_factory=dict)

    def is_kind(self, kind: str, nouns: Sequence[str]) -> list[float]:
        """How well each noun goes as "kinds of <kind>": a hyponym's cosine; 0 without encoder."""
        new = [n for n in dict.fromkeys(nouns) if (kind, n) not in self.kinds]
        if self.encode is not None and new:
            rows = self.encode([f"kinds of {kind}", *map(sanitize, new)])
            for noun, cosine in zip(new, rows[1:] @ rows[0], strict=True):
                self.kinds[kind, noun] = float(cosine)
        return [self.kinds.get((kind, n), 0.0) for n in nouns]

    def related_to(self, word_key: str) -> frozenset[str]:
        """Keys of the words that speak of the same thing in everyday English."""
        if not self.related:
            for word, group in RELATED.items():
                self.related[self.keys.of([word])[0]] = frozenset(self.keys.of(group))
        return self.related.get(word_key, frozenset())

    def folded(self) -> str:
        """All evidence in canonical form, to look names up in."""
        if not self.cached:
            self.cached.append(
                " ".join(canonical(f"{e.trace.title or ''} {e.text}") for e in self.evidence)
            )
        return self.cached[0]

    def idf(self, word_key: str) -> float:
        """Rarity among the evidence's sentences; a word in none of them counts as rare."""
        n = len(self.sentences)
        return math.log(1 + (n + 1) / (self.frequency[word_key] + 0.5))


def _pieces(text: str) -> list[tuple[int, str]]:
    """The text in parts that can be parsed, with their offsets; lines end sentences."""
    parts: list[tuple[int, str]] = []
    for m in re.finditer(r"[^\n]+", text):
        for at in range(m.start(), m.end(), MAX_PARSED):
            parts.append((at, text[at : min(at + MAX_PARSED, m.end())]))
    return parts


_CAPTION = re.compile(r"\[(?:picture|photo|image)[^\]]*\]", re.IGNORECASE)


def _spans(doc: Doc) -> list[Span]:
    """Sentences; a bracketed caption is one of its own, whatever the parser made of it."""
    found: list[Span] = []
    captions = [m.span() for m in _CAPTION.finditer(doc.text)]
    for sent in doc.sents:
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


def read_passages(evidence: Sequence[Evidence], nlp: NLP) -> Passages:
    """Parse R(q) into sentences.

    Parameters
    ----------
    evidence : sequence of Evidence
        Best first.
    nlp : callable
        spaCy's pipeline.
    """
    cache = Keys()
    sentences: list[Sentence] = []
    by_item: dict[int, list[Sentence]] = {}
    keys_of: list[frozenset[str]] = []
    for i, item in enumerate(evidence):
        times = find_times(item.text)
        own = by_item.setdefault(i, [])
        for offset, part in _pieces(item.text):
            for span in _spans(nlp(sanitize(part))):
                start, end = offset + span.start_char, offset + span.end_char
                inside = tuple(t for t in times if t.start < end and start < t.end)
                words = [w for t in span for w in (t.lemma_, *_SPLIT_WORD.findall(t.text))]
                asks = span.text.rstrip().endswith("?")
                own.append(
                    Sentence(
                        i,
                        len(own),
                        start,
                        end,
                        span.text,
                        frozenset(cache.of(words)),
                        span,
                        inside,
                        canonical(item.speaker or ""),
                        asks,
                    )
                )
        sentences.extend(own)
        title = cache.of(_SPLIT_WORD.findall(item.trace.title or ""))
        keys_of.append(frozenset(k for s in own for k in s.keys) | frozenset(title))
    frequency = Counter(k for s in sentences for k in s.keys)
    speakers = frozenset(s.speaker for s in sentences if s.speaker)
    return Passages(
        tuple(evidence), tuple(sentences), tuple(keys_of), frequency, speakers, by_item, cache
    )


def compare(passages: Passages, question: str, encode: Encode | None) -> Passages:
    """Add each sentence's similarity with the question, said by its speaker as "Ana: …"."""
    if encode is None or not passages.sentences:
        return passages
    own, around, bare = [], [], []
    for s in passages.sentences:
        item = passages.evidence[s.item]
        who = item.speaker or item.trace.title
        lead = f"{who}: " if who else ""
        own.append(sanitize(lead + s.text))
        bare.append(sanitize(s.text))
        near = passages.by_item[s.item][max(0, s.index - _AROUND) : s.index + _AROUND + 1]
        around.append(sanitize(lead + item.text[near[0].start : near[-1].end]))
    names = "|".join(re.escape(s) for s in sorted(passages.speakers))
    nameless = re.sub(rf"(?i)\b(?:{names})\b", "somebody", question) if names else question
    rows = encode([sanitize(question), sanitize(nameless), *own, *around, *bare])
    n = len(own)
    scores = rows[2 : 2 + 2 * n] @ rows[0]
    named = (1 - _W_AROUND) * scores[:n] + _W_AROUND * np.maximum(scores[:n], scores[n:])
    blended = (1 - _W_BARE) * named + _W_BARE * (rows[2 + 2 * n :] @ rows[1])
    found = {(s.item, s.index): float(x) for s, x in zip(passages.sentences, blended, strict=True)}
    return replace(passages, similarity=found, encode=encode)
