"""Lucene's BM25 over postings, weighed at query time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from zeromem.errors import InvalidInputError
from zeromem.kernels._check import as_array, check_csr, check_range, check_shape
from zeromem.kernels._numba import F32_1, F64, I32_1, I64, I64_1, OUT_F32_2, kernel


@kernel(
    I64(I64_1, I32_1, F32_1, F32_1, F32_1, I64_1, I32_1, F32_1, F64, F64, F64, OUT_F32_2),
)
def _scores(
    indptr,
    rows,
    tf,
    lengths,
    idf,
    query_indptr,
    query_terms,
    query_weights,
    k1,
    b,
    avg_length,
    out,
):
    n = len(lengths)
    per_length = b / avg_length if avg_length > 0.0 else 0.0
    constant = 1.0 - b if avg_length > 0.0 else 1.0
    for j in range(len(query_indptr) - 1):
        for q in range(query_indptr[j], query_indptr[j + 1]):
            term = query_terms[q]
            weight = np.float64(query_weights[q]) * idf[term]
            for p in range(indptr[term], indptr[term + 1]):
                row = rows[p]
                # Only the postings that a question touches are looked at, so they are checked here.
                if row < 0 or row >= n:
                    return np.int64(p)
                frequency = np.float64(tf[p])
                damped = k1 * (constant + per_length * lengths[row])
                out[j, row] += np.float32(weight * frequency / (frequency + damped))
    return np.int64(-1)


def scores(
    indptr: NDArray[np.int64],
    rows: NDArray[np.int32],
    tf: NDArray[np.float32],
    lengths: NDArray[np.float32],
    idf: NDArray[np.float32],
    query_indptr: NDArray[np.int64],
    query_terms: NDArray[np.int32],
    query_weights: NDArray[np.float32],
    k1: float,
    b: float,
    avg_length: float,
) -> NDArray[np.float32]:
    """Return the BM25 score of every row for every question.

    A score is the sum over the question's terms of
    ``weight * idf * tf / (tf + k1 * (1 - b + b * length / avg_length))``, which is Lucene's form
    (8 and later: without the constant factor k1 + 1). The inverse document frequency comes from
    the caller, since it moves with every add.

    Parameters
    ----------
    indptr : (n_terms + 1,) int64
    rows : (n_postings,) int32
        The rows of term t are ``rows[indptr[t]:indptr[t + 1]]``.
    tf : (n_postings,) float32, positive
        How often the term stands in the row.
    lengths : (n,) float32
        Terms per row.
    idf : (n_terms,) float32
    query_indptr : (n_queries + 1,) int64
    query_terms : (n_query_terms,) int32
        Terms of question j are ``query_terms[query_indptr[j]:query_indptr[j + 1]]``; leave out
        those that the index does not know.
    query_weights : (n_query_terms,) float32
        For example how often the term stands in the question.
    k1, b : float
        Saturation (at least 0) and the influence of length (in [0, 1]).
    avg_length : float
        Mean length; with 0, length has no influence.

    Returns
    -------
    (n_queries, n) float32
        Terms add up in the order of the question.

    Raises
    ------
    InvalidInputError
    """
    indptr = as_array(indptr, "indptr", np.int64, 1)
    rows = as_array(rows, "rows", np.int32, 1)
    tf = as_array(tf, "tf", np.float32, 1)
    lengths = as_array(lengths, "lengths", np.float32, 1)
    idf = as_array(idf, "idf", np.float32, 1)
    query_indptr = as_array(query_indptr, "query_indptr", np.int64, 1)
    query_terms = as_array(query_terms, "query_terms", np.int32, 1)
    query_weights = as_array(query_weights, "query_weights", np.float32, 1)
    check_postings(indptr, rows, tf, idf)
    check_csr(
        query_indptr,
        query_terms,
        name="query",
        shape=(len(query_indptr) - 1, len(idf)),
        data=query_weights,
    )
    check_range(k1, "k1", 0.0, float("inf"))
    check_range(b, "b", 0.0, 1.0)
    out = np.zeros((len(query_indptr) - 1, len(lengths)), np.float32)
    bad = _scores(
        indptr,
        rows,
        tf,
        lengths,
        idf,
        query_indptr,
        query_terms,
        query_weights,
        k1,
        b,
        avg_length,
        out,
    )
    if bad >= 0:
        raise InvalidInputError(f"rows must be in [0, {len(lengths)}), got {rows[bad]}")
    return out


def check_postings(
    indptr: NDArray[np.int64],
    rows: NDArray[np.int32],
    tf: NDArray[np.float32],
    idf: NDArray[np.float32],
) -> None:
    """Raise InvalidInputError unless the postings fit together, in time linear in the terms."""
    check_shape(idf, "idf", (len(indptr) - 1,))
    check_shape(tf, "tf", (len(rows),))
    if indptr[0] != 0 or indptr[-1] != len(rows) or bool((np.diff(indptr) < 0).any()):
        raise InvalidInputError(
            f"indptr must rise from 0 to len(rows) = {len(rows)}, got {indptr[0]} to {indptr[-1]}"
        )
