"""R(q) = Rank(Filter(C(q))), eq. 15: deterministic, and each decision carries its reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zeromem.config import CalibrationConfig
from zeromem.index import Arrays
from zeromem.index.features import HAS_NUMBER, HAS_TIME
from zeromem.index.segment import NO_TIME
from zeromem.query.closure import Item
from zeromem.query.questions import Questions

Array = NDArray[Any]

_WANTED = {
    "date": HAS_TIME,
    "duration": HAS_TIME | HAS_NUMBER,
    "number": HAS_NUMBER,
}


@dataclass(frozen=True, slots=True)
class Calibrated:
    """R(q) of one question, and what was left out.

    Attributes
    ----------
    items : list of (Item, score)
        Best first.
    filtered : list of (row, reason)
    """

    items: list[tuple[Item, float]]
    filtered: list[tuple[int, str]]


def calibrate(
    items: list[Item],
    questions: Questions,
    question: int,
    arrays: Arrays,
    config: CalibrationConfig,
) -> Calibrated:
    """Filter C(q) by hard constraints, then rank it by compatibility with the profile.

    Parameters
    ----------
    items : list of Item
    questions : Questions
    question : int
        Its place in the batch.
    arrays : Arrays
    config : CalibrationConfig
    """
    profile, mask = questions.profiles[question], questions.mask[question]
    filtered = [(i.row, "outside the question's boundary") for i in items if not mask[i.row]]
    kept = [i for i in items if mask[i.row]]
    # "How many so far?" counts the older ones too.
    if profile.temporal.kind == "current" and not profile.aggregation:
        superseded = _superseded(kept, questions, question, arrays, config)
        filtered += superseded.items()
        kept = [i for i in kept if i.row not in superseded]
    flag = _WANTED.get(profile.answer_type, 0)
    start = arrays.turns.time[:, 0]
    scored = []
    for item in kept:
        score = item.fused + config.support * item.support
        score += config.subject * float(questions.subject[question, item.row])
        score += config.temporal * float(questions.in_period[question, item.row])
        if flag and arrays.turns.flags[item.row] & flag:
            score += config.answer_type
        scored.append((item, score))
    # Where the present state is asked for and two stand equal, the newer comes first.
    newest = profile.temporal.kind in ("current", "last")
    scored.sort(key=lambda s: (-s[1], -int(start[s[0].row]) if newest else 0, s[0].row))
    return Calibrated(scored, filtered)


def uncalibrated(items: list[Item]) -> Calibrated:
    """C(q) as it is: main items by eq. 13, then bridges, then neighbours."""
    return Calibrated([(item, item.fused) for item in items], [])


def _superseded(
    items: list[Item],
    questions: Questions,
    question: int,
    arrays: Arrays,
    config: CalibrationConfig,
) -> dict[int, str]:
    """Rows whose speaker says the same thing anew later, with the reason.

    Two turns state the same attribute when one speaker made both, both match the question in the
    same term or phrase, and their vectors are alike.
    """
    s, vectors = arrays.turns, arrays.turn.vectors
    span = slice(*questions.term_indptr[question : question + 2])
    asked = set(questions.term[span].tolist())
    words = {i.row: asked & set(_terms(i.row, arrays)) for i in items}
    timed = [i.row for i in items if s.time[i.row, 0] != NO_TIME and words[i.row]]
    found: dict[int, str] = {}
    for old in timed:
        for new in timed:
            if (
                s.time[new, 0] > s.time[old, 0]
                and s.speaker[new] == s.speaker[old]
                and s.role[new] == s.role[old]
                and len(words[new]) >= len(words[old])
                and words[new] & words[old]
                and float(np.dot(vectors[new], vectors[old])) >= config.superseded_similarity
            ):
                found[old] = f"superseded by a newer statement (log {int(s.lsn[new])})"
                break
    return found


def _terms(row: int, arrays: Arrays) -> list[int]:
    s = arrays.turns
    found: list[int] = s.term[s.term_indptr[row] : s.term_indptr[row + 1]].tolist()
    return found
