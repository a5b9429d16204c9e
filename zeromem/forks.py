"""Locks that a forked child can use, whichever thread of its parent held them."""

from __future__ import annotations

import os
import threading
import weakref


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


_locks: weakref.WeakSet[Lock] = weakref.WeakSet()


def _renew_all() -> None:
    for lock in list(_locks):
        lock._renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
