"""The baselines that zeromem is measured against, over the same turns and the same encoder.

``hybrid`` is the sum of four min-max-normalised scores, BM25 and dense, of the turn and of the
three-turn window around it, plus 0.4 where the turn's speaker is the one speaker that the question
names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from zeromem.evaluation.methods.base import RankedList
from zeromem.evaluation.methods.features import FeatureBank
from zeromem.evaluation.methods.turns import Scores, Turns, minmax
from zeromem.evaluation.types import Query
from zeromem.text import terms

SPEAKER_BONUS = 0.4
USER_BONUS = 0.5


def bm25(turns: Turns, text: str, query: list[str], vector: NDArray[np.float32]) -> Scores:
    """BM25 over turns."""
    return turns.lexical.scores(query)


def dense(turns: Turns, text: str, query: list[str], vector: NDArray[np.float32]) -> Scores:
    """Cosine over turns."""
    return np.asarray(turns.vectors @ vector, dtype=np.float64)


def bm25_dense(turns: Turns, text: str, query: list[str], vector: NDArray[np.float32]) -> Scores:
    """Normalised BM25 and dense scores over turns, summed."""
    return minmax(bm25(turns, text, query, vector)) + minmax(dense(turns, text, query, vector))


def with_windows(turns: Turns, text: str, query: list[str], vector: NDArray[np.float32]) -> Scores:
    """``bm25_dense`` plus the same two scores over windows."""
    return (
        bm25_dense(turns, text, query, vector)
        + minmax(turns.window_lexical.scores(query))
        + minmax(np.asarray(turns.window_vectors @ vector, dtype=np.float64))
    )


def with_users(turns: Turns, text: str, query: list[str], vector: NDArray[np.float32]) -> Scores:
    """``bm25_dense`` plus a bonus for what the user said, not the assistant."""
    return bm25_dense(turns, text, query, vector) + USER_BONUS * turns.by_user


def hybrid(turns: Turns, text: str, query: list[str], vector: NDArray[np.float32]) -> Scores:
    """``with_windows`` plus the named speaker's bonus."""
    scores = with_windows(turns, text, query, vector)
    named = [
        speaker
        for speaker in set(turns.speakers)
        if speaker and re.search(rf"\b{re.escape(speaker)}\b", text.casefold())
    ]
    if len(named) == 1:
        scores = scores + SPEAKER_BONUS * np.array([s == named[0] for s in turns.speakers])
    return scores


Scorer = Callable[[Turns, str, list[str], NDArray[np.float32]], Scores]
SCORERS: dict[str, Scorer] = {
    "hybrid": hybrid,
    "bm25": bm25,
    "dense": dense,
    "bm25+dense": bm25_dense,
    "bm25+dense+windows": with_windows,
    "bm25+dense+user": with_users,
}


_READ = ("vectors", "lexical")
_READ_WIDE = (*_READ, "window_vectors", "window_lexical")
# What of the turns each scorer reads: made while indexing, so that no query pays for it.
READS: dict[str, tuple[str, ...]] = {
    "bm25": ("lexical",),
    "dense": ("vectors",),
    "hybrid": _READ_WIDE,
    "bm25+dense+windows": _READ_WIDE,
}


class Baseline(RankedList):
    """A scorer as a method.

    Parameters
    ----------
    name : str
        Key of ``SCORERS``.
    bank : FeatureBank
    """

    def __init__(self, name: str, bank: FeatureBank) -> None:
        super().__init__(bank)
        self.name = name
        self._score = SCORERS[name]

    def prepare(self) -> None:
        """Make the representations that the scorer reads."""
        if len(self.turns):
            for part in READS.get(self.name, _READ):
                getattr(self.turns, part)

    def scores(self, queries: Sequence[Query]) -> Scores:
        """Score all turns for each query."""
        texts = [query.text for query in queries]
        return np.stack(
            [
                self._score(self.turns, text, words, vector)
                for text, words, vector in zip(
                    texts, terms(texts), self.bank.encode(texts), strict=True
                )
            ]
        )
