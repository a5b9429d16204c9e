"""Evidence as sentences, with the statistics that weigh a match."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from zeromem.answer.language import NLP
from zeromem.answer.parsed import Sentence, parse, word_keys
from zeromem.answer.similarity import Encode
from zeromem.answer.words import folded
from zeromem.text import canonical, sanitize
from zeromem.types import Evidence

__all__ = ["Encode", "Passages", "Sentence", "read_passages"]


@dataclass(frozen=True, slots=True, eq=False)
class Passages:
    """All sentences of R(q) in rank order, with the statistics that weigh a match.

    Attributes
    ----------
    evidence : tuple of Evidence
    sentences : tuple of Sentence
    keys_of : tuple of frozenset of str
        Keys of each item's words, its title's included.
    frequency : Counter of str
        In how many sentences a key stands.
    speakers : frozenset of str
    by_item : dict of int to list of Sentence
    said : tuple of str
        Each item's text in canonical form.
    everything : str
        All of it with titles, to look names up in.
    place : dict
        (session, log sequence number) to positions in the evidence.
    times : tuple of datetime
        When the items were said, in order.
    similarity : mapping of (item, index) to float
        See :func:`zeromem.answer.similarity.compare`.
    """

    evidence: tuple[Evidence, ...]
    sentences: tuple[Sentence, ...]
    keys_of: tuple[frozenset[str], ...]
    frequency: Counter[str]
    speakers: frozenset[str]
    by_item: dict[int, list[Sentence]]
    said: tuple[str, ...]
    everything: str
    place: dict[tuple[str | None, int], list[int]]
    times: tuple[datetime, ...]
    similarity: Mapping[tuple[int, int], float] = field(default_factory=dict)
    encode: Encode | None = None
    matches: dict[tuple[str, int, int], list[tuple[int, int, float]]] = field(default_factory=dict)
    kinds: dict[tuple[str, str], float] = field(default_factory=dict)
    known: dict[str, bool] = field(default_factory=dict)

    def is_kind(self, kind: str, nouns: Sequence[str]) -> list[float]:
        """How well each noun goes as "kinds of <kind>": a hyponym's cosine; 0 without encoder."""
        new = [n for n in dict.fromkeys(nouns) if (kind, n) not in self.kinds]
        if self.encode is not None and new:
            rows = self.encode([f"kinds of {kind}", *map(sanitize, new)])
            for noun, cosine in zip(new, rows[1:] @ rows[0], strict=True):
                self.kinds[kind, noun] = float(cosine)
        return [self.kinds.get((kind, n), 0.0) for n in nouns]

    def idf(self, word_key: str) -> float:
        """Rarity among the evidence's sentences; a word in none of them counts as rare."""
        n = len(self.sentences)
        return math.log(1 + (n + 1) / (self.frequency[word_key] + 0.5))

    def newness(self, item: int) -> float:
        """Share of the dated evidence that is not newer than an item; 0 where it has no date."""
        own = self.evidence[item].time
        return bisect_right(self.times, own.start) / len(self.times) if own is not None else 0.0

    def nearby(self, item: int, reach: int) -> Iterator[int]:
        """Items of the same session at most ``reach`` traces away, this one aside."""
        own = self.evidence[item]
        for lsn in range(own.lsn - reach, own.lsn + reach + 1):
            yield from (i for i in self.place.get((own.session, lsn), ()) if i != item)

    def replied_to(self, item: int) -> Iterator[int]:
        """Items that the same session has just before one."""
        own = self.evidence[item]
        yield from self.place.get((own.session, own.lsn - 1), ())


def read_passages(evidence: Sequence[Evidence], nlp: NLP) -> Passages:
    """Parse R(q) into sentences.

    Parameters
    ----------
    evidence : sequence of Evidence
        Best first.
    nlp : callable
        spaCy's pipeline.
    """
    by_item: dict[int, list[Sentence]] = {}
    keys_of: list[frozenset[str]] = []
    place: dict[tuple[str | None, int], list[int]] = {}
    for i, (item, parsed) in enumerate(
        zip(evidence, parse([e.text for e in evidence], nlp), strict=True)
    ):
        speaker = folded(item.speaker or "")
        by_item[i] = [replace(s, item=i, speaker=speaker) for s in parsed]
        title = word_keys(item.trace.title or "")
        keys_of.append(frozenset(title).union(*(s.keys for s in parsed)))
        place.setdefault((item.session, item.lsn), []).append(i)
    sentences = tuple(s for own in by_item.values() for s in own)
    said = tuple(canonical(e.text) for e in evidence)
    titles = [folded(e.trace.title or "") for e in evidence]
    return Passages(
        evidence=tuple(evidence),
        sentences=sentences,
        keys_of=tuple(keys_of),
        frequency=Counter(k for s in sentences for k in s.keys),
        speakers=frozenset(s.speaker for s in sentences if s.speaker),
        by_item=by_item,
        said=said,
        everything=" ".join(f"{t} {s}" for t, s in zip(titles, said, strict=True)),
        place=place,
        times=tuple(sorted(e.time.start for e in evidence if e.time is not None)),
    )
