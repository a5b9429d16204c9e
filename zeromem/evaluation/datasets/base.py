"""What every data set's loader needs: files that explain themselves, labels, ids, the first N."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from zeromem.errors import ImportFormatError, InvalidInputError
from zeromem.evaluation.types import Dataset, History, Question, Task
from zeromem.importers.records import (
    Conversation,
    Options,
    Record,
    fail,
    records,
    text,
    unique,
)
from zeromem.types import Trace


def fingerprint(path: Path) -> dict[str, Any]:
    """Return base name and SHA-256 of a data file."""
    with path.open("rb") as file:
        return {"name": path.name, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Put the file's name before the record and the field that an error names."""
    try:
        yield
    except ImportFormatError as error:
        raise ImportFormatError(f"{path.name}: {error}") from None


def read(path: Path) -> Iterator[Record]:
    """Read the records of a JSON array or of JSON Lines, refusing a file without any.

    Raises
    ------
    ImportFormatError
        Naming the record, but not the file; see :func:`reading`.
    """
    empty = True
    for record in records(path):
        empty = False
        yield record
    if empty:
        raise ImportFormatError("holds no record; expected a JSON array or JSON Lines")


def options(path: Path) -> Options:
    """Importer options under which a trace names its file as its source."""
    return Options(zone=None, source=path.name, keep_system=False)


def question_text(record: dict[str, Any], where: str) -> str:
    """Return the field ``question``, which has to say something."""
    value = text(record, "question", where)
    if value is None or not value.strip():
        fail(where, "question", "a string that is not empty", value)
    return value


def answers(record: dict[str, Any], where: str, field: str = "answer") -> tuple[str, ...]:
    """Return the right answers: a string, a number or an array of these; absent means none."""
    value = record.get(field)
    found = []
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, bool) or not isinstance(item, str | int | float | None):
            fail(where, field, "a string, a number or an array of these", value)
        if item is not None and (said := str(item)).strip():
            found.append(said)
    return tuple(dict.fromkeys(found))


def listed(record: dict[str, Any], field: str, where: str) -> list[Any]:
    """Return an array that may be absent, null or one bare string or number."""
    value = record.get(field)
    if value is None:
        return []
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return [value]
    if not isinstance(value, list):
        fail(where, field, "an array", value)
    return value


def history(name: str, traces: Sequence[Trace], *, ephemeral: bool = False) -> tuple[History, int]:
    """Make a history whose traces all have an id of their own.

    Returns
    -------
    history : History
        A trace without an id is named by its session and its place in the file.
    n_repeated : int
        Traces whose id was taken by an earlier one, which keeps it: a label means the first.

    Notes
    -----
    A turn of white space says nothing that could be remembered and is left out; a label that
    cites it names nothing.
    """
    taken: dict[str, int] = {}
    out, n_repeated = [], 0
    for n, trace in enumerate(traces, 1):
        if not trace.text.strip():
            continue
        wanted = trace.id or f"{trace.session or ''}/{n}"
        given = unique(wanted, taken)
        n_repeated += given != wanted
        out.append(trace if given == trace.id else replace(trace, id=given))
    return History(name, tuple(out), ephemeral), n_repeated


class Tasks:
    """Tasks up to a limit of questions, counted over all histories.

    Parameters
    ----------
    limit : int, optional
    only : str, optional
        The one history wanted.
    """

    def __init__(self, limit: int | None, only: str | None = None) -> None:
        self.tasks: list[Task] = []
        self.n_repeated = 0
        self._left = limit
        self._only = only
        self._names: dict[str, int] = {}

    @property
    def full(self) -> bool:
        """Whether no further question is wanted."""
        return self._left == 0

    def history(self, conversation: Conversation) -> History | None:
        """Make the history of a conversation, under a name of its own, where it is wanted."""
        name = unique(str(conversation.name), self._names)
        if self._only not in (None, name):
            return None
        made, repeated = history(name, tuple(conversation.traces))
        self.n_repeated += repeated
        return made

    def add(self, memory: History, questions: Sequence[Question], where: str, field: str) -> None:
        """Take a history's questions as far as the limit allows; without any it is left out.

        ``where`` and ``field`` are named where there is nothing to ask about.
        """
        taken = list(questions[: self._left])
        if self._left is not None:
            self._left -= len(taken)
        if taken and not memory.traces:
            raise ImportFormatError(f"{where}: field {field!r} must hold a turn, got none")
        if taken:
            self.tasks.append((memory, taken))

    def finish(self, files: dict[str, Any]) -> list[Task]:
        """Return the tasks, noting in ``files`` how many traces had an id that was taken.

        Raises
        ------
        InvalidInputError
            Where the one history wanted is not in the file.
        """
        if self._only is not None and self._only not in self._names:
            shown = ", ".join(sorted(self._names)[:12])
            raise InvalidInputError(
                f"--history must name one in {files['name']} ({shown}), got {self._only!r}"
            )
        if self.n_repeated:
            files["n_repeated_ids"] = self.n_repeated
        return self.tasks


def with_labels(dataset: Dataset, labels: Mapping[str, Question]) -> Dataset:
    """Return the data set with some questions' labels replaced.

    Parameters
    ----------
    dataset : Dataset
    labels : mapping
        Question by id; ``dataset.corrected`` gives the published corrections.
    """
    tasks = [(memory, [labels.get(q.id, q) for q in asked]) for memory, asked in dataset.tasks]
    return replace(dataset, tasks=tasks, corrected={})
