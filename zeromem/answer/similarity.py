"""Sentences that mean what the question asks, whatever words they use."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from zeromem.answer.recent import Recent
from zeromem.ingest.encoders.base import Encoder, unit
from zeromem.text import sanitize
from zeromem.types import Evidence

if TYPE_CHECKING:
    from zeromem.answer.passages import Passages

Float32 = NDArray[np.float32]
Int32 = NDArray[np.int32]
# Texts to unit rows, float32 (n, dim): an encoder's ``encode``.
Encode = Callable[[Sequence[str]], Float32]

_W_AROUND = 0.3  # the item's share of its sentences' similarity
_KEPT_ROWS = 16_384  # about 25 MB at 384 dimensions


@runtime_checkable
class Sense(Protocol):
    """What evidence means, as vectors: a memory has them from ingestion."""

    def encode(self, texts: Sequence[str]) -> Float32:
        """Encode questions or names: (n, dim) float32, unit rows."""

    def senses(self, evidence: Sequence[Evidence], spans: Sequence[Int32]) -> list[Float32]:
        """Vectors of evidence items and of their sentences.

        Parameters
        ----------
        evidence : sequence of Evidence
        spans : sequence of (m, 2) int32
            Character ranges of each item's sentences, in its text.

        Returns
        -------
        list of (m + 1, dim) float32
            Unit rows of each item: its own, then its sentences'.
        """


class Encoded:
    """The senses of what is not in a memory: each text encoded once and kept for a while.

    Parameters
    ----------
    encode : callable
        Sentences are encoded apart from their text.
    encode_spans : callable, optional
        An encoder's: one pass gives a text's vector and, in its context, those of its sentences.
    """

    def __init__(self, encode: Encode, encode_spans: Callable[..., Any] | None = None) -> None:
        self._encode = encode
        self._encode_spans = encode_spans
        self._rows: Recent[str, Float32] = Recent(_KEPT_ROWS)
        self._items: Recent[str, Float32] = Recent(_KEPT_ROWS)

    def encode(self, texts: Sequence[str]) -> Float32:
        found = {t: r for t in texts if (r := self._rows.get(t)) is not None}
        new = [t for t in dict.fromkeys(texts) if t not in found]
        if new:
            for text, row in zip(new, self._encode(new), strict=True):
                found[text] = self._rows.put(text, row)
        return np.stack([found[t] for t in texts])

    def senses(self, evidence: Sequence[Evidence], spans: Sequence[Int32]) -> list[Float32]:
        wanted = {sanitize(e.text): s for e, s in zip(evidence, spans, strict=True)}
        found = {t: r for t in wanted if (r := self._items.get(t)) is not None}
        new = {t: s for t, s in wanted.items() if t not in found}
        if new:
            for text, rows in zip(new, self._fresh(new), strict=True):
                found[text] = self._items.put(text, rows, len(rows))
        return [found[sanitize(e.text)] for e in evidence]

    def _fresh(self, new: Mapping[str, Int32]) -> list[Float32]:
        sizes = [len(s) for s in new.values()]
        if self._encode_spans is not None:
            got = self._encode_spans([*new], [*new.values()])
            whole, parts = unit(got.text_vectors), unit(got.span_vectors)
        else:
            pieces = [text[a:b] for text, s in new.items() for a, b in s.tolist()]
            rows = self.encode([*new, *pieces])
            whole, parts = rows[: len(new)], rows[len(new) :]
        ends = np.cumsum([0, *sizes])
        return [
            np.concatenate([whole[i : i + 1], parts[ends[i] : ends[i + 1]]])
            for i in range(len(new))
        ]


def as_sense(source: Encode | Encoder | Sense) -> Sense:
    """The senses that an encoder, its ``encode`` alone, or a memory gives."""
    if isinstance(source, Sense):
        return source
    if isinstance(source, Encoder):
        return Encoded(source.encode, source.encode_spans)
    return Encoded(source)


def compare(passages: Passages, question: str, sense: Sense) -> Mapping[tuple[int, int], float]:
    """Each sentence's cosine with the question, names aside: who speaks is judged apart.

    A part of it is that of the sentence's whole item where that is better, as one event is often
    told in several sentences.

    Returns
    -------
    mapping of (item, index) to float
    """
    names = "|".join(re.escape(s) for s in sorted(passages.speakers))
    nameless = re.sub(rf"(?i)\b(?:{names})\b", "somebody", question) if names else question
    own = [passages.by_item[i] for i in range(len(passages.evidence))]
    spans = [np.array([(s.start, s.end) for s in x], np.int32).reshape(-1, 2) for x in own]
    asked = sense.encode([sanitize(nameless)])[0]
    similarity: dict[tuple[int, int], float] = {}
    for i, rows in enumerate(sense.senses(passages.evidence, spans)):
        whole, *parts = (rows @ asked).tolist()
        for index, part in enumerate(parts):
            similarity[i, index] = (1 - _W_AROUND) * part + _W_AROUND * max(part, whole)
    return similarity
