"""Ours beside what people would use instead: same graph, same vectors, same machine, one run.

    python bench/peers.py [--tokens 448000] [--only ppr,lexical,dense,retrieval] [--out FILE]

Every result is compared with a float64 oracle before it is timed, and one that is wrong is not
timed. Calls take turns, so that what disturbs one disturbs all; a figure is the median of at least
20 runs. What is not installed is named as missing (``pip install -e '.[bench]'``).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import clock
import floors
import kernel_cases
from contests import LARGEST, OURS, Entry, Run, dense, lexical, ppr, retrieval
from subjects import TOL, Inputs, Missing, threads
from synthetic import Synthetic
from whole import Whole

from zeromem.evaluation.tables import results

NOTES = (
    "PPR: ours and SciPy's iterations stop at the engine's own tolerance, "
    f"{TOL:g} of a column's sum; prpack stops at its own 1e-10, which cannot be set.",
    "The distance from the floor is that of calls one after the other, the data in the caches.",
    "Lexical: bm25s scores turns; ours scores turns, windows and episodes in the same time.",
)


def contest(what: str, b: int, entries: Iterable[Entry], repeats: int) -> list[dict[str, Any]]:
    """Check every contestant, time those that are right, and return a row for each."""
    ready: dict[str, Run] = {}
    rows: dict[str, dict[str, Any]] = {}
    for entry in entries:
        row = rows[entry.name] = {"contest": what, "b": b, "method": entry.name}
        try:
            run = entry.prepare()
            row |= {"distance": entry.distance(run()), "at_once": entry.n}
            ready[entry.name] = run
        except Missing as error:
            row["missing"] = str(error)
        except AssertionError as error:  # WrongResult, or NumPy's own
            row["wrong"] = str(error)
    times = clock.alternately(ready, repeats)
    for name, found in times.items():
        rows[name] |= clock.summary(found, rows[name]["at_once"])
        rows[name]["microseconds"] = rows[name]["seconds"] * 1e6
    if OURS in ready:
        # The floor is of data that is in the caches, where nobody else's calls come between.
        alone = clock.alternately({OURS: ready[OURS]}, repeats)[OURS]
        rows[OURS]["back_to_back"] = clock.summary(alone, rows[OURS]["at_once"])["seconds"]
    base = rows[OURS].get("seconds")
    for name in times:
        if base:
            rows[name]["ratio"] = rows[name]["seconds"] / base
    return list(rows.values())


def run(options: argparse.Namespace) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Hold all contests; return their rows and what the memory was."""
    chosen = clock.comma_list(options.only)
    batches = clock.comma_list(options.batches, int)
    memory = Synthetic(options.tokens, dim=options.dim)
    inputs = Inputs(memory, memory.questions(max(LARGEST, *batches)))
    rates = floors.measured(threads())
    rows: list[dict[str, Any]] = []
    for what, make in (("ppr", ppr), ("lexical", lexical), ("dense", dense)):
        for b in batches if what in chosen else ():
            rows += contest(what, b, make(inputs, b), options.repeats)
            if what == "ppr":
                work = kernel_cases.ppr_work(inputs.graph.arguments, b)
                _add_floor(rows, what, b, floors.floor(work, rates))
    if "retrieval" in chosen:
        whole = Whole(inputs)
        for b in sorted({*batches, LARGEST}):
            rows += contest("retrieval", b, retrieval(whole, b), options.repeats)
    described = {
        "tokens": memory.n_tokens, "turns": memory.n_turns, "entities": len(memory.names),
        "edges": inputs.graph.A.nnz // 2, "dim": memory.dim, "threads": threads(),
    }  # fmt: skip
    return rows, described


def _add_floor(rows: list[dict[str, Any]], what: str, b: int, least: floors.Floor) -> None:
    for row in rows:
        if (row["contest"], row["b"], row["method"]) == (what, b, OURS) and "seconds" in row:
            row["floor"] = least.seconds / b
            row["over_floor"] = row["back_to_back"] / row["floor"]
            row["bound"] = least.bound


def parser() -> argparse.ArgumentParser:
    """Build the command line."""
    top = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    top.add_argument("--tokens", type=int, default=448_000)
    top.add_argument("--dim", type=int, default=384)
    top.add_argument("--batches", default="1,64", help="questions at once, with commas between")
    top.add_argument("--repeats", type=int, default=clock.REPEATS, help="at least 20 by default")
    top.add_argument("--only", default="ppr,lexical,dense,retrieval", help="which contests")
    top.add_argument("--out", type=Path, help="JSON file; render.py makes the table from it")
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    options = parser().parse_args(given)
    rows, memory = run(options)
    for row in rows:
        name = f"{row['contest']:10s} {row['b']:4d}  {row['method']:36s}"
        if "seconds" in row:
            floor = ""
            if "floor" in row:
                alone = row["back_to_back"] * 1e6
                floor = f"  {alone:.1f} us back to back, {row['over_floor']:.2f}x its floor"
            print(
                f"{name} {row['microseconds']:12.1f} us per question  {row['ratio']:8.2f}x{floor}"
            )
        else:
            print(f"{name} {row.get('missing') or 'WRONG: ' + row['wrong']}")
    print(*NOTES, sep="\n")
    if options.out:
        results.write(options.out, clock.result("peers", rows, given, memory=memory, notes=NOTES))
    return 1 if any("wrong" in row for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
