"""Where the gold items that zeromem's main list misses are, and what their questions needed.

Examples::

    python bench/misses.py locomo --data locomo_dev5.json --json misses-locomo.json
    python bench/misses.py beam --data beam_100k_dev8.jsonl --k 5 --store features.zm

Prints a Markdown table. The JSON holds ids, ranks and counts, never the data's text.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from zeromem.backend import resolve
from zeromem.errors import ZeroMemError
from zeromem.evaluation import datasets, misses, report
from zeromem.evaluation.methods.asked import Asked
from zeromem.evaluation.methods.zero_mem import OpenMemories
from zeromem.evaluation.needs import RULES
from zeromem.ingest.encode import load_encoder

_OUTPUTS = ("json", "store", "encoder", "device")


def parser() -> argparse.ArgumentParser:
    """Build the command line."""
    top = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        epilog="kinds, the first that holds:\n"
        + "\n".join(f"  {rule.kind:22}{rule.means}" for rule in RULES),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = top.add_subparsers(dest="set", required=True, metavar="SET")
    for name in datasets.NAMES:
        command = commands.add_parser(name, help=datasets.HELP[name])
        datasets.add_arguments(command, name)
        command.add_argument("--k", type=int, default=10, help="places of the main list")
        command.add_argument("--json", type=Path, help="write counts and the list of misses here")
        command.add_argument("--encoder", help="model name or folder; default: the device's")
        command.add_argument("--device", default="cpu", choices=("auto", "cpu", "cuda"))
        command.add_argument("--store", type=Path, help="keep features in this store")
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    top = parser()
    options = top.parse_args(arguments)
    if not 1 <= options.k < misses.BOUNDS[-1]:
        top.error(f"--k must be from 1 to {misses.BOUNDS[-1] - 1}, got {options.k}")
    try:
        result = measure(options)
    except (ZeroMemError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(misses.table(result))
    print(
        f"\n{result['n_missed']} of {result['n_gold']} gold items of {result['n_questions']} "
        f"questions are not in the first {result['k']}; recall@{result['k']} "
        f"{100 * result['recall']:.1f}"
    )
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Make the report."""
    options.device = resolve(options.device).device
    dataset = datasets.load(options)
    store: Path | None = options.store
    encoder = load_encoder(options.encoder, options.device)
    asked = None if store is None else Asked(store.with_name(f"{store.name}.asked"))
    with ExitStack() as stack:
        if store is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="zeromem-bench-"))
            store = Path(folder) / "bench.zm"
        memories = OpenMemories(store, encoder, options.device, asked=asked)
        stack.callback(memories.close)
        found = misses.collect(dataset, memories, options.k)
    return {
        "commit": report.commit(),
        "versions": report.versions(),
        "hardware": report.hardware(options.device),
        "data": dataset.files,
        "encoder": encoder.fingerprint,
        "settings": {
            name: value
            for name, value in vars(options).items()
            if name not in _OUTPUTS and not isinstance(value, Path)
        },
        **misses.summary(found),
    }


if __name__ == "__main__":
    sys.exit(main())
