"""What callers give, checked and brought into the engine's types."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, replace
from datetime import datetime, timedelta, tzinfo
from itertools import islice
from typing import Any, TypeVar, get_args
from zoneinfo import ZoneInfo

from zeromem.errors import InvalidInputError
from zeromem.query.ranked import Options, View
from zeromem.times import EventTime
from zeromem.types import ROLES, Boundary, Trace

T = TypeVar("T")

_FIELDS = tuple(f.name for f in fields(Trace))
_OPTIONS = ("k", "token_budget", "view", "closure", "calibration", "echoes")
_LIMITS = ("sessions", "speakers", "sources", "roles")
_KNOWN = (*_OPTIONS, *_LIMITS, "after", "before", "as_of", "reference_time")
_MOST_ITEMS = 2**31 - 1


def as_zone(zone: str | tzinfo | None) -> tzinfo | None:
    """Return a time zone from its name."""
    if zone is None or isinstance(zone, tzinfo):
        return zone
    try:
        return ZoneInfo(zone)
    except (ValueError, OSError, TypeError, KeyError):
        raise InvalidInputError(
            f"zone must be an IANA name such as 'Europe/Berlin' or 'UTC', got {zone!r}"
        ) from None


def as_moment(value: Any, zone: tzinfo | None, name: str = "time") -> EventTime | None:
    """Return a time, or None for None; an error calls it by its argument's name."""
    if value is None:
        return None
    try:
        return EventTime.parse(value, zone=zone)
    except InvalidInputError as error:
        raise InvalidInputError(f"{name}{str(error).removeprefix('time')}") from None


def as_trace(given: Trace | Mapping[str, Any] | str, place: int, zone: tzinfo | None) -> Trace:
    """Return a trace from what `add_many` takes.

    Raises
    ------
    InvalidInputError
        Naming the trace by its place.
    """
    try:
        match given:
            case str():
                trace = Trace(given)
            case Trace():
                trace = given
            case Mapping():
                unknown = sorted(set(map(str, given)) - set(_FIELDS))
                if unknown:
                    raise InvalidInputError(
                        f"unknown field {unknown[0]!r}; a trace has {', '.join(_FIELDS)} "
                        "(anything else goes into metadata)"
                    )
                trace = Trace(**{"text": "", **given})
            case _:
                raise InvalidInputError(
                    f"must be a Trace, a mapping or a str, got {type(given).__name__}"
                )
        _check_trace(trace)
        return replace(trace, time=as_moment(trace.time, zone), metadata=trace.metadata or {})
    except InvalidInputError as error:
        raise InvalidInputError(f"trace {place}: {error}") from None


def _check_trace(trace: Trace) -> None:
    if not isinstance(trace.text, str):
        raise InvalidInputError(f"text must be a str, got {type(trace.text).__name__}")
    if not trace.text.strip():
        raise InvalidInputError(
            f"text must hold something to remember, got {trace.text[:20]!r}; leave empty turns out"
        )
    if trace.role not in ROLES:
        raise InvalidInputError(f"role must be one of {', '.join(ROLES)}, got {trace.role!r}")
    if not isinstance(trace.metadata, Mapping | None):
        raise InvalidInputError(f"metadata must be a mapping, got {trace.metadata!r}")
    for name in ("id", "speaker", "session", "title", "source"):
        value = getattr(trace, name)
        if value is not None and (not isinstance(value, str) or not value):
            raise InvalidInputError(f"{name} must be a non-empty str or None, got {value!r}")


def check_several(name: str, given: Any, single: str) -> None:
    """Refuse one value where several are meant: a str would be taken letter by letter."""
    if isinstance(given, str | bytes | Trace | Mapping) or not hasattr(given, "__iter__"):
        raise InvalidInputError(
            f"{name} must be several, in a list or another iterable, got {given!r:.80} "
            f"({type(given).__name__}); {single}"
        )


def check_question(question: Any) -> str:
    """Return the question where it is one."""
    if not isinstance(question, str) or not question.strip():
        raise InvalidInputError(f"question must be a non-empty str, got {question!r}")
    return question


def as_options(
    given: Mapping[str, Any], zone: tzinfo | None
) -> tuple[Options, Boundary, EventTime | None]:
    """Return the options, boundary and reference time of one retrieval call."""
    if unknown := sorted(set(given) - set(_KNOWN)):
        raise InvalidInputError(
            f"unknown option {unknown[0]!r}; retrieve takes {', '.join(_KNOWN)}"
        )
    options = Options(**{name: given[name] for name in _OPTIONS if name in given})
    if options.k is not None:
        _check_count("k", options.k)
    if options.token_budget is not None:
        _check_count("token_budget", options.token_budget)
    for name in ("closure", "calibration", "echoes"):
        if not isinstance(getattr(options, name), bool):
            raise InvalidInputError(f"{name} must be True or False, got {given[name]!r}")
    if options.view is not None and options.view not in get_args(View):
        raise InvalidInputError(f"view must be 'graph', 'hierarchy' or None, got {options.view!r}")
    limits = {name: _several(name, given.get(name)) for name in _LIMITS}
    if bad := set(limits["roles"] or ()) - set(ROLES):
        raise InvalidInputError(f"roles must be among {', '.join(ROLES)}, got {sorted(bad)[0]!r}")
    boundary = Boundary(
        **limits,
        after=as_moment(given.get("after"), zone, "after"),
        before=as_moment(given.get("before"), zone, "before"),
        as_of=_as_of(given.get("as_of"), zone),
    )
    return options, boundary, as_moment(given.get("reference_time"), zone, "reference_time")


def _check_count(name: str, value: Any) -> None:
    if isinstance(value, bool) or not hasattr(value, "__index__") or not 1 <= value <= _MOST_ITEMS:
        raise InvalidInputError(f"{name} must be an integer from 1 to {_MOST_ITEMS}, got {value!r}")


def _several(name: str, value: Any) -> Any:
    if value is None:
        return None
    if not isinstance(value, Iterable):
        raise InvalidInputError(f"{name} must be a str or several in a list, got {value!r}")
    values = (value,) if isinstance(value, str) else tuple(value)
    if wrong := [v for v in values if not isinstance(v, str)]:
        raise InvalidInputError(f"{name} must be strings, got {wrong[0]!r}")
    return values


def _as_of(value: Any, zone: tzinfo | None) -> datetime | int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value  # to the microsecond: ingest times are that fine
    # "as of 3 May" includes that day.
    moment = as_moment(value, zone, "as_of")
    return None if moment is None else moment.end - timedelta(microseconds=1)


def chunked(items: Iterable[T], size: int) -> Iterator[tuple[int, list[T]]]:
    """Yield (place of the first, items) in chunks of at most `size`."""
    rest, start = iter(items), 0
    while chunk := list(islice(rest, size)):
        yield start, chunk
        start += len(chunk)
