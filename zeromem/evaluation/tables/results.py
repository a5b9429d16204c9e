"""Result files: one JSON object per table, the only thing that tables and plots are made from."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zeromem.errors import ImportFormatError

NEEDED = ("table", "command", "rows")
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Published:
    """A table that a paper printed: published, not ours.

    Attributes
    ----------
    source, where : str
        The paper, and the place in it.
    note : str
    rows : tuple of Row
        Shares in percent, as printed.
    """

    source: str
    where: str
    note: str
    rows: tuple[Row, ...]


def command_line(arguments: Sequence[str], script: str = "bench/tables.py") -> str:
    """Return the command as it was given, absolute paths by their base names.

    Where a file lies on one machine says nothing to another; its SHA-256 stands in ``data``.
    """
    return f"python {script} {shlex.join(map(placeless, arguments))}"


def placeless(argument: str) -> str:
    """Leave out folders of absolute paths: ``--x=/a/b,/c/d:E`` becomes ``--x=b,d:E``."""
    option, sign, value = "", "", argument
    if argument.startswith("--"):
        option, sign, value = argument.partition("=")
    return f"{option}{sign}{','.join(map(_placeless, value.split(',')))}"


def _placeless(part: str) -> str:
    kind, colon, path = part.partition(":")  # llama:/models/small.gguf, but not https://host/v1
    is_path = os.path.isabs(path) and not path.startswith("//")
    if colon and is_path and not os.path.isabs(kind):
        return f"{kind}:{os.path.basename(path)}"
    return os.path.basename(part.rstrip("/")) if os.path.isabs(part) else part


def write(path: Path, result: Mapping[str, Any]) -> None:
    """Write a result whole or not at all, so that no reader meets half of one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    text = json.dumps(result, indent=1, ensure_ascii=False, allow_nan=False)
    part.write_text(text + "\n", encoding="utf-8")
    part.replace(path)


def read_folder(folder: Path) -> list[dict[str, Any]]:
    """Read every table's result under a folder, in the order of their paths.

    JSON of another kind (one object without a ``table``) is another script's and left alone.

    Raises
    ------
    ImportFormatError
        Where a file cannot be read, or a table's result lacks a part.
    """
    if not folder.is_dir():
        raise ImportFormatError(f"results must lie in a folder, got {str(folder)!r}")
    found = [_read(path) for path in sorted(folder.rglob("*.json"))]
    return [result for result in found if "table" in result]


def _read(path: Path) -> dict[str, Any]:
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ImportFormatError(f"{path.name} is no JSON: {error}") from None
    if not isinstance(result, dict):
        raise ImportFormatError(f"{path.name} must hold one JSON object, got {type(result)}")
    missing = [key for key in NEEDED if key not in result]
    if missing and "table" in result:
        raise ImportFormatError(
            f"{path.name} has no {', '.join(missing)}: results are written by bench/tables.py"
        )
    return result


def read_published(path: Path) -> dict[str, Published]:
    """Read the papers' own figures, by the name of the view that shows them."""
    given = json.loads(path.read_text(encoding="utf-8"))
    return {
        name: Published(
            given["sources"][table["source"]],
            table["where"],
            table.get("note", ""),
            tuple(table["rows"]),
        )
        for name, table in given["tables"].items()
    }


def select(rows: Iterable[Row], where: Mapping[str, Any]) -> list[Row]:
    """Keep the rows that have the given values."""
    return [row for row in rows if all(row.get(key) == value for key, value in where.items())]
