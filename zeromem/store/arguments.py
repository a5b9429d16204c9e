"""Checks of what callers pass to a log."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from operator import index
from typing import Any

from zeromem.errors import InvalidInputError
from zeromem.times import EventTime


def shown(value: object) -> str:
    """A value and its type for an error message, whatever its repr does."""
    try:
        text = f"{value!r:.80}"
    except Exception:  # an integer of many digits, a repr of the caller's that fails
        return f"a value of type {type(value).__name__}"
    return f"{text} ({type(value).__name__})"


def several(argument: str, values: Iterable[Any], of: str) -> list[Any]:
    """List what an argument holds that is to be iterable."""
    try:
        found = iter(values)
    except TypeError:
        raise InvalidInputError(
            f"{argument} must be {of}, in a list or another iterable, got {shown(values)}"
        ) from None
    return list(found)


def integers(lsns: Iterable[int]) -> list[int]:
    """Log sequence numbers of any integer type."""
    try:
        return [index(lsn) for lsn in several("lsns", lsns, "integers")]
    except TypeError:
        raise InvalidInputError(f"lsns must be integers, got {shown(lsns)}") from None


def strings(argument: str, values: Iterable[str | None], *, optional: bool = False) -> list[Any]:
    """Strings, or None where ``optional``; a single string stands for itself."""
    found = [values] if isinstance(values, str) else several(argument, values, "strings")
    for value in found:
        if not (isinstance(value, str) or (optional and value is None)):
            raise InvalidInputError(f"{argument} must be strings, got {shown(value)}")
    return found


def lies_in(time: EventTime | None, start: datetime | None, end: datetime | None) -> bool:
    """Whether the whole period lies in ``[start, end)``; None is no limit."""
    if start is None and end is None:
        return True
    if time is None or (start is not None and time.start < start):
        return False
    return end is None or time.end <= end
