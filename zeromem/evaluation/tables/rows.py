"""Rows of results: figures by dotted names, with intervals."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from zeromem.evaluation.metrics import bootstrap
from zeromem.evaluation.types import Dataset, Method

REFERENCE = "hybrid"
"""The method whose difference every row shows: what does not beat it has not earned its place."""
DIGITS = 6


def flat(figures: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Name nested figures by their path: ``{"a": {"b": 1}}`` becomes ``{"a.b": 1}``."""
    found: dict[str, Any] = {}
    for key, value in figures.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = rounded(value)
    return found


def rounded(value: Any) -> Any:
    """Round a float to what any table could show of it."""
    return round(value, DIGITS) if isinstance(value, float) else value


def counted(n: int, thing: str) -> str:
    """Count in words: ``1 sample``, ``2,000 samples``."""
    return f"{n:,} {thing}{'' if n == 1 else 's'}"


def clusters(dataset: Dataset) -> dict[str, Hashable]:
    """Return what the bootstrap resamples each question with, by question id."""
    return {
        question.id: history.name if dataset.cluster == "history" else question.id
        for history, questions in dataset.tasks
        for question in questions
    }


def with_intervals(
    rows: Mapping[str, dict[str, Any]],
    key: str,
    scores: Mapping[str, Mapping[str, float]],
    cluster_of: Mapping[str, Hashable],
    seed: int,
) -> None:
    """Add a figure's 95% interval, and its paired difference to the reference method.

    Parameters
    ----------
    rows : mapping
        By method name; changed in place.
    key : str
        The figure's.
    scores : mapping
        Per method, each question's share by its id.
    cluster_of : mapping
        From :func:`clusters`.
    seed : int
    """
    reference = scores.get(REFERENCE)
    for name, row in rows.items():
        mine = scores.get(name)
        if not mine or len({cluster_of[id] for id in mine}) < 2:
            continue  # one conversation says nothing about others
        found = bootstrap.interval(list(mine.values()), [cluster_of[id] for id in mine], seed=seed)
        row[f"{key}.interval"] = [rounded(found.low), rounded(found.high)]
        if reference is None or name == REFERENCE or reference.keys() != mine.keys():
            continue
        found = bootstrap.difference(
            list(mine.values()),
            [reference[id] for id in mine],
            [cluster_of[id] for id in mine],
            seed=seed,
        )
        row[f"{key}.minus_{REFERENCE}"] = rounded(found.mean)
        row[f"{key}.minus_{REFERENCE}.interval"] = [rounded(found.low), rounded(found.high)]


def named(method: Method, **more: Any) -> dict[str, Any]:
    """Begin a row: whose it is, and whether it keeps within the budget."""
    return {**more, "method": method.name, "budgeted": method.budgeted}
