"""From rows to evidence: verbatim text with its provenance, and the reasons."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zeromem.index import Arrays
from zeromem.query.closure import Item
from zeromem.query.retrieve import Ranked
from zeromem.types import Evidence, Explained, Explanation, LeftOut, Retrieval, StoredTrace

Array = NDArray[Any]
_SHOWN_ENTITIES = 5
_SHOWN_ACTIVATED = 20
_SHOWN_SENTENCES = 3


def rows_needed(ranked: Ranked, arrays: Arrays) -> list[int]:
    """List the lsns whose traces a result shows."""
    return [int(arrays.turns.lsn[item.row]) for item, _ in ranked.items]


def materialise(
    ranked: Ranked, arrays: Arrays, stored: Mapping[int, StoredTrace], seconds: Mapping[str, float]
) -> Retrieval:
    """Give rows their text.

    Parameters
    ----------
    ranked : Ranked
    arrays : Arrays
    stored : mapping of int to StoredTrace
        By lsn; holds all of :func:`rows_needed`.
    seconds : mapping of str to float
        Time by stage.
    """
    names = arrays.turns.entities
    items = tuple(_evidence(i, s, ranked, arrays, stored, names) for i, s in ranked.items)
    return Retrieval(items, ranked.profile, ranked.route, ranked.reason, dict(seconds))


def _evidence(
    item: Item,
    score: float,
    ranked: Ranked,
    arrays: Arrays,
    stored: Mapping[int, StoredTrace],
    names: tuple[str, ...],
) -> Evidence:
    row, turns = item.row, arrays.turns
    source = stored[int(turns.lsn[row])]
    start, end = turns.span[row].tolist()
    present = set(turns.term[turns.term_indptr[row] : turns.term_indptr[row + 1]].tolist())
    matched = tuple(w for w in ranked.profile.keywords if arrays.term_id.get(w, -1) in present)
    entities = _carriers(row, ranked.activation, arrays, names)
    ranks = ranked.graph_rank.get(row), ranked.hierarchy_rank.get(row)
    return Evidence(
        text=source.trace.text[start:end],
        trace=source.trace,
        lsn=source.lsn,
        start=start,
        end=end,
        kind=item.kind,
        score=float(score),
        fused=float(item.fused),
        main_rank=ranked.main_rank.get(row),
        graph_rank=ranks[0],
        hierarchy_rank=ranks[1],
        matched=matched,
        entities=entities,
        why=_why(item, ranked, ranks, matched, entities),
        n_tokens=int(turns.n_tokens[row]),
    )


def _carriers(
    row: int, activation: Array, arrays: Arrays, names: tuple[str, ...]
) -> tuple[str, ...]:
    """Entities of the turn that eq. 8-9 activated, strongest first."""
    graph = arrays.graph
    entities = graph.mention_entity[graph.mention_indptr[row] : graph.mention_indptr[row + 1]]
    active = entities[activation[entities] > 0]
    order = np.argsort(-activation[active], kind="stable")[:_SHOWN_ENTITIES]
    return tuple(names[e] for e in active[order])


def _why(
    item: Item,
    ranked: Ranked,
    ranks: tuple[int | None, int | None],
    matched: tuple[str, ...],
    entities: tuple[str, ...],
) -> str:
    """Say it in one line."""
    if item.kind == "main":
        parts = [f"main #{ranked.main_rank[item.row]} ({ranked.route} route)"]
    elif item.kind == "bridge":
        parts = ["bridge: shares an entity with the main evidence"]
    else:
        parts = ["neighbour of main evidence"]
    shown = [f"{v} #{r}" for v, r in zip(("graph", "hierarchy"), ranks, strict=True) if r]
    parts.append(", ".join(shown) if shown else "in neither view's candidates")
    if matched:
        parts.append(f"matches {', '.join(matched)}")
    if entities:
        parts.append(f"via {', '.join(entities)}")
    return "; ".join(parts)


def explanation(
    ranked: Ranked, retrieval: Retrieval, arrays: Arrays, stored: Mapping[int, StoredTrace]
) -> Explanation:
    """Put the whole path of one question together.

    Parameters
    ----------
    ranked : Ranked
    retrieval : Retrieval
        Its materialised form.
    arrays : Arrays
    stored : mapping of int to StoredTrace
        By lsn; holds what was filtered.
    """
    turns, names = arrays.turns, arrays.turns.entities
    items = tuple(
        Explained(
            evidence,
            ranked.graph_score.get(item.row, 0.0),
            ranked.hierarchy_score.get(item.row, 0.0),
            _sentences(item.row, evidence, ranked.similarity, arrays),
        )
        for evidence, (item, _) in zip(retrieval.items, ranked.items, strict=True)
    )
    left_out = []
    for row, reason in ranked.filtered:
        trace = stored[int(turns.lsn[row])].trace
        start, end = turns.span[row].tolist()
        left_out.append(LeftOut(trace.id or "", trace.text[start:end], reason))
    return Explanation(
        retrieval,
        items,
        _strongest(ranked.seeds, names),
        _strongest(ranked.activation, names),
        tuple(left_out),
        ranked.n_outside,
    )


def _sentences(
    row: int, evidence: Evidence, similarity: Array, arrays: Arrays
) -> tuple[tuple[str, float], ...]:
    """List the sentences of a turn that are like the question, most similar first."""
    turn, span = arrays.turns.sentence_turn, arrays.turns.sentence_span
    first, last = np.searchsorted(turn, [row, row + 1])
    order = first + np.argsort(-similarity[first:last], kind="stable")[:_SHOWN_SENTENCES]
    return tuple(
        (evidence.trace.text[span[z, 0] : span[z, 1]], float(similarity[z]))
        for z in order
        if similarity[z] > 0
    )


def _strongest(activation: Array, names: tuple[str, ...]) -> tuple[tuple[str, float], ...]:
    active = np.flatnonzero(activation > 0)
    order = active[np.argsort(-activation[active], kind="stable")][:_SHOWN_ACTIVATED]
    return tuple((names[e], float(activation[e])) for e in order)
