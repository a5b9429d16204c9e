"""Evidence as a pure function of (index, questions): eq. 6-15 from top to bottom."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from zeromem.config import Config
from zeromem.index import Arrays, Index
from zeromem.index.features import HAS_NUMBER, HAS_TIME
from zeromem.kernels import evidence_cpu as close
from zeromem.kernels._fuse import Fused
from zeromem.kernels.views_cpu import Asked
from zeromem.query.folding import fold
from zeromem.query.graph_view import Restart, graph_view, restart
from zeromem.query.parts import parts_of
from zeromem.query.plan import Plan, plan_of
from zeromem.query.questions import Encode, Questions, Read, prepare, read
from zeromem.query.route import route
from zeromem.types import ROLES, EvidenceKind, QueryProfile, Route

Array = NDArray[Any]
View = Literal["graph", "hierarchy"]

# Questions that are worked on together, and cells of their (questions x turns) arrays: more
# questions make more of each look at the memory until their arrays leave the caches.
BATCH = 32
_CELLS = 1 << 21
DEFAULT_K = 5  # the paper's
_USER = ROLES.index("user")
_KINDS: tuple[EvidenceKind, ...] = ("main", "bridge", "neighbor")
_WANTED = {"date": HAS_TIME, "duration": HAS_TIME | HAS_NUMBER, "number": HAS_NUMBER}


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
    score : float
        What R(q) is ranked by.
    reason : str
        Why it is not in R(q); empty where it is.
    """

    row: int
    kind: EvidenceKind
    fused: float
    support: float
    score: float
    reason: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Ranked:
    """R(q) of one question as rows of the index, and what explains it.

    Attributes
    ----------
    profile : QueryProfile
    route : Route
    reason : str
    items, left_out : list of Item
        R(q), best first, and the rest of C(q).
    main : (k,) int32
        M(q), best first.
    graph, hierarchy : (k,) int32
        The views' candidates, best first; empty for a view that was left out.
    candidates : (m,) int32
        Of both views, by eq. 13.
    graph_normalized, hierarchy_normalized : (m,) float32
        Their scores, eq. 12.
    vector : (dim,) float32
        The question's.
    seeds, seed_values : (s,) int32, (s,) float32
        eta_0, eq. 8.
    activation : (n_entities,) float32
        Sum of eta_t, eq. 9.
    n_outside : int
        Turns outside the boundary.
    """

    profile: QueryProfile
    route: Route
    reason: str
    items: list[Item]
    left_out: list[Item]
    main: Array
    graph: Array
    hierarchy: Array
    candidates: Array
    graph_normalized: Array
    hierarchy_normalized: Array
    vector: Array
    seeds: Array
    seed_values: Array
    activation: Array
    n_outside: int = 0

    @classmethod
    def nothing(cls, profile: QueryProfile) -> Ranked:
        """Answer a question to an empty memory."""
        rows, values = np.zeros(0, np.int32), np.zeros(0, np.float32)
        return cls(
            profile, Route.LOCAL, "the memory is empty", [], [], rows, rows, rows, rows, values,
            values, values, rows, values, values,
        )  # fmt: skip


@dataclass(slots=True)
class Timer:
    """Wall-clock seconds by stage, summed over the threads that worked on a call."""

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
    if not len(index):
        return [Ranked.nothing(profile) for profile in profiles]
    parted = index.config.fusion.part_weight > 0
    # A question that names several things is followed by its parts.
    groups = [(p, *(parts_of(p) if parted else ())) for p in profiles]
    with timer.stage("encode"):
        asked = read([p for group in groups for p in group], index.arrays)
        names = sorted({name for question in asked for name in question.unknown})
        vectors = encode([*(question.content for question in asked), *names])
        known = dict(zip(names, vectors[len(asked) :], strict=True))
    ends = np.cumsum([0, *map(len, groups)])
    pieces = _pieces(len(groups), len(index), index.backend.n_threads)

    def answer(piece: slice) -> tuple[list[Ranked], Timer]:
        own = ends[piece.start : piece.stop + 1]
        rows = slice(own[0], own[-1])
        spent = Timer()
        found = _answer(index, asked[rows], vectors[rows], known, own - own[0], options, spent)
        return found, spent

    found: list[Ranked] = []
    for ranked, spent in index.backend.map(answer, pieces):
        found += ranked
        for stage, seconds in spent.seconds.items():
            timer.seconds[stage] = timer.seconds.get(stage, 0.0) + seconds
    return found


def _pieces(n_questions: int, n_turns: int, n_threads: int) -> list[slice]:
    """Cut a batch so that a piece fits the caches and no thread waits long for another."""
    most = max(1, min(BATCH, _CELLS // n_turns))
    n_pieces = -(-n_questions // most)
    if n_questions >= 2 * n_threads:
        n_pieces = -(-n_pieces // n_threads) * n_threads
    borders = np.linspace(0, n_questions, n_pieces + 1).astype(int).tolist()
    return [slice(a, z) for a, z in zip(borders, borders[1:], strict=False) if a < z]


def _answer(
    index: Index,
    asked: Sequence[Read],
    vectors: Array,
    names: dict[str, Array],
    indptr: Array,
    options: Options,
    timer: Timer,
) -> list[Ranked]:
    """Answer questions, each followed by its parts in ``asked``."""
    config, arrays, backend, plan = index.config, index.arrays, index.backend, plan_of(index)
    n_candidates = min(max(config.fusion.candidates, options.main(config)), len(arrays))
    with timer.stage("signals"):
        questions = prepare(asked, vectors, arrays, phrases=plan.phrases)
        signals = _signals(index, plan, questions)
    with timer.stage("hierarchy view"):
        views = backend.views(
            plan.units, signals, plan.weights,
            half_informative=config.hierarchy.half_informative, radius=plan.levels.radius,
            n_episodes=plan.levels.n_episodes, episode_beam=config.hierarchy.episode_beam,
            window_beam=config.hierarchy.window_beam, sharpness=config.graph.prior_sharpness,
            contrast=config.hierarchy.contrast, user=_USER, prior_top=config.graph.prior_top,
            candidates=n_candidates,
        )  # fmt: skip
    with timer.stage("graph view"):
        start = restart(index, questions, names, views)
        graph = graph_view(index, plan, signals, views, start, n_candidates)
    with timer.stage("fusion"):
        hierarchy = views.rows, views.scores
        whole = indptr[:-1]
        if len(indptr) <= len(questions):
            graph = fold(*graph, indptr, config.fusion.part_weight)
            hierarchy = fold(*hierarchy, indptr, config.fusion.part_weight)
        routes = [_route(questions.read[j], arrays) for j in whole]
        fused = _fuse(index, routes, graph, hierarchy, options.view)
    with timer.stage("closure and calibration"):
        items = backend.evidence(
            plan.turns,
            _to_close(questions, views.subject, whole, graph[0], fused),
            _bounds(config, options),
            plan.calibration,
            arrays.turn_vectors,
        )
        return [
            _ranked(index, questions, int(whole[j]), j, routes[j], graph[0], hierarchy[0], fused,
                    items, start, options)
            for j in range(len(whole))
        ]  # fmt: skip


def _signals(index: Index, plan: Plan, questions: Questions) -> Asked:
    arrays, backend, lexical = index.arrays, index.backend, index.config.lexical
    return Asked(
        questions.vectors,
        backend.dense(arrays.turn_vectors, questions.vectors),
        *backend.bm25(
            arrays.postings, plan.levels, questions.term_indptr, questions.term,
            np.ones(len(questions.term), np.float32), lexical.k1, lexical.b,
        ),
        questions.masks,
        questions.mask_of,
        questions.speaker_indptr,
        questions.speaker,
        questions.row_indptr,
        questions.row,
        questions.by_role,
        questions.period,
        questions.standing,
        questions.phrase,
    )  # fmt: skip


def _route(question: Read, arrays: Arrays) -> tuple[Route, str]:
    known = tuple(name for name, entity in question.entities if entity >= 0)
    named = tuple(s for s in question.profile.subjects if s in question.speakers)
    return route(question.profile, known, named)


def _fuse(
    index: Index,
    routes: Sequence[tuple[Route, str]],
    graph: tuple[Array, Array],
    hierarchy: tuple[Array, Array],
    view: View | None,
) -> Fused:
    rho = index.config.fusion.primary_weight
    if view is None:
        weight = [rho if chosen is Route.RELATIONAL else 1.0 - rho for chosen, _ in routes]
    else:
        weight = [float(view == "graph")] * len(routes)
    views = [
        _flat(*ranking) if view in (None, name) else _flat(ranking[0][:, :0], ranking[1][:, :0])
        for name, ranking in (("graph", graph), ("hierarchy", hierarchy))
    ]
    return index.backend.fuse(*views[0], *views[1], np.array(weight, np.float32))


def _flat(rows: Array, scores: Array) -> tuple[Array, Array, Array]:
    """Return candidates as (indptr, rows, scores) without the padding."""
    found = rows >= 0
    indptr = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(found.sum(axis=1), out=indptr[1:])
    return indptr, rows[found], scores[found]


def _to_close(
    questions: Questions, subject: Array, whole: Array, graph_rows: Array, fused: Fused
) -> close.Ranked:
    """Put together what closure and calibration read of whole questions."""
    profiles = [questions.read[j].profile for j in whole]
    kinds = [p.temporal.kind for p in profiles]
    terms = [questions.term[slice(*questions.term_indptr[j : j + 2])] for j in whole]
    alone = len(whole) == len(questions)
    return close.Ranked(
        fused.indptr,
        fused.rows,
        fused.fused,
        graph_rows,
        questions.masks,
        questions.mask_of[whole],
        subject if alone else subject[whole],
        questions.period[whole],
        np.cumsum([0, *map(len, terms)]),
        np.concatenate([questions.term[:0], *terms]),
        np.array([_WANTED.get(p.answer_type, 0) for p in profiles], np.int32),
        np.array([kind in ("current", "last") for kind in kinds], np.bool_),
        # "How many so far?" counts the older ones too.
        np.array(
            [k == "current" and not p.aggregation for k, p in zip(kinds, profiles, strict=True)],
            np.bool_,
        ),
    )


def _bounds(config: Config, options: Options) -> close.Bounds:
    c = config.closure
    return close.Bounds(
        main=options.main(config),
        anchors=c.anchors,
        # Where one view stands alone, only its own support is added.
        near=c.anchors if options.view != "graph" else 0,
        short=c.short,
        bridges=c.bridges if options.view != "hierarchy" else 0,
        neighbors=c.neighbors,
        tokens=c.tokens,
        local=config.hierarchy.local,
        budget=-1 if options.token_budget is None else options.token_budget,
        closure=options.closure,
        calibration=options.calibration,
    )


def _ranked(
    index: Index,
    questions: Questions,
    question: int,
    j: int,
    routed: tuple[Route, str],
    graph_rows: Array,
    hierarchy_rows: Array,
    fused: Fused,
    found: close.Items,
    start: Restart,
    options: Options,
) -> Ranked:
    """Gather what is known of question ``j``, which is at ``question`` among questions and parts."""
    first, last = found.indptr[j], found.indptr[j + 1]
    part = slice(*fused.indptr[j : j + 2])
    seeds = slice(*start.seed_indptr[question : question + 2])
    items = _items(found, int(first), int(last), index.arrays)
    n_kept = int(found.n_kept[j])
    mask = questions.masks[questions.mask_of[question]]
    graph, hierarchy = graph_rows[j], hierarchy_rows[j]
    return Ranked(
        profile=questions.read[question].profile,
        route=routed[0],
        reason=routed[1],
        items=items[:n_kept],
        left_out=items[n_kept:],
        main=fused.rows[part][: options.main(index.config)],
        graph=graph[graph >= 0] if options.view != "hierarchy" else graph[:0],
        hierarchy=hierarchy[hierarchy >= 0] if options.view != "graph" else hierarchy[:0],
        candidates=fused.rows[part],
        graph_normalized=fused.graph_normalized[part],
        hierarchy_normalized=fused.hier_normalized[part],
        vector=questions.vectors[question],
        seeds=start.seed_entity[seeds],
        seed_values=start.seed_value[seeds],
        activation=start.activation[question],
        n_outside=int(len(mask) - np.count_nonzero(mask)),
    )


def _items(found: close.Items, first: int, last: int, arrays: Arrays) -> list[Item]:
    part = slice(first, last)
    lines = zip(
        found.row[part].tolist(), found.kind[part].tolist(), found.fused[part].tolist(),
        found.support[part].tolist(), found.score[part].tolist(), found.reason[part].tolist(),
        found.newer[part].tolist(), strict=True,
    )  # fmt: skip
    return [
        Item(row, _KINDS[kind], fused, support, score, _why_not(reason, row, newer, arrays))
        for row, kind, fused, support, score, reason, newer in lines
    ]


def _why_not(reason: int, row: int, newer: int, arrays: Arrays) -> str:
    if reason == close.KEPT:
        return ""
    if reason == close.OUTSIDE:
        return "outside the question's boundary"
    if reason == close.SUPERSEDED:
        return f"superseded by a newer statement (log {int(arrays.turns.lsn[newer])})"
    return f"{int(arrays.turns.n_tokens[row])} tokens do not fit what is left of the budget"
