"""BEAM's chats: one record per chat, its messages anchored to a day ("March-15-2024")."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, tzinfo
from typing import Any, Final

from zeromem.errors import ImportFormatError
from zeromem.importers.locomo import MONTHS
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
from zeromem.types import ROLES, Trace

_ANCHOR: Final = re.compile(r"([a-z]+)-(\d{1,2})-(\d{4})", re.ASCII | re.IGNORECASE)


def read(records: Iterable[Record], options: Options) -> Iterator[Conversation]:
    """Yield one conversation per chat, named by its ``chat_id``."""
    for number, (where, value) in enumerate(records, 1):
        yield conversation(as_object(value, where), where, number, options)


def conversation(chat: dict[str, Any], where: str, number: int, options: Options) -> Conversation:
    """Read the file's chat of this number, counted from 1; it names those without an id."""
    chat_id = name(chat, "chat_id", where) or f"chat-{number}"
    messages = as_list(chat, "messages", where)
    return Conversation(
        chat_id,
        [
            _trace(message, f"{where} ({chat_id!r}), message {n}", options)
            for n, message in enumerate(messages, 1)
        ],
    )


def _trace(value: object, where: str, options: Options) -> Trace:
    message = as_object(value, where)
    role = message.get("role", "user")
    if role not in ROLES:
        fail(where, "role", f"one of {', '.join(ROLES)}", role)
    return Trace(
        text=required_text(message, "text", where),
        id=name(message, "id", where),
        role=role,
        session=name(message, "session", where),
        time=_anchor(message, where, options.zone or UTC),
        source=options.source,
    )


def _anchor(message: dict[str, Any], where: str, zone: tzinfo) -> EventTime | None:
    value = text(message, "time_anchor", where)
    if value is None:
        return None
    if (match := _ANCHOR.fullmatch(value.strip())) and match[1].lower() in MONTHS:
        month, day, year = MONTHS.index(match[1].lower()) + 1, int(match[2]), int(match[3])
        try:
            return EventTime(datetime(year, month, day, tzinfo=zone), "day")
        except ValueError as error:
            raise ImportFormatError(f"{where}: field 'time_anchor': {value!r}: {error}") from None
    fail(where, "time_anchor", "a day such as 'March-15-2024'", value)
