"""What a method promises, held against what it gave."""

from __future__ import annotations

from collections.abc import Sequence

from zeromem.evaluation.types import Budget, Found, History, Method


def check_ranked(history: History, ranked: Sequence[str]) -> None:
    """Refuse a main list that repeats a trace or names one that is not there.

    Raises
    ------
    ValueError
    """
    if len(set(ranked)) != len(ranked):
        twice = next(trace for trace in ranked if ranked.count(trace) > 1)
        raise ValueError(f"rank gave {twice!r} more than once; a trace's rank is its best piece's")
    _check_known(history, ranked)


def check_found(method: Method, history: History, found: Found, budget: Budget) -> None:
    """Refuse evidence of other traces, or beyond a budget that the method says it keeps.

    Raises
    ------
    ValueError
    """
    _check_known(history, [item.id for item in found.evidence])
    tokens = sum(item.n_tokens for item in found.evidence)
    if method.budgeted and budget.tokens is not None and tokens > budget.tokens:
        raise ValueError(
            f"{method.name} gave {tokens} tokens of evidence, the budget is {budget.tokens}; a "
            "method that reads more by its definition says budgeted = False"
        )


def _check_known(history: History, traces: Sequence[str]) -> None:
    known = history.session_of
    if unknown := [trace for trace in traces if trace not in known]:
        raise ValueError(f"{unknown[0]!r} is no trace of history {history.name!r}")
