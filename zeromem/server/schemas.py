"""The bodies of requests and replies. Replies are written by ``zeromem.records``; these say how."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

Name = Annotated[str, StringConstraints(min_length=1, max_length=4096)]
Names = Annotated[list[Name], Field(min_length=1, max_length=1000)]
Role = Literal["user", "assistant", "tool", "document"]
When = Annotated[
    str,
    StringConstraints(min_length=1, max_length=64),
    Field(description="ISO 8601, as precise as is known: `2026`, `2026-05-03T10:00+02:00`."),
]


class _In(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Out(BaseModel):
    model_config = ConfigDict(extra="allow")


class TraceIn(_In):
    """One interaction, word for word."""

    text: Annotated[str, Field(min_length=1, description="What was said, done or observed.")]
    id: Name | None = Field(None, description="Yours, unique in the scope; else by content.")
    role: Role = "user"
    speaker: Name | None = Field(None, description="Who spoke, as a name.")
    session: Name | None = Field(None, description="The conversation or document it belongs to.")
    time: When | None = Field(None, description="When it happened; a clock time needs a zone.")
    title: Name | None = None
    source: Name | None = Field(None, description="Where it came from.")
    metadata: dict[str, Any] | None = Field(None, description="Kept and returned, not searched.")

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={
            "examples": [
                {
                    "text": "Miso is my new kitten!",
                    "speaker": "Ana",
                    "session": "s1",
                    "time": "2026-05-03T10:00+02:00",
                }
            ]
        },
    )


class TracesIn(_In):
    """Several traces, stored all or none."""

    traces: Annotated[list[TraceIn], Field(min_length=1)]


class Limits(_In):
    """Which traces are meant."""

    sessions: Names | None = None
    speakers: Names | None = None
    sources: Names | None = None
    roles: Annotated[list[Role], Field(min_length=1)] | None = None
    after: When | None = Field(None, description="What happened then or later.")
    before: When | None = Field(None, description="What happened before.")


class Options(Limits):
    """How evidence is found: the options of ``Memory.retrieve``."""

    k: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Main items; 5 by default. Those that support them come on top."
    )
    token_budget: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = Field(
        None, description="Most encoder tokens of all evidence."
    )
    view: Literal["graph", "hierarchy"] | None = None
    closure: bool = True
    calibration: bool = True
    echoes: bool = Field(True, description="Whether turns that ask the very same may be evidence.")
    as_of: When | Annotated[int, Field(ge=0, le=2**40 - 1)] | None = Field(
        None, description="What was stored by then: a time, or a log sequence number."
    )
    reference_time: When | None = Field(
        None, description="When it is asked: 'last week' counts from here."
    )


Question = Annotated[str, Field(min_length=1, examples=["What is Ana's kitten called?"])]


class QuestionIn(Options):
    """A question."""

    question: Question


class QuestionsIn(Options):
    """Several questions, with options for all alike."""

    questions: Annotated[list[Question], Field(min_length=1)]


class AnswerIn(QuestionIn):
    """A question to be answered."""

    echoes: bool = Field(False, description="As for retrieval; left out of answers by default.")
    stream: bool = Field(
        False, description="Reply with server-sent events: evidence, delta, answer or problem."
    )


class ForgetIn(_In):
    """What is to be deleted for good; conditions narrow each other."""

    ids: Names | None = None
    session: Name | None = None
    speaker: Name | None = None
    source: Name | None = None
    after: When | None = None
    before: When | None = None
    everything: bool = Field(False, description="The whole scope; without any condition.")

    model_config = ConfigDict(
        extra="forbid", strict=True, json_schema_extra={"examples": [{"session": "s1"}]}
    )


class AddedOut(_Out):
    """The acknowledgement of one trace: it is on disk."""

    id: str
    lsn: int = Field(description="Its place in the scope's log.")
    created: bool = Field(description="False where the same trace was there already.")


class AddedManyOut(_Out):
    """Acknowledgements in the order of the request."""

    added: list[AddedOut]


class TraceOut(_Out):
    """A trace as it is stored."""

    id: str
    lsn: int
    text: str
    role: Role
    speaker: str | None
    session: str | None
    time: str | None
    title: str | None
    source: str | None
    metadata: dict[str, Any]
    ingested_at: str


class PageOut(_Out):
    """Traces in an order, and the cursor of the next page."""

    traces: list[TraceOut]
    cursor: str | None


class AroundOut(_Out):
    """A trace with its neighbours in its session."""

    traces: list[TraceOut]


class EvidenceOut(_Out):
    """One item of R(q): verbatim text with its source and the reason."""

    id: str
    text: str
    start: int
    end: int
    kind: Literal["main", "bridge", "neighbor"]
    score: float
    speaker: str | None
    session: str | None
    time: str | None
    why: str


class RetrievalOut(_Out):
    """R(q), best first, and how it came about."""

    question: str
    route: Literal["relational", "local"]
    route_reason: str
    n_tokens: int
    evidence: list[EvidenceOut]


class RetrievalsOut(_Out):
    """One retrieval for each question."""

    retrievals: list[RetrievalOut]


class CitationOut(_Out):
    """Where an answer comes from: characters of a trace."""

    id: str
    start: int
    end: int
    text: str


class AnswerOut(RetrievalOut):
    """An answer with its sources."""

    answer: str = Field(description="Empty where the evidence does not say.")
    draft: str
    citations: list[CitationOut]
    usage: dict[str, int]


class ForgottenOut(_Out):
    """How many traces were deleted."""

    forgotten: int


class SessionOut(_Out):
    """One session of the scope."""

    name: str | None
    n_traces: int
    first: str | None
    last: str | None


class SessionsOut(_Out):
    """Sessions in order of first appearance."""

    sessions: list[SessionOut]


class ScopesOut(_Out):
    """The scopes that hold anything, as this key names them."""

    scopes: list[str]


class StatsOut(_Out):
    """What the scope holds, and its models."""

    scope: str
    traces: int


class ImportedOut(_Out):
    """What an import did."""

    traces: int
    created: int


class HealthOut(_Out):
    """Whether the server runs."""

    status: Literal["ok"]


class ErrorPart(_Out):
    """One part of a request that is wrong."""

    field: str
    value: Any
    fix: str


class ProblemOut(_Out):
    """RFC 9457 problem details."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[ErrorPart] | None = None


class ChatIn(BaseModel):
    """A chat of OpenAI's protocol; members that are not named here are passed on too."""

    messages: Annotated[list[dict[str, Any]], Field(min_length=1)]
    model: str | None = Field(None, description="Needed where the server has no one model.")
    stream: bool | None = False

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "examples": [
                {
                    "model": "m",
                    "messages": [{"role": "user", "content": "What is my kitten called?"}],
                }
            ]
        },
    )


class ChatEvidenceOut(_Out):
    """One record that the model was shown."""

    number: int
    id: str
    text: str
    start: int
    end: int
    speaker: str | None
    session: str | None
    time: str | None
    score: float


class ChatCitationOut(CitationOut):
    """A record that the reply cites, by its number."""

    number: int


class ExtensionOut(_Out):
    """What the memory did."""

    scope: str
    session: str | None
    evidence: list[ChatEvidenceOut]
    citations: list[ChatCitationOut]
    stored: list[str] = Field(description="Ids of the turns, the user's first.")
    seconds: dict[str, float]
    problem: ProblemOut | None = Field(None, description="Why nothing was stored.")


class ChatOut(_Out):
    """The upstream's reply, with ours."""

    choices: list[dict[str, Any]]
    zeromem: ExtensionOut


class ModelsOut(_Out):
    """The upstream's models."""

    data: list[dict[str, Any]]


class OpenAIErrorPart(_Out):
    """An error in OpenAI's form."""

    message: str
    type: str
    code: str | None
    param: str | None


class OpenAIErrorOut(_Out):
    """An error in OpenAI's form."""

    error: OpenAIErrorPart
