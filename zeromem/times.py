"""Event time: an instant or a calendar period, zone-aware, with its precision kept."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Literal, get_args
from zoneinfo import ZoneInfo

from zeromem.errors import InvalidInputError

Precision = Literal["year", "month", "day", "minute", "second"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)

# Offsets of old local mean times have seconds: Berlin's was +00:53:28 until 1893.
_OFFSET = r"Z|[+-]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?"
_PARTIAL_DATE = re.compile(rf"(\d{{4}})(?:-(\d{{2}})(?:-(\d{{2}}))?)?({_OFFSET})?", re.ASCII)
_OTHER_DATE = re.compile(rf"(\d{{8}}|\d{{4}}-?W\d{{2}}-?\d)({_OFFSET})?", re.ASCII)
_WEEK = re.compile(r"\d{4}-?W\d{2}", re.ASCII)
_TO_MINUTE = re.compile(
    r"[^T ]+[T ]\d{2}(?::?\d{2})?(?:Z|[+-]\d{2}(?::?\d{2}(?::?\d{2}(?:\.\d+)?)?)?)?"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_STEPS = {"minute": timedelta(minutes=1), "second": timedelta(seconds=1)}


def _offset(text: str) -> tzinfo:
    return datetime.fromisoformat(f"2000-01-01T00:00{text}").tzinfo or UTC


@lru_cache(maxsize=1024)
def named_zone(name: str) -> tzinfo | None:
    """The zone of an IANA name or of an offset ("+02:00"); None where it is neither."""
    if name == "UTC":
        return UTC
    try:
        return _offset(name) if re.fullmatch(_OFFSET, name, re.ASCII) else ZoneInfo(name)
    except (OSError, ValueError, KeyError):
        return None


def in_zone(moment: datetime, zone: tzinfo) -> datetime:
    """The same instant on another zone's clock; as given where that is beyond the calendar."""
    offset = moment.utcoffset()
    for fold in (0, 1):  # needs no way over UTC, which years 1 and 9999 may not have
        there = moment.replace(tzinfo=zone, fold=fold)
        if there.utcoffset() == offset:
            return there
    try:
        return moment.astimezone(zone)
    except OverflowError:
        return moment


def zone_name(moment: datetime) -> str | None:
    """The IANA name by which :func:`in_zone` finds the moment's zone again, if there is one."""
    if not isinstance(moment.tzinfo, ZoneInfo):
        return None
    key: str | None = moment.tzinfo.key
    zone = named_zone(key) if key else None
    fixed = moment.replace(tzinfo=timezone(moment.utcoffset() or timedelta()))
    found = zone is not None and in_zone(fixed, zone).isoformat() == moment.isoformat()
    return key if found else None


@dataclass(frozen=True, slots=True, order=True)
class EventTime:
    """When something happened, as a half-open period ``[start, end)``.

    A bare year stays a year: it never becomes 1 January. Calendar dates ("2026", "2026-05",
    "2026-05-03") carry no clock and so need no zone; they are read in the memory's zone, or in
    UTC where none is set. A clock time needs a zone.

    Attributes
    ----------
    start : datetime
        Zone-aware beginning. What is finer than the precision is cut off: 10:24 on a day with
        precision "day" becomes the midnight that the day begins with.
    precision : {"year", "month", "day", "minute", "second"}

    Raises
    ------
    InvalidInputError
        ``start`` is no datetime with a zone, or the precision is unknown.
    """

    start: datetime
    precision: Precision = "second"

    def __post_init__(self) -> None:
        start = self.start
        if not isinstance(start, datetime) or start.utcoffset() is None:
            raise InvalidInputError(
                f"start must be a datetime with a zone, got {start!r:.80} "
                f"({type(start).__name__}); give it tzinfo, or use EventTime.parse"
            )
        match self.precision:
            case "year":
                start = start.replace(month=1, day=1, hour=0, minute=0, second=0, fold=0)
            case "month":
                start = start.replace(day=1, hour=0, minute=0, second=0, fold=0)
            case "day":
                start = start.replace(hour=0, minute=0, second=0, fold=0)
            case "minute":
                start = start.replace(second=0)
            case "second":
                pass
            case _:
                raise InvalidInputError(
                    f"precision must be one of {', '.join(PRECISIONS)}, got {self.precision!r}"
                )
        object.__setattr__(self, "start", start.replace(microsecond=0))

    @property
    def end(self) -> datetime:
        """First instant after the period; the calendar's last where it ends with the year 9999."""
        s = self.start
        try:
            match self.precision:
                case "year":
                    return s.replace(year=s.year + 1)
                case "month":
                    return s.replace(year=s.year + s.month // 12, month=s.month % 12 + 1)
                case "day":
                    return s + timedelta(days=1)
                case "minute" | "second":
                    return _later(s, _STEPS[self.precision])
        except (ValueError, OverflowError):
            return datetime.max.replace(tzinfo=s.tzinfo)

    @classmethod
    def parse(
        cls, value: str | datetime | date | EventTime, *, zone: tzinfo | None = None
    ) -> EventTime:
        """Read an ISO 8601 string, a datetime or a date.

        Dates may be basic ("20260503"), name a weekday of a week ("2026-W18-7"), or carry an
        offset ("2026-05-03+02:00").

        Parameters
        ----------
        value : str, datetime, date or EventTime
        zone : tzinfo, optional
            Zone of values that carry none.

        Raises
        ------
        InvalidInputError
            For a clock time without a zone where ``zone`` is not given, and for what is no time.
        """
        match value:
            case EventTime():
                return value
            case datetime():
                return cls._from_datetime(value, "second", zone, value)
            case date():
                return cls(datetime(value.year, value.month, value.day, tzinfo=zone or UTC), "day")
            case str():
                return cls._from_text(value.strip(), zone)
        raise InvalidInputError(
            f"time must be an ISO 8601 string, datetime or date, got {value!r} "
            f"({type(value).__name__})"
        )

    @classmethod
    def _from_text(cls, text: str, zone: tzinfo | None) -> EventTime:
        try:
            if m := _PARTIAL_DATE.fullmatch(text):
                year, month, day = (int(g) if g else 0 for g in m.groups()[:3])
                precision: Precision = "day" if day else "month" if month else "year"
                if (m[2] and not month) or (m[3] and not day):
                    raise ValueError
                there = _offset(m[4]) if m[4] else zone or UTC
                return cls(datetime(year, month or 1, day or 1, tzinfo=there), precision)
            if m := _OTHER_DATE.fullmatch(text):
                there = _offset(m[2]) if m[2] else zone or UTC
                return cls(datetime.fromisoformat(m[1]).replace(tzinfo=there), "day")
            if _WEEK.fullmatch(text):  # no precision of ours
                raise ValueError
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise InvalidInputError(
                f"time must be ISO 8601 such as '2026-05-03T10:00+02:00' or '2026-05', got {text!r}"
            ) from None
        return cls._from_datetime(
            moment, "minute" if _TO_MINUTE.fullmatch(text) else "second", zone, text
        )

    @classmethod
    def _from_datetime(
        cls, moment: datetime, precision: Precision, zone: tzinfo | None, shown: object
    ) -> EventTime:
        if moment.tzinfo is None:
            if zone is None:
                raise InvalidInputError(
                    f"time {str(shown)!r} has no zone; write an offset ('…T10:00+02:00'), or "
                    "give the memory a zone: --zone on the command line, zone='Europe/Berlin' in "
                    "Python, where an aware datetime will do as well"
                )
            moment = moment.replace(tzinfo=zone)
        return cls(moment, precision)

    def isoformat(self) -> str:
        """The shortest ISO 8601 text that keeps the precision.

        :meth:`parse` reads it back; years, months and days are written without their zone and
        need it given.
        """
        match self.precision:
            case "year":
                return f"{self.start:%Y}".zfill(4)
            case "month":
                return f"{self.start.year:04d}-{self.start:%m}"
            case "day":
                return self.start.date().isoformat()
            case "minute":
                return self.start.isoformat(timespec="minutes")
            case "second":
                return self.start.isoformat(timespec="seconds")

    def __str__(self) -> str:
        return self.isoformat()


def _later(moment: datetime, step: timedelta) -> datetime:
    """A step of real time later, though the zone's clock may jump in between."""
    later = (moment + step).replace(fold=moment.fold)
    offset = moment.utcoffset()
    if offset is None or later.utcoffset() == offset:
        return later
    return moment.replace(tzinfo=timezone(offset)) + step


def to_micros(moment: datetime) -> int:
    """Microseconds since 1970 UTC of an aware datetime; exact, unlike ``timestamp()``."""
    # Not by way of UTC, where it might lie beyond the calendar.
    return (moment - _EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    """Inverse of :func:`to_micros`, in UTC."""
    return _EPOCH + timedelta(microseconds=micros)
