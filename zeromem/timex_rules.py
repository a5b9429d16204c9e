"""The patterns of :mod:`zeromem.timex`, one rule per kind of expression, and their meaning."""

# ruff: noqa: E501 - a rule is a line, however long its pattern

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Literal

from zeromem import timex_calendar as cal
from zeromem.times import EventTime
from zeromem.timex_calendar import MONTHS, WEEKDAYS, Period

Kind = Literal["date", "relative", "clock", "duration", "set"]

CARDINALS = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
    "twenty",
]
_AMOUNTS: dict[str, tuple[float, float]] = {w: (n, n) for n, w in enumerate(CARDINALS)}
_AMOUNTS |= {w: (n, n) for w, n in zip(["thirty", "forty", "fifty", "sixty"], (30, 40, 50, 60))}  # noqa: B905
_AMOUNTS |= {"a": (1, 1), "an": (1, 1), "half a": (0.5, 0.5), "half an": (0.5, 0.5)}
# Vague amounts, as the range that speakers mean.
_AMOUNTS |= {
    "a couple of": (2, 2), "a couple": (2, 2), "couple of": (2, 2), "couple": (2, 2),
    "a few": (2, 5), "few": (2, 5), "several": (3, 9), "some": (2, 9), "many": (5, 20),
    "a number of": (3, 9), "a dozen": (12, 12),
}  # fmt: skip

_MONTH_OF = {m.lower(): i + 1 for i, m in enumerate(MONTHS)}
_MONTH_OF |= {m[:3].lower(): i + 1 for i, m in enumerate(MONTHS)} | {"sept": 9}
_DAY_OF = {d.lower(): i for i, d in enumerate(WEEKDAYS)} | {
    d[:3].lower(): i for i, d in enumerate(WEEKDAYS)
}
_DAY_OF |= {"tues": 1, "wednes": 2, "thur": 3, "thurs": 3}

_MON = r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
_WD = r"(?:(?:mon|tues|wednes|thurs|fri|satur|sun)days?|(?:mon|tues?|wed|thurs?|thu|fri|sat|sun)\b\.?)"
_SEASON = r"(?:spring|summer|autumn|fall|winter)"
_UNIT = r"(?:second|minute|hour|day|night|weekend|week|fortnight|month|year|decade)s?"
_NUM = (
    r"(?:\d+(?:\.\d+)?|" + "|".join(sorted(map(re.escape, _AMOUNTS), key=len, reverse=True)) + ")"
)
_D = r"(?P<d>\d{1,2})(?:st|nd|rd|th)?"
_Y = r"(?P<y>(?:1[5-9]|20|21)\d\d)"
_CLOCK = r"(?:\d{1,2}:\d{2}(?:\s*[ap]\.?m\b\.?)?|\d{1,2}\s*[ap]\.?m\b\.?|noon|midnight)"
_HOLIDAYS = {
    "christmas eve": (12, 24), "christmas day": (12, 25), "christmas": (12, 25),
    "new year's eve": (12, 31), "new year's day": (1, 1), "new year's": (1, 1),
    "halloween": (10, 31), "valentine's day": (2, 14),
}  # fmt: skip
_HOLIDAY = "|".join(_HOLIDAYS)
_WHICH = r"(?P<w>last|past|previous|this past|this last|this|this coming|coming|next|following)"


def amount(text: str) -> tuple[float, float]:
    """Read a number word or figure, as the range that speakers mean by it."""
    key = " ".join(text.lower().split())
    return _AMOUNTS[key] if key in _AMOUNTS else (float(key), float(key))


def unit_of(text: str) -> str:
    """Return the unit in the singular."""
    return text.lower().removesuffix("s")


@dataclass(frozen=True, slots=True)
class Now:
    """What a rule may look at: the anchor (None without one) and the sentence's tense."""

    anchor: EventTime | None
    future: bool
    read: Callable[[str], Period | None]

    @property
    def zone(self) -> tzinfo:
        return (self.anchor.start.tzinfo if self.anchor else None) or UTC

    @property
    def at(self) -> datetime | None:
        return self.anchor.start if self.anchor else None


Resolver = Callable[[dict[str, str], Now], "Period | None"]


def _iso(g: dict[str, str], now: Now) -> Period | None:
    try:
        when = datetime(int(g["y"]), int(g["m"]), int(g.get("d") or 1), tzinfo=now.zone)
    except ValueError:
        return None
    return cal.day(when) if g.get("d") else cal.month(when)


def _closest_year(month: int, day: int, now: Now) -> int | None:
    """The year of a date without one: by tense where it tells, else the closest to the anchor."""
    if now.at is None:
        return None
    today = cal.floor_day(now.at)
    options = []
    for y in (today.year - 1, today.year, today.year + 1):
        try:
            options.append((y, (datetime(y, month, day, tzinfo=now.zone) - today).days))
        except ValueError:
            continue
    if now.future:
        options = [o for o in options if o[1] >= 0] or options
    return min(options, key=lambda o: abs(o[1]))[0] if options else None


def _calendar_date(g: dict[str, str], now: Now) -> Period | None:
    month, day = _MONTH_OF[g["m"].lower().rstrip(".")], int(g["d"])
    y = int(g["y"]) if g.get("y") else _closest_year(month, day, now)
    try:
        return cal.day(datetime(y, month, day, tzinfo=now.zone)) if y else None
    except ValueError:
        return None


def _numeric_date(g: dict[str, str], now: Now) -> Period | None:
    a, b, y = int(g["a"]), int(g["b"]), int(g["y"])
    y += 2000 if y < 100 else 0
    month, day = (b, a) if a > 12 or g["sep"] == "." else (a, b)  # 5.3.2023 is 5 March
    try:
        certain = g["sep"] == "." or a > 12 or b > 12 or a == b
        return cal.day(datetime(y, month, day, tzinfo=now.zone), exact=certain)
    except ValueError:
        return None


def _month(g: dict[str, str], now: Now) -> Period | None:
    number = _MONTH_OF[g["m"].lower().rstrip(".")]
    part = not g.get("part")
    if g.get("y"):
        return cal.month(datetime(int(g["y"]), number, 1, tzinfo=now.zone), exact=part)
    if now.at is None:
        return None
    which, here = _direction(g.get("w")), now.at.month
    y = now.at.year
    if which < 0 and number >= here:
        y -= 1
    elif which > 0 and number <= here:
        y += 1
    elif not g.get("w"):
        y += (number < here) if now.future else -(number > here)
    return cal.month(datetime(y, number, 1, tzinfo=now.zone), exact=part)


def _direction(which: str | None) -> int:
    words = (which or "").lower()
    if words.endswith(("last", "past", "previous")):
        return -1
    return 1 if words.endswith(("next", "coming", "following")) else 0


def _year(g: dict[str, str], now: Now) -> Period | None:
    return cal.year(int(g["y"]), now.zone, exact=not g.get("part"))


def _decade(g: dict[str, str], now: Now) -> Period | None:
    first = int(g["dec"]) if len(g["dec"]) == 4 else 1900 + int(g["dec"])
    if len(g["dec"]) == 2 and first < 1930:
        first += 100
    a, b = cal.year(first, now.zone), cal.year(first + 9, now.zone)
    return Period(a.start, b.end, "decade", True, f"the {first}s")


def _season(g: dict[str, str], now: Now) -> Period | None:
    name = g["s"].lower()
    if g.get("y"):
        return cal.season(name, int(g["y"]), now.zone)
    if now.at is None:
        return None
    own = cal.season(name, now.at.year, now.zone)
    which = _direction(g.get("w"))
    if which < 0:
        return own if own.end <= now.at else cal.season(name, now.at.year - 1, now.zone)
    if which > 0 or now.future:
        over = own.start <= now.at if which > 0 else own.end <= now.at
        return cal.season(name, now.at.year + 1, now.zone) if over else own
    if own.start > now.at and not g.get("w"):
        return cal.season(name, now.at.year - 1, now.zone)
    return own


def _holiday(g: dict[str, str], now: Now) -> Period | None:
    m, d = _HOLIDAYS[g["h"].lower().replace("’", "'")]
    y = int(g["y"]) if g.get("y") else None
    if y is None and now.at is not None:
        today = (now.at.month, now.at.day)
        ahead = _direction(g.get("w")) or (1 if now.future else -1)
        y = now.at.year
        y += ((m, d) < today) if ahead > 0 else -((m, d) > today)
    return cal.day(datetime(y, m, d, tzinfo=now.zone)) if y else None


_DAY_WORDS = {
    "yesterday": -1, "last night": -1, "the day before yesterday": -2, "the other day": -3,
    "tomorrow": 1, "the day after tomorrow": 2, "day after tomorrow": 2,
    "day before yesterday": -2,
}  # fmt: skip


def _day_word(g: dict[str, str], now: Now) -> Period | None:
    if now.at is None:
        return None
    words = " ".join(g["w"].lower().split())
    for part in (" morning", " afternoon", " evening", " night"):
        if words not in _DAY_WORDS:
            words = words.removesuffix(part)
    if words == "the other day":
        start = cal.floor_day(now.at) - timedelta(days=6)
        phrase = f"a few days before {cal.day_name(now.at)}"
        return Period(start, cal.floor_day(now.at), "day", False, phrase)
    return cal.day(now.at + timedelta(days=_DAY_WORDS.get(words, 0)))


def _weekday(g: dict[str, str], now: Now) -> Period | None:
    if now.at is None:
        return None
    number = _day_number(g["wd"])
    shift = _direction(g.get("w"))
    if not g.get("w") and not now.future:
        # Said on a Friday, "on Friday" without more is hardly today.
        shift = -1
    return cal.day(cal.nth_weekday(now.at, number, shift), weekday=True)


def _day_number(text: str) -> int:
    key = text.lower().rstrip(".")
    return _DAY_OF.get(key, _DAY_OF.get(key.removesuffix("s"), 0))


def _unit_which(g: dict[str, str], now: Now) -> Period | None:
    """Last / this / next week, weekend, month, year."""
    if now.at is None:
        return None
    return _shifted(now.at, unit_of(g["u"]), _direction(g["w"]), now)


def _shifted(at: datetime, unit: str, shift: int, now: Now, *, exact: bool = True) -> Period | None:
    """The calendar unit ``shift`` units away from the one that holds ``at``."""
    side = "of" if shift == 0 else "before" if shift < 0 else "after"
    many = abs(shift)
    lead = f"the {unit}" if many <= 1 else f"{_spell(many)} {unit}s"
    phrase = f"{lead} {side} {cal.day_name(at)}"
    try:
        match unit:
            case "second" | "minute" | "hour":
                return cal.day(at, exact=exact)
            case "day" | "night":
                return cal.day(at + timedelta(days=shift), exact=exact)
            case "weekend":
                return cal.weekend(at, phrase, shift=shift, exact=exact)
            case "week":
                return cal.week(at, phrase, shift=shift, exact=exact)
            case "fortnight":
                return _shifted(at, "week", 2 * shift, now, exact=exact)
            case "month":
                return cal.month(cal.add_months(at, shift), exact=exact)
            case "year":
                return cal.year(at.year + shift, now.zone, exact=exact)
            case "decade":
                return cal.year(at.year + 10 * shift, now.zone, exact=False)
    except OverflowError:
        return None
    return None


def _spell(n: float) -> str:
    return CARDINALS[int(n)] if n == int(n) and 0 <= n < len(CARDINALS) else f"{n:g}"


def _ago(g: dict[str, str], now: Now) -> Period | None:
    return _distance(g, now, -1)


def _ahead(g: dict[str, str], now: Now) -> Period | None:
    return _distance(g, now, 1)


def _distance(g: dict[str, str], now: Now, sign: int) -> Period | None:
    """N units before or after the anchor; a range where N is vague."""
    if now.at is None:
        return None
    unit = unit_of(g["u"])
    low, high = amount(g["n"])
    low, high = low + (g.get("half") is not None) / 2, high + (g.get("half") is not None) / 2
    if low != int(low):  # half a year ago: the month, half a week ago: the day
        per = {"year": ("month", 12), "month": ("week", 4), "week": ("day", 7)}.get(unit)
        unit, low, high = (
            (per[0], round(low * per[1]), round(high * per[1])) if per else ("day", 0, 0)
        )
    exact = low == high and not g.get("about")
    near = _shifted(now.at, unit, sign * int(low), now, exact=exact)
    if low == high or near is None:
        return near
    far = _shifted(now.at, unit, sign * int(high), now)
    if far is None:
        return None
    side = "before" if sign < 0 else "after"
    anchor = str(now.at.year) if unit == "year" else cal.day_name(now.at)
    words = " ".join(g["n"].lower().split())
    phrase = f"{words} {unit}s {side} {anchor}"
    return Period(min(near.start, far.start), max(near.end, far.end), near.precision, False, phrase)


def _weekdays_ago(g: dict[str, str], now: Now) -> Period | None:
    if now.at is None:
        return None
    low, high = amount(g["n"])
    when = cal.nth_weekday(now.at, _day_number(g["wd"]), -max(int(low), 1))
    return cal.day(when, exact=low == high, weekday=True)


def _range_which(g: dict[str, str], now: Now) -> Period | None:
    """A stretch that touches the anchor's day: "the last two weeks", "the next few days"."""
    if now.at is None:
        return None
    _, high = amount(g.get("n") or "a")
    sign = _direction(g["w"]) or 1
    far = _shifted(now.at, unit_of(g["u"]), sign * int(high), now)
    if far is None:
        return None
    today = cal.day(now.at)
    side = "before" if sign < 0 else "after"
    n = " ".join((g.get("n") or "").lower().split())
    phrase = f"the {n} {unit_of(g['u'])}s {side} {cal.day_name(now.at)}".replace("  ", " ")
    start, end = (far.start, today.end) if sign < 0 else (today.start, far.end)
    return Period(start, end, far.precision, False, phrase)


def _before_date(g: dict[str, str], now: Now) -> Period | None:
    """A unit counted from a date: "the week before 9 June 2023", "two days after 3 May"."""
    inner = now.read(g["date"])
    if inner is None:
        return None
    n = int(amount(g["n"])[0]) if g.get("n") else 1
    sign = {"before": -1, "preceding": -1, "prior to": -1, "of": 0}.get(g["side"].lower(), 1)
    base = inner.start if sign <= 0 or inner.precision == "day" else inner.end - timedelta(days=1)
    if g.get("wd"):
        when = cal.nth_weekday(base, _day_number(g["wd"]), sign * n)
        return cal.day(when, weekday=True)
    return _shifted(base, unit_of(g["u"]), sign * n, now)


def _week_before_last(g: dict[str, str], now: Now) -> Period | None:
    if now.at is None:
        return None
    return _shifted(now.at, unit_of(g["u"]), -2 if g["side"].lower() == "before last" else 2, now)


def _clock(g: dict[str, str], now: Now) -> Period | None:
    if now.at is None:
        return None
    text = g["t"].lower().replace(".", "").replace(" ", "")
    hour, minute = {"noon": (12, 0), "midnight": (0, 0)}.get(text, (-1, 0))
    if hour < 0:
        digits = text.rstrip("apm").split(":")
        hour, minute = int(digits[0]), int(digits[1]) if len(digits) > 1 else 0
        if text.endswith("m"):
            hour = hour % 12 + (12 if "p" in text else 0)
    if hour > 23 or minute > 59:
        return None
    start = cal.floor_day(now.at).replace(hour=hour, minute=minute)
    phrase = f"{hour:02d}:{minute:02d} on {cal.day_name(start)}"
    return Period(start, start + timedelta(minutes=1), "minute", True, phrase)


def _nowhere(g: dict[str, str], now: Now) -> Period | None:
    return None


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of expression: its pattern, the unit it speaks in, and what it resolves to."""

    name: str
    kind: Kind
    unit: str
    pattern: re.Pattern[str]
    resolver: Resolver


def _rule(name: str, kind: Kind, unit: str, pattern: str, resolver: Resolver) -> Rule:
    return Rule(name, kind, unit, re.compile(rf"(?<![\w$€£])(?:{pattern})(?!\w)", re.I), resolver)


_OPT_WD = rf"(?:(?:{_WD}),?\s+(?:the\s+)?)?"
_PART = r"(?:(?P<part>early|mid|late|the (?:start|beginning|middle|end) of|around|about)[\s-]+(?:in\s+)?)?"
_FULL = (
    rf"{_OPT_WD}\d{{1,2}}(?:st|nd|rd|th)?\s*(?:of\s+)?{_MON},?\s*(?:(?:1[5-9]|20|21)\d\d)?"
    rf"|{_OPT_WD}{_MON}\s+\d{{1,2}}(?:st|nd|rd|th)?(?!\d)(?:,?\s+(?:(?:1[5-9]|20|21)\d\d))?"
    rf"|\d{{4}}-\d{{2}}-\d{{2}}|{_MON},?\s+(?:(?:1[5-9]|20|21)\d\d)"
)

RULES = (
    _rule("before_date", "date", "day",
          rf"(?:(?:the|a|(?P<n>{_NUM}))\s+)?(?:(?P<u>{_UNIT})|(?P<wd>{_WD}))\s+"
          rf"(?P<side>before|after|of|following|preceding|prior to)\s+(?P<date>{_FULL})",
          _before_date),
    _rule("iso", "date", "day", r"(?P<y>\d{4})-(?P<m>\d{2})(?:-(?P<d>\d{2}))?"
          r"(?:[T ]\d{2}:\d{2}(?::\d{2})?(?:Z|[+-]\d{2}:?\d{2})?)?", _iso),
    _rule("dmy", "date", "day", rf"{_OPT_WD}{_D}\s*(?:of\s+)?(?P<m>{_MON})(?:,?\s*{_Y})?", _calendar_date),
    _rule("mdy", "date", "day", rf"{_OPT_WD}(?P<m>{_MON})\s+(?:the\s+)?{_D}(?!\d)(?:,?\s+{_Y})?",
          _calendar_date),
    _rule("numeric", "date", "day", r"(?P<a>\d{1,2})(?P<sep>[/.])(?P<b>\d{1,2})(?P=sep)(?P<y>\d{4}|\d{2})",
          _numeric_date),
    _rule("month_year", "date", "month", rf"{_PART}(?P<m>{_MON})(?:,?\s+|\s+of\s+){_Y}", _month),
    _rule("month_which", "relative", "month", rf"{_WHICH}\s+(?P<m>{_MON})", _month),
    _rule("month_in", "relative", "month",
          rf"(?<=\bin )(?P<m>{_MON})|(?<=\b(?:by|of) )(?P<m2>{_MON})"
          rf"|(?<=\b(?:since|until|early) )(?P<m3>{_MON})"
          r"|(?-i:(?P<m4>January|February|April|June|July|August|September|October|November|December))",
          _month),
    _rule("season_year", "date", "season", rf"(?:the\s+)?(?P<s>{_SEASON})(?:,?\s+|\s+of\s+){_Y}", _season),
    _rule("season_which", "relative", "season", rf"{_WHICH}\s+(?P<s>{_SEASON})", _season),
    _rule("season_in", "relative", "season", rf"(?<=\bin )(?:the\s+)?(?P<s>{_SEASON})", _season),
    _rule("holiday", "relative", "day",
          rf"(?:{_WHICH}\s+)?(?P<h>{_HOLIDAY.replace(chr(39), '[’' + chr(39) + ']')})(?:,?\s+{_Y})?",
          _holiday),
    _rule("decade", "date", "decade", r"the\s+(?P<dec>(?:1[5-9]|20)\d0|\d0)s|(?P<dec2>(?:1[5-9]|20)\d0)s", _decade),
    _rule("year", "date", "year", rf"{_PART}{_Y}(?!\s*(?:%|km|kg|dollars|euros|people|steps|words))", _year),
    _rule("day_word", "relative", "day",
          r"(?P<w>the day before yesterday|the day after tomorrow|the other day|last night|"
          r"(?:yesterday|tomorrow|this|earlier)(?:\s+(?:morning|afternoon|evening))|"
          r"(?:yesterday|tomorrow)(?:\s+night)?|today|tonight|day after tomorrow|"
          r"day before yesterday|just now|right now)", _day_word),
    _rule("ago", "relative", "unit",
          rf"(?:(?P<about>about|around|almost|nearly|over|roughly|more than|like|maybe)\s+)?"
          rf"(?P<n>{_NUM})(?P<half2>\s+and\s+a\s+half)?\s+(?P<u>{_UNIT})(?P<half>\s+and\s+a\s+half)?"
          r"\s+(?:ago|back|earlier)", _ago),
    _rule("weekdays_ago", "relative", "day", rf"(?P<n>{_NUM})\s+(?P<wd>{_WD})\s+ago", _weekdays_ago),
    _rule("ahead", "relative", "unit",
          rf"(?P<n>{_NUM})\s+(?P<u>{_UNIT})(?P<half>\s+and\s+a\s+half)?\s+(?:from\s+(?:now|today)|later|away)"
          rf"|in\s+(?P<n2>{_NUM})\s+(?P<u2>{_UNIT})(?:['’]s?\s+time)?(?!\s+(?:of|ago))", _ahead),
    _rule("week_before_last", "relative", "unit",
          r"the\s+(?P<u>week|weekend|month|year|night)\s+(?P<side>before last|after next)",
          _week_before_last),
    _rule("range", "relative", "day",
          rf"(?:(?:over|in|for|during)\s+)?(?:the\s+)?(?P<w>last|past|next|coming)\s+(?P<n>{_NUM})\s+(?P<u>{_UNIT})",
          _range_which),
    _rule("unit_which", "relative", "unit",
          rf"(?:earlier\s+|later\s+)?(?:the\s+)?{_WHICH}\s+(?P<u>week|weekend|month|year)", _unit_which),
    _rule("weekday_which", "relative", "day",
          rf"(?:{_WHICH}|on|since|by|until)?\s*(?P<wd>{_WD})(?:\s+(?:morning|afternoon|evening|night))?",
          _weekday),
    _rule("clock", "clock", "day", rf"(?:at\s+)?(?P<t>{_CLOCK})", _clock),
    _rule("set", "set", "day",
          rf"(?:every|each)\s+(?:other\s+|single\s+)?(?:{_UNIT}|{_WD}|morning|evening)"
          rf"|(?:once|twice|{_NUM}\s+times)\s+(?:a|an|per|every|each)\s+{_UNIT}"
          r"|daily|weekly|monthly|yearly|annually", _nowhere),
    _rule("duration", "duration", "unit",
          rf"(?:(?:for\s+)?(?P<about>about|around|almost|nearly|over|roughly|more than|less than|at least)\s+)?"
          rf"(?P<n>{_NUM})(?P<half2>\s+and\s+a\s+half)?(?:\s+|-)(?P<u>{_UNIT})(?P<half>\s+and\s+a\s+half)?", _nowhere),
)  # fmt: skip
# Each rule needs a digit or one of these: a text without any is not searched rule by rule.
ANY = re.compile(
    rf"\d|{_MON}|{_WD}|{_SEASON}|{_UNIT}|{_HOLIDAY.replace(chr(39), '[’' + chr(39) + ']')}"
    r"|noon|midnight|morning|evening|yesterday|tomorrow|today|tonight"
    r"|(?:yesterday|tomorrow|this|earlier)\s+afternoon|now|daily|weekly|monthly|yearly|annually",
    re.IGNORECASE,
)
BY_NAME = {r.name: r for r in RULES}
