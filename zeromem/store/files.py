"""Files beside the store: drafts that become a store by one rename, and what a replaced one left.

Nothing here opens a store that may be in use.
"""

from __future__ import annotations

import errno
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from zeromem.errors import StoreError
from zeromem.store.connect import error_class

if sys.platform != "win32":  # where a file that is open cannot be replaced anyway
    import fcntl

SIDE_FILES = ("-wal", "-shm", "-journal")
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
# Where SQLite's locks on a file are: the pending and the reserved byte, and those of readers.
_LOCK_START, _LOCK_BYTES = 0x40000000, 512


@contextmanager
def system_errors(doing: str) -> Iterator[None]:
    """Turn errors of the operating system in the block into :class:`StoreError`."""
    try:
        yield
    except OSError as exc:
        raise error_class(exc)(
            f"cannot {doing}: {exc}; free disk space, make the folder writable, or give another "
            "path"
        ) from exc


@contextmanager
def draft(file: Path) -> Iterator[Path]:
    """Make an empty file beside ``file`` that only this user may read; it is removed afterwards.

    Its writer holds a lock on it: drafts that nobody locks are of writers who were killed, and go.
    """
    _sweep(file)
    descriptor, name = tempfile.mkstemp(prefix=f".{file.name}.", suffix=".part", dir=file.parent)
    try:
        if sys.platform != "win32":
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield Path(name)
    finally:
        for suffix in ("", *SIDE_FILES):
            Path(f"{name}{suffix}").unlink(missing_ok=True)
        os.close(descriptor)


def _sweep(file: Path) -> None:
    if sys.platform == "win32":
        return
    name = re.compile(rf"\.{re.escape(file.name)}\.[^.]*\.part")
    for entry in os.scandir(file.parent):
        if not name.fullmatch(entry.name):
            continue
        with suppress(OSError):  # it is being written, or was removed meanwhile
            descriptor = os.open(entry.path, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                for suffix in ("", *SIDE_FILES):
                    Path(f"{entry.path}{suffix}").unlink(missing_ok=True)
            finally:
                os.close(descriptor)


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Hold SQLite's locks on a file that SQLite cannot read.

    Not on one that this process has open: closing a file ends the process's locks on it.

    Raises
    ------
    StoreError
        Another process has it open.
    """
    descriptor = os.open(file, os.O_RDWR)
    try:
        if sys.platform != "win32":
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, _LOCK_BYTES, _LOCK_START)
            except OSError as exc:
                raise in_use(file) from exc
        yield
    finally:
        os.close(descriptor)


def place_new(part: Path, file: Path) -> None:
    """Give a draft the name ``file``, which nothing has yet.

    Raises
    ------
    FileExistsError
    OSError
    """
    try:
        os.link(part, file)  # unlike a rename it cannot take the place of what came meanwhile
    except OSError as exc:
        if exc.errno not in _NO_LINKS:
            raise
        if file.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(file)) from None
        part.rename(file)


def side_files(file: Path) -> list[Path]:
    """List what SQLite left beside a file."""
    return [path for suffix in SIDE_FILES if (path := Path(f"{file}{suffix}")).exists()]


def remove_snapshots(file: Path, scope: str = "[0-9a-f]{32}") -> None:
    """Remove a store's snapshots, half-written ones included.

    Parameters
    ----------
    file : Path
        The store's.
    scope : str
        The hash of a scope's name in hexadecimal; by default those of all scopes.

    Raises
    ------
    OSError
    """
    name = re.compile(rf"{re.escape(file.name)}\.{scope}\..*", re.DOTALL)
    found = [entry.path for entry in os.scandir(file.parent) if name.fullmatch(entry.name)]
    for path in found:
        Path(path).unlink(missing_ok=True)
    if found:
        sync_folder(file.parent)


def sync_file(file: Path) -> None:
    """Have a file on disk. Not one that SQLite has open in this process."""
    descriptor = os.open(file, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Have the names in a folder on disk."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def in_use(file: Path) -> StoreError:
    """Say that a store is open somewhere."""
    return StoreError(
        f"store {str(file)!r} is open in this or another process and cannot be replaced; close it "
        "there, and call again"
    )
