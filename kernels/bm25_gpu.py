"""Lucene's BM25 of turns, windows and episodes on a device: one sparse product for each level.

What a term adds to a unit's score depends on the memory alone, so it is worked out once for all
terms and units (as bm25s does); the questions' terms times these weights are the scores. The
product adds a cell's terms in an order of its own, so the last bits may differ from the host's.

Where the arrays are NumPy's the same code runs with ``scipy.sparse``; that is what the tests run.
No line of it has run on a device yet.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from zeromem.errors import InvalidInputError
from zeromem.kernels._bm25 import Levels, LevelScores, averages
from zeromem.kernels._check import as_array, check_csr, check_range, check_shape
from zeromem.kernels._lists import sealed
from zeromem.kernels._namespace import namespace


class Weights(NamedTuple):
    """``idf * tf / (tf + damping)`` of every term in every unit.

    Attributes
    ----------
    shape : (int, int)
        Terms, turns.
    matrices : tuple of CSR (n_terms, n) float32
        For turns, windows and episodes; none where no turn has a term.
    """

    shape: tuple[int, int]
    matrices: tuple[Any, ...]


def weights(postings: tuple[Any, ...], levels: Levels, k1: float, b: float) -> Weights:
    """Return the weights of a memory, in the namespace of its arrays.

    The parameters are those of ``bm25_cpu.scores``. Worth keeping: they depend on these alone.

    Raises
    ------
    InvalidInputError
    """
    xp, sparse = namespace(*postings, *levels[:6])
    n, n_terms = len(levels.lengths), len(postings[3])
    for name, column in zip(Levels._fields[:6], levels[:6], strict=True):
        check_shape(column, f"levels.{name}", (n,))
    check_range(k1, "k1", 0.0, float("inf"))
    check_range(b, "b", 0.0, 1.0)
    indptr, rows, tf = sealed(xp, postings)
    if not len(rows):
        return Weights((n_terms, n), ())
    _check_postings(xp, indptr, rows, n)
    turns = sparse.csr_matrix((tf, rows, indptr), shape=(n_terms, n))
    ones = xp.ones(n, np.float32)
    episodes = sparse.csr_matrix((ones, levels.episode_of, xp.arange(n + 1)), shape=(n, n))
    found = (
        (turns, levels.lengths, n),
        # A window's or an episode's frequency is its turns': summed up first, since it saturates.
        (turns @ _windows(xp, sparse, levels), levels.window_lengths, n),
        (turns @ episodes, levels.episode_lengths, levels.n_episodes),
    )
    return Weights(
        (n_terms, n),
        tuple(
            _weighed(xp, sparse, *level, float(average), k1, b)
            for level, average in zip(found, averages(levels), strict=True)
        ),
    )


def _check_postings(xp: Any, indptr: Any, rows: Any, n: int) -> None:
    """Raise InvalidInputError where a term's postings name no row, or one twice."""
    term = xp.searchsorted(indptr[1:], xp.arange(len(rows)), side="right")
    wrong = (rows < 0) | (rows >= n)
    if not bool(wrong.any()):
        # Ascending, as lists are, but for those that need a closer look.
        order = xp.argsort(term * n + rows, kind="stable")
        same = (term[order[1:]] == term[order[:-1]]) & (rows[order[1:]] == rows[order[:-1]])
        wrong[order[1:]] = same
    if bool(wrong.any()):
        raise InvalidInputError(
            f"postings of term {int(term[int(wrong.argmax())])} must name each row in [0, {n}) "
            "at most once"
        )


def _windows(xp: Any, sparse: Any, levels: Levels) -> Any:
    """Return (n, n): 1 where the turn of a row is in the window centred on that of a column."""
    n = len(levels.lengths)
    centre = xp.arange(n, dtype=np.int32)
    rows, columns = [centre], [centre]
    for link in (levels.previous, levels.following):
        at = member = centre
        for _ in range(levels.radius):
            at = link[at]
            at, member = at[at >= 0], member[at >= 0]
            # The window of the turn that is reached holds the turn that it was reached from.
            rows.append(member)
            columns.append(at)
    row, column = xp.concatenate(rows), xp.concatenate(columns)
    return sparse.csr_matrix((xp.ones(len(row), np.float32), (row, column)), shape=(n, n))


def _weighed(
    xp: Any, sparse: Any, tf: Any, lengths: Any, n_units: int, average: float, k1: float, b: float
) -> Any:
    """Return the weights of one level, from its frequencies (n_terms, n)."""
    tf.sum_duplicates()
    df = tf.indptr[1:] - tf.indptr[:-1]
    idf = xp.log1p((n_units - df + 0.5) / (df + 0.5))
    term = xp.searchsorted(tf.indptr[1:], xp.arange(len(tf.indices)), side="right")
    damping = k1 * ((1 - b) + b / average * lengths.astype(np.float64))
    frequency = tf.data.astype(np.float64)
    data = idf[term] * frequency / (frequency + damping[tf.indices])
    return sparse.csr_matrix((data.astype(np.float32), tf.indices, tf.indptr), shape=tf.shape)


def asked(known: Weights, query_indptr: Any, query_terms: Any, query_weights: Any) -> LevelScores:
    """Return the scores of questions in the namespace of ``known``; see ``bm25_cpu.scores``.

    The questions may lie on the host.
    """
    own, _ = namespace(query_indptr, query_terms, query_weights)
    query_indptr = as_array(query_indptr, "query_indptr", np.int64, 1, own)
    query_terms = as_array(query_terms, "query_terms", np.int32, 1, own)
    query_weights = as_array(query_weights, "query_weights", np.float32, 1, own)
    n_queries, (n_terms, n) = len(query_indptr) - 1, known.shape
    shape = (n_queries, n_terms)
    check_csr(query_indptr, query_terms, name="query", shape=shape, data=query_weights)
    xp, sparse = namespace(query_terms, *(matrix.data for matrix in known.matrices))
    if not (known.matrices and len(query_terms)):
        return LevelScores(*(xp.zeros((n_queries, n), np.float32) for _ in range(3)))
    arrays = map(xp.asarray, (query_weights, query_terms, query_indptr))
    queries = sparse.csr_matrix(tuple(arrays), shape=shape)
    return LevelScores(
        *(
            xp.ascontiguousarray((queries @ matrix).toarray(), dtype=np.float32)
            for matrix in known.matrices
        )
    )


def scores(
    postings: tuple[Any, ...],
    levels: Levels,
    query_indptr: Any,
    query_terms: Any,
    query_weights: Any,
    k1: float,
    b: float,
) -> LevelScores:
    """Return the scores in the namespace of the arrays; see ``bm25_cpu.scores``."""
    return asked(weights(postings, levels, k1, b), query_indptr, query_terms, query_weights)
