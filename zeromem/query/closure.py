"""C(q), eq. 14: main evidence, bridges of the graph, neighbours in the hierarchy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zeromem import _hierarchy
from zeromem.config import Config
from zeromem.index import Arrays
from zeromem.types import EvidenceKind

Array = NDArray[Any]


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
        Score of the main item that a neighbour belongs to, or of the bridge itself.
    anchor : int
        Row of the main item that brought it in; its own for main items and bridges.
    """

    row: int
    kind: EvidenceKind
    fused: float
    support: float
    anchor: int


def close(
    main: Sequence[Item],
    fused: Mapping[int, float],
    graph_rows: Array,
    arrays: Arrays,
    mask: Array,
    config: Config,
) -> list[Item]:
    """Return what C(q) of one question holds beside M(q); each row once.

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
    """
    bounds = config.closure
    taken = {item.row for item in main}
    wanted = _bridges(taken, fused, graph_rows, arrays, bounds.bridges)
    taken |= {item.row for item in wanted}
    around = _neighbors(main, fused, taken, arrays, mask, config.hierarchy.local)
    found, room = [], bounds.tokens
    for item in [*wanted, *around[: bounds.neighbors]]:
        cost = int(arrays.turns.n_tokens[item.row])
        if cost <= room:
            found.append(item)
            room -= cost
    return found


def _bridges(
    main: set[int], fused: Mapping[int, float], graph_rows: Array, arrays: Arrays, limit: int
) -> list[Item]:
    """N_g: the best graph-ranked contexts beside the main ones that share an entity with them."""
    held = {entity for row in main for entity in _entities(row, arrays)}
    found: list[Item] = []
    for row in graph_rows[graph_rows >= 0].tolist():
        if len(found) == limit:
            break
        if row not in main and not held.isdisjoint(_entities(row, arrays)):
            score = fused.get(row, 0.0)
            found.append(Item(row, "bridge", score, score, row))
    return found


def _entities(row: int, arrays: Arrays) -> list[int]:
    graph = arrays.graph
    entities: list[int] = graph.mention_entity[
        graph.mention_indptr[row] : graph.mention_indptr[row + 1]
    ].tolist()
    return entities


def _neighbors(
    main: Sequence[Item],
    fused: Mapping[int, float],
    taken: set[int],
    arrays: Arrays,
    mask: Array,
    radius: int,
) -> list[Item]:
    """N_h: admissible turns of the main items' local spans, the best supported first.

    A turn depends on its nearest neighbours most: support halves with each turn of distance.
    """
    positions = arrays.position[[item.row for item in main]].astype(np.int64)
    spans = _hierarchy.local_spans(arrays.session_indptr, positions, radius)
    best: dict[int, Item] = {}
    for item, at, (start, end) in zip(main, positions.tolist(), spans.tolist(), strict=True):
        for position in range(start, end):
            near = int(arrays.order[position])
            if near in taken or not mask[near]:
                continue
            support = item.fused * 0.5 ** abs(position - at)
            if near not in best or support > best[near].support:
                best[near] = Item(near, "neighbor", fused.get(near, 0.0), support, item.row)
    return sorted(best.values(), key=lambda item: (-(item.support + item.fused), item.row))
