"""Result rows as Markdown tables, and Markdown files whose tables are kept in step with them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from zeromem.errors import ImportFormatError
from zeromem.evaluation.tables.results import Published, Row, select
from zeromem.evaluation.tables.views import Column, View

_BLOCK = re.compile(
    r"(?P<begin><!-- begin:(?P<name>[\w-]+) -->\n)(?P<body>.*?)(?P<end><!-- end:(?P=name) -->)",
    re.DOTALL,
)
_MARKER = re.compile(r"<!-- (?:begin|end):")
PUBLISHED = "†"
OVER_BUDGET = "‡"

_FORMATS: dict[str, Callable[[Any], str]] = {
    "text": str,
    "share": lambda value: f"{100 * value:.2f}",
    "interval": lambda value: f"[{100 * value[0]:.2f}, {100 * value[1]:.2f}]",
    "points": lambda value: f"{100 * value:+.2f}",
    "count": lambda value: f"{value:,}",
    "mean": lambda value: f"{value:,.1f}",
    "seconds": lambda value: f"{value:,.2f}",
    "milliseconds": lambda value: f"{1000 * value:,.1f}",
    "money": lambda value: f"{value:.6f}",
    "figure": lambda value: _figure(value),
    "thousandths": lambda value: _figure(1000 * value),
    "millions": lambda value: f"{value / 1e6:,.1f}",
}
_PRINTED: dict[str, Callable[[Any], str]] = {
    **_FORMATS,
    "share": lambda value: f"{value:.2f}",
}  # papers print percent


def block(
    view: View,
    results: Sequence[Mapping[str, Any]],
    published: Published | None,
    plots: Sequence[str] = (),
) -> str:
    """Show one view: our rows, the paper's beside them, notes, how to make it again, plots.

    Parameters
    ----------
    view : View
    results : sequence of mapping
        Of the view's table; none where nobody has run it, whose row stays empty.
    published : Published, optional
    plots : sequence of str
        Paths of PNG files as the Markdown file sees them.
    """
    shown = [r for r in results if select(r["rows"], view.where)]
    ours = [row for result in shown for row in select(result["rows"], view.where)]
    theirs = published.rows if published is not None else ()
    columns = [c for c in view.columns if _filled(c, ours, theirs)]
    lines = [
        f"**{view.title}**",
        "",
        _line(column.title for column in columns),
        _line("---" if column.kind == "text" else "---:" for column in columns),
        *(_row(columns, row) for row in ours or [{"method": "Zero-Mem, not run yet"}]),
        *(_row(columns, row, theirs=True) for row in theirs),
        "",
        *_notes(ours, published, shown),
        *(f"![{view.title}]({path})" for path in plots),
    ]
    return "\n".join(lines).rstrip("\n") + "\n"


def _filled(column: Column, ours: Sequence[Row], theirs: Sequence[Row]) -> bool:
    """Leave out a column that no row fills; with no row of ours, keep what a run would fill."""
    if not ours and (column.kind != "text" or column.keys == ("method",)):
        return True
    return any(row.get(key) is not None for row in (*ours, *theirs) for key in column.keys)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _row(columns: Sequence[Column], row: Row, *, theirs: bool = False) -> str:
    cells = [cell(column, row, theirs=theirs) for column in columns]
    mark = PUBLISHED if theirs else OVER_BUDGET if row.get("budgeted") is False else ""
    if mark:
        place = next((i for i, c in enumerate(columns) if c.keys == ("method",)), 0)
        cells[place] = f"{cells[place]} {mark}"
    return _line(cells)


def cell(column: Column, row: Row, *, theirs: bool = False) -> str:
    """Format a row's figures for a column; empty where nobody has them."""
    values = [row.get(key) for key in column.keys]
    if all(value is None for value in values):
        return ""
    show = (_PRINTED if theirs else _FORMATS)[column.kind]
    # A pipe would end the cell.
    text = " / ".join("" if v is None else show(v).replace("|", "\\|") for v in values)
    interval = row.get(f"{column.keys[0]}.interval") if column.interval else None
    if interval is not None:
        text += f" [{show(interval[0])}, {show(interval[1])}]"
    return text


def _notes(
    ours: Sequence[Row], published: Published | None, results: Sequence[Mapping[str, Any]]
) -> list[str]:
    lines = []
    if published is not None:
        note = f" {published.note}" if published.note else ""
        lines.append(
            f"{PUBLISHED} published, not ours: {published.source}, {published.where}.{note}"
        )
    if any(row.get("budgeted") is False for row in ours):
        lines.append(f"{OVER_BUDGET} reads beyond the token budget, by its definition.")
    lines += dict.fromkeys(note for result in results for note in result.get("notes", ()))
    lines += [_origin(result) for result in results]
    return [part for line in lines for part in (line, "")]


def _figure(value: float) -> str:
    """Three digits that count: 0.0123, 1.23, 12,300."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _origin(result: Mapping[str, Any]) -> str:
    hardware = result.get("hardware") or {}
    where = hardware.get("gpu") or f"{hardware.get('cores')} cores of {hardware.get('cpu')}"
    commit, _, dirty = str(result.get("commit")).partition("-")
    encoder = f"encoder {result['encoder']}, " if "encoder" in result else ""
    return (
        f"`{result['command']}` (commit {commit[:12]}{dirty and ' with changes'}, {encoder}{where})"
    )


def update(path: Path, blocks: Mapping[str, str], *, unrun: Collection[str] = ()) -> None:
    """Put the blocks between their markers in a Markdown file, and change nothing else.

    Parameters
    ----------
    path : Path
        Made, with every block, where it does not exist. Else each ``<!-- begin:NAME -->`` with its
        ``<!-- end:NAME -->`` gets block NAME; blocks without markers are not shown.
    blocks : mapping
        Markdown by name.
    unrun : collection of str
        Names of blocks without a result: what the file has between their markers stays, unless
        it is blank.

    Raises
    ------
    ImportFormatError
        Where a marker has no partner or an unknown name, or the file has none.
    """
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            "\n".join(_marked(name, text) for name, text in blocks.items()), encoding="utf-8"
        )
        return
    text = path.read_text(encoding="utf-8")
    found = [match["name"] for match in _BLOCK.finditer(text)]
    unknown = sorted(set(found) - set(blocks))
    if unknown:
        raise ImportFormatError(
            f"{path.name} asks for block {unknown[0]!r}; there are {', '.join(blocks)}"
        )
    if not found or len(_MARKER.findall(text)) != 2 * len(found):
        raise ImportFormatError(
            f"{path.name} must hold pairs of <!-- begin:NAME --> and <!-- end:NAME -->, each on "
            "its own line and with the same name: one is missing or misspelt"
        )

    def filled(match: re.Match[str]) -> str:
        stays = match["name"] in unrun and match["body"].strip()
        body = match["body"] if stays else blocks[match["name"]]
        return match["begin"] + body + match["end"]

    path.write_text(_BLOCK.sub(filled, text), encoding="utf-8")


def _marked(name: str, text: str) -> str:
    return f"<!-- begin:{name} -->\n{text}<!-- end:{name} -->\n"
