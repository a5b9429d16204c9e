"""What was computed lately, kept within a bound: the least recently used goes first."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """A mapping bounded by the total size of what it holds; threads may share it.

    Parameters
    ----------
    limit : int
        In whatever unit the caller measures sizes by; what is larger than it is not kept.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = 0
        self._of: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, name: K) -> V | None:
        """Return what is kept under a name, and count that as a use."""
        with self._lock:
            found = self._of.get(name)
            if found is None:
                return None
            self._of.move_to_end(name)
            return found[0]

    def put(self, name: K, value: V, size: int = 1) -> V:
        """Keep a value and return it."""
        if size > self._limit:
            return value
        with self._lock:
            _, before = self._of.pop(name, (value, 0))
            self._of[name] = (value, size)
            self._held += size - before
            while self._held > self._limit:
                _, (_, gone) = self._of.popitem(last=False)
                self._held -= gone
        return value

    def __len__(self) -> int:
        return len(self._of)
