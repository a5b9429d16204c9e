"""LoCoMo's format: samples of two people's sessions, dated in words.

A turn's picture is known by its caption alone, which follows the text as ``[picture: …]``.
Questions and their labels in the same file are never read here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, tzinfo
from typing import Any, Final

from zeromem.errors import ImportFormatError
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
)
from zeromem.times import EventTime
from zeromem.types import Trace

_SESSION: Final = re.compile(r"session_(\d{1,9})", re.ASCII)
_TIME: Final = re.compile(
    r"(?:(\d{1,2}):(\d{2})\s*([ap])\.?m\.?\s+on\s+)?(\d{1,2})\s+([a-z]+),?\s+(\d{4})",
    re.ASCII | re.IGNORECASE,
)
MONTHS: Final = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)  # fmt: skip


def read(records: Iterable[Record], options: Options) -> Iterator[Conversation]:
    """Yield one conversation per sample, named by its ``sample_id``."""
    for number, (where, value) in enumerate(records, 1):
        yield conversation(as_object(value, where), where, number, options)


def conversation(sample: dict[str, Any], where: str, number: int, options: Options) -> Conversation:
    """Read the file's sample of this number, counted from 1; it names those without an id."""
    sample_id = name(sample, "sample_id", where) or f"sample-{number}"
    talk = sample.get("conversation")
    if not isinstance(talk, dict):
        fail(where, "conversation", "an object", talk)
    return Conversation(sample_id, list(_traces(talk, f"{where} ({sample_id!r})", options)))


def _traces(talk: dict[str, Any], where: str, options: Options) -> Iterator[Trace]:
    sessions = sorted(
        ((int(m[1]), key) for key in talk if (m := _SESSION.fullmatch(key))),
    )
    for _, session in sessions:
        time = _time(talk, f"{session}_date_time", where, options.zone or UTC)
        for n, value in enumerate(as_list(talk, session, where), 1):
            yield _trace(as_object(value, at := f"{where}, {session}, turn {n}"), at, session,
                         time, options.source)  # fmt: skip


def _trace(
    turn: dict[str, Any], where: str, session: str, time: EventTime | None, source: str | None
) -> Trace:
    said = required_text(turn, "text", where)
    caption = text(turn, "blip_caption", where)
    return Trace(
        text=f"{said} [picture: {caption}]".lstrip() if caption else said,
        id=name(turn, "dia_id", where),
        speaker=text(turn, "speaker", where),
        session=session,
        time=time,
        source=source,
    )


def _time(talk: dict[str, Any], field: str, where: str, zone: tzinfo) -> EventTime | None:
    value = text(talk, field, where)
    if value is None:
        return None
    if (match := _TIME.fullmatch(value.strip())) and match[5].lower() in MONTHS:
        hour, minute, half, day, month, year = match.groups()
        try:
            date = datetime(int(year), MONTHS.index(month.lower()) + 1, int(day), tzinfo=zone)
            if hour is None:
                return EventTime(date, "day")
            if not 1 <= int(hour) <= 12:
                raise ValueError(f"hour {hour}")
            clock = int(hour) % 12 + (12 if half.lower() == "p" else 0)
            return EventTime(date.replace(hour=clock, minute=int(minute)), "minute")
        except ValueError as error:
            raise ImportFormatError(f"{where}: field {field!r}: {value!r}: {error}") from None
    fail(where, field, "a time such as '1:56 pm on 8 May, 2023'", value)
