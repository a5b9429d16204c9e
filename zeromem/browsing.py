"""Looking through a memory without asking: its traces page by page, neighbours, sessions."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from zeromem.errors import InvalidInputError
from zeromem.index import Arrays
from zeromem.index.segment import NO_TIME, unnamed_session
from zeromem.query.questions import admissible
from zeromem.times import from_micros
from zeromem.types import Boundary, SessionSummary

Array = NDArray[Any]
Order = Literal["log", "time"]

_LAST = np.iinfo(np.int64).max
_MOST = 10_000
_CURSOR = re.compile(r"(log|time)([+-]):(-?\d{1,19}):(\d{1,13})")


class Place(NamedTuple):
    """Where a page ended: a position in an order of traces, and nothing else of them.

    Attributes
    ----------
    order : {"log", "time"}
    descending : bool
    key : int
        What the order sorts by first.
    lsn : int
    """

    order: str
    descending: bool
    key: int
    lsn: int

    def text(self) -> str:
        """Write it as a cursor."""
        sign = "-" if self.descending else "+"
        plain = f"{self.order}{sign}:{self.key}:{self.lsn}"
        return base64.urlsafe_b64encode(plain.encode()).decode().rstrip("=")

    @classmethod
    def parse(cls, cursor: Any, order: Order, *, descending: bool) -> Place | None:
        """Read a cursor of the same order; None for None.

        Raises
        ------
        InvalidInputError
        """
        if cursor is None:
            return None
        found = None
        if isinstance(cursor, str) and len(cursor) < 100:
            try:
                padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
                found = _CURSOR.fullmatch(base64.b64decode(padded, b"-_", validate=True).decode())
            except (UnicodeError, binascii.Error):
                found = None
        if found is None or abs(int(found[3])) > _LAST:
            raise InvalidInputError(
                f"cursor must be one that the page before gave, got {cursor!r:.80}; start without"
            )
        place = cls(found[1], found[2] == "-", int(found[3]), int(found[4]))
        if place[:2] != (order, descending):
            raise InvalidInputError(
                f"cursor must be of this page's order ({_direction(order, descending)}), got one "
                f"of another ({_direction(*place[:2])}); go on as you began, or start without"
            )
        return place


def _direction(order: str, descending: bool) -> str:
    return f"{order}, {'descending' if descending else 'ascending'}"


def check_page(order: Any, descending: Any, limit: Any) -> None:
    """Refuse what no page can be made of."""
    if order not in get_args(Order):
        raise InvalidInputError(f"order must be 'log' or 'time', got {order!r}")
    if not isinstance(descending, bool):
        raise InvalidInputError(f"descending must be True or False, got {descending!r}")
    check_count("limit", limit, 1)


def check_count(name: str, value: Any, least: int) -> None:
    """Refuse what is no number of traces."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _MOST:
        raise InvalidInputError(f"{name} must be an integer from {least} to {_MOST}, got {value!r}")


def page(
    arrays: Arrays,
    boundary: Boundary,
    *,
    unnamed: bool,
    order: Order,
    descending: bool,
    limit: int,
    after: Place | None,
) -> tuple[list[int], Place | None]:
    """Choose the traces of one page.

    Parameters
    ----------
    arrays : Arrays
    boundary : Boundary
    unnamed : bool
        Whether the unnamed session is admitted beside those that the boundary names.
    order : {"log", "time"}
        By event time, traces without one come last; ties are in the order of the log.
    descending : bool
    limit : int
    after : Place, optional
        Where the page before ended.

    Returns
    -------
    lsns : list of int
    place : Place, optional
        Where this page ends; None where nothing follows.
    """
    mask = admissible(boundary, arrays)
    if unnamed:
        none = arrays.turns.session == arrays.turns.sessions.get(unnamed_session(), -1)
        mask |= none & admissible(replace(boundary, sessions=None), arrays)
    rows = _first_turns(arrays)
    rows = rows[mask[rows]]
    lsn = arrays.turns.lsn[rows]
    sign = -1 if descending else 1
    if order == "log":
        key = np.zeros(len(rows), np.int64)
    else:
        start = arrays.turns.time[rows, 0]
        key = np.where(start == NO_TIME, _LAST, sign * start)
    by = np.lexsort((sign * lsn, key))
    if after is not None:
        passed = (key[by] < after.key) | (
            (key[by] == after.key) & (sign * lsn[by] <= sign * after.lsn)
        )
        by = by[~passed]
    shown = by[:limit]
    last = shown[-1] if len(by) > limit else None
    place = None if last is None else Place(order, descending, int(key[last]), int(lsn[last]))
    return lsn[shown].tolist(), place


def neighbours(arrays: Arrays, lsn: int, before: int, after: int) -> list[int]:
    """List a trace and those around it in its session, in the order of the log."""
    turns = arrays.turns
    row = int(np.searchsorted(turns.lsn, lsn))
    session = np.unique(turns.lsn[turns.session == turns.session[row]])
    at = int(np.searchsorted(session, lsn))
    found: list[int] = session[max(0, at - before) : at + after + 1].tolist()
    return found


def sessions(arrays: Arrays) -> list[SessionSummary]:
    """Count the traces of each session, in order of first appearance."""
    turns = arrays.turns
    rows = _first_turns(arrays)
    session = turns.session[rows]
    start = turns.time[rows, 0]
    timed = start != NO_TIME
    n = len(turns.sessions)
    first, last = np.full(n, _LAST), np.full(n, NO_TIME)
    np.minimum.at(first, session[timed], start[timed])
    np.maximum.at(last, session[timed], start[timed])
    counts = np.bincount(session, minlength=n)
    found = []
    for i, key in enumerate(turns.sessions):
        if counts[i] and (key == unnamed_session() or key.startswith("=")):
            known = last[i] != NO_TIME
            found.append(
                SessionSummary(
                    key[1:] or None,
                    int(counts[i]),
                    _instant(int(first[i])) if known else None,
                    _instant(int(last[i])) if known else None,
                )
            )
    return found


def split_sessions(given: Iterable[str | None] | str | None) -> tuple[list[str] | None, bool]:
    """Part the names of sessions from None, which stands for the unnamed one."""
    if given is None or isinstance(given, str):
        return None if given is None else [given], False
    if not isinstance(given, Iterable):
        raise InvalidInputError(f"sessions must be a str or several in a list, got {given!r}")
    several = list(given)
    return [name for name in several if name is not None], None in several


def _instant(micros: int) -> datetime:
    """The instant, or the calendar's first or last where its zone reaches beyond that of UTC."""
    try:
        return from_micros(micros)
    except OverflowError:
        return (datetime.max if micros > 0 else datetime.min).replace(tzinfo=UTC)


def _first_turns(arrays: Arrays) -> Array:
    """Rows of each trace's first turn."""
    lsn = arrays.turns.lsn
    if not len(lsn):
        return np.zeros(0, np.int64)
    return np.flatnonzero(np.r_[True, lsn[1:] != lsn[:-1]])
