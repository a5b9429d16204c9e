"""When two short answers say the same: dates by their days, amounts by their number, yes and no."""

# ruff: noqa: SIM905 - lists of words read as words
from __future__ import annotations

import re
from datetime import timedelta

from zeromem.answer.candidate import Candidate
from zeromem.timex import find_times, resolve
from zeromem.timex_calendar import Period, coarser
from zeromem.timex_rules import CARDINALS

_FUNCTION = frozenset(
    "a an the of in on at to for from with by and or is are was were be been her his their its my "
    "your our she he they it".split()
)


def period_of(text: str) -> Period | None:
    """The absolute period that a text states, if it states one."""
    found = [t for t in find_times(text) if t.kind == "date"]
    return resolve(found[0], None) if found else None


def covers(wide: Period, narrow: Period | None) -> bool:
    """Whether one period lies within another."""
    return narrow is not None and wide.start <= narrow.start and narrow.end <= wide.end


def value_of(text: str) -> str:
    """A number's normal form: words to digits, separators and articles dropped."""
    words = re.findall(r"[a-z%$€£]+|\d[\d,]*(?:\.\d+)?", text.lower())
    numbered = {w: str(n) for n, w in enumerate(CARDINALS)} | {
        "once": "1",
        "twice": "2",
        "a": "1",
        "an": "1",
    }
    out = []
    for w in words:
        w = numbered.get(w, w.replace(",", ""))
        if w in ("the", "about", "around", "times", "time", "for", "now"):
            continue
        out.append(w.removesuffix("s") if len(w) > 3 else w)
    return " ".join(out)


def polarity_of(text: str) -> str | None:
    """Yes or No where a text opens with one of them, in whatever word."""
    m = re.match(r"(?i)\W*(?:(?:likely|probably)\s+)?(yes|no|yeah|yep|nope|nah|true|false)\b", text)
    if m is None:
        return None
    return "Yes" if m.group(1).lower() in ("yes", "yeah", "yep", "true") else "No"


def nearly(text: str, c: Candidate) -> bool:
    """Whether a date says more than the candidate, or lies so close that readings differ."""
    own, other = period_of(text), period_of(c.text)
    if c.kind != "date" or own is None or other is None:
        return False
    near = timedelta(days=7)
    meets = own.start < other.end + near and other.start < own.end + near
    return coarser(other.precision, own.precision) or meets


def is_function(word: str) -> bool:
    """Whether a word has no content of its own."""
    return word.lower() in _FUNCTION
