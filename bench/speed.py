"""How results of speed are shown: tables, the scaling plot, and fitted exponents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from zeromem.evaluation.tables.plots import OURS, Plot
from zeromem.evaluation.tables.views import Column, View

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Row = Mapping[str, Any]
_SCALED = {
    "question": "seconds",
    "opening": "ready",
    "resident memory": "resident_added",
    "file": "on_disk",
    "nonzeros": "nonzeros",
}


def exponents(rows: Sequence[Row]) -> dict[str, float]:
    """Fit y = c * tokens ** e to each measured y by least squares of the logarithms.

    Small memories are dominated by what does not depend on size, so only sizes from the median up
    count.

    Parameters
    ----------
    rows : sequence of mapping
        Of the scaling part; fewer than two give no exponent.
    """
    if len(rows) < 2:
        return {}
    tokens = np.array([row["tokens"] for row in rows], float)
    found = {}
    for name, key in _SCALED.items():
        values = np.array([row.get(key, np.nan) for row in rows], float)
        used = (tokens >= np.median(tokens)) & (values > 0)
        if used.sum() >= 2:
            found[name] = float(np.polyfit(np.log(tokens[used]), np.log(values[used]), 1)[0])
    return found


def scaling(axes: Axes, ours: Sequence[Row], _: Sequence[Row]) -> None:
    """Draw question time and resident memory against tokens, both on logarithmic scales."""
    tokens = [row["tokens"] for row in ours]
    axes.loglog(tokens, [1e3 * row["seconds"] for row in ours], "o-", color=OURS,
                label="one question, p50 (ms)")  # fmt: skip
    axes.loglog(tokens, [1e3 * row["ready"] for row in ours], "s--", color=OURS, alpha=0.6,
                label="opening and first question (ms)")  # fmt: skip
    if all(row.get("resident_added", 0) > 0 for row in ours):
        axes.loglog(tokens, [row["resident_added"] / 1e6 for row in ours], "^:", color="#b05020",
                    label="resident memory (MB)")  # fmt: skip
    axes.set_xlabel("encoder tokens in memory")
    axes.legend(fontsize=7, frameon=False)


def _column(title: str, *keys: str, kind: str = "figure") -> Column:
    return Column(title, keys, kind)


_TIMES = (
    _column("p50 ms", "seconds", kind="thousandths"),
    _column("p95 ms", "seconds.p95", kind="thousandths"),
    _column("p99 ms", "seconds.p99", kind="thousandths"),
)
_TOKENS = _column("tokens", "tokens", kind="count")
_RATE = _column("questions / s", "per_second")

VIEWS: Mapping[str, View] = {
    view.name: view
    for view in (
        View(
            "speed-peers", "peers", "Beside what people would use instead",
            (
                _column("Contest", "contest", kind="text"),
                _column("questions", "b", kind="count"),
                _column("Method", "method", kind="text"),
                _column("µs / question", "microseconds"),
                _column("× ours", "ratio"),
                _column("distance from the oracle", "distance"),
                _column("× floor", "over_floor"),
                _column("", "missing", kind="text"),
            ),
        ),
        View(
            "speed-batches", "throughput", "Questions at once, without encoding",
            (
                _TOKENS, _column("questions at once", "b", kind="count"), _RATE, *_TIMES,
                _column("n", "n_runs", kind="count"),
            ),
            {"part": "batches"},
        ),
        View(
            "speed-packed", "throughput", "Memories at once, without encoding",
            (
                _column("memories", "memories", kind="count"),
                _column("tokens of each", "tokens", kind="count"),
                _column("questions at once", "b", kind="count"), _RATE, *_TIMES,
            ),
            {"part": "packed"},
        ),
        View(
            "speed-threads", "throughput", "Eight threads beside one batch",
            (
                _column("Asked by", "how", kind="text"), _TOKENS, _RATE,
                _column("of the batch's", "of_batch"),
            ),
            {"part": "threads"},
        ),
        View(
            "speed-opening", "throughput", "Opening in a fresh process",
            (_column("What", "what", kind="text"), _TOKENS, *_TIMES),
            {"part": "opening"},
        ),
        View(
            "speed-adding", "throughput", "Adding one turn, without its encoding",
            (
                _TOKENS, _column("What", "what", kind="text"),
                *_TIMES[:2], _column("max ms", "seconds.max", kind="thousandths"),
            ),
            {"part": "adding"},
        ),
        View(
            "speed-memory", "throughput", "Memory, MB",
            (
                _column("What", "what", kind="text"), _TOKENS,
                _column("resident, added", "resident_added", kind="millions"),
                _column("of it not file-backed", "anonymous_added", kind="millions"),
                _column("peak, added", "peak_added", kind="millions"),
                _column("tokens / s", "tokens_per_second", kind="count"),
            ),
            {"part": "memory"},
        ),
        View(
            "speed-scaling", "throughput", "Growth with size, without encoding",
            (
                _TOKENS, _column("turns", "turns", kind="count"),
                _column("non-zeros", "nonzeros", kind="count"), *_TIMES[:2],
                _column("opening ms", "ready", kind="thousandths"),
                _column("resident MB", "resident_added", kind="millions"),
                _column("on disk MB", "on_disk", kind="millions"),
            ),
            {"part": "scaling"},
        ),
        View(
            "speed-serving", "serving", "Served over HTTP, questions' vectors known",
            (
                _column("Memories", "memories", kind="count"),
                _column("tokens of each", "tokens", kind="count"),
                _column("How", "how", kind="text"), _column("clients", "clients", kind="count"),
                _column("a second", "per_second"), _TIMES[0], _TIMES[2],
                _column("of the lower bound's", "of_least"),
                _column("failed", "failed", kind="count"),
            ),
        ),
        View(
            "speed-device", "device", "On a device",
            (
                _column("What", "what", kind="text"), _column("form", "form", kind="text"),
                _column("questions", "b", kind="count"),
                _column("ms", "seconds", kind="thousandths"),
                _column("× floor", "over_floor"), _column("per second", "per_second"),
                _column("", "note", kind="text"),
            ),
        ),
    )
}  # fmt: skip
"""Tables of speed by the name of their Markdown block."""

PLOTS = (Plot("speed-scaling", "speed-scaling", scaling),)
