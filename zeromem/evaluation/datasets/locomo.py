"""LoCoMo: two people's sessions over months; gold is turns, categories are kinds of question."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from zeromem.errors import InvalidInputError
from zeromem.evaluation.datasets import base
from zeromem.evaluation.types import Dataset, Query, Question
from zeromem.importers import locomo
from zeromem.importers.records import as_list, as_object, fail, name, text

CATEGORIES: Final = {
    1: "multi-hop",
    2: "temporal",
    3: "open-domain",
    4: "single-hop",
    5: "adversarial",
}
# "D8:6; D9:17" and "D9:1 D4:4" are several; "D30:05" is padded; "D:11:26" has a colon too many.
_CITATION: Final = re.compile(r"D\s*:?\s*(\d{1,9})\s*:\s*(\d{1,9})", re.ASCII)

Fix = dict[str, Any]


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the set's own options."""
    command.add_argument("--data", type=Path, required=True, help="official LoCoMo JSON")
    command.add_argument(
        "--corrections", type=Path, help="published label corrections, scored beside the originals"
    )
    command.add_argument(
        "--categories", default="1,2,3,4", help="category numbers to ask (default: %(default)s)"
    )
    command.add_argument("--history", help="only the conversation with this sample_id")


def from_options(options: argparse.Namespace) -> Dataset:
    """Load what the command line names."""
    return load(
        options.data,
        limit=options.limit,
        corrections=options.corrections,
        categories=_numbers(options.categories),
        history=options.history,
    )


def _numbers(listed: str) -> list[int]:
    try:
        return [int(number) for number in listed.split(",")]
    except ValueError:
        raise InvalidInputError(
            f"--categories must be numbers such as '1,2,3,4', got {listed!r}"
        ) from None


def load(
    path: Path,
    *,
    limit: int | None = None,
    corrections: Path | None = None,
    categories: Sequence[int] = (1, 2, 3, 4),
    history: str | None = None,
) -> Dataset:
    """Load a file in LoCoMo's official format.

    Parameters
    ----------
    path : Path
    limit : int, optional
        Questions in all, the first ones.
    corrections : Path, optional
        Published label corrections: an array of ``sample_id``, ``qa_index`` (from 0),
        ``correct_evidence`` and ``correct_answer``. The questions keep their original labels;
        ``Dataset.corrected`` has the questions with the corrected ones.
    categories : sequence of int
        The tables use 1 to 4. An adversarial question (5) has no right answer: what the file
        calls ``adversarial_answer`` is the wrong one.
    history : str, optional
        Only this conversation.

    Returns
    -------
    Dataset
        One history per conversation. A question's id is ``sample_id/index``, with the index in
        the sample's ``qa``.

    Raises
    ------
    ImportFormatError
        Naming file, record and field.
    InvalidInputError
        For a category that does not exist.
    """
    if unknown := set(categories) - set(CATEGORIES):
        raise InvalidInputError(
            f"--categories must be of {', '.join(map(str, CATEGORIES))}, got {min(unknown)}"
        )
    files = base.fingerprint(path)
    fixes: dict[tuple[str, int], Fix] = {}
    if corrections is not None:
        with base.reading(corrections):
            fixes = _fixes(corrections)
    tasks = base.Tasks(limit, history)
    wrong: list[tuple[Question, Fix, set[str]]] = []
    with base.reading(path):
        for number, (where, value) in enumerate(base.read(path), 1):
            sample = as_object(value, where)
            talk = locomo.conversation(sample, where, number, base.options(path))
            if (memory := tasks.history(talk)) is None:
                continue
            known = set(memory.session_of)
            questions = []
            place = f"{where} ({memory.name!r})"
            for index, item, at in _asked(sample, place, categories):
                question = _question(f"{memory.name}/{index}", item, at, known)
                questions.append(question)
                if (fix := fixes.get((memory.name, index))) is not None:
                    wrong.append((question, fix, known))
            tasks.add(memory, questions, place, "conversation")
            if tasks.full:
                break
    found = tasks.finish(files)
    asked = {question.id for _, questions in found for question in questions}
    corrected: dict[str, Question] = {}
    if corrections is not None:
        with base.reading(corrections):
            for question, fix, known in wrong:
                if question.id in asked:
                    corrected[question.id] = _corrected(question, fix, known)
        files["corrections"] = {**base.fingerprint(corrections), "n_applied": len(corrected)}
    return Dataset("locomo", found, files, corrected=corrected, cluster="history")


def _asked(
    sample: dict[str, Any], where: str, categories: Sequence[int]
) -> Iterator[tuple[int, dict[str, Any], str]]:
    """Yield the index, the record and the place of every question of the wanted categories."""
    for index, value in enumerate(as_list(sample, "qa", where)):
        item = as_object(value, at := f"{where}, qa {index}")
        category = name(item, "category", at)
        if category is None or category not in map(str, CATEGORIES):
            fail(at, "category", "a number from 1 to 5", item.get("category"))
        if int(category) in categories:
            yield index, item, at


def _question(id: str, item: dict[str, Any], where: str, known: set[str]) -> Question:
    gold, n_bad = citations(base.listed(item, "evidence", where), known)
    return Question(
        id=id,
        query=Query(base.question_text(item, where)),
        category=CATEGORIES[int(item["category"])],
        gold=gold,
        n_bad_citations=n_bad,
        answers=base.answers(item, where),
    )


def citations(labels: Sequence[Any], known: set[str]) -> tuple[frozenset[str], int]:
    """Read LoCoMo's evidence labels.

    Parameters
    ----------
    labels : sequence
        Strings that hold one or more turn ids, some padded or malformed.
    known : set of str
        The conversation's turn ids.

    Returns
    -------
    found : frozenset of str
        Cited ids that exist.
    n_bad : int
        Citations that name no turn.
    """
    found: set[str] = set()
    n_bad = 0
    for label in labels:
        cited = _CITATION.findall(str(label))
        n_bad += not cited
        for session, turn in cited:
            turn_id = f"D{int(session)}:{int(turn)}"
            if turn_id in known:
                found.add(turn_id)
            else:
                n_bad += 1
    return frozenset(found), n_bad


def _fixes(path: Path) -> dict[tuple[str, int], Fix]:
    """Read the corrections by sample and place in its ``qa``."""
    found: dict[tuple[str, int], Fix] = {}
    for where, value in base.read(path):
        fix = as_object(value, where)
        sample_id = name(fix, "sample_id", where)
        if sample_id is None:
            fail(where, "sample_id", "a string", None)
        index = fix.get("qa_index")
        if not isinstance(index, int) or isinstance(index, bool):
            fail(where, "qa_index", "a whole number", index)
        found[sample_id, index] = {
            "where": where,
            "question": text(fix, "question", where),
            "evidence": base.listed(fix, "correct_evidence", where),
            "answers": base.answers(fix, where, "correct_answer"),
            # A correction may concern the answer alone, or the citation alone.
            "fields": [field for field in ("correct_evidence", "correct_answer") if field in fix],
        }
    return found


def _corrected(question: Question, fix: Fix, known: set[str]) -> Question:
    said = fix["question"]
    if said is not None and said.split() != question.query.text.split():
        # Another version of the data numbers its questions otherwise.
        fail(fix["where"], "question", f"question {question.id}'s, {question.query.text!r}", said)
    if "correct_evidence" in fix["fields"]:
        gold, n_bad = citations(fix["evidence"], known)
        question = replace(question, gold=gold, n_bad_citations=n_bad)
    if "correct_answer" in fix["fields"]:
        question = replace(question, answers=fix["answers"])
    return question
