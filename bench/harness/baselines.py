"""The baselines that zeromem is measured against, over the same turns and the same encoder.

``hybrid`` is the sum of four min-max-normalised scores, BM25 and dense, of the turn and of the
three-turn window around it, plus 0.4 where the turn's speaker is the one speaker that the question
names.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from harness.data import Memory
from harness.features import FeatureBank
from harness.methods import Outcome, Ranking, first_distinct
from zeromem.text import terms
from zeromem.types import Trace

Scores = NDArray[np.float64]
SPEAKER_BONUS = 0.4
USER_BONUS = 0.5
WINDOW = 3


class Turns:
    """A memory's turns and centred windows with their lexical and dense representations.

    Attributes
    ----------
    ids : list of str
        Trace id per turn.
    tokens : (n,) int
        Encoder tokens of each turn's own text.
    vectors, window_vectors : (n, dim) float32
        Unit rows.
    lexical, window_lexical : Lexical
    speakers : list of str
        Lower-case, "" where there is none.
    by_user : (n,) float64
        1 where a user's message is.
    """

    def __init__(self, memory: Memory, bank: FeatureBank) -> None:
        features = bank.features(memory)
        counts = [len(f.tokens) for f in features]
        owners = [t for t, n in zip(memory.traces, counts, strict=True) for _ in range(n)]
        self.ids = [t.id or "" for t in owners]
        self.speakers = [(t.speaker or "").casefold() for t in owners]
        self.by_user: Scores = np.array([t.role == "user" for t in owners], dtype=np.float64)
        self.tokens = np.concatenate([f.tokens for f in features] or [np.empty(0, np.int32)])
        raw = np.concatenate([f.vectors for f in features]).astype(np.float32)
        words = bank.words(memory)
        windows = _windows([_session(t) for t in owners])
        self.vectors = _unit(raw)
        self.lexical = Lexical(words)
        weighted = raw * np.maximum(self.tokens, 1)[:, None]
        # Where every session has one turn, windows are turns.
        self.window_vectors, self.window_lexical = self.vectors, self.lexical
        if any(len(window) > 1 for window in windows):
            self.window_vectors = _unit(np.stack([weighted[w].sum(axis=0) for w in windows]))
            self.window_lexical = Lexical([[t for i in w for t in words[i]] for w in windows])

    def __len__(self) -> int:
        return len(self.ids)


class Lexical:
    """BM25 over lists of terms (Lucene's form), written out plainly."""

    def __init__(self, documents: list[list[str]], *, k1: float = 1.5, b: float = 0.75) -> None:
        self._counts = [Counter(document) for document in documents]
        lengths = np.array([len(document) for document in documents], dtype=np.float64)
        mean = lengths.mean() if lengths.any() else 1.0
        self._norm: Scores = k1 * (1 - b + b * lengths / mean)

    def scores(self, query: list[str]) -> Scores:
        """Score every document; a term that is asked twice counts once."""
        n = len(self._counts)
        scores = np.zeros(n)
        for term in dict.fromkeys(query):
            tf = np.array([counts.get(term, 0) for counts in self._counts], dtype=np.float64)
            df = np.count_nonzero(tf)
            scores += np.log(1 + (n - df + 0.5) / (df + 0.5)) * tf / (tf + self._norm)
        return scores


def _session(trace: Trace) -> str:
    if trace.session is None and trace.role == "document":
        return f"#{trace.id}"
    return f"={trace.session}"


def _windows(sessions: list[str]) -> list[list[int]]:
    """Row positions of the three turns around each, within its session."""
    rows: dict[str, list[int]] = {}
    for row, session in enumerate(sessions):
        rows.setdefault(session, []).append(row)
    out: list[list[int]] = [[]] * len(sessions)
    reach = WINDOW // 2
    for members in rows.values():
        for at, row in enumerate(members):
            out[row] = members[max(0, at - reach) : at + reach + 1]
    return out


def _unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)


def minmax(scores: Scores) -> Scores:
    """Scale to [0, 1]; all zero where the scores do not differ."""
    low, high = scores.min(), scores.max()
    return (scores - low) / (high - low) if high > low else np.zeros_like(scores)


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


class Baseline:
    """A scorer as a method. R(q) is the plain list, cut at the token budget."""

    def __init__(self, name: str, bank: FeatureBank, token_budget: int) -> None:
        self.name = name
        self._score = SCORERS[name]
        self._bank = bank
        self._budget = token_budget

    def rank(self, memory: Memory, questions: Sequence[str]) -> Outcome:
        """Rank the memory's turns; ties break by row."""
        turns, ingest_seconds = self._bank.turns(memory, Turns)
        start = time.perf_counter()
        if not len(turns):
            return Outcome((Ranking(),) * len(questions), ingest_seconds, 0.0)
        vectors = self._bank.encode(questions)
        queries = terms(questions)
        rankings = tuple(
            self._ranking(turns, self._score(turns, text, query, vector))
            for text, query, vector in zip(questions, queries, vectors, strict=True)
        )
        return Outcome(rankings, ingest_seconds, time.perf_counter() - start)

    def _ranking(self, turns: Turns, scores: Scores) -> Ranking:
        order = np.lexsort((np.arange(len(scores)), -scores))
        # The budget counts whole turns: the first that does not fit ends the list.
        within = int(np.searchsorted(np.cumsum(turns.tokens[order]), self._budget, side="right"))
        main = first_distinct(turns.ids[row] for row in order)
        evidence = tuple((turns.ids[row], int(turns.tokens[row])) for row in order[:within])
        return Ranking(main, evidence)

    def share(self, memory: Memory) -> float:
        """Make the features of the memory's traces."""
        start = time.perf_counter()
        self._bank.features(memory)
        return time.perf_counter() - start

    def close(self) -> None:
        """Close the bank; the baselines share it."""
        self._bank.close()
