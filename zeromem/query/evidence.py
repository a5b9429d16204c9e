"""From rows to evidence: verbatim text with its provenance, and the reasons."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zeromem.index import Arrays
from zeromem.index.names import Names
from zeromem.query.ranked import Item, Ranked
from zeromem.types import Evidence, Explained, Explanation, LeftOut, Retrieval, Route, StoredTrace

Array = NDArray[Any]
_SHOWN_ENTITIES = 5
_SHOWN_ACTIVATED = 20
_SHOWN_SENTENCES = 3


def rows_needed(ranked: Ranked, arrays: Arrays) -> list[int]:
    """List the lsns whose traces a result shows."""
    lsn: list[int] = arrays.turns.lsn[[item.row for item in ranked.items]].tolist()
    return lsn


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
    shown = {item.row for item in ranked.items}
    places = [_places(rows, shown) for rows in (ranked.main, ranked.graph, ranked.hierarchy)]
    vocabulary = arrays.turns.vocabulary
    keywords = {vocabulary[w]: w for w in ranked.profile.keywords if w in vocabulary}
    items = tuple(
        _evidence(item, ranked, arrays, stored, keywords, *(p.get(item.row) for p in places))
        for item in ranked.items
    )
    return Retrieval(items, ranked.profile, ranked.route, ranked.reason, dict(seconds))


def _places(rows: Array, shown: Collection[int]) -> dict[int, int]:
    """Ranks from 1 of the rows that are shown."""
    return {row: rank for rank, row in enumerate(rows.tolist(), 1) if row in shown}


def _evidence(
    item: Item,
    ranked: Ranked,
    arrays: Arrays,
    stored: Mapping[int, StoredTrace],
    keywords: Mapping[int, str],
    main_rank: int | None,
    graph_rank: int | None,
    hierarchy_rank: int | None,
) -> Evidence:
    row, turns = item.row, arrays.turns
    source = stored[int(turns.lsn[row])]
    start, end = turns.span[row].tolist()
    present = set(turns.term[turns.term_indptr[row] : turns.term_indptr[row + 1]].tolist())
    matched = tuple(word for term, word in keywords.items() if term in present)
    entities = _carriers(row, ranked.activation, arrays)
    return Evidence(
        text=source.trace.text[start:end],
        trace=source.trace,
        lsn=source.lsn,
        start=start,
        end=end,
        kind=item.kind,
        score=item.score,
        fused=item.fused,
        main_rank=main_rank,
        graph_rank=graph_rank,
        hierarchy_rank=hierarchy_rank,
        matched=matched,
        entities=entities,
        why=_why(item, ranked.route, main_rank, (graph_rank, hierarchy_rank), matched, entities),
        n_tokens=int(turns.n_tokens[row]),
    )


def _carriers(row: int, activation: Array, arrays: Arrays) -> tuple[str, ...]:
    """Entities of the turn that eq. 8-9 activated, strongest first."""
    graph = arrays.graph
    first, last = graph.mention_indptr[row : row + 2].tolist()
    if first == last:
        return ()
    entities = graph.mention_entity[first:last]
    # A handful: lists are faster than arrays.
    active = zip(activation[entities].tolist(), entities.tolist(), strict=True)
    strongest = sorted((pair for pair in active if pair[0] > 0), key=lambda pair: -pair[0])
    name = arrays.turns.entities.name
    return tuple(name(entity) for _, entity in strongest[:_SHOWN_ENTITIES])


def _why(
    item: Item,
    route: Route,
    main_rank: int | None,
    ranks: tuple[int | None, int | None],
    matched: tuple[str, ...],
    entities: tuple[str, ...],
) -> str:
    """Say it in one line."""
    if item.kind == "main":
        parts = [f"main #{main_rank} ({route} route)"]
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
        By lsn; holds what was left out.
    """
    turns, names = arrays.turns, arrays.turns.entities
    rows = ranked.candidates.tolist()
    graph = dict(zip(rows, ranked.graph_normalized.tolist(), strict=True))
    hierarchy = dict(zip(rows, ranked.hierarchy_normalized.tolist(), strict=True))
    items = tuple(
        Explained(
            evidence,
            graph.get(item.row, 0.0),
            hierarchy.get(item.row, 0.0),
            _sentences(item.row, evidence, ranked.vector, arrays),
        )
        for evidence, item in zip(retrieval.items, ranked.items, strict=True)
    )
    left_out = []
    for item in ranked.left_out:
        trace = stored[int(turns.lsn[item.row])].trace
        start, end = turns.span[item.row].tolist()
        left_out.append(LeftOut(trace.id or "", trace.text[start:end], item.reason))
    active = np.flatnonzero(ranked.activation > 0)
    return Explanation(
        retrieval,
        items,
        _strongest(ranked.seeds, ranked.seed_values, names),
        _strongest(active, ranked.activation[active], names),
        tuple(left_out),
        ranked.n_outside,
    )


def _sentences(
    row: int, evidence: Evidence, vector: Array, arrays: Arrays
) -> tuple[tuple[str, float], ...]:
    """List the sentences of a turn that are like the question, most similar first."""
    first, last = arrays.turns.sentence_indptr[row : row + 2].tolist()
    rows = np.arange(first, last)
    similarity = arrays.sentence_vectors.take(rows) @ vector
    similarity *= arrays.sentence_inverse_norm[first:last]
    span = arrays.turns.sentence_span[first:last]
    return tuple(
        (evidence.trace.text[span[z, 0] : span[z, 1]], float(similarity[z]))
        for z in np.argsort(-similarity, kind="stable")[:_SHOWN_SENTENCES]
        if similarity[z] > 0
    )


def _strongest(entities: Array, values: Array, names: Names) -> tuple[tuple[str, float], ...]:
    order = np.argsort(-values, kind="stable")[:_SHOWN_ACTIVATED]
    return tuple((names.name(int(entities[i])), float(values[i])) for i in order)
