"""API keys: who may reach which tenant's memories through a server.

The keys lie in a small SQLite file of their own beside the store, ``<store>.keys``, which only its
owner may read. It is apart from the store so that restoring a backup cannot bring revoked keys
back, and so that no copy of a store carries keys.
"""

from __future__ import annotations

import hmac
import os
import secrets
import sqlite3
import threading
import time
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from zeromem.errors import CorruptStoreError, InvalidInputError, SchemaTooNewError
from zeromem.store.arguments import shown
from zeromem.store.connect import (
    BUSY_SECONDS,
    connect,
    error_class,
    error_code,
    is_busy,
    store_error,
)
from zeromem.store.opening import named_file
from zeromem.times import from_micros

MAX_NAME = 128
"""Most characters of a tenant's or a key's name."""

_APPLICATION_ID = 0x7A6D6B79  # "zmky"
_VERSION = 1
_COLUMNS = "id, tenant, name, read_only, rate, created_at, revoked_at"
_CREATE = """CREATE TABLE keys (
    id TEXT PRIMARY KEY,
    tenant TEXT,
    name TEXT NOT NULL,
    read_only INTEGER NOT NULL,
    rate REAL,
    created_at INTEGER NOT NULL,
    revoked_at INTEGER,
    hash BLOB NOT NULL)"""
_LONGEST = 256  # characters of a key's text; any longer one is no key
# Control characters, surrogates, and the separators of lines and paragraphs.
_UNPRINTED = {"Cc", "Cs", "Zl", "Zp"}
_MAX_RATE = 1e9
_NOBODY = sha256(secrets.token_bytes(32)).digest()


@dataclass(frozen=True)
class Key:
    """What is known of a key; never its secret.

    Attributes
    ----------
    id : str
        Its public part, which names it in lists and logs.
    tenant : str or None
        Whose memories it reaches; None for all: an operator's key.
    name : str
        What it is for, in its owner's words.
    read_only : bool
    rate : float or None
        Requests per second; None for the server's own limit.
    created_at : datetime
    revoked_at : datetime or None
    """

    id: str
    tenant: str | None
    name: str
    read_only: bool
    rate: float | None
    created_at: datetime
    revoked_at: datetime | None


class _Known(NamedTuple):
    key: Key
    hash: bytes


def check_tenant(tenant: str, argument: str = "tenant") -> str:
    """Return a tenant's name where it may be one.

    It has 1 to 128 characters, no "/" (a server keeps a tenant's scope S as the store's scope
    "TENANT/S", so that no tenant's scope can be another's), no control characters, no white space
    at its ends, and is in Unicode's normal form C. Another form is refused and not converted: the
    name is compared as it is written, and who gave one should not find another in its place.

    Raises
    ------
    InvalidInputError
    """
    _check_name(argument, tenant)
    if not tenant:
        raise InvalidInputError(f"{argument} must not be empty, got ''; None means all tenants")
    if "/" in tenant:
        raise InvalidInputError(
            f"{argument} must have no '/', which ends a tenant's name in a scope, got {tenant!r}"
        )
    if tenant != tenant.strip():
        raise InvalidInputError(
            f"{argument} must not start or end with white space, got {tenant!r}; give "
            f"{tenant.strip()!r}"
        )
    if (composed := unicodedata.normalize("NFC", tenant)) != tenant:
        raise InvalidInputError(
            f"{argument} must be in Unicode's normal form C, got {tenant!a}; give {composed!a}"
        )
    return tenant


def id_of(text: str) -> str:
    """Return the id of a whole key, without its secret; an id as it is."""
    parts = text.split("_")
    return parts[1] if len(parts) == 3 and parts[0] == "zm" else text


def _check_name(argument: str, value: str) -> None:
    if not isinstance(value, str):
        raise InvalidInputError(f"{argument} must be a str, got {shown(value)}")
    if len(value) > MAX_NAME:
        raise InvalidInputError(
            f"{argument} must have at most {MAX_NAME} characters, got {len(value)}"
        )
    for character in value:
        if unicodedata.category(character) in _UNPRINTED:
            raise InvalidInputError(
                f"{argument} must have no control characters, got {value!a}; remove {character!a}"
            )


class Keys:
    """The keys beside a store; safe to use from many threads.

    Other processes may create and revoke keys meanwhile: each call sees it. Where the file is
    removed there are no keys.

    Parameters
    ----------
    store : path-like
        The store's file; the keys are in ``<store>.keys``, made with the first key.

    Attributes
    ----------
    path : Path
        Of the keys' file.

    Raises
    ------
    InvalidInputError
        ``store`` is no file name.
    """

    def __init__(self, store: str | os.PathLike[str]) -> None:
        self.path = Path(f"{named_file('store', store)}.keys")
        self._lock = threading.Lock()
        self._con: sqlite3.Connection | None = None
        self._inode: tuple[int, int] | None = None
        self._version: int | None = None  # of the file that ``_known`` shows
        self._known: dict[str, _Known] = {}

    def create(
        self,
        tenant: str | None,
        *,
        name: str = "",
        read_only: bool = False,
        rate: float | None = None,
    ) -> tuple[Key, str]:
        """Make a key.

        Its text is ``zm_<id>_<secret>`` and is returned this once: the file has a SHA-256 of it.
        No slow hash is needed, as for passwords: nobody can guess 256 random bits, however fast.

        Parameters
        ----------
        tenant : str or None
            See :func:`check_tenant`; None for all tenants.
        name : str
            What it is for: at most 128 characters.
        read_only : bool
        rate : float, optional
            Requests per second, above 0.

        Returns
        -------
        Key
        str
            What a client sends.

        Raises
        ------
        InvalidInputError
        StoreError
            The file cannot be written.
        """
        if tenant is not None:
            check_tenant(tenant)
        _check_name("name", name)
        if not isinstance(read_only, bool):
            raise InvalidInputError(f"read_only must be True or False, got {shown(read_only)}")
        rate = _checked_rate(rate)
        micros = time.time_ns() // 1000
        key_id = secrets.token_hex(8)
        key = Key(key_id, tenant, name, read_only, rate, from_micros(micros), None)
        text = f"zm_{key_id}_{secrets.token_hex(32)}"
        row = (key_id, tenant, name, read_only, rate, micros, None, _hash(text))
        with self._lock, self._writing() as con:
            con.execute(f"INSERT INTO keys ({_COLUMNS}, hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
        return key, text

    def list(self) -> tuple[Key, ...]:
        """Every key, revoked ones too, in order of creation."""
        with self._lock:
            self._refresh()
            return tuple(known.key for known in self._known.values())

    def revoke(self, id: str) -> bool:
        """Take a key back, for good: from now on no call of any process finds it.

        Parameters
        ----------
        id : str
            The key's id, or the whole key.

        Returns
        -------
        bool
            Whether there was such a key that was not yet revoked.

        Raises
        ------
        InvalidInputError
            ``id`` is no string.
        StoreError
            The file cannot be written.
        """
        if isinstance(id, str):
            id = id_of(id)
        _check_name("id", id)
        with self._lock:
            self._refresh()
            if id not in self._known:
                return False
            with self._writing() as con:
                done = con.execute(
                    "UPDATE keys SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL",
                    (time.time_ns() // 1000, id),
                )
            return done.rowcount > 0

    def find(self, text: str | None) -> Key | None:
        """Look a key up by what a client sent.

        The work is the same whether the id is known or not, so that the time it takes tells
        nothing.

        Returns
        -------
        Key or None
            None for all that is no key, and for a revoked one.

        Raises
        ------
        StoreError
            The file cannot be read.
        """
        with self._lock:
            self._refresh()
            known = self._known
        if not isinstance(text, str) or len(text) > _LONGEST or not text.isascii():
            text = ""
        found = known.get(text[3:19])
        same = hmac.compare_digest(_hash(text), _NOBODY if found is None else found.hash)
        return found.key if found and same and found.key.revoked_at is None else None

    def holds(self, key: Key) -> bool:
        """Whether a key that was found is there still, and was not revoked since.

        Raises
        ------
        StoreError
            The file cannot be read.
        """
        with self._lock:
            self._refresh()
            known = self._known.get(key.id)
        return known is not None and known.key.revoked_at is None

    def close(self) -> None:
        """Let go of the file. Idempotent; a later call opens it again."""
        with self._lock:
            self._forget()

    def __enter__(self) -> Keys:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Keys({str(self.path)!r})"

    # ---- the file, all under the lock

    def _refresh(self) -> None:
        """Bring what is known up to what is on disk; a few microseconds where nothing changed."""
        with self._translated("read"):
            if not self._exists():
                return
            con = self._connected()
            waits = self._version is None
            _wait(con, waits)
            try:
                version: int = con.execute("PRAGMA data_version").fetchone()[0]
            except sqlite3.OperationalError as exc:
                if waits or not is_busy(exc):
                    raise
                return  # until what is being written is committed, what is known holds
            if version != self._version:
                _wait(con, True)
                self._known = _read(con, self.path)
                self._version = version

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction that writes, in a file that has its table."""
        with self._translated("write"):
            con = self._connected(create=True)
            _wait(con, True)
            self._version = None  # which counts the commits of others alone
            con.execute("BEGIN IMMEDIATE")
            try:
                if not _is_ready(con, self.path):
                    con.execute(_CREATE)
                    con.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                    con.execute(f"PRAGMA user_version = {_VERSION}")
                yield con
                con.execute("COMMIT")
            except BaseException:
                if con.in_transaction:
                    con.execute("ROLLBACK")
                raise

    def _exists(self) -> bool:
        """Whether there is a file; a connection to one that is gone or replaced is closed."""
        try:
            stat = os.stat(self.path)
        except FileNotFoundError:
            inode = None
        else:
            inode = stat.st_dev, stat.st_ino
        if inode != self._inode:
            self._forget()
            self._inode = inode
        return inode is not None

    def _connected(self, *, create: bool = False) -> sqlite3.Connection:
        """Connect to the file that is there now."""
        if not self._exists() and create:
            with suppress(FileExistsError):  # another process was faster
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            self._exists()
        if self._con is None:
            mode = "rw" if os.access(self.path, os.W_OK) else "ro"
            self._con = connect(self.path, mode=mode, durable=True)
            # No lost power brings a revoked key back: the removal of the journal is synced too.
            self._con.execute("PRAGMA synchronous = EXTRA")
        return self._con

    def _forget(self) -> None:
        if self._con is not None:
            self._con.close()
        self._con = self._inode = self._version = None
        self._known = {}

    @contextmanager
    def _translated(self, doing: str) -> Iterator[None]:
        where = f"cannot {doing} API keys {str(self.path)!r}"
        try:
            yield
        except sqlite3.Error as exc:
            if error_code(exc) in (11, 26):  # SQLITE_CORRUPT, SQLITE_NOTADB
                raise CorruptStoreError(
                    f"{where}: {exc}; move the file away and make the keys anew with `zeromem keys "
                    "create`"
                ) from exc
            raise store_error(exc, self.path, doing) from exc
        except OSError as exc:
            raise error_class(exc)(f"{where}: {exc}; check the folder and its permissions") from exc


def _wait(con: sqlite3.Connection, waits: bool) -> None:
    """Whether to wait where another process is writing: a server's event loop must not."""
    con.execute(f"PRAGMA busy_timeout = {int(BUSY_SECONDS * 1000) if waits else 0}")


def _is_ready(con: sqlite3.Connection, path: Path) -> bool:
    """Whether the file has its table; False for one that is still empty."""
    application = con.execute("PRAGMA application_id").fetchone()[0]
    version = con.execute("PRAGMA user_version").fetchone()[0]
    if application == _APPLICATION_ID and version > _VERSION:
        raise SchemaTooNewError(
            f"API keys {str(path)!r} have version {version}, this zeromem knows versions up to "
            f"{_VERSION}; install a newer zeromem"
        )
    if application == _APPLICATION_ID:
        return True
    if application or con.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        raise CorruptStoreError(
            f"{str(path)!r} is another program's database and holds no API keys; move it away"
        )
    return False


def _read(con: sqlite3.Connection, path: Path) -> dict[str, _Known]:
    if not _is_ready(con, path):
        return {}
    sql = f"SELECT {_COLUMNS}, hash FROM keys ORDER BY created_at, id"
    return {row[0]: _Known(_key(*row[:-1]), row[-1]) for row in con.execute(sql)}


def _key(
    id: str, tenant: str | None, name: str, read_only: int, rate: float | None, created: int,
    revoked: int | None,
) -> Key:  # fmt: skip
    return Key(
        id, tenant, name, bool(read_only), rate, from_micros(created),
        None if revoked is None else from_micros(revoked),
    )  # fmt: skip


def _hash(text: str) -> bytes:
    return sha256(text.encode()).digest()


def _checked_rate(rate: float | None) -> float | None:
    if rate is None:
        return None
    if isinstance(rate, bool) or not isinstance(rate, int | float):
        raise InvalidInputError(f"rate must be requests per second, a number, got {shown(rate)}")
    if not 0 < rate <= _MAX_RATE:  # NaN is not either
        raise InvalidInputError(
            f"rate must be above 0 and at most {_MAX_RATE:g} requests per second, got "
            f"{shown(rate)}; revoke a key that may ask nothing"
        )
    return float(rate)
