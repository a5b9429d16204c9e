"""From a path to a checked store file: everything that can be wrong on the way, by name."""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from pathlib import Path

from zeromem.errors import InvalidInputError, ReadOnlyStoreError, StoreError
from zeromem.store.arguments import shown
from zeromem.store.connect import connect, store_error
from zeromem.store.pool import Pool
from zeromem.store.schema import prepare


def checked_path(path: str | os.PathLike[str]) -> Path:
    """Make the path absolute, so that a later change of folder cannot move the store."""
    try:
        text = os.fsdecode(path)
        os.fsencode(text)
    except TypeError:
        raise InvalidInputError(
            f"path must be a file name, ':memory:' or None, got {shown(path)}"
        ) from None
    except UnicodeError:
        raise InvalidInputError(
            f"path must be a name that the file system can hold, got {shown(path)}; remove the "
            "characters that are no text"
        ) from None
    if not text or "\0" in text:
        raise InvalidInputError(f"path must be a file name without NUL, got {text!r}")
    return Path(os.path.abspath(text))


def named_file(argument: str, path: str | os.PathLike[str]) -> Path:
    """:func:`checked_path` where nothing but a file will do.

    Raises
    ------
    InvalidInputError
        Naming the argument.
    """
    if path is not None and path != ":memory:":
        with suppress(InvalidInputError):
            return checked_path(path)
    raise InvalidInputError(f"{argument} must be the name of a file, got {shown(path)}")


def check_place(file: Path, *, read_only: bool, create: bool) -> None:
    """Say what is wrong with a path before SQLite says it in general terms."""
    try:
        if file.is_dir():
            raise StoreError(f"store {str(file)!r} is a folder; give the name of a file in it")
        if file.exists():
            if not file.is_file():
                raise StoreError(f"store {str(file)!r} is no regular file; give another path")
            if not os.access(file, os.R_OK):
                raise StoreError(f"store {str(file)!r} may not be read; check its permissions")
            if not (read_only or (_writable(file) and _writable(file.parent))):
                raise ReadOnlyStoreError(
                    f"store {str(file)!r} may not be written, file or folder is read-only; make "
                    "both writable, or open it with read_only=True"
                )
            return
        if not file.parent.is_dir():
            raise StoreError(
                f"cannot create store {str(file)!r}: the folder {str(file.parent)!r} does not "
                "exist; create it first"
            )
    except OSError as exc:
        raise StoreError(f"cannot open store {str(file)!r}: {exc}; check the path") from exc
    if read_only or not create:
        wish = "read_only=True" if read_only else "create=False"
        raise StoreError(
            f"there is no store {str(file)!r}; check the path, or open it without {wish} to create "
            "it"
        )
    if not _writable(file.parent):
        raise ReadOnlyStoreError(
            f"cannot create store {str(file)!r}: the folder {str(file.parent)!r} is read-only; "
            "make it writable or give another path"
        )


def _writable(path: Path) -> bool:
    return os.access(path, os.W_OK)


def connect_still(file: Path) -> sqlite3.Connection:
    """Connect to a store only to read it, wherever it lies.

    Raises
    ------
    sqlite3.Error
    """
    con = connect(file, mode="ro", durable=True)
    try:
        con.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error as exc:
        con.close()
        if not (isinstance(exc, sqlite3.OperationalError) and _lies_still(file)):
            raise
        return connect(file, mode="ro", durable=True, immutable=True)
    return con


def _lies_still(file: Path) -> bool:
    """Whether nobody can be writing to a file that could not be read in the usual way.

    A WAL file needs a -shm beside it even for reading. Where the folder is read-only and nobody
    left a log behind, it can be read as it lies.
    """
    return not (_writable(file.parent) or Path(f"{file}-wal").exists())


def _make_private(file: Path) -> None:
    """Create a new store for its owner alone: it has what users said. SQLite keeps the mode."""
    with suppress(OSError):  # it is there, or SQLite says what is wrong
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def open_pool(file: Path, *, read_only: bool, durable: bool) -> Pool:
    """Check, create or migrate the file, and make the pool of its connections."""
    mode = "ro" if read_only else "rwc"
    immutable = False
    if not read_only:
        _make_private(file)
    try:
        try:
            con = connect(file, mode=mode, durable=durable)
            try:
                prepare(con, file, read_only=read_only)
            finally:
                con.close()
        except sqlite3.OperationalError:
            if not (read_only and _lies_still(file)):
                raise
            immutable = True
            con = connect(file, mode=mode, durable=durable, immutable=True)
            try:
                prepare(con, file, read_only=True)
            finally:
                con.close()
    except sqlite3.Error as exc:
        raise store_error(exc, file, "open") from exc
    try:
        return Pool(file, read_only=read_only, durable=durable, immutable=immutable)
    except OSError as exc:
        raise StoreError(f"cannot open store {str(file)!r}: {exc}; check the path") from exc
