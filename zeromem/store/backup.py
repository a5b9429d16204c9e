"""Backups: a copy of a whole store while it is in use, and the way back.

A backup is a plain store file, which :func:`zeromem.open` reads. It shows the store as it was at
one moment: all that was acknowledged before the backup began, and no batch by half.

The pages are copied by SQLite's backup API within one read transaction. Writers go on: in a
write-ahead log a reader stops nobody. (The log is not cut while the copy runs, so it grows by what
is written meanwhile, and ``forget``, which has to cut it, waits for the copy's end up to
``TRUNCATE_SECONDS``.) ``VACUUM INTO`` would give the same moment and a file without free pages, but
it builds each table and index anew, which holds that transaction longer (by a third, of 500 MB with
100,000 traces), and it can neither tell its progress nor be interrupted in between.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from zeromem.errors import CorruptStoreError, InvalidInputError, SchemaTooNewError, StoreError
from zeromem.store import files, verify
from zeromem.store.connect import connect, error_code, is_busy, store_error, translated
from zeromem.store.opening import check_place, connect_still, named_file
from zeromem.store.pool import is_open_here
from zeromem.store.schema import check_identity, prepare

if TYPE_CHECKING:
    from zeromem.store.store import Store

_DAMAGED = (11, 26)  # SQLITE_CORRUPT, SQLITE_NOTADB
_STEP_PAGES = 1024  # 4 MB: between steps progress is told, and an interrupt is heard

Path_ = str | os.PathLike[str]
Progress = Callable[[int, int], None]


class Copied(NamedTuple):
    """A backup that was made, or a store that was restored.

    Attributes
    ----------
    path : Path
        Where it is now.
    n_traces : int
        Of all scopes; each was compared with its digest.
    n_bytes : int
        Of the file.
    """

    path: Path
    n_traces: int
    n_bytes: int


def backup(
    store: Store, target: Path_, *, overwrite: bool = False, progress: Progress | None = None
) -> Copied:
    """Copy a store into one file, while other threads and processes read and write it.

    The file is written beside its place under another name, read back and checked, synced and
    renamed: under ``target`` there is never anything but a whole backup. Its permissions are those
    of the store. API keys are in a file of their own and are not part of it.

    Parameters
    ----------
    store : Store
    target : path-like
        A file in a folder that exists.
    overwrite : bool
        Whether a file that is there already is replaced.
    progress : callable, optional
        Called with the bytes copied and those to copy.

    Raises
    ------
    InvalidInputError
        ``target`` is the store itself, or no file name.
    StoreError
        ``target`` is a folder, exists, is open somewhere, or cannot be written
        (:class:`StoreFullError`, :class:`ReadOnlyStoreError`).
    CorruptStoreError
        The store is damaged.
    """
    file = _target("target", target, store._file, overwrite)
    with files.system_errors(f"write backup {str(file)!r}"), files.draft(file) as part:
        with translated(store.label, "read"), store._pool.reader() as con:
            _copy(con, part, store.label, file, progress)
        with translated(file, "write", file=part):
            _leave_wal(part)
        with (
            translated(store.label, "check"),
            closing(connect(part, mode="ro", durable=True)) as con,
        ):
            verify.check(con, store.label)
            n_traces = _count(con)
        return _install(part, file, n_traces, os.stat(store._file).st_mode, overwrite)


def restore(
    backup_file: Path_, target: Path_, *, overwrite: bool = False, progress: Progress | None = None
) -> Copied:
    """Put a backup in place as a store.

    The backup is copied beside the target, brought to this version's schema and checked in every
    page and trace before anything of the target is touched; then one rename puts it there, without
    the write-ahead log and the snapshots of what was there before. API keys are in a file of their
    own, which stays as it is: a restored backup brings no revoked key back.

    Parameters
    ----------
    backup_file : path-like
        What :func:`backup` made; any store file will do, its write-ahead log beside it.
    target : path-like
    overwrite : bool
        Whether a store that is there already is replaced, damaged or not. It must not be open.
    progress : callable, optional
        Called with the bytes copied and those to copy.

    Raises
    ------
    InvalidInputError
        Both are the same file, or one is no file name.
    StoreError
        There is no such backup; ``target`` is a folder, exists, is open in this or another process,
        or cannot be written (:class:`StoreFullError`, :class:`ReadOnlyStoreError`).
    CorruptStoreError
        The backup is no zeromem store, or damaged; or ``target`` is another program's database.
    SchemaTooNewError
        A newer zeromem wrote the backup.
    """
    source = named_file("backup_file", backup_file)
    if not os.path.exists(source):
        raise StoreError(f"there is no backup {str(source)!r}; check the path")
    check_place(source, read_only=True, create=False)
    file = _target("target", target, source, overwrite)
    mode = os.stat(file if file.exists() else source).st_mode
    with files.system_errors(f"write store {str(file)!r}"), files.draft(file) as part:
        with translated(source, "read"), closing(connect_still(source)) as con:
            if not check_identity(con, source):
                raise CorruptStoreError(f"{str(source)!r} is empty and no backup; give another")
            con.execute("BEGIN")
            _copy(con, part, str(source), file, progress)
        with (
            translated(source, "check", file=part),
            closing(connect(part, mode="rw", durable=True)) as con,
        ):
            prepare(con, part, read_only=False)
            verify.check(con, str(source))
            n_traces = _count(con)
        return _install(part, file, n_traces, mode, overwrite)


def _target(argument: str, path: Path_, source: Path, overwrite: bool) -> Path:
    """Check all that can be said of a target before the work begins."""
    # Through links: a link stays one, and SQLite keeps its files beside what it leads to.
    file = Path(os.path.realpath(named_file(argument, path)))
    check_place(file, read_only=False, create=True)
    for suffix in files.SIDE_FILES:
        if file.name.endswith(suffix):
            raise InvalidInputError(
                f"{argument} must not end in {suffix!r}, where SQLite keeps what belongs to the "
                f"store {str(file).removesuffix(suffix)!r}, got {str(file)!r}; give another name"
            )
    if file == Path(os.path.realpath(source)) or (file.exists() and file.samefile(source)):
        raise InvalidInputError(
            f"{argument} must be another file than the one that is copied, got {str(file)!r} for "
            "both"
        )
    if file.exists():
        if not overwrite:
            raise _exists(file)
        if is_open_here(file):
            raise files.in_use(file)
    return file


def _exists(file: Path) -> StoreError:
    return StoreError(
        f"{str(file)!r} exists; give another path, or have it replaced with overwrite=True "
        "(--force on the command line)"
    )


def _copy(
    con: sqlite3.Connection, part: Path, source: str, target: Path, progress: Progress | None
) -> None:
    # BEGIN alone takes no snapshot, and without one each step of the copy would take its own.
    size = con.execute("PRAGMA page_size").fetchone()[0]
    con.execute("SELECT count(*) FROM sqlite_master").fetchone()

    def told(_: int, remaining: int, total: int) -> None:
        if progress is not None:
            progress((total - remaining) * size, total * size)

    with (
        translated(target, "write", file=part),
        closing(connect(part, mode="rw", durable=False)) as copy,
    ):
        copy.execute("PRAGMA journal_mode = OFF")  # a draft that fails is thrown away
        try:
            con.backup(copy, pages=_STEP_PAGES, progress=told)
        except sqlite3.Error as exc:
            if error_code(exc) in _DAMAGED:  # of the two it is the one that is read
                raise store_error(exc, source, "read") from exc
            raise


def _leave_wal(part: Path) -> None:
    """Make the file whole by itself: one with a write-ahead log needs a folder to be read in."""
    with closing(connect(part, mode="rw", durable=False)) as con:
        con.execute("PRAGMA journal_mode = DELETE")


def _count(con: sqlite3.Connection) -> int:
    return int(con.execute("SELECT ifnull(sum(n_traces), 0) FROM scopes").fetchone()[0])


def _install(part: Path, file: Path, n_traces: int, mode: int, overwrite: bool) -> Copied:
    """Sync a checked draft and give it its name."""
    part.chmod(mode & 0o777)
    files.sync_file(part)
    n_bytes = part.stat().st_size
    if file.exists():
        if not overwrite:
            raise _exists(file)
        with _claimed(file):
            files.remove_snapshots(file)
            part.replace(file)
    else:
        left = files.side_files(file)
        if left and not overwrite:
            # They may be of a store that another process is just making.
            raise StoreError(
                f"beside {str(file)!r} lie files of another store of that name "
                f"({', '.join(path.name for path in left)}); remove them, or have them removed "
                "with overwrite=True (--force on the command line)"
            )
        for path in left:
            path.unlink(missing_ok=True)
        files.remove_snapshots(file)
        try:
            files.place_new(part, file)
        except FileExistsError:
            raise _exists(file) from None
    files.sync_folder(file.parent)
    return Copied(file, n_traces, n_bytes)


@contextmanager
def _claimed(file: Path) -> Iterator[None]:
    """Hold a store that is to be replaced: nobody has it open, and nothing is left beside it.

    A connection to a store in WAL mode holds a lock on the file for as long as it is open, and
    leaving WAL mode needs that nobody does. It also moves the log into the file and removes it, so
    that a crash at any moment leaves the old store or the new one, and never the new one beside
    the old one's log. Who opens the old file in between waits for the lock, and then finds that it
    was moved: SQLite refuses to write to it.
    """
    if is_open_here(file):
        raise files.in_use(file)
    with ExitStack() as held:
        try:
            con = held.enter_context(closing(connect(file, mode="rw", durable=True)))
            con.execute("PRAGMA busy_timeout = 0")
            with suppress(SchemaTooNewError):  # going back is what a backup is for
                check_identity(con, file)
            con.execute("PRAGMA journal_mode = DELETE")
            con.execute("BEGIN EXCLUSIVE")
            if con.execute("PRAGMA journal_mode").fetchone()[0] == "wal":
                raise files.in_use(file)  # somebody opened it between those two
        except sqlite3.Error as exc:
            if is_busy(exc):
                raise files.in_use(file) from exc
            if error_code(exc) not in _DAMAGED:
                raise store_error(exc, file, "replace") from exc
            held.close()
            held.enter_context(files.locked(file))
            for path in files.side_files(file):
                path.unlink(missing_ok=True)
        yield
