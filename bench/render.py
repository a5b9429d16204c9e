"""Markdown tables and plots from result files, and from nothing else.

Examples::

    python bench/render.py results --out bench/README.md
    python bench/render.py results --out tables.md --plots plots
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import speed

from zeromem.errors import ZeroMemError
from zeromem.evaluation.tables import markdown, plots, results
from zeromem.evaluation.tables.views import VIEWS

EVERY = {**VIEWS, **speed.VIEWS}
PLOTS = (*plots.PLOTS, *speed.PLOTS)
PUBLISHED = Path(__file__).with_name("published.json")


def parser() -> argparse.ArgumentParser:
    """Build the command line."""
    top = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    top.add_argument("results", type=Path, help="folder of result files, subfolders included")
    top.add_argument(
        "--out",
        type=Path,
        required=True,
        help="Markdown file: the blocks between its <!-- begin:NAME --> and <!-- end:NAME --> "
        "markers are replaced, but for filled ones without a result; a new file gets every block",
    )
    top.add_argument("--plots", type=Path, help="folder for PNG and SVG; default: plots beside it")
    top.add_argument(
        "--all",
        action="store_true",
        help='also replace filled blocks without a result, whose own row is then "not run yet"',
    )
    return top


def render(folder: Path, out: Path, plots_folder: Path, *, every: bool = False) -> None:
    """Make every view's block and plots from a folder of results, and put them in place.

    Parameters
    ----------
    folder, out, plots_folder : Path
    every : bool
        Whether blocks without a result replace filled ones too.
    """
    found = results.read_folder(folder)
    published = results.read_published(PUBLISHED)
    blocks = {}
    unrun = set()
    for name, view in EVERY.items():
        ran = [result for result in found if result["table"] == view.table]
        ours = results.select([row for result in ran for row in result["rows"]], view.where)
        if not (ours or every):
            unrun.add(name)
        paper = published.get(name)
        drawn = _draw(name, ours, paper, plots_folder) if ours else []
        shown = [os.path.relpath(plots_folder / file, out.parent) for file in drawn]
        blocks[name] = markdown.block(view, ran, paper, shown)
    markdown.update(out, blocks, unrun=unrun)


def _draw(
    view: str,
    ours: Sequence[Mapping[str, Any]],
    paper: results.Published | None,
    folder: Path,
) -> list[str]:
    theirs = paper.rows if paper is not None else ()
    return [plots.save(plot, ours, theirs, folder)[0] for plot in PLOTS if plot.view == view]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    options = parser().parse_args(arguments)
    try:
        plots_folder = options.plots or options.out.parent / "plots"
        render(options.results, options.out, plots_folder, every=options.all)
    except (ZeroMemError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
