"""The values that cross stage borders. All are frozen; none knows where it is stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, overload

from zeromem.times import EventTime

Role = Literal["user", "assistant", "tool", "document"]
ROLES: tuple[Role, ...] = ("user", "assistant", "tool", "document")

AnswerType = Literal[
    "text", "date", "duration", "number", "person", "place", "yes_no", "list", "choice"
]


@dataclass(frozen=True, slots=True)
class Trace:
    """One interaction, word for word (s_i of the paper).

    Attributes
    ----------
    text : str
        What was said, done or observed. Never rewritten.
    id : str, optional
        The caller's identifier, unique in a scope. Without one, content, session and time identify
        the trace.
    role : {"user", "assistant", "tool", "document"}
    speaker : str, optional
        Who spoke, as a name ("Ana").
    session : str, optional
        The conversation or document the trace belongs to. Without one, a document is a session of
        its own and every other trace belongs to the scope's single unnamed session.
    time : EventTime, optional
        When it happened. When it was stored is kept apart.
    title : str, optional
        The title of a document, or the subject of a message.
    source : str, optional
        Where it came from (a file, a channel, a connector).
    metadata : mapping
        Anything JSON can hold; kept, returned and exported, not searched.
    """

    text: str
    id: str | None = None
    role: Role = "user"
    speaker: str | None = None
    session: str | None = None
    time: EventTime | None = None
    title: str | None = None
    source: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoredTrace:
    """A trace as the log holds it.

    Attributes
    ----------
    lsn : int
        Log sequence number: the trace's place in the log, never reused.
    trace : Trace
        With ``id`` filled in.
    ingested_at : datetime
        UTC instant at which it was acknowledged.
    """

    lsn: int
    trace: Trace
    ingested_at: datetime


@dataclass(frozen=True, slots=True)
class TracePage:
    """Some traces of a memory, in an order.

    Attributes
    ----------
    items : tuple of StoredTrace
    cursor : str, optional
        Where the next page begins; None where nothing follows.
    """

    items: tuple[StoredTrace, ...]
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """One session of a memory.

    Attributes
    ----------
    name : str, optional
        None for the unnamed session, of traces that name none.
    n_traces : int
    first, last : datetime, optional
        UTC instants at which its earliest event and its latest one begin; None where no trace of
        it has a time.
    """

    name: str | None
    n_traces: int
    first: datetime | None
    last: datetime | None


@dataclass(frozen=True, slots=True)
class Added:
    """The acknowledgement of one trace: it is on disk.

    Attributes
    ----------
    id : str
    lsn : int
    created : bool
        False where the same trace was there already and nothing was written.
    """

    id: str
    lsn: int
    created: bool


class Route(StrEnum):
    """Which view has priority (eq. 7)."""

    RELATIONAL = "relational"
    LOCAL = "local"


@dataclass(frozen=True, slots=True)
class TemporalCue:
    """What a question says about time.

    Attributes
    ----------
    kind : str
        ``none``; ``when`` (asks for a time); ``at`` (names one); ``before`` / ``after`` /
        ``between``; ``current`` (asks for the present state); ``first`` / ``last``; ``duration``.
    start, end : datetime, optional
        The named period, half-open, resolved against the question's reference time.
    """

    kind: Literal[
        "none", "when", "at", "before", "after", "between", "current", "first", "last", "duration"
    ] = "none"
    start: datetime | None = None
    end: datetime | None = None


@dataclass(frozen=True, slots=True)
class Boundary:
    """The admissible scope of a question: hard limits, applied before ranking.

    Attributes
    ----------
    sessions, speakers, sources, roles : tuple of str, optional
        Only traces with one of these values. Speakers compare canonically (case-folded, NFKC),
        the rest exactly.
    after, before : EventTime, optional
        Only traces whose event period lies in ``[after.start, before.start)``. Traces without a
        time are outside any time limit.
    as_of : datetime or int, optional
        Only what was acknowledged by then (an instant, or a log sequence number); statistics are
        those of that prefix of the log too.
    """

    sessions: tuple[str, ...] | None = None
    speakers: tuple[str, ...] | None = None
    sources: tuple[str, ...] | None = None
    roles: tuple[Role, ...] | None = None
    after: EventTime | None = None
    before: EventTime | None = None
    as_of: datetime | int | None = None


@dataclass(frozen=True, slots=True)
class QueryProfile:
    """φ(q), eq. 6: what a question asks for, from its words and metadata alone.

    Attributes
    ----------
    text : str
    subjects : tuple of str
        Canonical names of entities or speakers that the question is about.
    keywords : tuple of str
        Content terms, in the lexical index's form.
    phrases : tuple of str
        Quoted or multi-word expressions to be matched exactly.
    answer_type : AnswerType
    choices : tuple of str
        The alternatives of a choice question ("tea or coffee").
    temporal : TemporalCue
    aggregation : bool
        Asks for several items, a count or a comparison.
    asks_help : bool
        Asks the assistant to do or advise something, and not about what was said or happened.
    boundary : Boundary
    reference_time : datetime, optional
        What relative words of the question resolve against.
    """

    text: str
    subjects: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()
    phrases: tuple[str, ...] = ()
    answer_type: AnswerType = "text"
    choices: tuple[str, ...] = ()
    temporal: TemporalCue = TemporalCue()
    aggregation: bool = False
    asks_help: bool = False
    boundary: Boundary = Boundary()
    reference_time: datetime | None = None


EvidenceKind = Literal["main", "bridge", "neighbor"]


@dataclass(frozen=True, slots=True)
class Evidence:
    """One item of R(q), eq. 15: verbatim text with its provenance and the reason it is here.

    Attributes
    ----------
    text : str
        ``trace.text[start:end]``.
    trace : Trace
        The whole source trace, ``id`` filled in.
    lsn, start, end : int
        The place in the log, and the character range of ``text`` in the trace's text.
    kind : {"main", "bridge", "neighbor"}
        M(q), N_g or N_h (eq. 14).
    score : float
        The calibrated score that ordered R(q).
    fused : float
        eq. 13; 0 where neither view returned it.
    main_rank, graph_rank, hierarchy_rank : int, optional
        Ranks from 1; None where the item is absent.
    matched : tuple of str
        The question's terms found in the text.
    entities : tuple of str
        The entities that carried the item (eq. 8-9), strongest first.
    why : str
        All of this as one readable line.
    n_tokens : int
        Encoder tokens of ``text``.
    """

    text: str
    trace: Trace
    lsn: int
    start: int
    end: int
    kind: EvidenceKind
    score: float
    fused: float
    main_rank: int | None
    graph_rank: int | None
    hierarchy_rank: int | None
    matched: tuple[str, ...]
    entities: tuple[str, ...]
    why: str
    n_tokens: int

    @property
    def id(self) -> str:
        """The source trace's identifier."""
        return self.trace.id or ""

    @property
    def speaker(self) -> str | None:
        return self.trace.speaker

    @property
    def session(self) -> str | None:
        return self.trace.session

    @property
    def time(self) -> EventTime | None:
        return self.trace.time


@dataclass(frozen=True, slots=True)
class Retrieval(Sequence[Evidence]):
    """R(q): a sequence of :class:`Evidence`, best first, and how it came about.

    Attributes
    ----------
    items : tuple of Evidence
    profile : QueryProfile
    route : Route
    route_reason : str
    seconds : mapping
        Wall-clock seconds of this question's batch by stage.
    """

    items: tuple[Evidence, ...]
    profile: QueryProfile
    route: Route
    route_reason: str
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def main(self) -> tuple[Evidence, ...]:
        """M(q) in the order of eq. 13."""
        found = [e for e in self.items if e.main_rank is not None]
        return tuple(sorted(found, key=lambda e: e.main_rank or 0))

    @property
    def n_tokens(self) -> int:
        """Encoder tokens of all evidence text."""
        return sum(e.n_tokens for e in self.items)

    @overload
    def __getitem__(self, index: int) -> Evidence: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Evidence, ...]: ...
    def __getitem__(self, index: int | slice) -> Evidence | tuple[Evidence, ...]:
        return self.items[index]

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Evidence]:
        return iter(self.items)


@dataclass(frozen=True, slots=True)
class Explained:
    """One item of an explanation.

    Attributes
    ----------
    evidence : Evidence
    graph_score, hierarchy_score : float
        Normalised, eq. 12.
    sentences : tuple of (str, float)
        The item's sentences with sim(q, z) of eq. 9, most similar first: what activation spread
        through, and what the views' dense scores rest on.
    """

    evidence: Evidence
    graph_score: float
    hierarchy_score: float
    sentences: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A trace that was a candidate and did not stay."""

    id: str
    text: str
    reason: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """How R(q) came about.

    Attributes
    ----------
    retrieval : Retrieval
    items : tuple of Explained
        R(q) with both views' scores.
    seeds : tuple of (str, float)
        Entities that the question's names aligned to, with eta_0 (eq. 8).
    activated : tuple of (str, float)
        The entities that propagation reached (eq. 9), strongest first.
    left_out : tuple of LeftOut
        What was filtered, with the reason.
    n_outside : int
        Turns outside the boundary, which were never ranked.
    """

    retrieval: Retrieval
    items: tuple[Explained, ...]
    seeds: tuple[tuple[str, float], ...]
    activated: tuple[tuple[str, float], ...]
    left_out: tuple[LeftOut, ...]
    n_outside: int = 0


@dataclass(frozen=True, slots=True)
class Citation:
    """Where an answer comes from: ``trace.text[start:end]`` of trace ``id``."""

    id: str
    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class CalibrationStep:
    """One decision of answer calibration (eq. 16): what it did and why."""

    action: Literal["keep", "normalize", "shorten", "prune", "replace"]
    before: str
    after: str
    reason: str
    source: Citation | None = None


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """LLM tokens. Memory stages have none to spend; only a reader fills this.

    Attributes
    ----------
    prompt, completion : int
    calls : int
        Requests, those that failed and were made again included.
    cached : int
        Those of ``prompt`` that the endpoint had in its own cache; mostly billed at less.
    """

    prompt: int = 0
    completion: int = 0
    calls: int = 0
    cached: int = 0

    def __add__(self, other: TokenUsage) -> TokenUsage:
        return TokenUsage(
            self.prompt + other.prompt,
            self.completion + other.completion,
            self.calls + other.calls,
            self.cached + other.cached,
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """a of eq. 16, grounded in R(q).

    Attributes
    ----------
    text : str
        The calibrated answer; empty where the reader abstained.
    draft : str
        a_0, what the reader said.
    citations : tuple of Citation
    steps : tuple of CalibrationStep
        At least one; ``keep`` where nothing was changed.
    retrieval : Retrieval
    usage : TokenUsage
        Of the reader.
    """

    text: str
    draft: str
    citations: tuple[Citation, ...]
    steps: tuple[CalibrationStep, ...]
    retrieval: Retrieval
    usage: TokenUsage = TokenUsage()

    def __str__(self) -> str:
        return self.text
