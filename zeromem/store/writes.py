"""What changes the log, as functions of a connection in a write transaction and one scope."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from typing import NamedTuple

from zeromem.errors import DuplicateIdError
from zeromem.store.codec import Prepared
from zeromem.store.connect import select_in
from zeromem.store.schema import LSN_BITS, MAX_LSN, TEXT_COLUMNS
from zeromem.types import Added

_INSERT_TEXT = (
    f"INSERT INTO texts (text_id, {', '.join(TEXT_COLUMNS)}) VALUES (?{', ?' * len(TEXT_COLUMNS)})"
)
_INSERT_TRACE = (
    "INSERT INTO traces (key, scope_id, text_id, id_hash, digest, feature_key, ingested_at) "
    "VALUES (?, ?, ?, ?, ?, ?, ?)"
)
# Same lengths, so that SQLite overwrites the cell where it lies; NULL stays as short as NULL.
_ZERO_TEXT = (
    "UPDATE texts SET "
    + ", ".join(f"{c} = zeroblob(length({c}))" for c in TEXT_COLUMNS)
    + " WHERE text_id = ?"
)
_TEXT_BYTES = " + ".join(f"ifnull(length({c}), 0)" for c in TEXT_COLUMNS)
# Needed: a live trace's scope reads this model's features, or has not said which it reads.
_ORPHANS = """
    SELECT f.fingerprint_id, f.blob_id, length(b.data) FROM features f JOIN blobs b USING (blob_id)
    WHERE f.key = ? AND NOT EXISTS (
        SELECT 1 FROM traces t JOIN scopes s USING (scope_id)
        WHERE t.feature_key = f.key AND s.scope_id <> ?
        AND (s.fingerprint_id IS NULL OR s.fingerprint_id = f.fingerprint_id))"""


class ScopeName(NamedTuple):
    """A scope as callers name it."""

    data: bytes
    hash: bytes


class ScopeRow(NamedTuple):
    """A scope as the file knows it; ``scope_id`` 0 stands for one never written to."""

    scope_id: int = 0
    named: int = 0
    fingerprint_id: int | None = None
    last_lsn: int = 0
    n_forgotten_ops: int = 0
    n_traces: int = 0
    last_ingest: int = 0

    def key(self, lsn: int) -> int | None:
        """Make the key of a log sequence number, None for one that no trace of a scope can have.

        The check is what keeps a number out of range from naming another scope's trace.
        """
        return (self.scope_id << LSN_BITS) | lsn if 0 < lsn <= MAX_LSN else None

    @property
    def keys(self) -> tuple[int, int]:
        """First and last key of the scope, inclusive."""
        return self.scope_id << LSN_BITS, (self.scope_id << LSN_BITS) | MAX_LSN


def scope_row(con: sqlite3.Connection, name: ScopeName) -> ScopeRow:
    """Look a scope up by the hash of its name."""
    row = con.execute(
        f"SELECT {', '.join(ScopeRow._fields)} FROM scopes WHERE name_hash = ?", (name.hash,)
    ).fetchone()
    return ScopeRow(*row) if row else ScopeRow()


def claim_scope(con: sqlite3.Connection, name: ScopeName) -> ScopeRow:
    """:func:`scope_row` of a scope about to be written to; writes its name where it has none."""
    row = scope_row(con, name)
    if row.named:
        return row
    if row.scope_id:
        # The zeros left by forgetting have the name's length, so this too is written in place.
        con.execute("UPDATE names SET name = ? WHERE scope_id = ?", (name.data, row.scope_id))
        con.execute("UPDATE scopes SET named = 1 WHERE scope_id = ?", (row.scope_id,))
        return row._replace(named=1)
    scope_id = con.execute("INSERT INTO scopes (name_hash) VALUES (?)", (name.hash,)).lastrowid
    con.execute("INSERT INTO names VALUES (?, ?)", (scope_id, name.data))
    return ScopeRow(scope_id or 0, 1)


def append(con: sqlite3.Connection, name: ScopeName, traces: Sequence[Prepared]) -> list[Added]:
    """Append what is new. A trace's time of ingestion never precedes that of an earlier one.

    Raises
    ------
    DuplicateIdError
    """
    row = scope_row(con, name)
    known: dict[bytes, tuple[int, bytes]] = {}
    if row.scope_id:
        sql = "SELECT id_hash, key, digest FROM traces WHERE scope_id = ? AND id_hash IN ({})"
        for id_hash, key, digest in select_in(
            con, sql, (row.scope_id,), [t.id_hash for t in traces]
        ):
            known[id_hash] = (key & MAX_LSN, digest)
    added, new, lsn = [], [], row.last_lsn
    for trace in traces:
        lsn_there, digest = known.get(trace.id_hash, (0, b""))
        if not lsn_there:
            lsn += 1
            known[trace.id_hash] = (lsn, trace.digest)
            new.append(trace)
            added.append(Added(trace.id, lsn, True))
        elif digest == trace.digest:
            added.append(Added(trace.id, lsn_there, False))
        else:
            raise DuplicateIdError(
                f"id {trace.id!r} is taken by a trace with other content (lsn {lsn_there}); give "
                "this one another id, or forget that one first; nothing of the batch was stored"
            )
    if new:
        _insert(con, claim_scope(con, name), new)
    return added


def _insert(con: sqlite3.Connection, row: ScopeRow, new: Sequence[Prepared]) -> None:
    # The clock may step back, the log may not: as_of looks times up by order.
    now = max(time.time_ns() // 1000, row.last_ingest)
    text_id = 1 + (con.execute("SELECT max(text_id) FROM texts").fetchone()[0] or 0)
    key = row.keys[0] + row.last_lsn + 1
    con.executemany(_INSERT_TEXT, ((text_id + i, *t.columns) for i, t in enumerate(new)))
    con.executemany(
        _INSERT_TRACE,
        (
            (key + i, row.scope_id, text_id + i, t.id_hash, t.digest, t.feature_key, now)
            for i, t in enumerate(new)
        ),
    )
    con.execute(
        "UPDATE scopes SET last_lsn = last_lsn + ?1, n_traces = n_traces + ?1, last_ingest = ?2 "
        "WHERE scope_id = ?3",
        (len(new), now, row.scope_id),
    )


def forget(con: sqlite3.Connection, name: ScopeName, lsns: Sequence[int]) -> int:
    """Delete traces, their contents, and the features that nobody needs any more."""
    row = scope_row(con, name)
    keys = [key for lsn in set(lsns) if (key := row.key(lsn)) is not None and row.scope_id]
    sql = (
        f"SELECT key, text_id, feature_key, {_TEXT_BYTES} FROM traces JOIN texts USING (text_id) "
        "WHERE key IN ({})"
    )
    found = list(select_in(con, sql, (), keys))
    if not found:
        return 0
    con.executemany(_ZERO_TEXT, ((text_id,) for _, text_id, _, _ in found))
    con.executemany("DELETE FROM traces WHERE key = ?", ((key,) for key, *_ in found))
    _count_dead(con, sum(size for *_, size in found))
    for feature_key in {k for _, _, k, _ in found}:
        release_features(con, feature_key)
    con.execute(
        "UPDATE scopes SET n_traces = n_traces - ?, n_forgotten_ops = n_forgotten_ops + 1 "
        "WHERE scope_id = ?",
        (len(found), row.scope_id),
    )
    if len(found) == row.n_traces:
        _clear_scope(con, row)
    return len(found)


def _clear_scope(con: sqlite3.Connection, row: ScopeRow) -> None:
    """Nothing of an emptied scope stays but the hash of its name and its counters."""
    con.execute(
        "UPDATE names SET name = zeroblob(length(name)) WHERE scope_id = ?", (row.scope_id,)
    )
    con.execute(
        "UPDATE scopes SET named = 0, fingerprint_id = NULL WHERE scope_id = ?", (row.scope_id,)
    )


def release_features(con: sqlite3.Connection, feature_key: bytes, *, except_scope: int = 0) -> int:
    """Drop a key's features that no scope but ``except_scope`` needs; returns how many."""
    orphans = con.execute(_ORPHANS, (feature_key, except_scope)).fetchall()
    for fingerprint_id, blob_id, size in orphans:
        con.execute(
            "DELETE FROM features WHERE key = ? AND fingerprint_id = ?",
            (feature_key, fingerprint_id),
        )
        con.execute("UPDATE blobs SET data = zeroblob(length(data)) WHERE blob_id = ?", (blob_id,))
        _count_dead(con, size)
    return len(orphans)


def _count_dead(con: sqlite3.Connection, n_bytes: int) -> None:
    con.execute("UPDATE dead SET n_bytes = n_bytes + ?", (n_bytes,))
