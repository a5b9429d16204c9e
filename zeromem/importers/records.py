"""JSON files as a stream of numbered records, and checked access to a record's fields."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import tzinfo
from pathlib import Path
from reprlib import Repr
from typing import IO, Any, Final, NoReturn

from zeromem.errors import ImportFormatError, InvalidInputError
from zeromem.importers.arrays import elements, no_constant
from zeromem.times import EventTime
from zeromem.types import Trace

Record = tuple[str, Any]
"""Where it stands ("line 7", "record 3"), and the parsed JSON value."""

_SHORT: Final = Repr()
_SHORT.maxstring = _SHORT.maxother = 60
_BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Conversation:
    """One memory's worth of a file.

    Attributes
    ----------
    name : str, optional
        The sample's or chat's name in the file.
    traces : iterable of Trace
    """

    name: str | None
    traces: Iterable[Trace]


@dataclass(frozen=True, slots=True)
class Options:
    """What the caller of an importer chose; see :func:`zeromem.importers.conversations`."""

    zone: tzinfo | None
    source: str | None
    keep_system: bool


def records(path: Path) -> Iterator[Record]:
    """Read a file's records in order.

    A file whose first line is one JSON object is read line by line, and the elements of an array
    one by one, so neither is ever held in memory. Any other value is the file's only record.

    Raises
    ------
    ImportFormatError
        Where the file is not UTF-8 or not JSON; of a file with several records, when the
        malformed one is reached.
    """
    with path.open("rb") as file:
        if _start(file) == b"[":
            yield from elements(file)
            return
        file.seek(0)
        first = next((line for line in file if line.removeprefix(_BOM).strip()), b"")
    if not first:
        return
    try:
        by_line = isinstance(_parse(first), dict)
    except ValueError:
        by_line = False
    if by_line:
        yield from _lines(path)
        return
    try:
        yield "record 1", _parse(path.read_bytes())
    except ValueError as error:
        raise ImportFormatError(f"{path.name} is neither JSON nor JSON Lines: {error}") from None


def _start(file: IO[bytes]) -> bytes:
    """Return the first byte that is no space, and stand before it."""
    if file.read(len(_BOM)) != _BOM:
        file.seek(0)
    while (byte := file.read(1)).isspace():
        pass
    file.seek(-len(byte), os.SEEK_CUR)
    return byte


def _lines(path: Path) -> Iterator[Record]:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.removeprefix(_BOM).strip():
                continue
            try:
                yield f"line {number}", _parse(line)
            except ValueError as error:
                raise ImportFormatError(f"line {number}: not JSON: {error}") from None


def _parse(data: bytes) -> object:
    """Parse JSON bytes; every failure is a ValueError."""
    try:
        return json.loads(data.removeprefix(_BOM).decode("utf-8"), parse_constant=no_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def fail(where: str, field: str, expected: str, value: object) -> NoReturn:
    """Raise the one error of importers, naming record, field, expectation and value."""
    raise ImportFormatError(
        f"{where}: field {field!r} must be {expected}, got {_SHORT.repr(value)}"
    )


def is_message(record: dict[str, Any]) -> bool:
    """Whether a record looks like a message of a chat export."""
    return "content" in record or ("role" in record and "text" not in record)


def as_object(value: object, where: str) -> dict[str, Any]:
    """Return a record that is a JSON object, or raise."""
    if not isinstance(value, dict):
        raise ImportFormatError(f"{where}: must be a JSON object, got {type(value).__name__}")
    return value


def as_list(record: dict[str, Any], field: str, where: str) -> list[Any]:
    """Return a field that is a JSON array, or raise."""
    value = record.get(field)
    if not isinstance(value, list):
        fail(where, field, "an array", value)
    return value


def text(record: dict[str, Any], field: str, where: str) -> str | None:
    """Return a field that is a string, or None where it is absent or null."""
    value = record.get(field)
    if value is not None and not isinstance(value, str):
        fail(where, field, "a string", value)
    return value


def required_text(record: dict[str, Any], field: str, where: str) -> str:
    """Return a field that has to be a string."""
    value = text(record, field, where)
    if value is None:
        fail(where, field, "a string", value)
    return value


def name(record: dict[str, Any], field: str, where: str) -> str | None:
    """Return an identifier: a string, or a whole number written as one."""
    value = record.get(field)
    if isinstance(value, int) and not isinstance(value, bool):
        try:
            return str(value)
        except ValueError:  # thousands of digits
            raise ImportFormatError(f"{where}: field {field!r} is too long a number") from None
    if value is not None and not isinstance(value, str):
        fail(where, field, "a string or a whole number", value)
    return value


def event_time(
    record: dict[str, Any], field: str, where: str, zone: tzinfo | None
) -> EventTime | None:
    """Return an ISO 8601 field as event time."""
    value = text(record, field, where)
    try:
        return None if value is None else EventTime.parse(value, zone=zone)
    except InvalidInputError as error:
        raise ImportFormatError(f"{where}: field {field!r}: {error}") from None


def unique(name: str, taken: dict[str, int]) -> str:
    """Return a name that is not taken yet ("x", "x#2", "x#3", ...), and take it.

    ``taken`` maps names to the last number tried for them, so that many of one name take linear
    time.
    """
    number = taken.get(name, 0) + 1
    found = name if number == 1 else f"{name}#{number}"
    while found in taken:
        number += 1
        found = f"{name}#{number}"
    taken[name] = number
    taken.setdefault(found, 1)
    return found
