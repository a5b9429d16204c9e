"""Questions over passages: each with its own paragraphs, or with a long context around them.

MemAgent's recipe for long contexts: a question's own paragraphs and random ones of other questions
up to a number of documents, shuffled. The seed and the question's place in the file decide both.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from zeromem.errors import InvalidInputError
from zeromem.evaluation.types import Dataset, History, Question, Task
from zeromem.importers.records import unique
from zeromem.types import Trace


@dataclass(frozen=True)
class Paragraph:
    """One titled paragraph of a question's context.

    Attributes
    ----------
    title, text : str
    n_sentences : int
        0 where the format does not divide the text.
    """

    title: str
    text: str
    n_sentences: int = 0


class Passages:
    """Paragraphs by id, each kept once however many questions have it.

    The id is the title; further texts under the same title are "title#2" and so on, in the
    file's order.
    """

    def __init__(self) -> None:
        self.traces: dict[str, Trace] = {}
        self._ids: dict[tuple[str, str], str] = {}
        self._taken: dict[str, int] = {}

    def add(self, paragraph: Paragraph) -> str | None:
        """Keep a paragraph and return its id; None for one without any text."""
        if not paragraph.text.strip():
            return None
        key = (paragraph.title, paragraph.text)
        if key not in self._ids:
            self._ids[key] = given = unique(paragraph.title or "untitled", self._taken)
            self.traces[given] = Trace(
                paragraph.text, id=given, role="document", title=paragraph.title
            )
        return self._ids[key]


@dataclass(frozen=True)
class Item:
    """A question and the ids of its own passages, in the file's order.

    Attributes
    ----------
    question : Question
    own : tuple of str
    barred : frozenset of str
        Passages that a longer context must not draw, as they would make the labels wrong.
    """

    question: Question
    own: tuple[str, ...]
    barred: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Contexts(Sequence[Task]):
    """One ephemeral history per question, made when asked for.

    Attributes
    ----------
    name : str
    items : sequence of Item
    traces : dict
        Passage by id.
    documents : int, optional
        Passages per context; a question's own ones are always all there. Without it, they are
        the context, in the file's order.
    seed : int
    """

    name: str
    items: Sequence[Item]
    traces: dict[str, Trace]
    documents: int | None
    seed: int
    _ids: list[str] = field(init=False, repr=False)
    _places: dict[str, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_ids", list(self.traces))
        object.__setattr__(self, "_places", {id: at for at, id in enumerate(self._ids)})

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Task:  # type: ignore[override]
        if not 0 <= index < len(self.items):
            raise IndexError(index)
        traces = tuple(self.traces[id] for id in self.context(index))
        memory = History(f"{self.name}-{index}", traces, ephemeral=True)
        return memory, [self.items[index].question]

    def __iter__(self) -> Iterator[Task]:
        return (self[index] for index in range(len(self)))

    def context(self, index: int) -> list[str]:
        """Draw the ids of a question's context."""
        item = self.items[index]
        own = list(item.own)
        if self.documents is None:
            return own
        rng = random.Random(f"{self.seed}/{index}")
        left_out = sorted({self._places[id] for id in (*own, *item.barred)})
        n_others = len(self._ids) - len(left_out)
        drawn = rng.sample(range(n_others), min(n_others, max(0, self.documents - len(own))))
        chosen = own + [self._ids[at] for at in _past(drawn, left_out)]
        rng.shuffle(chosen)
        return chosen


def _past(drawn: Sequence[int], left_out: Sequence[int]) -> Iterator[int]:
    """Turn places among the others into places among all.

    Parameters
    ----------
    drawn : sequence of int
        Places in the list that has the elements at ``left_out`` removed.
    left_out : sequence of int
        Ascending.
    """
    for place in drawn:
        for gap in left_out:
            if gap > place:
                break
            place += 1
        yield place


def make(
    name: str,
    items: Sequence[Item],
    passages: Passages,
    files: dict[str, Any],
    *,
    documents: int | None,
    seed: int,
) -> Dataset:
    """Make the data set; what its contexts draw on is shared, so that each is encoded once.

    Raises
    ------
    InvalidInputError
        Where there are fewer passages than ``documents``.
    """
    if documents is not None:
        if not 1 <= documents <= len(passages.traces):
            raise InvalidInputError(
                f"--documents must be at least 1 and at most the pool's {len(passages.traces)} "
                f"passages, got {documents}"
            )
        files["contexts"] = {"documents": documents, "seed": seed}
    tasks = Contexts(name, items, passages.traces, documents, seed)
    used: set[str] = set()
    for index in range(len(items)):
        used.update(tasks.context(index))
        if len(used) == len(passages.traces):
            break
    shared = tuple(trace for id, trace in passages.traces.items() if id in used)
    return Dataset(name, tasks, files, shared=History(f"{name}-pool", shared), sessions=False)


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the options of long contexts."""
    command.add_argument(
        "--documents", type=int, help="passages per context; default: the question's own"
    )
    command.add_argument("--seed", type=int, default=0, help="of the contexts' passages and order")


def distinct(ids: Iterable[str | None]) -> tuple[str, ...]:
    """Return the ids in order, each once."""
    return tuple(dict.fromkeys(id for id in ids if id is not None))
