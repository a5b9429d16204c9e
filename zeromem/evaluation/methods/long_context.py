"""LONG-LLM: no retrieval, the reader reads everything, window by window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from zeromem.evaluation.methods.base import evidence, profile_of
from zeromem.evaluation.methods.chunks import packed
from zeromem.evaluation.methods.features import FeatureBank
from zeromem.evaluation.methods.turns import Turns
from zeromem.evaluation.types import DEPTH, Budget, Found, History, Query
from zeromem.types import Evidence, QueryProfile


class LongContext:
    """Sliding windows over the whole history, each a block that is read alone.

    It ranks nothing, so it has no retrieval figures: its recall is 0 by definition and its
    evidence is everything.

    Parameters
    ----------
    bank : FeatureBank
    tokens : int
        Most encoder tokens of a window; a longer turn is a window of its own.
    overlap : int
        Most tokens that a window shares with the one before it.
    """

    name = "long-llm"
    calibrates = False
    budgeted = False

    def __init__(self, bank: FeatureBank, *, tokens: int = 8192, overlap: int = 512) -> None:
        self._bank = bank
        self._tokens = tokens
        self._overlap = overlap
        self._blocks: tuple[tuple[Evidence, ...], ...] = ()

    def index(self, history: History) -> None:
        """Cut the history into windows."""
        turns = self._bank.turns(history, Turns)
        order = turns.in_time
        windows = packed(turns.tokens[order], self._tokens, self._overlap)
        # Windows are the same for every query: none is asked about yet.
        nothing, scores = QueryProfile(""), np.zeros(len(turns))
        self._blocks = tuple(
            tuple(
                replace(item, why=f"window {i} of {len(windows)}")
                for item in evidence(turns, order[a:z].tolist(), scores, nothing, self.name)
            )
            for i, (a, z) in enumerate(windows, 1)
        )

    def rank(self, queries: Sequence[Query], depth: int = DEPTH) -> list[tuple[str, ...]]:
        """Return empty lists."""
        return [()] * len(queries)

    def find(self, queries: Sequence[Query], budget: Budget) -> list[Found]:
        """Return the whole history as blocks, whatever the budget."""
        return [Found(self._blocks, profile_of(query)) for query in queries]

    def share(self, history: History) -> None:
        """Make the features of the history's traces."""
        self._bank.features(history)

    def close(self) -> None:
        """Close the bank, which a run's methods share."""
        self._bank.close()
