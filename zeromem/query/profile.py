"""φ(q), eq. 6: what a question asks for, read off its form by rules. No model is involved."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence, Set
from datetime import datetime
from itertools import pairwise

from zeromem.query.forms import AUXILIARIES, answer_form, choices_of
from zeromem.query.help import asks_help
from zeromem.text import canonical, is_stop, terms, word_spans
from zeromem.times import EventTime
from zeromem.timex import TimeMention, find_times, resolve
from zeromem.timex_calendar import Period
from zeromem.types import AnswerType, Boundary, QueryProfile, TemporalCue

_LONGEST_NAME = 6  # words
# Forms are read off this many characters: a pasted page has none, and takes the square of its
# length.
_LONGEST_FORM = 2000

_QUOTED = re.compile(r"[\"“”„«]([^\"“”«»]{2,120})[\"“”»]|(?<![\w])['‘]([^'‘’]{2,120})['’](?!\w)")
_CAP_RUN = re.compile(
    r"\b[A-ZÀ-ÖØ-Þ][\w&.\-]*(?:['’]s)?(?:\s+(?:(?:of|the|de|la|von|van|for|in)\s+){0,2}"
    r"[A-ZÀ-ÖØ-Þ0-9][\w&.\-]*)+"
)
_CURRENT = re.compile(
    r"\b(?:current(?:ly)?|now|nowadays|at the moment|at present|presently|these days|still|"
    r"any ?more|up[- ]to[- ]date|so far)\b",
    re.IGNORECASE,
)
_LAST = re.compile(
    r"\b(?:last(?! (?:name|night|week|month|year|weekend))|latest|most recent(?:ly)?|newest)\b",
    re.I,
)
_FIRST = re.compile(
    r"\b(?:first(?! name)|earliest|initially|originally|in the beginning|at the start)\b", re.I
)
_AGGREGATION = re.compile(
    r"\b(?:all|both|in common|total|altogether|overall|how many|how often|how much|number of|"
    r"each|various|different|compare[ds]?|comparison|difference between|similar|list|summar\w+|"
    r"times|more than|most often|in what order|in which order)\b",
    re.IGNORECASE,
)
_RELATION = {
    "before": "before", "prior to": "before", "earlier than": "before",
    "until": "by", "till": "by", "up to": "by", "by": "by",
    "after": "after", "since": "since", "later than": "after", "following": "after",
    "from": "since",
}  # fmt: skip
_RELATION_AT = re.compile(
    rf"\b({'|'.join(sorted(_RELATION, key=len, reverse=True))})\s+(?:the\s+|early\s+|late\s+)?$",
    re.I,
)
_BETWEEN = re.compile(r"\b(?:between|from)\s+(?:the\s+)?$", re.IGNORECASE)
_JOIN = re.compile(r"^[\s,]*(?:and|to|until|till|through|-|–)\s+(?:the\s+)?$", re.IGNORECASE)


def profile(
    question: str,
    *,
    boundary: Boundary | None = None,
    reference_time: EventTime | datetime | None = None,
    known_names: Collection[str] = (),
    query_entities: Sequence[str] = (),
) -> QueryProfile:
    """Build the profile of one question.

    Parameters
    ----------
    question : str
        Any text; words the rules do not know leave the neutral values. Forms are looked for in its
        first 2,000 characters, keywords in all of it.
    boundary : Boundary, optional
        Carried into the profile as it is.
    reference_time : EventTime or datetime, optional
        When the question is asked: "last week" in it resolves against this. Without it relative
        words stay unresolved; the wall clock is never read.
    known_names : collection of str
        Canonical names to look for (speakers, titles, entities); a set makes it fast.
    query_entities : sequence of str
        Entities that an annotator found in the question, in any form.

    Returns
    -------
    QueryProfile
    """
    anchor = EventTime.parse(reference_time) if reference_time is not None else None
    form = question[:_LONGEST_FORM]
    answer_type = answer_form(form)
    times = find_times(form)
    return QueryProfile(
        text=question,
        subjects=_subjects(form, known_names, query_entities),
        keywords=tuple(dict.fromkeys(terms([question])[0])),
        phrases=_phrases(form),
        answer_type=answer_type,
        choices=choices_of(form) if answer_type == "choice" else (),
        temporal=_temporal(form, times, anchor, answer_type),
        aggregation=answer_type == "list" or _AGGREGATION.search(form) is not None,
        asks_help=asks_help(form),
        boundary=boundary if boundary is not None else Boundary(),
        reference_time=anchor.start if anchor else None,
    )


def _subjects(
    question: str, known_names: Collection[str], query_entities: Sequence[str]
) -> tuple[str, ...]:
    """Known names in order of appearance, longest match first; then the annotator's entities."""
    known = known_names if isinstance(known_names, Set | Mapping) else set(known_names)
    spans = word_spans(question) if known else []
    shouted = question == question.lower() or question == question.upper()
    found: list[str] = []
    i = 0
    while i < len(spans):
        for n in range(min(_LONGEST_NAME, len(spans) - i), 0, -1):
            surface = question[spans[i][0] : spans[i + n - 1][1]]
            name = canonical(surface)
            if name in known and (n > 1 or _is_name(surface, first=i == 0, shouted=shouted)):
                found.append(name)
                i += n - 1
                break
        i += 1
    entities = [canonical(e) for e in query_entities]
    return tuple(dict.fromkeys(name for name in (*found, *entities) if name))


def _is_name(word: str, *, first: bool, shouted: bool) -> bool:
    """A known one-word name counts where it is written as one: "Will", not "will"; never "500".

    Recognisers take "film" or "first" for a name here and there, and one such mistake makes it
    known. Where a question has no capital to tell by, every known word but stop words counts.
    """
    if not any(c.isalpha() for c in word):
        return False
    if word.lower() in AUXILIARIES:
        return word.istitle() and not first
    if is_stop(word.lower()):
        return False
    return shouted or not word.isascii() or word != word.lower()


def _phrases(question: str) -> tuple[str, ...]:
    quoted = [a or b for a, b in _QUOTED.findall(question)]
    runs = []
    for m in _CAP_RUN.finditer(question):
        words = m.group().rstrip(".").split()
        # A capital that only opens the sentence is no part of a name.
        if question[: m.start()].strip() == "" and words[0].lower() in _OPENERS:
            words = words[1:]
        if words and words[-1].endswith(("'s", "’s")):
            words[-1] = words[-1][:-2]
        if words and words[-1] == "I":
            words = words[:-1]
        if len(words) > 1 and not find_times(" ".join(words)):
            runs.append(" ".join(words))
    return tuple(dict.fromkeys(p.strip() for p in (*quoted, *runs) if p.strip()))


_OPENERS = AUXILIARIES | set(
    [
        "who",
        "whom",
        "whose",
        "what",
        "which",
        "where",
        "when",
        "why",
        "how",
        "in",
        "on",
        "at",
        "to",
        "for",
        "from",
        "with",
        "by",
        "of",
        "the",
        "a",
        "an",
        "tell",
        "list",
        "name",
        "give",
        "describe",
        "summarize",
        "and",
        "if",
        "since",
        "after",
        "before",
        "during",
    ]
)


def _relation(question: str, mention: TimeMention) -> str | None:
    m = _RELATION_AT.search(question[: mention.start])
    return _RELATION[m.group(1).lower()] if m else None


def _named_period(
    question: str, times: list[TimeMention], anchor: EventTime | None
) -> tuple[str, datetime | None, datetime | None] | None:
    """The period that a question limits itself to, and how it relates to it."""
    resolved: list[tuple[TimeMention, Period]] = [
        (t, p) for t in times if (p := resolve(t, anchor)) is not None
    ]
    if not resolved:
        return None
    for (a, first), (b, second) in pairwise(resolved):
        if _BETWEEN.search(question[: a.start]) and _JOIN.match(question[a.end : b.start]):
            return "between", first.start, second.end
    mention, period = resolved[0]
    match _relation(question, mention):
        case "before":
            return "before", None, period.start
        case "by":
            return "before", None, period.end
        case "after":
            return "after", period.end, None
        case "since":
            return "after", period.start, None
    return "at", period.start, period.end


def _temporal(
    question: str, times: list[TimeMention], anchor: EventTime | None, answer_type: AnswerType
) -> TemporalCue:
    """The temporal cue; ``before`` ends where its period starts, ``after`` starts at its end."""
    named = _named_period(question, times, anchor)
    start, end = (named[1], named[2]) if named else (None, None)
    match named:
        case ("before", _, _):
            return TemporalCue("before", start, end)
        case ("after", _, _):
            return TemporalCue("after", start, end)
        case ("between", _, _):
            return TemporalCue("between", start, end)
    outside = _without(question, times)
    if _LAST.search(outside):
        return TemporalCue("last", start, end)
    if _FIRST.search(outside):
        return TemporalCue("first", start, end)
    if _CURRENT.search(outside):
        return TemporalCue("current", start, end)
    if answer_type == "date":
        return TemporalCue("when", start, end)
    if named:
        return TemporalCue("at", start, end)
    return TemporalCue("duration" if answer_type == "duration" else "none")


def _without(question: str, times: list[TimeMention]) -> str:
    """The question with its temporal expressions blanked, so that "last week" is no "last"."""
    for t in reversed(times):
        question = f"{question[: t.start]} {question[t.end :]}"
    return question
