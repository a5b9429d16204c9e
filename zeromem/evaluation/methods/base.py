"""RankedList: what a retrieval method of one's own derives from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from zeromem.evaluation.methods.features import FeatureBank
from zeromem.evaluation.methods.turns import Scores, Turns
from zeromem.evaluation.types import DEPTH, Budget, Found, History, Query
from zeromem.query.profile import profile
from zeromem.times import EventTime
from zeromem.types import Evidence, QueryProfile


class RankedList:
    """A method that scores every turn of a history; the list of turns is what the reader gets.

    A subclass gives ``name`` and :meth:`scores`, and where something can be made ready before the
    queries come, :meth:`prepare`.

    Parameters
    ----------
    bank : FeatureBank
        Turns with words and vectors, shared by the methods of a run.

    Attributes
    ----------
    name : str
    turns : Turns
        Those of the history in hand.
    """

    name = ""
    calibrates = False
    budgeted = True
    turns: Turns

    def __init__(self, bank: FeatureBank) -> None:
        self.bank = bank
        self._ordered: tuple[tuple[Query, ...], list[tuple[NDArray[np.intp], Scores]]] | None = None

    def prepare(self) -> None:
        """Make ready for queries about ``self.turns``; timed as memory construction."""

    def scores(self, queries: Sequence[Query]) -> NDArray[np.floating]:
        """Score all turns for each query: (n_queries, n_turns), higher is better.

        A turn that was not found at all gets minus infinity and is left out of the list.
        """
        raise NotImplementedError(f"{type(self).__name__} must have a method scores(queries)")

    def index(self, history: History) -> None:
        """Divide a history into turns, once for all methods of a run."""
        self._ordered = None
        self.turns = self.bank.turns(history, Turns)
        self.prepare()

    def rank(self, queries: Sequence[Query], depth: int = DEPTH) -> list[tuple[str, ...]]:
        """Rank traces by their best turns; ties break by row."""
        ids = self.turns.ids
        return [first_distinct((ids[r] for r in o), depth) for o, _ in self._order(queries)]

    def find(self, queries: Sequence[Query], budget: Budget) -> list[Found]:
        """Cut the list at the budget: the first turn that does not fit ends it."""
        return [
            self._found(query, order, scores, budget)
            for query, (order, scores) in zip(queries, self._order(queries), strict=True)
        ]

    def share(self, history: History) -> None:
        """Make the features of the history's traces."""
        self.bank.features(history)

    def close(self) -> None:
        """Close the bank, which a run's methods share."""
        self.bank.close()

    def _order(self, queries: Sequence[Query]) -> list[tuple[NDArray[np.intp], Scores]]:
        """Rows best first and all scores, per query; the latest batch is kept for ``find``."""
        batch = tuple(queries)
        if self._ordered is None or self._ordered[0] != batch:
            n = len(self.turns)
            scores = np.asarray(self.scores(batch) if n and batch else np.empty((len(batch), n)))
            if scores.shape != (len(batch), n):
                raise ValueError(
                    f"{type(self).__name__}.scores must return one row per query and one column "
                    f"per turn, {(len(batch), n)}, got {scores.shape}"
                )
            if np.isnan(scores).any():
                raise ValueError(
                    f"{type(self).__name__}.scores must not be NaN; -inf leaves a turn out"
                )
            self._ordered = (batch, [(_best_first(row), row) for row in scores])
        return self._ordered[1]

    def _found(
        self, query: Query, order: NDArray[np.intp], scores: Scores, budget: Budget
    ) -> Found:
        asked = profile_of(query)
        rows = within(order, self.turns.tokens, budget).tolist()
        return Found((evidence(self.turns, rows, scores, asked, self.name),), asked)


def _best_first(scores: Scores) -> NDArray[np.intp]:
    order = np.lexsort((np.arange(len(scores)), -scores))
    return order[scores[order] > -np.inf]


def first_distinct(ids: Iterable[str], n: int = DEPTH) -> tuple[str, ...]:
    """Take the first ``n`` distinct ids: several pieces of one trace count as the first of them."""
    return tuple(islice(dict.fromkeys(ids), n))


def within(order: NDArray[np.intp], tokens: NDArray[np.int32], budget: Budget) -> NDArray[np.intp]:
    """Take rows from the top of a list as long as the budget holds.

    Parameters
    ----------
    order : (n,) int
        Rows, best first.
    tokens : (n,) int
        Of each row.
    budget : Budget
        Whole turns count: the first that does not fit ends the list.
    """
    order = order[: budget.k]
    if budget.tokens is None:
        return order
    return order[: int(np.searchsorted(np.cumsum(tokens[order]), budget.tokens, side="right"))]


def evidence(
    turns: Turns, rows: Sequence[int], scores: Scores, asked: QueryProfile, name: str
) -> tuple[Evidence, ...]:
    """Give rows their text and provenance.

    Parameters
    ----------
    turns : Turns
    rows : sequence of int
        Best first.
    scores : (n,) float
        Of all turns.
    asked : QueryProfile
    name : str
        The method's, for the reason.
    """
    out = []
    for rank, row in enumerate(rows, 1):
        trace = turns.traces[row]
        start, end = turns.spans[row].tolist()
        said = set(turns.words[row])
        matched = tuple(word for word in asked.keywords if word in said)
        reason = f"{name} #{rank}" + (f"; matches {', '.join(matched)}" if matched else "")
        out.append(
            Evidence(
                text=trace.text[start:end],
                trace=trace,
                lsn=turns.lsn[row],
                start=start,
                end=end,
                kind="main",
                score=float(scores[row]),
                fused=float(scores[row]),
                main_rank=rank,
                graph_rank=None,
                hierarchy_rank=None,
                matched=matched,
                entities=(),
                why=reason,
                n_tokens=int(turns.tokens[row]),
            )
        )
    return tuple(out)


def profile_of(query: Query) -> QueryProfile:
    """Return eq. 6 of a query, from the query alone."""
    return _profile(query.text, query.asked_at)


@lru_cache(maxsize=8192)
def _profile(text: str, asked_at: EventTime | None) -> QueryProfile:
    return profile(text, reference_time=asked_at)
