"""A part of a batch from eq. 6 to eq. 15, top to bottom, on one thread."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zeromem.config import Config, SignalWeights
from zeromem.index import Arrays, Index
from zeromem.index.features import HAS_NUMBER, HAS_TIME
from zeromem.kernels import _evidence as close
from zeromem.kernels._fuse import Fused
from zeromem.kernels._views import REFINE, Asked, Views
from zeromem.query.folding import fold
from zeromem.query.graph_view import Restart, align, graph_view, restart
from zeromem.query.plan import Plan, plan_of
from zeromem.query.questions import Questions, Read, prepare
from zeromem.query.ranked import Item, Options, Ranked, View
from zeromem.query.route import route
from zeromem.types import ROLES, EvidenceKind, Route

Array = NDArray[Any]

# A sentence looked up by itself costs this many of a scan, whose cost a further question adds a
# third of (measured).
_APART, _SHARED = 3.0, 3.0
_USER = ROLES.index("user")
_KINDS: tuple[EvidenceKind, ...] = ("main", "bridge", "neighbor")
_WANTED = {"date": HAS_TIME, "duration": HAS_TIME | HAS_NUMBER, "number": HAS_NUMBER}


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

    def add(self, other: Timer) -> None:
        """Add the times of another."""
        for stage, seconds in other.seconds.items():
            self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds


@dataclass(slots=True, eq=False)
class Piece:
    """Questions to one memory, each followed by its parts, that one thread works on.

    Attributes
    ----------
    index : Index
    asked : sequence of Read
    vectors : (b, dim) float32
        Unit rows, of their contents.
    names : dict of str to (dim,) float32
        Vectors of the names that the graph does not know.
    indptr : (n_questions + 1,) int64
        Where each question is, with its parts behind it.
    timer : Timer
    """

    index: Index
    asked: Sequence[Read]
    vectors: Array
    names: dict[str, Array]
    indptr: Array
    timer: Timer = field(default_factory=Timer)

    @property
    def wholes(self) -> list[str]:
        """The text of each question, once more for each of its parts."""
        starts, counts = self.indptr[:-1].tolist(), np.diff(self.indptr).tolist()
        return [
            self.asked[start].profile.text
            for start, n in zip(starts, counts, strict=True)
            for _ in range(n)
        ]


@dataclass(frozen=True, slots=True, eq=False)
class Walk:
    """What is known of a piece before its walk (eq. 10)."""

    piece: Piece
    options: Options
    questions: Questions
    signals: Asked
    views: Views
    start: Restart
    candidates: int

    @property
    def arguments(self) -> tuple[Any, ...]:
        """What ``Backend.ppr`` takes."""
        arrays, config = self.piece.index.arrays, self.piece.index.config.graph
        return (
            arrays.graph, arrays.previous, self.start.reset, config.adjacency_weight,
            config.damping, config.tol,
        )  # fmt: skip


def before_walk(piece: Piece, options: Options) -> Walk:
    """Eq. 6-9 and 11: signals, the hierarchy view, and where the walk starts."""
    index, timer = piece.index, piece.timer
    config, arrays, plan = index.config, index.arrays, plan_of(index)
    candidates = min(max(config.fusion.candidates, options.main(config)), len(arrays))
    with timer.stage("signals"):
        questions = prepare(
            piece.asked, piece.vectors, arrays, phrases=plan.phrases,
            echoes=None if options.echoes else piece.wholes,
        )  # fmt: skip
        seeds = align(index, questions, piece.names)
        signals = _signals(index, plan, questions, seeds)
    with timer.stage("hierarchy view"):
        views = views_of(index, plan, signals, config.graph.refine, candidates)
    with timer.stage("graph view"):
        start = restart(index, seeds, signals, views)
    return Walk(piece, options, questions, signals, views, start, candidates)


def after_walk(walk: Walk, pi: Array) -> list[Ranked]:
    """Eq. 12-15: the graph view, fusion, closure and calibration of whole questions."""
    piece, questions, options = walk.piece, walk.questions, walk.options
    index, timer, indptr = piece.index, piece.timer, piece.indptr
    config, plan, whole = index.config, plan_of(index), indptr[:-1]
    with timer.stage("graph view"):
        graph = graph_view(index, plan, walk.signals, walk.views, walk.start, pi, walk.candidates)
    with timer.stage("fusion"):
        hierarchy = walk.views.rows, walk.views.scores
        if len(indptr) <= len(questions):
            graph = fold(*graph, indptr, config.fusion.part_weight)
            hierarchy = fold(*hierarchy, indptr, config.fusion.part_weight)
        routes = [_route(questions.read[j]) for j in whole]
        fused = _fuse(index, routes, graph, hierarchy, options.view)
    with timer.stage("closure and calibration"):
        items = index.backend.evidence(
            plan.turns,
            _to_close(questions, walk.views.subject, whole, graph[0], fused),
            _bounds(config, options),
            plan.calibration,
            index.arrays.turn_vectors,
        )
        return [
            _ranked(walk, int(whole[j]), j, routes[j], graph[0], hierarchy[0], fused, items)
            for j in range(len(whole))
        ]


def _signals(
    index: Index, plan: Plan, questions: Questions, seeds: tuple[Array, Array, Array]
) -> Asked:
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
        _sentence_dots(index, plan, questions, seeds),
    )  # fmt: skip


def views_of(
    index: Index, plan: Plan, signals: Asked, refine: SignalWeights, candidates: int
) -> Views:
    """Search the hierarchy and weigh context priors, refining by the signals that are named."""
    config, weights = index.config, plan.weights.copy()
    weights[REFINE] = astuple(refine)
    return index.backend.views(
        plan.units, signals, weights,
        half_informative=config.hierarchy.half_informative, radius=plan.levels.radius,
        n_episodes=plan.levels.n_episodes, episode_beam=config.hierarchy.episode_beam,
        window_beam=config.hierarchy.window_beam, sharpness=config.graph.prior_sharpness,
        contrast=config.hierarchy.contrast, user=_USER, prior_top=config.graph.prior_top,
        candidates=candidates,
    )  # fmt: skip


def _sentence_dots(
    index: Index, plan: Plan, questions: Questions, seeds: tuple[Array, Array, Array]
) -> Array:
    """All sentences at once where that is less work than those alone that are needed."""
    arrays, b = index.arrays, len(questions)
    n_sentences = len(arrays.sentence_vectors)
    reached = index.backend.reach(arrays.graph, *seeds[:2], index.config.graph.n_steps)
    beam = min(index.config.hierarchy.window_beam, len(arrays))
    needed = int(reached.sum()) + b * n_sentences * beam // max(1, len(arrays))
    if needed * _APART < n_sentences * (1 + b / _SHARED):
        return np.zeros((1, 0), np.float32)
    return index.backend.dense(arrays.sentence_vectors, questions.vectors)


def _route(question: Read) -> tuple[Route, str]:
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
    walk: Walk,
    question: int,
    j: int,
    routed: tuple[Route, str],
    graph_rows: Array,
    hierarchy_rows: Array,
    fused: Fused,
    found: close.Items,
) -> Ranked:
    """Gather what is known of question ``j``, the ``question``-th of questions and parts."""
    index, questions, start = walk.piece.index, walk.questions, walk.start
    view = walk.options.view
    part = slice(*fused.indptr[j : j + 2])
    seeds = slice(*start.seed_indptr[question : question + 2])
    first, last = found.indptr[j : j + 2].tolist()
    items = _items(found, first, last, index.arrays, walk.options.token_budget)
    n_kept = int(found.n_kept[j])
    mask = questions.masks[questions.mask_of[question]]
    graph, hierarchy = graph_rows[j], hierarchy_rows[j]
    return Ranked(
        profile=questions.read[question].profile,
        route=routed[0],
        reason=routed[1],
        items=items[:n_kept],
        left_out=items[n_kept:],
        main=fused.rows[part][: walk.options.main(index.config)],
        graph=graph[graph >= 0] if view != "hierarchy" else graph[:0],
        hierarchy=hierarchy[hierarchy >= 0] if view != "graph" else hierarchy[:0],
        candidates=fused.rows[part],
        graph_normalized=fused.graph_normalized[part],
        hierarchy_normalized=fused.hier_normalized[part],
        vector=questions.vectors[question],
        seeds=start.seed_entity[seeds],
        seed_values=start.seed_value[seeds],
        activation=start.activation[question],
        n_outside=int(len(mask) - np.count_nonzero(mask)),
    )


def _items(
    found: close.Items, first: int, last: int, arrays: Arrays, budget: int | None
) -> list[Item]:
    part = slice(first, last)
    lines = zip(
        found.row[part].tolist(), found.kind[part].tolist(), found.fused[part].tolist(),
        found.support[part].tolist(), found.score[part].tolist(), found.reason[part].tolist(),
        found.newer[part].tolist(), strict=True,
    )  # fmt: skip
    return [
        Item(row, _KINDS[kind], fused, support, score, _why_not(reason, row, newer, arrays, budget))
        for row, kind, fused, support, score, reason, newer in lines
    ]


def _why_not(reason: int, row: int, newer: int, arrays: Arrays, budget: int | None) -> str:
    if reason == close.KEPT:
        return ""
    if reason == close.OUTSIDE:
        return "outside the question's boundary"
    if reason == close.SUPERSEDED:
        return f"superseded by a newer statement (log {int(arrays.turns.lsn[newer])})"
    return f"{int(arrays.turns.n_tokens[row])} tokens do not fit the budget of {budget}"
