"""Event time: an instant or a calendar period, zone-aware, with its precision kept."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Literal

from zeromem.errors import InvalidInputError

Precision = Literal["year", "month", "day", "minute", "second"]

_PARTIAL_DATE = re.compile(r"(\d{4})(?:-(\d{2})(?:-(\d{2}))?)?")
_TO_MINUTE = re.compile(r"[^T ]+[T ]\d{2}:?\d{2}(?:Z|[+-]\d{2}:?\d{2})?")


@dataclass(frozen=True, slots=True, order=True)
class EventTime:
    """When something happened, as a half-open period ``[start, end)``.

    A bare year stays a year: it never becomes 1 January. Calendar dates ("2026", "2026-05",
    "2026-05-03") carry no clock and so need no zone; they are read in the memory's zone, or in
    UTC where none is set. A clock time needs a zone.

    Attributes
    ----------
    start : datetime
        Zone-aware beginning, truncated to the precision.
    precision : {"year", "month", "day", "minute", "second"}
    """

    start: datetime
    precision: Precision = "second"

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
                case "minute":
                    return s + timedelta(minutes=1)
                case "second":
                    return s + timedelta(seconds=1)
        except (ValueError, OverflowError):
            return datetime.max.replace(tzinfo=s.tzinfo)

    @classmethod
    def parse(
        cls, value: str | datetime | date | EventTime, *, zone: tzinfo | None = None
    ) -> EventTime:
        """Read an ISO 8601 string, a datetime or a date.

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
                year, month, day = (int(g) if g else 0 for g in m.groups())
                precision: Precision = "day" if day else "month" if month else "year"
                return cls(datetime(year, month or 1, day or 1, tzinfo=zone or UTC), precision)
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
                    f"time {str(shown)!r} has no zone; write an offset ('…T10:00+02:00'), pass an "
                    "aware datetime, or open the memory with zone='Europe/Berlin' or the like"
                )
            moment = moment.replace(tzinfo=zone)
        moment = moment.replace(microsecond=0, second=0 if precision == "minute" else moment.second)
        return cls(moment, precision)

    def isoformat(self) -> str:
        """The shortest ISO 8601 text that keeps the precision; inverse of :meth:`parse`."""
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
