"""Our JSON Lines: one trace a line, the fields of :class:`zeromem.types.Trace`, ISO 8601 time.

A field ``zone`` beside ``time`` names the zone whose clock or calendar is meant, by its IANA name
or its offset ("Europe/Berlin", "+02:00"). It is written for years, months and days, which have no
offset in their text, and for clock times of a zone with a name. Where it is missing, a time
without an offset is read in the zone that the caller of the importer chose.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from zeromem.errors import ImportFormatError
from zeromem.importers.records import (
    Conversation,
    Options,
    Record,
    as_object,
    event_time,
    fail,
    name,
    required_text,
    text,
)
from zeromem.times import EventTime, in_zone, named_zone, zone_name
from zeromem.types import ROLES, Trace

_FIELDS: Final = frozenset(
    ("text", "id", "role", "speaker", "session", "time", "zone", "title", "source", "metadata")
)
_CALENDAR: Final = ("year", "month", "day")
# An export says where and when a trace was stored; another memory stores it anew.
_IGNORED: Final = frozenset(("lsn", "ingested_at"))


def read(records: Iterable[Record], options: Options) -> Iterator[Conversation]:
    """Yield the file's one conversation."""
    yield Conversation(None, (_trace(where, value, options) for where, value in records))


def _trace(where: str, value: object, options: Options) -> Trace:
    record = as_object(value, where)
    # A misspelt field would lose what it holds without a word.
    if unknown := set(record) - _FIELDS - _IGNORED:
        raise ImportFormatError(
            f"{where}: unknown field {min(unknown)!r}; a trace has {', '.join(sorted(_FIELDS))}, "
            "and anything else goes into 'metadata'"
        )
    role = record.get("role", "user")
    if role not in ROLES:
        fail(where, "role", f"one of {', '.join(ROLES)}", role)
    return Trace(
        text=required_text(record, "text", where),
        id=name(record, "id", where),
        role=role,
        speaker=text(record, "speaker", where),
        session=name(record, "session", where),
        time=_time(record, where, options),
        title=text(record, "title", where),
        source=text(record, "source", where) or options.source,
        metadata=_metadata(record, where),
    )


def _time(record: dict[str, Any], where: str, options: Options) -> EventTime | None:
    given = text(record, "zone", where)
    if given is None:
        return event_time(record, "time", where, options.zone)
    if (zone := named_zone(given)) is None:
        fail(where, "zone", "an IANA name or an offset such as '+02:00'", given)
    time = event_time(record, "time", where, zone)
    if time is None:
        return None
    start = in_zone(time.start, zone)
    if time.precision in _CALENDAR and start.utcoffset() != time.start.utcoffset():
        fail(where, "zone", f"the one of the time {record['time']!r}", given)
    return replace(time, start=start)


def _zone(time: EventTime | None) -> str | None:
    """Name the zone of a time where its text does not say it."""
    if time is None:
        return None
    if (named := zone_name(time.start)) is not None and named != "UTC":
        return named
    if time.precision not in _CALENDAR:
        return None
    return time.start.isoformat()[len("2026-05-03T10:00:00") :] if time.start.utcoffset() else "UTC"


def _metadata(record: dict[str, Any], where: str) -> dict[str, Any]:
    value = record.get("metadata")
    if value is None:
        return {}
    if not isinstance(value, dict):
        fail(where, "metadata", "an object", value)
    try:
        json.dumps(value, allow_nan=False)  # 1e999 parses as infinity, which no JSON can hold
    except (ValueError, RecursionError) as error:
        raise ImportFormatError(f"{where}: field 'metadata': {error}") from None
    return value


def to_json_line(trace: Trace, *, lsn: int | None = None, stored: datetime | None = None) -> str:
    """Write one trace as a line that :func:`zeromem.importers.load` reads back unchanged.

    Parameters
    ----------
    trace : Trace
    lsn : int, optional
        Its place in the log; for the reader of the file, ignored on import.
    stored : datetime, optional
        When it was acknowledged; the same.

    Returns
    -------
    str
        One line of JSON without its line end; absent fields are left out.
    """
    record: dict[str, Any] = {
        "id": trace.id,
        "role": trace.role,
        "speaker": trace.speaker,
        "session": trace.session,
        "time": trace.time.isoformat() if trace.time else None,
        "zone": _zone(trace.time),
        "title": trace.title,
        "source": trace.source,
        "text": trace.text,
        "metadata": dict(trace.metadata) or None,
        "lsn": lsn,
        "ingested_at": stored.isoformat() if stored else None,
    }
    record = {key: value for key, value in record.items() if value is not None}
    line = json.dumps(record, ensure_ascii=False, allow_nan=False)
    try:
        line.encode()
    except UnicodeEncodeError:  # lone surrogates exist only as \u escapes in a UTF-8 file
        line = json.dumps(record, allow_nan=False)
    return line
