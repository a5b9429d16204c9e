"""Checks of what callers pass to a log."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from operator import index
from typing import Any

from zeromem.errors import InvalidInputError
from zeromem.times import EventTime


def integers(lsns: Iterable[int]) -> list[int]:
    """Log sequence numbers of any integer type."""
    try:
        return [index(lsn) for lsn in lsns]
    except TypeError:
        raise InvalidInputError(f"lsns must be integers, got {lsns!r}") from None


def strings(argument: str, values: Iterable[str | None], *, optional: bool = False) -> list[Any]:
    """Strings, or None where ``optional``; a single string stands for itself."""
    found = [values] if isinstance(values, str) else list(values)
    for value in found:
        if not (isinstance(value, str) or (optional and value is None)):
            raise InvalidInputError(
                f"{argument} must be strings, got {value!r} ({type(value).__name__})"
            )
    return found


def lies_in(time: EventTime | None, start: datetime | None, end: datetime | None) -> bool:
    """Whether the whole period lies in ``[start, end)``; None is no limit."""
    if start is None and end is None:
        return True
    if time is None or (start is not None and time.start < start):
        return False
    try:
        return end is None or time.end <= end
    except (ValueError, OverflowError):  # a period that ends after the last year there is
        return False
