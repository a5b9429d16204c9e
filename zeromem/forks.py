"""Locks that a forked child can use, whichever thread of its parent held them."""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque


class Lock:
    """A re-entrant lock, as a context manager, that no fork leaves held for ever.

    A fork copies the thread that forks and no other: what another thread held is free in the
    child, and what the forking thread held is still its own. What such a lock guards may have been
    left half done, so each change under one must leave something usable at every step.
    """

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _locks.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *exception: object) -> None:
        self._lock.release()

    def _renew(self) -> None:
        if self._lock.acquire(blocking=False):  # free, or the forking thread's
            self._lock.release()
        else:
            self._lock = threading.RLock()


class FairLock(Lock):
    """A lock that is given to whoever has waited for it the longest.

    Who takes an ordinary lock again right after giving it back nearly always gets it, and where it
    is held most of the time the others may wait for minutes.
    """

    __slots__ = ("_depth", "_owner", "_waiting")

    def __init__(self) -> None:
        super().__init__()
        self._owner: int | None = None
        self._depth = 0
        self._waiting: deque[tuple[int, threading.Lock]] = deque()

    def __enter__(self) -> None:
        own = threading.get_ident()
        with self._lock:
            if self._owner in (own, None):
                self._owner = own
                self._depth += 1
                return
            told = threading.Lock()
            told.acquire()
            self._waiting.append((own, told))
        try:
            told.acquire()
        except BaseException:  # an interrupt
            with self._lock:
                if (own, told) in self._waiting:
                    self._waiting.remove((own, told))
                    raise
            self.__exit__()  # it came at the same moment
            raise

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            self._depth -= 1
            if self._depth:
                return
            self._owner = None
            if self._waiting:
                self._owner, told = self._waiting.popleft()
                self._depth = 1
                told.release()

    def _renew(self) -> None:
        super()._renew()
        self._waiting.clear()
        if self._owner != threading.get_ident():
            self._owner, self._depth = None, 0


_locks: weakref.WeakSet[Lock] = weakref.WeakSet()


def _renew_all() -> None:
    for lock in list(_locks):
        lock._renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
