"""Retrieval metrics over ranked ids with set-valued gold. All are shares between 0 and 1."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

RECALL_KS = (1, 5, 10, 20)
HIT_KS = (1, 5, 10, 20)
NDCG_KS = (10,)
ALL_GOLD_KS = (5, 10)


def recall_at(ranked: Sequence[str], gold: frozenset[str], k: int) -> float:
    """Share of the gold ids among the first k places."""
    return len(gold.intersection(ranked[:k])) / len(gold)


def hit_at(ranked: Sequence[str], gold: frozenset[str], k: int) -> float:
    """Whether at least one gold id stands in the first k places."""
    return float(not gold.isdisjoint(ranked[:k]))


def all_gold_at(ranked: Sequence[str], gold: frozenset[str], k: int) -> float:
    """Whether every gold id stands in the first k places."""
    return float(gold.issubset(ranked[:k]))


def reciprocal_rank(ranked: Sequence[str], gold: frozenset[str]) -> float:
    """One over the rank of the first gold id; 0 where none is listed."""
    return next((1 / rank for rank, found in enumerate(ranked, 1) if found in gold), 0.0)


def ndcg_at(ranked: Sequence[str], gold: frozenset[str], k: int) -> float:
    """NDCG with binary gains."""
    gain = sum(1 / math.log2(rank + 1) for rank, found in enumerate(ranked[:k], 1) if found in gold)
    ideal = sum(1 / math.log2(rank + 1) for rank in range(1, min(len(gold), k) + 1))
    return gain / ideal


def score_ranking(ranked: Sequence[str], gold: frozenset[str]) -> dict[str, float]:
    """Every ranking metric of one question.

    Parameters
    ----------
    ranked : sequence of str
        Best first, each id once.
    gold : frozenset of str
        Not empty.
    """
    return {
        **{f"recall@{k}": recall_at(ranked, gold, k) for k in RECALL_KS},
        **{f"hit@{k}": hit_at(ranked, gold, k) for k in HIT_KS},
        "mrr": reciprocal_rank(ranked, gold),
        **{f"ndcg@{k}": ndcg_at(ranked, gold, k) for k in NDCG_KS},
        **{f"all_gold@{k}": all_gold_at(ranked, gold, k) for k in ALL_GOLD_KS},
    }


@dataclass(frozen=True)
class Scored:
    """One question's outcome.

    Attributes
    ----------
    category : str
    main : mapping
        Of the main list, by :func:`score_ranking`; empty where only sessions are labelled.
    session : mapping
        The same where a session counts as found with any of its traces.
    evidence : mapping of str to mapping
        ``recall``, ``turns`` and ``tokens`` of R(q), by the budget's key in the report; likewise.
    """

    category: str
    main: Mapping[str, float]
    session: Mapping[str, float]
    evidence: Mapping[str, Mapping[str, float]]


def mean(rows: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Column means of rows with the same keys."""
    rows = list(rows)
    if not rows:
        return {}
    return {key: sum(row[key] for row in rows) / len(rows) for key in rows[0]}


def summarize(scored: Sequence[Scored], *, sessions: bool) -> dict[str, object]:
    """Average over questions, in the form of the report."""
    out = _averages(scored, sessions)
    out["by_category"] = {
        category: _averages([s for s in scored if s.category == category], sessions)
        for category in sorted({s.category for s in scored})
    }
    return out


def _averages(scored: Sequence[Scored], sessions: bool) -> dict[str, object]:
    by_trace = [s for s in scored if s.main]
    out: dict[str, object] = dict(mean(s.main for s in by_trace))
    out["evidence"] = {}
    for name in dict.fromkeys(name for s in by_trace for name in s.evidence):
        out[name] = mean(s.evidence[name] for s in by_trace)
    if sessions:
        out["session"] = {**mean(s.session for s in scored), "n_questions": len(scored)}
    out["n_questions"] = len(by_trace)
    return out
