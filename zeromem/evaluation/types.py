"""What an evaluation is made of: histories, questions with hidden labels, and methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from zeromem.times import EventTime
from zeromem.types import Evidence, QueryProfile, Trace

DEPTH = 20
"""Places of the main list: the largest k of recall@k."""


@dataclass(frozen=True)
class History:
    """One memory's worth of traces (eq. 1), all that a method may index.

    Attributes
    ----------
    name : str
    traces : tuple of Trace
        With ids, unique.
    ephemeral : bool
        One question's own context: indexed, asked and forgotten.
    """

    name: str
    traces: tuple[Trace, ...]
    ephemeral: bool = False

    @cached_property
    def session_of(self) -> dict[str, str]:
        """Session by trace id; a document without one is its own."""
        return {t.id or "": t.session if t.session is not None else f"#{t.id}" for t in self.traces}


@dataclass(frozen=True)
class Query:
    """All of a question that a method, a reader or a prompt may see.

    Attributes
    ----------
    text : str
    asked_at : EventTime, optional
        Where the data set says when it was asked.
    """

    text: str
    asked_at: EventTime | None = None


@dataclass(frozen=True)
class Question:
    """A query with its labels, which stay with the scorer.

    Attributes
    ----------
    id : str
        Unique within its data set.
    query : Query
    category : str
    gold : frozenset of str
        Ids of the traces that carry the answer.
    n_bad_citations : int
        Citations that name no trace.
    answers : tuple of str
        The right answers, the first the main one; empty where there is none.
    gold_sessions : frozenset of str
        Sessions that carry the answer, where the data set names them itself; where it is empty,
        they are those of ``gold``.
    """

    id: str
    query: Query
    category: str
    gold: frozenset[str]
    n_bad_citations: int = 0
    answers: tuple[str, ...] = ()
    gold_sessions: frozenset[str] = frozenset()


Task = tuple[History, list[Question]]


@dataclass(frozen=True)
class Dataset:
    """An evaluation set.

    Attributes
    ----------
    name : str
    tasks : sequence of (History, list of Question)
        May be made one at a time while iterated over.
    files : dict
        What ran: base names and SHA-256 of the files.
    shared : History, optional
        Every trace that the tasks' histories draw on, so that each is encoded once.
    sessions : bool
        Whether session-level figures say anything the trace-level ones do not.
    cluster : str
        What the bootstrap resamples: ``"history"`` or ``"question"``.
    corrected : mapping
        Question with its published label corrections, by id, for those that have any; the tasks'
        questions keep the labels of the file. Scores with ``corrected.get(q.id, q)`` stand beside
        scores with ``q``.
    """

    name: str
    tasks: Sequence[Task]
    files: dict[str, Any]
    shared: History | None = None
    sessions: bool = True
    cluster: str = "question"
    corrected: Mapping[str, Question] = field(default_factory=dict)


@dataclass(frozen=True)
class Budget:
    """How much evidence every method of a table may give the reader.

    Attributes
    ----------
    k : int, optional
        Retrieved items; zero-mem's closure adds support to its k main items within the same
        tokens. Without it, as many as fit.
    tokens : int, optional
        Encoder tokens of the evidence's text.
    """

    k: int | None = None
    tokens: int | None = 1200


@dataclass(frozen=True)
class Found:
    """What a method gives the reader for one query.

    Attributes
    ----------
    blocks : tuple of (tuple of Evidence)
        Evidence best first. Nearly always one block; a method that reads a history block by block
        (LONG-LLM) gives several, each is read alone and the most confident answer holds.
    profile : QueryProfile
        eq. 6 of the query, from the query alone.
    """

    blocks: tuple[tuple[Evidence, ...], ...]
    profile: QueryProfile

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """All blocks in one."""
        return tuple(item for block in self.blocks for item in block)


class Method(Protocol):
    """A retrieval method. It never sees an answer, a category or a gold label.

    The harness calls :meth:`index` once per history and times it as memory construction, then
    :meth:`rank` and :meth:`find` with all of the history's queries, each timed as querying.

    Attributes
    ----------
    name : str
    calibrates : bool
        Whether the reader's answer goes through answer calibration (eq. 16), which is part of
        zero-mem and of nothing else.
    budgeted : bool
        Whether it keeps within :class:`Budget`; tables mark those that read more by definition.
    """

    name: str
    calibrates: bool
    budgeted: bool

    def index(self, history: History) -> None:
        """Make ready for queries about this history, and let go of the one before."""
        ...

    def rank(self, queries: Sequence[Query], depth: int = DEPTH) -> list[tuple[str, ...]]:
        """Return the main list per query: up to ``depth`` distinct trace ids, best first."""
        ...

    def find(self, queries: Sequence[Query], budget: Budget) -> list[Found]:
        """Return the evidence per query."""
        ...

    def share(self, history: History) -> None:
        """Take in what later histories draw on (passages that many contexts share)."""
        ...

    def close(self) -> None:
        """Release what the method holds; may be called twice."""
        ...


@dataclass(frozen=True)
class Answered:
    """One question's outcome under one method and reader, before scoring.

    Attributes
    ----------
    question_id : str
    draft, answer : str
        a_0 and a of eq. 16; alike where the method does not calibrate.
    actions : tuple of str
        Calibration steps taken, ``keep`` included.
    evidence : tuple of str
        Trace ids shown to the reader.
    tokens : dict
        ``evidence`` (encoder tokens), ``calls``, and the reader's ``prompt``, ``cached`` and
        ``completion``: 0 without an LLM, absent where an endpoint reports none.
    seconds : float
        Of the reader's call when it was made; a reply from the cache keeps its first time.
    error : str, optional
        Why the sample failed; it scores 0 and is counted.
    """

    question_id: str
    draft: str
    answer: str
    actions: tuple[str, ...]
    evidence: tuple[str, ...]
    tokens: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    error: str | None = None
