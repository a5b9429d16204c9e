"""A typed candidate answer with its provenance (an element of A(q), eq. 16)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from zeromem.answer.asked import Asked
from zeromem.answer.passages import Passages, Sentence
from zeromem.answer.words import key, related_to
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
    stated : bool
        False for the time at which something was said, where no other is stated.
    """

    text: str
    kind: AnswerType
    value: str
    item: int
    start: int
    end: int
    bonus: float = 0.0
    stated: bool = True


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
    best = 0.0
    for a, b, weight in _matches(asked, passages, sentence):
        if start <= a < end:
            continue
        gap = max(start - b, a - end, 0)
        best = max(best, weight * math.exp(-gap / 30))
    return best


def _matches(asked: Asked, passages: Passages, sentence: Sentence) -> list[tuple[int, int, float]]:
    """Where the sentence has words of the question, with their weights; found once per sentence."""
    at = (asked.text, sentence.item, sentence.index)
    if at in passages.matches:
        return passages.matches[at]
    base = sentence.start - sentence.span.start_char
    names = {w for n in asked.subjects if n != sentence.speaker for w in n.split()}
    found = passages.matches[at] = []
    for token, word_key in zip(sentence.span, sentence.lemmas, strict=True):
        weight = asked.weights.get(word_key, 0.7 if token.lower_ in names else 0.0)
        if not weight:
            group = related_to(word_key)
            weight = 0.8 * max((asked.weights[k] for k in group if k in asked.weights), default=0.0)
        if weight:
            found.append((base + token.idx, base + token.idx + len(token), weight))
    return found


def governed(asked: Asked, passages: Passages, sentence: Sentence, start: int) -> float:
    """Whether the verb over the word at ``start`` (in the item's text) is the question's verb.

    Returns
    -------
    float
        1 for the same verb, 0.5 for one that speaks of the same thing, else 0.
    """
    if not asked.verb:
        return 0.0
    wanted = key(asked.verb)
    at = start - sentence.start + sentence.span.start_char
    token = next((t for t in sentence.span if t.idx <= at < t.idx + len(t)), None)
    while token is not None and token.head.i != token.i:
        token = token.head
        if token.pos_ in ("VERB", "AUX"):
            own = key(token.lemma_)
            if asked.particle and not any(c.lower_ == asked.particle for c in token.children):
                return 0.0
            return 1.0 if own == wanted else 0.5 * (own in related_to(wanted))
    return 0.0
