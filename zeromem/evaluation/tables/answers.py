"""Rows of answer scores: answered, scored and judged, with the evidence's recall beside them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from zeromem.errors import ImportFormatError
from zeromem.evaluation.answering import run as answering
from zeromem.evaluation.answering import typed
from zeromem.evaluation.answering.judge import Judged, judge
from zeromem.evaluation.tables.rows import clusters, flat, rounded, with_intervals
from zeromem.evaluation.tables.setting import Setting
from zeromem.evaluation.types import Budget, Dataset

MILLION = 1_000_000
WHOLE = "long-llm"
"""Gives the reader everything, which only a language model reads in reasonable time."""
PRICED = ("prompt", "cached", "completion")
Figures = Mapping[str, Any]


def answer_rows(
    setting: Setting,
    dataset: Dataset,
    names: Sequence[str],
    *,
    budget: Budget | None = None,
    judged: bool = False,
    types: bool = False,
    key: str = "gam_f1",
) -> Iterator[dict[str, Any]]:
    """Answer a set with every reader and method; yield a row for each.

    Parameters
    ----------
    setting : Setting
    dataset : Dataset
    names : sequence of str
        Of methods. The extractive reader leaves out long-llm unless ``--methods`` names it.
    budget : Budget, optional
        The setting's by default.
    judged : bool
        Whether the judge is asked too, where there is one.
    types : bool
        Whether each row is followed by one per type of answer, with ``shape`` "type".
    key : str
        The score whose interval and difference are given, as :func:`score` names it.
    """
    jobs, seed = setting.options.jobs, setting.options.seed
    cluster_of = clusters(dataset)
    for reader_name, reader in setting.readers.items():
        unread = {WHOLE} if reader_name == "extractive" and not setting.options.methods else set()
        made = setting.make(name for name in names if name not in unread)
        answers = answering.answer(dataset, made, reader, budget or setting.budget, jobs=jobs)
        judging = setting.judge if judged else None
        verdicts = judge(dataset, answers, judging, jobs=jobs) if judging is not None else None
        figures = answering.score(dataset, answers, judged=verdicts, seed=seed)
        _keep(setting, dataset, reader_name, answers, figures, verdicts)
        rows = {
            name: {
                "set": dataset.name,
                "reader": reader_name,
                "method": name,
                "budgeted": answers[name].budgeted,
                **row(mine),
            }
            for name, mine in figures.items()
        }
        with_intervals(rows, _named(key), _questions(figures, key), cluster_of, seed)
        if verdicts is not None:
            with_intervals(rows, "accuracy", _questions(figures, "judged"), cluster_of, seed)
        for name, whole in rows.items():
            if not types:
                yield whole
                continue
            report = typed.report(dataset, answers[name])
            yield whole | flat({"dates": report["dates"]})
            whose = {key: whole[key] for key in ("set", "reader", "method", "budgeted")}
            for kind, figures_of in report["by_type"].items():
                yield {**whose, "shape": "type", "type": kind, **flat(figures_of)}


def _keep(
    setting: Setting,
    dataset: Dataset,
    reader: str,
    answers: Mapping[str, answering.Answers],
    figures: Mapping[str, Figures],
    verdicts: Mapping[str, Judged] | None,
) -> None:
    """Hand on every question's own answer, scores and costs."""
    if not setting.keeps_rows:
        return
    gold = {question.id: question for _, questions in dataset.tasks for question in questions}
    contexts = dataset.files.get("contexts", {})
    for name, mine in answers.items():
        judged = verdicts[name].verdicts if verdicts is not None else {}
        for said, scored in zip(mine.rows, figures[name]["rows"], strict=True):
            question = gold[said.question_id]
            fixed = dataset.corrected.get(question.id)
            verdict = judged.get(question.id)
            setting.keep(
                {
                    "set": dataset.name,
                    "reader": reader,
                    "method": name,
                    "k": mine.budget.k,
                    **({"documents": contexts["documents"]} if contexts else {}),
                    **scored,
                    "question": question.query.text,
                    "answer": said.answer,
                    "draft": said.draft,
                    "actions": list(said.actions),
                    "gold": list(question.answers),
                    **({"gold_corrected": list(fixed.answers)} if fixed is not None else {}),
                    "gold_evidence": sorted(question.gold),
                    "evidence": list(said.evidence),
                    **({"judge_error": verdict.error} if verdict is not None else {}),
                }
            )


def row(figures: Figures) -> dict[str, Any]:
    """Turn one method's figures into a row.

    Parameters
    ----------
    figures : mapping
        Of :func:`zeromem.evaluation.answering.scoring.score`.
    """
    found = scores(figures)
    if "corrected" in figures:
        found |= scores(figures["corrected"], "corrected.")
        found["n_corrected"] = figures["corrected"]["n_corrected"]
    spent = figures["reader"]["per_question"]
    found |= {
        **flat({"evidence": figures["evidence"]}),
        "n_questions": figures["n_questions"],
        "n_failed": figures["n_failed"],
        "n_unresolved": figures["n_unresolved"],
        "n_unresolved_citations": figures["n_unresolved_citations"],
        "failures": figures["failures"],
        "reader_tokens": _sum(spent["prompt"], spent["completion"]),
        "n_unmetered": figures["reader"]["n_unmetered"],
        **{f"{kind}_tokens": rounded(spent[kind]) for kind in PRICED},
        "median_seconds": rounded(figures["seconds"]["read_median"]),
        **flat({"calibration": figures.get("calibration", {})}),
    }
    judged = figures.get("judged")
    if judged is not None:
        found |= {
            "accuracy": rounded(judged["accuracy"]),
            **{f"accuracy.{c}": rounded(share) for c, share in judged["by_category"].items()},
            "n_judged": judged["n_judged"],
            "n_judge_failed": judged["n_failed"],
            "judge_tokens": rounded(judged["tokens_per_verdict"]),
        }
    return found


def _sum(*parts: float | None) -> float | None:
    """Add token figures; None where one is not known."""
    known = [part for part in parts if part is not None]
    return rounded(sum(known)) if len(known) == len(parts) else None


def scores(figures: Figures, prefix: str = "") -> dict[str, Any]:
    """Name every answer score by definition, metric and category: ``gam.f1.multi-hop``."""
    parts = {**figures["by_category"], "average": figures}
    return {
        f"{prefix}{_named(name, category)}": rounded(value)
        for category, part in parts.items()
        for name, value in part["answers"].items()
    }


def _named(score: str, category: str = "average") -> str:
    definition, _, metric = score.partition("_")
    return f"{definition}.{metric}.{category}"


def _questions(figures: Mapping[str, Figures], key: str) -> dict[str, dict[str, float]]:
    """Return each question's own score by method, of the questions that have one."""
    return {
        name: {row["id"]: float(row[key]) for row in mine["rows"] if row.get(key) is not None}
        for name, mine in figures.items()
    }


def cost(row: Mapping[str, Any], prices: Mapping[str, Any]) -> float | None:
    """Price a row's average question in USD; None where its model has no price.

    None too where the endpoint did not say how many tokens it took.

    Parameters
    ----------
    row : mapping
    prices : mapping
        By model name: USD per million ``prompt``, ``cached`` and ``completion`` tokens. Cached
        tokens are part of the prompt's and are priced at their own rate.

    Raises
    ------
    ImportFormatError
        Where a model's prices are incomplete.
    """
    rates = prices.get(row["reader"])
    if rates is None:
        return None
    for kind in PRICED:
        if not isinstance(rates, Mapping) or not isinstance(rates.get(kind), int | float):
            raise ImportFormatError(
                f"--prices: {row['reader']!r} needs {', '.join(PRICED)} in USD per million "
                f"tokens, got {rates!r}"
            )
    if any(row[f"{kind}_tokens"] is None for kind in PRICED):
        return None
    prompt = row["prompt_tokens"] - row["cached_tokens"]
    spent = (
        prompt * rates["prompt"]
        + row["cached_tokens"] * rates["cached"]
        + row["completion_tokens"] * rates["completion"]
    )
    return float(spent / MILLION)
