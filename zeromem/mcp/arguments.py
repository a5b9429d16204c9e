"""What each tool takes, as models that check it; their schemas are what a client is shown."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from zeromem.types import Role

_MOST_TOLD, _MOST_READ = 5, 100  # mistakes named in one error, and looked at

# Limits are those of HTTP, but where a model has to read what comes.
Name = Annotated[str, Field(min_length=1, max_length=4096)]
Names = Annotated[list[Name], Field(min_length=1, max_length=1000)] | Name
Time = Annotated[
    str, Field(min_length=1, max_length=100, examples=["2026-05-03T10:00+02:00", "2026-05-03"])
]
Cursor = Annotated[str, Field(min_length=1, max_length=200)]

_SESSIONS = "Only from these conversations or documents; one name or several."
_SPEAKERS = "Only what these people said; one name or several."
_AFTER = "Only what happened at this time or later (ISO 8601, as precise as is known)."
_BEFORE = "Only what happened before this time (ISO 8601)."


class Arguments(BaseModel):
    """Arguments of a tool: of exactly the types stated, and no others."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Add(Arguments):
    """Of `add`: one trace."""

    text: str = Field(
        min_length=1, max_length=1_000_000,
        description="What was said, done or observed, word for word. Do not summarise.",
        examples=["Miso is my new kitten!"],
    )  # fmt: skip
    speaker: Name | None = Field(None, description="Who said it, as a name.", examples=["Ana"])
    role: Role = Field("user", description="The part the speaker has in the conversation.")
    session: Name | None = Field(
        None, description="The conversation or document that it belongs to.", examples=["s1"]
    )
    time: Time | None = Field(
        None, description="When it happened: ISO 8601 with a zone, as precise as is known."
    )
    title: Name | None = Field(None, description="Title of a document, subject of a message.")
    source: Name | None = Field(None, description="Where it came from: a file, a channel.")
    id: Name | None = Field(
        None, description="An identifier of your own. Without it the content identifies the trace."
    )
    metadata: dict[str, Any] | None = Field(
        None, description="A JSON object to keep with it; it is not searched."
    )


class Search(Arguments):
    """Of `search`: a question and its limits."""

    question: str = Field(
        min_length=1, max_length=32_768, description="What you want to know, as a question.",
        examples=["What is Ana's kitten called?"],
    )  # fmt: skip
    k: int | None = Field(
        None, ge=1, le=1000,
        description="Most main items (5 by default); supporting neighbours come on top.",
    )  # fmt: skip
    token_budget: int | None = Field(
        None, ge=1, le=2**31 - 1, description="Most tokens of all evidence together.",
        examples=[600],
    )  # fmt: skip
    sessions: Names | None = Field(None, description=_SESSIONS)
    speakers: Names | None = Field(None, description=_SPEAKERS, examples=["Ana"])
    sources: Names | None = Field(None, description="Only from these sources; one or several.")
    roles: Annotated[list[Role], Field(min_length=1, max_length=4)] | Role | None = Field(
        None, description="Only from these parts of a conversation; one or several."
    )
    after: Time | None = Field(None, description=_AFTER)
    before: Time | None = Field(None, description=_BEFORE)
    reference_time: Time | None = Field(
        None, description="When the question is asked: 'last week' in it counts from here."
    )


class Open(Arguments):
    """Of `open`: a trace and how much around it."""

    id: Name = Field(description="The trace's id, as search and timeline give it.")
    before: int = Field(3, ge=0, le=50, description="How many traces before it.")
    after: int = Field(3, ge=0, le=50, description="How many traces after it.")


class Timeline(Arguments):
    """Of `timeline`: a period and a page of it."""

    sessions: Names | None = Field(None, description=_SESSIONS)
    speakers: Names | None = Field(None, description=_SPEAKERS)
    after: Time | None = Field(None, description=_AFTER)
    before: Time | None = Field(None, description=_BEFORE)
    descending: bool = Field(False, description="Latest first.")
    limit: int = Field(20, ge=1, le=200, description="Traces of one page.")
    cursor: Cursor | None = Field(
        None,
        description="The cursor of the page before, to go on from; keep the other arguments.",
    )


class Forget(Arguments):
    """Of `forget`: which traces go."""

    ids: Annotated[list[Name], Field(min_length=1, max_length=1000)] | Name | None = Field(
        None, description="These traces; one id or several."
    )
    session: Name | None = Field(None, description="Of this session, exactly as it is written.")
    speaker: Name | None = Field(None, description="Of this speaker, in upper or lower case.")
    source: Name | None = Field(None, description="From this source, exactly as it is written.")
    after: Time | None = Field(None, description="What happened at this time or later.")
    before: Time | None = Field(None, description="What happened before this time.")
    everything: bool = Field(
        False, description="The whole memory. Goes alone, without any other argument."
    )


def mistakes(tool: str, arguments: type[Arguments], error: ValidationError) -> str:
    """Say what is wrong with arguments: each one's name, the mistake and the value.

    Parameters
    ----------
    tool : str
    arguments : type
    error : ValidationError
        Of ``arguments.model_validate``.
    """
    if error.error_count() > _MOST_READ:
        return f"{error.error_count()} mistakes; see the tool's schema"
    known = list(arguments.model_fields)
    told: dict[str, None] = {}
    for found in error.errors(include_url=False):
        place = found["loc"]
        if found["type"] == "extra_forbidden" and len(place) == 1:
            told[f"unknown argument {place[0]!r}; {tool} takes {', '.join(known)}"] = None
            continue
        # A type within a union names itself in the place: that is of no use to a caller.
        name = ".".join(str(p) for i, p in enumerate(place) if i == 0 or isinstance(p, int))
        got = "" if found["type"] == "missing" else f", got {found['input']!r:.80}"
        told[f"{name or 'arguments'}: {found['msg']}{got}"] = None
    return "; ".join(list(told)[:_MOST_TOLD])
