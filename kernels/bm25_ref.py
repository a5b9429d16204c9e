"""Lucene's BM25 of turns, windows and episodes: the oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from zeromem.kernels import _ref
from zeromem.kernels._bm25 import Levels, LevelScores


def _term_scores(
    tf: NDArray[np.float64], lengths: NDArray[np.float32], n_units: int, k1: float, b: float
) -> NDArray[np.float64]:
    """Scores of one term for texts with these frequencies and lengths; ``n_units`` are texts."""
    total = lengths.sum(dtype=np.float64)
    average = total / n_units if total > 0 else 1.0
    df = np.count_nonzero(tf)
    idf = np.log(1 + (n_units - df + 0.5) / (df + 0.5))
    has = tf > 0
    scores = np.zeros(len(tf))
    scores[has] = idf * tf[has] / (tf[has] + k1 * (1 - b + b * lengths[has] / average))
    return scores


def scores(
    postings: tuple[NDArray[Any], ...],
    levels: Levels,
    query_indptr: NDArray[np.int64],
    query_terms: NDArray[np.int32],
    query_weights: NDArray[np.float32],
    k1: float,
    b: float,
) -> LevelScores:
    """Return float64 scores; see ``bm25_cpu.scores``."""
    n, n_queries = len(levels.lengths), len(query_indptr) - 1
    found: Any = np.zeros((3, n_queries, n))
    places = _ref.windows(levels.previous, levels.following, levels.radius)
    for j in range(n_queries):
        own = slice(query_indptr[j], query_indptr[j + 1])
        for term, weight in zip(query_terms[own].tolist(), query_weights[own], strict=True):
            turn = np.zeros(n)
            rows, counts = _ref.values_of(postings, term)
            turn[rows] = counts
            window = _ref.window_sum(turn, places)
            episode: NDArray[Any] = np.bincount(levels.episode_of, turn, minlength=n)
            for out, tf, lengths, n_units in (
                (found[0], turn, levels.lengths, n),
                (found[1], window, levels.window_lengths, n),
                (found[2], episode, levels.episode_lengths, levels.n_episodes),
            ):
                out[j] += float(weight) * _term_scores(tf, lengths, n_units, k1, b)
    return LevelScores(*found)
