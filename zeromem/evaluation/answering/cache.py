"""Replies by content, on disk as soon as they arrive: an interrupted run continues."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from zeromem.errors import InvalidInputError
from zeromem.types import TokenUsage

_SCHEMA = """
CREATE TABLE IF NOT EXISTS reply (
    key TEXT PRIMARY KEY,
    kind TEXT NOT NULL,
    value TEXT NOT NULL,
    prompt INTEGER NOT NULL,
    completion INTEGER NOT NULL,
    calls INTEGER NOT NULL,
    cached INTEGER NOT NULL,
    seconds REAL NOT NULL
) WITHOUT ROWID
"""
_BUSY_SECONDS = 60.0


@dataclass(frozen=True)
class Reply:
    """What was asked for, and what it cost when it was made.

    Attributes
    ----------
    value : Any
        Whatever JSON holds.
    usage : TokenUsage
    seconds : float
        That making it took.
    fresh : bool
        Whether it was made now; False for one that was known or that another thread made.
    """

    value: Any
    usage: TokenUsage = field(default_factory=TokenUsage)
    seconds: float = 0.0
    fresh: bool = True


def key_of(*parts: str) -> str:
    """SHA-256 over parts, with their lengths, so that no two lists of parts run together."""
    digest = sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()


class ReplyCache:
    """Replies by key in one SQLite file. Threads and processes may share it.

    A failure is raised and not kept, so that the next run asks again.

    Parameters
    ----------
    path : path-like, optional
        Made with its folders where it is absent; in memory alone without it.

    Raises
    ------
    InvalidInputError
        Where the path cannot be opened as such a file.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self._lock = threading.Lock()
        self._pending: dict[str, Future[Reply]] = {}
        try:
            if path is not None:
                Path(path).parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(
                ":memory:" if path is None else os.fspath(path),
                timeout=_BUSY_SECONDS,
                isolation_level=None,  # each reply is a transaction of its own
                check_same_thread=False,
            )
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")  # holds against kill -9
            self._db.execute(_SCHEMA)
        except (OSError, sqlite3.Error) as error:
            raise InvalidInputError(
                f"--replies must name a reply cache or a file to make, got {str(path)!r}: {error}"
            ) from error

    def get(self, key: str) -> Reply | None:
        """Return what is known under a key."""
        with self._lock:
            row = self._db.execute(
                "SELECT value, prompt, completion, calls, cached, seconds FROM reply WHERE key = ?",
                (key,),
            ).fetchone()
        if row is None:
            return None
        return Reply(json.loads(row[0]), TokenUsage(*row[1:5]), row[5], fresh=False)

    def ask(self, kind: str, key: str, make: Callable[[], tuple[Any, TokenUsage]]) -> Reply:
        """Return what is known under a key, else make it and keep it.

        Where several threads ask for one key at once, the first makes it and the others wait.

        Parameters
        ----------
        kind : str
            What the reply is for (``read``, ``judge``, …), so that costs can be told apart.
        key : str
            From :func:`key_of`.
        make : callable
            Returns the value and its cost; its failures reach everyone who waits.
        """
        known = self.get(key)
        if known is not None:
            return known
        with self._lock:
            pending = self._pending.get(key)
            mine = pending is None
            if pending is None:
                pending = self._pending[key] = Future()
        if not mine:
            made = pending.result()
            return Reply(made.value, made.usage, made.seconds, fresh=False)
        try:
            # Another may have finished between the look above and this thread's turn.
            reply = self.get(key) or self._make(kind, key, make)
        except BaseException as error:
            pending.set_exception(error)
            raise
        else:
            pending.set_result(reply)
            return reply
        finally:
            with self._lock:
                del self._pending[key]

    def _make(self, kind: str, key: str, make: Callable[[], tuple[Any, TokenUsage]]) -> Reply:
        start = time.perf_counter()
        value, usage = make()
        seconds = time.perf_counter() - start
        row = (
            key, kind, json.dumps(value), usage.prompt, usage.completion, usage.calls,
            usage.cached, seconds,
        )  # fmt: skip
        with self._lock:
            self._db.execute("INSERT OR IGNORE INTO reply VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
        # What was kept, not what was made: a value looks alike now and in the next run.
        return Reply(json.loads(row[2]), usage, seconds)

    def close(self) -> None:
        """Close the file; may be called twice."""
        with self._lock:
            self._db.close()
