"""How fast this machine could be: what memory, caches and arithmetic give, and floors from them.

    python bench/floors.py [--threads 1,2] [--out floors.json]

A kernel cannot be faster than the largest of

- its compulsory DRAM bytes over the measured copy bandwidth; what fits the cache is in it when a
  kernel runs again, and has the cache's rate,
- the cache lines that it gathers over the measured gather rate of a table of that size,
- its operations over the measured float32 rate.

What a kernel's compulsory work is, :data:`WORK` says, from the shapes alone.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[Any]

LINE = 64  # bytes
_FLOATS = LINE // 4
_LARGE = 192 << 20  # bytes, well beyond the caches of one socket
# Tables that fit the first, second and third level of cache, and one that fits none.
_TABLES = (1 << 14, 1 << 17, 1 << 19, 1 << 21, 1 << 23, 1 << 25, 1 << 28)
# Neighbouring lines that are fetched together.
_RUNS = (1, 4)
_FETCHES = 1 << 18


@dataclass(frozen=True, slots=True)
class Rates:
    """What a machine gives to a number of threads.

    Attributes
    ----------
    threads : int
    copy, read : float
        Bytes per second from and to DRAM; a copied byte counts twice, once read and once written.
    near : float
        Bytes per second read from the cache.
    gather : tuple of (int, int, float)
        Neighbouring lines that are fetched together from a random place, bytes of the table, and
        lines per second.
    operations : float
        Float32 multiplications and additions per second.
    cache : int
        Bytes that stay near: what is used again from a working set below this costs no DRAM.
    """

    threads: int
    copy: float
    read: float
    near: float
    gather: tuple[tuple[int, int, float], ...]
    operations: float
    cache: int

    def of(self, run: int) -> list[tuple[int, float]]:
        """Bytes of each table, and lines per second from it where so many lie together."""
        return [(size, rate) for r, size, rate in self.gather if r == run]

    def lines(self, table: float, run: int = 1) -> float:
        """Lines per second from a table of this many bytes, between the sizes measured."""
        nearest = max(r for r, _, _ in self.gather if r <= max(run, 1))
        sizes, rates = np.log(self.of(nearest)).T
        return float(np.exp(np.interp(np.log(max(table, 1.0)), sizes, rates)))


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """What a kernel cannot do without.

    Attributes
    ----------
    dram : float
        Bytes read or written once, each.
    again : float
        Bytes read or written once more where ``working_set`` does not stay in the cache.
    working_set : float
        Bytes.
    gathered : float
        Cache lines fetched from places that the data decides.
    table : float
        Bytes that those lines lie in.
    run : int
        Lines that lie side by side.
    places : (m,) int32, optional
        The rows of the table that one pass fetches, in its order: neighbours and hubs are near, so
        that fetching these is faster than fetching random ones, and their own rate is measured.
    operations : float
        Float32 additions and multiplications.
    """

    dram: float
    operations: float
    gathered: float = 0.0
    table: float = 0.0
    run: int = 1
    places: Array | None = None
    again: float = 0.0
    working_set: float = 0.0


class Floor(NamedTuple):
    """The least time, and what sets it."""

    seconds: float
    bound: str


def ppr(*, n_nodes: int, nnz: int, b: int, n_iter: int, places: Array | None = None) -> Work:
    """Count power iteration: ``nnz`` counts each edge in both directions.

    A node's columns are one line or more, and are done in blocks of four lines at most.
    """
    graph = 8.0 * n_nodes + 8.0 * nnz
    state = 4.0 * n_nodes * b
    lines = max(1, b * 4 // LINE)
    return Work(
        dram=graph + 2 * state,  # the reset vector in, the scores out
        again=(n_iter - 1) * (graph + 3 * state),
        working_set=graph + 3 * state,
        gathered=n_iter * nnz * lines,
        table=n_nodes * min(4.0 * b, 4.0 * LINE),
        places=places if places is None else places // max(1, LINE // 4 // b),
        run=min(lines, 4),
        operations=2.0 * n_iter * nnz * b,
    )


def dense(*, n: int, dim: int, b: int, itemsize: int = 2) -> Work:
    """All inner products; what is selected from them need not be written."""
    return Work(dram=float(n * dim * itemsize + b * dim * 4), operations=2.0 * n * dim * b)


def bm25(*, postings: int, n: int, b: int) -> Work:
    """``postings`` of all terms asked for, with repeats: a row and a weight each."""
    return Work(
        dram=8.0 * postings + 4.0 * n * b,
        operations=2.0 * postings,
        gathered=float(postings),
        table=4.0 * n,
    )


def propagate(*, touched: int, n_entities: int, b: int) -> Work:
    """``touched`` entries of the two incidence matrices that carry activation, over all steps."""
    return Work(
        dram=4.0 * touched,
        operations=2.0 * touched,
        gathered=float(touched),
        table=4.0 * n_entities,
    )


def topk(*, n: int, b: int, k: int) -> Work:
    """One pass over the scores."""
    return Work(dram=4.0 * n * b + 8.0 * k * b, operations=float(n * b))


def fuse(*, candidates: int) -> Work:
    """Candidates of both views of all questions: read, merged, written."""
    return Work(dram=24.0 * candidates, operations=8.0 * candidates)


WORK: Mapping[str, Callable[..., Work]] = {
    f.__name__: f for f in (ppr, dense, bm25, propagate, topk, fuse)
}


def floor(kernel: str | Work, rates: Rates, **shapes: Any) -> Floor:
    """Return the least time of a kernel.

    Parameters
    ----------
    kernel : str or Work
        A name in :data:`WORK`, or work that was counted elsewhere.
    rates : Rates
    **shapes
        What the kernel's entry in :data:`WORK` takes.
    """
    work = WORK[kernel](**shapes) if isinstance(kernel, str) else kernel
    # What fits the cache stays there from one run to the next, as it does between questions.
    far = max(work.dram, work.working_set) > rates.cache
    dram, rate = (work.dram + work.again, rates.copy) if far else (work.dram, rates.near)
    gathered = 0.0
    if work.places is not None and len(work.places) > 1:
        passes = work.gathered / (len(work.places) * work.run)
        gathered = passes * _pass_seconds(work.places, work.run, rates.threads)
    elif work.gathered:
        gathered = work.gathered / rates.lines(work.table, work.run)
    times = {
        "memory": dram / rate,
        "gather": gathered,
        "arithmetic": work.operations / rates.operations,
    }
    bound = max(times, key=lambda name: times[name])
    return Floor(times[bound], bound)


# ---- measuring


@njit(nogil=True)
def _copy(source: Array, target: Array) -> None:
    for i in range(len(source)):
        target[i] = source[i]


@njit(nogil=True, fastmath=True)
def _read(source: Array) -> float:
    total = np.float32(0.0)
    for i in range(len(source)):
        total += source[i]
    return total


# One value of each line is touched: fetching is measured, and not what is done with the rest. Many
# fetches are under way at once, as the processor can have them.
@njit(nogil=True, fastmath=True)
def _gather(table: Array, places: Array, run: int) -> float:
    total = np.float32(0.0)
    if run == 1:
        for p in range(len(places)):
            total += table[places[p]]
    else:
        for p in range(len(places)):
            at = places[p]
            total += (table[at] + table[at + 16]) + (table[at + 32] + table[at + 48])
    return total


@njit(nogil=True, fastmath={"contract"})
def _multiply_add(x: Array, out: Array, n: int) -> None:
    # Two chains per value, so that enough of them are under way at once to hide the latency.
    for _ in range(n):
        for i in range(len(x)):
            p = x[i]
            q = p + np.float32(0.5)
            for _ in range(16):
                p = p * x[i] + np.float32(0.3)
                q = q * x[i] + np.float32(0.7)
            out[i] = p + q


def _best(task: Callable[[int], Any], threads: int, repeats: int) -> float:
    """Seconds of the fastest of several runs of ``task`` on every thread at once."""
    with ThreadPoolExecutor(threads) as pool_:
        list(pool_.map(task, range(threads)))
        best = float("inf")
        for _ in range(repeats):
            start = time.perf_counter()
            list(pool_.map(task, range(threads)))
            best = min(best, time.perf_counter() - start)
    return best


def measure(threads: int, *, large: int = _LARGE, repeats: int = 9) -> Rates:
    """Measure this machine.

    Parameters
    ----------
    threads : int
        Threads at work at once.
    large : int
        Bytes of the arrays that stand for DRAM, in all.
    repeats : int
        The fastest of so many runs counts: a floor is what the machine can do undisturbed.
    """
    parts = [np.ones(large // 4 // threads, np.float32) for _ in range(threads)]
    targets = [np.zeros_like(part) for part in parts]
    copied = _best(lambda i: _copy(parts[i], targets[i]), threads, repeats)
    was_read = _best(lambda i: _read(parts[i]), threads, repeats)
    cache = _cache_bytes()
    small = np.ones(min(cache, large) // 8 // threads, np.float32)  # half of the cache in all
    near = _best(lambda i: _read(small), threads, repeats)
    gather = [
        (run, size, _gathering(size, run, threads, repeats))
        for run in _RUNS
        for size in (min(size, large) for size in _TABLES)
    ]
    x = np.full(2048, 0.5, np.float32)
    outs = [np.empty_like(x) for _ in range(threads)]
    n = 400
    computed = _best(lambda i: _multiply_add(x, outs[i], n), threads, repeats)
    return Rates(
        threads=threads,
        copy=2.0 * large / copied,
        read=large / was_read,
        near=max(large / was_read, threads * small.nbytes / near),
        gather=tuple(gather),
        operations=threads * 64.0 * len(x) * n / computed,
        cache=cache,
    )


def _gathering(size: int, run: int, threads: int, repeats: int) -> float:
    """Lines per second from random places of a table."""
    rng = np.random.default_rng(0)
    table = np.ones(size // 4, np.float32)
    rows = size // LINE // run
    places = [
        (rng.integers(0, rows, _FETCHES // run) * run * _FLOATS).astype(np.uint32)
        for _ in range(threads)
    ]
    seconds = _best(lambda i: _gather(table, places[i], run), threads, repeats)
    return threads * _FETCHES / seconds


def _pass_seconds(places: Array, run: int, threads: int) -> float:
    """Seconds in which all threads together fetch these rows once, each its part in order."""
    table = np.ones((int(places.max()) + 1) * run * _FLOATS, np.float32)
    parts = np.array_split(places.astype(np.uint32) * np.uint32(run * _FLOATS), threads)
    return _best(lambda i: _gather(table, parts[i], run), threads, 9)


@cache
def measured(threads: int) -> Rates:
    """Measure once per process."""
    return measure(threads)


def _cache_bytes() -> int:
    """Size of the largest cache that the first core has; 16 MB where the system does not tell."""
    sizes = [0]
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text(encoding="ascii").strip()
        unit = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:], 1)
        sizes.append(int(text.rstrip("KM")) * unit)
    return max(sizes) or 16 << 20


def describe(rates: Rates) -> str:
    """Say what was measured, in a line per rate."""
    gathered = "; ".join(
        f"{run} together: "
        + ", ".join(
            f"{size >> 10} KB {rate / 1e6:.0f}" for r, size, rate in rates.gather if r == run
        )
        for run in _RUNS
    )
    return (
        f"{rates.threads} thread{'s' * (rates.threads > 1)}: copy {rates.copy / 1e9:.1f} GB/s, "
        f"read {rates.read / 1e9:.1f} GB/s, "
        f"from cache {rates.near / 1e9:.1f} GB/s, {rates.operations / 1e9:.0f} GFLOP/s, "
        f"million lines/s, {gathered}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", default="1,2", help="numbers of threads, with commas between")
    parser.add_argument("--out", help="JSON file")
    options = parser.parse_args(arguments)
    found = [measure(int(n)) for n in options.threads.split(",")]
    for rates in found:
        print(describe(rates))
    if options.out:
        with open(options.out, "w", encoding="utf-8") as file:
            json.dump([asdict(rates) for rates in found], file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
