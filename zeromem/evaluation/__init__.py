"""The evaluation harness: data sets, retrieval methods, answering and the figures about them.

Nothing of the engine imports it. ``bench/`` runs it from the command line.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zeromem.evaluation.methods.base import RankedList as RankedList
    from zeromem.evaluation.types import Answered as Answered
    from zeromem.evaluation.types import Budget as Budget
    from zeromem.evaluation.types import Dataset as Dataset
    from zeromem.evaluation.types import Found as Found
    from zeromem.evaluation.types import History as History
    from zeromem.evaluation.types import Method as Method
    from zeromem.evaluation.types import Query as Query
    from zeromem.evaluation.types import Question as Question

_HOME = {
    "Answered": "types",
    "Budget": "types",
    "Dataset": "types",
    "Found": "types",
    "History": "types",
    "Method": "types",
    "Query": "types",
    "Question": "types",
    "RankedList": "methods.base",
}

__all__ = [*_HOME]


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})


def __getattr__(name: str) -> Any:
    # Loaded when first used: a method of one's own needs no data set and no reader.
    if name in _HOME:
        return getattr(import_module(f"zeromem.evaluation.{_HOME[name]}"), name)
    raise AttributeError(f"module 'zeromem.evaluation' has no attribute {name!r}")
