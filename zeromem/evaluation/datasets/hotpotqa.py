"""HotpotQA: questions over two Wikipedia paragraphs; gold is the supporting paragraphs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Final

from zeromem.errors import InvalidInputError
from zeromem.evaluation.datasets import base, contexts, supported
from zeromem.evaluation.datasets.contexts import Item, Paragraph, Passages
from zeromem.evaluation.types import Dataset, Query, Question
from zeromem.importers.records import as_list, as_object, fail, name, required_text, unique

LONGEST: Final = 3200
"""Documents of MemAgent's longest context that the paper's Table 3 has: about 448K tokens."""


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the set's own options."""
    command.add_argument("--data", type=Path, help="public HotpotQA JSON; in place of the next two")
    command.add_argument("--questions", type=Path, help="questions that name passages, JSON Lines")
    command.add_argument("--pool", type=Path, help="their passages and others, JSON Lines")
    contexts.add_arguments(command)


def from_options(options: argparse.Namespace) -> Dataset:
    """Load what the command line names."""
    chosen = {"limit": options.limit, "documents": options.documents, "seed": options.seed}
    if options.data is not None and options.questions is None and options.pool is None:
        return load(options.data, **chosen)
    if options.data is None and options.questions is not None and options.pool is not None:
        if options.documents is None:
            chosen["documents"] = LONGEST
        return load_pool(options.questions, options.pool, **chosen)
    raise InvalidInputError("hotpotqa needs either --data, or --questions and --pool")


def load(
    path: Path, *, documents: int | None = None, seed: int = 0, limit: int | None = None
) -> Dataset:
    """Load a file in HotpotQA's public format.

    Parameters
    ----------
    path : Path
        An array of ``_id``, ``question``, ``answer``, ``type``, ``context`` and
        ``supporting_facts``.
    documents : int, optional
        Passages per context, drawn from all contexts of the file. Without it, a question's own.
    seed : int
    limit : int, optional
        The first questions only.

    Raises
    ------
    ImportFormatError
        Naming file, record and field.
    InvalidInputError
        Where the file has fewer passages than ``documents``.
    """
    items, passages = supported.read(path, limit=limit, whole=documents is not None)
    files = base.fingerprint(path)
    return contexts.make("hotpotqa", items, passages, files, documents=documents, seed=seed)


def load_pool(
    questions: Path, pool: Path, *, documents: int, seed: int = 0, limit: int | None = None
) -> Dataset:
    """Load questions that name their passages, and the pool that holds these and others.

    Parameters
    ----------
    questions : Path
        JSON Lines: ``id``, ``question``, ``answer``, ``type``, ``gold_titles``,
        ``context_titles``.
    pool : Path
        JSON Lines: ``title``, ``text``.
    documents, seed, limit
        As in :func:`load`.

    Raises
    ------
    InvalidInputError
        Where the pool has fewer passages than ``documents``.
    ImportFormatError
        Naming file, record and field; also where a question's own passage is not in the pool.
    """
    passages = Passages()
    with base.reading(pool):
        for where, value in base.read(pool):
            record = as_object(value, where)
            title, text = (required_text(record, field, where) for field in ("title", "text"))
            if passages.add(Paragraph(title, text)) is None:
                fail(where, "text", "a string that is not empty", text)
    items: list[Item] = []
    taken: dict[str, int] = {}
    with base.reading(questions):
        for index, (where, value) in enumerate(base.read(questions)):
            if index == limit:
                break
            record = as_object(value, where)
            id = unique(name(record, "id", where) or str(index), taken)
            items.append(_named(record, where, id, passages))
    files = {**base.fingerprint(questions), "pool": base.fingerprint(pool)}
    return contexts.make("hotpotqa", items, passages, files, documents=documents, seed=seed)


def _named(record: dict[str, Any], where: str, id: str, passages: Passages) -> Item:
    own = _titles(record, "context_titles", where)
    for title in own:
        if title not in passages.traces:
            fail(where, "context_titles", "an array of titles that are in the pool", title)
    cited = set(_titles(record, "gold_titles", where))
    gold = frozenset(cited.intersection(own))
    question = Question(
        id=id,
        query=Query(base.question_text(record, where)),
        category=name(record, "type", where) or "all",
        gold=gold,
        n_bad_citations=len(cited - gold),
        answers=base.answers(record, where),
    )
    return Item(question, contexts.distinct(own))


def _titles(record: dict[str, Any], field: str, where: str) -> list[str]:
    titles = as_list(record, field, where)
    for title in titles:
        if not isinstance(title, str):
            fail(where, field, "an array of strings", title)
    return titles
