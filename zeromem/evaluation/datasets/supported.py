"""HotpotQA's form of question, which 2WikiMultihopQA shares: a context, and facts in it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from zeromem.evaluation.datasets import base
from zeromem.evaluation.datasets.contexts import Item, Paragraph, Passages, distinct
from zeromem.evaluation.types import Query, Question
from zeromem.importers.records import as_object, fail, name, unique


def read(path: Path, *, limit: int | None, whole: bool) -> tuple[list[Item], Passages]:
    """Read a file's questions and passages.

    Parameters
    ----------
    path : Path
    limit : int, optional
        The first questions only.
    whole : bool
        Whether the later questions' passages are wanted too, to draw from.

    Raises
    ------
    ImportFormatError
        Naming file, record and field.
    """
    items: list[Item] = []
    passages = Passages()
    taken: dict[str, int] = {}
    with base.reading(path):
        for index, (where, value) in enumerate(base.read(path)):
            if index == limit and not whole:
                break
            record = as_object(value, where)
            id = name(record, "_id", where) or name(record, "id", where)
            at = f"{where} ({id!r})" if id else where
            own = [(paragraph, passages.add(paragraph)) for paragraph in paragraphs(record, at)]
            if not any(id for _, id in own):
                fail(at, "context", "an array with a paragraph that has text", record["context"])
            if limit is None or index < limit:
                question = _question(record, at, unique(id or str(index), taken), own)
                items.append(Item(question, distinct(id for _, id in own)))
    return items, passages


def _question(
    record: dict[str, Any], where: str, id: str, own: Sequence[tuple[Paragraph, str | None]]
) -> Question:
    found, n_bad = gold(supporting(record, where), own)
    return Question(
        id=id,
        query=Query(base.question_text(record, where)),
        category=name(record, "type", where) or "all",
        gold=found,
        n_bad_citations=n_bad,
        answers=base.answers(record, where),
    )


def decoded(record: dict[str, Any], field: str, where: str) -> Any:
    """Return a field that may be written as JSON inside a string, as tables hold it."""
    value = record.get(field)
    if isinstance(value, str):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            fail(where, field, "JSON", value)
    return value


def paragraphs(record: dict[str, Any], where: str) -> list[Paragraph]:
    """Read HotpotQA's ``context``.

    It is ``[[title, [sentence, ...]], ...]``, or by column as tables hold it:
    ``{"title": [...], "sentences" or "content": [[sentence, ...], ...]}``.
    """
    value = decoded(record, "context", where)
    expected = "an array of [title, [sentences]]"
    if isinstance(value, dict):
        titles, texts = value.get("title"), value.get("sentences", value.get("content"))
        if not isinstance(titles, list) or not isinstance(texts, list) or len(titles) != len(texts):
            fail(where, "context", f"{expected}, or an object of as many titles as texts", value)
        value = [list(pair) for pair in zip(titles, texts, strict=True)]
    if not isinstance(value, list) or not value:
        fail(where, "context", f"{expected} that is not empty", value)
    found = []
    for n, pair in enumerate(value):
        at = f"{where}, paragraph {n}"
        if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str):
            fail(at, "context", "[title, [sentences]]", pair)
        sentences = [pair[1]] if isinstance(pair[1], str) else pair[1]
        if not isinstance(sentences, list) or not all(isinstance(s, str) for s in sentences):
            fail(at, "context", "[title, [sentences]]", pair)
        found.append(Paragraph(pair[0], _joined(sentences), len(sentences)))
    return found


def _joined(sentences: Sequence[str]) -> str:
    """Join sentences, of which HotpotQA's begin with their space and others' do not."""
    text = ""
    for sentence in sentences:
        apart = not text or text[-1].isspace() or sentence[:1].isspace()
        text += sentence if apart else f" {sentence}"
    return text.strip()


def supporting(record: dict[str, Any], where: str) -> list[tuple[str, int]]:
    """Read ``supporting_facts``: ``[[title, sentence], ...]``, or by column.

    Absent (a test set's) means none.
    """
    value = decoded(record, "supporting_facts", where)
    expected = "an array of [title, sentence number]"
    if isinstance(value, dict):
        titles, places = value.get("title"), value.get("sent_id")
        if (
            not isinstance(titles, list)
            or not isinstance(places, list)
            or len(titles) != len(places)
        ):
            fail(where, "supporting_facts", f"{expected}, or an object of both", value)
        value = [list(pair) for pair in zip(titles, places, strict=True)]
    found = []
    for pair in [] if value is None else value if isinstance(value, list) else [value]:
        if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str):
            fail(where, "supporting_facts", expected, pair)
        place = pair[1]
        if not isinstance(place, int) or isinstance(place, bool):
            fail(where, "supporting_facts", expected, pair)
        found.append((pair[0], place))
    return found


def gold(
    facts: Sequence[tuple[str, int]],
    own: Sequence[tuple[Paragraph, str | None]],
) -> tuple[frozenset[str], int]:
    """Resolve supporting facts to passages.

    Where two of the question's paragraphs have the fact's title, the first that has such a
    sentence is meant.

    Returns
    -------
    found : frozenset of str
        Ids of passages.
    n_bad : int
        Titles that name none of the question's passages.
    """
    found: set[str] = set()
    missing: set[str] = set()
    for title, place in facts:
        named = [(paragraph, id) for paragraph, id in own if paragraph.title == title and id]
        fitting = [id for paragraph, id in named if place < paragraph.n_sentences]
        chosen = next(iter([*fitting, *(id for _, id in named)]), None)
        if chosen is None:
            missing.add(title)
        else:
            found.add(chosen)
    return frozenset(found), len(missing)
