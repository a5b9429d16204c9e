"""Timing, and what a result file says beside its figures."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from zeromem.evaluation.report import commit, hardware, versions
from zeromem.evaluation.tables.results import command_line

REPEATS = 20
"""Fewest runs that a median is taken of."""


@contextmanager
def undisturbed() -> Iterator[None]:
    """Keep the garbage collector from running in the middle of a measurement."""
    was = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def seconds(call: Callable[[], Any]) -> float:
    """Run once and return the wall-clock seconds."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def alternately(
    calls: Mapping[str, Callable[[], Any]], repeats: int = REPEATS, *, limit: float = 60.0
) -> dict[str, list[float]]:
    """Time several calls in turns, so that what disturbs one disturbs all.

    Parameters
    ----------
    calls : mapping of str to callable
    repeats : int
    limit : float
        Seconds after which a call that has had 20 runs gets no more.

    Returns
    -------
    dict of str to list of float
        Seconds of each run; one more run before them is not counted.
    """
    for call in calls.values():
        call()
    times: dict[str, list[float]] = {name: [] for name in calls}
    with undisturbed():
        for _ in range(repeats):
            for name, call in calls.items():
                if len(times[name]) < REPEATS or sum(times[name]) < limit:
                    times[name].append(seconds(call))
    return times


def summary(times: Sequence[float], per: int = 1) -> dict[str, float]:
    """Median, p95, p99 and least of runs, in seconds per question."""
    each = np.asarray(times) / per
    return {
        "seconds": float(np.median(each)),
        "seconds.p95": float(np.percentile(each, 95)),
        "seconds.p99": float(np.percentile(each, 99)),
        "seconds.min": float(each.min()),
        "n_runs": len(each),
    }


def result(
    table: str,
    rows: Sequence[Mapping[str, Any]],
    arguments: Sequence[str],
    *,
    device: str = "cpu",
    **more: Any,
) -> dict[str, Any]:
    """Return a result as ``bench/render.py`` reads it: where and with what it was made, and rows.

    ``load`` is the machine's load average before and after: figures of a busy machine are
    provisional.
    """
    return {
        "table": table,
        "command": command_line(arguments, f"bench/{table.replace('-', '_')}.py"),
        "commit": commit(),
        "versions": versions(),
        "hardware": hardware(device),
        "load": list(os.getloadavg()),
        "rows": list(rows),
        **more,
    }


def comma_list(text: str, kind: type = str) -> list[Any]:
    """Split an option's value at commas."""
    return [kind(part) for part in text.split(",") if part]
