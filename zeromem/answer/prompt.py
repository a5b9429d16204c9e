"""The prompt: numbered, dated, attributed evidence, quoted so that it cannot speak for itself."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from zeromem.types import Evidence, QueryProfile, Trace

_UNKNOWN = frozenset(
    {"unknown", "not mentioned", "no information", "n/a", "none", "",
     "i do not know", "i don't know", "do not know", "don't know"}
)  # fmt: skip
# Everything that a terminal or a tokenizer may show as a new line, beside "\n".
_LINE = re.compile("\r\n|[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")
# What JSON leaves as it is and a reader may show as a new line.
_BREAKS = re.compile("[\x7f-\x9f\u2028\u2029]")
_LONGEST_NAME = 80  # characters


@cache
def _template(name: str) -> str:
    return (files("zeromem.answer") / "prompts" / name).read_text(encoding="utf-8").strip()


def _one_line(text: str) -> str:
    return _CONTROL.sub(" ", text).strip()


def quoted(text: str) -> str:
    """Write text as a JSON string on one line: it can end neither its quotes nor the line."""
    written = json.dumps(text, ensure_ascii=False)
    return _BREAKS.sub(lambda m: f"\\u{ord(m[0]):04x}", written)


def name(text: str) -> str:
    """Quote a speaker's name, or a title: on one line, shortened, whole within its quotes."""
    shown = _one_line(text)
    return quoted(shown if len(shown) <= _LONGEST_NAME else f"{shown[: _LONGEST_NAME - 1]}…")


def quote(text: str) -> str:
    """Prefix every line with "| ": no text can then begin a record or leave its quotation."""
    clean = text.encode("utf-8", "replace").decode("utf-8")
    return "\n".join(f"| {line}" for line in _LINE.split(clean))


def record(number: int, item: Evidence) -> str:
    """One record of evidence: its head line, then the quoted text."""
    return passage(number, item.trace, item.text)


def passage(number: int, trace: Trace, text: str) -> str:
    """Quote text of a trace below a head line with number, time, speaker and title.

    What others wrote stands in the head within quotes alone: a speaker's name, else the role.
    """
    who = name(trace.speaker) if trace.speaker else trace.role
    parts = [f"[{number}]", str(trace.time) if trace.time else "undated", f"from {who}"]
    if trace.title:
        parts.append(f"title {name(trace.title)}")
    return f"{' · '.join(parts)}\n{quote(text)}"


def messages(
    question: str, evidence: Sequence[Evidence], profile: QueryProfile
) -> list[dict[str, str]]:
    """Build the chat that asks a reader.

    Parameters
    ----------
    question : str
    evidence : sequence of Evidence
        R(q), best first; record ``i + 1`` is ``evidence[i]``.
    profile : QueryProfile
        Gives the reference time where the question has one; nothing else of it is shown.
    """
    asked_at = f"\n(asked at {profile.reference_time:%Y-%m-%d})" if profile.reference_time else ""
    values = {
        "evidence": "\n\n".join(record(i + 1, e) for i, e in enumerate(evidence)),
        "question": _one_line(question),
        "asked_at": asked_at,
    }
    # One pass, so that a record that contains "{question}" stays what it is.
    user = re.sub(r"\{(\w+)\}", lambda m: values[m.group(1)], _template("user.txt"))
    return [
        {"role": "system", "content": _template("system.txt")},
        {"role": "user", "content": user},
    ]


# Markdown around the labels is theirs: "**Answer:** Miso", "**Sources**: 1".
_ANSWER = re.compile(
    r"(?ims)^[^\w\n]*(?:final\s+)?answer[*_`]*\s*:(?:[*_`]+(?=\s))?\s*(.*?)\s*"
    r"(?=^[^\w\n]*sources?[*_`]*\s*:|\Z)"
)
_SOURCES = re.compile(r"(?im)^[^\w\n]*sources?[*_`]*\s*:\s*(.*)$")
# A reply may end within its thoughts, and a server may leave out where they begin.
_THINKING = re.compile(r"(?is)\A.*</think>|<think>.*\Z")
_STRONG = re.compile(r"(?<![\w*])\*\*(?=\S)(.+?)(?<=\S)\*\*(?![\w*])")
_WRAPPED = re.compile(r"([*_`])((?:(?!\1).)+)\1")


def answer_span(reply: str) -> tuple[int, int]:
    """Where a reply's answer stands in it; all of a reply that is not in the form asked for."""
    thought = max((m.end() for m in _THINKING.finditer(reply)), default=0)
    found = _ANSWER.search(reply[thought:])
    start, end = found.span(1) if found else (0, len(reply) - thought)
    return thought + start, thought + end


def _plain(answer: str) -> str:
    """Take Markdown's emphasis off an answer: of parts of it, of all of it, or half of a pair."""
    text = _STRONG.sub(r"\1", " ".join(answer.split()))
    text = re.sub(r"^\*\*\s*|\s*\*\*(?=\.?$)", "", text)
    whole = _WRAPPED.fullmatch(text)
    return whole.group(2).strip() if whole else text.strip()


def parse_reply(reply: str, n_records: int) -> tuple[str, tuple[int, ...]]:
    """Split a reply into the answer and the positions of the evidence that it cites.

    Parameters
    ----------
    reply : str
        In the form that the prompt asks for; other forms count as an answer without sources.
    n_records : int
        Numbers outside ``1 … n_records`` are dropped.

    Returns
    -------
    answer : str
        Empty where the reader found none.
    cited : tuple of int
        From 0, in the order given.
    """
    reply = _THINKING.sub("", reply).strip()
    sources = _SOURCES.search(reply)
    found = _ANSWER.search(reply)
    answer = found.group(1) if found else _SOURCES.sub("", reply)
    numbers = [int(d) for d in re.findall(r"\d{1,6}", sources.group(1))] if sources else []
    if not sources:  # "Biscuit [3]"
        tail = re.search(r"((?:\s*\[\d{1,6}(?:\s*,\s*\d{1,6})*\])+)\s*\.?\s*$", answer)
        if tail:
            numbers = [int(d) for d in re.findall(r"\d+", tail.group(1))]
            answer = answer[: tail.start()]
    answer = _plain(answer)
    if answer.rstrip(".! ").replace("\u2019", "'").casefold() in _UNKNOWN:
        return "", ()
    return answer, tuple(dict.fromkeys(n - 1 for n in numbers if 1 <= n <= n_records))
