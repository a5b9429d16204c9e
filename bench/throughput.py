"""How many questions, how soon, in how much memory, and how that grows.

    python bench/throughput.py [--only batches,packed,threads,opening,adding,memory,scaling]
        [--tokens 448000] [--adding 448000,4500000] [--scaling 10000,…,10000000] [--out FILE]

All without encoding: questions' vectors are known. Whatever is about a process as a whole (opening,
resident memory, scaling) is measured in one of its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

import clock
import speed
import stored
from subjects import Graph, Inputs, threads
from synthetic import Synthetic

import zeromem
from zeromem.errors import ModelNotFoundError
from zeromem.evaluation.tables import results

Row = dict[str, Any]
CHILD = Path(__file__).with_name("child.py")
PARTS = ("batches", "packed", "threads", "opening", "adding", "memory", "scaling")
SCALING = "10000,30000,100000,300000,1000000,3000000,10000000"
BATCHES = (1, 8, 32, 64, 256)
PACKED = (1, 8, 128)
ASKERS = 8
N_ADDS = 200
_QUESTIONS = 256


class Bench:
    """Stores in a folder of their own, made when they are first needed.

    Parameters
    ----------
    folder : Path
    options : argparse.Namespace
    """

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self.folder = folder
        self.options = options
        self._made: dict[int, tuple[Synthetic, Path]] = {}

    def store(self, tokens: int) -> tuple[Synthetic, Path]:
        """Return a memory of this size and its store, whose snapshot is written."""
        if tokens not in self._made:
            synthetic = Synthetic(tokens, dim=self.options.dim)
            path = stored.make(self.folder / f"{tokens}.zm", synthetic)
            with stored.opened(path, synthetic) as memory:
                memory.stats()
            self._made[tokens] = synthetic, path
        return self._made[tokens]

    @cached_property
    def memory(self) -> tuple[zeromem.Memory, list[str]]:
        """The memory of the main size, open and warm, and questions about it."""
        synthetic, path = self.store(self.options.tokens)
        questions = synthetic.questions(_QUESTIONS)
        memory = stored.opened(path, synthetic, questions, device=self.options.device)
        texts = [question.text for question in questions]
        memory.retrieve_batch(texts)
        return memory, texts

    # ---- questions per second

    def batches(self) -> list[Row]:
        """Questions per second by batch size, one memory."""
        memory, texts = self.memory
        rows = []
        for b in BATCHES:
            starts = range(0, len(texts) - b + 1, b)
            calls = [lambda a=a, b=b: memory.retrieve_batch(texts[a : a + b]) for a in starts]
            times = _runs(calls, self._repeats(b))
            rows.append({"tokens": self.options.tokens, "b": b, **_rates(times, b)})
        return rows

    def packed(self) -> list[Row]:
        """Questions per second by the number of memories that a batch asks."""
        options = self.options
        made = [
            Synthetic(options.packed_tokens, dim=options.dim, seed=seed)
            for seed in range(max(options.packed))
        ]
        path = self.folder / "packed.zm"
        questions = [m.questions(max(1, _QUESTIONS // len(made))) for m in made]
        for i, synthetic in enumerate(made):
            stored.make(path, synthetic, scope=f"m{i}")
        memories = [
            stored.opened(path, m, q, scope=f"m{i}", device=options.device)
            for i, (m, q) in enumerate(zip(made, questions, strict=True))
        ]
        rows = []
        for n in options.packed:
            asked = [
                (memories[i], questions[i][j % len(questions[i])].text)
                for j in range(_QUESTIONS // n) for i in range(n)
            ]  # fmt: skip
            zeromem.retrieve_batch(asked)
            times = _runs([lambda asked=asked: zeromem.retrieve_batch(asked)], options.repeats)
            rows.append(
                {
                    "memories": n,
                    "tokens": options.packed_tokens,
                    "b": len(asked),
                    **_rates(times, len(asked)),
                }
            )
        for memory in memories:
            memory.close()
        return rows

    def threads(self) -> list[Row]:
        """Eight threads that ask one question at a time, beside one batch of all of them."""
        memory, texts = self.memory

        def ask(which: list[str]) -> None:
            for text in which:
                memory.retrieve(text)

        with ThreadPoolExecutor(ASKERS) as pool:
            shares = [texts[i::ASKERS] for i in range(ASKERS)]
            calls: dict[str, Callable[[], Any]] = {
                "one batch": lambda: memory.retrieve_batch(texts),
                f"{ASKERS} threads": lambda: list(pool.map(ask, shares)),
                "one thread": lambda: ask(texts),
            }
            times = clock.alternately(calls, self.options.repeats, limit=20)
        tokens = self.options.tokens
        rows = [
            {"how": how, "tokens": tokens, **_rates(found, len(texts))}
            for how, found in times.items()
        ]
        for row in rows:
            row["of_batch"] = row["per_second"] / rows[0]["per_second"]
        return rows

    def _repeats(self, b: int) -> int:
        return max(self.options.repeats, min(200, _QUESTIONS // b))

    # ---- opening and adding

    def opening(self) -> list[Row]:
        """Open in a fresh process, and ask a first question there."""
        synthetic, path = self.store(self.options.tokens)
        found = [self._child("cold", synthetic, path) for _ in range(self.options.processes)]
        return [
            {
                "what": what, "tokens": synthetic.n_tokens,
                **clock.summary([run[what] for run in found]),
            }
            for what in ("import", "open", "first", "second")
        ] + self._search(synthetic)  # fmt: skip

    def _search(self, synthetic: Synthetic) -> list[Row]:
        """Time ``zeromem search`` from a cold shell, its models loaded from disk."""
        path = self.folder / "search.zm"
        command = [
            sys.executable, "-c", "import sys; from zeromem.cli import main; sys.exit(main())",
            "search", "--store", str(path), "--device", "cpu", synthetic.questions(1)[0].text,
        ]  # fmt: skip

        def search() -> None:
            subprocess.run(command, check=True, capture_output=True)

        try:
            stored.make(path, synthetic, models=True)
        except ModelNotFoundError as error:
            return [{"what": "zeromem search", "tokens": synthetic.n_tokens, "missing": str(error)}]
        search()  # the first one builds the index, and leaves its snapshot
        times = [clock.seconds(search) for _ in range(self.options.processes)]
        return [{"what": "zeromem search", "tokens": synthetic.n_tokens, **clock.summary(times)}]

    def adding(self) -> list[Row]:
        """Add turns one by one: the add, and the index that holds it, without its encoding."""
        rows = []
        for tokens in self.options.adding:
            synthetic = Synthetic(tokens, dim=self.options.dim)
            n_adds = min(N_ADDS, synthetic.n_turns // 2)
            first = synthetic.n_turns - n_adds
            path = stored.make(self.folder / f"adding-{tokens}.zm", synthetic, last=first)
            with stored.opened(path, synthetic, metered=True) as memory:
                memory.retrieve("Where is the lake?")
                times = _adds(memory, synthetic.traces(first))
            path.unlink()
            for what, found in times.items():
                figures = clock.summary(found)
                rows.append({"tokens": tokens, "what": what, **figures, "seconds.max": max(found)})
        return rows

    # ---- memory and scaling

    def memory_use(self) -> list[Row]:
        """What an open memory adds to a process, and what ingest needs at most."""
        synthetic, path = self.store(self.options.tokens)
        found = self._child("warm", synthetic, path)
        rows = [{"what": "open memory", "tokens": synthetic.n_tokens, **_added(found)}]
        for tokens in (self.options.tokens // 4, self.options.tokens):
            target = self.folder / f"ingest-{tokens}.zm"
            found = self._child("ingest", synthetic, target, tokens=tokens)
            rows.append(
                {
                    "what": "ingest", "tokens": found["tokens"], **_added(found),
                    "tokens_per_second": found["tokens"] / found["seconds"],
                }
            )  # fmt: skip
            target.unlink()
        return rows

    def scaling(self) -> list[Row]:
        """Question time, opening time, memory and file size against size, with exponents."""
        rows = []
        for tokens in self.options.scaling:
            synthetic, path = self.store(tokens)
            found = self._child("warm", synthetic, path)
            files = [f for f in self.folder.iterdir() if f.name.startswith(path.name)]
            rows.append(
                {
                    "tokens": synthetic.n_tokens, "turns": synthetic.n_turns,
                    "entities": len(synthetic.names), "nonzeros": _graph(synthetic).A.nnz,
                    **clock.summary(found["questions"]), "ready": found["ready"],
                    **_added(found), "on_disk": sum(f.stat().st_size for f in files),
                    "stages": found["stages"],
                }
            )  # fmt: skip
            print(
                f"  {tokens:,} tokens: {1e3 * rows[-1]['seconds']:.2f} ms per question", flush=True
            )
            if tokens != self.options.tokens:
                del self._made[tokens]
                for file in files:
                    file.unlink()
        return rows

    def _child(self, kind: str, synthetic: Synthetic, path: Path, **more: Any) -> dict[str, Any]:
        given = {
            "path": str(path), "dim": synthetic.dim,
            "fingerprint": synthetic.encoder().fingerprint,
            "texts": [q.text for q in synthetic.questions(60, seed=1)], **more,
        }  # fmt: skip
        done = subprocess.run(
            [sys.executable, str(CHILD), kind, json.dumps(given)],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found


def _graph(synthetic: Synthetic) -> Graph:
    return Inputs(synthetic, []).graph


def _runs(calls: Sequence[Callable[[], Any]], repeats: int) -> list[float]:
    """Time ``repeats`` calls, taking the given ones in turn."""
    calls[0]()
    with clock.undisturbed():
        return [clock.seconds(calls[i % len(calls)]) for i in range(repeats)]


def _rates(times: Sequence[float], n: int) -> Row:
    found = clock.summary(times)
    return {**found, "per_second": n / found["seconds"]}


def _adds(memory: zeromem.Memory, traces: Sequence[Any]) -> dict[str, list[float]]:
    """Seconds of each add, of the refresh after it, and of both together."""
    times: dict[str, list[float]] = {"add": [], "refresh": [], "both": []}
    with clock.undisturbed():
        for trace in traces:
            encoding = stored.encoding_seconds(memory)
            start = time.perf_counter()
            memory.add_many([trace], progress=False)
            added = time.perf_counter()
            stored.refresh(memory)
            done = time.perf_counter()
            encoding = stored.encoding_seconds(memory) - encoding
            times["add"].append(added - start - encoding)
            times["refresh"].append(done - added)
            times["both"].append(done - start - encoding)
    return times


def _added(found: dict[str, Any]) -> Row:
    """What was added to a process, in bytes; None where the system does not tell."""
    before, after = found["before"], found["after"]
    keys = [key for key in ("resident", "anonymous") if key in before]
    rows: Row = {f"{key}_added": after[key] - before[key] for key in keys}
    if "resident" in before:
        rows["peak_added"] = after["peak"] - before["resident"]
    return rows


def run(options: argparse.Namespace) -> list[Row]:
    """Run the chosen parts and return their rows."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="zeromem-bench-", dir=options.folder) as folder:
        bench = Bench(Path(folder), options)
        for part in options.only:
            start = time.perf_counter()
            measure = bench.memory_use if part == "memory" else getattr(bench, part)
            rows += [{"part": part, **row} for row in measure()]
            print(f"{part}: {time.perf_counter() - start:.0f} s", flush=True)
        if "memory" in bench.__dict__:
            bench.memory[0].close()
    return rows


def parser() -> argparse.ArgumentParser:
    """Build the command line."""
    top = argparse.ArgumentParser(description=__doc__.splitlines()[0])

    def numbers(text: str) -> list[int]:
        return clock.comma_list(text, int)

    def parts(text: str) -> list[str]:
        chosen = clock.comma_list(text)
        unknown = sorted(set(chosen) - set(PARTS))
        if unknown:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(PARTS)}")
        return chosen

    top.add_argument("--tokens", type=int, default=448_000, help="of the main memory")
    top.add_argument("--adding", type=numbers, default="448000,4500000")
    top.add_argument("--scaling", type=numbers, default=SCALING)
    top.add_argument("--packed", type=numbers, default=",".join(map(str, PACKED)))
    top.add_argument(
        "--packed-tokens", type=int, default=20_000, help="of each packed memory: one conversation"
    )
    top.add_argument("--device", default="cpu", choices=("cpu", "cuda"), help="of batches, packed")
    top.add_argument("--dim", type=int, default=384)
    top.add_argument("--repeats", type=int, default=clock.REPEATS)
    top.add_argument("--processes", type=int, default=5, help="that open the memory anew")
    top.add_argument("--only", type=parts, default=",".join(PARTS))
    top.add_argument("--folder", type=Path, help="for stores; removed afterwards")
    top.add_argument("--out", type=Path, help="JSON file; render.py makes tables and plots from it")
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    options = parser().parse_args(given)
    rows = run(options)
    scaled = [row for row in rows if row["part"] == "scaling"]
    fits = speed.exponents(scaled)
    for row in rows:
        shown = {k: v for k, v in row.items() if k not in ("part", "stages")}
        print(row["part"], ", ".join(f"{k} {v:,.6g}" if isinstance(v, float) else f"{k} {v}"
                                     for k, v in shown.items()))  # fmt: skip
    for name, exponent in fits.items():
        print(f"{name} grows as tokens ** {exponent:.2f}")
    if options.out:
        more = {"exponents": fits, "threads": threads()}
        results.write(options.out, clock.result("throughput", rows, given, **more))
    return 0


if __name__ == "__main__":
    sys.exit(main())
