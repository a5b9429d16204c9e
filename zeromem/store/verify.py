"""Reading a whole store to see whether it is what was written."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from zeromem.errors import CorruptStoreError, InvalidInputError
from zeromem.store.codec import decode_trace, prepare_trace, stored_digest
from zeromem.store.schema import LSN_BITS, TEXT_COLUMNS


def check(con: sqlite3.Connection, label: str) -> None:
    """Read every page, and compare each trace with its digest.

    Parameters
    ----------
    con : Connection
        In a read transaction, or on a file that nobody writes.
    label : str
        What the file is called in errors.

    Raises
    ------
    CorruptStoreError
        Naming what is damaged.
    sqlite3.Error
    """
    found = con.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise CorruptStoreError(f"store {label!r} is damaged ({found}); restore a backup")
    columns = ", ".join(f"x.{c}" for c in TEXT_COLUMNS)
    for key, digest, feature_key, *row in con.execute(
        f"SELECT t.key, t.digest, t.feature_key, {columns} "
        "FROM traces t LEFT JOIN texts x USING (text_id)"
    ):
        _check_trace(label, key, digest, feature_key, row)


def _check_trace(
    label: str, key: int, digest: bytes, feature_key: bytes, row: Sequence[bytes | None]
) -> None:
    try:
        prepare_trace(decode_trace(row), feature_key, 0)
        same = stored_digest(row) == digest
    except (ValueError, TypeError, AttributeError, KeyError, InvalidInputError):
        same = False
    if not same:
        scope_id, lsn = divmod(key, 1 << LSN_BITS)
        raise CorruptStoreError(
            f"store {label!r} is damaged: trace lsn {lsn} of scope number {scope_id} does not "
            "match its digest; restore a backup"
        )
