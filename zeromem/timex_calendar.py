"""Calendar arithmetic behind :mod:`zeromem.timex`: half-open periods and how to name them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Literal

from zeromem.times import EventTime

PeriodPrecision = Literal[
    "decade", "year", "season", "month", "week", "weekend", "day", "minute", "second"
]

MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
# Meteorological seasons of the northern hemisphere, by their first month.
SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}

_COARSENESS: dict[str, int] = {
    "second": 0, "minute": 0, "day": 1, "weekend": 2, "week": 2,
    "month": 3, "season": 4, "year": 5, "decade": 6,
}  # fmt: skip


def coarser(a: str, b: str) -> bool:
    """Whether precision ``a`` is coarser than ``b`` ("month" is coarser than "day")."""
    return _COARSENESS[a] > _COARSENESS[b]


@dataclass(frozen=True, slots=True)
class Period:
    """A stretch of time, half-open ``[start, end)``, that an expression stands for.

    Attributes
    ----------
    start, end : datetime
        Zone-aware, ``start < end``.
    precision : str
        The granularity that the expression speaks in ("week" for "last week").
    exact : bool
        False where the words do not fix one calendar unit ("a few years ago", "around May").
    phrase : str
        The period in words that need no anchor: "7 May 2023", "the week before 9 June 2023".
    """

    start: datetime
    end: datetime
    precision: PeriodPrecision
    exact: bool = True
    phrase: str = ""

    def __str__(self) -> str:
        return self.phrase


def floor_day(moment: datetime) -> datetime:
    """Midnight that begins the day of ``moment``, in its own zone."""
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)


def add_months(moment: datetime, n: int) -> datetime:
    """The first of the month ``n`` months away from that of ``moment``, at midnight."""
    months = moment.year * 12 + moment.month - 1 + n
    year = min(max(months // 12, 1), 9999)
    return floor_day(moment).replace(year=year, month=months % 12 + 1, day=1)


def _until(start: datetime, days: int) -> datetime:
    try:
        return start + timedelta(days=days)
    except OverflowError:  # 31 December 9999: no later instant can be written
        return start.replace(hour=23, minute=59, second=59)


def day_name(moment: datetime) -> str:
    """``7 May 2023``."""
    return f"{moment.day} {MONTHS[moment.month - 1]} {moment.year}"


def day(moment: datetime, *, exact: bool = True, weekday: bool = False) -> Period:
    """The calendar day of ``moment``."""
    start = floor_day(moment)
    name = day_name(start)
    phrase = f"{WEEKDAYS[start.weekday()]} {name}" if weekday else name
    return Period(start, _until(start, 1), "day", exact, phrase)


def month(moment: datetime, *, exact: bool = True) -> Period:
    """The calendar month of ``moment``."""
    start = add_months(moment, 0)
    return Period(
        start, add_months(start, 1), "month", exact, f"{MONTHS[start.month - 1]} {start.year}"
    )


def year(number: int, zone: tzinfo | None, *, exact: bool = True) -> Period:
    """The calendar year ``number`` (1 to 9998)."""
    number = min(max(number, 1), 9998)
    start = datetime(number, 1, 1, tzinfo=zone or UTC)
    return Period(start, start.replace(year=number + 1), "year", exact, str(number))


def season(name: str, of_year: int, zone: tzinfo | None) -> Period:
    """A season; winter of year Y begins in December of Y - 1, as "winter 2023" is mostly 2023."""
    first = SEASONS[name]
    start = datetime(of_year - (first == 12), first, 1, tzinfo=zone or UTC)
    return Period(start, add_months(start, 3), "season", True, f"{name} {of_year}")


def week(moment: datetime, phrase: str, *, shift: int = 0, exact: bool = True) -> Period:
    """The Monday-to-Sunday week of ``moment``, ``shift`` weeks away."""
    monday = floor_day(moment) + timedelta(days=7 * shift - moment.weekday())
    return Period(monday, _until(monday, 7), "week", exact, phrase)


def weekend(moment: datetime, phrase: str, *, shift: int = 0, exact: bool = True) -> Period:
    """Saturday and Sunday: the ``shift``-th weekend before (< 0) or after (> 0) the day.

    ``shift=0`` is the weekend of the day's own Monday-to-Sunday week. A Saturday or Sunday is
    inside its own weekend, so "last weekend" said then is the one a week earlier; said on any
    other day "next weekend" is the first to come.
    """
    saturday = floor_day(moment) + timedelta(days=5 - moment.weekday())
    weeks = shift
    if shift > 0 and moment.weekday() < 5:
        weeks -= 1
    start = saturday + timedelta(days=7 * weeks)
    return Period(start, _until(start, 2), "weekend", exact, phrase)


def nth_weekday(moment: datetime, weekday: int, shift: int) -> datetime:
    """The ``shift``-th such weekday strictly before (< 0) or after (> 0) the day of ``moment``.

    ``shift=0`` is the first on or after that day.
    """
    today = floor_day(moment)
    if shift < 0:
        back = (today.weekday() - weekday - 1) % 7 + 1
        return today - timedelta(days=back + 7 * (-shift - 1))
    ahead = (weekday - today.weekday()) % 7
    if shift > 0 and ahead == 0:
        ahead = 7
    return today + timedelta(days=ahead + 7 * max(shift - 1, 0))


def of_event(time: EventTime) -> Period:
    """An event time as a period, named to the day."""
    start = time.start
    match time.precision:
        case "year":
            return year(start.year, start.tzinfo)
        case "month":
            return month(start)
        case _:
            return day(start)
