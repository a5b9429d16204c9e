"""Questions that ask for several things at once, taken apart by their form."""

from __future__ import annotations

import re
from dataclasses import replace

from zeromem.query.profile import profile
from zeromem.text import is_stop, word_spans
from zeromem.types import QueryProfile

_BETWEEN = re.compile(r"\bbetween (.+?) and (.+)", re.IGNORECASE)
# Only of a length of time: "what did I learn from A to improve B" has no two ends.
_FROM = re.compile(r"\bfrom (.+?) (?:to|until|till) (.+)", re.IGNORECASE)
_COMMA = re.compile(r"[,;] (?:and |or )?")
_FEWEST_ITEMS = 3
_FEWEST_WORDS = 2
# A pasted page is no list of things to look for, and each part costs a question's time.
_LONGEST = 2000  # characters
_MOST_PARTS = 8


def parts_of(whole: QueryProfile) -> tuple[QueryProfile, ...]:
    """Take a question apart where it names two ends, or three things or more.

    "How long was it between A and B?" is answered by two turns, and neither is like the whole
    question.

    Parameters
    ----------
    whole : QueryProfile

    Returns
    -------
    tuple of QueryProfile
        Two to eight, or none, as for a question of more than 2,000 characters. A part has the
        whole's boundary, and its subjects where it names none itself ("... and the day she moved").
    """
    texts: list[str] = []
    if len(whole.text) > _LONGEST:
        return ()
    text = " ".join(whole.text.split())
    measured = whole.answer_type in ("duration", "number")
    if ends := _BETWEEN.search(text) or (_FROM.search(text) if measured else None):
        texts += _full(ends.groups())
    items = _full(_COMMA.split(text))
    if len(items) >= _FEWEST_ITEMS:
        texts += items
    return tuple(_part(text, whole) for text in list(dict.fromkeys(texts))[:_MOST_PARTS])


def _full(texts: tuple[str, ...] | list[str]) -> list[str]:
    """Those that say enough to be looked for; none where only one does."""
    stripped = [text.strip(" \t\n?.!,;") for text in texts]
    full = [text for text in dict.fromkeys(stripped) if _says_enough(text)]
    return full if len(full) > 1 else []


def _says_enough(text: str) -> bool:
    words = [text[start:end].lower() for start, end in word_spans(text)]
    return sum(not is_stop(word) for word in words) >= _FEWEST_WORDS


def _part(text: str, whole: QueryProfile) -> QueryProfile:
    part = profile(text, boundary=whole.boundary, known_names=frozenset(whole.subjects))
    return replace(
        part,
        subjects=part.subjects or whole.subjects,
        asks_help=False,
        reference_time=whole.reference_time,
    )
