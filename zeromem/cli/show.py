"""Results as text for a terminal."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from zeromem.types import Answer, CalibrationStep, Citation, Evidence, Explanation, Retrieval

_WIDEST = 100
# A stored text must not move the cursor or recolour the terminal.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def clean(text: str) -> str:
    """Return the text on one line, with control characters written out."""
    return _CONTROL.sub(lambda m: ascii(m[0])[1:-1], " ".join(text.split()))


def wrapped(text: str, indent: str, hanging: str | None = None) -> str:
    """Break one line at the terminal's width, with an indent."""
    return textwrap.fill(
        clean(text),
        width=min(shutil.get_terminal_size((_WIDEST, 24)).columns, _WIDEST),
        initial_indent=indent,
        subsequent_indent=indent if hanging is None else hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )


def evidence(
    items: Iterable[Evidence], cited: Iterable[str] = (), indent: str = ""
) -> Iterator[str]:
    """Yield the lines of evidence items: where each comes from, its text, why it is here."""
    sources = set(cited)
    inner = f"{indent}     "
    for n, item in enumerate(items, 1):
        mark = "  (cited)" if item.id in sources else ""
        yield f"{indent}{n:3}. {provenance(item)}{mark}"
        yield wrapped(item.text, inner)
        yield wrapped(f"why: {item.why}", inner, f"{inner}  ")


def provenance(item: Evidence) -> str:
    """Return id, time, speaker and session of an item."""
    who = item.speaker or (item.trace.title or item.trace.role)
    parts = [item.id, str(item.time) if item.time else "no time", who]
    if item.session:
        parts.append(f"session {item.session}")
    return "  ".join(clean(part) for part in parts)


def retrieval(found: Retrieval) -> Iterator[str]:
    """Yield R(q), its route and its time."""
    if not len(found):
        yield "nothing found"
    yield from evidence(found)
    yield ""
    yield wrapped(f"route: {found.route} ({found.route_reason})", "")
    yield wrapped(f"time: {seconds(found.seconds)}", "")


def answer(given: Answer, stages: Mapping[str, float], n_evidence: int) -> Iterator[str]:
    """Yield an answer, its sources, its calibration and `n_evidence` items of evidence."""
    yield clean(given.text) if given.text else "(no answer: the evidence does not say)"
    yield from citations(given.citations, given.retrieval)
    yield from steps(given.steps)
    if n_evidence > 0 and len(given.retrieval):
        yield ""
        yield from evidence(given.retrieval[:n_evidence], {c.id for c in given.citations})
    yield ""
    yield wrapped(f"time: {seconds(stages)}", "")
    yield f"LLM tokens: {tokens(given)}"


def tokens(given: Answer) -> str:
    """Return what the reader spent."""
    u = given.usage
    return f"{u.prompt + u.completion} ({u.prompt} prompt, {u.completion} completion)"


def citations(given: Sequence[Citation], found: Retrieval, indent: str = "") -> Iterator[str]:
    """Yield each source: id, characters, time, speaker, the text cited."""
    by_id = {item.id: item for item in found}
    for c in given:
        where = provenance(by_id[c.id]) if c.id in by_id else clean(c.id)
        yield f"{indent}from {where}  characters {c.start}-{c.end}"
        yield wrapped(f"“{c.text}”", f"{indent}     ")


def steps(given: Sequence[CalibrationStep], indent: str = "") -> Iterator[str]:
    """Yield what answer calibration did, and why."""
    for step in given:
        change = "" if step.before == step.after else f" {step.before!r} -> {step.after!r}"
        yield wrapped(f"calibration: {step.action}{change}: {step.reason}", indent, f"{indent}  ")


def explanation(given: Explanation) -> Iterator[str]:
    """Yield the whole path of one question."""
    found = given.retrieval
    p = found.profile
    yield wrapped(f"route: {found.route} ({found.route_reason})", "")
    yield wrapped(f"asks for: {p.answer_type}; time: {p.temporal.kind}", "")
    for label in ("subjects", "keywords", "phrases"):
        if values := getattr(p, label):
            yield wrapped(f"{label}: {', '.join(values)}", "", "  ")
    for label, entities in (("seeds", given.seeds), ("activated", given.activated)):
        if entities:
            shown = ", ".join(f"{name} {value:.3f}" for name, value in entities)
            yield wrapped(f"{label}: {shown}", "", "  ")
    yield ""
    for n, item in enumerate(given.items, 1):
        yield from _explained(n, item.evidence, item.graph_score, item.hierarchy_score)
        for sentence, value in item.sentences:
            yield wrapped(f"sentence {value:.3f}: {sentence}", "     ", "          ")
    if given.n_outside:
        yield ""
        yield f"outside the boundary, never ranked: {given.n_outside} turns"
    if given.left_out:
        yield ""
        yield "left out:"
        for gone in given.left_out:
            yield wrapped(f"{gone.id}: {gone.reason}", "  ", "    ")
            yield wrapped(gone.text, "    ")
    yield ""
    yield wrapped(f"time: {seconds(found.seconds)}", "")


def _explained(n: int, item: Evidence, graph: float, hierarchy: float) -> Iterator[str]:
    yield f"{n:3}. {provenance(item)}"
    yield wrapped(item.text, "     ")
    yield (
        f"     score {item.score:.3f}  fused {item.fused:.3f} (rank {_rank(item.main_rank)})  "
        f"graph {graph:.3f} (rank {_rank(item.graph_rank)})  "
        f"hierarchy {hierarchy:.3f} (rank {_rank(item.hierarchy_rank)})"
    )
    yield wrapped(f"why: {item.why}", "     ", "          ")


def _rank(rank: int | None) -> str:
    return "-" if rank is None else str(rank)


def seconds(stages: Mapping[str, float]) -> str:
    """Return the time of each stage and their sum."""
    shown = [f"{name} {duration(value)}" for name, value in stages.items()]
    return f"{', '.join(shown)}; {duration(sum(stages.values()))} in all" if shown else "none"


def duration(value: float) -> str:
    """Return a time in a readable unit."""
    return f"{value:.1f} s" if value >= 1 else f"{value * 1000:.1f} ms"


def table(record: Mapping[str, Any]) -> Iterator[str]:
    """Yield names and values, one a line."""
    width = max(map(len, record), default=0)
    for name, value in record.items():
        yield f"{name:{width}}  {clean(str(value))}"
