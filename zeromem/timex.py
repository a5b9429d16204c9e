"""Temporal expressions in free English text, and what they mean said at a given time.

The rules, so that nobody has to guess:

* "last Friday" is the latest Friday strictly before the anchor's day, "next Friday" the first
  strictly after it, "this Friday" the first on or after it; "on Friday" looks back unless its
  sentence speaks of the future.
* Weeks run from Monday to Sunday, a weekend is Saturday and Sunday. "Last week" is the calendar
  week before the anchor's; "the week before 9 June 2023" names the same period in full.
* "Last month" and "last year" are calendar units; "last May" is the latest May that is over,
  "in May" the latest May not later than the anchor, or the next one in a sentence about the future.
* Units below the anchor's own precision cannot be resolved: "yesterday" said in "2023" is some day
  of 2023, so the anchor's period is returned, not exact.
* Vague amounts ("a few years ago") give a period that is wide enough, not exact.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass, field

from zeromem import timex_calendar as cal
from zeromem.times import EventTime
from zeromem.timex_calendar import Period, coarser
from zeromem.timex_rules import ANY, BY_NAME, RULES, Kind, Now, Rule, amount, unit_of

__all__ = ["Duration", "Period", "TimeMention", "duration", "find_times", "resolve"]

_CLAUSE = 200  # characters
# No expression goes across so much white space, and rules would take the cube of its length.
_GAP = re.compile(r"\s{20,}")
_FUTURE = re.compile(
    r"\b(?:will|won't|shall|going to|gonna|plan(?:s|ning|ned)?|hop(?:e|ing)|upcoming|coming|soon|"
    r"look(?:ing)? forward|can't wait|about to|tomorrow|next|scheduled|want(?:s)? to|would like)\b"
    r"|\b\w+['’]ll\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class TimeMention:
    """A temporal expression: ``text`` is the source's ``[start, end)``.

    Attributes
    ----------
    start, end : int
        Character range in the text searched.
    text : str
    kind : {"date", "relative", "clock", "duration", "set"}
        ``date`` needs no anchor (or only a year from it), ``relative`` does; ``duration`` has
        a length and no place; ``set`` recurs ("every Friday").
    future : bool
        The sentence around it speaks of the future.
    """

    start: int
    end: int
    text: str
    kind: Kind
    future: bool = False
    rule: str = field(default="", repr=False)
    groups: dict[str, str] = field(default_factory=dict, repr=False, compare=False, hash=False)


@dataclass(frozen=True, slots=True)
class Duration:
    """A length of time: between ``low`` and ``high`` of ``unit`` ("week", "year", …)."""

    low: float
    high: float
    unit: str

    @property
    def exact(self) -> bool:
        """Whether the amount is a number."""
        return self.low == self.high


def _valid(rule: Rule, m: re.Match[str]) -> bool:
    """Refuse look-alikes: the modal "may", the verb "march", "sat" and "sun" in lower case."""
    g = m.groupdict()
    name = next((g[k] for k in ("m", "m2", "m3", "m4") if g.get(k)), None)
    if name and name[0].islower() and name.lower() in {"may", "march", "mar", "jan"}:
        return False
    wd = g.get("wd")
    if wd and len(wd.rstrip(".")) < 6 and wd[0].islower():
        return False
    if rule.name == "clock" and not re.search(r"[:apm]|noon|midnight", m.group()):
        return False
    if rule.name != "duration" or g["n"].lower() not in {"a", "an"}:
        return True
    return not g["u"].endswith("s") and g["u"].lower() != "second"  # "a second helping"


def _sentence_future(text: str, start: int, end: int) -> bool:
    # A text without full stops is no one sentence: look no further than speakers do.
    low, high = max(0, start - _CLAUSE), min(len(text), end + _CLAUSE)
    left = max(low, *(text.rfind(c, low, start) + 1 for c in ".!?\n"))
    right = min((i for c in ".!?\n" if (i := text.find(c, end, high)) >= 0), default=high)
    return _FUTURE.search(text[left:right]) is not None


def find_times(text: str) -> list[TimeMention]:
    """Every temporal expression, in order, without overlaps; the longest reading wins.

    Parameters
    ----------
    text : str

    Returns
    -------
    list of TimeMention
    """
    if ANY.search(text) is None:
        return []
    text = _GAP.sub(lambda gap: "\0" * len(gap.group()), text)
    hits: list[tuple[int, int, int, re.Match[str]]] = []
    for order, rule in enumerate(RULES):
        for m in rule.pattern.finditer(text):
            if _valid(rule, m):
                hits.append((m.start(), -m.end(), order, m))
    # Longest first, then by rule order; a hit inside a taken range is another reading of it.
    hits.sort(key=lambda h: (h[0] + h[1], h[2], h[0]))
    taken: list[tuple[int, int]] = []
    found: list[TimeMention] = []
    for start, neg_end, order, m in hits:
        end = -neg_end
        at = bisect_left(taken, (start, end))
        if (at and taken[at - 1][1] > start) or (at < len(taken) and taken[at][0] < end):
            continue
        taken.insert(at, (start, end))
        rule = RULES[order]
        groups = {k.rstrip("234"): v for k, v in m.groupdict().items() if v}
        future = rule.kind != "duration" and _sentence_future(text, start, end)
        found.append(TimeMention(start, end, m.group(), rule.kind, future, rule.name, groups))
    return sorted(found, key=lambda t: t.start)


def _too_coarse(mention: TimeMention, anchor: EventTime) -> bool:
    unit = BY_NAME[mention.rule].unit
    if unit == "unit":
        unit = unit_of(mention.groups["u"])
        unit = {"night": "day", "hour": "day", "fortnight": "week"}.get(unit, unit)
    return coarser(anchor.precision, unit)


def resolve(mention: TimeMention, anchor: EventTime | None) -> Period | None:
    """The period that a mention stands for when said at ``anchor``.

    Parameters
    ----------
    mention : TimeMention
    anchor : EventTime, optional
        The time of the trace, or a question's reference time.

    Returns
    -------
    Period or None
        None for durations and recurring times, for what needs an anchor where there is none,
        and for impossible dates ("31 June").
    """
    rule = BY_NAME[mention.rule]
    if rule.kind in ("relative", "clock") and anchor is not None and _too_coarse(mention, anchor):
        own = cal.of_event(anchor)
        return Period(own.start, own.end, own.precision, False, own.phrase)
    try:
        return rule.resolver(
            mention.groups, Now(anchor, mention.future, lambda text: _only(text, anchor))
        )
    except (OverflowError, ValueError):  # beyond years 1 to 9999
        return None


def _only(text: str, anchor: EventTime | None) -> Period | None:
    inner = find_times(text)
    return resolve(inner[0], anchor) if inner else None


def duration(mention: TimeMention) -> Duration | None:
    """The length that a ``duration`` mention (or "three weeks ago") states."""
    g = mention.groups
    if "n" not in g or "u" not in g:
        return None
    low, high = amount(g["n"])
    extra = 0.5 if g.get("half") else 0.0
    return Duration(low + extra, high + extra, unit_of(g["u"]))
