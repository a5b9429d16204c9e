"""Closure and calibration (eq. 14-15): from fused candidates to R(q)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from zeromem.kernels._evidence import (
    BRIDGE,
    KEPT,
    MAIN,
    NEIGHBOR,
    OUTSIDE,
    SUPERSEDED,
    TOO_LONG,
    Bounds,
    Items,
    Ranked,
    Turns,
)  # fmt: skip
from zeromem.kernels._half import pair_dot
from zeromem.kernels._numba import (
    BOOL_1,
    BOOL_2,
    F32_1,
    F64_1,
    I32_1,
    I32_2,
    I64,
    I64_1,
    I64_2,
    OUT_F64_1,
    OUT_I8_1,
    OUT_I32_1,
    OUT_I64_1,
    inner,
    kernel,
    record,
)
from zeromem.kernels._views import NO_TIME

_TURNS = record(
    I32_1, I32_1, I32_1, I32_1, I64_2, I32_1, I32_1, I64_1, I32_1, I64_1, I32_1, I64_1, F32_1
)
_RANKED = record(
    I64_1, I32_1, F32_1, I32_2, BOOL_2, I32_1, BOOL_2, I64_2, I64_1, I32_1, I32_1, BOOL_1, BOOL_1
)
_ITEMS = record(
    OUT_I64_1, OUT_I64_1, OUT_I64_1, OUT_I32_1, OUT_I8_1, OUT_F64_1, OUT_F64_1, OUT_F64_1, OUT_I8_1,
    OUT_I32_1,
)  # fmt: skip


@inner
def _shares_entity(indptr, entity, row, anchors, n_anchors):
    for a in range(n_anchors):
        for p in range(indptr[anchors[a]], indptr[anchors[a] + 1]):
            for q in range(indptr[row], indptr[row + 1]):
                if entity[p] == entity[q]:
                    return True
    return False


@inner
def _support_around(turns, mask, anchor, fused, local, short, near, support, n_near):
    """N_h: admissible turns around an anchor, each with the best support it is lent.

    A turn depends on its nearest neighbours most: support halves with each further turn. What is
    restored is the question before an answer and the remark after it; a long piece takes the room
    of many of those, so the longer it is, the more it has to earn its place by its own score.
    """
    n_tokens, links = turns[0], (turns[5], turns[6])
    for side in range(2):
        row = np.int64(anchor)
        share = fused
        for _ in range(local):
            row = np.int64(links[side][row])
            if row < 0:
                break
            if mask[row]:
                value = share * min(1.0, short / max(1, n_tokens[row]))
                at = 0
                while at < n_near and near[at] != row:
                    at += 1
                if at == n_near:
                    near[at] = row
                    support[at] = value
                    n_near += 1
                else:
                    support[at] = max(support[at], value)
            share *= 0.5
    return np.int64(n_near)


@inner
def _stands(word, terms):
    return (terms == word).any()


@inner
def _n_shared(asked, terms):
    """How many of the question's terms stand in a turn."""
    found = 0
    for word in asked:
        found += _stands(word, terms)
    return found


@inner
def _share_term(asked, one, other):
    for word in asked:  # noqa: SIM110 (Numba compiles no generator)
        if _stands(word, one) and _stands(word, other):
            return True
    return False


@inner
def _newer(turns, asked, rows, old, dim, least):
    """Return a row whose speaker says the same thing anew later than ``old``, or -1.

    Two turns state the same attribute when one speaker made both, both match the question in the
    same term, and their vectors are alike.
    """
    _, _, speaker, role, time, _, _, _, _, indptr, term, addresses, inverse_norm = turns
    if time[old, 0] == NO_TIME:
        return np.int64(-1)
    terms = term[indptr[old] : indptr[old + 1]]
    n_old = _n_shared(asked, terms)
    for row in rows:
        new = np.int64(row)
        if time[new, 0] > time[old, 0] and speaker[new] == speaker[old] and role[new] == role[old]:
            others = term[indptr[new] : indptr[new + 1]]
            if _n_shared(asked, others) >= n_old and _share_term(asked, terms, others):
                alike = np.float64(pair_dot(addresses, old, new, dim))
                if alike * inverse_norm[old] * inverse_norm[new] >= least:
                    return new
    return np.int64(-1)


@inner
def _order_by_score(score, row, when, newest, start, size, order):
    """Sort by score; where two stand equal by time if the newest counts, then by row.

    By insertion: most are in order already.
    """
    for i in range(start, size):
        at = i
        while at > start:
            other = order[at - 1]
            if score[i] != score[other]:
                ahead = score[i] > score[other]
            elif newest and when[row[i], 0] != when[row[other], 0]:
                ahead = when[row[i], 0] > when[row[other], 0]
            else:
                ahead = row[i] < row[other]
            if not ahead:
                break
            order[at] = other
            at -= 1
        order[at] = i


@inner
def _kept_first(reason, start, size, order):
    """Move what is left out behind what is kept; return how many are kept."""
    before = order[start:size].copy()
    n_kept = 0
    for wanted in (True, False):
        at = start + n_kept
        for i in before:
            if (reason[i] == KEPT) == wanted:
                order[at] = i
                at += 1
        if wanted:
            n_kept = at - start
    return np.int64(n_kept)


@kernel(I64(_TURNS, _RANKED, record(*[I64] * 11), I64, F64_1, _ITEMS))
def _evidence(turns, ranked, bounds, dim, weights, items):
    """Fill in the items; return how many there are."""
    n_tokens, flags, _, _, time, _, _, mention_indptr, mention_entity = turns[:9]
    (
        indptr, rows, fused, graph_rows, masks, mask_of, subject, period, term_indptr, term, wanted,
        newest, supersede,
    ) = ranked  # fmt: skip
    (
        n_main, n_anchors, n_near_anchors, short, n_bridges, n_neighbors, tokens, local, budget,
        closure, calibration,
    ) = bounds  # fmt: skip
    support_weight, subject_weight, temporal_weight = weights[0], weights[1], weights[2]
    type_weight, least = weights[3], weights[4]
    item_indptr, n_kept, order, out_row, kind, out_fused, out_support, score, reason, newer = items
    n = len(n_tokens)
    fused_of = np.zeros(n, np.float64)
    taken = np.zeros(n, np.bool_)
    near = np.empty(2 * local * n_near_anchors + 1, np.int32)
    support = np.empty(len(near), np.float64)
    size = 0
    for j in range(len(mask_of)):
        mask = masks[mask_of[j]]
        first, last = indptr[j], indptr[j + 1]
        start = size
        for p in range(first, last):
            fused_of[rows[p]] = fused[p]
        for p in range(first, min(last, first + n_main)):  # M(q)
            out_row[size], kind[size] = rows[p], MAIN
            taken[rows[p]] = True
            size += 1
        stop = size
        n_near = 0
        if closure != 0:  # C(q), eq. 14
            # Main items support one another too: of two that stand equal, the one beside the best
            # evidence is the more likely part of it.
            for i in range(start, min(stop, start + n_near_anchors)):
                n_near = _support_around(
                    turns, mask, out_row[i], fused_of[out_row[i]], local, short, near, support,
                    n_near,
                )  # fmt: skip
            room = tokens
            # N_g: the best graph-ranked contexts beside the main ones that share an entity with
            # the best. Those name who or what the question only describes ("my instructor is
            # called Lena"); the second hop is where that name stands again.
            anchors = out_row[start : min(stop, start + n_anchors)].copy()
            left = n_bridges
            for p in range(graph_rows.shape[1]):
                row = graph_rows[j, p]
                if row < 0 or left == 0:
                    break
                if taken[row] or not _shares_entity(
                    mention_indptr, mention_entity, row, anchors, len(anchors)
                ):
                    continue
                taken[row] = True
                left -= 1
                if n_tokens[row] <= room:
                    room -= n_tokens[row]
                    out_row[size], kind[size] = row, BRIDGE
                    size += 1
            # N_h, best first, ties by row.
            around = np.empty(n_near, np.int32)
            value = np.empty(n_near, np.float64)
            n_around = 0
            for i in range(n_near):
                row = near[i]
                if taken[row]:
                    continue
                total = support[i] + fused_of[row]
                at = n_around
                while at > 0 and (
                    value[at - 1] < total or (value[at - 1] == total and around[at - 1] > row)
                ):
                    value[at], around[at] = value[at - 1], around[at - 1]
                    at -= 1
                value[at], around[at] = total, row
                n_around += 1
            for i in range(min(n_around, n_neighbors)):
                row = around[i]
                if n_tokens[row] <= room:
                    room -= n_tokens[row]
                    out_row[size], kind[size] = row, NEIGHBOR
                    size += 1
        for i in range(start, size):
            row = out_row[i]
            out_fused[i] = fused_of[row]
            out_support[i] = 0.0
            for a in range(n_near):
                if near[a] == row:
                    out_support[i] = support[a]
            score[i] = out_fused[i]
            reason[i] = KEPT
            newer[i] = -1
            if calibration != 0:  # R(q), eq. 15
                if not mask[row]:
                    reason[i] = OUTSIDE
                score[i] += support_weight * out_support[i]
                if subject[j, row]:
                    score[i] += subject_weight
                low, high = period[j, 0], period[j, 1]
                known = time[row, 0] != NO_TIME
                if low < high and known and time[row, 0] < high and time[row, 1] > low:
                    score[i] += temporal_weight
                if flags[row] & wanted[j]:
                    score[i] += type_weight
        if calibration != 0 and supersede[j]:
            words = term[term_indptr[j] : term_indptr[j + 1]]
            for i in range(start, size):
                if reason[i] == KEPT:
                    found = _newer(turns, words, out_row[start:size], out_row[i], dim, least)
                    if found >= 0:
                        reason[i], newer[i] = SUPERSEDED, found
        for p in range(first, last):
            fused_of[rows[p]] = 0.0
            taken[rows[p]] = False
        for p in range(graph_rows.shape[1]):
            if graph_rows[j, p] >= 0:
                taken[graph_rows[j, p]] = False
        for i in range(start, size):
            order[i] = i
        if calibration != 0:
            _order_by_score(score, out_row, time, newest[j], start, size, order)
        room = budget
        for i in order[start:size]:
            if reason[i] == KEPT and budget >= 0:
                # A long item that does not fit leaves room for shorter ones.
                if n_tokens[out_row[i]] <= room:
                    room -= n_tokens[out_row[i]]
                else:
                    reason[i] = TOO_LONG
        n_kept[j] = _kept_first(reason, start, size, order)
        item_indptr[j + 1] = size
    return np.int64(size)


def evidence(
    turns: Turns, ranked: Ranked, bounds: Bounds, weights: NDArray[np.float64], vectors: Any
) -> Items:
    """Close M(q) with bounded support (eq. 14), filter it and rank it (eq. 15).

    Parameters
    ----------
    turns : Turns
    ranked : Ranked
    bounds : Bounds
    weights : (5,) float64
        ``CalibrationConfig``: support, subject, temporal, answer_type, superseded_similarity.
    vectors : Chunks
        The turns'.

    Returns
    -------
    Items
        A question's items do not depend on the other questions.
    """
    b = len(ranked.mask_of)
    most = np.minimum(np.diff(ranked.indptr), bounds.main)
    m = int(most.sum()) + b * (bounds.bridges + bounds.neighbors)
    items = Items(
        np.zeros(b + 1, np.int64), np.zeros(b, np.int64), np.empty(m, np.int32),
        np.empty(m, np.int8), np.empty(m), np.empty(m), np.empty(m), np.empty(m, np.int8),
        np.empty(m, np.int32),
    )  # fmt: skip
    order = np.empty(m, np.int64)
    columns = (items.indptr, items.n_kept, order, *items[2:])
    size = _evidence(
        tuple(turns), tuple(ranked), tuple(map(int, bounds)), vectors.dim, weights, columns
    )
    ranked_columns = [column[order[:size]] for column in items[2:]]
    return Items(items.indptr, items.n_kept, *ranked_columns)  # type: ignore[arg-type] # as they were
