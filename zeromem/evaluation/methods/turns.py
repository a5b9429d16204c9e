"""A history as the baselines see it: turns with their words and vectors, and three-turn windows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from zeromem.evaluation.methods.features import FeatureBank, texts_of
from zeromem.evaluation.types import History
from zeromem.types import Trace

Scores = NDArray[np.float64]
WINDOW = 3


class Turns:
    """A history's turns, in time order. What is costly is made when first read.

    Parameters
    ----------
    history : History
    bank : FeatureBank

    Attributes
    ----------
    history : History
    traces : list of Trace
        The trace of each turn: a long trace has several.
    ids : list of str
        Trace id per turn.
    spans : (n, 2) int32
        Character range of each turn in its trace's text.
    lsn : list of int
        Place of each turn's trace in the history, from 1.
    tokens : (n,) int
        Encoder tokens of each turn's own text.
    speakers : list of str
        Lower-case, "" where there is none.
    by_user : (n,) float64
        1 where a user's message is.
    """

    def __init__(self, history: History, bank: FeatureBank) -> None:
        features = bank.features(history)
        spans = np.concatenate([np.empty((0, 2), np.int32), *(f.spans for f in features)])
        tokens = np.concatenate([np.empty(0, np.int32), *(f.tokens for f in features)])
        self.place(history, [len(f.tokens) for f in features], spans, tokens)
        self._bank = bank
        self._vectors = [f.vectors for f in features]

    def place(
        self,
        history: History,
        counts: Sequence[int],
        spans: NDArray[np.int32],
        tokens: NDArray[np.int32],
    ) -> None:
        """Lay out turns: ``counts[i]`` of them belong to trace ``i``."""
        self.history = history
        self.traces = [t for t, n in zip(history.traces, counts, strict=True) for _ in range(n)]
        self.lsn = [i for i, n in enumerate(counts, 1) for _ in range(n)]
        self.ids = [t.id or "" for t in self.traces]
        self.speakers = [(t.speaker or "").casefold() for t in self.traces]
        self.by_user: Scores = np.array([t.role == "user" for t in self.traces], dtype=np.float64)
        self.spans = spans
        self.tokens = tokens

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def texts(self) -> list[str]:
        """Each turn as it is encoded: ``speaker: text``, or title and text."""
        return [
            texts_of(trace, self.spans[row : row + 1])[0] for row, trace in enumerate(self.traces)
        ]

    @cached_property
    def in_time(self) -> NDArray[np.intp]:
        """Rows in time order; in the history's own order where a trace has no time."""
        times = [trace.time for trace in self.traces]
        if any(time is None for time in times):
            return np.arange(len(times))
        starts = [time.start for time in times if time is not None]
        return np.array(sorted(range(len(starts)), key=starts.__getitem__), dtype=np.intp)

    @cached_property
    def words(self) -> list[list[str]]:
        """Lexical terms of each turn."""
        return self._bank.words(self.history)

    @cached_property
    def raw(self) -> NDArray[np.float32]:
        """Means of token states, (n, dim), not normalised."""
        empty = np.empty((0, self._bank.encoder.dim), np.float16)
        return np.concatenate([empty, *self._vectors]).astype(np.float32)

    @cached_property
    def vectors(self) -> NDArray[np.float32]:
        """Unit rows, (n, dim)."""
        return unit(self.raw)

    @cached_property
    def lexical(self) -> Lexical:
        """BM25 over turns."""
        return Lexical(self.words)

    @cached_property
    def windows(self) -> list[list[int]]:
        """Rows of the three turns around each, within its session."""
        rows: dict[str, list[int]] = {}
        for row, trace in enumerate(self.traces):
            rows.setdefault(_session(trace), []).append(row)
        out: list[list[int]] = [[]] * len(self.traces)
        reach = WINDOW // 2
        for members in rows.values():
            for at, row in enumerate(members):
                out[row] = members[max(0, at - reach) : at + reach + 1]
        return out

    @cached_property
    def window_vectors(self) -> NDArray[np.float32]:
        """Unit rows, (n, dim): means over each window's tokens."""
        if not self._wide:
            return self.vectors
        weighted = self.raw * np.maximum(self.tokens, 1)[:, None]
        return unit(np.stack([weighted[w].sum(axis=0) for w in self.windows]))

    @cached_property
    def window_lexical(self) -> Lexical:
        """BM25 over windows."""
        if not self._wide:
            return self.lexical
        return Lexical([[t for i in w for t in self.words[i]] for w in self.windows])

    @cached_property
    def _wide(self) -> bool:
        # Where every session has one turn, windows are turns.
        return any(len(window) > 1 for window in self.windows)


class Lexical:
    """BM25 over lists of terms (Lucene's form), written out plainly."""

    def __init__(
        self, documents: Sequence[Sequence[str]], *, k1: float = 1.5, b: float = 0.75
    ) -> None:
        self._n = len(documents)
        rows: dict[str, list[int]] = {}
        counts: dict[str, list[int]] = {}
        for row, document in enumerate(documents):
            for term, count in Counter(document).items():
                rows.setdefault(term, []).append(row)
                counts.setdefault(term, []).append(count)
        self._rows, self._counts = rows, counts
        lengths = np.array([len(document) for document in documents], dtype=np.float64)
        mean = lengths.mean() if lengths.any() else 1.0
        self._norm: Scores = k1 * (1 - b + b * lengths / mean)

    def scores(self, query: Sequence[str]) -> Scores:
        """Score every document; a term that is asked twice counts once."""
        n = self._n
        scores = np.zeros(n)
        for term in dict.fromkeys(query):
            rows = self._rows.get(term)
            if rows is None:
                continue
            df = len(rows)
            tf = np.array(self._counts[term], dtype=np.float64)
            idf = np.log(1 + (n - df + 0.5) / (df + 0.5))
            scores[rows] += idf * tf / (tf + self._norm[rows])
        return scores


def _session(trace: Trace) -> str:
    if trace.session is None and trace.role == "document":
        return f"#{trace.id}"
    return f"={trace.session}"


def unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Divide rows by their length."""
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9))


def minmax(scores: Scores) -> Scores:
    """Scale to [0, 1]; all zero where the scores do not differ."""
    low, high = scores.min(), scores.max()
    return (scores - low) / (high - low) if high > low else np.zeros_like(scores)
