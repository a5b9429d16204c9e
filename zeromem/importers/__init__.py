"""Readers from files to traces: our JSON Lines, LoCoMo, BEAM, LongMemEval and chat exports.

A file holds one or more *conversations*, each a memory of its own. JSON Lines and chat exports
hold one; LoCoMo, BEAM and LongMemEval files hold one per sample, chosen by name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import tzinfo
from pathlib import Path
from typing import Any, Literal, get_args

from zeromem.errors import ImportFormatError, InvalidInputError
from zeromem.importers import beam, chat, lines, locomo, longmemeval
from zeromem.importers.records import Conversation, Options, is_message, records
from zeromem.types import Trace

Format = Literal["jsonl", "locomo", "beam", "longmemeval", "chat"]
FORMATS: tuple[Format, ...] = get_args(Format)
_READERS = {
    "jsonl": lines.read,
    "locomo": locomo.read,
    "beam": beam.read,
    "longmemeval": longmemeval.read,
    "chat": chat.read,
}

__all__ = ["FORMATS", "Conversation", "Format", "conversations", "detect", "load", "to_json_line"]

to_json_line = lines.to_json_line


def detect(path: str | os.PathLike[str]) -> Format:
    """Tell a file's format from its first record.

    Parameters
    ----------
    path : path

    Returns
    -------
    {"jsonl", "locomo", "beam", "longmemeval", "chat"}
        ``jsonl`` for a file without any record.

    Raises
    ------
    ImportFormatError
        Where the file is not JSON, or its first record belongs to no known format.
    OSError
        Where the file cannot be read.
    """
    for where, record in records(Path(path)):
        if (found := _format_of(record)) is not None:
            return found
        raise ImportFormatError(
            f"{where}: of no known format; expected an object with 'text' (jsonl), 'conversation' "
            "(locomo), 'messages' (beam, chat), 'haystack_sessions' (longmemeval) or 'role' and "
            "'content' (chat)"
        )
    return "jsonl"


def _format_of(record: object) -> Format | None:
    if not isinstance(record, dict):
        return None
    if "conversation" in record:
        return "locomo"
    if "haystack_sessions" in record:
        return "longmemeval"
    if "messages" in record:
        messages = record["messages"]
        first = messages[0] if isinstance(messages, list) and messages else None
        return "beam" if isinstance(first, dict) and "content" not in first else "chat"
    if is_message(record):
        return "chat"
    return "jsonl" if "text" in record else None


def conversations(
    path: str | os.PathLike[str],
    format: Format | None = None,
    *,
    zone: tzinfo | None = None,
    source: str | None = None,
    keep_system: bool = False,
) -> Iterator[Conversation]:
    """Read every conversation of a file.

    Parameters
    ----------
    path : path
    format : {"jsonl", "locomo", "beam", "longmemeval", "chat"}, optional
        Detected where not given.
    zone : tzinfo, optional
        Zone of clock times that carry none. LoCoMo's, BEAM's and LongMemEval's never do and
        default to UTC; in the other formats such a time is an error where it is not given.
    source : str, optional
        ``Trace.source`` of every trace that does not name its own. Defaults to the file's name,
        except for JSON Lines, whose traces come back as they were exported.
    keep_system : bool
        Keep a chat's system and developer messages, as documents. They instruct the assistant and
        are no part of what happened, so they are left out by default.

    Yields
    ------
    Conversation
        Its ``traces`` are read while they are iterated over (one line at a time for JSON Lines),
        so take them before the next conversation.

    Raises
    ------
    ImportFormatError
        Naming the record and the field that is malformed.
    OSError
        Where the file cannot be read.
    """
    path = Path(path)
    if format is None:
        format = detect(path)
    if format not in _READERS:
        raise InvalidInputError(f"format must be one of {', '.join(FORMATS)}, got {format!r}")
    if source is None and format != "jsonl":
        source = path.name
    yield from _READERS[format](records(path), Options(zone, source, keep_system))


def load(
    path: str | os.PathLike[str],
    format: Format | None = None,
    *,
    conversation: str | None = None,
    zone: tzinfo | None = None,
    source: str | None = None,
    keep_system: bool = False,
) -> Iterator[Trace]:
    """Read the traces of one conversation.

    Parameters
    ----------
    conversation : str, optional
        Name of the sample or chat to take; needed where the file holds several.
    path, format, zone, source, keep_system
        As in :func:`conversations`.

    Yields
    ------
    Trace

    Raises
    ------
    InvalidInputError
        Where the file holds several conversations and none is named, or not the one named.
    ImportFormatError, OSError
        As in :func:`conversations`.
    """
    options: dict[str, Any] = {"zone": zone, "source": source, "keep_system": keep_system}
    if format in ("jsonl", "chat") or (format is None and detect(path) in ("jsonl", "chat")):
        if conversation is not None:
            raise InvalidInputError(
                f"conversation must be left out for a file that holds one, got {conversation!r}"
            )
        for only in conversations(path, format, **options):
            yield from only.traces
        return
    names: list[str] = []
    chosen: list[Trace] | None = None
    for found in conversations(path, format, **options):
        names.append(found.name or "")
        if conversation in (None, found.name) and chosen is None:
            chosen = list(found.traces)
    if conversation is None and len(names) > 1:
        raise InvalidInputError(
            f"conversation must name one of the {len(names)} in the file: {_shown(names)}"
        )
    if chosen is None and conversation is not None:
        raise InvalidInputError(
            f"conversation must be one of {_shown(names)}, got {conversation!r}"
        )
    yield from chosen or ()


def _shown(names: list[str], most: int = 12) -> str:
    shown = ", ".join(repr(name) for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")
