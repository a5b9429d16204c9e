"""LongMemEval's format: for each question the dated sessions of a user and an assistant.

A question's haystack is a conversation of its own, named by the question's id. Its sessions are
put in the order of their dates where all have one, as they happened in that order. The question
and its labels are never read here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Any, Final

from zeromem.errors import ImportFormatError, InvalidInputError
from zeromem.importers.records import (
    Conversation,
    Options,
    Record,
    as_list,
    as_object,
    fail,
    name,
    required_text,
    text,
    unique,
)
from zeromem.times import EventTime
from zeromem.types import ROLES, Role, Trace

_TIME: Final = re.compile(
    r"(\d{4})/(\d{1,2})/(\d{1,2})(?:\s*\([a-z]+\))?(?:\s+(\d{1,2}):(\d{2}))?",
    re.ASCII | re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn that says something.

    Attributes
    ----------
    number : int
        Its place in its session, from 1, those without text counted too.
    role : str
    text : str
    """

    number: int
    role: Role
    text: str


@dataclass(frozen=True, slots=True)
class Session:
    """One session of a haystack.

    Attributes
    ----------
    id : str
        The file's, or "session_3" where it has none.
    name : str
        Unique in the haystack, where an id may occur twice: "x", then "x#2".
    time : EventTime, optional
    turns : tuple of Turn
    answers : frozenset of int
        Numbers of the turns that the file labels ``has_answer``, for the evaluation alone.
    """

    id: str
    name: str
    time: EventTime | None
    turns: tuple[Turn, ...]
    answers: frozenset[int]


def read(records: Iterable[Record], options: Options) -> Iterator[Conversation]:
    """Yield one conversation per question, named by its ``question_id``."""
    for number, (where, value) in enumerate(records, 1):
        record = as_object(value, where)
        question_id = name(record, "question_id", where) or f"question-{number}"
        found = sessions(record, f"{where} ({question_id!r})", options)
        yield Conversation(
            question_id,
            [trace(turn, s.name, s.time, options) for s in found for turn in s.turns],
        )


def trace(turn: Turn, session: str, time: EventTime | None, options: Options) -> Trace:
    """Make the trace of a turn, whose id is ``session_number``."""
    return Trace(
        text=turn.text,
        id=f"{session}_{turn.number}",
        role=turn.role,
        session=session,
        time=time,
        source=options.source,
    )


def sessions(record: dict[str, Any], where: str, options: Options) -> list[Session]:
    """Read a record's haystack, its sessions by date."""
    talks = as_list(record, "haystack_sessions", where)
    given = _beside(record, "haystack_session_ids", where, len(talks))
    dates = _beside(record, "haystack_dates", where, len(talks))
    taken: dict[str, int] = {}
    found = []
    for n, talk in enumerate(talks, 1):
        at = f"{where}, session {n}"
        if not isinstance(talk, list):
            fail(at, "haystack_sessions", "an array of turns", talk)
        session_id = name({"haystack_session_ids": given[n - 1]}, "haystack_session_ids", at)
        session_id = session_id or f"session_{n}"
        time = date({"haystack_dates": dates[n - 1]}, "haystack_dates", at, options.zone or UTC)
        own = unique(session_id, taken)
        turns, answers = _turns(talk, at)
        found.append(Session(session_id, own, time, turns, answers))
    times = [session.time for session in found if session.time is not None]
    if len(times) == len(found):
        found = [found[n] for n in sorted(range(len(found)), key=lambda n: times[n].start)]
    return found


def _beside(record: dict[str, Any], field: str, where: str, n: int) -> list[Any]:
    """Return a field with a value per session, or none at all."""
    if record.get(field) is None:
        return [None] * n
    values = as_list(record, field, where)
    if len(values) != n:
        raise ImportFormatError(
            f"{where}: field {field!r} must have a value for each of the {n} in "
            f"'haystack_sessions', got {len(values)}"
        )
    return values


def _turns(talk: list[Any], where: str) -> tuple[tuple[Turn, ...], frozenset[int]]:
    turns = []
    answers = []
    for n, value in enumerate(talk, 1):
        at = f"{where}, turn {n}"
        turn = as_object(value, at)
        role = turn.get("role", "user")
        if role not in ROLES:
            fail(at, "role", f"one of {', '.join(ROLES)}", role)
        labelled = turn.get("has_answer")
        if not isinstance(labelled, bool | None):
            fail(at, "has_answer", "true or false", labelled)
        if labelled:
            answers.append(n)
        # Some turns of the published files are empty; they are no traces.
        said = "" if turn.get("content", "") is None else required_text(turn, "content", at)
        if said.strip():
            turns.append(Turn(n, role, said))
    return tuple(turns), frozenset(answers)


def date(record: dict[str, Any], field: str, where: str, zone: tzinfo) -> EventTime | None:
    """Return a field such as "2023/05/30 (Tue) 23:40", or an ISO 8601 one, as event time."""
    value = text(record, field, where)
    if value is None or not value.strip():
        return None
    try:
        if (match := _TIME.fullmatch(value.strip())) is None:
            return EventTime.parse(value, zone=zone)
        year, month, day, hour, minute = (int(group or 0) for group in match.groups())
        moment = datetime(year, month, day, hour, minute, tzinfo=zone)
        return EventTime(moment, "day" if match[4] is None else "minute")
    except (ValueError, InvalidInputError):
        fail(where, field, "a time such as '2023/05/30 (Tue) 23:40'", value)
