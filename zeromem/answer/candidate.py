"""A typed candidate answer with its provenance (an element of A(q), eq. 16)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from zeromem.answer.passages import Asked, Passages, Sentence
from zeromem.types import AnswerType, Citation, Evidence


@dataclass(frozen=True, slots=True)
class Candidate:
    """One possible answer found in the evidence.

    Attributes
    ----------
    text : str
        As an answer would state it ("14 July 2023" for "yesterday").
    kind : AnswerType
    value : str
        Normal form: two candidates with one value say the same.
    item : int
        Position of the evidence item in R(q).
    start, end : int
        Character range in the item's text that it rests on.
    bonus : float
        How well its place in the sentence fits the question.
    """

    text: str
    kind: AnswerType
    value: str
    item: int
    start: int
    end: int
    bonus: float = 0.0


def citation(evidence: Evidence, start: int, end: int) -> Citation:
    """Cite characters ``[start, end)`` of an evidence item by their place in its trace."""
    return Citation(
        evidence.id, evidence.start + start, evidence.start + end, evidence.text[start:end]
    )


def closeness(asked: Asked, passages: Passages, sentence: Sentence, start: int, end: int) -> float:
    """Near words of the question: 1 beside them, falling by distance; 0 where there are none.

    Parameters
    ----------
    start, end : int
        Character range in the item's text.
    """
    base = sentence.start - sentence.span.start_char
    best = 0.0
    for token in sentence.span:
        a = base + token.idx
        if start <= a < end:
            continue
        weight = asked.weights.get(passages.keys.of([token.lemma_])[0])
        if weight is None:
            continue
        gap = max(start - (a + len(token)), a - end, 0)
        best = max(best, weight * math.exp(-gap / 30))
    return best
