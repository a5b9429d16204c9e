"""Plain chat exports: role/content messages, as OpenAI-style logs have them.

The file is an array of messages, an object with ``messages``, an array of such objects, or
either of these line by line. Several chats of one file are sessions of one memory.

Roles: ``user``/``human`` and ``assistant``/``ai``/``bot``/``model`` are who spoke; ``tool`` and
``function`` become ``tool``; ``system`` and ``developer`` messages are left out or, with
``keep_system``, become documents. Where a file holds several chats, a message's id is preceded
by its session's. Content that is a list of parts is joined; what is no text
leaves a mark such as ``[picture]``, and a tool call reads ``[calls name(arguments)]``. A message
without any content is left out. One without an id that says what another of its chat has said at
the same time is a message of its own, the second "yes": it gets an id with its number.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import blake2b
from itertools import chain, islice
from typing import Any, Final

from zeromem.errors import ImportFormatError
from zeromem.importers.records import (
    Conversation,
    Options,
    Record,
    as_list,
    as_object,
    event_time,
    fail,
    is_message,
    name,
    text,
)
from zeromem.times import EventTime
from zeromem.types import Role, Trace

_ROLES: Final[dict[str, Role]] = {
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "ai": "assistant",
    "bot": "assistant",
    "model": "assistant",
    "tool": "tool",
    "function": "tool",
    "system": "document",
    "developer": "document",
}
_SYSTEM: Final = ("system", "developer")
_TIMES: Final = ("time", "timestamp", "created_at", "create_time")
_PICTURES: Final = ("image", "image_url", "input_image")
_MILLISECONDS: Final = 1e11  # as seconds this is the year 5138


def read(records: Iterable[Record], options: Options) -> Iterator[Conversation]:
    """Yield the file's one conversation."""
    yield Conversation(None, _apart(_traces(records, options)))


def _apart(traces: Iterable[Trace]) -> Iterator[Trace]:
    """Number what would be taken for a message that came before; the same in each import."""
    seen: Counter[str] = Counter()
    for trace in traces:
        if trace.id is None:
            said = (trace.session, trace.role, trace.speaker, str(trace.time), trace.text)
            content = json.dumps(said).encode()
            digest = blake2b(content, digest_size=16).hexdigest()
            seen[digest] += 1
            if seen[digest] > 1:
                trace = replace(trace, id=f"{digest}#{seen[digest]}")
        yield trace


def _traces(records: Iterable[Record], options: Options) -> Iterator[Trace]:
    remaining = iter(records)
    head = list(islice(remaining, 2))
    several = len(head) > 1
    for number, (where, value) in enumerate(chain(head, remaining), 1):
        record = as_object(value, where)
        if "messages" not in record:
            if not is_message(record):
                fail(where, "content", "a string or a list of parts", None)
            yield from _trace(record, where, options)
            continue
        session = _session(record, where) or f"chat-{number}"
        # Chats number their messages alike, while an id is unique in a memory.
        prefix = f"{session}/" if several else ""
        for n, message in enumerate(as_list(record, "messages", where), 1):
            at = f"{where}, message {n}"
            yield from _trace(as_object(message, at), at, options, session, prefix)


def _session(record: dict[str, Any], where: str) -> str | None:
    for field in ("session", "session_id", "conversation_id", "thread_id"):
        if (value := name(record, field, where)) is not None:
            return value
    return None


def _trace(
    message: dict[str, Any],
    where: str,
    options: Options,
    session: str | None = None,
    prefix: str = "",
) -> Iterator[Trace]:
    """Yield the message's trace, or nothing where it is left out."""
    role = text(message, "role", where)
    if role is None or role.lower() not in _ROLES:
        fail(where, "role", f"one of {', '.join(_ROLES)}", role)
    if role.lower() in _SYSTEM and not options.keep_system:
        return
    try:
        content = _content(message, where)
    except RecursionError:
        raise ImportFormatError(f"{where}: field 'content' is nested too deeply") from None
    if not content.strip():
        return
    own_id = name(message, "id", where)
    yield Trace(
        text=content,
        id=None if own_id is None else prefix + own_id,
        role=_ROLES[role.lower()],
        speaker=text(message, "name", where),
        session=_session(message, where) or session,
        time=_time(message, where, options),
        source=options.source,
    )


def _content(message: dict[str, Any], where: str) -> str:
    value = message.get("content")
    if value is None:
        pieces = []
    elif isinstance(value, str):
        pieces = [value]
    elif isinstance(value, list):
        pieces = [_part(part, f"{where}, part {n}") for n, part in enumerate(value, 1)]
    else:
        fail(where, "content", "a string or a list of parts", value)
    calls = message.get("tool_calls")
    if calls is not None:
        for n, call in enumerate(as_list(message, "tool_calls", where), 1):
            at = f"{where}, tool call {n}"
            function = as_object(as_object(call, at).get("function"), f"{at}, field 'function'")
            pieces.append(_call(function.get("name"), function.get("arguments")))
    return "\n".join(piece for piece in pieces if piece)


def _part(part: object, where: str) -> str:
    if isinstance(part, str):
        return part
    part = as_object(part, where)
    kind = text(part, "type", where) or "text"
    if kind == "tool_use":
        return _call(part.get("name"), part.get("input"))
    if kind == "tool_result":
        return _content(part, where)
    if isinstance(said := part.get("text", part.get("refusal")), str):
        return said
    if kind in ("text", "input_text", "output_text"):
        fail(where, "text", "a string", said)
    return "[picture]" if kind in _PICTURES else f"[{kind}]"


def _call(function: object, arguments: object) -> str:
    if not isinstance(arguments, str):
        arguments = "" if arguments is None else json.dumps(arguments, ensure_ascii=False)
    return f"[calls {function}({arguments})]"


def _time(message: dict[str, Any], where: str, options: Options) -> EventTime | None:
    for field in _TIMES:
        value = message.get(field)
        if value is None:
            continue
        if isinstance(value, int | float) and not isinstance(value, bool):
            try:
                seconds = value / 1000 if abs(value) >= _MILLISECONDS else value
                return EventTime.parse(datetime.fromtimestamp(seconds, UTC))
            except (ValueError, OverflowError, OSError) as error:
                raise ImportFormatError(f"{where}: field {field!r}: {error}") from None
        return event_time(message, field, where, options.zone)
    return None
