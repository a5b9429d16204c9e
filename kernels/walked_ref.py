"""The graph view's ranking: the oracle."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from zeromem.kernels import _ref
from zeromem.kernels._walked import Hops

F64 = NDArray[np.float64]
Mask = NDArray[np.bool_]


def _similarity(hops: Hops, query: NDArray[np.float32], row: int) -> tuple[list[int], F64]:
    """A turn's sentences, and how like the question each is."""
    sentences = list(range(hops.sentence_indptr[row], hops.sentence_indptr[row + 1]))
    vectors = _ref.vectors_at(hops.sentence_addresses, sentences, len(query))
    return sentences, _ref.products(vectors, query) * hops.sentence_inverse_norm[sentences]


def _naming(hops: Hops, query: NDArray[np.float32], row: int, entity: int) -> float:
    """Similarity of the turn's best sentence that names an entity; of any where none does."""
    indptr, names = hops.sentence_entity_indptr, hops.sentence_entity
    sentences, cosines = _similarity(hops, query, row)
    naming = [
        cosine
        for z, cosine in zip(sentences, cosines.tolist(), strict=True)
        if entity in names[indptr[z] : indptr[z + 1]]
    ]
    return max(naming or cosines.tolist(), default=0.0)


def _second_hop(
    hops: Hops, query: NDArray[np.float32], rows: NDArray[np.int64], scores: F64, n_sources: int
) -> dict[int, float]:
    """What turns are lent by better ones that name their title."""
    lent: dict[int, float] = {}
    strengths = _ref.shares(scores)[:n_sources].tolist()
    best = max(max(_similarity(hops, query, row)[1], default=-np.inf) for row in rows.tolist())
    for source, strength in zip(rows[:n_sources].tolist(), strengths, strict=True):
        first, last = hops.mention_indptr[source], hops.mention_indptr[source + 1]
        for entity in hops.mention_entity[first:last].tolist():
            titled, _ = _ref.values_of(hops.titled, entity)
            if not titled or source in titled:  # nobody's title, or its own
                continue
            like = max(_naming(hops, query, source, entity), 0.0) / max(best, 1e-6)
            for row in titled:
                lent[row] = max(lent.get(row, 0.0), strength * like)
    return lent


def _walk(pi: F64, mask: Mask, log_span: float) -> F64:
    """The walk's score in [0, 1]: a share of the best, or its logarithm over ``log_span``."""
    top = pi[mask].max(initial=0.0)
    share = pi / top if top > 0 else pi
    if log_span == 0:
        return share
    # Below exp(-log_span) all count alike.
    return 1.0 + np.log(np.maximum(share, np.exp(-log_span))) / log_span


def walked(
    pi: NDArray[np.float32],
    refine: NDArray[np.float32],
    by_dense: NDArray[np.bool_],
    dots: NDArray[np.float32],
    inverse_norm: NDArray[np.float32],
    masks: NDArray[np.bool_],
    mask_of: NDArray[np.int32],
    queries: NDArray[np.float32],
    hops: Hops,
    *,
    log_span: float,
    hop_weight: float,
    hop_from: int,
    candidates: int,
) -> tuple[NDArray[np.int32], F64]:
    """Return float64 scores; see ``walked_cpu.walked``."""
    n, b = len(inverse_norm), len(queries)
    k = min(candidates, n)
    found, best = np.full((b, k), -1, np.int32), np.zeros((b, k))
    for j in range(b):
        mask = masks[mask_of[j]]
        if by_dense[j]:
            score = _ref.normalized(dots[j].astype(np.float64) * inverse_norm, mask)
        else:
            score = _walk(pi[:n, j].astype(np.float64), mask, log_span)
        score = score + refine[j]
        rows = _ref.ranked(score, mask, k)
        if hop_weight != 0 and len(rows):
            lent = _second_hop(hops, queries[j], rows, score[rows], hop_from)
            for row, value in lent.items():
                score[row] += hop_weight * value
            rows = _ref.ranked(score, mask, k)
        found[j, : len(rows)], best[j, : len(rows)] = rows, score[rows]
    return found, best
