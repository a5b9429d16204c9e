"""Loaders of evaluation sets, one module per format, chosen by name and never guessed."""

from __future__ import annotations

import argparse
from typing import Final, Protocol

from zeromem.errors import InvalidInputError
from zeromem.evaluation.datasets import (
    beam,
    hotpotqa,
    locomo,
    longmemeval,
    musique,
    twowiki,
)
from zeromem.evaluation.datasets.base import with_labels
from zeromem.evaluation.types import Dataset

__all__ = ["HELP", "NAMES", "add_arguments", "load", "with_labels"]


class _Loader(Protocol):
    def add_arguments(self, command: argparse.ArgumentParser) -> None: ...

    def from_options(self, options: argparse.Namespace) -> Dataset: ...


_LOADERS: Final[dict[str, _Loader]] = {
    "locomo": locomo,
    "hotpotqa": hotpotqa,
    "beam": beam,
    "longmemeval": longmemeval,
    "musique": musique,
    "twowiki": twowiki,
}
NAMES: Final = tuple(_LOADERS)
HELP: Final = {
    "locomo": "two friends' sessions; gold is turns",
    "hotpotqa": "paragraphs, or long contexts of them; gold is the supporting ones",
    "beam": "user-assistant chats; gold is messages",
    "longmemeval": "a haystack of sessions per question; gold is turns",
    "musique": "two to four hops over paragraphs; gold is the supporting ones",
    "twowiki": "2WikiMultihopQA: two to four paragraphs; gold is the supporting ones",
}
"""One line per set, for the command line."""


def add_arguments(command: argparse.ArgumentParser, name: str) -> None:
    """Add a set's own options and ``--limit`` to its sub-command.

    Parameters
    ----------
    command : ArgumentParser
    name : str
        Of ``NAMES``.
    """
    _loader(name).add_arguments(command)
    command.add_argument("--limit", type=int, help="the first LIMIT questions only")


def load(options: argparse.Namespace) -> Dataset:
    """Load the set that ``options.set`` names with the options of :func:`add_arguments`.

    Raises
    ------
    ImportFormatError
        Where a file is malformed, naming file, record and field.
    InvalidInputError
        Where an option cannot be used.
    OSError
        Where a file cannot be read.
    """
    if options.limit is not None and options.limit < 1:
        raise InvalidInputError(f"--limit must be at least 1, got {options.limit}")
    return _loader(options.set).from_options(options)


def _loader(name: str) -> _Loader:
    if name not in _LOADERS:
        raise InvalidInputError(f"the data set must be one of {', '.join(NAMES)}, got {name!r}")
    return _LOADERS[name]
