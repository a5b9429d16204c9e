"""Run methods over an evaluation set and score them."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.data import Dataset, Memory, Question
from harness.methods import Method, Outcome, Ranking
from harness.metrics import Scored, score_ranking, summarize
from harness.progress import progress


@dataclass
class Tally:
    """What one method has done so far."""

    scored: list[Scored] = field(default_factory=list)
    n_failed: int = 0
    n_asked: int = 0
    ingest_seconds: float = 0.0
    query_seconds: float = 0.0


Sink = Callable[[dict[str, Any]], object]


def run(dataset: Dataset, methods: Sequence[Method], sink: Sink | None = None) -> dict[str, Any]:
    """Rank every memory's questions with every method.

    Parameters
    ----------
    dataset : Dataset
    methods : sequence of Method
        The first of those that share an ingest is charged with it.
    sink : callable, optional
        Called with each ranking as a dictionary (method, memory, question, main, evidence).

    Returns
    -------
    dict
        Figures by method name, in the report's form.
    """
    tallies = {method.name: Tally() for method in methods}
    n_unresolved = 0
    n_bad_citations = 0
    try:
        if dataset.shared is not None:
            for method in methods:
                tallies[method.name].ingest_seconds += method.share(dataset.shared)
        for memory, questions in progress(dataset.tasks, dataset.name):
            n_unresolved += sum(not question.gold for question in questions)
            n_bad_citations += sum(question.n_bad_citations for question in questions)
            for method in methods:
                outcome = _attempt(method, memory, questions, tallies[method.name])
                for question, ranking in zip(questions, outcome.rankings, strict=True):
                    if question.gold:
                        scored = _score(memory, question, ranking)
                        tallies[method.name].scored.append(scored)
                    if sink is not None:
                        sink(_shown(method, memory, question, ranking))
    finally:
        for method in methods:
            method.close()
    return {
        name: {
            **summarize(tally.scored, sessions=dataset.sessions),
            "n_unresolved": n_unresolved,
            "n_unresolved_citations": n_bad_citations,
            "n_failed": tally.n_failed,
            "seconds": {
                "ingest": round(tally.ingest_seconds, 4),
                "per_query": round(tally.query_seconds / max(tally.n_asked, 1), 6),
            },
        }
        for name, tally in tallies.items()
    }


def _attempt(
    method: Method, memory: Memory, questions: Sequence[Question], tally: Tally
) -> Outcome:
    """Rank; a failure scores 0 for each of its questions, is shown, and is counted."""
    texts = [question.text for question in questions]
    try:
        outcome = method.rank(memory, texts)
    except Exception:
        traceback.print_exc(file=sys.stderr)
        print(f"{method.name} failed on {memory.name}", file=sys.stderr)
        tally.n_failed += len(questions)
        return Outcome((Ranking(),) * len(questions), 0.0, 0.0)
    tally.ingest_seconds += outcome.ingest_seconds
    tally.query_seconds += outcome.query_seconds
    tally.n_asked += len(questions)
    return outcome


def _score(memory: Memory, question: Question, ranking: Ranking) -> Scored:
    session_of = memory.session_of
    gold_sessions = frozenset(session_of[trace] for trace in question.gold)
    sessions = tuple(dict.fromkeys(session_of[trace] for trace in ranking.main))
    found = question.gold.intersection(trace for trace, _ in ranking.evidence)
    return Scored(
        category=question.category,
        main=score_ranking(ranking.main, question.gold),
        session=score_ranking(sessions, gold_sessions),
        evidence={
            "recall": len(found) / len(question.gold),
            "turns": float(len(ranking.evidence)),
            "tokens": float(sum(tokens for _, tokens in ranking.evidence)),
        },
    )


def _shown(method: Method, memory: Memory, question: Question, ranking: Ranking) -> dict[str, Any]:
    return {
        "method": method.name,
        "memory": memory.name,
        "question": question.text,
        "main": list(ranking.main),
        "evidence": [list(item) for item in ranking.evidence],
    }
