"""One function per table or figure: each makes its rows, and notes that belong under them."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from zeromem.errors import ImportFormatError, InvalidInputError
from zeromem.evaluation import methods
from zeromem.evaluation.tables.answers import WHOLE, answer_rows, cost
from zeromem.evaluation.tables.evidence import evidence_rows
from zeromem.evaluation.tables.meter import Spent, operate
from zeromem.evaluation.tables.rows import counted, flat
from zeromem.evaluation.tables.setting import FILES, NOT_MEMAGENTS, Setting
from zeromem.evaluation.tables.views import KS, LENGTHS
from zeromem.evaluation.types import Dataset

Row = dict[str, Any]
Made = tuple[list[Row], list[str]]

MAIN = (
    "zeromem", "zeromem-paper", "long-llm", "rag", "bm25", "dense", "hybrid", "linear-rag",
    "igraph-ppr",
)  # fmt: skip
ABLATION = ("zeromem", "graph", "hierarchy", "no-closure", "no-calibration", "hybrid")
SWEPT = ("zeromem", "hybrid")
CHANNELS = ("embedding+lexical", "embedding", "grep", "lexical", "hybrid")
RANKING = tuple(name for name in methods.NAMES if name != WHOLE)  # which ranks nothing
CUT = "The first {limit} questions only."


@dataclass(frozen=True)
class Command:
    """A table's name on the command line.

    Attributes
    ----------
    make : callable
        Makes rows and notes.
    help : str
    sets : tuple of str
        Data that it is made from; it needs one of them.
    methods : tuple of str
        Those that it runs by default.
    judges, reads : bool
        Whether it asks the judge, where there is one, and readers.
    """

    make: Callable[[Setting], Made]
    help: str
    sets: tuple[str, ...]
    methods: tuple[str, ...]
    judges: bool = False
    reads: bool = True


def table1(setting: Setting) -> Made:
    """LoCoMo answers: three definitions, four types, both sets of labels."""
    dataset = setting.load("locomo")
    rows = list(answer_rows(setting, dataset, setting.names(MAIN), judged=True))
    return rows, _failures(rows)


def table2(setting: Setting) -> Made:
    """What memory operations cost, beside what the answers are worth.

    Each method runs alone over a store that knows nothing yet, without a reader.
    """
    dataset = setting.load("locomo")
    names = setting.names(MAIN)
    setting.warm(names)
    spent = dict(_operated(setting, dataset, name) for name in names)
    rows = list(answer_rows(setting, dataset, names))
    for row in rows:
        row |= _cost(spent[row["method"]])
    return rows, [
        "Time / query is the paper's: building and all memory operations over the number of "
        "questions. Encoding is in it, loading the encoder and reading are not.",
        *_failures(rows),
    ]


def _operated(setting: Setting, dataset: Dataset, name: str) -> tuple[str, Spent | None]:
    """Run one method's memory operations, by its own name; a failure leaves its cells empty."""
    with setting.fresh_store() as store:
        [method] = setting.make([name], store)
        try:
            return method.name, operate(dataset, method, setting.budget)
        except Exception:
            traceback.print_exc(file=sys.stderr)
            print(f"{method.name} failed", file=sys.stderr)
            return method.name, None
        finally:
            method.close()


def _cost(spent: Spent | None) -> Row:
    if spent is None:
        return {}
    n = max(spent.n_queries, 1)
    return flat(
        {
            "memory_tokens": spent.tokens,
            "memory_tokens_per_query": None if spent.tokens is None else spent.tokens / n,
            "memory_seconds": spent.index + spent.find,
            "memory_seconds_per_query": (spent.index + spent.find) / n,
            "seconds": {
                "index": spent.index,
                "find": spent.find,
                "find_per_query": spent.find / n,
            },
            "connections": spent.connections,
        }
    )


def table3(setting: Setting) -> Made:
    """HotpotQA in three lengths: answers, and the supporting passages behind them."""
    names = setting.names(MAIN)
    rows: dict[tuple[str, str], Row] = {}
    fitting, notes = lengths(setting, "table3")
    for length, documents in fitting.items():
        dataset = setting.load("hotpotqa", documents=documents)
        found = evidence_rows(setting, dataset, names)
        for row in answer_rows(setting, dataset, names, key="hotpot_f1"):
            whole = rows.setdefault(
                (row["reader"], row["method"]),
                {key: row[key] for key in ("set", "reader", "method", "budgeted")},
            )
            whole |= _at_length(row, found[row["method"]], length)
            whole["n_failed"] = whole.get("n_failed", 0) + row["n_failed"]
    made = list(rows.values())
    return made, [NOT_MEMAGENTS, *notes, *_failures(made)]


def lengths(setting: Setting, table: str) -> tuple[dict[str, int], list[str]]:
    """Return the lengths that the pool of passages is large enough for, and which are left out.

    Raises
    ------
    InvalidInputError
        Where it is too small for any.
    """
    n = setting.n_passages("hotpotqa")
    fitting = {length: documents for length, documents in LENGTHS.items() if documents <= n}
    if not fitting:
        raise InvalidInputError(
            f"{table} needs at least {min(LENGTHS.values())} passages of HotpotQA, the pool has {n}"
        )
    left_out = [f"{k} ({d:,} passages)" for k, d in LENGTHS.items() if k not in fitting]
    note = f"Left out: {', '.join(left_out)}; the pool of HotpotQA has {n:,} passages."
    return fitting, [note] if left_out else []


def _at_length(row: Row, found: Row, length: str) -> Row:
    score = "hotpot.f1.average"
    shown = {
        f"f1.{length}": row.get(score),
        f"em.{length}": row.get("hotpot.em.average"),
        f"evidence.recall.{length}": row["evidence.recall"],
        f"n_questions.{length}": row["n_questions"],
    }
    for key, value in row.items():  # intervals and differences
        if key.startswith(f"{score}."):
            shown[f"f1.{length}{key.removeprefix(score)}"] = value
    for k in (5, 10):
        for measure in ("recall", "all_gold"):
            # A method that ranks nothing has no such figure.
            shown[f"{measure}@{k}.{length}"] = found.get(f"{measure}@{k}")
    return shown


def figure3(setting: Setting) -> Made:
    """Ablation on HotpotQA at 56K, as the paper's, and on LoCoMo."""
    rows: list[Row] = []
    names = setting.names(ABLATION)
    sets, notes = ablation_sets(setting)
    for name in sets:
        dataset = setting.load(name, documents=LENGTHS["56K"])
        found = evidence_rows(setting, dataset, names)
        for row in answer_rows(setting, dataset, names):
            rows.append({**row, "recall@5": found[row["method"]].get("recall@5")})
    return rows, [*notes, *_failures(rows)]


def ablation_sets(setting: Setting) -> tuple[list[str], list[str]]:
    """Return the sets of figure 3 that are given and large enough, and notes on them."""
    sets = setting.given("hotpotqa", "locomo", table="figure3")
    if "hotpotqa" not in sets:
        return sets, []
    try:
        lengths(setting, "figure3")
    except InvalidInputError as error:
        if sets == ["hotpotqa"]:
            raise
        return ["locomo"], [f"HotpotQA is left out: {error}."]
    return sets, [NOT_MEMAGENTS]


def figure4(setting: Setting) -> Made:
    """LoCoMo answers by the number of retrieved items."""
    dataset = setting.load("locomo")
    rows = [
        {**row, "k": k}
        for k in KS
        for row in answer_rows(
            setting, dataset, setting.names(SWEPT), budget=replace(setting.budget, k=k)
        )
    ]
    budget = f"At most {setting.options.token_budget:,} tokens of evidence at every k."
    return rows, [budget, *_failures(rows)]


def judged(setting: Setting) -> Made:
    """Judged accuracy on LongMemEval and LoCoMo."""
    return _judged(setting, MAIN)


def channels(setting: Setting) -> Made:
    """Judged accuracy by retrieval channel."""
    return _judged(setting, CHANNELS)


def _judged(setting: Setting, names: Sequence[str]) -> Made:
    rows: list[Row] = []
    for name in setting.given("longmemeval", "locomo"):
        rows += answer_rows(setting, setting.load(name), setting.names(names), judged=True)
    return rows, [*_unjudged(setting), *_failures(rows)]


def backbones(setting: Setting) -> Made:
    """Accuracy, latency, cost and tokens by reader model, for zero-mem alone."""
    prices = read_prices(setting)
    rows: list[Row] = []
    for name in setting.given("longmemeval", "locomo"):
        for row in answer_rows(
            setting, setting.load(name), setting.names(["zeromem"]), judged=True
        ):
            rows.append({**row, "cost": cost(row, prices)})
    notes = [
        "Latency is of the reader's call; cost is the reader's tokens at the given prices. The "
        "paper's are of its whole pipeline."
    ]
    unpriced = sorted({row["reader"] for row in rows if row["reader"] not in prices})
    if unpriced:
        notes.append(f"No cost for {', '.join(unpriced)}: --prices has no entry of that name.")
    return rows, [*notes, *_unjudged(setting), *_failures(rows)]


def read_prices(setting: Setting) -> Mapping[str, Any]:
    """Read the file of ``--prices``; nothing where there is none."""
    path = setting.options.prices
    if path is None:
        return {}
    try:
        prices = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ImportFormatError(f"--prices: {path.name} is no JSON: {error}") from None
    if not isinstance(prices, dict):
        raise ImportFormatError(f"--prices: {path.name} must hold one object, model by model")
    return prices


def _unjudged(setting: Setting) -> list[str]:
    return [] if setting.judge is not None else ["No judge was given: accuracy stays empty."]


def answers(setting: Setting) -> Made:
    """Answers on every set that is given, by type too."""
    rows: list[Row] = []
    sets = setting.given(*FILES)
    for name in sets:
        dataset = setting.load(name, documents=setting.documents(name))
        rows += answer_rows(setting, dataset, setting.names(SWEPT), types=True, judged=True)
    return rows, [NOT_MEMAGENTS] * ("hotpotqa" in sets) + _failures(rows)


def evidence(setting: Setting) -> Made:
    """Evidence recall of every method on every set that is given."""
    rows: list[Row] = []
    sets = setting.given(*FILES)
    for name in sets:
        dataset = setting.load(name, documents=setting.documents(name))
        rows += evidence_rows(setting, dataset, setting.names(RANKING)).values()
    kept = "Times are with whatever the cache had kept; Table 2's are from nothing."
    return rows, [*[NOT_MEMAGENTS] * ("hotpotqa" in sets), kept, *_failures(rows)]


def _failures(rows: Sequence[Row]) -> list[str]:
    """Say how many samples and verdicts failed, in all, and how many nobody metered."""
    told = []
    if n := sum(row.get("n_failed", 0) for row in rows):
        told.append(f"{counted(n, 'sample')} failed; each scores 0 in its row.")
    if n := sum(row.get("n_judge_failed", 0) for row in rows):
        told.append(f"{counted(n, 'verdict')} failed; each counts as incorrect in its row.")
    if n := sum(row.get("n_unmetered", 0) for row in rows):
        told.append(f"{counted(n, 'answer')} came without token usage; no token figure has them.")
    return told


_JUDGED = ("longmemeval", "locomo")
COMMANDS: dict[str, Command] = {
    "table1": Command(
        table1, "LoCoMo answers in three definitions", ("locomo",), MAIN, judges=True
    ),
    "table2": Command(table2, "what memory operations cost on LoCoMo", ("locomo",), MAIN),
    "table3": Command(table3, "HotpotQA at 56K, 224K and 448K tokens", ("hotpotqa",), MAIN),
    "figure3": Command(figure3, "ablation, HotpotQA and LoCoMo", ("hotpotqa", "locomo"), ABLATION),
    "figure4": Command(figure4, "LoCoMo by number of retrieved items", ("locomo",), SWEPT),
    "judged": Command(judged, "judged accuracy", _JUDGED, MAIN, judges=True),
    "backbones": Command(
        backbones, "cost and latency by reader", _JUDGED, ("zeromem",), judges=True
    ),
    "channels": Command(channels, "accuracy by retrieval channel", _JUDGED, CHANNELS, judges=True),
    "answers": Command(
        answers, "answers on every set, by type too", tuple(FILES), SWEPT, judges=True
    ),
    "retrieval": Command(
        evidence, "evidence recall of every method", tuple(FILES), RANKING, reads=False
    ),
}
"""Every table by its name on the command line."""


def make(setting: Setting, name: str) -> dict[str, Any]:
    """Make one table's result, but for the command line."""
    command = COMMANDS[name]
    setting.data.clear()  # each result names its own files
    setting.table = name
    rows, notes = command.make(setting)
    if setting.options.limit is not None:
        notes.insert(0, CUT.format(limit=setting.options.limit))
    about = setting.about(reads=command.reads, judges=command.judges)
    return {"table": name, **about, "notes": notes, "rows": rows}
