"""The store: one SQLite file with many scopes' logs, and the features they share."""

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
import tempfile
import time
import weakref
from pathlib import Path

from zeromem.errors import InvalidInputError, StoreError
from zeromem.store import verify
from zeromem.store.arguments import shown
from zeromem.store.backup import Copied, Progress, backup
from zeromem.store.codec import decode, encode, short_hash
from zeromem.store.commit import GroupCommit
from zeromem.store.connect import BUSY_SECONDS, error_class, is_busy, translated
from zeromem.store.files import remove_snapshots
from zeromem.store.log import ScopeLog
from zeromem.store.opening import check_place, checked_path, open_pool
from zeromem.store.pool import Pool
from zeromem.store.writes import ScopeName

logger = logging.getLogger(__name__)

TRUNCATE_SECONDS = 10.0
"""How long ``forget`` waits for readers of other processes to let go of old pages."""
_LONGEST_TRY = 0.2


class Store:
    """An open store; make one with :meth:`open`, close it or use it as a context manager.

    Any number of threads may share one, any number of processes may open the same file: one writes
    at a time, readers never wait, and each sees what others committed at its next call. It may be
    open across ``os.fork``. Beside the file only SQLite's ``-wal`` and ``-shm`` exist, and the
    snapshots that the index keeps.

    Attributes
    ----------
    path : Path or None
        Absolute; None for a store in memory.
    read_only : bool
    """

    def __init__(self, file: Path, pool: Pool, *, temporary: bool) -> None:
        self.path = None if temporary else file
        self.label = ":memory:" if temporary else str(file)
        self.read_only = pool.read_only
        self._file = file
        self._pool = pool
        self._commit = GroupCommit(pool)
        pool.after_fork(self._commit.reset)
        # A memory store is a private file in the temporary folder: the very same code with
        # readers beside a writer, where SQLite's shared-cache memory has table locks that no
        # timeout covers. Removed on close, or when the last reference goes.
        self._cleanup = (
            weakref.finalize(self, _remove, file.parent, os.getpid()) if temporary else None
        )

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str] | None,
        *,
        read_only: bool = False,
        create: bool = True,
    ) -> Store:
        """Open a store, or create one.

        Parameters
        ----------
        path : path-like or None
            A file in a folder that exists; None or ":memory:" for a private temporary store.
        read_only : bool
            Never write, not even to migrate. Works in a read-only folder.
        create : bool
            Whether a file that does not exist is made.

        Raises
        ------
        StoreError
            There is no such file or folder, or it may not be read or written.
        CorruptStoreError
            The file is no zeromem store, or damaged.
        SchemaTooNewError
            A newer zeromem wrote it.
        """
        if path is None or path == ":memory:":
            file, temporary = _temporary_folder() / "memory.zm", True
        else:
            file, temporary = checked_path(path), False
            check_place(file, read_only=read_only, create=create)
        try:
            pool = open_pool(file, read_only=read_only and not temporary, durable=not temporary)
            return cls(file, pool, temporary=temporary)
        except BaseException:
            if temporary:
                _remove(file.parent, os.getpid())
            raise

    def scope(self, name: str) -> ScopeLog:
        """Give the log of one scope. Nothing is written before the first append.

        Raises
        ------
        InvalidInputError
            The name is empty or no string.
        """
        if not isinstance(name, str) or not name:
            raise InvalidInputError(f"scope must be a non-empty string, got {shown(name)}")
        data = encode(name)
        return ScopeLog(self, ScopeName(data, short_hash(data)), name)

    def ping(self) -> None:
        """Read one row: raises :class:`StoreError` where the store cannot be read."""
        with translated(self.label, "read"), self._pool.reader() as con:
            con.execute("SELECT n_bytes FROM dead").fetchone()

    def scopes(self) -> list[str]:
        """List the names of the scopes that hold anything, sorted."""
        with translated(self.label, "read"), self._pool.reader() as con:
            rows = con.execute("SELECT name FROM names JOIN scopes USING (scope_id) WHERE named")
            return sorted(decode(name) for (name,) in rows)

    def check(self) -> None:
        """Read the whole file and compare each trace with its digest.

        Raises
        ------
        CorruptStoreError
            Naming what is damaged.
        """
        with translated(self.label, "check"), self._pool.reader() as con:
            verify.check(con, self.label)

    def backup(
        self,
        target: str | os.PathLike[str],
        *,
        overwrite: bool = False,
        progress: Progress | None = None,
    ) -> Copied:
        """Copy the store into one file while it is in use: see :func:`zeromem.store.backup`."""
        return backup(self, target, overwrite=overwrite, progress=progress)

    def n_bytes(self) -> int:
        """Bytes on disk of the file and its write-ahead log."""
        sizes = 0
        for suffix in ("", "-wal"):
            try:
                sizes += os.stat(f"{self._file}{suffix}").st_size
            except FileNotFoundError:
                continue
        return sizes

    def close(self) -> None:
        """Wait for calls in progress and let go of the file. Idempotent."""
        with translated(self.label, "close"):
            self._pool.close()
        if self._cleanup is not None:
            self._cleanup()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Store({self.label!r}{', read_only=True' if self.read_only else ''})"

    # ---- what forgetting needs beyond its transaction

    def _unlink_snapshots(self, name: ScopeName) -> None:
        """Remove every file of the scope's snapshots, half-written ones included."""
        if self.path is None or self.read_only:
            return
        try:
            remove_snapshots(self.path, name.hash.hex())
        except OSError as exc:
            raise error_class(exc)(
                f"cannot remove the snapshots of scope {name.data!r} beside {self.label!r}: {exc}; "
                "make the folder writable and call forget again"
            ) from exc

    def _empty_wal(self) -> None:
        """Move the write-ahead log into the file and cut it to nothing."""
        waited = 0.0
        with translated(self.label, "empty the write-ahead log of"):
            while waited < TRUNCATE_SECONDS:
                start = time.monotonic()
                with self._pool.writer() as con:
                    # Short tries, so that other writers get their turn in between.
                    con.execute("PRAGMA busy_timeout = 100")
                    try:
                        busy = con.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
                    except sqlite3.OperationalError as exc:
                        if not is_busy(exc):
                            raise
                        busy = 1
                    finally:
                        con.execute(f"PRAGMA busy_timeout = {int(BUSY_SECONDS * 1000)}")
                if not busy:
                    return
                time.sleep(0.02)
                # A process that was stopped in the middle, or its machine, has not waited.
                waited += min(time.monotonic() - start, _LONGEST_TRY)
        raise StoreError(
            f"the write-ahead log of {self.label!r} could not be emptied in {TRUNCATE_SECONDS:g} "
            "s: a reader in this or another process still holds old pages, so forgotten bytes are "
            "still on disk; end that reader and call forget again (with no lsns is enough)"
        )

    def _vacuum(self) -> None:
        """Give free pages back to the file system."""
        with translated(self.label, "shrink"), self._pool.writer() as con:
            # By default the copy that VACUUM makes would lie in memory whole.
            con.execute("PRAGMA temp_store = FILE")
            try:
                con.execute("VACUUM")
            finally:
                con.execute("PRAGMA temp_store = MEMORY")


def _temporary_folder() -> Path:
    try:
        return Path(tempfile.mkdtemp(prefix="zeromem-"))
    except OSError as exc:
        raise error_class(exc)(
            f"cannot make a folder for a temporary store: {exc}; free disk space, or name another "
            "folder in TMPDIR"
        ) from exc


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # not in a forked child: the parent still uses it
        shutil.rmtree(folder, ignore_errors=True)
