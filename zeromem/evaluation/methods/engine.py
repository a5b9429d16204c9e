"""The engine's own turns, mentions and graph, for methods that retrieve through them otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from zeromem.evaluation.methods.base import RankedList
from zeromem.evaluation.methods.features import FeatureBank
from zeromem.evaluation.methods.turns import Turns
from zeromem.evaluation.methods.zero_mem import OpenMemories
from zeromem.evaluation.types import History, Query
from zeromem.index import Index
from zeromem.ingest.annotate import entity_names


class EngineTurns(Turns):
    """Turns as zeromem divides them: the rows of its index.

    Parameters
    ----------
    history : History
    index : Index
        Of exactly this history.
    lsn : sequence of int
        Where the log holds each trace, ascending.
    """

    def __init__(self, history: History, index: Index, lsn: Sequence[int]) -> None:
        turns = index.arrays.turns
        ends = np.searchsorted(turns.lsn, lsn, side="right")
        counts = ends - np.searchsorted(turns.lsn, lsn, side="left")
        self.place(history, counts.tolist(), turns.span, turns.n_tokens)
        self._index = index

    @cached_property
    def words(self) -> list[list[str]]:
        """Lexical terms of each turn."""
        turns = self._index.arrays.turns
        names, at = list(turns.vocabulary), turns.term_indptr.tolist()
        terms = [names[t] for t in turns.term.tolist()]
        return [terms[at[i] : at[i + 1]] for i in range(len(turns))]


class EngineList(RankedList):
    """A ranked list over the rows of zeromem's index, built once for all methods of a run.

    Parameters
    ----------
    bank : FeatureBank
        Encodes the queries.
    memories : OpenMemories
    """

    data: Index

    def __init__(self, bank: FeatureBank, memories: OpenMemories) -> None:
        super().__init__(bank)
        self._memories = memories

    def index(self, history: History) -> None:
        """Remember the history and take over the engine's index of it."""
        self._ordered = None
        self.data, lsn = self._memories.index(history)
        self.turns = EngineTurns(history, self.data, lsn)
        self.prepare()

    def share(self, history: History) -> None:
        """Remember the history, so that others find its features."""
        self._memories.get(history)

    def close(self) -> None:
        """Close memories and bank, which a run's methods share."""
        self._memories.close()
        super().close()

    def names_in(self, queries: Sequence[Query]) -> list[list[str]]:
        """Return the canonical entity names of each query."""
        texts = [query.text for query in queries]
        return entity_names(texts, self._memories.annotator.annotate(texts))
