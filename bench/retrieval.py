"""Evidence recall of zeromem and of baselines on any of the evaluation sets.

Examples::

    python bench/retrieval.py locomo --data locomo_dev5.json --json out.json
    python bench/retrieval.py hotpotqa --questions q.jsonl --pool pool.jsonl --documents 3200
    python bench/retrieval.py beam --data beam_100k_dev8.jsonl --methods zeromem,hybrid,bm25
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from zeromem.backend import resolve
from zeromem.config import Config
from zeromem.errors import ZeroMemError
from zeromem.evaluation import datasets, methods, report
from zeromem.evaluation.methods.warm import warm
from zeromem.evaluation.metrics.retrieval import RECALL_KS
from zeromem.evaluation.run import retrieval
from zeromem.evaluation.tables.rows import counted
from zeromem.evaluation.types import Budget
from zeromem.ingest.encode import load_encoder

DEFAULT_METHODS = "zeromem,hybrid"
ALSO = 14
"""Width of a column of R(q) at another budget."""
SESSIONS = "sessions, recall@"
SHOWN = ("recall@1", "recall@5", "recall@10", "recall@20", "hit@5", "all_gold@5", "mrr", "ndcg@10")


def parser() -> argparse.ArgumentParser:
    """Build the command line."""
    top = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        epilog="methods:\n"
        + "\n".join(f"  {name:24}{what}" for name, what in methods.describe().items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = top.add_subparsers(dest="set", required=True, metavar="SET")
    for name in datasets.NAMES:
        command = commands.add_parser(name, help=datasets.HELP[name])
        datasets.add_arguments(command, name)
        _common(command)
    return top


def _common(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", type=Path, help="write the figures here")
    command.add_argument("--rankings", type=Path, help="write every ranking here, JSON Lines")
    command.add_argument("--rows", type=Path, help="write each question's figures, JSON Lines")
    command.add_argument("--encoder", help="model name or folder; default: the device's")
    command.add_argument("--device", default="cpu", choices=("auto", "cpu", "cuda"))
    command.add_argument("--config", default="default", choices=("default", "paper"))
    command.add_argument(
        "--methods",
        default=DEFAULT_METHODS,
        help=f"of {', '.join(methods.NAMES)}, or one's own as file.py:Class or module:Class",
    )
    command.add_argument("--token-budget", type=int, default=1200, help="of R(q)")
    command.add_argument(
        "--budgets", type=_budgets, default=(), metavar="N,N", help="R(q) at these budgets too"
    )
    command.add_argument(
        "--k", type=int, help="main items behind R(q); default: as many as fit the budget"
    )
    command.add_argument("--store", type=Path, help="keep features in this store for later runs")


def _budgets(text: str) -> tuple[int, ...]:
    try:
        budgets = tuple(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError:
        budgets = (0,)
    if min(budgets) < 1:
        raise argparse.ArgumentTypeError(
            f"must be token counts of at least 1, such as 600,1200, got {text!r}"
        )
    return budgets


def check(top: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Refuse unusable options, naming option, value and fix."""
    options.methods = [name.strip() for name in options.methods.split(",")]
    try:
        methods.check(options.methods)
    except ZeroMemError as error:
        top.error(f"--methods: {error}")
    for option in ("token_budget", "k"):
        value = getattr(options, option)
        if value is not None and value < 1:
            top.error(f"--{option.replace('_', '-')} must be at least 1, got {value}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; 1 where a method failed on some memory."""
    top = parser()
    options = top.parse_args(arguments)
    check(top, options)
    try:
        result = measure(options)
    except (ZeroMemError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(table(result))
    if options.json is not None:
        options.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    failed = sum(figures["n_failed"] for figures in result["methods"].values())
    return 1 if failed else 0


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Make the report."""
    options.device = resolve(options.device).device
    dataset = datasets.load(options)
    with ExitStack() as stack:
        store = options.store
        if store is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="zeromem-bench-"))
            store = Path(folder) / "bench.zm"
        encoder = load_encoder(options.encoder, options.device)
        budget = Budget(options.k, options.token_budget)
        run: dict[str, Any] = {
            "encoder": encoder,
            "device": options.device,
            "paper": options.config == "paper",
        }
        warm(options.methods, **run, budget=budget)
        figures = retrieval(
            dataset,
            methods.make(options.methods, store=store, **run),
            budget,
            _lines(options.rankings, stack),
            also=options.budgets,
            rows=_lines(options.rows, stack),
        )
    return {
        "commit": report.commit(),
        "versions": report.versions(),
        "hardware": report.hardware(options.device),
        "data": dataset.files,
        "encoder": encoder.fingerprint,
        "config": settings(options),
        "methods": figures,
        "seconds": next(iter(figures.values()))["seconds"],
    }


def _lines(path: Path | None, stack: ExitStack) -> Callable[[dict[str, Any]], object] | None:
    """Open a file of JSON Lines; return what writes one."""
    if path is None:
        return None
    out = stack.enter_context(path.open("w", encoding="utf-8"))
    return lambda record: out.write(json.dumps(record) + "\n")


_OUTPUTS = ("json", "rankings", "rows", "store", "methods", "encoder", "device")


def settings(options: argparse.Namespace) -> dict[str, Any]:
    """Return what the figures depend on beside data and encoder."""
    made = Config.paper() if options.config == "paper" else Config()
    kept = {
        name: value
        for name, value in vars(options).items()
        # Files are named, with their digests, under "data".
        if name not in _OUTPUTS and not isinstance(value, Path)
    }
    return {
        **kept,
        # Features kept from an earlier run make ingest look faster than it is.
        "kept_features": options.store is not None,
        "zeromem": asdict(made),
    }


def table(result: dict[str, Any]) -> str:
    """Show the figures in percent, a method a row; recall of R(q) with its size at the end."""
    labels = [
        *result["methods"],
        *(_label(c, p) for f in result["methods"].values() for c, p in f["by_category"].items()),
    ]
    width = max(map(len, labels)) + 2
    head = "".join(f"{name:>11}" for name in SHOWN)
    also = [f"R(q) in {tokens}" for tokens in result["config"]["budgets"]]
    tail = "".join(f"{name:>{ALSO}}" for name in also) + f"{'ingest s':>10}{'ms/q':>9}"
    lines = [f"{'':{width}}{head}{'R(q)':>8}{'turns':>7}{'tokens':>8}{tail}"]
    for name, figures in result["methods"].items():
        lines.append(f"{name:{width}}{_row(figures)}{_seconds(figures)}")
    for name, figures in result["methods"].items():
        lines.append(f"\n{name}")
        for category, part in figures["by_category"].items():
            lines.append(f"{_label(category, part):{width}}{_row(part)}")
    lines += _sessions(result["methods"], max(width, len(SESSIONS) + 2))
    lines.append(f"\n{_summary(result['methods'])}")
    if result["config"]["set"] == "hotpotqa":
        lines.append("These questions are not MemAgent's own 128.")
    return "\n".join(lines)


def _sessions(methods: dict[str, dict[str, Any]], width: int) -> list[str]:
    """Recall where a session counts as found with any of its turns, in a set with sessions."""
    rows = {name: f["session"] for name, f in methods.items() if "recall@1" in f.get("session", {})}
    if not rows:
        return []
    return [
        f"\n{SESSIONS:{width}}" + "".join(f"{k:>11}" for k in RECALL_KS) + f"{'questions':>11}",
        *(
            f"{name:{width}}"
            + "".join(f"{100 * mine[f'recall@{k}']:11.1f}" for k in RECALL_KS)
            + f"{mine['n_questions']:11}"
            for name, mine in rows.items()
        ),
    ]


def _summary(methods: dict[str, dict[str, Any]]) -> str:
    """Say how many questions there are, what is wrong with their labels, and what failed."""
    first = next(iter(methods.values()))
    n_bad = first["n_unresolved_citations"]
    failed = {name: f["n_failed"] for name, f in methods.items() if f["n_failed"]}
    whose = ", ".join(f"{name} {n}" for name, n in failed.items())
    return (
        f"{counted(first['n_questions'], 'question')} scored, {first['n_unresolved']} without "
        f"resolvable evidence left out; {counted(n_bad, 'citation')} "
        f"{'names' if n_bad == 1 else 'name'} nothing; "
        + (
            f"{counted(sum(failed.values()), 'question')} failed ({whose})"
            if failed
            else "none failed"
        )
    )


def _label(category: str, figures: dict[str, Any]) -> str:
    return f"  {category} ({figures['n_questions']})"


def _row(figures: dict[str, Any]) -> str:
    if not figures.get("n_questions"):
        return "  (no question)"
    evidence = figures["evidence"]
    shares = "".join(f"{100 * figures[name]:11.1f}" for name in SHOWN)
    also = "".join(
        f"{100 * part['recall']:{ALSO}.1f}"
        for name, part in figures.items()
        if name.startswith("evidence@")
    )
    return (
        f"{shares}{100 * evidence['recall']:8.1f}{evidence['turns']:7.1f}{evidence['tokens']:8.0f}"
        f"{also}"
    )


def _seconds(figures: dict[str, Any]) -> str:
    seconds = figures["seconds"]
    return f"{seconds['ingest']:10.1f}{1000 * seconds['per_query']:9.1f}"


if __name__ == "__main__":
    sys.exit(main())
