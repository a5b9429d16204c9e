"""The durable log of traces and the feature cache, in one SQLite file."""

from zeromem.store.backup import Copied, restore
from zeromem.store.log import ScopeLog
from zeromem.store.reads import LogRow, LogVersion
from zeromem.store.store import Store

__all__ = ["Copied", "LogRow", "LogVersion", "ScopeLog", "Store", "restore"]
