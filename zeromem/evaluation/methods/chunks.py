"""RAG as the paper runs it: fixed chunks by dense similarity, the best five read whole."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from zeromem.evaluation.methods.base import RankedList, evidence, profile_of
from zeromem.evaluation.methods.features import FeatureBank
from zeromem.evaluation.methods.turns import Scores, unit
from zeromem.evaluation.types import Budget, Found, Query


class Chunks(RankedList):
    """2,048-token chunks, the top five by cosine.

    A chunk is a run of whole turns in time order; its tokens are the encoder's, of the turns' own
    text, as for every budget here. Encoders read a few hundred tokens, so a chunk's vector is the
    mean of its turns' token states, weighed by their tokens: what mean pooling over the whole
    chunk would be, had each turn been read apart.

    Parameters
    ----------
    bank : FeatureBank
    tokens : int
        Most tokens of a chunk; a longer turn is a chunk of its own.
    top : int
        Chunks that the reader gets, whatever the budget.
    """

    name = "rag"
    budgeted = False

    def __init__(self, bank: FeatureBank, *, tokens: int = 2048, top: int = 5) -> None:
        super().__init__(bank)
        self._tokens = tokens
        self._top = top
        self._chunks: list[NDArray[np.intp]] = []
        self._vectors: NDArray[np.float32] = np.empty((0, 0), np.float32)

    def prepare(self) -> None:
        """Cut the history and pool each chunk."""
        order = self.turns.in_time
        self._chunks = [order[a:z] for a, z in packed(self.turns.tokens[order], self._tokens)]
        weighted = self.turns.raw * np.maximum(self.turns.tokens, 1)[:, None]
        pooled = [weighted[rows].sum(axis=0) for rows in self._chunks]
        self._vectors = unit(np.stack(pooled)) if pooled else weighted

    def scores(self, queries: Sequence[Query]) -> Scores:
        """Give each turn its chunk's cosine."""
        cosine = self._cosine(queries)
        scores = np.empty((len(queries), len(self.turns)))
        for i, rows in enumerate(self._chunks):
            scores[:, rows] = cosine[:, i : i + 1]
        return scores

    def find(self, queries: Sequence[Query], budget: Budget) -> list[Found]:
        """Return the turns of the best chunks, each chunk in time order."""
        out = []
        for query, scores, row in zip(
            queries, self._cosine(queries), self.scores(queries), strict=True
        ):
            best = np.lexsort((np.arange(len(scores)), -scores))[: self._top]
            rows = [int(r) for chunk in best for r in self._chunks[chunk]]
            asked = profile_of(query)
            out.append(Found((evidence(self.turns, rows, row, asked, self.name),), asked))
        return out

    def _cosine(self, queries: Sequence[Query]) -> Scores:
        if not self._chunks:
            return np.empty((len(queries), 0))
        vectors = self.bank.encode([query.text for query in queries])
        return np.asarray(vectors @ self._vectors.T, dtype=np.float64)


def packed(tokens: NDArray[np.int32], limit: int, overlap: int = 0) -> list[tuple[int, int]]:
    """Cut a sequence of turns into runs of whole turns.

    Parameters
    ----------
    tokens : (n,) int
        Of each turn.
    limit : int
        Most tokens of a run; a longer turn is a run of its own.
    overlap : int
        Most tokens at a run's start that the run before it ends with.

    Returns
    -------
    list of (start, stop)
    """
    total = np.concatenate([[0], np.cumsum(tokens)])
    runs: list[tuple[int, int]] = []
    start, n = 0, len(tokens)
    while start < n:
        stop = max(start + 1, int(np.searchsorted(total, total[start] + limit, side="right")) - 1)
        runs.append((start, stop))
        if stop == n:
            break
        # Back by the overlap, but not so far that the turn after this run would not fit either.
        low = max(total[stop] - overlap, total[stop + 1] - limit)
        start = min(int(np.searchsorted(total, low, side="left")), stop) if overlap else stop
    return runs
