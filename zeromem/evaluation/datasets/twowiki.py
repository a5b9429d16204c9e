"""2WikiMultihopQA: questions over two to four Wikipedia paragraphs; gold is those supporting."""

from __future__ import annotations

import argparse
from pathlib import Path

from zeromem.evaluation.datasets import base, contexts, supported
from zeromem.evaluation.types import Dataset


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the set's own options."""
    command.add_argument(
        "--data", type=Path, required=True, help="public JSON, or JSON Lines with columns"
    )
    contexts.add_arguments(command)


def from_options(options: argparse.Namespace) -> Dataset:
    """Load what the command line names."""
    return load(options.data, documents=options.documents, seed=options.seed, limit=options.limit)


def load(
    path: Path, *, documents: int | None = None, seed: int = 0, limit: int | None = None
) -> Dataset:
    """Load a file in 2WikiMultihopQA's public format.

    Parameters
    ----------
    path : Path
        An array, or JSON Lines, of ``_id``, ``type``, ``question``, ``context``,
        ``supporting_facts`` and ``answer``. Context and facts may be by column, or JSON inside a
        string, as tables of the set have them.
    documents : int, optional
        Passages per context, drawn from all contexts of the file. Without it, a question's own.
    seed : int
    limit : int, optional
        The first questions only.

    Raises
    ------
    ImportFormatError
        Naming file, record and field.
    InvalidInputError
        Where the file has fewer passages than ``documents``.
    """
    items, passages = supported.read(path, limit=limit, whole=documents is not None)
    files = base.fingerprint(path)
    return contexts.make("twowiki", items, passages, files, documents=documents, seed=seed)
