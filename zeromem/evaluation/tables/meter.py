"""What memory operations cost: seconds, connections made, LLM tokens."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from zeromem.evaluation.types import Budget, Dataset, Method

_counting: list[Connections] = []
_hooked = False


@dataclass
class Connections:
    """Attempts of this process to connect to anything: no remote model answers without one."""

    n: int = 0


@contextmanager
def connections() -> Iterator[Connections]:
    """Count every attempt to connect while the context lasts, by Python's audit events."""
    global _hooked
    if not _hooked:
        sys.addaudithook(_hear)  # cannot be taken back; it is idle while nothing counts
        _hooked = True
    counted = Connections()
    _counting.append(counted)
    try:
        yield counted
    finally:
        # By identity: counters of equal value are different counters.
        _counting[:] = [c for c in _counting if c is not counted]


def _hear(event: str, _: Any) -> None:
    if event == "socket.connect":
        for counted in _counting:
            counted.n += 1


@dataclass(frozen=True)
class Spent:
    """The cost of a method's memory operations over a whole set, without any reader.

    Attributes
    ----------
    index, find : float
        Seconds of building and of querying.
    tokens : int, optional
        LLM tokens: what the method reports as its ``llm_tokens``; 0 where it reports none and
        connected to nothing; None where it reports none and did connect, so that nobody knows.
    connections : int
    n_queries : int
    """

    index: float
    find: float
    tokens: int | None
    connections: int
    n_queries: int


def operate(dataset: Dataset, method: Method, budget: Budget) -> Spent:
    """Build every history's memory and find evidence for every query, timed and metered."""
    index = find = 0.0
    n_queries = 0
    with connections() as counted:
        start = time.perf_counter()
        if dataset.shared is not None:
            method.share(dataset.shared)
        index += time.perf_counter() - start
        for history, questions in dataset.tasks:
            queries = [question.query for question in questions]
            start = time.perf_counter()
            method.index(history)
            indexed = time.perf_counter()
            method.find(queries, budget)
            index += indexed - start
            find += time.perf_counter() - indexed
            n_queries += len(queries)
    reported = getattr(method, "llm_tokens", None)
    tokens = int(reported) if reported is not None else None if counted.n else 0
    return Spent(index, find, tokens, counted.n, n_queries)
