"""Which figures of a result each rendered table shows, and under which headings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ABILITIES = (
    "abstention",
    "contradiction_resolution",
    "event_ordering",
    "information_extraction",
    "instruction_following",
    "knowledge_update",
    "multi_session_reasoning",
    "preference_following",
    "summarization",
    "temporal_reasoning",
)
"""BEAM's kinds of question."""
CATEGORIES = ("single-hop", "multi-hop", "temporal", "open-domain", "average")
LENGTHS = {"56K": 400, "224K": 1600, "448K": 3200}
"""Table 3's columns and their documents per context."""
QUESTION_TYPES = (
    "single-session-user",
    "single-session-assistant",
    "single-session-preference",
    "multi-session",
    "temporal-reasoning",
    "knowledge-update",
    "abstention",
)
"""LongMemEval's kinds of question."""
KS = (1, 3, 5, 10, 15, 20)
"""Figure 4's sizes of the main list."""
SETS = {
    "locomo": "LoCoMo",
    "hotpotqa": "HotpotQA",
    "beam": "BEAM",
    "longmemeval": "LongMemEval",
    "musique": "MuSiQue",
    "twowiki": "2WikiMultihopQA",
}


@dataclass(frozen=True)
class Column:
    """A column: one figure, or several side by side with a slash between.

    Attributes
    ----------
    title : str
    keys : tuple of str
        Of a result's row, each a figure or a text.
    kind : str
        ``"text"``, ``"share"`` (shown in percent, two decimals), ``"interval"`` (of shares),
        ``"points"`` (a signed difference of shares), ``"count"``, ``"mean"`` (one decimal),
        ``"seconds"``, ``"milliseconds"`` (from seconds), ``"money"``, ``"figure"`` (three digits
        that count), ``"thousandths"`` (the same of a thousandth's number, such as milliseconds) or
        ``"millions"`` (such as MB).
    interval : bool
        Whether the row's ``KEY.interval`` is shown with it.
    """

    title: str
    keys: tuple[str, ...]
    kind: str = "share"
    interval: bool = False


@dataclass(frozen=True)
class View:
    """One rendered table.

    Attributes
    ----------
    name : str
        Of the Markdown block, and of the published table shown beside it.
    table : str
        Of the results it is made from.
    title : str
    columns : tuple of Column
    where : mapping
        Values that a row must have.
    """

    name: str
    table: str
    title: str
    columns: tuple[Column, ...]
    where: Mapping[str, Any] = field(default_factory=dict)


def _column(title: str, *keys: str, kind: str = "share", interval: bool = False) -> Column:
    return Column(title, keys, kind, interval)


READER = _column("Reader", "reader", kind="text")
METHOD = _column("Method", "method", kind="text")
FAILED = _column("failed", "n_failed", kind="count")
UNRESOLVED = _column("questions / unresolved", "n_questions", "n_unresolved", kind="count")
EVIDENCE = (
    _column("R(q) recall", "evidence.recall"),
    _column("R(q) items / tokens", "evidence.items", "evidence.tokens", kind="mean"),
)
SPENT = _column("reader tokens / question", "reader_tokens", kind="mean")


def _against(key: str) -> tuple[Column, Column]:
    return (
        _column("F1 95%" if ".f1." in key else "95%", f"{key}.interval", kind="interval"),
        _column("− hybrid [95%]", f"{key}.minus_hybrid", kind="points", interval=True),
    )


def _scores(definition: str, *, bleu: bool = True, prefix: str = "") -> tuple[Column, ...]:
    metrics = ("f1", "bleu1") if bleu else ("f1",)
    return tuple(
        _column(c, *(f"{prefix}{definition}.{metric}.{c}" for metric in metrics))
        for c in CATEGORIES
    )


def _table1() -> list[View]:
    tail = (*EVIDENCE, SPENT, FAILED, UNRESOLVED)
    corrected = _column(
        "average, corrected labels",
        "corrected.gam.f1.average",
        "corrected.gam.bleu1.average",
    )
    judged = _column("judged accuracy [95%]", "accuracy", interval=True)
    gam = (*_scores("gam"), corrected, *_against("gam.f1.average"), judged)
    shown = (
        ("table1", "F1 / BLEU-1, GAM's definition, as the paper's", (*gam, *tail)),
        (
            "table1-corrected",
            "F1 / BLEU-1, GAM's definition, with the published label corrections",
            (*_scores("gam", prefix="corrected."), UNRESOLVED),
        ),
        ("table1-amem", "F1 / BLEU-1, A-Mem's and SimpleMem's definition", _scores("amem")),
        ("table1-locomo", "F1, LoCoMo's own definition", _scores("locomo", bleu=False)),
    )
    return [
        View(name, "table1", f"LoCoMo: {title}", (READER, METHOD, *columns))
        for name, title, columns in shown
    ]


def _table2() -> View:
    columns = (
        READER,
        METHOD,
        _column("F1 / BLEU-1", "gam.f1.average", "gam.bleu1.average"),
        _column("memory LLM tokens", "memory_tokens", kind="count"),
        _column("tokens / query", "memory_tokens_per_query", kind="mean"),
        _column("time (s)", "memory_seconds", kind="seconds"),
        _column("time / query (s)", "memory_seconds_per_query", kind="seconds"),
        _column("building (s)", "seconds.index", kind="seconds"),
        _column("querying alone (ms / query)", "seconds.find_per_query", kind="milliseconds"),
        EVIDENCE[0],
    )
    return View("table2", "table2", "What memory operations cost on LoCoMo", columns)


def _table3() -> list[View]:
    answers = tuple(_column(f"{s} F1 / EM", f"f1.{s}", f"em.{s}") for s in LENGTHS)
    against = tuple(
        _column(f"{s} F1 − hybrid [95%]", f"f1.{s}.minus_hybrid", kind="points", interval=True)
        for s in LENGTHS
    )
    found = tuple(
        _column(f"{s} {what}@5 / @10", f"{key}@5.{s}", f"{key}@10.{s}")
        for s in LENGTHS
        for what, key in (("recall", "recall"), ("all gold", "all_gold"))
    )
    evidence = tuple(_column(f"{s} R(q) recall", f"evidence.recall.{s}") for s in LENGTHS)
    return [
        View(
            "table3",
            "table3",
            "HotpotQA in contexts of 400, 1,600 and 3,200 documents",
            (READER, METHOD, *answers, *against, *evidence, FAILED),
        ),
        View(
            "table3-retrieval",
            "table3",
            "HotpotQA: supporting passages found",
            (METHOD, *found),
        ),
    ]


def _figures() -> list[View]:
    scores = _column("F1 / BLEU-1", "gam.f1.average", "gam.bleu1.average")
    hotpot = _column("HotpotQA's F1 / EM", "hotpot.f1.average", "hotpot.em.average")
    ablation = (
        *_against("gam.f1.average"),
        _column("recall@5", "recall@5"),
        *EVIDENCE,
        FAILED,
    )
    sweep = (
        READER,
        METHOD,
        _column("k", "k", kind="count"),
        *_scores("gam"),
        *EVIDENCE,
        FAILED,
    )
    return [
        View("figure3", "figure3", "Ablation, HotpotQA at 56K",
             (READER, METHOD, scores, hotpot, *ablation), {"set": "hotpotqa"}),
        View("figure3-locomo", "figure3", "Ablation, LoCoMo",
             (READER, METHOD, scores, *ablation), {"set": "locomo"}),
        View("figure4", "figure4", "Items retrieved, LoCoMo, F1 / BLEU-1", sweep),
    ]  # fmt: skip


def _judged() -> list[View]:
    accuracy = (
        _column("accuracy [95%]", "accuracy", interval=True),
        _column("− hybrid [95%]", "accuracy.minus_hybrid", kind="points", interval=True),
        _column("F1", "gam.f1.average"),
        *EVIDENCE,
    )
    cost = (
        _column("accuracy", "accuracy"),
        _column("median latency (s)", "median_seconds", kind="seconds"),
        _column("cost / question (USD)", "cost", kind="money"),
        _column("prompt tokens", "prompt_tokens", kind="mean"),
        _column("cached", "cached_tokens", kind="mean"),
        _column("completion", "completion_tokens", kind="mean"),
        _column("F1", "gam.f1.average"),
        EVIDENCE[0],
        FAILED,
    )
    judge = (_column("judge tokens / question", "judge_tokens", kind="mean"), FAILED)
    note = _column("Note", "note", kind="text")
    views: list[View] = []
    for name in ("longmemeval", "locomo"):
        shown, where = SETS[name], {"set": name}
        views += [
            View(f"judged-{name}", "judged", f"{shown}, judged answers",
                 (READER, METHOD, note, *accuracy, *judge), where),
            View(f"backbones-{name}", "backbones", f"{shown} by reader model",
                 (READER, METHOD, *cost), where),
            View(f"channels-{name}", "channels", f"{shown} by retrieval channel",
                 (READER, METHOD, *accuracy, FAILED), where),
        ]  # fmt: skip
    for name, kinds in (("longmemeval", QUESTION_TYPES), ("locomo", CATEGORIES[:4])):
        by_kind = tuple(_column(kind, f"accuracy.{kind}") for kind in kinds)
        for table, what in (("judged", "judged answers"), ("channels", "retrieval channels")):
            title = f"{SETS[name]}, {what} by type of question: accuracy"
            columns = (READER, METHOD, _column("all", "accuracy"), *by_kind)
            views.append(View(f"{table}-{name}-types", table, title, columns, {"set": name}))
    return views


def _answers() -> list[View]:
    """Answers on any set, by type of answer too, and what calibration did to them."""
    scores = (
        _column("F1 / BLEU-1", "gam.f1.average", "gam.bleu1.average"),
        *_against("gam.f1.average"),
        _column("judged accuracy [95%]", "accuracy", interval=True),
        _column("A-Mem's F1 / BLEU-1", "amem.f1.average", "amem.bleu1.average"),
        _column("HotpotQA's F1 / EM", "hotpot.f1.average", "hotpot.em.average"),
        *EVIDENCE,
        SPENT,
        FAILED,
        UNRESOLVED,
    )
    types = (
        _column("Answer", "type", kind="text"),
        _column("questions", "n", kind="count"),
        _column("F1", "gam_f1"),
        _column("gold shown", "n_gold_shown", kind="count"),
        _column("F1 where gold is shown", "gam_f1_gold_shown"),
    )
    steps = (
        _column("drafts", "calibration.drafts", kind="count"),
        _column("changed", "calibration.changed", kind="count"),
        _column("improved / harmed", "calibration.improved", "calibration.harmed", kind="count"),
        _column("correct ones lowered", "calibration.correct_lowered", kind="count"),
        _column("dates whose gold is shown", "dates.n_compared", kind="count"),
        _column("exact", "dates.exact"),
        _column("of them relative", "dates.relative.n", kind="count"),
        _column("exact, relative", "dates.relative.exact"),
    )
    views: list[View] = []
    for name, shown in SETS.items():
        whole = {"set": name, "shape": None}
        views += [
            View(f"answers-{name}", "answers", f"{shown}: answers", (READER, METHOD, *scores),
                 whole),
            View(f"types-{name}", "answers", f"{shown}: answers by type", (READER, METHOD, *types),
                 {"set": name, "shape": "type"}),
            View(f"calibration-{name}", "answers", f"{shown}: calibration of answers, and dates",
                 (READER, METHOD, *steps), whole),
        ]  # fmt: skip
    return views


def _retrieval() -> list[View]:
    first = (
        METHOD,
        *(_column(f"@{k}", f"recall@{k}") for k in (1, 5, 10, 20)),
        _column("@10 95%", "recall@10.interval", kind="interval"),
        _column("− hybrid [95%]", "recall@10.minus_hybrid", kind="points", interval=True),
        _column("multi-hop @10", "by_category.multi-hop.recall@10"),
        _column("all gold @5", "all_gold@5"),
        _column("hit@5", "hit@5"),
    )
    # LongMemEval labels sessions everywhere, turns in part.
    sessions = (
        *(_column(f"session @{k}", f"session.recall@{k}") for k in (1, 5, 10)),
        _column("questions with sessions", "session.n_questions", kind="count"),
    )
    last = (
        _column("R(q) of 600 tokens", "evidence@600.recall"),
        _column("R(q) of 1,200 tokens", "evidence.recall"),
        UNRESOLVED,
        FAILED,
    )
    views = [
        View(
            f"retrieval-{name}",
            "retrieval",
            f"{shown}: evidence recall",
            (*first, *(sessions if name == "longmemeval" else ()), *last),
            {"set": name},
        )
        for name, shown in SETS.items()
    ]
    for name, kinds, what in (
        ("locomo", CATEGORIES[:4], "types"),
        ("beam", ABILITIES, "abilities"),
        ("longmemeval", QUESTION_TYPES[:-1], "types"),
    ):
        by_kind = tuple(
            _column(kind.replace("_", " "), f"by_category.{kind}.recall@10") for kind in kinds
        )
        title = f"{SETS[name]}: evidence recall @10 by kind of question"
        views.append(
            View(f"retrieval-{name}-{what}", "retrieval", title, (METHOD, *by_kind), {"set": name})
        )
    return views


VIEWS: dict[str, View] = {
    view.name: view
    for view in (
        *_table1(),
        _table2(),
        *_table3(),
        *_figures(),
        *_judged(),
        *_answers(),
        *_retrieval(),
    )
}
"""Every rendered table by the name of its Markdown block."""
