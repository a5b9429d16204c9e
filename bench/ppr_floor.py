"""How far batched PPR is from what the machine's memory and arithmetic allow.

The floor of a run is the largest of three times: its compulsory DRAM bytes (the graph and the reset
read once, the scores written once) over the machine's copy bandwidth; the bytes that its sweeps
gather from tables in cache over the rate of random gathers from tables of that size; and its
operations over the rate of multiply-adds. All three rates are measured here, in the same run, on
the same number of threads. ``python bench/ppr_floor.py [--threads 2] [--batch 64]`` prints a line
of JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from zeromem.kernels import ppr_cpu
from zeromem.kernels._lanes import fma, item, lanes_of, load, splat, store
from zeromem.kernels._ppr import chebyshev

DAMPING, TOL, ADJACENCY = 0.6, 1e-5, 0.3
Graph = tuple[NDArray[Any], ...]


def graph(n: int = 13_000, m: int = 14_000, n_mentions: int = 67_000, session: int = 40) -> Graph:
    """Return a memory's graph, by default of 448K tokens: the arguments of ``ppr`` before reset.

    Each entity is mentioned once at least, and the other mentions follow Zipf's law.
    """
    rng = np.random.default_rng(0)
    popularity = 1 / np.arange(1, m + 1)
    more = rng.choice(m, n_mentions - m, p=popularity / popularity.sum())
    pairs = np.unique(rng.integers(0, n, n_mentions) * m + np.concatenate([np.arange(m), more]))
    turn, entity = np.divmod(pairs, m)
    weight = rng.uniform(0.5, 1.5, len(turn)).astype(np.float32)
    previous = np.where(np.arange(n) % session, np.arange(n) - 1, -1).astype(np.int32)
    degree = np.bincount(np.concatenate([turn, n + entity]), np.tile(weight, 2), n + m)
    linked = previous >= 0
    degree[:n] += ADJACENCY * (linked + np.append(linked[1:], False))
    inverse = np.divide(1, degree, out=np.zeros(n + m), where=degree > 0).astype(np.float32)
    indptr = np.searchsorted(turn, np.arange(n + 1)).astype(np.int64)
    return previous, indptr, entity.astype(np.int32), weight, inverse


def resets(n: int, n_nodes: int, b: int) -> NDArray[np.float32]:
    """Return ``b`` questions' resets: 50 turns and 30 entities each."""
    rng = np.random.default_rng(1)
    reset = np.zeros((n_nodes, b), np.float32)
    for j in range(b):
        reset[rng.integers(0, n, 50), j] = rng.random(50)
        reset[rng.integers(n, n_nodes, 30), j] = rng.random(30)
    return reset / reset.sum(axis=0)


def _gatherer(width: int) -> Callable[..., None]:
    @njit(nogil=True)  # type: ignore[misc]
    def gather(rows: NDArray[np.int32], table: NDArray[np.float32], out: Any) -> None:
        first = second = splat(np.float32(0), width)
        for p in range(0, len(rows) - 1, 2):
            first = first + load(table, np.int64(item(rows, p)) * lanes_of(first), first)
            second = second + load(table, np.int64(item(rows, p + 1)) * lanes_of(first), first)
        store(out, 0, first + second)

    return gather  # type: ignore[no-any-return]


@njit(nogil=True)  # type: ignore[misc]
def _multiply_add(n: int, out: Any) -> None:
    a = b = c = d = e = f = g = h = splat(np.float32(1), 16)
    scalar = np.float32(0.999)
    for _ in range(n):
        a, b, c, d = fma(scalar, a, a), fma(scalar, b, b), fma(scalar, c, c), fma(scalar, d, d)
        e, f, g, h = fma(scalar, e, e), fma(scalar, f, f), fma(scalar, g, g), fma(scalar, h, h)
    store(out, 0, ((a + b) + (c + d)) + ((e + f) + (g + h)))


def _seconds(
    pool: ThreadPoolExecutor, n_threads: int, work: Callable[[int], Any], rounds: int = 21
) -> float:
    """Return the median time of ``work`` done by all threads at once."""
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        list(pool.map(work, range(n_threads)))
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def rates(n_threads: int, rows: int, width: int) -> dict[str, float]:
    """Measure the machine: copying, gathering from ``rows`` of ``width`` numbers, computing."""
    with ThreadPoolExecutor(n_threads) as pool:
        source = [np.ones(16 << 20, np.float32) for _ in range(n_threads)]
        target = [np.ones_like(part) for part in source]
        copied = _seconds(pool, n_threads, lambda i: np.copyto(target[i], source[i]))
        gather, n_rows = _gatherer(width), 200_000
        tables = [ppr_cpu.aligned(rows * width) for _ in range(n_threads)]
        for table in tables:
            table[:] = 1
        order = np.random.default_rng(2).integers(0, rows, n_rows).astype(np.int32)
        outs = [np.empty(width, np.float32) for _ in range(n_threads)]
        gathered = _seconds(pool, n_threads, lambda i: gather(order, tables[i], outs[i]))
        n_loops = 100_000
        lines = [np.empty(16, np.float32) for _ in range(n_threads)]
        computed = _seconds(pool, n_threads, lambda i: _multiply_add(n_loops, lines[i]))
    return {
        "copy_bytes_per_s": n_threads * 2 * source[0].nbytes / copied,
        "gather_bytes_per_s": n_threads * n_rows * width * 4 / gathered,
        "operations_per_s": n_threads * n_loops * 8 * 16 * 2 / computed,
    }


def needs(matrix: Graph, b: int) -> dict[str, float]:
    """Count what a run over ``b`` columns must move and compute."""
    plan = ppr_cpu.prepare(*matrix, ADJACENCY, DAMPING)  # type: ignore[arg-type]
    n_steps = len(chebyshev(DAMPING, TOL, halved=True))
    n_nodes, n, k = len(matrix[4]), plan.n, plan.k
    mentioned = np.bincount(matrix[2])
    kept = int(mentioned[mentioned > 1].sum())
    # A step gathers a row for each mention by turn, and one for each by entity.
    gathers = 2 * n_steps * kept
    # Besides, a turn takes two multiply-adds and a product, an entity two and a product.
    multiply_adds = gathers + 2 * (n_steps + 1) * n + 2 * n_steps * k
    return {
        "dram_bytes": 2.0 * n_nodes * b * 4 + sum(part.nbytes for part in matrix),
        "gather_bytes": 4.0 * gathers * b,
        "operations": b * (2.0 * multiply_adds + (n_steps + 1) * n + n_steps * k),
    }


def floor(needed: dict[str, float], rate: dict[str, float]) -> dict[str, float]:
    """Return each of the three times in seconds, and the largest of them as ``floor``."""
    times = {
        "dram_s": needed["dram_bytes"] / rate["copy_bytes_per_s"],
        "gather_s": needed["gather_bytes"] / rate["gather_bytes_per_s"],
        "operations_s": needed["operations"] / rate["operations_per_s"],
    }
    return {**times, "floor_s": max(times.values())}


def measure(n_threads: int = 2, b: int = 64, rounds: int = 21) -> dict[str, float]:
    """Time a batched run; return its time, its floor, and its distance from it."""
    matrix = graph()
    n, n_nodes = len(matrix[0]), len(matrix[4])
    width = max(width for _, width in ppr_cpu.blocks(b))
    rate = rates(n_threads, n, width)
    reset = resets(n, n_nodes, b)
    plan = ppr_cpu.prepare(*matrix, ADJACENCY, DAMPING)  # type: ignore[arg-type]
    times = []
    with ThreadPoolExecutor(n_threads) as pool:
        for _ in range(rounds):
            started = time.perf_counter()
            ppr_cpu.ppr(*matrix, reset, ADJACENCY, DAMPING, TOL, plan=plan, pool=pool)  # type: ignore[call-arg, misc]
            times.append(time.perf_counter() - started)
    least = floor(needs(matrix, b), rate)
    took = statistics.median(times)
    return {
        "threads": n_threads, "batch": b, "median_s": took, "per_question_us": 1e6 * took / b,
        **rate, **least, "distance": took / least["floor_s"],
    }  # fmt: skip


def main() -> None:
    """Print the measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=64)
    arguments = parser.parse_args()
    print(json.dumps(measure(arguments.threads, arguments.batch), indent=1))


if __name__ == "__main__":
    main()
