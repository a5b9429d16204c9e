"""MuSiQue: questions that need two to four hops; gold is the supporting paragraphs."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from zeromem.evaluation.datasets import base, contexts
from zeromem.evaluation.datasets.contexts import Item, Paragraph, Passages
from zeromem.evaluation.types import Dataset, Query, Question
from zeromem.importers.records import as_list, as_object, fail, name, required_text, text, unique

UNANSWERABLE: Final = "unanswerable"
_HOPS: Final = re.compile(r"\d+hop", re.ASCII)


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the set's own options."""
    command.add_argument("--data", type=Path, required=True, help="public JSON Lines")
    command.add_argument(
        "--with-unanswerable",
        action="store_true",
        help="ask the full version's unanswerable twins too",
    )
    contexts.add_arguments(command)


def from_options(options: argparse.Namespace) -> Dataset:
    """Load what the command line names."""
    return load(
        options.data,
        documents=options.documents,
        seed=options.seed,
        limit=options.limit,
        with_unanswerable=options.with_unanswerable,
    )


def load(
    path: Path,
    *,
    documents: int | None = None,
    seed: int = 0,
    limit: int | None = None,
    with_unanswerable: bool = False,
) -> Dataset:
    """Load a file in MuSiQue's public format.

    Parameters
    ----------
    path : Path
        JSON Lines (or an array) of ``id``, ``question``, ``answer``, ``answer_aliases``,
        ``answerable`` and ``paragraphs`` with ``title``, ``paragraph_text``, ``is_supporting``.
    documents : int, optional
        Passages per context, drawn from all contexts of the file but a twin's. Without it, a
        question's own.
    seed : int
    limit : int, optional
        The first questions only, of those that are asked.
    with_unanswerable : bool
        Whether questions marked unanswerable, which the full version has beside the answerable
        ones under the same id, are asked too: as "id/unanswerable", of category "unanswerable",
        with no answer and no evidence. They are left out and counted otherwise.

    Raises
    ------
    ImportFormatError
        Naming file, record and field.
    InvalidInputError
        Where the file has fewer passages than ``documents``.
    """
    items: list[tuple[str, Item]] = []
    passages = Passages()
    family: dict[str, set[str]] = {}
    taken: dict[str, int] = {}
    left_out = 0
    with base.reading(path):
        for where, value in base.read(path):
            if len(items) == limit and documents is None:
                break
            record = as_object(value, where)
            id = name(record, "id", where) or where.replace(" ", "-")
            at = f"{where} ({id!r})"
            own, gold, n_bad = _paragraphs(record, at, passages)
            family.setdefault(id, set()).update(own)
            answerable = _answerable(record, at)
            if not answerable and not with_unanswerable:
                left_out += 1
            elif limit is None or len(items) < limit:
                question = _question(record, at, id, gold if answerable else None, n_bad)
                question = replace(question, id=unique(question.id, taken))
                items.append((id, Item(question, contexts.distinct(own))))
    files = base.fingerprint(path)
    if left_out:
        files["n_unanswerable_left_out"] = left_out
    # A twin lacks a supporting paragraph; drawing it from the other would make it answerable.
    asked = [
        replace(item, barred=frozenset(family[id]) - frozenset(item.own)) for id, item in items
    ]
    return contexts.make("musique", asked, passages, files, documents=documents, seed=seed)


def _answerable(record: dict[str, Any], where: str) -> bool:
    value = record.get("answerable")
    if not isinstance(value, bool | None):
        fail(where, "answerable", "true or false", value)
    return value is not False


def _paragraphs(
    record: dict[str, Any], where: str, passages: Passages
) -> tuple[list[str], frozenset[str], int]:
    """Keep a question's paragraphs; return their ids, the supporting ones' and how many lack."""
    cited = _cited(record, where)
    own, gold, n_bad = [], set(), 0
    for n, value in enumerate(as_list(record, "paragraphs", where)):
        at = f"{where}, paragraph {n}"
        paragraph = as_object(value, at)
        title = text(paragraph, "title", at) or ""
        id = passages.add(Paragraph(title, required_text(paragraph, "paragraph_text", at)))
        supports = paragraph.get("is_supporting")
        if not isinstance(supports, bool | None):
            fail(at, "is_supporting", "true or false", supports)
        if supports is None:
            supports = paragraph.get("idx", n) in cited
        if id is None:
            n_bad += supports
            continue
        own.append(id)
        if supports:
            gold.add(id)
    if not own:
        fail(where, "paragraphs", "an array with a paragraph that has text", record["paragraphs"])
    return own, frozenset(gold), n_bad


def _cited(record: dict[str, Any], where: str) -> list[Any]:
    """Return the paragraphs that the steps name; null where a step's is missing."""
    return [
        as_object(step, f"{where}, step {n}").get("paragraph_support_idx")
        for n, step in enumerate(base.listed(record, "question_decomposition", where))
    ]


def _question(
    record: dict[str, Any], where: str, id: str, gold: frozenset[str] | None, n_bad: int
) -> Question:
    """Make the question; ``gold`` is None for one that cannot be answered."""
    query = Query(base.question_text(record, where))
    if gold is None:
        return Question(f"{id}/{UNANSWERABLE}", query, UNANSWERABLE, frozenset())
    right: Sequence[str] = base.answers(record, where)
    if right:
        right = (*right, *base.answers(record, where, "answer_aliases"))
    hops = match[0] if (match := _HOPS.match(id)) else "all"
    return Question(id, query, hops, gold, n_bad, tuple(dict.fromkeys(right)))
