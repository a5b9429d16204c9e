"""Figures 3 and 4 and the two frontiers, drawn from result rows. The same rows give the same bytes.

matplotlib is an optional extra (``pip install 'zeromem[eval]'``) and loads when first drawn with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zeromem.errors import ZeroMemError
from zeromem.evaluation.tables.results import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OURS, THEIRS = "#1f5fa8", "#b0b0b0"
LEGEND = "published, not ours"
# No date, no random ids, glyphs drawn as paths: a figure is a function of its rows.
_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "zeromem",
    "svg.fonttype": "path",
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "figure.dpi": 150,
}


class Plot:
    """One file's worth of a view: what to draw, and from which figures.

    Attributes
    ----------
    name : str
        Of the files, without an ending.
    view : str
        Whose rows are drawn.
    draw : callable
        Takes axes, our rows and the published ones.
    """

    def __init__(
        self, name: str, view: str, draw: Callable[[Axes, Sequence[Row], Sequence[Row]], None]
    ) -> None:
        self.name = name
        self.view = view
        self.draw = draw


def save(plot: Plot, ours: Sequence[Row], theirs: Sequence[Row], folder: Path) -> tuple[str, str]:
    """Draw a plot and write it as PNG and SVG.

    Returns
    -------
    tuple of str
        The two files' names.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names = (f"{plot.name}.png", f"{plot.name}.svg")
    with _axes() as (figure, axes):
        plot.draw(axes, ours, theirs)
        figure.savefig(folder / names[0], metadata={"Software": None})
        figure.savefig(folder / names[1], metadata={"Date": None, "Creator": None})
    return names


@contextmanager
def _axes() -> Iterator[tuple[Any, Any]]:
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ZeroMemError("plots need matplotlib: pip install 'zeromem[eval]'") from error
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(6.4, 3.8), layout="constrained")  # no global state, no display
        yield figure, figure.add_subplot()


def _percent(row: Row, key: str, scale: float) -> float | None:
    value = row.get(key)
    return None if value is None else scale * float(value)


def _label(row: Row) -> str:
    reader = row.get("reader")
    return f"{row['method']}, {reader}" if reader else str(row["method"])


def ablation(axes: Axes, ours: Sequence[Row], theirs: Sequence[Row]) -> None:
    """Draw F1 per variant, ours beside the paper's."""
    key = "gam.f1.average"
    series = [(name, rows, 100.0, OURS) for name, rows in _by_reader(ours)]
    series += [(f"{name} ({LEGEND})", rows, 1.0, THEIRS) for name, rows in _by_reader(theirs)]
    variants = list(dict.fromkeys(str(row["method"]) for row in (*ours, *theirs)))
    width = 0.8 / max(len(series), 1)
    for place, (name, rows, scale, colour) in enumerate(series):
        by_variant = {str(row["method"]): _percent(row, key, scale) for row in rows}
        heights = [by_variant.get(variant) or 0.0 for variant in variants]
        shifted = [x + (place - (len(series) - 1) / 2) * width for x in range(len(variants))]
        # Several readers of ours share the colour and differ in strength.
        strength = 1.0 if colour == THEIRS else 1.0 - 0.6 * place / len(series)
        bars = axes.bar(shifted, heights, width, color=colour, alpha=strength, label=name)
        axes.bar_label(bars, labels=[f"{h:.1f}" if h else "" for h in heights], fontsize=7)
    axes.set_xticks(range(len(variants)), variants)
    axes.set_ylabel("F1 (%)")
    _legend(axes)


def _by_reader(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    readers = dict.fromkeys(str(row.get("reader", "")) for row in rows)
    return [(name, [r for r in rows if str(r.get("reader", "")) == name]) for name in readers]


def sweep(axes: Axes, ours: Sequence[Row], theirs: Sequence[Row]) -> None:
    """Draw F1 against the number of retrieved items."""
    key = "gam.f1.average"
    for rows, scale, colour in ((ours, 100.0, OURS), (theirs, 1.0, THEIRS)):
        labels = list(dict.fromkeys(_label(row) for row in rows))
        for place, label in enumerate(labels):
            found = [(row["k"], _percent(row, key, scale)) for row in rows if _label(row) == label]
            points = sorted((k, y) for k, y in found if y is not None)
            axes.plot(
                [k for k, _ in points],
                [y for _, y in points],
                color=colour,
                marker="osD^v<>"[place % 7],
                linestyle="-" if scale > 1 else "--",
                label=label if scale > 1 else f"{label} ({LEGEND})",
            )
    axes.set_xticks(sorted({row["k"] for row in (*ours, *theirs)}))
    axes.set_xlabel("items retrieved, k")
    axes.set_ylabel("F1 (%)")
    _legend(axes)


def frontier(key: str, title: str) -> Callable[[Axes, Sequence[Row], Sequence[Row]], None]:
    """Make the drawing of accuracy against a cost, a point per reader model."""

    def draw(axes: Axes, ours: Sequence[Row], theirs: Sequence[Row]) -> None:
        for rows, scale, colour, label in (
            (theirs, 1.0, THEIRS, f"Agent Zero ({LEGEND})"),
            (ours, 100.0, OURS, "ours"),
        ):
            found = [
                (row[key], y, row)
                for row in rows
                if row.get(key) is not None and (y := _percent(row, "accuracy", scale)) is not None
            ]
            if not found:
                continue
            axes.scatter([x for x, _, _ in found], [y for _, y, _ in found], color=colour,
                         label=label)  # fmt: skip
            for x, y, row in found:
                name = str(row["reader"]) if scale == 1 else _label(row)
                axes.annotate(name, (x, y), xytext=(4, 4), textcoords="offset points", fontsize=7)
        axes.margins(x=0.12)  # room for the last label
        axes.set_xlabel(title)
        axes.set_ylabel("judged accuracy (%)")
        _legend(axes)

    return draw


def _legend(axes: Axes) -> None:
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, fontsize=7, frameon=False)


_FRONTIERS = (
    ("cost", "cost", "cost per question (USD)"),
    ("latency", "median_seconds", "median latency (s)"),
)
PLOTS = (
    Plot("figure3", "figure3", ablation),
    Plot("figure3-locomo", "figure3-locomo", ablation),
    Plot("figure4", "figure4", sweep),
    *(
        Plot(f"frontier-{name}-{data}", f"backbones-{data}", frontier(key, title))
        for data in ("longmemeval", "locomo")
        for name, key, title in _FRONTIERS
    ),
)
"""Every plot, in the order of the tables."""
