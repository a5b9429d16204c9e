"""From R(q) to a grounded answer: read, calibrate, cite."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from zeromem.answer.asked import Asked, read_question
from zeromem.answer.calibrate import calibrate
from zeromem.answer.candidate import citation
from zeromem.answer.language import NLP, load_nlp
from zeromem.answer.passages import Passages, Sentence, read_passages
from zeromem.answer.reader import Draft, Reader
from zeromem.answer.support import aliases, judge
from zeromem.answer.words import keys
from zeromem.types import Answer, CalibrationStep, Citation, Evidence, QueryProfile, Retrieval

_MAX_CITATIONS = 8


def answer_from(
    question: str, retrieval: Retrieval, reader: Reader, *, nlp: NLP | None = None
) -> Answer:
    """Answer a question from its evidence.

    Parameters
    ----------
    question : str
    retrieval : Retrieval
        R(q) with its profile.
    reader : Reader
        The only stage that may spend LLM tokens; it is not asked where there is no evidence.
    nlp : callable, optional
        spaCy's English pipeline; loaded when first needed without it.

    Returns
    -------
    Answer
        With at least one calibration step, and citations for every answer that is not empty and
        that the evidence supports.
    """
    if not retrieval.items:
        step = CalibrationStep("keep", "", "", "there is no evidence to answer from")
        return Answer("", "", (), (step,), retrieval)
    draft = reader.read(question, retrieval.items, profile=retrieval.profile)
    text, steps, cited = calibrated(retrieval.profile, retrieval.items, draft, nlp=nlp)
    return Answer(text, draft.text, cited, steps, retrieval, draft.usage)


def calibrated(
    profile: QueryProfile,
    evidence: Sequence[Evidence],
    draft: Draft,
    *,
    nlp: NLP | None = None,
) -> tuple[str, tuple[CalibrationStep, ...], tuple[Citation, ...]]:
    """Answer calibration (eq. 16) of a draft, and the sources of what comes out.

    Parameters
    ----------
    profile : QueryProfile
        φ(q).
    evidence : sequence of Evidence
        R(q), that the draft was read from.
    draft : Draft
        a_0.
    nlp : callable, optional
        As for :func:`answer_from`.

    Returns
    -------
    answer : str
        a.
    steps : tuple of CalibrationStep
    citations : tuple of Citation
        None for an empty answer.
    """
    nlp = nlp or load_nlp()
    passages = read_passages(evidence, nlp)
    asked = read_question(profile, nlp)
    asked = replace(asked, names=aliases(asked, passages))
    text, steps = calibrate(draft.text, asked, passages)
    cited = _cite(text, draft, steps, asked, passages) if text else ()
    return text, steps, cited


def _cite(
    text: str,
    draft: Draft,
    steps: tuple[CalibrationStep, ...],
    asked: Asked,
    passages: Passages,
) -> tuple[Citation, ...]:
    """Sources of the answer: what calibration rests on, the reader's spans, the items it named.

    Where the reader names none, the sentence of the best item that holds the answer's words.
    """
    found = [s.source for s in steps if s.source is not None and s.action != "keep"]
    if draft.spans and text == draft.text:
        found = [citation(passages.evidence[i], a, b) for i, a, b in draft.spans]
    elif not found or draft.cited:
        items = [i for i in draft.cited if 0 <= i < len(passages.evidence)]
        for i in items or range(len(passages.evidence)):
            sentence = _holder(text, i, asked, passages, needed=not items)
            if sentence is not None:
                found.append(citation(passages.evidence[i], sentence.start, sentence.end))
                if not items:
                    break
    unique = {(c.id, c.start, c.end): c for c in found}
    return tuple(unique.values())[:_MAX_CITATIONS]


def _holder(
    text: str, item: int, asked: Asked, passages: Passages, *, needed: bool
) -> Sentence | None:
    """The sentence of an item that best holds an answer; None where none must and none does."""
    words = [w for w in re.findall(r"[^\W_]+", text) if len(w) > 1 or w.isdigit()]
    wanted = set(keys(words))
    sentences = passages.by_item.get(item, [])
    if not sentences:
        return None
    best = max(
        sentences, key=lambda s: (len(wanted & s.keys), judge(asked, passages, s).score, -s.index)
    )
    return best if not needed or wanted & best.keys else None
