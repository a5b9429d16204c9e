"""One scope's log: the only way to its traces and features."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zeromem.errors import InvalidInputError, StoreError
from zeromem.store import features, reads, writes
from zeromem.store.arguments import integers, lies_in, several, shown, strings
from zeromem.store.codec import prepare_trace
from zeromem.store.connect import translated
from zeromem.store.reads import LogRow, LogVersion
from zeromem.store.schema import compact
from zeromem.store.writes import ScopeName, ScopeRow, scope_row
from zeromem.text import canonical
from zeromem.times import EventTime, to_micros
from zeromem.types import Added, StoredTrace, Trace

if TYPE_CHECKING:
    import sqlite3

    from zeromem.store.store import Store

_CHUNK_ROWS = 4096
_CHUNK_BYTES = 8 << 20


class ScopeLog:
    """The log and feature cache of one scope; made by :meth:`Store.scope`.

    Every query is bound to the scope by the key it looks up, and no method takes another scope.
    Safe to use from many threads. Each method raises :class:`StoreError` where the store cannot be
    read or written, and :class:`CorruptStoreError` where it is damaged.

    Attributes
    ----------
    name : str
    snapshot_path : Path or None
        Where the index may keep its snapshot of this scope; None for a store in memory.
    """

    def __init__(self, store: Store, name: ScopeName, label: str) -> None:
        self._store = store
        self._name = name
        self.name = label
        self.snapshot_path: Path | None = None
        if store.path is not None:
            self.snapshot_path = Path(f"{store.path}.{name.hash.hex()}.zmi")

    def __repr__(self) -> str:
        return f"ScopeLog({self.name!r}, {str(self._store.path)!r})"

    # ---- writing

    def append(self, traces: Sequence[Trace], *, keys: Sequence[bytes]) -> list[Added]:
        """Append a batch, all or nothing; durable when it returns.

        A trace whose id is there with the same content is left alone (``created=False``), within
        the batch too. Without an id, the BLAKE2b hash of text, speaker, role, session, time, title
        and source is the id. Metadata is not part of the content: that of the first stays.

        Parameters
        ----------
        traces : sequence of Trace
        keys : sequence of bytes
            The feature key of each.

        Returns
        -------
        list of Added
            One for each trace, in order.

        Raises
        ------
        DuplicateIdError
            An id is taken by other content. Nothing of the batch is stored.
        InvalidInputError
            A field or the metadata cannot be stored. Nothing of the batch is stored.
        """
        traces = several("traces", traces, "Traces")
        keys = several("keys", keys, "bytes")
        if len(keys) != len(traces):
            raise InvalidInputError(
                f"keys must have one entry per trace, got {len(keys)} for {len(traces)} traces"
            )
        # Outside the transaction: other writers need not wait for the encoding.
        prepared = [
            prepare_trace(trace, key, i)
            for i, (trace, key) in enumerate(zip(traces, keys, strict=True))
        ]
        if not prepared:
            return []
        return self._store._commit.run(lambda con: writes.append(con, self._name, prepared))

    def forget(self, lsns: Iterable[int]) -> int:
        """Delete traces and all that came from them, from the file's bytes too.

        Content is overwritten with zeros, features that no trace of any scope needs go with it,
        the write-ahead log is emptied, and the scope's snapshots are unlinked; all of that is done
        on return. Of a scope that has no trace left, the hash of its name and its counters stay.
        Hashes of forgotten ids and content may remain in unused parts of index pages. Backups and
        the disk's own copies of old blocks are outside it.

        An empty ``lsns`` still empties the log and unlinks the snapshots: a call that was
        interrupted is completed by calling again.

        Parameters
        ----------
        lsns : iterable of int
            Those that are not in the log are ignored.

        Returns
        -------
        int
            How many traces were deleted.

        Raises
        ------
        StoreError
            Also where a reader in another process kept the write-ahead log from being emptied:
            the traces are deleted then, but old bytes are still on disk; call again.
        """
        wanted = integers(lsns)
        self._store._unlink_snapshots(self._name)
        n = self._store._commit.run(lambda con: writes.forget(con, self._name, wanted))
        self._store._unlink_snapshots(self._name)
        if n and self._store._commit.run(compact):
            with suppress(StoreError):  # gives space back; what matters is done
                self._store._vacuum()
        self._store._empty_wal()
        return n

    def put_features(self, data: Mapping[bytes, bytes], fingerprint: str) -> int:
        """Cache features by feature key.

        Keys that no live trace of this scope refers to are left out, and what is cached already
        stays as it is.

        Returns
        -------
        int
            How many were stored.
        """
        features.check(data)
        if not data:
            return 0
        return self._store._commit.run(lambda con: features.put(con, self._name, data, fingerprint))

    def put_features_of(
        self, data: Sequence[tuple[ScopeLog, Mapping[bytes, bytes]]], fingerprint: str
    ) -> None:
        """Cache features of several scopes of this store in one transaction."""
        for _, own in data:
            features.check(own)

        def put(con: sqlite3.Connection) -> None:
            for log, own in data:
                features.put(con, log._name, own, fingerprint)

        self._store._commit.run(put)

    def set_fingerprint(self, fingerprint: str) -> None:
        """Write down the model that this scope's features come from."""
        if self.fingerprint() != fingerprint:
            self._store._commit.run(
                lambda con: features.set_fingerprint(con, self._name, fingerprint)
            )

    def drop_features(self) -> int:
        """Drop the features of this scope's traces, of every model, that no other scope needs.

        Returns
        -------
        int
            How many were dropped.
        """
        return self._store._commit.run(lambda con: features.drop(con, self._name))

    # ---- reading

    def version(self) -> LogVersion:
        """Read the log's state as of the last commit of any process; one row read."""
        with translated(self._store.label, "read"), self._store._pool.single() as con:
            return reads.version(con, self._name)

    def rows(
        self, after_lsn: int = 0, until_lsn: int | None = None, *, expect: LogVersion | None = None
    ) -> Iterator[LogRow]:
        """Everything but text and metadata, in log order, of lsns ``(after_lsn, until_lsn]``.

        Holds no transaction between rows. What is appended after the first row is not seen.

        Raises
        ------
        StaleReadError
            Something was forgotten since ``expect``, or since the first row.
        """
        n_ops = None if expect is None else expect.n_forgotten_ops
        end, last = until_lsn, max(0, after_lsn)
        while True:
            with self._reading() as (con, row):
                n_ops = row.n_forgotten_ops if n_ops is None else n_ops
                reads.check_unchanged(row, n_ops)
                end = row.last_lsn if end is None else min(end, row.last_lsn)
                chunk = reads.row_chunk(con, row, last, end, _CHUNK_ROWS) if last < end else []
            yield from chunk
            if len(chunk) < _CHUNK_ROWS:
                return
            last = chunk[-1].lsn

    def read(self, lsns: Iterable[int], *, expect: LogVersion | None = None) -> list[StoredTrace]:
        """Whole traces in the order of ``lsns``, in one transaction.

        Raises
        ------
        StaleReadError
            Something was forgotten since ``expect``, or an lsn is not in the log.
        """
        wanted = integers(lsns)
        with self._reading() as (con, row):
            if expect is not None:
                reads.check_unchanged(row, expect.n_forgotten_ops)
            return reads.read(con, row, wanted)

    def export(self) -> Iterator[StoredTrace]:
        """Every whole trace in log order, holding about 8 MB at a time.

        Traces appended after the first one is read are left out; traces forgotten meanwhile too.
        """
        with self._reading() as (_, row):
            last, end = 0, row.last_lsn
        while True:
            with self._reading() as (con, row):
                chunk = reads.trace_chunk(con, row, last, end, _CHUNK_BYTES)
            if not chunk:
                return
            yield from chunk
            last = chunk[-1].lsn

    def find(self, ids: Iterable[str]) -> dict[str, int]:
        """Look up lsns by id, of those that are in the log."""
        wanted = strings("ids", ids)
        with self._reading() as (con, row):
            return reads.find(con, row, wanted)

    def lsn_at(self, moment: datetime) -> int:
        """Find the last lsn in the log that was ingested at or before ``moment``; 0 where none was.

        Raises
        ------
        InvalidInputError
            ``moment`` has no zone.
        """
        if not isinstance(moment, datetime) or moment.utcoffset() is None:
            raise InvalidInputError(
                f"moment must be a datetime with a zone, got {shown(moment)}; "
                "add tzinfo=datetime.UTC or another"
            )
        with self._reading() as (con, row):
            return reads.lsn_at(con, row, to_micros(moment))

    def spellings(self, speaker: str) -> list[str]:
        """List every form in which the log writes a speaker's name; the given one where none is.

        Raises
        ------
        InvalidInputError
        """
        if not isinstance(speaker, str):
            raise InvalidInputError(f"speaker must be a str, got {speaker!r}")
        wanted = canonical(speaker)
        written = {row.speaker for row in self.rows() if row.speaker}
        return sorted(s for s in written if canonical(s) == wanted) or [speaker]

    def select(
        self,
        *,
        ids: Iterable[str] | None = None,
        sessions: Iterable[str | None] | None = None,
        speakers: Iterable[str | None] | None = None,
        sources: Iterable[str | None] | None = None,
        before: EventTime | datetime | str | None = None,
        after: EventTime | datetime | str | None = None,
        everything: bool = False,
    ) -> list[int]:
        """lsns, ascending, of the traces that meet all the given conditions.

        Values compare exactly; None among them stands for traces without one. The times admit
        traces whose event period lies in ``[after.start, before.start)``, and none without a time.

        Raises
        ------
        InvalidInputError
            Without any condition (``everything=True`` says that all are meant), or with both.
            ``everything`` is neither True nor False.
        """
        if not isinstance(everything, bool):
            raise InvalidInputError(
                f"everything must be True or False, got {shown(everything)}; give True only to "
                "mean every trace"
            )
        given = {"id": ids, "session": sessions, "speaker": speakers, "source": sources}
        columns = {
            name: strings(f"{name}s", values, optional=name != "id")
            for name, values in given.items()
            if values is not None
        }
        start = None if after is None else EventTime.parse(after).start
        end = None if before is None else EventTime.parse(before).start
        if everything == bool(columns or start or end):
            raise InvalidInputError(
                "select needs a condition (ids, sessions, speakers, sources, before, after) or "
                f"everything=True, and not both; got {'both' if everything else 'neither'}"
            )
        timed = start is not None or end is not None
        with self._reading() as (con, row):
            return reads.select(
                con, row, columns, (lambda t: lies_in(t, start, end)) if timed else None
            )

    def features(self, keys: Iterable[bytes], fingerprint: str) -> dict[bytes, bytes]:
        """Read cached features by key, of those that are there and that this scope refers to."""
        wanted = several("keys", keys, "bytes")
        with self._reading() as (con, _):
            return features.get(con, self._name, wanted, fingerprint)

    def missing_features(self, fingerprint: str) -> list[tuple[int, bytes]]:
        """(lsn, feature key) of the traces without features of this model, in log order."""
        with self._reading() as (con, _):
            return features.missing(con, self._name, fingerprint)

    def fingerprint(self) -> str | None:
        """Name the model that this scope's features come from; None before it is set."""
        with self._reading() as (con, row):
            return reads.fingerprint(con, row)

    def stats(self) -> dict[str, Any]:
        """Count traces, text_bytes, features, feature_bytes, pending, store_bytes, ….

        ``features`` and ``pending`` (traces without features) refer to the scope's fingerprint;
        ``store_bytes`` is the whole file with its write-ahead log.
        """
        with self._reading() as (con, _):
            found = reads.stats(con, self._name)
        return {**found, "store_bytes": self._store.n_bytes()}

    @contextmanager
    def _reading(self) -> Iterator[tuple[sqlite3.Connection, ScopeRow]]:
        """One read transaction, and the scope's row in it."""
        with translated(self._store.label, "read"), self._store._pool.reader() as con:
            yield con, scope_row(con, self._name)
