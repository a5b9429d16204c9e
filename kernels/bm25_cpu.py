"""Lucene's BM25 of turns, windows and episodes at once, from the turns' postings alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from zeromem.errors import InvalidInputError
from zeromem.kernels._bm25 import Levels, LevelScores, averages
from zeromem.kernels._check import as_array, check_csr, check_range, check_shape
from zeromem.kernels._numba import (
    F32_1,
    F64,
    F64_1,
    I32_1,
    I64,
    I64_1,
    LISTS,
    OUT_F32_2,
    inner,
    kernel,
)


@inner
def _idf(n_units, df):
    return np.log1p((n_units - df + 0.5) / (df + 0.5))


@inner
def _add(units, tf, n_found, weight, lengths, k1, b, average, out):
    constant = 1.0 - b
    per_length = b / average
    for i in range(n_found):
        unit = units[i]
        frequency = np.float64(tf[i])
        damped = k1 * (constant + per_length * lengths[unit])
        out[unit] += np.float32(weight * frequency / (frequency + damped))


@inner
def _take(count, units, n_found, summed):
    """Move what was counted of the units found into ``summed``; the counts are 0 again."""
    for i in range(n_found):
        summed[i] = count[units[i]]
        count[units[i]] = 0.0


@inner
def _members(previous, following, row, radius, members):
    """Fill in the windows that hold ``row``: those centred within ``radius`` of it."""
    members[0] = row
    size = 1
    back = row
    for _ in range(radius):
        back = previous[back]
        if back < 0:
            break
        members[size] = back
        size += 1
    ahead = row
    for _ in range(radius):
        ahead = following[ahead]
        if ahead < 0:
            break
        members[size] = ahead
        size += 1
    return np.int64(size)


@kernel(
    I64(
        LISTS,
        F32_1,
        F32_1,
        F32_1,
        I32_1,
        I32_1,
        I32_1,
        I64,
        I64,
        I64_1,
        I32_1,
        F32_1,
        F64,
        F64,
        F64_1,
        OUT_F32_2,
        OUT_F32_2,
        OUT_F32_2,
    )
)
def _scores(
    postings,
    lengths,
    window_lengths,
    episode_lengths,
    previous,
    following,
    episode_of,
    radius,
    n_episodes,
    query_indptr,
    query_terms,
    query_weights,
    k1,
    b,
    averages,
    turn,
    window,
    episode,
):
    """Fill in the scores; return -1, or the term whose postings name no row or one twice."""
    indptr, base_rows, base_tf, head, older, tail_rows, tail_tf = postings
    n = len(lengths)
    rows = np.empty(n, np.int32)
    tf = np.empty(n, np.float32)
    units = np.empty(n, np.int32)
    summed = np.empty(n, np.float32)
    count = np.zeros(n, np.float32)
    members = np.empty(2 * radius + 1, np.int32)
    for j in range(len(query_indptr) - 1):
        for q in range(query_indptr[j], query_indptr[j + 1]):
            term = query_terms[q]
            df = 0
            # Only what a question touches is looked at, so it is checked here.
            if term < len(indptr) - 1:
                for p in range(indptr[term], indptr[term + 1]):
                    if base_rows[p] < 0 or base_rows[p] >= n or df == n:
                        return np.int64(term)
                    rows[df] = base_rows[p]
                    tf[df] = base_tf[p]
                    df += 1
            at = head[term]
            while at >= 0:
                if tail_rows[at] < 0 or tail_rows[at] >= n or df == n:
                    return np.int64(term)
                rows[df] = tail_rows[at]
                tf[df] = tail_tf[at]
                df += 1
                at = older[at]
            weight = np.float64(query_weights[q])
            _add(rows, tf, df, weight * _idf(n, df), lengths, k1, b, averages[0], turn[j])
            # A window's term frequency is its turns': summed up first, since it saturates.
            n_windows = 0
            n_episodes_with = 0
            for i in range(df):
                for m in range(_members(previous, following, rows[i], radius, members)):
                    unit = members[m]
                    if count[unit] == 0.0:
                        units[n_windows] = unit
                        n_windows += 1
                    count[unit] += tf[i]
            _take(count, units, n_windows, summed)
            _add(
                units, summed, n_windows, weight * _idf(n, n_windows),
                window_lengths, k1, b, averages[1], window[j],
            )  # fmt: skip
            for i in range(df):
                unit = episode_of[rows[i]]
                if count[unit] == 0.0:
                    units[n_episodes_with] = unit
                    n_episodes_with += 1
                count[unit] += tf[i]
            _take(count, units, n_episodes_with, summed)
            _add(
                units, summed, n_episodes_with, weight * _idf(n_episodes, n_episodes_with),
                episode_lengths, k1, b, averages[2], episode[j],
            )  # fmt: skip
    return np.int64(-1)


def scores(
    postings: tuple[NDArray[Any], ...],
    levels: Levels,
    query_indptr: NDArray[np.int64],
    query_terms: NDArray[np.int32],
    query_weights: NDArray[np.float32],
    k1: float,
    b: float,
) -> LevelScores:
    """Return the BM25 score of every turn, window and episode for every question.

    A score is the sum over the question's terms of
    ``weight * idf * tf / (tf + k1 * (1 - b + b * length / average))``, which is Lucene's form
    (8 and later: without the constant factor k1 + 1), with
    ``idf = ln(1 + (n - df + 0.5) / (df + 0.5))`` over the units of the level. Windows and episodes
    are texts of their own: their frequencies are sums over their turns.

    Parameters
    ----------
    postings : tuple of arrays
        ``Lists.kernel_args``: term to turns, with term frequencies.
    levels : Levels
    query_indptr : (n_queries + 1,) int64
    query_terms : (n_query_terms,) int32
        Terms of question j are ``query_terms[query_indptr[j]:query_indptr[j + 1]]``; leave out
        those that the index does not know.
    query_weights : (n_query_terms,) float32
        For example how often the term stands in the question.
    k1, b : float
        Saturation (at least 0) and the influence of length (in [0, 1]).

    Returns
    -------
    LevelScores
        Terms add up in the order of the question.

    Raises
    ------
    InvalidInputError
    """
    query_indptr = as_array(query_indptr, "query_indptr", np.int64, 1)
    query_terms = as_array(query_terms, "query_terms", np.int32, 1)
    query_weights = as_array(query_weights, "query_weights", np.float32, 1)
    n, n_queries = len(levels.lengths), len(query_indptr) - 1
    shape = (n_queries, len(postings[3]))
    check_csr(query_indptr, query_terms, name="query", shape=shape, data=query_weights)
    for name, column in zip(Levels._fields[:6], levels[:6], strict=True):
        check_shape(column, f"levels.{name}", (n,))
    check_range(k1, "k1", 0.0, float("inf"))
    check_range(b, "b", 0.0, 1.0)
    # Zero pages cost nothing until a score lands on them.
    found = LevelScores(*(np.zeros((n_queries, n), np.float32) for _ in range(3)))
    bad = _scores(
        postings, *levels, query_indptr, query_terms, query_weights, k1, b, averages(levels), *found
    )
    if bad >= 0:
        raise InvalidInputError(
            f"postings of term {bad} must name each row in [0, {n}) at most once"
        )
    return found
