"""Answer figures: every definition of the scores, by category, with what stands beside them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, Final

from zeromem.evaluation.answering.failures import metered
from zeromem.evaluation.answering.judge import Judged
from zeromem.evaluation.metrics import answers as metrics
from zeromem.evaluation.metrics import bootstrap
from zeromem.evaluation.types import Answered, Dataset, Question

if TYPE_CHECKING:
    from zeromem.evaluation.answering.run import Answers

COLUMNS: Final = ("single-hop", "multi-hop", "temporal", "open-domain")
"""LoCoMo's categories in the order of the paper's tables; others follow as they come."""

_LOCOMO: Final = {
    "multi-hop": 1,
    "temporal": 2,
    "open-domain": 3,
    "single-hop": 4,
    "adversarial": 5,
}
_SPAN_SETS: Final = frozenset({"hotpotqa", "musique", "2wiki", "twowiki", "2wikimultihopqa"})
_TOKENS: Final = ("prompt", "cached", "completion", "calls")


@dataclass(frozen=True)
class Scored:
    """One question's figures under one method.

    Attributes
    ----------
    id, history, category : str
    metrics : dict
        Answer scores by name; empty where the set has no right answer for the question.
    recall : float, optional
        Share of the gold traces among the evidence shown; None without resolvable gold.
    row : Answered
    """

    id: str
    history: str
    category: str
    metrics: dict[str, float]
    recall: float | None
    row: Answered


def score(
    dataset: Dataset,
    answered: Mapping[str, Answers],
    *,
    judged: Mapping[str, Judged] | None = None,
    resamples: int = bootstrap.RESAMPLES,
    seed: int = 0,
) -> dict[str, dict[str, Any]]:
    """Score every method's answers.

    Parameters
    ----------
    dataset : Dataset
    answered : mapping
        From :func:`zeromem.evaluation.answering.run.answer`.
    judged : mapping, optional
        From :func:`zeromem.evaluation.answering.judge.judge`.
    resamples, seed : int
        Of the bootstrap interval.

    Returns
    -------
    dict
        By method name: ``answers`` (means over questions, so that categories count by size),
        ``by_category``, ``interval`` (empty where there is one cluster alone), ``evidence``,
        ``reader`` (with ``n_unmetered``, the samples whose tokens the endpoint did not report and
        that no token figure counts), ``seconds``, ``calibration`` where the method calibrates,
        ``corrected`` where the set has corrected labels, ``judged`` where it was (with its own
        ``n_unmetered``, and ``tokens_per_verdict``), ``rows`` with every question's own
        figures, and counts. Scores are shares; failed samples are in them with 0.
    """
    asked = [(history.name, q) for history, questions in dataset.tasks for q in questions]
    return {
        name: _figures(dataset, asked, mine, (judged or {}).get(name), resamples, seed)
        for name, mine in answered.items()
    }


def _figures(
    dataset: Dataset,
    asked: Sequence[tuple[str, Question]],
    mine: Answers,
    judged: Judged | None,
    resamples: int,
    seed: int,
) -> dict[str, Any]:
    scored = score_rows(dataset, asked, mine.rows)
    out: dict[str, Any] = {
        **summary(scored),
        "interval": _intervals(dataset, scored, resamples, seed),
        "n_failed": sum(s.row.error is not None for s in scored),
        "failures": mine.failures,
        "n_unresolved": sum(not q.gold for _, q in asked),
        "n_unresolved_citations": sum(q.n_bad_citations for _, q in asked),
        "n_without_answer": sum(not s.metrics for s in scored),
        "reader": {"fingerprint": mine.reader, "calibrates": mine.calibrates, **_usage(scored)},
        "budget": {**asdict(mine.budget), "kept": mine.budgeted},
        "seconds": {
            **{stage: round(s, 4) for stage, s in mine.seconds.items()},
            "read_median": median([s.row.seconds for s in scored if not s.row.error] or [0.0]),
        },
    }
    if mine.calibrates:
        out["calibration"] = calibration(asked, mine.rows)
    if dataset.corrected:
        fixed = [(name, dataset.corrected.get(q.id, q)) for name, q in asked]
        out["corrected"] = {
            **summary(score_rows(dataset, fixed, mine.rows)),
            "n_corrected": sum(q.id in dataset.corrected for _, q in asked),
        }
    if judged is not None:
        out["judged"] = _judged(scored, judged)
    out["rows"] = [_row(s, judged) for s in scored]
    return out


def score_rows(
    dataset: Dataset, asked: Sequence[tuple[str, Question]], rows: Sequence[Answered]
) -> list[Scored]:
    """Score answers one by one.

    Parameters
    ----------
    dataset : Dataset
        Its name decides which definitions apply.
    asked : sequence of (str, Question)
        History and labels, in the order of ``rows``.
    rows : sequence of Answered
    """
    out = []
    for (history, q), row in zip(asked, rows, strict=True):
        if q.id != row.question_id:
            raise ValueError(f"answers must be in the data set's order: {row.question_id} is where "
                             f"{q.id} is expected")  # fmt: skip
        recall = len(q.gold.intersection(row.evidence)) / len(q.gold) if q.gold else None
        out.append(Scored(q.id, history, q.category, _scores(dataset, q, row), recall, row))
    return out


def _scores(dataset: Dataset, q: Question, row: Answered) -> dict[str, float]:
    number = _LOCOMO.get(q.category, 4) if dataset.name == "locomo" else 4
    golds = q.answers
    if number == 5 and not golds:
        golds = ("",)  # right is whatever says that there is no answer
    elif not golds:
        return {}
    used: dict[str, Callable[[str, str], float]] = {
        "gam_f1": metrics.gam_f1,
        "gam_bleu1": metrics.gam_bleu1,
        "amem_f1": metrics.amem_f1,
        "amem_bleu1": metrics.amem_bleu1,
        "locomo_f1": lambda said, gold: metrics.locomo_f1(said, gold, number),
    }
    if dataset.name in _SPAN_SETS:
        used |= {"hotpot_f1": metrics.hotpot_f1, "hotpot_em": metrics.hotpot_em}
    if row.error is not None:
        return dict.fromkeys(used, 0.0)
    return {name: metrics.best(metric, row.answer, golds) for name, metric in used.items()}


def summary(scored: Sequence[Scored]) -> dict[str, Any]:
    """Average over questions, and within each category in the tables' order."""
    found = dict.fromkeys(s.category for s in scored)
    order = [c for c in COLUMNS if c in found] + [c for c in found if c not in COLUMNS]
    return {
        **_averages(scored),
        "by_category": {c: _averages([s for s in scored if s.category == c]) for c in order},
    }


def _averages(scored: Sequence[Scored]) -> dict[str, Any]:
    with_answer = [s.metrics for s in scored if s.metrics]
    return {
        "n_questions": len(scored),
        "answers": {name: fmean(m[name] for m in with_answer) for name in (with_answer or [{}])[0]},
        "evidence": {
            "recall": _mean(s.recall for s in scored if s.recall is not None),
            "items": _mean(len(s.row.evidence) for s in scored),
            "tokens": _mean(s.row.tokens.get("evidence", 0) for s in scored),
        },
    }


def _mean(values: Iterable[float]) -> float | None:
    """A mean, or None where there is nothing to take it over."""
    listed = list(values)
    return fmean(listed) if listed else None


def _intervals(
    dataset: Dataset, scored: Sequence[Scored], resamples: int, seed: int
) -> dict[str, Any]:
    known = [s for s in scored if s.metrics]
    clusters = [s.history if dataset.cluster == "history" else s.id for s in known]
    if len({*clusters}) < 2:  # one conversation says nothing about others
        return {}
    return {
        name: asdict(
            bootstrap.interval(
                [s.metrics[name] for s in known], clusters, resamples=resamples, seed=seed
            )
        )
        for name in known[0].metrics
    } | {"cluster": dataset.cluster, "resamples": resamples, "seed": seed}


def _usage(scored: Sequence[Scored]) -> dict[str, Any]:
    """The reader's tokens, in all and per question, over the samples whose tokens are known.

    A token figure is None where none of them is; calls are known always.
    """
    found: dict[str, list[int]] = {
        name: [s.row.tokens[name] for s in scored if name in s.row.tokens] for name in _TOKENS
    }
    return {
        "total": {name: sum(known) if known else None for name, known in found.items()},
        "per_question": {name: _mean(known) for name, known in found.items()},
        "n_unmetered": len(found["calls"]) - len(found["prompt"]),
    }


def calibration(asked: Sequence[tuple[str, Question]], rows: Sequence[Answered]) -> dict[str, Any]:
    """Count what answer calibration did, by GAM F1.

    Returns
    -------
    dict
        ``changed``, ``improved`` and ``harmed`` drafts, ``correct_lowered`` (those that scored 1
        and then less, which must not happen), and the ``actions`` taken.
    """
    out = dict.fromkeys(("drafts", "changed", "improved", "harmed", "correct_lowered"), 0)
    actions: Counter[str] = Counter()
    for (_, q), row in zip(asked, rows, strict=True):
        if row.error is not None or not q.answers:
            continue
        before, after = (
            metrics.best(metrics.gam_f1, text, q.answers) for text in (row.draft, row.answer)
        )
        out["drafts"] += bool(row.draft)
        out["changed"] += row.draft != row.answer
        out["improved"] += after > before
        out["harmed"] += after < before
        out["correct_lowered"] += after < before == 1
        actions.update(row.actions)
    return {**out, "actions": dict(actions)}


def _judged(scored: Sequence[Scored], judged: Judged) -> dict[str, Any]:
    """Judged accuracy: a failed verdict is no point, and is counted as failed."""
    known = [(s, judged.verdicts[s.id]) for s in scored if s.id in judged.verdicts]
    categories = dict.fromkeys(s.category for s, _ in known)
    order = [c for c in COLUMNS if c in categories] + [c for c in categories if c not in COLUMNS]
    errors = Counter(v.error for _, v in known if v.error is not None)
    spent = [v.usage for _, v in known if metered(v.usage)]
    return {
        "accuracy": _mean(v.correct for _, v in known),
        "by_category": {c: _mean(v.correct for s, v in known if s.category == c) for c in order},
        "n_judged": len(known),
        "n_failed": errors.total(),
        "failures": dict(errors),
        "tokens": asdict(judged.usage),
        "tokens_per_verdict": _mean(u.prompt + u.completion for u in spent),
        "n_unmetered": len(known) - len(spent),
        "fingerprint": judged.fingerprint,
    }


def _row(s: Scored, judged: Judged | None) -> dict[str, Any]:
    out: dict[str, Any] = {
        "id": s.id, "history": s.history, "category": s.category, **s.metrics,
        "recall": s.recall, "seconds": s.row.seconds, "error": s.row.error,
        "tokens": dict(s.row.tokens),
    }  # fmt: skip
    if judged is not None and s.id in judged.verdicts:
        out["judged"] = judged.verdicts[s.id].correct
    return out
