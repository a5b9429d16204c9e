"""The file's identity, its tables, and the way from any older version of them to the newest.

Where personal content lives is chosen for ``forget``. SQLite's ``secure_delete`` overwrites a
deleted cell, but not the stale copies that a b-tree page keeps in its unused middle after cells
moved to a sibling page (measured: of 2,500 rows deleted from a randomly filled table, up to 12 can
still be read in the file). So content lives in ``texts``, ``blobs`` and ``names`` alone, whose
cells never move: rows are appended at the right edge, and are forgotten by overwriting them in
place with zeros of the same length. The other tables hold numbers and hashes. Rows of zeros are
dropped by copying the live ones once they make up half of the file (:func:`compact`).
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from zeromem.errors import CorruptStoreError, SchemaTooNewError, StoreError
from zeromem.store.connect import BUSY_SECONDS, is_busy

APPLICATION_ID = 0x7A65726F  # "zero"
LSN_BITS = 40
MAX_LSN = (1 << LSN_BITS) - 1

TEXT_COLUMNS = (
    "id", "role", "speaker", "session", "time", "title", "source", "metadata", "text",
)  # fmt: skip


def _create(con: sqlite3.Connection) -> None:
    """Version 1. Strings are BLOBs of UTF-8 with lone surrogates passed through."""
    columns = ", ".join(f"{c} BLOB" for c in TEXT_COLUMNS)
    for statement in (
        f"CREATE TABLE texts (text_id INTEGER PRIMARY KEY, {columns})",
        "CREATE TABLE blobs (blob_id INTEGER PRIMARY KEY, data BLOB NOT NULL)",
        "CREATE TABLE names (scope_id INTEGER PRIMARY KEY, name BLOB NOT NULL)",
        "CREATE TABLE fingerprints (fingerprint_id INTEGER PRIMARY KEY, value BLOB UNIQUE)",
        # A scope's row outlives its traces: log sequence numbers are never used twice, and a
        # reader's cached version can never match a later, other state.
        """CREATE TABLE scopes (
            scope_id INTEGER PRIMARY KEY,
            name_hash BLOB NOT NULL UNIQUE,
            named INTEGER NOT NULL DEFAULT 1,
            fingerprint_id INTEGER,
            last_lsn INTEGER NOT NULL DEFAULT 0,
            n_forgotten_ops INTEGER NOT NULL DEFAULT 0,
            n_traces INTEGER NOT NULL DEFAULT 0,
            last_ingest INTEGER NOT NULL DEFAULT 0)""",
        # key = scope_id << 40 | lsn: a scope's log is one key range, so that each query is bound
        # to its scope by the key itself.
        """CREATE TABLE traces (
            key INTEGER PRIMARY KEY,
            scope_id INTEGER NOT NULL,
            text_id INTEGER NOT NULL,
            id_hash BLOB NOT NULL,
            digest BLOB NOT NULL,
            feature_key BLOB NOT NULL,
            ingested_at INTEGER NOT NULL,
            CHECK (key >> 40 = scope_id))""",
        "CREATE UNIQUE INDEX traces_id ON traces (scope_id, id_hash)",
        "CREATE INDEX traces_feature ON traces (feature_key)",
        """CREATE TABLE features (
            key BLOB NOT NULL,
            fingerprint_id INTEGER NOT NULL,
            blob_id INTEGER NOT NULL,
            PRIMARY KEY (key, fingerprint_id)) WITHOUT ROWID""",
        "CREATE TABLE dead (n_bytes INTEGER NOT NULL)",
        "INSERT INTO dead VALUES (0)",
        f"PRAGMA application_id = {APPLICATION_ID}",
    ):
        con.execute(statement)


MIGRATIONS: tuple[Callable[[sqlite3.Connection], None], ...] = (_create,)
"""``MIGRATIONS[i]`` takes a store from version i to i + 1; a new store runs them all."""


def prepare(con: sqlite3.Connection, path: Path, *, read_only: bool) -> None:
    """Check that the file is a store of ours, and create or migrate it.

    Raises
    ------
    CorruptStoreError
        For another program's database and for a truncated file.
    SchemaTooNewError
    StoreError
        For a store that is empty or old and may not be written.
    sqlite3.Error
    """
    version = check_identity(con, path)
    _check_length(con, path)
    if read_only:
        if version < len(MIGRATIONS):
            state = f"has schema version {version}" if version else "is empty"
            raise StoreError(
                f"store {str(path)!r} {state} and this zeromem reads version {len(MIGRATIONS)}; "
                "open it once without read_only so that it can be brought up to date"
            )
        return
    _use_wal(con, path)
    if version < len(MIGRATIONS):
        migrate(con, path)


def check_identity(con: sqlite3.Connection, path: Path) -> int:
    """Read the file's schema version; 0 for an empty file that may become a store."""
    application = con.execute("PRAGMA application_id").fetchone()[0]
    version: int = con.execute("PRAGMA user_version").fetchone()[0]
    if application == APPLICATION_ID and version > len(MIGRATIONS):
        raise SchemaTooNewError(
            f"store {str(path)!r} has schema version {version}, this zeromem knows versions up to "
            f"{len(MIGRATIONS)}; install a newer zeromem"
        )
    if application == APPLICATION_ID and version > 0:
        return version
    empty = con.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
    if application == 0 and version == 0 and empty:
        return 0
    raise CorruptStoreError(
        f"{str(path)!r} is an SQLite database but not a zeromem store (application_id "
        f"{application:#x}, expected {APPLICATION_ID:#x}); give another path"
    )


def migrate(con: sqlite3.Connection, path: Path) -> None:
    """Run the missing migrations in one transaction; on any error the store stays as it was."""
    con.execute("BEGIN IMMEDIATE")
    try:
        # Read again under the lock: another process may have migrated meanwhile.
        version = check_identity(con, path)
        for step in MIGRATIONS[version:]:
            step(con)
        con.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
        con.execute("COMMIT")
    except BaseException:
        if con.in_transaction:
            con.execute("ROLLBACK")
        raise


def _use_wal(con: sqlite3.Connection, path: Path) -> None:
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            mode = con.execute("PRAGMA journal_mode").fetchone()[0]
            if mode != "wal":
                mode = con.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            break
        except sqlite3.OperationalError as exc:
            # Changing the mode asks for the lock once, whatever the busy timeout says.
            if not is_busy(exc) or time.monotonic() > deadline:
                raise
            time.sleep(0.005)
    if mode != "wal":
        raise StoreError(
            f"store {str(path)!r} lies on a file system without shared memory (journal mode "
            f"{mode!r}, need 'wal'); put it on a local disk"
        )


def _check_length(con: sqlite3.Connection, path: Path) -> None:
    """Refuse a file shorter than its header says; with frames in the WAL that can be legal."""
    for _ in range(2):  # twice, since another process may compact the file in between
        pages = con.execute("PRAGMA page_count").fetchone()[0]
        page_size = con.execute("PRAGMA page_size").fetchone()[0]
        try:
            if os.stat(f"{path}-wal").st_size:
                return
        except FileNotFoundError:
            pass
        size = path.stat().st_size
        if size >= pages * page_size:
            return
    raise CorruptStoreError(
        f"store {str(path)!r} is truncated: {size} bytes of {pages * page_size}; restore a backup"
    )


def compact(con: sqlite3.Connection) -> bool:
    """Drop rows of zeros when they make up half of the used file.

    The live rows are copied in order into a new table, because deleting single rows would move
    their neighbours within the b-tree. Dropped pages are zeroed by ``secure_delete``. Runs in the
    caller's transaction. Amortised, it costs a constant per byte forgotten.

    Returns
    -------
    bool
        Whether anything was done.
    """
    dead = con.execute("SELECT n_bytes FROM dead").fetchone()[0]
    pages, free, size = (
        con.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("page_count", "freelist_count", "page_size")
    )
    if dead < COMPACT_BYTES or dead * 2 < (pages - free) * size:
        return False
    for table, row, owner in (("texts", "text_id", "traces"), ("blobs", "blob_id", "features")):
        sql = con.execute("SELECT sql FROM sqlite_master WHERE name = ?", (table,)).fetchone()[0]
        con.execute(sql.replace(table, f"{table}_live", 1))
        con.execute(
            f"INSERT INTO {table}_live SELECT * FROM {table} "
            f"WHERE {row} IN (SELECT {row} FROM {owner}) ORDER BY {row}"
        )
        con.execute(f"DROP TABLE {table}")
        con.execute(f"ALTER TABLE {table}_live RENAME TO {table}")
    con.execute("UPDATE dead SET n_bytes = 0")
    return True


COMPACT_BYTES = 1 << 20
"""Below this many bytes of zeros a compaction is not worth its transaction."""
