"""A reader without a language model: it quotes the evidence. Deterministic, zero LLM tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from zeromem.answer.candidate import Candidate, governed
from zeromem.answer.extract import of_sentence
from zeromem.answer.language import NLP, load_nlp
from zeromem.answer.passages import Asked, Passages, Sentence, read_passages, read_question
from zeromem.answer.reader import Draft
from zeromem.answer.support import Support, aliases, judge
from zeromem.types import AnswerType, Evidence, QueryProfile

# Below these shares of the question's words the evidence does not speak of the matter.
_MIN_OVERLAP: dict[AnswerType, float] = {"yes_no": 0.3, "text": 0.12, "list": 0.12}
_W_VERB = 0.25
_MAX_ITEMS = 6


@dataclass(frozen=True, slots=True)
class _Scored:
    candidate: Candidate
    sentence: Sentence
    support: Support

    @property
    def score(self) -> float:
        return self.support.score + self.candidate.bonus


class ExtractiveReader:
    """Chooses the sentence that supports an answer best, and the span of the asked type in it.

    Parameters
    ----------
    nlp : callable, optional
        spaCy's English pipeline; loaded at the first question without it.
    """

    def __init__(self, nlp: NLP | None = None) -> None:
        self._nlp = nlp

    def read(self, question: str, evidence: Sequence[Evidence], *, profile: QueryProfile) -> Draft:
        """Answer by quotation; an empty text where nothing in the evidence supports one."""
        if not evidence:
            return Draft("")
        nlp = self._nlp or load_nlp()
        passages = read_passages(evidence, nlp)
        asked = read_question(profile, nlp, passages.keys)
        asked = replace(asked, names=aliases(asked, passages))
        ranked = rank(asked, passages)
        if not ranked:
            return Draft("")
        if profile.answer_type == "list":
            return _list(ranked)
        return _draft([ranked[0]], ranked[0].candidate.text)


def rank(asked: Asked, passages: Passages) -> list[_Scored]:
    """Every supported candidate, best first; ties by place in the evidence."""
    scored = []
    for s in passages.sentences:
        support = judge(asked, passages, s)
        if support.overlap < _MIN_OVERLAP.get(asked.profile.answer_type, 0.2) and asked.weights:
            continue
        if asked.subjects and not support.about:  # it is about somebody else
            continue
        for c in of_sentence(asked, passages, s):
            fits = _W_VERB * governed(asked, passages, s, c.start)
            scored.append(_Scored(replace(c, bonus=c.bonus + fits), s, support))
    return sorted(scored, key=lambda x: (-x.score, x.candidate.item, x.candidate.start))


def _draft(chosen: Sequence[_Scored], text: str) -> Draft:
    spans = tuple((x.candidate.item, x.candidate.start, x.candidate.end) for x in chosen)
    return Draft(text, cited=tuple(dict.fromkeys(s[0] for s in spans)), spans=spans)


def _list(ranked: Sequence[_Scored]) -> Draft:
    """The best items of every sentence whose support comes near the best one's."""
    best = ranked[0]
    top: dict[tuple[int, int], float] = {}
    for x in ranked:
        at = (x.sentence.item, x.sentence.index)
        top[at] = max(top.get(at, -1.0), x.candidate.bonus)
    kept: list[_Scored] = []
    for x in ranked:
        near = x.support.score >= best.support.score - 0.3 and x.score >= best.score - 0.5
        fits = x.candidate.bonus >= top[x.sentence.item, x.sentence.index] - 0.1
        if near and fits and all(not _same(x.candidate, k.candidate) for k in kept):
            kept.append(x)
    kept = kept[:_MAX_ITEMS]
    return _draft(kept, ", ".join(x.candidate.text for x in kept))


def _same(a: Candidate, b: Candidate) -> bool:
    if a.item == b.item and a.start < b.end and b.start < a.end:
        return True
    return a.value in b.value or b.value in a.value
