"""What a read transaction can ask of one scope."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, cast

from zeromem.errors import StaleReadError
from zeromem.store.codec import (
    decode,
    decode_time,
    decode_trace,
    encode,
    maybe,
    short_hash,
)
from zeromem.store.connect import select_in
from zeromem.store.schema import MAX_LSN, TEXT_COLUMNS
from zeromem.store.writes import ScopeName, ScopeRow, scope_row
from zeromem.times import EventTime, from_micros
from zeromem.types import Role, StoredTrace

_ROWS = (
    "SELECT t.key, x.id, x.role, x.speaker, x.session, x.time, x.title, x.source, t.feature_key, "
    "t.ingested_at FROM traces t JOIN texts x USING (text_id) "
    "WHERE t.key > ? AND t.key <= ? ORDER BY t.key LIMIT ?"
)
_TRACES = (
    f"SELECT t.key, t.ingested_at, {', '.join(f'x.{c}' for c in TEXT_COLUMNS)} "
    "FROM traces t JOIN texts x USING (text_id) WHERE "
)


class LogVersion(NamedTuple):
    """The state of a scope's log; no two states have the same.

    Attributes
    ----------
    last_lsn : int
        0 before the first trace; never decreases.
    n_forgotten_ops : int
        Calls of ``forget`` that deleted something; never decreases.
    n_traces : int
        Live traces.
    """

    last_lsn: int
    n_forgotten_ops: int
    n_traces: int


class LogRow(NamedTuple):
    """A trace without its text and metadata (a tuple: scans build many)."""

    lsn: int
    id: str
    role: Role
    speaker: str | None
    session: str | None
    time: EventTime | None
    title: str | None
    source: str | None
    feature_key: bytes
    ingested_at: datetime


def version(con: sqlite3.Connection, name: ScopeName) -> LogVersion:
    """One row by its key."""
    row = con.execute(
        "SELECT last_lsn, n_forgotten_ops, n_traces FROM scopes WHERE name_hash = ?", (name.hash,)
    ).fetchone()
    return LogVersion(*row) if row else LogVersion(0, 0, 0)


def check_unchanged(row: ScopeRow, n_forgotten_ops: int) -> None:
    """Raise where something was forgotten since."""
    if row.n_forgotten_ops != n_forgotten_ops:
        raise StaleReadError(
            f"the log had n_forgotten_ops {n_forgotten_ops}, now it has {row.n_forgotten_ops}: "
            "traces were forgotten meanwhile; read its version and start again"
        )


def row_chunk(
    con: sqlite3.Connection, row: ScopeRow, after_lsn: int, until_lsn: int, limit: int
) -> list[LogRow]:
    """Up to ``limit`` rows of the lsn range ``(after_lsn, until_lsn]``."""
    first = row.keys[0]
    found = con.execute(_ROWS, (first + after_lsn, first + until_lsn, limit))
    return [
        LogRow(
            key & MAX_LSN,
            decode(name),
            cast(Role, decode(role)),
            maybe(speaker),
            maybe(session),
            None if when is None else decode_time(when),
            maybe(title),
            maybe(source),
            feature_key,
            from_micros(ingested),
        )
        for key, name, role, speaker, session, when, title, source, feature_key, ingested in found
    ]


def _stored(row: Sequence[Any]) -> StoredTrace:
    return StoredTrace(row[0] & MAX_LSN, decode_trace(row[2:]), from_micros(row[1]))


def read(con: sqlite3.Connection, row: ScopeRow, lsns: Sequence[int]) -> list[StoredTrace]:
    """Read the traces of ``lsns``, in that order.

    Raises
    ------
    StaleReadError
        Where one is not in the log, or not any more.
    """
    keys = [row.key(lsn) if row.scope_id else None for lsn in lsns]
    wanted = list({key for key in keys if key is not None})
    there = {r[0]: _stored(r) for r in select_in(con, _TRACES + "t.key IN ({})", (), wanted)}
    found = []
    for lsn, key in zip(lsns, keys, strict=True):
        if key is None or key not in there:
            raise StaleReadError(f"lsn {lsn} is not in the log; it was forgotten or never existed")
        found.append(there[key])
    return found


def trace_chunk(
    con: sqlite3.Connection, row: ScopeRow, after_lsn: int, until_lsn: int, n_bytes: int
) -> list[StoredTrace]:
    """Whole traces of the lsn range, up to about ``n_bytes`` of text; at least one if any."""
    first = row.keys[0]
    cursor = con.execute(
        _TRACES + "t.key > ? AND t.key <= ? ORDER BY t.key", (first + after_lsn, first + until_lsn)
    )
    chunk = []
    for found in cursor:
        chunk.append(_stored(found))
        n_bytes -= 500 + len(found[-1])
        if n_bytes <= 0:
            break
    cursor.close()  # an unfinished statement would keep the transaction open
    return chunk


def find(con: sqlite3.Connection, row: ScopeRow, ids: Collection[str]) -> dict[str, int]:
    """Look up lsns by id, of those that are there."""
    by_hash = {short_hash(encode(name)): name for name in ids}
    sql = "SELECT id_hash, key FROM traces WHERE scope_id = ? AND id_hash IN ({})"
    found = select_in(con, sql, (row.scope_id,), list(by_hash))
    return {by_hash[id_hash]: key & MAX_LSN for id_hash, key in found}


def lsn_at(con: sqlite3.Connection, row: ScopeRow, micros: int) -> int:
    """Find the last live lsn ingested by an instant, by bisection: both only ever grow."""
    first, low, high = row.keys[0], 0, row.last_lsn
    sql = "SELECT key, ingested_at FROM traces WHERE key >= ? AND key <= ? ORDER BY key LIMIT 1"
    while low < high:
        middle = (low + high + 1) // 2
        found = con.execute(sql, (first + middle, first + high)).fetchone()
        if found is not None and found[1] <= micros:
            low = found[0] & MAX_LSN
        else:
            high = middle - 1
    return low


def select(
    con: sqlite3.Connection,
    row: ScopeRow,
    columns: Mapping[str, Collection[str | None]],
    inside: Callable[[EventTime | None], bool] | None,
) -> list[int]:
    """Scan for traces whose columns have one of the given values, and whose time is inside.

    Without ``inside`` no time is decoded: what cannot be read can still be forgotten.
    """
    wanted = [
        (name, {None if v is None else encode(v) for v in values})
        for name, values in columns.items()
    ]
    names = "".join(f", x.{name}" for name, _ in wanted)
    cursor = con.execute(
        f"SELECT t.key, x.time{names} FROM traces t JOIN texts x USING (text_id) "
        "WHERE t.key BETWEEN ? AND ? ORDER BY t.key",
        row.keys,
    )
    return [
        key & MAX_LSN
        for key, when, *values in cursor
        if all(value in allowed for value, (_, allowed) in zip(values, wanted, strict=True))
        and (inside is None or inside(None if when is None else decode_time(when)))
    ]


def stats(con: sqlite3.Connection, name: ScopeName) -> dict[str, Any]:
    """Count what one scope holds; two scans of it."""
    row = scope_row(con, name)
    text_bytes = con.execute(
        "SELECT ifnull(sum(length(x.text)), 0) FROM traces t JOIN texts x USING (text_id) "
        "WHERE t.key BETWEEN ? AND ?",
        row.keys,
    ).fetchone()[0]
    n_features, feature_bytes, pending = con.execute(
        "SELECT count(DISTINCT f.key), ifnull(sum(length(b.data)), 0), "
        "sum(CASE WHEN f.key IS NULL THEN t.n ELSE 0 END) FROM "
        "(SELECT feature_key, count(*) n FROM traces WHERE key BETWEEN ? AND ? "
        "GROUP BY feature_key) t "
        "LEFT JOIN features f ON f.key = t.feature_key AND f.fingerprint_id = ? "
        "LEFT JOIN blobs b USING (blob_id)",
        (*row.keys, row.fingerprint_id or 0),
    ).fetchone()
    return {
        "traces": row.n_traces,
        "text_bytes": text_bytes,
        "features": n_features,
        "feature_bytes": feature_bytes,
        "pending": pending or 0,
        "fingerprint": fingerprint(con, row),
        "last_lsn": row.last_lsn,
        "forgotten_ops": row.n_forgotten_ops,
    }


def fingerprint(con: sqlite3.Connection, row: ScopeRow) -> str | None:
    """Name the model that the scope's features come from."""
    found = con.execute(
        "SELECT value FROM fingerprints WHERE fingerprint_id = ?", (row.fingerprint_id,)
    ).fetchone()
    return decode(found[0]) if found else None
