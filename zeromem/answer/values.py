"""Candidates that are values: dates, durations, numbers, yes or no, one of the choices."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta

from zeromem import timex_calendar as cal
from zeromem.answer.candidate import Candidate, closeness
from zeromem.answer.language import Token
from zeromem.answer.passages import Asked, Passages, Sentence
from zeromem.answer.relations import AGAINST, ENDS, FAILURE, LIGHT_VERBS
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
        said = cal.of_event(item.time)
        text = _at_granularity(asked, said)
        value = f"{said.start.isoformat()}/{said.precision}"
        yield Candidate(text, "date", value, sentence.item, sentence.start, sentence.end, 0.0)


def _mentions(passages: Passages, sentence: Sentence) -> Iterator[tuple[TimeMention, bool]]:
    yield from ((t, True) for t in sentence.times)
    for other in passages.by_item[sentence.item]:
        if other.index != sentence.index and abs(other.index - sentence.index) <= 2:
            yield from ((t, False) for t in other.times if t.kind != "duration")


def _since(
    asked: Asked, passages: Passages, sentence: Sentence, mention: TimeMention
) -> Period | None:
    """ "I have played for four months" dates the start: four months before it was said."""
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
    """Lengths of time; for "how long ago" also "ten years ago", for "how long" also "since 2016"."""
    ago = re.search(r"(?i)\bago\b", asked.text) is not None
    for mention in sentence.times:
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


def _length(
    s: Sentence, mention: TimeMention, length: Duration, bonus: float, text: str = ""
) -> Candidate:
    text = _LEAD.sub("", text or mention.text)
    value = f"{length.low:g}-{length.high:g} {length.unit}"
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
    r"(?i)(?:\s|-)?(?:%|percent|dollars?|euros?|pounds?|bucks|usd|eur|gbp|km|kilomet(?:er|re)s?|mi(?:les?)?|m|"
    r"met(?:er|re)s?|cm|feet|foot|ft|inch(?:es)?|kg|kilo(?:gram)?s?|g|grams?|lbs?|lit(?:er|re)s?|ml|cups?|"
    r"degrees?|°[cf]?|gb|mb|tb|ms|hours?|minutes?|seconds?|days?|weeks?|months?|years?)\b"
)


def numbers(asked: Asked, passages: Passages, sentence: Sentence) -> Iterator[Candidate]:
    """Numbers and quantities: those that count the noun asked for come first."""
    focus = passages.keys.of([asked.focus])[0] if asked.focus else ""
    measured = re.search(r"(?i)\bhow (?!many\b|old\b|often\b)\w+", asked.text) is not None
    measured = (
        measured
        or re.search(r"(?i)\b(?:price|cost|amount|salary|budget|distance)\b", asked.text)
        is not None
    )
    age = re.search(r"(?i)\bhow old\b|\bage\b", asked.text) is not None
    base = sentence.start - sentence.span.start_char
    for token in sentence.span:
        low = token.lower_
        counts_times = low in _TIMES and focus == passages.keys.of(["times"])[0]
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
        counted = {passages.keys.of([t.lemma_])[0] for t in _counted(token)}
        if focus and focus in counted:
            bonus += 0.5
        if measured and text != token.text:
            bonus += 0.3
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


def _counted(number: Token) -> list[Token]:
    """What a number counts: its head, and the nouns that follow it closely."""
    after = [t for t in number.doc[number.i + 1 : number.i + 4] if t.pos_ in ("NOUN", "PROPN")]
    return [*([number.head] if number.dep_ == "nummod" else []), *after[:2]]


def _quantity(text: str, start: int, end: int) -> tuple[int, int, str]:
    """Extend a number over its currency sign before it and its unit after it."""
    if start and text[start - 1] in _CURRENCY:
        start -= 1
    if m := _MEASURES.match(text, end):
        end = m.end()
    elif end < len(text) and text[end] in _CURRENCY + "%":
        end += 1
    return start, end, text[start:end]


_NEGATION = frozenset("not n't never no nobody nothing neither nor without".split())


def yes_no(asked: Asked, passages: Passages, sentence: Sentence) -> Iterator[Candidate]:
    """Yes or no by the polarity of a sentence that says what the question asks."""
    matched = [t for t in sentence.span if passages.keys.of([t.lemma_])[0] in asked.weights]
    end = sentence.start + len(sentence.text)
    if _over(asked, passages, sentence):
        yield Candidate("No", "yes_no", "no", sentence.item, sentence.start, end, 0.6)
        return
    name = _predicate(asked)
    said_so = _reply(asked, passages, sentence, passages.keys.of([name])[0]) if name else None
    if said_so:
        yield Candidate(
            said_so.capitalize(), "yes_no", said_so, sentence.item, sentence.start, end, 0.6
        )
        return
    if not matched and passages.similarity.get((sentence.item, sentence.index), 0.0) < 0.45:
        return
    predicate = passages.keys.of([name])[0] if name else ""
    core = [t for t in matched if passages.keys.of([t.lemma_])[0] == predicate]
    says = bool(core or (predicate and passages.related_to(predicate) & sentence.keys))
    if says:
        here = any(_negated(t) for t in core or matched)
    else:  # "make it to the end": the words differ, so the whole sentence counts
        here = bool(FAILURE.search(sentence.text)) or any(t.dep_ == "neg" for t in sentence.span)
    answer = "no" if (here != _asks_negated(asked)) != _opposed(asked, sentence) else "yes"
    # Speaking of the same things without the predicate says less than any sentence that has it.
    bonus = 0.3 * bool(core) if says or not predicate else -0.6
    yield Candidate(
        answer.capitalize(), "yes_no", answer, sentence.item, sentence.start, end, bonus
    )


def _asks_negated(asked: Asked) -> bool:
    """ "Didn't she …", "has she stopped eating meat": yes means that it is not so (any more)."""
    for t in asked.doc:
        if t.dep_ == "neg" or t.lower_ == "never":
            return True
        if t.lemma_ in ENDS and any(c.dep_ == "xcomp" for c in t.children):
            return True
    return False


def _over(asked: Asked, passages: Passages, sentence: Sentence) -> bool:
    """Asked whether something still holds, the sentence says that it ended: "I left Halden"."""
    if not re.search(r"(?i)\b(?:still|any ?more)\b", asked.text):
        return False
    things = {w for n in asked.subjects if n not in passages.speakers for w in n.split()}
    things |= {t.lower_ for t in asked.doc if t.pos_ in ("NOUN", "PROPN")}
    return any(
        (t.lemma_ in ENDS or any((t.lemma_, c.lower_) in _GIVES_UP for c in t.children))
        and any(c.lower_ in things for c in t.subtree if c.i > t.i)
        for t in sentence.span
    )


_GIVES_UP = frozenset({("give", "up"), ("drop", "out"), ("split", "up"), ("break", "up")})
_REPLY = re.compile(
    r"(?i)^\W*(?:oh,?\s+|well,?\s+|haha,?\s+)?(?:(?P<yes>yes|yep|yeah|yup|sure|of course|definitely|absolutely|"
    r"i did|i do|i am|we did|indeed|it does|it is)|(?P<no>no|nope|nah|not at all|not really|not yet|never|"
    r"i didn['’]t|i don['’]t|unfortunately not))\b"
)


def _reply(asked: Asked, passages: Passages, sentence: Sentence, predicate: str) -> str | None:
    """Yes or no where the sentence opens the reply to the same question asked in the talk."""
    m = _REPLY.match(sentence.text)
    if m is None or sentence.index > 0:
        return None
    own = passages.evidence[sentence.item]
    for i, other in enumerate(passages.evidence):
        if own.lsn - other.lsn == 1 and other.session == own.session:
            if any(s.asks and predicate in s.keys for s in passages.by_item[i]):
                return "yes" if m.group("yes") else "no"
    return None


def _predicate(asked: Asked) -> str:
    """What is asserted: the main verb, or what follows "is"; in "stopped eating", eating."""
    for t in asked.doc:
        if t.lemma_ in ENDS and t.dep_ == "ROOT":
            for child in t.children:
                if child.dep_ == "xcomp":
                    return str(child.lemma_)
        if t.dep_ == "ROOT" and t.lemma_ == "be":
            for child in t.children:
                if child.dep_ in ("acomp", "attr") and child.pos_ in ("ADJ", "NOUN", "VERB"):
                    return str(child.lemma_)
        if t.dep_ == "ROOT" and t.pos_ in ("ADJ", "NOUN"):
            return str(t.lemma_)
        if t.pos_ == "ADJ" and t.dep_ in ("acomp", "amod", "acl") and t.i and t.head.i < t.i:
            return str(t.lemma_)  # "Was Ines [scared]": parsed as if it described the name
    return "" if asked.verb in LIGHT_VERBS else asked.verb


def _negated(token: Token) -> bool:
    """Whether a word stands under a negation: its own, or that of the verb it belongs to."""
    own = [*token.children]
    if token.pos_ not in ("VERB", "AUX", "ADJ"):
        if any(c.lower_ in ("no", "never", "without") for c in own):
            return True
        if token.dep_ not in ("dobj", "attr", "acomp", "xcomp", "pobj"):
            return False
        token = token.head if token.dep_ != "pobj" else token.head.head
        own = [*token.children]
    if any(c.dep_ == "neg" or c.lower_ in _NEGATION for c in own):
        return True
    return token.dep_ in ("xcomp", "ccomp", "acomp", "aux") and any(
        c.dep_ == "neg" for c in token.head.children
    )


def _opposed(asked: Asked, sentence: Sentence) -> bool:
    """The sentence speaks against what is asked: "I hate fish" for "Does she like fish?"."""
    asked_lemmas = {t.lemma_.lower() for t in asked.doc}
    own = {t.lemma_.lower() for t in sentence.span}
    against = AGAINST | ENDS if asked_lemmas & {"still", "anymore"} else AGAINST
    return bool((own & against) - asked_lemmas) and not asked_lemmas & against


def choices(asked: Asked, passages: Passages, sentence: Sentence) -> Iterator[Candidate]:
    """The named alternatives that the sentence speaks of."""
    for choice in asked.profile.choices:
        words = passages.keys.of(re.findall(r"[^\W_]+", choice))
        hits = [w for w in words if w in sentence.keys]
        if not hits:
            continue
        m = re.search(rf"(?i)\b{re.escape(choice)}", sentence.text)
        start = sentence.start + (m.start() if m else 0)
        end = sentence.start + (m.end() if m else len(sentence.text))
        bonus = 0.4 * len(hits) / len(words)
        if asked.verb in ("have", "own") and re.search(
            rf"(?i)\b(?:my|our)\s+(?:\w+\s+)?{re.escape(choice)}", sentence.text
        ):
            bonus += 0.4
        if m and _spoken_against(sentence, m.start()):
            bonus -= 0.5
        yield Candidate(choice, "choice", choice.lower(), sentence.item, start, end, bonus)


def _spoken_against(sentence: Sentence, at: int) -> bool:
    before = sentence.text[max(0, at - 40) : at].lower()
    return (
        re.search(
            r"\b(?:not|n['’]t|never|rather than|instead of|over|than|hate|dislike)\b[^,;.]*$",
            before,
        )
        is not None
    )
