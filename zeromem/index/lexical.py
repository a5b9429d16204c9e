"""Term frequencies by term, weighed at query time: idf moves with every add (BM25, Lucene's)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Postings:
    """The lexical statistics of one level's units.

    Attributes
    ----------
    indptr : (n_terms + 1,) int64
    rows : (nnz,) int32
        Ascending within a term.
    tf : (nnz,) float32
    lengths : (n_units,) float32
        Terms of each unit.
    idf : (n_terms,) float32
        ln(1 + (n - df + 0.5) / (df + 0.5)).
    avg_length : float
    """

    indptr: Array
    rows: Array
    tf: Array
    lengths: Array
    idf: Array
    avg_length: float

    @classmethod
    def of(cls, counts: sp.csr_array) -> Postings:
        """Build from a units × terms matrix of term frequencies."""
        n = counts.shape[0]
        by_term = counts.tocsc()
        by_term.sort_indices()
        df = np.diff(by_term.indptr)
        lengths = np.asarray(counts.sum(axis=1), np.float32).ravel()
        return cls(
            indptr=by_term.indptr.astype(np.int64),
            rows=by_term.indices.astype(np.int32),
            tf=by_term.data.astype(np.float32),
            lengths=lengths,
            idf=np.log1p((n - df + 0.5) / (df + 0.5)).astype(np.float32),
            # Of an empty unit set or of wordless units no average exists; 1 keeps BM25 defined.
            avg_length=float(lengths.mean(dtype=np.float64)) if lengths.any() else 1.0,
        )


def count_terms(term_indptr: Array, term: Array, n_terms: int) -> sp.csr_array:
    """Turns × terms matrix of term frequencies from each turn's terms in order."""
    n = len(term_indptr) - 1
    # Copied: summing duplicates works in place, and a snapshot's arrays are read-only.
    parts = (np.ones(len(term), np.float32), term.copy(), term_indptr.copy())
    counts = sp.csr_array(parts, shape=(n, n_terms))
    counts.sum_duplicates()
    return counts


def span_matrix(spans: Array, n: int) -> sp.csr_array:
    """Units × positions indicator of half-open spans."""
    lengths = (spans[:, 1] - spans[:, 0]).astype(np.int64)
    indptr = np.concatenate(([0], np.cumsum(lengths)))
    starts = np.repeat(spans[:, 0] - indptr[:-1], lengths)
    members = (starts + np.arange(indptr[-1])).astype(np.int32)
    return sp.csr_array((np.ones(len(members), np.float32), members, indptr), (len(spans), n))
