"""Closure and calibration (eq. 14-15): the oracle."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
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
)
from zeromem.kernels._views import NO_TIME


@dataclass
class _Item:
    row: int
    kind: int
    fused: float
    support: float
    score: float
    reason: int = KEPT
    newer: int = -1


def _own(indptr: NDArray[np.int64], values: NDArray[np.int32], row: int) -> set[int]:
    return set(values[indptr[row] : indptr[row + 1]].tolist())


def _walk(link: NDArray[np.int32], row: int, steps: int) -> Iterator[tuple[int, int]]:
    """Rows along a link, with how many steps they are away."""
    for step in range(1, steps + 1):
        row = int(link[row])
        if row < 0:
            return
        yield step, row


def _support(
    turns: Turns, mask: NDArray[np.bool_], anchors: list[int], fused: dict[int, float],
    bounds: Bounds,
) -> dict[int, float]:  # fmt: skip
    """Admissible turns around the anchors, with the best support that each is lent.

    It is the anchor's score, halved with each turn further away, and less for a longer turn.
    """
    lent: dict[int, float] = {}
    for anchor in anchors:
        for link in (turns.previous, turns.following):
            for step, row in _walk(link, anchor, bounds.local):
                if mask[row]:
                    share = fused[anchor] * 0.5 ** (step - 1)
                    value = share * min(1.0, bounds.short / max(1, turns.n_tokens[row]))
                    lent[row] = max(lent.get(row, value), value)
    return lent


def _bridges(turns: Turns, graph_rows: list[int], main: list[int], bounds: Bounds) -> list[int]:
    """N_g: the best graph-ranked turns beside M(q) that share an entity with the best of M(q)."""

    def entities(row: int) -> set[int]:
        return _own(turns.mention_indptr, turns.mention_entity, row)

    of_main = set().union(*(entities(row) for row in main[: bounds.anchors]))
    beside = (row for row in graph_rows if row not in main and entities(row) & of_main)
    return [row for _, row in zip(range(bounds.bridges), beside, strict=False)]


def _newer(
    turns: Turns, asked: set[int], items: list[_Item], old: int, vectors: Any, least: float
) -> int:
    """The first of the items that says the same as ``old`` later, or -1.

    By the same speaker, matching the question in as many terms and at least one of the same, with
    a vector alike.
    """
    if turns.time[old, 0] == NO_TIME:
        return -1
    of_old = _own(turns.term_indptr, turns.term, old) & asked
    a = vectors.take([old])[0].astype(np.float64) * turns.inverse_norm[old]
    for new in [item.row for item in items]:
        of_new = _own(turns.term_indptr, turns.term, new) & asked
        same_speaker = (
            turns.speaker[new] == turns.speaker[old] and turns.role[new] == turns.role[old]
        )
        later = turns.time[new, 0] > turns.time[old, 0]
        if later and same_speaker and len(of_new) >= len(of_old) and of_new & of_old:
            b = vectors.take([new])[0].astype(np.float64) * turns.inverse_norm[new]
            if (a * b).sum() >= least:
                return new
    return -1


def _closed(turns: Turns, ranked: Ranked, j: int, bounds: Bounds) -> list[_Item]:
    """C(q) of eq. 14, in the order main, bridges, neighbours; bounded by a count and by tokens."""
    mask = ranked.masks[ranked.mask_of[j]]
    candidates = slice(ranked.indptr[j], ranked.indptr[j + 1])
    rows = ranked.rows[candidates].tolist()
    fused = dict(zip(rows, ranked.fused[candidates].astype(np.float64).tolist(), strict=True))
    main = rows[: bounds.main]
    lent: dict[int, float] = {}
    kinds = dict.fromkeys(main, MAIN)
    if bounds.closure:
        lent = _support(turns, mask, main[: bounds.near], fused, bounds)
        graph_rows = [row for row in ranked.graph_rows[j].tolist() if row >= 0]
        bridges = _bridges(turns, graph_rows, main, bounds)
        beside = [row for row in lent if row not in main and row not in bridges]
        beside.sort(key=lambda row: (-(lent[row] + fused.get(row, 0.0)), row))
        added = [(row, BRIDGE) for row in bridges]
        added += [(row, NEIGHBOR) for row in beside[: bounds.neighbors]]
        room = bounds.tokens
        for row, kind in added:
            if turns.n_tokens[row] <= room:
                room -= int(turns.n_tokens[row])
                kinds[row] = kind
    return [
        _Item(row, kind, fused.get(row, 0.0), lent.get(row, 0.0), fused.get(row, 0.0))
        for row, kind in kinds.items()
    ]


def _calibrate(
    items: list[_Item], turns: Turns, ranked: Ranked, j: int, weights: list[float], vectors: Any
) -> None:
    """Eq. 15: leave out what does not fit, add what does to the score, and rank."""
    support, subject, temporal, answer_type, alike = weights
    mask = ranked.masks[ranked.mask_of[j]]
    low, high = ranked.period[j].tolist()
    for item in items:
        if not mask[item.row]:
            item.reason = OUTSIDE
        start, end = turns.time[item.row].tolist()
        in_period = low < high and start != NO_TIME and start < high and end > low
        item.score += support * item.support
        item.score += subject * bool(ranked.subject[j, item.row])
        item.score += temporal * in_period
        item.score += answer_type * bool(turns.flags[item.row] & ranked.wanted[j])
    if ranked.supersede[j]:
        asked = _own(ranked.term_indptr, ranked.term, j)
        for item in items:
            if item.reason == KEPT:
                item.newer = _newer(turns, asked, items, item.row, vectors, alike)
                item.reason = SUPERSEDED if item.newer >= 0 else KEPT

    def place(item: _Item) -> tuple[float, int, int]:
        when = int(turns.time[item.row, 0])
        return -item.score, -when if ranked.newest[j] else 0, item.row

    items.sort(key=place)


def evidence(
    turns: Turns, ranked: Ranked, bounds: Bounds, weights: NDArray[np.float64], vectors: Any
) -> Items:
    """Return C(q) and R(q) of each question; see ``evidence_cpu.evidence``."""
    found: list[_Item] = []
    indptr, n_kept = [0], []
    for j in range(len(ranked.mask_of)):
        items = _closed(turns, ranked, j, bounds)
        if bounds.calibration:
            _calibrate(items, turns, ranked, j, weights.tolist(), vectors)
        room = bounds.budget
        for item in items:
            if bounds.budget >= 0 and item.reason == KEPT:
                if turns.n_tokens[item.row] <= room:
                    room -= int(turns.n_tokens[item.row])
                else:
                    item.reason = TOO_LONG
        kept = [item for item in items if item.reason == KEPT]
        found += kept + [item for item in items if item.reason != KEPT]
        indptr.append(len(found))
        n_kept.append(len(kept))
    return Items(
        np.array(indptr, np.int64),
        np.array(n_kept, np.int64),
        np.array([item.row for item in found], np.int32),
        np.array([item.kind for item in found], np.int8),
        np.array([item.fused for item in found], np.float64),
        np.array([item.support for item in found], np.float64),
        np.array([item.score for item in found], np.float64),
        np.array([item.reason for item in found], np.int8),
        np.array([item.newer for item in found], np.int32),
    )
