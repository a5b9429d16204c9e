"""Run methods over an evaluation set and score what they retrieve."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from zeromem.evaluation.checks import check_found, check_ranked
from zeromem.evaluation.metrics.retrieval import Scored, score_ranking, summarize
from zeromem.evaluation.types import Budget, Dataset, Found, History, Method, Question
from zeromem.progress import progress_bar

Sink = Callable[[dict[str, Any]], object]


@dataclass
class Tally:
    """What one method has done so far."""

    scored: list[Scored] = field(default_factory=list)
    n_failed: int = 0
    n_asked: int = 0
    ingest_seconds: float = 0.0
    query_seconds: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """One question's retrieval.

    Attributes
    ----------
    main : tuple of str
        Trace ids of the main list.
    evidence : tuple of (tuple of (str, int))
        Trace id and tokens of each item of R(q), for each budget.
    """

    main: tuple[str, ...]
    evidence: tuple[tuple[tuple[str, int], ...], ...]


def retrieval(
    dataset: Dataset,
    methods: Sequence[Method],
    budget: Budget,
    sink: Sink | None = None,
    *,
    also: Sequence[int] = (),
    rows: Sink | None = None,
) -> dict[str, dict[str, Any]]:
    """Rank every history's questions with every method.

    Parameters
    ----------
    dataset : Dataset
    methods : sequence of Method
        The first of those that share an ingest is charged with it. They are closed at the end.
    budget : Budget
        Of R(q): ``evidence`` in the figures.
    sink : callable, optional
        Called with what each method retrieved for each question (method, history, id, question,
        main, evidence): nothing in it depends on a label.
    also : sequence of int
        Further token budgets for R(q): ``evidence@N`` in the figures.
    rows : callable, optional
        Called with each scored question's own figures (method, history, id, category, and the
        shares that the averages are made of), for a paired bootstrap.

    Returns
    -------
    dict
        Figures by method name.
    """
    budgets = (budget, *(replace(budget, tokens=tokens) for tokens in also))
    tallies = {method.name: Tally() for method in methods}
    n_unresolved = 0
    n_bad_citations = 0
    try:
        if dataset.shared is not None:
            for method in methods:
                start = time.perf_counter()
                method.share(dataset.shared)
                tallies[method.name].ingest_seconds += time.perf_counter() - start
        with progress_bar(dataset.tasks, dataset.name, None) as bar:
            for history, questions in bar:
                n_unresolved += sum(not question.gold for question in questions)
                n_bad_citations += sum(question.n_bad_citations for question in questions)
                for method in methods:
                    tally = tallies[method.name]
                    outcomes = _attempt(method, history, questions, budgets, tally)
                    for question, outcome in zip(questions, outcomes, strict=True):
                        _record(method, history, question, outcome, also, tally, sink, rows)
    finally:
        for method in methods:
            try:
                method.close()
            except Exception:  # nothing measured is lost for it
                _show(method, "closing")
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
    method: Method,
    history: History,
    questions: Sequence[Question],
    budgets: Sequence[Budget],
    tally: Tally,
) -> list[Outcome]:
    """Retrieve; what fails scores 0, is shown and counted.

    Where the questions together fail, each is asked alone, so that one spoils no other.
    """
    nothing = Outcome((), ((),) * len(budgets))
    start = time.perf_counter()
    try:
        method.index(history)
    except Exception:
        _show(method, history.name)
        tally.n_failed += len(questions)
        return [nothing] * len(questions)
    tally.ingest_seconds += time.perf_counter() - start
    try:
        return _ask(method, history, questions, budgets, tally)
    except Exception:
        _show(method, history.name)
    outcomes = []
    for question in questions:
        try:
            outcomes += _ask(method, history, [question], budgets, tally)
        except Exception as error:
            what = f"question {question.id} of {history.name}"
            print(f"{method.name} failed on {what}: {error!r}", file=sys.stderr)
            tally.n_failed += 1
            outcomes.append(nothing)
    return outcomes


def _show(method: Method, where: str) -> None:
    traceback.print_exc(file=sys.stderr)
    print(f"{method.name} failed on {where}", file=sys.stderr)


def _ask(
    method: Method,
    history: History,
    questions: Sequence[Question],
    budgets: Sequence[Budget],
    tally: Tally,
) -> list[Outcome]:
    """Rank and find for some of a history's questions; only what succeeds is timed."""
    queries = [question.query for question in questions]
    start = time.perf_counter()
    mains = method.rank(queries)
    ranked = time.perf_counter()
    found = [method.find(queries, budget) for budget in budgets]
    outcomes = [
        Outcome(main, tuple(_items(f) for f in parts))
        for main, *parts in zip(mains, *found, strict=True)
    ]
    if len(outcomes) != len(questions):
        raise ValueError(f"{len(questions)} queries got {len(outcomes)} rankings")
    for main in mains:
        check_ranked(history, main)
    for budget, given in zip(budgets, found, strict=True):
        for one in given:
            check_found(method, history, one, budget)
    tally.query_seconds += ranked - start
    tally.n_asked += len(questions)
    return outcomes


def _items(found: Found) -> tuple[tuple[str, int], ...]:
    return tuple((item.id, item.n_tokens) for item in found.evidence)


def _record(
    method: Method,
    history: History,
    question: Question,
    outcome: Outcome,
    also: Sequence[int],
    tally: Tally,
    sink: Sink | None,
    rows: Sink | None,
) -> None:
    """Score one question and hand it on."""
    named = {"method": method.name, "history": history.name, "id": question.id}
    if question.gold or question.gold_sessions:
        scored = _score(history, question, outcome, also)
        tally.scored.append(scored)
        if rows is not None and question.gold:
            rows({**named, "category": question.category, **scored.main, **scored.evidence})
    if sink is not None:
        evidence = [list(item) for item in outcome.evidence[0]]
        sink(
            {
                **named,
                "question": question.query.text,
                "main": list(outcome.main),
                "evidence": evidence,
            }
        )


def _score(history: History, question: Question, outcome: Outcome, also: Sequence[int]) -> Scored:
    session_of = history.session_of
    gold_sessions = question.gold_sessions or {session_of[trace] for trace in question.gold}
    sessions = tuple(dict.fromkeys(session_of[trace] for trace in outcome.main))
    names = ("evidence", *(f"evidence@{tokens}" for tokens in also))
    return Scored(
        category=question.category,
        main=score_ranking(outcome.main, question.gold) if question.gold else {},
        session=score_ranking(sessions, frozenset(gold_sessions)),
        evidence={
            name: _held(question, items)
            for name, items in zip(names, outcome.evidence, strict=True)
            if question.gold
        },
    )


def _held(question: Question, items: Sequence[tuple[str, int]]) -> dict[str, float]:
    found = question.gold.intersection(trace for trace, _ in items)
    return {
        "recall": len(found) / len(question.gold),
        "turns": float(len(items)),
        "tokens": float(sum(tokens for _, tokens in items)),
    }
