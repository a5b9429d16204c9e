"""BEAM: what a user and an assistant wrote; gold is messages, categories are abilities."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from zeromem.evaluation.datasets import base
from zeromem.evaluation.types import Dataset, Query, Question
from zeromem.importers import beam
from zeromem.importers.records import as_list, as_object, fail, name


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the set's own options."""
    command.add_argument("--data", type=Path, required=True, help="chats, JSON Lines")
    command.add_argument("--history", help="only the chat with this chat_id")


def from_options(options: argparse.Namespace) -> Dataset:
    """Load what the command line names."""
    return load(options.data, limit=options.limit, history=options.history)


def load(path: Path, *, limit: int | None = None, history: str | None = None) -> Dataset:
    """Load chats: one history per chat.

    Parameters
    ----------
    path : Path
        A chat a record: ``chat_id``, ``messages`` and ``questions``.
    limit : int, optional
        Questions in all, the first ones.
    history : str, optional
        Only this chat.

    Returns
    -------
    Dataset
        A question's id is ``chat_id/index``. Abstention has no evidence to find.

    Raises
    ------
    ImportFormatError
        Naming file, record and field.
    """
    files = base.fingerprint(path)
    tasks = base.Tasks(limit, history)
    with base.reading(path):
        for number, (where, value) in enumerate(base.read(path), 1):
            record = as_object(value, where)
            chat = beam.conversation(record, where, number, base.options(path))
            if (memory := tasks.history(chat)) is None:
                continue
            known = set(memory.session_of)
            at = f"{where} ({memory.name!r})"
            questions = list(_questions(record, memory.name, at, known))
            tasks.add(memory, questions, at, "messages")
            if tasks.full:
                break
    return Dataset("beam", tasks.finish(files), files, cluster="history")


def _questions(
    chat: dict[str, Any], chat_id: str, where: str, known: set[str]
) -> Iterator[Question]:
    for index, value in enumerate(as_list(chat, "questions", where)):
        item = as_object(value, at := f"{where}, question {index}")
        ability = name(item, "ability", at)
        if not ability:
            fail(at, "ability", "a string that is not empty", ability)
        cited = [str(message) for message in _flat(base.listed(item, "evidence", at))]
        yield Question(
            id=f"{chat_id}/{index}",
            query=Query(base.question_text(item, at)),
            category=ability,
            gold=frozenset(cited) & known,
            n_bad_citations=sum(message not in known for message in cited),
            answers=base.answers(item, at),
        )


def _flat(labels: list[Any]) -> Iterator[Any]:
    """Yield the ids of evidence that is grouped by what each group shows."""
    for label in labels:
        if isinstance(label, list):
            yield from _flat(label)
        else:
            yield label
