"""LongMemEval: a haystack of sessions per question (oracle, S and M alike); gold is turns."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from pathlib import Path
from typing import Any, Final

from zeromem.evaluation.datasets import base
from zeromem.evaluation.types import Dataset, History, Query, Question, Task
from zeromem.importers import longmemeval
from zeromem.importers.longmemeval import Session, Turn
from zeromem.importers.records import Options, as_object, fail, name, unique
from zeromem.times import EventTime
from zeromem.types import Role, Trace

ABSTENTION: Final = "abstention"


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the set's own options."""
    command.add_argument("--data", type=Path, required=True, help="official JSON: oracle, S or M")


def from_options(options: argparse.Namespace) -> Dataset:
    """Load what the command line names."""
    return load(options.data, limit=options.limit)


@dataclass(frozen=True)
class Haystacks(Sequence[Task]):
    """One ephemeral history per question, made when asked for.

    A session that many haystacks hold is kept once, with its turns; its date is the haystack's.
    Sessions are named by their place by date: the file's ids say which hold the answer, and a
    question's id whether there is one.

    Attributes
    ----------
    options : Options
        Of the importer.
    questions : list of Question
    haystacks : list of list of (int, EventTime or None)
        For each question its sessions' place in ``contents`` and date.
    contents : list of tuple of Turn
    """

    options: Options
    questions: list[Question] = field(default_factory=list)
    haystacks: list[list[tuple[int, EventTime | None]]] = field(default_factory=list)
    contents: list[tuple[Turn, ...]] = field(default_factory=list)
    _places: dict[tuple[Turn, ...], int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.questions)

    def __getitem__(self, index: int) -> Task:  # type: ignore[override]
        if not 0 <= index < len(self.questions):
            raise IndexError(index)
        question = self.questions[index]
        traces = tuple(
            longmemeval.trace(turn, _name(n), time, self.options)
            for n, (place, time) in enumerate(self.haystacks[index], 1)
            for turn in self.contents[place]
        )
        return History(f"longmemeval-{index}", traces, ephemeral=True), [question]

    def __iter__(self) -> Iterator[Task]:
        return (self[index] for index in range(len(self)))

    def add(self, question: Question, sessions: Sequence[Session]) -> None:
        """Keep a question and its haystack."""
        haystack = []
        for session in sessions:
            place = self._places.setdefault(session.turns, len(self.contents))
            if place == len(self.contents):
                self.contents.append(session.turns)
            haystack.append((place, session.time))
        self.questions.append(question)
        self.haystacks.append(haystack)

    def shared(self) -> History:
        """Return every turn once, whichever haystacks hold it."""
        seen: set[tuple[Role, str]] = set()
        traces: list[Trace] = []
        for place, turns in enumerate(self.contents):
            for turn in turns:
                if (turn.role, turn.text) not in seen:
                    seen.add((turn.role, turn.text))
                    traces.append(longmemeval.trace(turn, str(place), None, self.options))
        return History("longmemeval-pool", tuple(traces))


def _name(n: int) -> str:
    return f"session_{n}"


def load(path: Path, *, limit: int | None = None) -> Dataset:
    """Load a file in LongMemEval's format: one history per question.

    The file is read record by record, and what several haystacks hold is kept once.

    Parameters
    ----------
    path : Path
    limit : int, optional
        The first questions only.

    Returns
    -------
    Dataset
        Gold are the turns labelled ``has_answer``, and ``gold_sessions`` the sessions in
        ``answer_session_ids``. Where no turn is labelled, there are the sessions alone. A
        question whose id ends in "_abs" is of category "abstention" and has nothing to find.

    Raises
    ------
    ImportFormatError
        Naming file, record and field.
    """
    files = base.fingerprint(path)
    options = base.options(path)
    tasks = Haystacks(options)
    taken: dict[str, int] = {}
    with base.reading(path):
        for index, (where, value) in enumerate(base.read(path)):
            if index == limit:
                break
            record = as_object(value, where)
            given = name(record, "question_id", where)
            if not given:
                fail(where, "question_id", "a string that is not empty", given)
            at = f"{where} ({given!r})"
            found = longmemeval.sessions(record, at, options)
            if not any(session.turns for session in found):
                fail(at, "haystack_sessions", "an array with a turn that says something", found)
            tasks.add(_question(record, at, unique(given, taken), found), found)
    return Dataset("longmemeval", tasks, files, shared=tasks.shared())


def _question(record: dict[str, Any], where: str, id: str, sessions: Sequence[Session]) -> Question:
    kind = name(record, "question_type", where) or "all"
    gold: frozenset[str] = frozenset()
    gold_sessions: frozenset[str] = frozenset()
    n_bad = 0
    if str(record["question_id"]).endswith("_abs"):
        kind = ABSTENTION
    else:
        gold, n_labelled = _turns(sessions)
        gold_sessions, n_missing = _sessions(record, where, sessions)
        n_bad = n_labelled - len(gold) + n_missing
    return Question(
        id=id,
        query=Query(
            base.question_text(record, where),
            longmemeval.date(record, "question_date", where, UTC),
        ),
        category=kind,
        gold=gold,
        n_bad_citations=n_bad,
        answers=base.answers(record, where),
        gold_sessions=gold_sessions,
    )


def _turns(sessions: Sequence[Session]) -> tuple[frozenset[str], int]:
    """Return the ids of the labelled turns that say something, and how many are labelled."""
    found = {
        f"{_name(n)}_{turn.number}"
        for n, session in enumerate(sessions, 1)
        for turn in session.turns
        if turn.number in session.answers
    }
    return frozenset(found), sum(len(session.answers) for session in sessions)


def _sessions(
    record: dict[str, Any], where: str, sessions: Sequence[Session]
) -> tuple[frozenset[str], int]:
    """Return the names of the cited sessions, and how many citations name none."""
    cited = {str(label) for label in base.listed(record, "answer_session_ids", where)}
    found = {n: s.id for n, s in enumerate(sessions, 1) if s.id in cited and s.turns}
    return frozenset(map(_name, found)), len(cited.difference(found.values()))
