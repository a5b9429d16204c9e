"""SQLite connections as the store needs them, and SQLite's errors in the project's words.

Nothing here or elsewhere in the store opens the database file except through SQLite: closing any
other descriptor of it would drop the POSIX locks that the process holds on the file.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from zeromem.errors import CorruptStoreError, ReadOnlyStoreError, StoreError, StoreFullError

BUSY_SECONDS = 60.0
"""How long a call waits for another process's transaction before it gives up."""

_READONLY, _BUSY, _LOCKED, _IOERR, _CORRUPT, _FULL, _CANTOPEN, _NOTADB = 8, 5, 6, 10, 11, 13, 14, 26
_IN_SIZES = (256, 16, 1)
_FULL_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NO_WRITING = {errno.EROFS, errno.EACCES, errno.EPERM}
_PROBE_BYTES = 1 << 20
# What SQLite says of an I/O error that may be for want of room: it keeps errno to itself, and
# names no cause but a full disk, and that not everywhere (a quota, a limit, the -shm).
_WRITING = {
    "SQLITE_IOERR_WRITE", "SQLITE_IOERR_FSYNC", "SQLITE_IOERR_DIR_FSYNC", "SQLITE_IOERR_TRUNCATE",
    "SQLITE_IOERR_SHMOPEN", "SQLITE_IOERR_SHMSIZE", "SQLITE_IOERR_SHMMAP",
}  # fmt: skip
_ROOM = (
    "; nothing of this call was stored, what was acknowledged before is safe; free disk space and "
    "call again"
)
_WRITABLE = (
    "; check that file and folder exist and are writable, or open the store with read_only=True"
)


def connect(path: Path, *, mode: str, durable: bool, immutable: bool = False) -> sqlite3.Connection:
    """Open one connection in autocommit mode.

    Parameters
    ----------
    path : Path
    mode : {"ro", "rw", "rwc"}
        As in SQLite's URI file names.
    durable : bool
        False for the temporary file of a memory store, which no crash needs to outlive.
    immutable : bool
        Open without locks; only for files that nobody can write.

    Raises
    ------
    sqlite3.Error
    """
    uri = f"file:{quote(os.fsencode(path))}?mode={mode}" + ("&immutable=1" if immutable else "")
    con = sqlite3.connect(
        uri,
        uri=True,
        timeout=BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
    )
    try:
        # FULL: the log is synced at each commit. temp_store: a savepoint's journal would write
        # page images, and so text, to a temporary file.
        for pragma in (
            f"synchronous={'FULL' if durable else 'OFF'}",
            "secure_delete=ON",
            "temp_store=MEMORY",
            "trusted_schema=OFF",
            "foreign_keys=OFF",
            f"cache_size={-4000 if mode == 'ro' else -64000}",
        ):
            con.execute(f"PRAGMA {pragma}")
        if mode != "ro":
            con.execute("PRAGMA wal_autocheckpoint=4000")
            con.execute("PRAGMA journal_size_limit=67108864")
    except BaseException:
        con.close()
        raise
    return con


def error_code(exc: sqlite3.Error) -> int:
    """SQLite's primary result code, 0 where the error did not come from SQLite."""
    return getattr(exc, "sqlite_errorcode", 0) & 0xFF


def is_busy(exc: sqlite3.Error) -> bool:
    """Whether another connection's lock is the cause."""
    return error_code(exc) in (_BUSY, _LOCKED)


def store_error(
    exc: sqlite3.Error, path: Path | str, doing: str, *, file: Path | None = None
) -> StoreError:
    """Translate an SQLite error, naming the store, the cause and the fix.

    Parameters
    ----------
    exc : sqlite3.Error
    path : Path or str
        What the store is called.
    doing : str
        What could not be done with it.
    file : Path, optional
        The file that is written, where it has another name.
    """
    file = file or Path(path)
    where = f"cannot {doing} store {str(path)!r}: {exc}"
    match error_code(exc):
        case 26:  # _NOTADB
            return CorruptStoreError(
                f"{str(path)!r} is not a zeromem store ({exc}); give another path"
            )
        case 11:  # _CORRUPT
            return CorruptStoreError(
                f"store {str(path)!r} is damaged ({exc}); restore a backup, or save what is left "
                "with 'sqlite3 FILE .recover'"
            )
        case 13:  # _FULL
            return StoreFullError(f"{where}{_ROOM}")
        case 5 | 6:  # _BUSY, _LOCKED
            return StoreError(
                f"{where}; another process has held its write lock for {BUSY_SECONDS:g} s; wait "
                "for it or end it, and call again"
            )
        case 8:  # _READONLY
            return ReadOnlyStoreError(f"{where}{_WRITABLE}")
        case 14:  # _CANTOPEN
            kind = error_class(probe(file))
            return kind(f"{where}{_ROOM if kind is StoreFullError else _WRITABLE}")
        case 10:  # _IOERR
            name = getattr(exc, "sqlite_errorname", "I/O error")
            if name in _WRITING and error_class(cause := probe(file)) is StoreFullError:
                return StoreFullError(f"{where} ({name}, {cause}){_ROOM}")
            return StoreError(
                f"{where} ({name}); nothing of this call was stored; check the disk and call again"
            )
        case _:
            return StoreError(where)


def error_class(exc: OSError | None) -> type[StoreError]:
    """Tell the want of room and the want of permission from all else."""
    number = None if exc is None else exc.errno
    if number in _FULL_DISK:
        return StoreFullError
    return ReadOnlyStoreError if number in _NO_WRITING else StoreError


def probe(path: Path) -> OSError | None:
    """Ask the file system why a store cannot be written: write a little beside it.

    The file has no name, or loses it at once. It is as long as the store, of which only the end is
    written, so that a limit of file sizes shows itself too.

    Returns
    -------
    OSError or None
        What the operating system says; None where it has nothing against it.
    """
    if not path.is_absolute():  # what a private temporary store is called in messages
        return None
    try:
        size = 0
        for suffix in ("", "-wal"):
            with suppress(FileNotFoundError):
                size = max(size, os.stat(f"{path}{suffix}").st_size)
        with tempfile.TemporaryFile(dir=path.parent, buffering=0) as file:
            file.seek(size)
            left = _PROBE_BYTES
            while left:
                left -= file.write(bytes(left))
            os.fsync(file.fileno())
    except OSError as exc:
        return exc
    return None


@contextmanager
def translated(path: Path | str, doing: str, *, file: Path | None = None) -> Iterator[None]:
    """Turn SQLite errors of the block into :class:`StoreError`; see :func:`store_error`."""
    try:
        yield
    except sqlite3.Error as exc:
        raise store_error(exc, path, doing, file=file) from exc


def select_in(
    con: sqlite3.Connection, sql: str, fixed: Sequence[Any], values: Sequence[Any]
) -> Iterator[Any]:
    """Run ``sql`` with its ``{}`` replaced by placeholders for slices of ``values``.

    A few fixed widths keep the statement cache warm. ``fixed`` binds before ``values``.
    """
    start = 0
    for size in _IN_SIZES:
        statement = sql.format(",".join("?" * size))
        while len(values) - start >= size:
            yield from con.execute(statement, (*fixed, *values[start : start + size]))
            start += size
