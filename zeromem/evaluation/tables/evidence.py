"""Rows of evidence recall: what every method that ranks puts where."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from zeromem.evaluation.run import retrieval
from zeromem.evaluation.tables.answers import WHOLE
from zeromem.evaluation.tables.rows import clusters, flat, with_intervals
from zeromem.evaluation.tables.setting import Setting
from zeromem.evaluation.types import Budget, Dataset

Row = dict[str, Any]

EVIDENCE_TOKENS = (600, 1200)
"""Sizes of R(q) in the retrieval tables."""


def evidence_rows(setting: Setting, dataset: Dataset, names: Sequence[str]) -> dict[str, Row]:
    """Rank with every method that ranks: a row by method name."""
    questions: dict[str, dict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    names = [name for name in names if name != WHOLE]
    setting.warm(names)
    made = setting.make(names)
    budgeted = {method.name: method.budgeted for method in made}
    contexts = dataset.files.get("contexts", {})
    documents = {key: contexts[key] for key in ("documents",) if key in contexts}

    def keep(row: Mapping[str, Any]) -> None:
        for key in ("recall@5", "recall@10"):
            questions[key][row["method"]][row["id"]] = row[key]
        setting.keep({"set": dataset.name, **documents, **row})

    smaller, whole = EVIDENCE_TOKENS
    figures = retrieval(dataset, made, Budget(None, whole), also=(smaller,), rows=keep)
    rows: dict[str, Row] = {}
    for name, mine in figures.items():
        kept = flat(mine if budgeted[name] else _evidence_alone(mine))
        rows[name] = {"set": dataset.name, "method": name, "budgeted": budgeted[name], **kept}
    cluster_of = clusters(dataset)
    ranking = {name: row for name, row in rows.items() if budgeted[name]}
    for key, scores in questions.items():
        mine = {name: scores[name] for name in ranking if name in scores}
        with_intervals(ranking, key, mine, cluster_of, setting.options.seed)
    return rows


def _evidence_alone(figures: Row) -> Row:
    """Leave out the main list's figures: a chunk has no order among its turns."""
    kept = ("evidence", "n_", "seconds")
    return {key: value for key, value in figures.items() if key.startswith(kept)}
