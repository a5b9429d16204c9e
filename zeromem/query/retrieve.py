"""Evidence as a pure function of (index, questions): eq. 6-15 from top to bottom."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from zeromem.config import Config, SignalWeights
from zeromem.index import Arrays, Index
from zeromem.index.features import HAS_NUMBER, HAS_TIME
from zeromem.kernels import evidence_cpu as close
from zeromem.kernels._fuse import Fused
from zeromem.kernels.views_cpu import REFINE, Asked, Views
from zeromem.query.folding import fold
from zeromem.query.graph_view import Restart, align, graph_view, restart
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
# A sentence looked up by itself costs this many of a scan, whose cost a further question adds a
# third of (measured).
_APART, _SHARED = 3.0, 3.0
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


@dataclass(frozen=True, slots=True)
class Work:
    """Questions to one memory.

    Attributes
    ----------
    index : Index
    profiles : sequence of QueryProfile
    encode : callable
        Texts to (n, dim) float32 unit rows. Memories whose callables are equal are encoded for
        together.
    """

    index: Index
    profiles: Sequence[QueryProfile]
    encode: Encode


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
    return retrieve_many([Work(index, profiles, encode)], options, timer)[0]


def retrieve_many(works: Sequence[Work], options: Options, timer: Timer) -> list[list[Ranked]]:
    """Answer questions to many memories at once; each gets what it would get alone.

    On the CPU pieces of the batch are worked on by all cores; on a device the memories' walks are
    one walk over a block-diagonal graph.

    Parameters
    ----------
    works : sequence of Work
        Their indexes share a backend.
    options : Options
    timer : Timer
    """
    found = [[Ranked.nothing(p) for p in w.profiles if not len(w.index)] for w in works]
    asked = [work for work in works if len(work.index) and work.profiles]
    if not asked:
        return found
    with timer.stage("encode"):
        batches = [_Batch.of(work) for work in asked]
        _encode(batches)
    backend = asked[0].index.backend
    pieces = [
        _Piece(batch, part)
        for batch in batches
        for part in _parts(len(batch.groups), len(batch.work.index), backend.n_threads)
    ]
    done = backend.around_walk(
        pieces, lambda piece: _before_walk(piece, options), lambda walk, pi: _after_walk(walk, pi)
    )
    ranked: dict[int, list[Ranked]] = {}
    for piece, rows in zip(pieces, done, strict=True):
        ranked.setdefault(id(piece.batch.work), []).extend(rows)
        for stage, seconds in piece.timer.seconds.items():
            timer.seconds[stage] = timer.seconds.get(stage, 0.0) + seconds
    return [ranked.get(id(work), own) for work, own in zip(works, found, strict=True)]


def restarts(index: Index, profiles: Sequence[QueryProfile], encode: Encode) -> Array:
    """Return r_q of eq. 10 for each question as a whole: (n_questions, n + n_entities) float32."""
    work = Work(index, profiles, encode)
    batch = _Batch.of(work)
    _encode([batch])
    found = [np.zeros((0, len(index.arrays.graph.inverse_degree)), np.float32)]
    for part in _parts(len(profiles), max(1, len(index)), 1):
        piece = _Piece(batch, part)
        found.append(_before_walk(piece, Options()).start.reset.T[piece.indptr[:-1]])
    return np.concatenate(found)


@dataclass(frozen=True, slots=True, eq=False)
class Looked:
    """What the views see of a question: for analysis, not on the way to evidence.

    Attributes
    ----------
    graph, hierarchy : (k,) int32
        Their candidates, best first.
    scores : (n_uses, n) float32
        Of each use of signals; meaningless outside the mask.
    pi : (n,) float32
        Eq. 10.
    mask : (n,) bool
    """

    graph: Array
    hierarchy: Array
    scores: Array
    pi: Array
    mask: Array


def look(
    index: Index,
    profiles: Sequence[QueryProfile],
    encode: Encode,
    uses: Sequence[SignalWeights],
    k: int,
) -> Iterator[Looked]:
    """Yield what the views see of each question as a whole, with ``k`` candidates of each."""
    plan, backend = plan_of(index), index.backend
    batch = _Batch.of(Work(index, profiles, encode))
    _encode([batch])
    for part in _parts(len(profiles), max(1, len(index)), 1):
        piece = _Piece(batch, part)
        walk = _before_walk(piece, Options(k=k))
        pi = backend.ppr(*walk.arguments)
        graph, _ = graph_view(
            index, plan, walk.signals, walk.views, walk.start, pi, walk.candidates
        )
        scores = [_views(index, plan, walk.signals, use, walk.candidates).refine for use in uses]
        masks = walk.questions.masks[walk.questions.mask_of]
        for j in piece.indptr[:-1].tolist():
            found, rows = graph[j], walk.views.rows[j]
            seen = np.stack([score[j] for score in scores])
            yield Looked(found[found >= 0][:k], rows[rows >= 0][:k], seen, pi[: len(index), j], masks[j])


@dataclass(slots=True)
class _Batch:
    """One memory's questions, each a group that its parts follow."""

    work: Work
    groups: list[int]
    asked: list[Read]
    vectors: Array
    names: dict[str, Array]

    @classmethod
    def of(cls, work: Work) -> _Batch:
        parted = work.index.config.fusion.part_weight > 0
        groups = [(p, *(parts_of(p) if parted else ())) for p in work.profiles]
        asked = read([p for group in groups for p in group], work.index.arrays)
        names = sorted({name for question in asked for name in question.unknown})
        nothing = np.zeros((0, work.index.dim), np.float32)
        return cls(work, list(map(len, groups)), asked, nothing, dict.fromkeys(names, nothing))


def _encode(batches: Sequence[_Batch]) -> None:
    """Fill in the vectors of contents and unknown names, by one call for each encoder."""
    by_encoder: dict[Encode, list[_Batch]] = {}
    for batch in batches:
        by_encoder.setdefault(batch.work.encode, []).append(batch)
    for encode, own in by_encoder.items():
        texts = [[*(q.content for q in batch.asked), *batch.names] for batch in own]
        vectors = encode([text for part in texts for text in part])
        first = 0
        for batch, part in zip(own, texts, strict=True):
            rows = vectors[first : first + len(part)]
            batch.vectors = rows[: len(batch.asked)]
            batch.names = dict(zip(batch.names, rows[len(batch.asked) :], strict=True))
            first += len(part)


def _parts(n_questions: int, n_turns: int, n_threads: int) -> list[slice]:
    """Cut a batch so that a part fits the caches and no thread waits long for another."""
    most = max(1, min(BATCH, _CELLS // n_turns))
    n_parts = -(-n_questions // most)
    if n_questions >= 2 * n_threads:
        n_parts = -(-n_parts // n_threads) * n_threads
    borders = np.linspace(0, n_questions, n_parts + 1).astype(int).tolist()
    return [slice(a, z) for a, z in pairwise(borders) if a < z]


class _Piece:
    """A part of a batch that one thread works on.

    Parameters
    ----------
    batch : _Batch
    groups : slice
    """

    def __init__(self, batch: _Batch, groups: slice) -> None:
        ends = np.cumsum([0, *batch.groups])[groups.start : groups.stop + 1]
        rows = slice(ends[0], ends[-1])
        self.batch = batch
        self.index = batch.work.index
        self.asked = batch.asked[rows]
        self.vectors = batch.vectors[rows]
        self.indptr = ends - ends[0]
        self.timer = Timer()


@dataclass(frozen=True, slots=True, eq=False)
class _Walk:
    """What is known of a piece before its walk (eq. 10)."""

    piece: _Piece
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


def _before_walk(piece: _Piece, options: Options) -> _Walk:
    """Eq. 6-9 and 11: signals, the hierarchy view, and where the walk starts."""
    index, timer = piece.index, piece.timer
    config, arrays, plan = index.config, index.arrays, plan_of(index)
    candidates = min(max(config.fusion.candidates, options.main(config)), len(arrays))
    with timer.stage("signals"):
        questions = prepare(piece.asked, piece.vectors, arrays, phrases=plan.phrases)
        seeds = align(index, questions, piece.batch.names)
        signals = _signals(index, plan, questions, seeds)
    with timer.stage("hierarchy view"):
        views = _views(index, plan, signals, config.graph.refine, candidates)
    with timer.stage("graph view"):
        start = restart(index, seeds, signals, views)
    return _Walk(piece, options, questions, signals, views, start, candidates)


def _after_walk(walk: _Walk, pi: Array) -> list[Ranked]:
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


def _views(
    index: Index, plan: Plan, signals: Asked, refine: SignalWeights, candidates: int
) -> Views:
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
    walk: _Walk,
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
    items = _items(found, *found.indptr[j : j + 2].tolist(), index.arrays)
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
