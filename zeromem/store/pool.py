"""The connections of one store in one process: shared by its threads, closed around a fork."""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from zeromem.errors import StoreError
from zeromem.store.connect import BUSY_SECONDS, connect

_MAX_IDLE = 8
# One at a time writes, and each keeps what it read of the file: up to 64 MB.
_MAX_IDLE_WRITERS = 2
_READER_CACHE = -4000  # KiB


class Pool:
    """Hands each caller a connection that no other thread has meanwhile.

    A pool instead of one connection per thread: threads end without telling, and their
    connections would stay open. Reads never wait for each other; a connection is made when none
    is idle.

    Parameters
    ----------
    path : Path
    read_only, durable, immutable : bool
        As for :func:`zeromem.store.connect.connect`.
    """

    def __init__(
        self,
        path: Path,
        *,
        read_only: bool,
        durable: bool,
        immutable: bool = False,
    ) -> None:
        self.path = path
        self.read_only = read_only
        self._durable = durable
        self._immutable = immutable
        self._identity = self._file_state() if immutable else None
        self._inode = self._file_inode()
        self._on_fork: Callable[[], None] = lambda: None
        self._cond = threading.Condition()
        self._idle: dict[bool, list[sqlite3.Connection]] = {False: [], True: []}
        self._n_out = 0
        self._closed = ""
        self._forking = False
        _pools.add(self)

    def after_fork(self, reset: Callable[[], None]) -> None:
        """Have ``reset`` called in each forked child, to drop what the parent's threads held."""
        self._on_fork = reset

    def connect(self, *, write: bool) -> sqlite3.Connection:
        """Make a new connection that the caller owns."""
        self.check_in_place()  # another file must not be read with this one's log beside it
        mode = "ro" if self.read_only else "rw"
        con = connect(self.path, mode=mode, durable=self._durable, immutable=self._immutable)
        if not write:
            con.execute("PRAGMA query_only=ON")
            # Readers are many, and the system keeps the file's pages for all of them.
            con.execute(f"PRAGMA cache_size={_READER_CACHE}")
        return con

    def check_in_place(self) -> None:
        """Raise where the path no longer leads to the file that was opened.

        SQLite would go on writing into a file that nobody can reach, and lose what was
        acknowledged. A store in memory is reached by nobody else anyway.
        """
        if not self._durable:
            return
        try:
            same = self._file_inode() == self._inode
        except OSError:
            same = False
        if not same:
            raise StoreError(
                f"the file of store {str(self.path)!r} was removed or replaced while it was open; "
                "nothing of this call was stored; put the file back, or close the store and open "
                "it again"
            )

    @contextmanager
    def reader(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection inside one read transaction, which sees one commit's state."""
        with self._lend(write=False) as con:
            con.execute("BEGIN")
            try:
                yield con
            finally:
                if con.in_transaction:
                    con.execute("COMMIT")

    @contextmanager
    def single(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection for one read statement, which is its own transaction."""
        with self._lend(write=False) as con:
            yield con

    @contextmanager
    def writer(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection that may write, outside any transaction."""
        with self._lend(write=True) as con:
            try:
                yield con
            finally:
                if con.in_transaction:
                    con.execute("ROLLBACK")

    @contextmanager
    def _lend(self, *, write: bool) -> Iterator[sqlite3.Connection]:
        with self._cond:
            self._cond.wait_for(lambda: not self._forking)
            if self._closed:
                raise StoreError(self._closed)
            idle = self._idle[write]
            con = idle.pop() if idle else None
            self._n_out += 1
        broken = False
        try:
            if self._identity is not None and self._file_state() != self._identity:
                raise StoreError(
                    f"store {str(self.path)!r} changed while it was open from a read-only folder; "
                    "close it and open it again"
                )
            if write:
                self.check_in_place()
            if con is None:
                con = self.connect(write=write)
            yield con
        except sqlite3.Error:
            broken = True  # a connection that met an I/O error is not trusted again
            raise
        finally:
            self._give_back(con, write, broken)

    def _give_back(self, con: sqlite3.Connection | None, write: bool, broken: bool) -> None:
        with self._cond:
            most = _MAX_IDLE_WRITERS if write else _MAX_IDLE
            keep = not self._closed and not broken and len(self._idle[write]) < most
            if con is not None and keep:
                self._idle[write].append(con)
            elif con is not None:
                con.close()
            self._n_out -= 1
            self._cond.notify_all()

    def has_open(self, *inode: int) -> bool:
        """Whether this is an open store of that device and inode."""
        return not self._closed and self._inode == inode

    def close(self) -> None:
        """Wait for calls in progress and close every connection. Idempotent."""
        with self._cond:
            self._closed = self._closed or (
                f"store {str(self.path)!r} is closed; open it again to use it"
            )
            self._cond.wait_for(lambda: self._n_out == 0, timeout=BUSY_SECONDS)
            self._close_idle()

    def _close_idle(self) -> None:
        # Writers last: the last connection to close empties the WAL, which a reader cannot.
        for idle in self._idle.values():
            while idle:
                idle.pop().close()

    def _file_inode(self) -> tuple[int, int]:
        stat = os.stat(self.path)  # never open(): closing it would drop SQLite's locks
        return stat.st_dev, stat.st_ino

    def _file_state(self) -> tuple[int, int, int, bool]:
        stat = self.path.stat()
        wal = os.path.exists(f"{self.path}-wal")
        return stat.st_ino, stat.st_size, stat.st_mtime_ns, wal

    # SQLite's lock bookkeeping is per process and wrong in a forked child that inherits open
    # connections. So none is open while a process forks; both sides open new ones when needed.
    def _before_fork(self) -> None:
        self._cond.acquire()
        self._forking = True
        self._cond.wait_for(lambda: self._n_out == 0, timeout=BUSY_SECONDS)
        self._close_idle()

    def _after_fork_in_parent(self) -> None:
        self._forking = False
        self._cond.notify_all()
        self._cond.release()

    def _after_fork_in_child(self) -> None:
        if self._n_out:
            self._closed = (
                f"store {str(self.path)!r} was in use when this process was forked; open it again"
            )
        self._cond = threading.Condition()
        self._forking = False
        self._n_out = 0
        self._on_fork()


_pools: weakref.WeakSet[Pool] = weakref.WeakSet()


def is_open_here(file: Path) -> bool:
    """Whether a store of this process has a file open, also where no connection is at hand."""
    stat = os.stat(file)
    return any(p.has_open(stat.st_dev, stat.st_ino) for p in list(_pools))


_fork_lock = threading.Lock()
_frozen: list[Pool] = []


def _before_fork() -> None:
    _fork_lock.acquire()
    _frozen[:] = list(_pools)
    for pool in _frozen:
        pool._before_fork()


def _after_fork_in_parent() -> None:
    for pool in _frozen:
        pool._after_fork_in_parent()
    _frozen.clear()
    _fork_lock.release()


def _after_fork_in_child() -> None:
    for pool in _frozen:
        pool._after_fork_in_child()
    _frozen.clear()
    _fork_lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )
