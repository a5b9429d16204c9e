"""The demo command: prints what :mod:`zeromem.demo` does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from zeromem import demo, records
from zeromem.cli import show
from zeromem.cli.common import Args, emit, open_memory, plural, progress
from zeromem.types import TokenUsage, Trace


def demonstrate(args: Args) -> int:
    """Ingest the conversation, ask the ten questions; 1 where an answer is wrong."""
    # Only what was named on the command line: the demonstration stays out of the daily store.
    path = Path(args.store) if args.store else None
    traces = demo.conversation()
    asked = demo.questions()
    outcomes = []
    with open_memory(args, path, name=args.scope or "demo") as memory:
        ingested = demo.ingest(memory, traces, progress=progress(args))
        counted = memory.stats()
        if not args.json:
            _print(_opening(traces, ingested, counted))
        for n, outcome in enumerate(demo.ask(memory, asked), 1):
            outcomes.append(outcome)
            if not args.json:
                _print(_outcome(n, outcome, args.evidence))
        n_right = sum(o.right for o in outcomes)
        closing = f"{n_right} of {len(asked)} right"
        record = {
            "ingest": {"traces": len(traces), "seconds": ingested.seconds},
            "questions": [_record(o) for o in outcomes],
            "usage": memory.usage,
            "right": n_right,
            "of": len(asked),
        }
        emit(args, record, [*_meter(memory.usage), closing])
    return 0 if n_right == len(asked) else 1


def _print(lines: Iterator[str]) -> None:
    for line in lines:
        print(line)
    print(flush=True)


def _opening(
    traces: list[Trace], ingested: demo.Ingested, counted: Mapping[str, Any]
) -> Iterator[str]:
    who = " and ".join(dict.fromkeys(t.speaker for t in traces if t.speaker and t.role == "user"))
    times = sorted(t.time for t in traces if t.time)
    n_new = sum(a.created for a in ingested.added)
    yield show.wrapped(
        f"A conversation of {who}: {plural(len(traces), 'turn')} in "
        f"{plural(counted['sessions'], 'session')}, {times[0].start:%B %Y} to "
        f"{times[-1].start:%B %Y}.", "",
    )  # fmt: skip
    yield show.wrapped(
        f"Remembered: {n_new} new; {counted['tokens']} encoder tokens, "
        f"{counted['sentences']} sentences, {counted['entities']} entities, "
        f"{counted['store_bytes']:,} bytes on disk.", "",
    )  # fmt: skip
    yield f"time: {show.seconds(ingested.seconds)}"


def _outcome(n: int, outcome: demo.Outcome, n_evidence: int) -> Iterator[str]:
    answer, question = outcome.answer, outcome.question
    verdict = "right" if outcome.right else f"WRONG, expected {question.accepted[0]!r}"
    yield f"{n}. {question.text}"
    yield f"   = {show.clean(answer.text) or '(no answer)'}   [{question.kind}: {verdict}]"
    yield from show.citations(answer.citations, answer.retrieval, "   ")
    yield from show.steps(answer.steps, "   ")
    found = answer.retrieval
    cited = {c.id for c in answer.citations}
    shown = [e for i, e in enumerate(found) if i < n_evidence or e.id in cited]
    yield show.wrapped(f"route: {found.route} ({found.route_reason})", "   ", "     ")
    yield f"   evidence, {len(shown)} of {plural(len(found), 'item')}:"
    yield from show.evidence(shown, cited, "   ")
    yield show.wrapped(f"time: {show.seconds(outcome.seconds)}", "   ", "     ")
    yield f"   LLM tokens: {show.tokens(answer)}"


def _meter(usage: Mapping[str, TokenUsage]) -> Iterator[str]:
    shown = (f"{stage} {u.prompt + u.completion}" for stage, u in usage.items())
    yield f"LLM tokens by stage: {', '.join(shown)}"


def _record(outcome: demo.Outcome) -> dict[str, Any]:
    question = outcome.question
    return {
        **records.answer(outcome.answer),
        "seconds": dict(outcome.seconds),
        "kind": question.kind,
        "accepted": list(question.accepted),
        "gold": list(question.evidence),
        "right": outcome.right,
    }
