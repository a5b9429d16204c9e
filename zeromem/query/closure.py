"""C(q), eq. 14: main evidence, bridges of the graph, neighbours in the hierarchy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from zeromem import _hierarchy
from zeromem.config import Config
from zeromem.index import Arrays
from zeromem.types import EvidenceKind

Array = NDArray[Any]
View = Literal["graph", "hierarchy"]


@dataclass(frozen=True, slots=True)
class Item:
    """One member of C(q).

    Attributes
    ----------
    row : int
    kind : EvidenceKind
    fused : float
        Eq. 13; 0 where neither view returned it.
    support : float
        What main evidence beside it in its session lends it; 0 where there is none.
    """

    row: int
    kind: EvidenceKind
    fused: float
    support: float = 0.0


def main_items(rows: Array, fused: Mapping[int, float]) -> list[Item]:
    """M(q): rows as items, best first."""
    return [Item(row, "main", fused[row]) for row in rows.tolist()]


def close(
    main: Sequence[Item],
    fused: Mapping[int, float],
    graph_rows: Array,
    arrays: Arrays,
    mask: Array,
    config: Config,
    view: View | None,
) -> list[Item]:
    """C(q) of one question, eq. 14: each row once, main items first.

    Parameters
    ----------
    main : sequence of Item
        M(q), best first.
    fused : mapping of int to float
        S_fuse by row.
    graph_rows : (k,) int32
        The graph view's candidates, best first, padded with -1.
    arrays : Arrays
    mask : (n,) bool
        Admissible turns.
    config : Config
    view : {"graph", "hierarchy"}, optional
        Where one view stands alone, only its own support is added.

    Notes
    -----
    Main items support one another too: of two that stand equal, the one beside the best evidence
    is the more likely part of it.
    """
    bounds = config.closure
    anchors = main[: bounds.anchors] if view != "graph" else []
    support = _support(anchors, arrays, mask, config.hierarchy.local, bounds.short)
    closed = [replace(item, support=support.get(item.row, 0.0)) for item in main]
    taken = {item.row for item in main}
    n_bridges = bounds.bridges if view != "hierarchy" else 0
    bridges = _bridges(main, bounds.anchors, fused, graph_rows, arrays, n_bridges)
    taken.update(item.row for item in bridges)
    around = [
        Item(row, "neighbor", fused.get(row, 0.0), value)
        for row, value in support.items()
        if row not in taken
    ]
    around.sort(key=lambda item: (-(item.support + item.fused), item.row))
    room = bounds.tokens
    for item in [*bridges, *around[: bounds.neighbors]]:
        cost = int(arrays.turns.n_tokens[item.row])
        if cost <= room:
            closed.append(replace(item, support=support.get(item.row, 0.0)))
            room -= cost
    return closed


def _bridges(
    main: Sequence[Item],
    n_anchors: int,
    fused: Mapping[int, float],
    graph_rows: Array,
    arrays: Arrays,
    limit: int,
) -> list[Item]:
    """N_g: the best graph-ranked contexts beside the main ones that share an entity with the best.

    The best items name who or what the question only describes ("my instructor is called Lena");
    the second hop is where that name stands again.
    """
    taken = {item.row for item in main}
    held = {entity for item in main[:n_anchors] for entity in _entities(item.row, arrays)}
    found: list[Item] = []
    for row in graph_rows[graph_rows >= 0].tolist():
        if len(found) == limit:
            break
        if row not in taken and not held.isdisjoint(_entities(row, arrays)):
            found.append(Item(row, "bridge", fused.get(row, 0.0)))
    return found


def _support(
    anchors: Sequence[Item], arrays: Arrays, mask: Array, radius: int, short: int
) -> dict[int, float]:
    """N_h: admissible turns of the anchors' local spans, with the best support each is lent.

    A turn depends on its nearest neighbours most: support halves with each further turn. What is
    restored is the question before an answer and the remark after it; a long piece takes the room
    of many of those, so the longer it is, the more it has to earn its place by its own score.
    """
    positions = arrays.position[[item.row for item in anchors]].astype(np.int64)
    spans = _hierarchy.local_spans(arrays.session_indptr, positions, radius)
    best: dict[int, float] = {}
    for item, at, (start, end) in zip(anchors, positions.tolist(), spans.tolist(), strict=True):
        for position in range(start, end):
            near = int(arrays.order[position])
            if position != at and mask[near]:
                value = item.fused * 0.5 ** (abs(position - at) - 1)
                value *= min(1.0, short / max(1, int(arrays.turns.n_tokens[near])))
                best[near] = max(best.get(near, 0.0), value)
    return best


def _entities(row: int, arrays: Arrays) -> list[int]:
    graph = arrays.graph
    entities: list[int] = graph.mention_entity[
        graph.mention_indptr[row] : graph.mention_indptr[row + 1]
    ].tolist()
    return entities
