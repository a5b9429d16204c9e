"""The feature cache: bytes by (feature key, model fingerprint), shared by all scopes.

A scope reaches only the features of keys that its own live traces refer to.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping

from zeromem.errors import InvalidInputError
from zeromem.store.arguments import shown
from zeromem.store.codec import MAX_BYTES, encode
from zeromem.store.connect import select_in
from zeromem.store.schema import MAX_LSN
from zeromem.store.writes import ScopeName, claim_scope, release_features, scope_row

_REFERRED = "EXISTS (SELECT 1 FROM traces t WHERE t.feature_key = {key} AND t.key BETWEEN ? AND ?)"


def check(features: Mapping[bytes, bytes]) -> None:
    """Refuse what is no mapping of bytes to bytes."""
    if not isinstance(features, Mapping):
        raise InvalidInputError(f"features must map bytes to bytes, got {shown(features)}")
    for key, data in features.items():
        if not isinstance(key, bytes) or not isinstance(data, bytes) or len(data) > MAX_BYTES:
            raise InvalidInputError(
                f"features must map bytes to bytes of at most {MAX_BYTES}, got {shown(key)} to "
                f"{shown(data)}"
            )


def fingerprint_id(con: sqlite3.Connection, fingerprint: str) -> int:
    """Look up the number of a fingerprint in this file; 0 for one it has not met."""
    row = con.execute(
        "SELECT fingerprint_id FROM fingerprints WHERE value = ?", (encode(fingerprint),)
    ).fetchone()
    return row[0] if row else 0


def _claim_fingerprint(con: sqlite3.Connection, fingerprint: str) -> int:
    con.execute(
        "INSERT INTO fingerprints (value) SELECT ?1 "
        "WHERE NOT EXISTS (SELECT 1 FROM fingerprints WHERE value = ?1)",
        (encode(fingerprint),),
    )
    return fingerprint_id(con, fingerprint)


def put(
    con: sqlite3.Connection, name: ScopeName, features: Mapping[bytes, bytes], fingerprint: str
) -> int:
    """Store what is wanted and absent. A stored vector is authoritative: it is never replaced."""
    row = scope_row(con, name)
    number = _claim_fingerprint(con, fingerprint)
    blob_id = 1 + (con.execute("SELECT max(blob_id) FROM blobs").fetchone()[0] or 0)
    referred = f"SELECT {_REFERRED.format(key='?')}"
    stored = 0
    for key, data in features.items():
        if not con.execute(referred, (key, *row.keys)).fetchone()[0]:
            continue  # forgotten while it was being encoded
        claimed = con.execute(
            "INSERT OR IGNORE INTO features VALUES (?, ?, ?)", (key, number, blob_id + stored)
        ).rowcount
        if claimed:
            con.execute("INSERT INTO blobs VALUES (?, ?)", (blob_id + stored, data))
            stored += 1
    return stored


def get(
    con: sqlite3.Connection, name: ScopeName, keys: Collection[bytes], fingerprint: str
) -> dict[bytes, bytes]:
    """Read the features there are, in no particular order."""
    row, number = scope_row(con, name), fingerprint_id(con, fingerprint)
    if not row.scope_id or not number:
        return {}
    sql = (
        "SELECT f.key, b.data FROM features f JOIN blobs b USING (blob_id) WHERE "
        + _REFERRED.format(key="f.key")
        + " AND f.fingerprint_id = ? AND f.key IN ({})"
    )
    return dict(select_in(con, sql, (*row.keys, number), list(dict.fromkeys(keys))))


def missing(con: sqlite3.Connection, name: ScopeName, fingerprint: str) -> list[tuple[int, bytes]]:
    """(lsn, key) of each live trace without features of this model, in log order."""
    row, number = scope_row(con, name), fingerprint_id(con, fingerprint)
    if not row.scope_id:
        return []
    found = con.execute(
        "SELECT t.key, t.feature_key FROM traces t WHERE t.key BETWEEN ? AND ? AND NOT EXISTS "
        "(SELECT 1 FROM features f WHERE f.key = t.feature_key AND f.fingerprint_id = ?) "
        "ORDER BY t.key",
        (*row.keys, number),
    )
    return [(key & MAX_LSN, feature_key) for key, feature_key in found]


def set_fingerprint(con: sqlite3.Connection, name: ScopeName, fingerprint: str) -> None:
    """Write down which model the scope's features come from."""
    number = _claim_fingerprint(con, fingerprint)
    row = claim_scope(con, name)
    if row.fingerprint_id != number:
        con.execute(
            "UPDATE scopes SET fingerprint_id = ? WHERE scope_id = ?", (number, row.scope_id)
        )


def drop(con: sqlite3.Connection, name: ScopeName) -> int:
    """Release all features of the scope's traces that no other scope needs."""
    row = scope_row(con, name)
    keys = con.execute(
        "SELECT DISTINCT feature_key FROM traces WHERE key BETWEEN ? AND ?", row.keys
    ).fetchall()
    return sum(release_features(con, key, except_scope=row.scope_id) for (key,) in keys)
