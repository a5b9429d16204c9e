"""What a retrieval method is: traces and question texts in, ranked trace ids out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from harness.data import Memory

DEPTH = 20
"""Places of the main list: the largest k of recall@k."""


def first_distinct(ids: Iterable[str], n: int = DEPTH) -> tuple[str, ...]:
    """Take the first ``n`` distinct ids: several pieces of one trace count as the first of them."""
    return tuple(islice(dict.fromkeys(ids), n))


@dataclass(frozen=True)
class Ranking:
    """One question's outcome.

    Attributes
    ----------
    main : tuple of str
        Trace ids of the main list, best first, each once: a trace's rank is its best piece's.
    evidence : tuple of (str, int)
        R(q): trace id and encoder tokens of each item, within the token budget.
    """

    main: tuple[str, ...] = ()
    evidence: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Outcome:
    """A memory's rankings, one per question, and the wall-clock seconds they took.

    ``ingest_seconds`` covers all that is done before a question can be asked; it is 0 where
    another method of the same run did that work already.
    """

    rankings: tuple[Ranking, ...]
    ingest_seconds: float
    query_seconds: float


class Method(Protocol):
    """A retrieval method. It never sees an answer, a category or a gold label."""

    name: str

    def rank(self, memory: Memory, questions: Sequence[str]) -> Outcome:
        """Rank the memory's traces for each question."""
        ...

    def share(self, memory: Memory) -> float:
        """Take in what later memories draw on; return the seconds it took."""
        ...

    def close(self) -> None:
        """Release what the method holds."""
        ...
