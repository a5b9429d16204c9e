"""Evidence recall of zeromem and of baselines on LoCoMo, HotpotQA and BEAM.

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
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness import baselines, features, report, zeromem_methods
from harness.data import Dataset, load_beam, load_hotpotqa, load_locomo
from harness.methods import Method
from harness.run import run

from zeromem.backend import resolve
from zeromem.config import Config
from zeromem.errors import ZeroMemError
from zeromem.ingest.encode import load_encoder

DEFAULT_METHODS = "zeromem,hybrid"
NAMES = (*zeromem_methods.VARIANTS, *baselines.SCORERS)
SHOWN = ("recall@1", "recall@5", "recall@10", "recall@20", "hit@5", "all_gold@5", "mrr", "ndcg@10")


def parser() -> argparse.ArgumentParser:
    """Build the command line."""
    top = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = top.add_subparsers(dest="set", required=True, metavar="SET")
    locomo = commands.add_parser("locomo", help="two friends' sessions; gold is turns")
    locomo.add_argument("--data", type=Path, required=True, help="official LoCoMo JSON")
    locomo.add_argument("--corrections", type=Path, help="published label corrections to apply")
    hotpotqa = commands.add_parser("hotpotqa", help="long contexts; gold is passages")
    hotpotqa.add_argument("--questions", type=Path, required=True, help="JSON Lines")
    hotpotqa.add_argument("--pool", type=Path, required=True, help="passages, JSON Lines")
    hotpotqa.add_argument("--documents", type=int, default=3200, help="passages per context")
    beam = commands.add_parser("beam", help="user-assistant chats; gold is messages")
    beam.add_argument("--data", type=Path, required=True, help="JSON Lines")
    for command in (locomo, hotpotqa, beam):
        _common(command)
    return top


def _common(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", type=Path, help="write the figures here")
    command.add_argument("--rankings", type=Path, help="write every ranking here, JSON Lines")
    command.add_argument("--limit", type=int, help="ask the first LIMIT questions only")
    command.add_argument("--seed", type=int, default=0, help="of HotpotQA's contexts")
    command.add_argument("--encoder", help="model name or folder; default: the device's")
    command.add_argument("--device", default="cpu", choices=("auto", "cpu", "cuda"))
    command.add_argument("--config", default="default", choices=("default", "paper"))
    command.add_argument("--methods", default=DEFAULT_METHODS, help=f"of {', '.join(NAMES)}")
    command.add_argument("--token-budget", type=int, default=1200, help="of R(q)")
    command.add_argument(
        "--k", type=int, help="main items behind zeromem's R(q); default: as many as fit the budget"
    )
    command.add_argument("--store", type=Path, help="keep features in this store for later runs")


def load(options: argparse.Namespace) -> Dataset:
    """Load the evaluation set that the command line names."""
    if options.set == "locomo":
        return load_locomo(options.data, limit=options.limit, corrections=options.corrections)
    if options.set == "beam":
        return load_beam(options.data, limit=options.limit)
    return load_hotpotqa(
        options.questions,
        options.pool,
        documents=options.documents,
        seed=options.seed,
        limit=options.limit,
    )


def make_methods(options: argparse.Namespace, store: Path) -> tuple[list[Method], str]:
    """Make the chosen methods and name their encoder."""
    names = list(dict.fromkeys(name.strip() for name in options.methods.split(",")))
    paper = options.config == "paper"
    encoder = load_encoder(options.encoder, options.device)
    memories = zeromem_methods.OpenMemories(store, encoder, options.device)
    bank = features.open_bank(encoder, store)
    methods: list[Method] = []
    for name in names:
        if name in baselines.SCORERS:
            methods.append(baselines.Baseline(name, bank, options.token_budget))
        else:
            methods.append(
                zeromem_methods.ZeroMem(
                    name, memories, options.token_budget, k=options.k, paper=paper
                )
            )
    return methods, encoder.fingerprint


def check(top: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Refuse unusable options, naming option, value and fix."""
    for name in options.methods.split(","):
        if name.strip() not in NAMES:
            top.error(f"--methods must be of {', '.join(NAMES)}, got {name.strip()!r}")
    for option in ("limit", "token_budget", "k", "documents"):
        value = getattr(options, option, None)
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
    dataset = load(options)
    with ExitStack() as stack:
        store = options.store
        if store is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="zeromem-bench-"))
            store = Path(folder) / "bench.zm"
        sink = None
        if options.rankings is not None:
            out = stack.enter_context(options.rankings.open("w", encoding="utf-8"))

            def sink(ranking: dict[str, Any]) -> None:
                out.write(json.dumps(ranking) + "\n")

        methods, encoder = make_methods(options, store)
        figures = run(dataset, methods, sink)
    return {
        "commit": report.commit(),
        "versions": report.versions(),
        "hardware": report.hardware(options.device),
        "data": dataset.files,
        "encoder": encoder,
        "config": settings(options),
        "methods": figures,
        "seconds": next(iter(figures.values()))["seconds"],
    }


def settings(options: argparse.Namespace) -> dict[str, Any]:
    """Return what the figures depend on beside data and encoder."""
    kept = ("set", "config", "limit", "seed", "documents", "token_budget", "k")
    made = Config.paper() if options.config == "paper" else Config()
    return {
        **{name: getattr(options, name) for name in kept if hasattr(options, name)},
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
    lines = [f"{'':{width}}{head}{'R(q)':>8}{'turns':>7}{'tokens':>8}{'ingest s':>10}{'ms/q':>9}"]
    for name, figures in result["methods"].items():
        lines.append(f"{name:{width}}{_row(figures)}{_seconds(figures)}")
    for name, figures in result["methods"].items():
        lines.append(f"\n{name}")
        for category, part in figures["by_category"].items():
            lines.append(f"{_label(category, part):{width}}{_row(part)}")
    first = next(iter(result["methods"].values()))
    lines.append(
        f"\n{first['n_questions']} questions scored, {first['n_unresolved']} without resolvable "
        f"evidence left out; {first['n_unresolved_citations']} citations name nothing"
    )
    if result["config"]["set"] == "hotpotqa":
        lines.append("These questions are not MemAgent's own 128.")
    return "\n".join(lines)


def _label(category: str, figures: dict[str, Any]) -> str:
    return f"  {category} ({figures['n_questions']})"


def _row(figures: dict[str, Any]) -> str:
    if not figures.get("n_questions"):
        return "  (no question)"
    evidence = figures["evidence"]
    shares = "".join(f"{100 * figures[name]:11.1f}" for name in SHOWN)
    return (
        f"{shares}{100 * evidence['recall']:8.1f}{evidence['turns']:7.1f}{evidence['tokens']:8.0f}"
    )


def _seconds(figures: dict[str, Any]) -> str:
    seconds = figures["seconds"]
    return f"{seconds['ingest']:10.1f}{1000 * seconds['per_query']:9.1f}"


if __name__ == "__main__":
    sys.exit(main())
