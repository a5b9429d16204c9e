"""Lucene's BM25 as one sparse product: the questions' terms times the weighed postings."""

from __future__ import annotations

from typing import Any

import numpy as np

from zeromem.kernels._check import as_array, check_csr, check_range, check_shape
from zeromem.kernels._namespace import namespace


def scores(
    indptr: Any,
    rows: Any,
    tf: Any,
    lengths: Any,
    idf: Any,
    query_indptr: Any,
    query_terms: Any,
    query_weights: Any,
    k1: float,
    b: float,
    avg_length: float,
) -> Any:
    """Return (n_queries, n) float32 in the namespace of ``rows``; see ``bm25_cpu.scores``."""
    xp, sparse = namespace(indptr, rows, tf, lengths, idf)
    indptr = as_array(indptr, "indptr", np.int64, 1, xp)
    rows = as_array(rows, "rows", np.int32, 1, xp)
    tf = as_array(tf, "tf", np.float32, 1, xp)
    lengths = as_array(lengths, "lengths", np.float32, 1, xp)
    idf = as_array(idf, "idf", np.float32, 1, xp)
    query_indptr = as_array(query_indptr, "query_indptr", np.int64, 1, xp)
    query_terms = as_array(query_terms, "query_terms", np.int32, 1, xp)
    query_weights = as_array(query_weights, "query_weights", np.float32, 1, xp)
    n_queries, n_terms, n = len(query_indptr) - 1, len(indptr) - 1, len(lengths)
    check_shape(idf, "idf", (n_terms,))
    check_csr(indptr, rows, name="postings", shape=(n_terms, n), data=tf)
    query_shape = (n_queries, n_terms)
    check_csr(query_indptr, query_terms, name="query", shape=query_shape, data=query_weights)
    check_range(k1, "k1", 0.0, float("inf"))
    check_range(b, "b", 0.0, 1.0)
    if not (n and n_terms and n_queries):
        return xp.zeros((n_queries, n), np.float32)
    relative = lengths / np.float32(avg_length) if avg_length > 0 else xp.ones_like(lengths)
    saturation = tf / (tf + (np.float32(k1) * (1 - b + b * relative)).astype(np.float32)[rows])
    postings = sparse.csr_matrix((saturation, rows, indptr), shape=(n_terms, n))
    # A term that a question repeats has several entries in its row; dense addition joins them.
    weights = query_weights * idf[query_terms]
    queries = sparse.csr_matrix((weights, query_terms, query_indptr), shape=(n_queries, n_terms))
    return xp.asarray((queries @ postings).toarray(), dtype=np.float32)
