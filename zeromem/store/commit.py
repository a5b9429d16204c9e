"""Group commit: writers that wait at the same time share one transaction, and so one fsync."""

from __future__ import annotations

import copy
import sqlite3
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from zeromem.errors import ReadOnlyStoreError, StoreError
from zeromem.store.connect import store_error
from zeromem.store.pool import Pool
from zeromem.store.schema import check_identity

T = TypeVar("T")


class _Job(Generic[T]):
    __slots__ = ("done", "error", "result", "work")

    def __init__(self, work: Callable[[sqlite3.Connection], T]) -> None:
        self.work = work
        self.result: T | None = None
        self.error: Exception | None = None
        self.done = False


class GroupCommit:
    """Runs write jobs, many to a transaction.

    The first caller to find no leader leads: it takes the write lock, then everything that waits
    by then, runs each job in a savepoint of its own, commits once, and wakes the rest. A job that
    raises is rolled back alone. If the transaction as a whole fails (a full disk), each of its jobs
    is tried once more by itself, so that one that does not fit cannot fail those that do.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.reset()

    def reset(self) -> None:
        """Forget the threads of a parent process."""
        self._cond = threading.Condition()
        self._queue: list[_Job[Any]] = []
        self._leading = False

    def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run ``work`` in a write transaction; return when its result is on disk.

        Raises
        ------
        StoreError
            The store cannot be written: :class:`StoreFullError` for want of room,
            :class:`ReadOnlyStoreError` where it may only be read.
        Exception
            Whatever ``work`` raises; then nothing that it wrote is kept.
        """
        if self._pool.read_only:
            raise ReadOnlyStoreError(
                f"store {str(self._pool.path)!r} is open read-only; open it without read_only=True "
                "to change it"
            )
        job = _Job(work)
        try:
            with self._cond:
                self._queue.append(job)
                self._cond.wait_for(lambda: job.done or not self._leading)
                if not job.done:
                    self._leading = True
            if not job.done:
                try:
                    self._lead(job)
                finally:
                    with self._cond:
                        self._leading = False
                        self._cond.notify_all()
        except BaseException:
            with self._cond:
                if job in self._queue:
                    self._queue.remove(job)
            raise
        if job.error is not None:
            raise job.error
        return job.result  # type: ignore[return-value]

    def _lead(self, own: _Job[Any]) -> None:
        group: list[_Job[Any]] = []
        try:
            with self._pool.writer() as con:
                self._begin(con)
                # After the lock is had, so that whoever waited behind it joins.
                group = self._take()
                failure = self._transaction(con, group)
        except BaseException as exc:
            if isinstance(exc, sqlite3.Error | StoreError):
                self._fail(group or self._take(), exc)
                return
            with self._cond:  # interrupted: the others' jobs go on without this thread
                self._queue[:0] = [j for j in group if j is not own and not j.done]
            raise
        if failure is None:
            self._finish(group)
        elif len(group) == 1:
            self._fail(group, failure)
        else:
            for job in group:
                self._alone(job)

    def _take(self) -> list[_Job[Any]]:
        with self._cond:
            group, self._queue = self._queue, []
        return group

    def _begin(self, con: sqlite3.Connection) -> None:
        con.execute("BEGIN IMMEDIATE")
        self._pool.check_in_place()
        check_identity(con, self._pool.path)  # a newer program may have migrated the open store

    def _transaction(self, con: sqlite3.Connection, group: list[_Job[Any]]) -> sqlite3.Error | None:
        try:
            for job in group:
                self._member(con, job, savepoint=len(group) > 1)
            con.execute("COMMIT")
        except sqlite3.Error as exc:
            if con.in_transaction:
                con.execute("ROLLBACK")
            return exc
        return None

    def _member(self, con: sqlite3.Connection, job: _Job[Any], *, savepoint: bool) -> None:
        job.error = None
        if savepoint:
            con.execute("SAVEPOINT member")
        try:
            job.result = job.work(con)
        except Exception as exc:
            if not con.in_transaction or (isinstance(exc, sqlite3.Error) and not savepoint):
                raise
            job.error = exc
            con.execute("ROLLBACK TO member" if savepoint else "ROLLBACK")
            if not savepoint:
                con.execute("BEGIN")  # so that the caller's COMMIT has something to end
        if savepoint:
            con.execute("RELEASE member")

    def _alone(self, job: _Job[Any]) -> None:
        try:
            with self._pool.writer() as con:
                self._begin(con)
                failure = self._transaction(con, [job])
        except (sqlite3.Error, StoreError) as exc:
            self._fail([job], exc)
            return
        if failure is None:
            self._finish([job])
        else:
            self._fail([job], failure)

    def _finish(self, group: list[_Job[Any]]) -> None:
        with self._cond:
            for job in group:
                if isinstance(job.error, sqlite3.Error):
                    job.error = store_error(job.error, self._pool.path, "write")
                job.done = True

    def _fail(self, group: list[_Job[Any]], cause: sqlite3.Error | StoreError) -> None:
        with self._cond:
            for job in group:
                # One exception object each: threads that raise it add their own traceback.
                if isinstance(cause, sqlite3.Error):
                    job.error = store_error(cause, self._pool.path, "write")
                    job.error.__cause__ = cause
                else:
                    job.error = copy.copy(cause)
                job.done = True
