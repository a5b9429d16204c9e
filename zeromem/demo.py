"""The demonstration: ten questions about a conversation that ships with the package."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING

from zeromem.importers import load
from zeromem.text import canonical
from zeromem.types import Added, Answer, Trace

if TYPE_CHECKING:
    from zeromem.memory import Memory

_SEPARATOR = re.compile(r",\s*(?:and\s+)?|\s+and\s+|;\s*")
_YES_NO = frozenset(("yes", "no"))


@dataclass(frozen=True, slots=True)
class Question:
    """A question with what counts as right.

    Attributes
    ----------
    text : str
    accepted : tuple of str
    kind : str
        What it tries out.
    evidence : tuple of str
        Ids of the traces that say so. For checking alone: no question is asked with them.
    """

    text: str
    accepted: tuple[str, ...]
    kind: str
    evidence: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """One question, asked.

    Attributes
    ----------
    question : Question
    answer : Answer
    seconds : mapping of str to float
        Wall-clock time by stage, reading and answer calibration included.
    right : bool
    """

    question: Question
    answer: Answer
    seconds: Mapping[str, float]
    right: bool


@dataclass(frozen=True, slots=True)
class Ingested:
    """What reading the conversation took.

    Attributes
    ----------
    added : tuple of Added
    seconds : mapping of str to float
    """

    added: tuple[Added, ...]
    seconds: Mapping[str, float]


def conversation() -> list[Trace]:
    """Return the conversation that ships with the package."""
    with resources.as_file(_data() / "demo_conversation.jsonl") as path:
        return list(load(path, "jsonl"))


def questions(file: Traversable | None = None) -> list[Question]:
    """Return the questions about it, or those of another file of the same form."""
    text = (file or _data() / "demo_questions.json").read_text(encoding="utf-8")
    return [
        Question(q["question"], tuple(q["answer"]), q["kind"], tuple(q["evidence"]))
        for q in json.loads(text)
    ]


def _data() -> Traversable:
    return resources.files("zeromem") / "data"


def ingest(memory: Memory, traces: Sequence[Trace], *, progress: bool | None = None) -> Ingested:
    """Remember the conversation and build the index, with the time of both."""
    start = time.perf_counter()
    added = memory.add_many(traces, progress=progress)
    stored = time.perf_counter()
    memory.stats()  # brings the index up to date
    done = time.perf_counter()
    return Ingested(tuple(added), {"log and features": stored - start, "index": done - stored})


def ask(memory: Memory, asked: Sequence[Question]) -> Iterator[Outcome]:
    """Ask each question with the reader that has no LLM, and judge the answer."""
    for question in asked:
        start = time.perf_counter()
        answer = memory.answer(question.text)
        total = time.perf_counter() - start
        stages = dict(answer.retrieval.seconds)
        stages["read and calibrate"] = max(0.0, total - sum(stages.values()))
        yield Outcome(question, answer, stages, is_right(answer.text, question.accepted))


def is_right(answer: str, accepted: Sequence[str]) -> bool:
    """Compare an answer with the accepted ones, form aside.

    Case, articles, punctuation at the edges, commas and the order of a list do not count. Of an
    answer to a yes/no question the first word does.

    >>> is_right("The white heron.", ["white heron"])
    True
    >>> is_right("Antwerp and Rotterdam", ["Rotterdam, Antwerp"])
    True
    >>> is_right("Antwerp", ["Rotterdam, Antwerp"])
    False
    """
    wanted = {_normal(a) for a in accepted}
    if wanted & _YES_NO:
        return "".join(re.findall(r"\w+", answer.casefold())[:1]) in wanted
    if not (given := _normal(answer)):
        return False
    return given in wanted or _items(answer) in [_items(a) for a in accepted]


def _normal(text: str) -> str:
    return canonical(text.replace(",", " "))


def _items(text: str) -> list[str]:
    """Items of a list in their comparable form, sorted."""
    return sorted(filter(None, (canonical(item) for item in _SEPARATOR.split(text))))
