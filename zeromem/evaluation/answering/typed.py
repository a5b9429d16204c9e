"""Answers by type, dates compared as periods, and what calibration did.

The types are read off gold answers and questions and serve this report alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from statistics import fmean
from typing import Any, Final

from zeromem.evaluation.answering.run import Answers
from zeromem.evaluation.answering.scoring import calibration
from zeromem.evaluation.metrics import answers as metrics
from zeromem.evaluation.types import Answered, Dataset, Question
from zeromem.query.forms import answer_form
from zeromem.timex import find_times, resolve

TYPES: Final = ("date", "number", "name", "place", "yes/no", "list", "other")

_POLARITY = re.compile(r"(?i)\W*(?:(?:likely|probably|most likely)\s+)?(?:yes|no)\b")
_NUMBER = re.compile(
    r"(?i)\d|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|once|twice|"
    r"thrice|dozen|hundred|thousand|several|many|few)\b"
)
_LIST = re.compile(r"(?i)[,;]|\s(?:and|&)\s")
_PERIOD = tuple[datetime, datetime]
_LONGEST_NAME = 5  # words


def answer_type(question: str, gold: str) -> str:
    """Classify an answer by its own form and its question's.

    Parameters
    ----------
    question, gold : str

    Returns
    -------
    str
        Of ``TYPES``. A length of time is a number. Where the two forms disagree the gold's counts:
        "When …?" answered by "after the move" is ``other``.
    """
    form = answer_form(question)
    if _POLARITY.match(gold):
        return "yes/no"
    if form == "date" and _is_time(gold):
        return "date"
    if form in ("number", "duration") and _NUMBER.search(gold):
        return "number"
    if periods(gold) and _is_time(gold):
        return "date"
    if re.fullmatch(r"[\W\d]+(?:\s\w+)?", gold) and _NUMBER.search(gold):
        return "number"
    if form == "place":  # "Graz, Austria" is one place
        several = form == "place" and len(_LIST.findall(gold)) > 1
        return "list" if several else "place"
    if _LIST.search(gold) and _few_words_each(gold):
        return "list"
    if _is_name(gold) or (form == "person" and len(gold.split()) <= _LONGEST_NAME):
        return "name"
    return "other"


def periods(text: str) -> frozenset[_PERIOD]:
    """Return the stretches of time that a text states by itself, relative ones included.

    "The week before 9 June 2023" is one; "last week" is none, as nobody says when it was said.
    """
    found = (resolve(t, None) for t in find_times(text))
    return frozenset((p.start, p.end) for p in found if p is not None)


def _is_time(text: str) -> bool:
    """Whether little is left of a text beside its times."""
    rest = text
    for mention in reversed(find_times(text)):
        if mention.kind not in ("duration", "set"):
            rest = rest[: mention.start] + rest[mention.end :]
    return rest != text and len(re.findall(r"\w+", rest)) <= 3


def _few_words_each(text: str) -> bool:
    return all(len(part.split()) <= 8 for part in _LIST.split(text) if part)


def _is_name(text: str) -> bool:
    """Every word begins large, but for little ones inside, or all of it is quoted."""
    words = text.strip(" .").split()
    if re.fullmatch(r"\s*[\"“].+[\"”]\s*\.?", text):
        return True
    if not 0 < len(words) <= _LONGEST_NAME or not words[0][:1].isupper():
        return False
    little = {"of", "the", "and", "in", "a", "an", "for", "to", "de", "von", "van"}
    named = all(w[:1].isupper() or w.lower() in little or w[:1].isdigit() for w in words)
    return named and (len(words) > 1 or words[0][1:] != "")


def report(dataset: Dataset, answers: Answers, *, corrected: bool = False) -> dict[str, Any]:
    """Report one method's answers by type.

    Parameters
    ----------
    dataset : Dataset
    answers : Answers
    corrected : bool
        By the corrected labels where the set has any.

    Returns
    -------
    dict
        ``by_type``: questions, GAM F1, and the F1 where a gold trace was shown; ``dates``: see
        :func:`dates`; ``calibration``: see
        :func:`zeromem.evaluation.answering.scoring.calibration`.
    """
    asked = [
        (history.name, dataset.corrected.get(q.id, q) if corrected else q)
        for history, questions in dataset.tasks
        for q in questions
    ]
    pairs = [(q, row) for (_, q), row in zip(asked, answers.rows, strict=True) if q.answers]
    kinds = [answer_type(q.query.text, q.answers[0]) for q, _ in pairs]
    return {
        "by_type": {
            kind: _of_type([p for p, k in zip(pairs, kinds, strict=True) if k == kind])
            for kind in TYPES
        },
        "dates": dates([p for p, k in zip(pairs, kinds, strict=True) if k == "date"]),
        "calibration": calibration(asked, answers.rows),
    }


def _of_type(pairs: Sequence[tuple[Question, Answered]]) -> dict[str, Any]:
    def f1(some: Sequence[tuple[Question, Answered]]) -> float | None:
        scores = [metrics.best(metrics.gam_f1, row.answer, q.answers) for q, row in some]
        return fmean(scores) if scores else None

    shown = [(q, row) for q, row in pairs if q.gold & set(row.evidence)]
    return {
        "n": len(pairs), "gam_f1": f1(pairs), "n_gold_shown": len(shown),
        "gam_f1_gold_shown": f1(shown),
    }  # fmt: skip


def dates(pairs: Sequence[tuple[Question, Answered]]) -> dict[str, Any]:
    """Compare dates as periods, among the questions whose gold turn the reader was shown.

    Parameters
    ----------
    pairs : sequence of (Question, Answered)
        Date questions.

    Returns
    -------
    dict
        ``n``; ``n_gold_shown``; ``n_gold_unresolved``, those whose gold states no period of its
        own and which are left out; ``n_compared``; ``exact``, the share of the compared whose
        answer denotes exactly the gold's period or periods; ``relative``: the same for gold
        answers that count from another date ("the week before 9 June 2023").
    """
    shown = [(q, row) for q, row in pairs if q.gold & set(row.evidence)]
    compared = [(q, row) for q, row in shown if any(map(periods, q.answers))]
    right = [is_exact(row.answer, q.answers) for q, row in compared]
    relative = [r for (q, _), r in zip(compared, right, strict=True) if _relative(q.answers[0])]
    return {
        "n": len(pairs),
        "n_gold_shown": len(shown),
        "n_gold_unresolved": len(shown) - len(compared),
        "n_compared": len(compared),
        "exact": fmean(right) if right else None,
        "relative": {"n": len(relative), "exact": fmean(relative) if relative else None},
    }


def is_exact(answer: str, golds: Sequence[str]) -> bool:
    """Whether an answer denotes exactly the period, or the periods, of one of the golds."""
    said = periods(answer)
    return bool(said) and any(said == periods(gold) for gold in golds)


def _relative(gold: str) -> bool:
    return re.search(r"(?i)\b(?:before|after|previous|following|prior)\b", gold) is not None
