"""A(q) of eq. 16: every typed candidate that R(q) holds, with its place in the evidence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from zeromem.answer import names, phrases, polarity, values
from zeromem.answer.asked import Asked
from zeromem.answer.candidate import Candidate
from zeromem.answer.passages import Passages, Sentence
from zeromem.answer.relations import PEOPLE, PLACES
from zeromem.types import AnswerType

_Extractor = Callable[[Asked, Passages, Sentence], Iterable[Candidate]]

_EXTRACTORS: dict[AnswerType, _Extractor] = {
    "date": values.dates,
    "duration": values.durations,
    "number": values.numbers,
    "yes_no": polarity.yes_no,
    "choice": polarity.choices,
    "person": names.people,
    "place": names.places,
    "text": phrases.texts,
    "list": partial(phrases.texts, kind="list"),
}
SCALARS: frozenset[AnswerType] = frozenset({"date", "duration", "number", "person", "place"})


def of_sentence(asked: Asked, passages: Passages, sentence: Sentence) -> list[Candidate]:
    """Candidates of the question's answer type in one sentence, in text order per rule."""
    kind = asked.profile.answer_type
    if kind == "list" and asked.focus in PLACES | PEOPLE:
        single: AnswerType = "place" if asked.focus in PLACES else "person"
        found = _EXTRACTORS[single](asked, passages, sentence)
        return [replace(c, kind="list") for c in found]
    return list(_EXTRACTORS[kind](asked, passages, sentence))


def extract(
    asked: Asked, passages: Passages, sentences: Sequence[Sentence] | None = None
) -> list[Candidate]:
    """Build A(q).

    Parameters
    ----------
    asked : Asked
    passages : Passages
    sentences : sequence of Sentence, optional
        Only these; all of R(q) without it.

    Returns
    -------
    list of Candidate
        In rank order of their evidence.
    """
    chosen = passages.sentences if sentences is None else sentences
    return [c for s in chosen for c in of_sentence(asked, passages, s)]
