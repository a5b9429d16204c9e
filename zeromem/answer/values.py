"""Candidates that are values: dates, durations, numbers and quantities."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta

from zeromem import timex_calendar as cal
from zeromem.answer.asked import Asked
from zeromem.answer.candidate import Candidate, closeness
from zeromem.answer.language import Token
from zeromem.answer.passages import Passages, Sentence
from zeromem.answer.words import key, keys, related_to
from zeromem.timex import Duration, TimeMention, duration, resolve
from zeromem.timex_calendar import MONTHS, WEEKDAYS, Period

_ASKED_UNIT = re.compile(
    r"\b(?:which|what)\s+(day of the week|weekday|year|month|time|hour)\b", re.I
)

_STARTS = frozenset(["start", "begin", "take", "join", "move", "get", "become", "adopt"])


def dates(asked: Asked, passages: Passages, sentence: Sentence) -> Iterator[Candidate]:
    """Dates that the sentence states, else its item, else the time at which it was said.

    Relative ones are resolved against the trace's own time, never the wall clock.
    """
    item = passages.evidence[sentence.item]
    wants_clock = re.search(r"\bwhat (?:time|hour)\b", asked.text, re.I) is not None
    for mention, own in _mentions(passages, sentence):
        if (mention.kind == "clock") != wants_clock:
            continue
        period = resolve(mention, item.time)
        if period is None and mention.kind == "duration" and own:
            period = _since(asked, passages, sentence, mention)
        if period is None:
            if mention.kind == "clock":
                text = re.sub(r"(?i)^at\s+", "", mention.text)
                yield Candidate(
                    text, "date", text.lower(), sentence.item, mention.start, mention.end
                )
            continue
        text = mention.text if mention.kind == "clock" else _at_granularity(asked, period)
        near = closeness(asked, passages, sentence, mention.start, mention.end)
        bonus = (0.3 + 0.2 * near if own else 0.1) + (0.1 if period.exact else 0.0)
        value = f"{period.start.isoformat()}/{period.precision}"
        text = re.sub(r"(?i)^at\s+", "", text)
        yield Candidate(text, "date", value, sentence.item, mention.start, mention.end, bonus)
    if item.time is not None and not wants_clock:
        said = cal.month(item.time.start) if _lasts(asked, sentence) else cal.of_event(item.time)
        text = _at_granularity(asked, said)
        value = f"{said.start.isoformat()}/{said.precision}"
        yield Candidate(
            text, "date", value, sentence.item, sentence.start, sentence.end, 0.0, stated=False
        )


def _lasts(asked: Asked, sentence: Sentence) -> bool:
    """Whether what is asked about is told as going on or done by now: "I'm reading", "I've read".

    That dates it to about then, where "I read it" or "I've just read it" is the news of a day.
    """
    wanted = key(asked.verb) if asked.verb else ""
    told = [t for t, k in zip(sentence.span, sentence.lemmas, strict=True) if k == wanted]
    for verb in told or [t for t in sentence.span if t.dep_ == "ROOT"]:
        helpers = {c.lemma_ for c in verb.children if c.dep_ == "aux" and c.tag_ in _PRESENT}
        if verb.tag_ == "VBG" and "be" in helpers:
            return True
        if verb.tag_ == "VBN" and "have" in helpers:
            return not any(c.lower_ == "just" for c in verb.children)
    return False


_PRESENT = ("VBP", "VBZ")


def _mentions(passages: Passages, sentence: Sentence) -> Iterator[tuple[TimeMention, bool]]:
    yield from ((t, True) for t in sentence.times)
    for other in passages.by_item[sentence.item]:
        if other.index != sentence.index and abs(other.index - sentence.index) <= 2:
            yield from ((t, False) for t in other.times if t.kind != "duration")


def _since(
    asked: Asked, passages: Passages, sentence: Sentence, mention: TimeMention
) -> Period | None:
    """Date the start by "I have played for four months": four months before it was said."""
    time, length = passages.evidence[sentence.item].time, duration(mention)
    if time is None or length is None or not length.exact or asked.verb not in _STARTS:
        return None
    ongoing = re.search(r"(?i)\b(?:been|for|now|since|already|ha(?:ve|s)|['’]ve)\b", sentence.text)
    if ongoing is None or length.unit not in ("year", "month", "week", "day"):
        return None
    match length.unit:
        case "year":
            return cal.year(time.start.year - int(length.low), time.start.tzinfo, exact=False)
        case "month":
            return cal.month(cal.add_months(time.start, -int(length.low)), exact=False)
    days = int(length.low) * (7 if length.unit == "week" else 1)
    return cal.day(time.start - timedelta(days=days), exact=False)


def _at_granularity(asked: Asked, period: Period) -> str:
    """The period in the unit that the question names, where the period is fine enough."""
    m = _ASKED_UNIT.search(asked.text)
    start = period.start
    match m.group(1).lower() if m else "":
        case "year" if not cal.coarser(period.precision, "year"):
            return str(start.year)
        case "month" if not cal.coarser(period.precision, "month"):
            return f"{MONTHS[start.month - 1]} {start.year}"
        case "day of the week" | "weekday" if period.precision == "day":
            return WEEKDAYS[start.weekday()]
    return period.phrase


_LEAD = re.compile(r"(?i)^(?:for|in|over|during)\s+")


def durations(asked: Asked, passages: Passages, sentence: Sentence) -> Iterator[Candidate]:
    """Lengths of time; for "how long ago" also "ten years ago", else also "since 2016"."""
    ago = re.search(r"(?i)\bago\b", asked.text) is not None
    for mention in _joined(passages.evidence[sentence.item].text, sentence.times):
        length = duration(mention)
        near = closeness(asked, passages, sentence, mention.start, mention.end)
        if mention.kind == "duration" and length is not None:
            yield _length(sentence, mention, length, 0.3 + 0.2 * near)
        elif length is not None and mention.rule in ("ago", "ahead", "range"):
            text = (
                mention.text
                if ago or mention.rule != "ago"
                else re.sub(r"\s+ago$", "", mention.text)
            )
            yield _length(sentence, mention, length, 0.2 + 0.2 * near + 0.2 * ago, text)
        elif length is None and _after_since(passages, sentence, mention):
            period = resolve(mention, passages.evidence[sentence.item].time)
            if period is not None:
                text = f"since {period.phrase}"
                yield Candidate(
                    text, "duration", text, sentence.item, mention.start, mention.end,
                    0.25 + 0.2 * near,
                )  # fmt: skip


def _joined(text: str, times: Sequence[TimeMention]) -> list[TimeMention]:
    """Take "4 hours and 12 minutes" as one length: its first part, extended over the others."""
    out: list[TimeMention] = []
    for t in times:
        last = out[-1] if out else None
        if (
            last is not None
            and t.kind == "duration"
            and re.fullmatch(r",?\s+(?:and\s+)?|,", text[last.end : t.start])
            and _finer(last, t)
        ):
            out[-1] = replace(last, end=t.end, text=text[last.start : t.end])
        else:
            out.append(t)
    return out


_UNITS = ("year", "month", "week", "day", "hour", "minute", "second")


def _finer(first: TimeMention, second: TimeMention) -> bool:
    a, b = duration(first), duration(second)
    known = a is not None and b is not None and a.unit in _UNITS and b.unit in _UNITS
    return known and a is not None and b is not None and _UNITS.index(a.unit) < _UNITS.index(b.unit)


def _length(
    s: Sentence, mention: TimeMention, length: Duration, bonus: float, text: str = ""
) -> Candidate:
    text = _LEAD.sub("", text or mention.text)
    value = f"{length.low:g}-{length.high:g} {length.unit}"
    if sum(w.rstrip("s") in _UNITS for w in text.lower().split()) > 1:
        value = text.lower()
    return Candidate(text, "duration", value, s.item, mention.start, mention.end, bonus)


def _after_since(passages: Passages, s: Sentence, mention: TimeMention) -> bool:
    before = passages.evidence[s.item].text[max(0, mention.start - 12) : mention.start]
    return re.search(
        r"(?i)\bsince\s+(?:the\s+)?$", before
    ) is not None or mention.text.lower().startswith("since")


_NUMERIC = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?%?")

_TIMES = {"once": "1", "twice": "2", "thrice": "3"}

_CURRENCY = "$€£¥"

_MEASURES = re.compile(
    r"(?i)(?:\s|-)?(?:%|percent|dollars?|euros?|pounds?|bucks|usd|eur|gbp|chf|francs?|km|kilomet(?:er|re)s?|mi(?:les?)?|m|"
    r"met(?:er|re)s?|cm|feet|foot|ft|inch(?:es)?|kg|kilo(?:gram)?s?|g|grams?|lbs?|lit(?:er|re)s?|ml|cups?|"
    r"degrees?|°[cf]?|gb|mb|tb|ms|hours?|minutes?|seconds?|days?|weeks?|months?|years?)\b"
)


def numbers(asked: Asked, passages: Passages, sentence: Sentence) -> Iterator[Candidate]:
    """Numbers and quantities: those that count the noun asked for come first."""
    focus = key(asked.focus) if asked.focus else ""
    counts = {focus, *_modifiers(asked, passages)} if focus else set()
    measured = re.search(r"(?i)\bhow (?!many\b|old\b|often\b)\w+", asked.text) is not None
    measured = (
        measured
        or re.search(r"(?i)\b(?:price|cost|amount|salary|budget|distance)\b", asked.text)
        is not None
    )
    money = re.search(
        r"(?i)\b(?:price|costs?|salary|budget|pay|paid|rent|fee|fare|owe)\b", asked.text
    )
    age = re.search(r"(?i)\bhow old\b|\bage\b", asked.text) is not None
    base = sentence.start - sentence.span.start_char
    for token in sentence.span:
        low = token.lower_
        counts_times = low in _TIMES and focus == key("times")
        if low == "one" and token.dep_ != "nummod":  # "the left one"
            continue
        if not counts_times and not (token.like_num or _NUMERIC.fullmatch(token.text)):
            continue
        if token.ent_type_ == "ORDINAL" or re.search(r"\d(?:st|nd|rd|th)$", low):
            continue
        start, end = base + token.idx, base + token.idx + len(token)
        start, end, text = _quantity(passages.evidence[sentence.item].text, start, end)
        timed = any(t.start <= start < t.end for t in sentence.times)
        bonus = 0.2 * closeness(asked, passages, sentence, start, end)
        counted = {key(t.lemma_) for t in _counted(token)}
        if counts & counted:
            bonus += 0.5
        if measured and text != token.text:
            bonus += 0.3
        if measured and focus and _labelled(passages, token, focus):
            bonus += 0.5
        if measured and money and not _MONEY.search(text):
            bonus -= 0.2 if text == token.text else 0.6
        if age:
            stated = re.search(r"(?i)years?[- ]old|\bturn|\baged?\b", sentence.text) is not None
            bonus += 0.4 * (stated or token.dep_ in ("attr", "acomp"))
            bonus -= 0.4 * (text != token.text and "year" not in text)
            timed = False
        if counts_times:
            bonus += 0.3
        if timed:
            bonus -= 0.4
        if not measured and not age:
            text = token.text
        value = _TIMES.get(low, text.lower())
        yield Candidate(text, "number", value, sentence.item, start, end, bonus)


_PAID = re.compile(r"(?i)\b(?:price|costs?|salary|budget|pay|paid|rent|fee|fare|owe)\b")

_MONEY = re.compile(
    r"(?i)[$€£¥]|\b(?:dollars?|euros?|pounds?|bucks|usd|eur|gbp|chf|francs?|cents?)\b"
)


def _modifiers(asked: Asked, passages: Passages) -> list[str]:
    """Nouns inside the noun asked for: "how many tomato plants" may be said "ten tomatoes"."""
    return keys(
        t.lemma_
        for t in asked.doc
        if t.dep_ == "compound" and t.pos_ == "NOUN" and t.head.lemma_.lower() == asked.focus
    )


def _labelled(passages: Passages, number: Token, focus: str) -> bool:
    """Whether the words just before a number name it: "Total 214 EUR", "price: 30", "rent is 9"."""
    wanted = related_to(focus) | {focus}
    before = number.doc[max(number.sent.start, number.i - 4) : number.i]
    for t in reversed([*before]):
        if t.pos_ in ("NUM", "VERB") or t.text in (",", ";", "."):
            return False
        if key(t.lemma_) in wanted:
            return True
    return False


def _counted(number: Token) -> list[Token]:
    """What a number counts: its head, and the nouns that follow it closely."""
    head = [number.head] if number.dep_ == "nummod" else []
    if head and head[0].i < number.i:  # "plot 27" counts nothing after it
        return head
    after: list[Token] = []
    for t in number.doc[number.i + 1 : number.i + 4]:
        if t.pos_ in ("DET", "PUNCT", "VERB", "AUX", "CCONJ", "PRON"):
            break
        after += [t] if t.pos_ in ("NOUN", "PROPN") else []
    return [*head, *after[:2]]


def _quantity(text: str, start: int, end: int) -> tuple[int, int, str]:
    """Extend a number over its currency sign before it and its unit after it."""
    if start and text[start - 1] in _CURRENCY:
        start -= 1
    if m := _MEASURES.match(text, end):
        end = m.end()
    elif end < len(text) and text[end] in _CURRENCY + "%":
        end += 1
    return start, end, text[start:end]
