"""Calibrate of eq. 16: keep what is supported, repair what the evidence can repair, else leave it.

A draft is *supported* where R(q) contains it (its words in one item; for a date or a number, the
same value) and *well formed* where it has the form its type asks for (a resolved date, one short
value, items without repeats). Supported and well-formed drafts are never touched.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from zeromem.answer.asked import Asked
from zeromem.answer.candidate import Candidate, citation
from zeromem.answer.extract import SCALARS, extract
from zeromem.answer.passages import Passages
from zeromem.answer.same import covers, is_function, nearly, period_of, polarity_of, value_of
from zeromem.answer.support import Support, judge
from zeromem.answer.words import key, keys
from zeromem.text import canonical
from zeromem.timex import TimeMention, find_times, resolve
from zeromem.types import AnswerType, CalibrationStep, Citation

_SHORT = 6  # words; a scalar answer longer than this is a sentence around its value
_PREFIX = re.compile(
    r"(?i)^(?:(?:according to|based on) (?:the |these )?"
    r"(?:records?|evidence|context|memor\w+)(?: \d+)?,?\s+"
    r"|(?:the )?(?:final |short )?answer(?: is|:)\s*|answer:\s*)"
)
_ITEM = re.compile(
    r"\s*(?:\n+\s*(?:[-*•]|\d+[.)])?|^\s*(?:[-*•]|\d+[.)])\s+|;|,(?:\s*and\b)?|\band\b)\s*"
)


@dataclass(frozen=True, slots=True)
class _Case:
    """One draft under calibration."""

    asked: Asked
    passages: Passages
    found: list[Candidate] = field(default_factory=list)

    @property
    def candidates(self) -> Sequence[Candidate]:
        """A(q), made when first asked for: a draft that is quoted needs none."""
        if not self.found:
            self.found.extend(extract(self.asked, self.passages))
        return self.found

    @property
    def kind(self) -> AnswerType:
        return self.asked.profile.answer_type

    def cite(self, c: Candidate) -> Citation:
        return citation(self.passages.evidence[c.item], c.start, c.end)


def calibrate(
    draft: str, asked: Asked, passages: Passages
) -> tuple[str, tuple[CalibrationStep, ...]]:
    """Apply eq. 16 to a draft.

    Parameters
    ----------
    draft : str
        a_0; empty where the reader abstained, which is kept.
    asked : Asked
        q and φ(q).
    passages : Passages
        R(q).

    Returns
    -------
    answer : str
        a.
    steps : tuple of CalibrationStep
        What was done and why, in order; one ``keep`` where nothing was.
    """
    if not draft.strip():
        return "", (CalibrationStep("keep", draft, "", "the reader abstained"),)
    case = _Case(asked, passages)
    steps: list[CalibrationStep] = []
    text = draft
    for repair in _REPAIRS:
        step = repair(text, case)
        if step is not None:
            steps.append(step)
            text = step.after
    if not steps:
        steps.append(_kept(text, case))
    return text, tuple(steps)


def _kept(text: str, case: _Case) -> CalibrationStep:
    """Say what was found of a draft that stays, and no more."""
    found, source = _supported(text, case), None
    if isinstance(found, Candidate):
        reason, source = "the evidence has this value", case.cite(found)
    elif not found:
        reason = "no deterministic correction is available"
    elif case.kind == "yes_no":
        reason = "it says yes or no, which is not checked any further"
    else:
        reason = "its words stand in the evidence"
    return CalibrationStep("keep", text, text, reason, source)


def _supported(text: str, case: _Case) -> Candidate | bool:
    """Whether R(q) holds the answer: the candidate that says the same, or True by its words."""
    match case.kind:
        case "date":
            wanted = period_of(text)
            for c in case.candidates:
                if canonical(text) in canonical(c.text) or (
                    wanted and covers(wanted, period_of(c.text))
                ):
                    return c
        case "number" | "duration":
            wanted_value = value_of(text)
            for c in case.candidates:
                if value_of(c.text) == wanted_value:
                    return c
        case "yes_no":
            return polarity_of(text) is not None
    return _quoted(text, case)


def _quoted(text: str, case: _Case) -> bool:
    """Whether one evidence item, with who said it and when, has all content words of a text."""
    words = [w for w in re.findall(r"[^\W_]+", _PREFIX.sub("", text)) if len(w) > 1 or w.isdigit()]
    question = case.asked.said
    names = {w for s in case.passages.speakers for w in keys(s.split())}
    content = {key(w) for w in words if not is_function(w)}
    content -= names | (question if content - question else set())
    return (bool(content) and any(content <= own for own in case.passages.keys_of)) or (
        not content and bool(names.intersection(keys(words)))
    )


def _normalize_frame(text: str, case: _Case) -> CalibrationStep | None:
    """Drop "According to the records," and a full stop after a bare value."""
    after = _PREFIX.sub("", text.strip()).strip()
    if case.kind in SCALARS | {"yes_no", "choice", "list"} and len(after.split()) <= _SHORT:
        after = re.sub(r"(?<!\b[A-Z])(?<!\b[ap]\.m)\.$", "", after)
    if after == text or not after:
        return None
    return CalibrationStep(
        "normalize", text, after, "framing and punctuation are no part of the answer"
    )


def _normalize_polarity(text: str, case: _Case) -> CalibrationStep | None:
    if case.kind != "yes_no":
        return None
    polarity = polarity_of(text)
    if (
        polarity is None
        or text.lower() in ("yes", "no")
        or re.match(r"(?i)(?:likely |probably )?(?:yes|no)\b", text)
    ):
        return None
    return CalibrationStep(
        "normalize", text, polarity, "a yes/no question is answered by yes or no"
    )


def _resolve_date(text: str, case: _Case) -> CalibrationStep | None:
    """Replace "last Friday" by its date, counted from the time of the item that says it."""
    if case.kind != "date":
        return None
    relative = [t for t in find_times(text) if t.kind == "relative"]
    if len(relative) != 1 or period_of(text) is not None:
        return None
    mention = relative[0]
    said = _said(mention, case)
    phrases = {phrase for phrase, _ in said}
    if len(phrases) != 1:
        return None
    phrase, source = said[0]
    after = f"{text[: mention.start]}{phrase}{text[mention.end :]}".strip()
    after = phrase if len(after.split()) > len(phrase.split()) + 2 else after
    reason = f"{mention.text!r} counts from the time of the record that says it"
    return CalibrationStep("normalize", text, after, reason, source)


def _said(mention: TimeMention, case: _Case) -> list[tuple[str, Citation]]:
    """Resolutions of the expression where the evidence itself uses it, most relevant item first."""
    found = []
    wanted = canonical(mention.text)
    for item, sentences in case.passages.by_item.items():
        evidence = case.passages.evidence[item]
        for t in {t for s in sentences for t in s.times}:
            if canonical(t.text) != wanted:
                continue
            period = resolve(t, evidence.time)
            if period is not None and period.exact:
                found.append((period.phrase, citation(evidence, t.start, t.end)))
    return found


def _shorten(text: str, case: _Case) -> CalibrationStep | None:
    """A sentence around one candidate becomes the candidate."""
    if case.kind not in SCALARS or len(text.split()) <= _SHORT:
        return None
    inside: dict[str, Candidate] = {}
    for c in case.candidates:
        quoted = case.passages.evidence[c.item].text[c.start : c.end]
        for form in (c.text, quoted) if len(quoted.split()) <= _SHORT else (c.text,):
            if re.search(rf"(?i)(?<!\w){re.escape(form)}(?!\w)", text) and not _repeats(form, case):
                inside.setdefault(c.value, c)
    # "the Lisbon office" holds "Lisbon": the longest reading stands for those inside it.
    best = [c for v, c in inside.items() if not any(v != o and v in o for o in inside)]
    if len(best) != 1:
        return None
    reason = "the evidence states this value; the sentence around it is not asked for"
    return CalibrationStep("shorten", text, best[0].text, reason, case.cite(best[0]))


def _repeats(form: str, case: _Case) -> bool:
    """Whether the candidate only repeats the question's words."""
    asked = canonical(case.asked.text)
    return re.search(rf"(?<!\w){re.escape(canonical(form))}(?!\w)", asked) is not None


def _prune(text: str, case: _Case) -> CalibrationStep | None:
    """Drop the items of a list of which the evidence has no word, and repeated ones; never all.

    An item that words what was said anew shares a word with it here or there, and stays.
    """
    if case.kind != "list":
        return None
    parts = _items(text)
    items = [item for _, item in parts]
    if len(items) < 2:
        return None
    unique: dict[str, str] = {}
    for item in items:
        unique.setdefault(canonical(item), item)
    once = list(unique.values())
    kept = [i for i in once if _touched(i, case)]
    if 2 * len(kept) <= len(once):  # then it is the evidence that lacks something
        kept = once
    if len(kept) == len(items):
        return None
    gone = ", ".join(repr(i) for i in items if i not in kept)
    reason = f"the evidence has no word of {gone}" if gone else "an item was repeated"
    left, after = list(kept), ""
    for between, item in parts:
        if item in left:
            left.remove(item)
            after += f"{between if after else ''}{item}"
    return CalibrationStep("prune", text, after, reason)


def _items(text: str) -> list[tuple[str, str]]:
    """A list's items, each with what stands between it and the one before."""
    out: list[tuple[str, str]] = []
    done, between = 0, ""
    for m in [*_ITEM.finditer(text), None]:
        item = text[done : m.start() if m else len(text)].strip(" .")
        if item:
            out.append((between, item))
        if m is None:
            break
        done, between = m.end(), ", " if not m.group().strip() or "\n" in m.group() else m.group()
    return out


def _touched(item: str, case: _Case) -> bool:
    """Whether any evidence has a content word of a text, or one that begins like it."""
    own = {key(w) for w in re.findall(r"[^\W_]+", item) if not is_function(w)}
    said = frozenset().union(*case.passages.keys_of)
    if not own or own & said:
        return True
    stems = {k[:_STEM] for k in own if len(k) >= _STEM}
    return any(k[:_STEM] in stems for k in said)


_STEM = 5  # letters


def _replace(text: str, case: _Case) -> CalibrationStep | None:
    """An unsupported scalar gives way to the single candidate among the sentences that matter."""
    if case.kind not in SCALARS or len(text.split()) > _SHORT or _supported(text, case):
        return None
    unique = {c.value: c for c in _relevant(case)}
    if len(unique) != 1:
        return None
    (only,) = unique.values()
    if canonical(only.text) == canonical(text) or nearly(text, only):
        return None
    reason = (
        f"the evidence does not have {text!r}; this is the only {case.kind} in it that bears on "
        "the question"
    )
    return CalibrationStep("replace", text, only.text, reason, case.cite(only))


def _relevant(case: _Case) -> list[Candidate]:
    """A(q) of the sentences whose support comes near the best one's."""
    judged: list[tuple[Support, int]] = [
        (judge(case.asked, case.passages, s), i) for i, s in enumerate(case.passages.sentences)
    ]
    if not judged:
        return []
    best = max(j.score for j, _ in judged)
    near = [
        case.passages.sentences[i] for j, i in judged if j.score >= best - 0.3 and j.overlap > 0.3
    ]
    found = extract(case.asked, case.passages, near)
    # A date that the sentence states outweighs the time at which it was said.
    stated = [c for c in found if c.bonus > 0]
    return stated or found


_REPAIRS: tuple[Callable[[str, _Case], CalibrationStep | None], ...] = (
    _normalize_frame, _normalize_polarity, _resolve_date, _shorten, _prune, _replace,
)  # fmt: skip
