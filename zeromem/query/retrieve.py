"""Evidence as a pure function of (index, questions): eq. 6-15 from top to bottom."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zeromem.config import Config
from zeromem.index import Index
from zeromem.kernels._fuse import Fused
from zeromem.query.calibrate import Calibrated, calibrate, uncalibrated
from zeromem.query.closure import Item, View, close, main_items
from zeromem.query.graph_view import GraphView, graph_view
from zeromem.query.hierarchy_view import hierarchy_view
from zeromem.query.parts import parts_of
from zeromem.query.questions import Encode, Questions, prepare
from zeromem.query.route import route
from zeromem.query.signals import Ranking, Signals
from zeromem.types import QueryProfile, Route

Array = NDArray[Any]

# Questions whose (questions × turns) arrays are held at once.
BATCH = 32
DEFAULT_K = 5  # the paper's


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What one call asks for.

    Attributes
    ----------
    k : int, optional
        Most main items, |M(q)|. Without it 5, or with a token budget as many as may fit it.
    token_budget : int, optional
        Most encoder tokens of R(q); items that no longer fit are left out, the best come first.
    view : {"graph", "hierarchy"}, optional
        One view alone (the paper's ablation).
    closure, calibration : bool
    """

    k: int | None = None
    token_budget: int | None = None
    view: View | None = None
    closure: bool = True
    calibration: bool = True

    def main(self, config: Config) -> int:
        """Bound on |M(q)|."""
        if self.k is not None:
            return self.k
        return DEFAULT_K if self.token_budget is None else config.fusion.candidates


@dataclass(frozen=True, slots=True, eq=False)
class Ranked:
    """R(q) of one question as rows of the index, and what explains it.

    Attributes
    ----------
    profile : QueryProfile
    route : Route
    reason : str
    items : list of (Item, score)
        R(q), best first.
    main_rank, graph_rank, hierarchy_rank : dict of int to int
        Ranks from 1 by row.
    graph_score, hierarchy_score : dict of int to float
        Normalised, eq. 12, by row.
    filtered : list of (row, reason)
    activation : (n_entities,) float32
        Sum of eta_t, eq. 9.
    seeds : (n_entities,) float32
    similarity : (n_sentences,) float32
        sim(q, z) of eq. 9.
    n_outside : int
        Turns outside the boundary.
    """

    profile: QueryProfile
    route: Route
    reason: str
    items: list[tuple[Item, float]]
    main_rank: dict[int, int]
    graph_rank: dict[int, int]
    hierarchy_rank: dict[int, int]
    graph_score: dict[int, float]
    hierarchy_score: dict[int, float]
    filtered: list[tuple[int, str]]
    activation: Array
    seeds: Array
    similarity: Array
    n_outside: int = 0


@dataclass(slots=True)
class Timer:
    """Wall-clock seconds by stage."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add the time of the block to a stage."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


def retrieve(
    index: Index, profiles: Sequence[QueryProfile], encode: Encode, options: Options, timer: Timer
) -> list[Ranked]:
    """Answer a batch of questions; each gets what it would get alone.

    Parameters
    ----------
    index : Index
    profiles : sequence of QueryProfile
    encode : callable
        Texts to (n, dim) float32 unit rows.
    options : Options
    timer : Timer
        Gets the time of each stage.
    """
    found: list[Ranked] = []
    if not len(index):
        nothing = np.zeros(0, np.float32)
        return [
            Ranked(
                p,
                Route.LOCAL,
                "the memory is empty",
                [],
                {},
                {},
                {},
                {},
                {},
                [],
                nothing,
                nothing,
                nothing,
            )
            for p in profiles
        ]
    if not profiles:
        return found
    weight = index.config.fusion.part_weight
    groups = [(p, *(parts_of(p) if weight else ())) for p in profiles]
    indptr = np.concatenate(([0], np.cumsum([len(group) for group in groups])))
    with timer.stage("encode"):
        questions = prepare([p for group in groups for p in group], index.arrays, encode)
    for start in range(0, len(profiles), BATCH):
        own = indptr[start : start + BATCH + 1]
        alone = len(own) == len(indptr)  # one batch holds them all: nothing is copied
        part = questions if alone else questions.take(np.arange(own[0], own[-1]))
        found += _retrieve_batch(index, part, own - own[0], options, timer)
    return found


def _retrieve_batch(
    index: Index, questions: Questions, indptr: Array, options: Options, timer: Timer
) -> list[Ranked]:
    """Answer questions, each followed by its parts in ``questions``."""
    config, arrays = index.config, index.arrays
    signals = Signals(questions, arrays, config, index.backend)
    n_candidates = min(max(config.fusion.candidates, options.main(config)), len(arrays))
    with timer.stage("graph view"):
        graph = graph_view(signals, n_candidates)
    with timer.stage("hierarchy view"):
        hierarchy = hierarchy_view(signals, n_candidates)
    with timer.stage("fusion"):
        if len(indptr) <= len(questions):
            graph = graph.folded(indptr, config.fusion.part_weight)
            hierarchy = hierarchy.folded(indptr, config.fusion.part_weight)
            questions = questions.take(indptr[:-1])
        routes = [_route(questions, j, index) for j in range(len(questions))]
        weight = [_graph_weight(r, options.view, config) for r, _ in routes]
        views = graph.ranking.flat(), hierarchy.flat()
        if options.view == "graph":
            views = views[0], _nothing(len(questions))
        elif options.view == "hierarchy":
            views = _nothing(len(questions)), views[1]
        fused = index.backend.fuse(*views[0], *views[1], np.array(weight, np.float32))
    with timer.stage("closure and calibration"):
        return [
            _finish(index, questions, j, routes[j], graph, hierarchy, fused, options)
            for j in range(len(questions))
        ]


def _finish(
    index: Index,
    questions: Questions,
    j: int,
    routed: tuple[Route, str],
    graph: GraphView,
    hierarchy: Ranking,
    fused: Fused,
    options: Options,
) -> Ranked:
    """M(q), then C(q), then R(q) of question ``j``."""
    arrays, config = index.arrays, index.config
    part = slice(*fused.indptr[j : j + 2])
    rows = fused.rows[part]
    score = dict(zip(rows.tolist(), fused.fused[part].tolist(), strict=True))
    main = rows[: options.main(config)]
    items = main_items(main, score)
    if options.closure:
        items = close(
            items, score, graph.ranking.rows[j], arrays, questions.mask[j], config, options.view
        )
    if options.calibration:
        result = calibrate(items, questions, j, arrays, config.calibration)
    else:
        result = uncalibrated(items)
    if options.token_budget is not None:
        result = _within(result, arrays.turns.n_tokens, options.token_budget)
    return Ranked(
        profile=questions.profiles[j],
        route=routed[0],
        reason=routed[1],
        items=result.items,
        main_rank={int(r): i for i, r in enumerate(main, 1)},
        graph_rank={} if options.view == "hierarchy" else graph.ranking.rank_of(j),
        hierarchy_rank={} if options.view == "graph" else hierarchy.rank_of(j),
        graph_score=dict(zip(rows.tolist(), fused.graph_normalized[part].tolist(), strict=True)),
        hierarchy_score=dict(zip(rows.tolist(), fused.hier_normalized[part].tolist(), strict=True)),
        filtered=result.filtered,
        activation=graph.activation[:, j],
        seeds=graph.seeds[:, j],
        similarity=graph.similarity[j],
        n_outside=int(len(arrays) - questions.mask[j].sum()),
    )


def _route(questions: Questions, j: int, index: Index) -> tuple[Route, str]:
    known = tuple(name for name, entity in questions.entities[j] if entity >= 0)
    speakers = index.arrays.speaker_id
    named = tuple(s for s in questions.profiles[j].subjects if s in speakers)
    return route(questions.profiles[j], known, named)


def _graph_weight(chosen: Route, view: View | None, config: Config) -> float:
    """Weight of the graph view in eq. 13."""
    if view is not None:
        return float(view == "graph")
    rho = config.fusion.primary_weight
    return rho if chosen is Route.RELATIONAL else 1.0 - rho


def _nothing(b: int) -> tuple[Array, Array, Array]:
    """Stand in for the candidates of a view that is left out."""
    return np.zeros(b + 1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32)


def _within(result: Calibrated, n_tokens: Array, budget: int) -> Calibrated:
    """Keep what fits, best first: a long item that does not fit leaves room for shorter ones."""
    kept, filtered, room = [], list(result.filtered), budget
    for item, score in result.items:
        cost = int(n_tokens[item.row])
        if cost <= room:
            kept.append((item, score))
            room -= cost
        else:
            filtered.append((item.row, f"{cost} tokens do not fit the budget of {budget}"))
    return Calibrated(kept, filtered)
