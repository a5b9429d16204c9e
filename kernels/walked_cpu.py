"""The graph view's ranking: the walk's scores, what refines them, and the second hop."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from zeromem.kernels._half import row_dot
from zeromem.kernels._noise import NOISE
from zeromem.kernels._numba import (
    BOOL_1,
    BOOL_2,
    F32_1,
    F32_2,
    F64,
    I32_1,
    I64,
    I64_1,
    LISTS,
    OUT_F32_2,
    OUT_I32_2,
    VOID,
    inner,
    kernel,
    record,
)
from zeromem.kernels._walked import Hops
from zeromem.kernels.topk_cpu import best

_HOPS = record(I64_1, I32_1, LISTS, I64_1, I64_1, I32_1, I64_1, F32_1)


@inner
def _has_any(lists, key):
    indptr, head = lists[0], lists[3]
    if key >= len(head):  # the lists end with the last key that had a value
        return False
    sealed = key < len(indptr) - 1 and indptr[key] < indptr[key + 1]
    return sealed or head[key] >= 0


@inner
def _lend(titled, entity, source, value, lent):
    """Lend ``value`` to the turns whose title ``entity`` is, unless it is the source's own."""
    indptr, base, _, head, older, tail, _ = titled
    for write in range(2):
        if entity < len(indptr) - 1:
            for p in range(indptr[entity], indptr[entity + 1]):
                if write == 0 and base[p] == source:
                    return
                if write == 1:
                    lent[base[p]] = max(lent[base[p]], np.float32(value))
        at = head[entity]
        while at >= 0:
            if write == 0 and tail[at] == source:
                return
            if write == 1:
                lent[tail[at]] = max(lent[tail[at]], np.float32(value))
            at = older[at]


@inner
def _most_similar(hops, query, row):
    """Similarity of a turn's best sentence."""
    indptr, addresses, inverse_norm = hops[3], hops[6], hops[7]
    found = -np.inf
    for z in range(indptr[row], indptr[row + 1]):
        found = max(found, np.float64(row_dot(addresses, z, query) * inverse_norm[z]))
    return found


@inner
def _naming(hops, query, row, entity):
    """Similarity of the best sentence of a turn that names the entity; of any where none does.

    A title found word for word is in no sentence's list of entities.
    """
    _, _, _, indptr, entity_indptr, entities, addresses, inverse_norm = hops
    found = -np.inf
    for z in range(indptr[row], indptr[row + 1]):
        for p in range(entity_indptr[z], entity_indptr[z + 1]):
            if entities[p] == entity:
                found = max(found, np.float64(row_dot(addresses, z, query) * inverse_norm[z]))
    return found if found > -np.inf else _most_similar(hops, query, row)


@inner
def _second_hop(hops, query, rows, scores, size, n_sources, lent):
    """Fill in what contexts are lent by better ones that name their title, in [0, 1].

    The walk spreads over all that a context mentions; a question needs the one mention it is about
    ("the novel by ..."), so the naming sentence has to be like the question.
    """
    mention_indptr, mention_entity, titled = hops[0], hops[1], hops[2]
    found = False
    top = 0.0
    low = np.float64(scores[size - 1])
    high = np.float64(scores[0])
    apart = high - low > NOISE * max(abs(high), abs(low))
    for i in range(min(n_sources, size)):
        source = rows[i]
        strength = (scores[i] - low) / (high - low) if apart else 1.0
        for p in range(mention_indptr[source], mention_indptr[source + 1]):
            entity = mention_entity[p]
            if not _has_any(titled, entity):
                continue
            if not found:
                found = True
                # Of all candidates: what "like the question" can mean here.
                top = 1e-6
                for c in range(size):
                    top = max(top, _most_similar(hops, query, rows[c]))
            like = max(_naming(hops, query, source, entity), 0.0)
            _lend(titled, entity, source, strength * like / top, lent)
    return found


@inner
def _spread(pi, mask, span, out):
    """Bring pi to [0, 1]: in proportion to the best, or by its logarithm over ``span`` e-folds.

    The walk's mass falls off by orders of magnitude; its logarithm keeps second-hop contexts apart
    from the rest once views are fused.
    """
    top = np.float32(0.0)
    for i in range(len(mask)):
        if mask[i]:
            top = max(top, pi[i])
    scale = np.float32(1.0) / top if top > 0 else np.float32(1.0)
    least = np.float32(np.exp(-span))
    for i in range(len(mask)):
        share = pi[i] * scale
        if span > 0:
            far = share <= least  # by far the most: the logarithm is for the rest
            out[i] = 0.0 if far else max(np.float32(0.0), np.float32(np.log(share) / span + 1.0))
        else:
            out[i] = share


@inner
def _dense(dots, inverse_norm, mask, out):
    low = np.float32(np.inf)
    high = np.float32(-np.inf)
    for i in range(len(dots)):
        out[i] = dots[i] * inverse_norm[i]
        if mask[i]:
            low = min(low, out[i])
            high = max(high, out[i])
    apart = high - low > NOISE * max(abs(high), abs(low))
    scale = np.float32(1.0) / (high - low) if apart else np.float32(0.0)
    for i in range(len(dots)):
        out[i] = (out[i] - low) * scale


@kernel(
    VOID(
        F32_2, F32_2, BOOL_1, F32_2, F32_1, BOOL_2, I32_1, F32_2, _HOPS, F64, F64, I64,
        OUT_I32_2, OUT_F32_2,
    )
)  # fmt: skip
def _walked(
    pi,
    refine,
    by_dense,
    dots,
    inverse_norm,
    masks,
    mask_of,
    queries,
    hops,
    log_span,
    hop_weight,
    hop_from,
    rows,
    scores,
):
    n = len(inverse_norm)
    score = np.empty(n, np.float32)
    lent = np.zeros(n, np.float32)
    for j in range(len(queries)):
        mask = masks[mask_of[j]]
        if by_dense[j]:
            _dense(dots[j], inverse_norm, mask, score)
        else:
            _spread(pi[j], mask, log_span, score)
        for i in range(n):
            score[i] += refine[j, i]
        size = best(score, mask, rows[j], scores[j])
        if hop_weight == 0 or size == 0:
            continue
        if _second_hop(hops, queries[j], rows[j], scores[j], size, hop_from, lent):
            for i in range(n):
                score[i] += np.float32(hop_weight) * lent[i]
                lent[i] = 0.0
            best(score, mask, rows[j], scores[j])


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
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Rank turns by pi (eq. 10), refined by exact support, with a second hop by titles.

    Parameters
    ----------
    pi : (n_nodes, b) float32
        Turns come first; other nodes are not read.
    refine : (b, n) float32
        Added to the walk's score.
    by_dense : (b,) bool
        Where True, the turns' normalised cosine stands in the place of the walk's score: the
        paper's fallback where no entity of the question is in the graph.
    dots, inverse_norm : (b, n), (n,) float32
        The turns' inner products with the question and the inverse norms.
    masks, mask_of, queries : see ``views_cpu.Asked``
    hops : Hops
    log_span, hop_weight, hop_from
        See ``GraphConfig``.
    candidates : int

    Returns
    -------
    rows : (b, min(candidates, n)) int32
        Best first, ties by row, padded with -1.
    scores : float32, likewise
    """
    b, k = len(queries), min(candidates, len(inverse_norm))
    rows, scores = np.full((b, k), -1, np.int32), np.zeros((b, k), np.float32)
    by_question = np.ascontiguousarray(pi[: len(inverse_norm)].T, np.float32)
    _walked(
        by_question, refine, by_dense, dots, inverse_norm, masks, mask_of, queries, tuple(hops),
        log_span, hop_weight, hop_from, rows, scores,
    )  # fmt: skip
    return rows, scores
