"""Everything that a GPU must show, in one run; ``device.sh`` prepares the machine and starts it.

    python bench/device.py [--rehearse] [--seconds 400] [--parity junit.xml] --out FILE

``--rehearse`` takes every step with the CPU forms at a small size: nothing is measured by it. A
step that fails is named in the result and leaves the others; steps that no time is left for are
named too. The file is written after every step.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import clock
import floors
import kernel_cases
import numpy as np
import plain_words
import shaped
import subjects
from synthetic import Synthetic
from throughput import Bench
from whole import Whole

import zeromem
from zeromem.backend import resolve
from zeromem.evaluation.tables import results

Row = dict[str, Any]
_MEMORIES = 128


@dataclasses.dataclass(frozen=True)
class Machine:
    """Where the run takes place.

    Attributes
    ----------
    device : {"cpu", "cuda"}
    shown : str
        What results call it.
    form : Form
        Of the kernels.
    tokens, packed_tokens, memories : int
        Sizes of the main memory, of each packed one, and their number.
    repeats : int
    """

    device: str
    shown: str
    form: subjects.Form
    tokens: int
    packed_tokens: int
    memories: int
    repeats: int

    @classmethod
    def rehearsal(cls) -> Machine:
        return cls("cpu", "rehearsal on the CPU", subjects.GPU_ON_NUMPY, 6_000, 1_500, 6, 3)

    @classmethod
    def real(cls) -> Machine:
        import cupy

        form = subjects.Form("gpu", cupy, cupy.asarray, cupy.asnumpy)
        return cls("cuda", "device", form, 448_000, 20_000, _MEMORIES, clock.REPEATS)

    def seconds(self, call: Callable[[], Any]) -> list[float]:
        """Time a call after three that are not counted: by events of the device where there is one.

        Events stand in the device's own queue, so that the time of a kernel is its own and not the
        host's way to it.
        """
        for _ in range(3):
            call()
        if self.device == "cpu":
            return [clock.seconds(call) for _ in range(self.repeats)]
        import cupy

        times = []
        for _ in range(self.repeats):
            start, end = cupy.cuda.Event(), cupy.cuda.Event()
            cupy.cuda.get_current_stream().synchronize()
            start.record()
            call()
            end.record()
            end.synchronize()
            times.append(cupy.cuda.get_elapsed_time(start, end) / 1e3)
        return times

    def rates(self) -> floors.Rates:
        """What the machine gives: one thread's rates here, the whole device's there."""
        if self.device == "cpu":
            return floors.measure(1, large=8 << 20, repeats=2)
        return _device_rates(self)


def _device_rates(machine: Machine) -> floors.Rates:
    import cupy

    def best(call: Callable[[], Any]) -> float:
        return min(machine.seconds(call))

    n, size = 8192, 2 << 30
    source = cupy.ones(size // 4, cupy.float32)
    copied = best(source.copy)  # the pool has room for the copy from the first one on
    a = cupy.random.standard_normal((n, n), cupy.float32).astype(cupy.float16)
    return floors.Rates(
        threads=1,
        copy=2.0 * size / copied,
        read=size / best(source.sum),
        near=(16 << 20) / best(source[: 4 << 20].sum),
        gather=tuple(
            (run, table, _device_gather(source[: table // 4], run, best))
            for run in (1, 4)
            for table in (1 << 20, 1 << 24, 1 << 26, size)
        ),
        # Half precision: the floor of what adds in float32 alone is higher.
        operations=2.0 * n**3 / best(lambda: a @ a),
        cache=int(cupy.cuda.runtime.getDeviceProperties(0)["l2CacheSize"]),
    )


def _device_gather(table: Any, run: int, best: Callable[[Callable[[], Any]], float]) -> float:
    """Lines per second from random places of a table: one value of each is taken."""
    import cupy

    floats = floors.LINE // 4
    first = np.random.default_rng(0).integers(0, len(table) // floats // run, (1 << 24) // run)
    lines = (first[:, None] * run + np.arange(run)).ravel()
    places = cupy.asarray(lines * floats)
    out = cupy.empty(len(places), cupy.float32)
    return len(places) / best(lambda: table.take(places, out=out))


# ---- the steps


class Steps:
    """What is to be shown, in the order of its weight.

    Parameters
    ----------
    machine : Machine
    options : argparse.Namespace
    folder : Path
        For stores.
    """

    def __init__(self, machine: Machine, options: argparse.Namespace, folder: Path) -> None:
        self.machine = machine
        self.options = options
        self.folder = folder
        self.inputs: subjects.Inputs | None = None

    def parity(self) -> Iterator[Row]:
        """Count what the parity tests found; ``device.sh`` runs them."""
        path: Path | None = self.options.parity
        if path is None:
            raise RuntimeError("no parity tests were run: --parity names no file")
        suites = ElementTree.parse(path).getroot().iter("testsuite")
        counts = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
        for suite in suites:
            for name in counts:
                counts[name] += int(suite.get(name, 0))
        bad = counts["failures"] + counts["errors"]
        note = f"{counts['tests'] - counts['skipped'] - bad} passed, {bad} failed"
        yield {"what": "parity tests", **counts, "note": f"{note}, {counts['skipped']} skipped"}

    def kernels(self) -> Iterator[Row]:
        """Kernels on arrays that lie on the device, then operations as the backend calls them."""
        machine = self.machine
        rates = machine.rates()
        yield {"what": "rates", **dataclasses.asdict(rates), "note": floors.describe(rates)}
        inputs = self._inputs()
        for b in (1, 64, 256):
            for kernel in kernel_cases.ON_DEVICE:
                yield self._timed(
                    kernel, b, machine.shown, rates,
                    lambda kernel=kernel, b=b: kernel_cases.device_case(
                        inputs, kernel, b, machine.form
                    ),
                )  # fmt: skip
        backend, cases = resolve(machine.device), kernel_cases.Cases(inputs)
        for b in (1, 64):
            for kernel in kernel_cases.KERNELS:
                yield self._timed(
                    kernel, b, f"{machine.shown}, from the host and back", rates,
                    lambda kernel=kernel, b=b: cases.case(kernel, b, backend),
                )  # fmt: skip

    def _timed(
        self, kernel: str, b: int, form: str, rates: floors.Rates,
        make: Callable[[], kernel_cases.Case | None],
    ) -> Row:  # fmt: skip
        row: Row = {"what": kernel, "b": b, "form": form}
        try:
            ready = make()
            if ready is None:
                return {**row, "note": "these questions need no such call"}
            ready.check(ready.run())
            times = self.machine.seconds(ready.run)
        except Exception as error:  # one kernel that fails leaves the others
            return {**row, "error": _said(error), "note": "failed"}
        least, found = ready.floor(rates), clock.summary(times)
        return {
            **row, **found, "floor": least.seconds, "bound": least.bound,
            "over_floor": found["seconds"] / least.seconds, "per_second": b / found["seconds"],
        }  # fmt: skip

    def _inputs(self) -> subjects.Inputs:
        if self.inputs is None:
            memory = Synthetic(self.machine.tokens)
            self.inputs = subjects.Inputs(memory, memory.questions(256))
        return self.inputs

    def encoder(self) -> Iterator[Row]:
        """How fast an encoder of BGE-M3's shape reads turns of the usual lengths."""
        encoder = self._encoder()
        memory = Synthetic(self.machine.tokens, dim=encoder.dim)
        lengths = np.concatenate([f.turn_tokens for f in memory.features()])
        if self.options.rehearse:
            lengths = lengths[:32]
        times = [clock.seconds(lambda: encoder.run_lengths(lengths)) for _ in range(3)]
        found = clock.summary(times)
        tokens = int(lengths.sum())
        yield {
            "what": "encoder", "note": encoder.label, **found, "tokens": tokens,
            "per_second": tokens / found["seconds"],
        }  # fmt: skip

    def retrieval(self) -> Iterator[Row]:
        """Whole retrieval without encoding over an index on the device."""
        whole = Whole(self._inputs(), device=self.machine.device)
        for b in (1, 32, 256):
            parts = [slice(j, j + b) for j in range(0, 256 - b + 1, b)]
            calls = [lambda part=part: whole.retrieve(part) for part in parts]
            # Results are on the host when a call returns: the wall clock tells the time.
            times = [clock.seconds(calls[i % len(calls)]) for i in range(-1, self.machine.repeats)][
                1:
            ]
            found = clock.summary(times)
            yield {
                "what": "retrieval", "b": b, "form": self.machine.shown, **found,
                "per_second": b / found["seconds"],
            }  # fmt: skip

    def ingest(self) -> Iterator[Row]:
        """Remember turns by the public path: names by rule, vectors by the shaped encoder."""
        encoder = self._encoder()
        memory = Synthetic(self.machine.tokens, dim=encoder.dim)
        traces = memory.traces()
        encoder.encode(["a first text, so that nothing is loaded while the clock runs"])
        with zeromem.open(
            self.folder / "ingested.zm", encoder=encoder, annotator="rules",
            device=self.machine.device,
        ) as opened:  # fmt: skip
            encoder.seconds = 0.0
            start = time.perf_counter()
            opened.add_many(traces, progress=False)
            added = time.perf_counter() - start
            encoding = encoder.seconds
            opened.retrieve("When did they go to the lake?")
            ready = time.perf_counter() - start
        tokens = memory.n_tokens
        for what, seconds in (
            ("ingest", added), ("of it encoding", encoding), ("to the first answer", ready),
        ):  # fmt: skip
            yield {
                "what": what, "seconds": seconds, "per_second": tokens / seconds,
                "tokens": tokens, "note": f"names by rule; {encoder.label}",
            }  # fmt: skip

    def questions(self) -> Iterator[Row]:
        """Questions by the public path, of one memory and of many packed together."""
        machine = self.machine
        options = argparse.Namespace(
            tokens=machine.tokens, packed_tokens=machine.packed_tokens,
            packed=(1, machine.memories), dim=384, repeats=machine.repeats, device=machine.device,
        )  # fmt: skip
        bench = Bench(self.folder, options)
        for row in bench.batches():
            yield {"what": "questions", "form": machine.shown, **row}
        bench.memory[0].close()
        for row in bench.packed():
            yield {
                "what": "packed", "form": machine.shown, **row,
                "note": f"{row['memories']} memories",
            }  # fmt: skip

    def _encoder(self) -> shaped.ShapedEncoder:
        small = self.options.rehearse
        return shaped.ShapedEncoder(self.machine.device, shaped.TINY if small else shaped.BGE_M3)


STEPS = ("parity", "kernels", "retrieval", "encoder", "ingest", "questions")


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error)[:500]}"


def run(options: argparse.Namespace, write: Callable[[list[Row]], None]) -> list[Row]:
    """Take every step, writing what there is after each.

    Parameters
    ----------
    options : argparse.Namespace
    write : callable
        Given all rows so far.
    """
    machine = Machine.rehearsal() if options.rehearse else Machine.real()
    resolve(machine.device)  # raises where there is none: nothing falls back in silence
    plain = plain_words.stand_in(always=options.rehearse)
    rows: list[Row] = [{"what": "words", "note": "plain" if plain else "bm25s and PyStemmer"}]
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="zeromem-device-") as folder:
        steps = Steps(machine, options, Path(folder))
        for name in STEPS:
            begun = time.perf_counter()
            if begun - started > options.seconds:
                rows.append({"what": name, "error": "no time was left", "note": "not run"})
                continue
            try:
                for row in getattr(steps, name)():
                    rows.append({"step": name, **row})
            except Exception as error:  # a step that fails leaves the others
                traceback.print_exc()
                rows.append({"step": name, "what": name, "error": _said(error), "note": "failed"})
            print(f"{name}: {time.perf_counter() - begun:.1f} s", flush=True)
            write(rows)
    return rows


def parser() -> argparse.ArgumentParser:
    """Build the command line."""
    top = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    top.add_argument("--rehearse", action="store_true", help="CPU forms, small sizes")
    top.add_argument("--seconds", type=float, default=380.0, help="no step starts after these")
    top.add_argument("--parity", type=Path, help="JUnit file of the parity tests")
    top.add_argument("--out", type=Path, required=True, help="JSON file")
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    options = parser().parse_args(given)

    def write(rows: list[Row]) -> None:
        import torch  # noqa: F401 - the report names the GPU that torch sees

        device = "cpu" if options.rehearse else "cuda"
        made = clock.result("device", rows, given, device=device, rehearsal=options.rehearse)
        results.write(options.out, made)

    rows = run(options, write)
    for row in rows:
        print(json.dumps({k: v for k, v in row.items() if k not in ("gather", "stages")}))
    return 1 if any("error" in row for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
