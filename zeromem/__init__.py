"""Zero-Mem: a memory engine for LLM agents that spends no LLM tokens.

>>> import zeromem
>>> mem = zeromem.open(annotator="rules")  # doctest: +SKIP
>>> mem.add("Miso is my new kitten!", speaker="Ana").created  # doctest: +SKIP
True
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from zeromem.aio import AsyncMemory as AsyncMemory
    from zeromem.answer import readers as readers
    from zeromem.config import CalibrationConfig as CalibrationConfig
    from zeromem.config import ClosureConfig as ClosureConfig
    from zeromem.config import Config as Config
    from zeromem.config import FusionConfig as FusionConfig
    from zeromem.config import GraphConfig as GraphConfig
    from zeromem.config import HierarchyConfig as HierarchyConfig
    from zeromem.config import IngestConfig as IngestConfig
    from zeromem.config import LexicalConfig as LexicalConfig
    from zeromem.config import SignalWeights as SignalWeights
    from zeromem.memories import Memories as Memories
    from zeromem.memory import Memory as Memory
    from zeromem.memory import open as open
    from zeromem.memory import retrieve_batch as retrieve_batch
    from zeromem.times import EventTime as EventTime
    from zeromem.types import Answer as Answer
    from zeromem.types import Boundary as Boundary
    from zeromem.types import Evidence as Evidence
    from zeromem.types import Retrieval as Retrieval
    from zeromem.types import Trace as Trace

_HOME = {
    "AsyncMemory": "aio",
    "CalibrationConfig": "config",
    "ClosureConfig": "config",
    "FusionConfig": "config",
    "GraphConfig": "config",
    "HierarchyConfig": "config",
    "IngestConfig": "config",
    "LexicalConfig": "config",
    "SignalWeights": "config",
    "Answer": "types",
    "Boundary": "types",
    "Config": "config",
    "Evidence": "types",
    "EventTime": "times",
    "Memories": "memories",
    "Memory": "memory",
    "Retrieval": "types",
    "Trace": "types",
    "open": "memory",
    "readers": "answer",
    "retrieve_batch": "memory",
}

__all__ = [*_HOME]


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})


def __getattr__(name: str) -> Any:
    # Loaded when first used: importing zeromem costs next to nothing.
    if name in _HOME:
        return getattr(import_module(f"zeromem.{_HOME[name]}"), name)
    raise AttributeError(f"module 'zeromem' has no attribute {name!r}")
