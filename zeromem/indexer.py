"""Keeps one scope's index in step with its log: snapshot, features, refresh."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b

from zeromem.backend import Backend
from zeromem.config import Config
from zeromem.errors import CorruptStoreError, StaleReadError, StoreError, told
from zeromem.forks import Lock
from zeromem.index import Index, TraceFeatures, snapshot
from zeromem.index.snapshot import Stamp
from zeromem.ingest.ahead import Ahead
from zeromem.ingest.featurize import Begun, Featurizer, Progress
from zeromem.store import LogRow, LogVersion, ScopeLog
from zeromem.types import Trace

_log = logging.getLogger(__name__)
# Indexes of log prefixes (as_of) that are kept for the next question about the same moment.
_KEPT_PREFIXES = 4
# A snapshot is rewritten on close when this share of the index is newer than it.
_STALE_SHARE = 0.02
# After an encoder failed, questions are answered without it for this long.
_RETRY_SECONDS = 30.0
_ATTEMPTS = 10


@dataclass(frozen=True, slots=True)
class State:
    """An index and the state of the log that it shows."""

    index: Index
    version: LogVersion


class Indexer:
    """The index of one scope, brought up to date when asked for.

    Parameters
    ----------
    log : ScopeLog
    featurizer : Featurizer
    config : Config
    backend : Backend
    read_only : bool
        Neither features nor snapshots are written.
    """

    def __init__(
        self,
        log: ScopeLog,
        featurizer: Featurizer,
        config: Config,
        backend: Backend,
        *,
        read_only: bool = False,
    ) -> None:
        self._log = log
        self._featurizer = featurizer
        self._config = config
        self._backend = backend
        self._read_only = read_only
        self._lock = Lock()
        self._state: State | None = None
        self._pending: set[int] = set()
        self._retry_at = 0.0
        self._saved_turns = 0
        self._prefixes: dict[int, Index] = {}

    def current(self) -> State:
        """Return the index of all that is acknowledged by now."""
        with self._lock:
            retry = bool(self._pending) and time.monotonic() >= self._retry_at
            for _ in range(_ATTEMPTS):
                version = self._log.version()
                state = self._state
                if state is not None and state.version == version and not retry:
                    return state
                try:
                    # What others add from here on is for the next call: a reader never waits for
                    # writers to pause.
                    self._state = self._refreshed(version)
                    return self._state
                except StaleReadError:  # another process forgot what was just being read
                    continue
            raise StaleReadError(
                f"scope {self._log.name!r} was changed by others in each of {_ATTEMPTS} attempts "
                "to read it; ask again"
            )

    def is_current(self) -> bool:
        """Whether :meth:`current` would return what it has, having nothing to do."""
        state = self._state
        if state is None or (self._pending and time.monotonic() >= self._retry_at):
            return False
        return state.version == self._log.version()

    @property
    def n_bytes(self) -> int:
        """Bytes of the indexes that are held, mapped ones included."""
        held = list(self._prefixes.values())
        if self._state is not None:
            held.append(self._state.index)
        return sum(index.n_bytes for index in held)

    def as_of(self, moment: datetime | int) -> State:
        """Return the index of the log's prefix up to an instant or a log sequence number."""
        state = self.current()
        lsn = moment if isinstance(moment, int) else self._log.lsn_at(moment)
        if lsn >= state.index.last_lsn:
            return state
        with self._lock:
            if self._state is not state:  # changed meanwhile: what is kept may be another's prefix
                return State(state.index.until(lsn), state.version)
            if lsn not in self._prefixes:
                while len(self._prefixes) >= _KEPT_PREFIXES:
                    del self._prefixes[next(iter(self._prefixes))]
                self._prefixes[lsn] = state.index.until(lsn)
            return State(self._prefixes[lsn], state.version)

    def featurize(
        self,
        batches: Iterable[tuple[Sequence[Trace], Sequence[bytes]]],
        progress: Progress | None = None,
        *,
        known: Collection[bytes] | None = None,
    ) -> dict[bytes, TraceFeatures]:
        """Derive and cache the features of traces that are in the log already.

        While one batch is encoded the next is read and annotated.

        Parameters
        ----------
        batches : iterable of (traces, keys)
            Each trace with its feature key. What this raises is raised, once the batches before
            are done.
        progress : callable, optional
        known : collection of bytes, optional
            Keys whose features need not be made, and a wish for the others; without it, those that
            are cached, and nothing is kept here.

        Returns
        -------
        dict of bytes to TraceFeatures
            Those that were made now and were wished for. Where the encoder fails that is none: the
            traces stay pending, are found by their words alone, and are tried again later.
        """
        found: dict[bytes, TraceFeatures] = {}
        kept = None if known is None else found
        begun: Begun | None = None
        with Ahead(self._featurizer.annotator) as ahead:
            try:
                for traces, keys in batches:
                    previous, begun = begun, self._begin(traces, keys, known, begun, ahead)
                    self._finish(previous, progress, kept)
            except Exception:
                self._finish(begun, progress, kept)
                raise
            self._finish(begun, progress, kept)
        return found

    def _begin(
        self,
        traces: Sequence[Trace],
        keys: Sequence[bytes],
        known: Collection[bytes] | None,
        previous: Begun | None,
        ahead: Ahead,
    ) -> Begun | None:
        if known is None:
            known = self._log.features(keys, self._featurizer.fingerprint)
        in_work = set(previous.unique) if previous is not None else set()
        fresh = {
            k: t for k, t in zip(keys, traces, strict=True) if k not in known and k not in in_work
        }
        return self._featurizer.begin(list(fresh.values()), ahead) if fresh else None

    def _finish(
        self,
        begun: Begun | None,
        progress: Progress | None,
        found: dict[bytes, TraceFeatures] | None,
    ) -> None:
        if begun is None:
            return
        try:
            made = self._featurizer.finish(begun, progress=progress)
        except Exception as error:  # whatever an encoder raises, the traces are stored
            begun.annotating.cancel()
            _log.warning(
                "%d traces are stored but not encoded yet, and are found by their words alone: %s",
                len(begun.unique), told(error),
            )  # fmt: skip
            return
        if found is not None:
            found.update(zip(begun.keys, made, strict=True))
        if not self._read_only:
            packed = {k: f.to_bytes() for k, f in zip(begun.keys, made, strict=True)}
            try:
                self._log.put_features(packed, self._featurizer.fingerprint)
            except StoreError as error:  # a cache: what it is made of is stored
                _log.warning("features of %d traces are not cached: %s", len(made), error)

    def featurize_others(
        self, work: Sequence[tuple[Indexer, Sequence[Trace], Sequence[bytes]]]
    ) -> None:
        """Derive and cache features for several indexes of one store with these models at once."""
        fingerprint = self._featurizer.fingerprint
        wanted: dict[bytes, Trace] = {}
        for other, traces, keys in work:
            known = other._log.features(keys, fingerprint)
            wanted |= {k: t for k, t in zip(keys, traces, strict=True) if k not in known}
        if not wanted:
            return
        own = self._featurizer
        # Names that are met are kept by a featurizer until its own memory forgets.
        joint = Featurizer(own.annotator, own.encoder, own.config)
        try:
            made = joint.featurize(list(wanted.values()))
        except Exception as error:  # whatever an encoder raises, the traces are stored
            _log.warning("%d traces are stored but not encoded yet: %s", len(wanted), told(error))
            return
        packed = {k: f.to_bytes() for k, f in zip(wanted, made, strict=True)}
        by_log = [
            (other._log, {k: packed[k] for k in keys if k in packed}) for other, _, keys in work
        ]
        try:
            self._log.put_features_of(by_log, fingerprint)
        except StoreError as error:  # a cache: what it is made of is stored
            _log.warning("features of %d traces are not cached: %s", len(made), error)

    def forgotten(self) -> None:
        """Let go of what was forgotten: nothing of it may stay in memory or reach a snapshot."""
        with self._lock:
            version = self._log.version()
            self._prefixes.clear()
            self._featurizer.forget_names()
            if self._state is not None:
                index, shown = self._state.index, self._state.version
                with suppress(StaleReadError):  # forgotten by others too: seen at the next question
                    shown = shown._replace(n_forgotten_ops=version.n_forgotten_ops)
                    self._state = State(self._live(index), shown)

    def save(self) -> None:
        """Write a snapshot where enough has changed since the last one."""
        path = self._log.snapshot_path
        with self._lock:
            state = self._state
            if path is None or self._read_only or state is None or self._pending:
                return
            n, last = len(state.index), state.index.last_lsn
            if not n or abs(n - self._saved_turns) <= _STALE_SHARE * n:
                return
            if self._log.version().n_forgotten_ops != state.version.n_forgotten_ops:
                return  # another process forgot something that this index still holds
            stamp = Stamp(
                self._featurizer.fingerprint, state.index.dim, last,
                state.version.n_forgotten_ops, self._named(last),
            )  # fmt: skip
            try:
                snapshot.save(path, state.index.state, self._config, stamp)
                self._saved_turns = n
                # Another process may have forgotten something in the meantime.
                if self._log.version().n_forgotten_ops != stamp.n_forgotten_ops:
                    path.unlink(missing_ok=True)
            except (OSError, StoreError) as error:
                _log.warning("index snapshot %s was not written: %s", path, error)

    def _refreshed(self, version: LogVersion) -> State:
        state = self._state or self._from_snapshot(version)
        index = state.index
        if version.n_forgotten_ops != state.version.n_forgotten_ops:
            index = self._live(index)
            self._prefixes.clear()
        if self._pending:
            # What was found by words alone gets its vectors: its rows are made anew.
            index = index.until(min(self._pending) - 1)
            self._prefixes.clear()
        pending: set[int] = set()
        rows = list(self._log.rows(after_lsn=index.last_lsn, until_lsn=version.last_lsn))
        if rows:
            index = index.extend(rows, self._features(rows, pending))
        self._pending = pending  # not before all went well: an interrupt leaves them to be done
        return State(index, version)

    def _live(self, index: Index) -> Index:
        """Leave out what the log does not hold any more."""
        live = {row.lsn for row in self._log.rows()}
        held = set(index.arrays.turns.lsn.tolist())
        self._saved_turns = 0  # forgetting removes the snapshot
        return index.without(held - live)

    def _named(self, lsn: int) -> str:
        """Tell the trace at a place from any that another log has there; empty for none."""
        for row in self._log.rows(after_lsn=lsn - 1, until_lsn=lsn):
            what = repr((row.id, row.ingested_at, row.feature_key))
            return blake2b(what.encode(), digest_size=16).hexdigest()
        return ""

    def _from_snapshot(self, version: LogVersion) -> State:
        dim = self._featurizer.encoder.dim
        path = self._log.snapshot_path
        if path is not None and not self._read_only:
            snapshot.sweep(path)
        found = snapshot.load(path) if path is not None else None
        if found is not None:
            stamp = found.stamp
            if (
                stamp[:2] == (self._featurizer.fingerprint, dim)
                and stamp.n_forgotten_ops == version.n_forgotten_ops
                and len(found.state)
                and int(found.state.columns["lsn"][-1]) == stamp.last_lsn <= version.last_lsn
                and stamp.last == self._named(stamp.last_lsn)
            ):
                index = Index(found.under(self._config), dim, self._config, self._backend)
                self._saved_turns = len(index)
                return State(index, version)
            _log.info("index snapshot %s is stale: the index is built from the log", path)
        return State(Index.empty(dim, self._config, self._backend), version)

    def _features(self, rows: Sequence[LogRow], pending: set[int]) -> list[TraceFeatures]:
        """Features of rows: cached ones, else made now, else, pending, of the words alone."""
        fingerprint = self._featurizer.fingerprint
        cached = self._unpack([row.feature_key for row in rows], fingerprint)
        missing = [row for row in rows if row.feature_key not in cached]
        if missing:
            traces = [stored.trace for stored in self._log.read([row.lsn for row in missing])]
            asked = time.monotonic() >= self._retry_at
            if asked:
                keys = [row.feature_key for row in missing]
                size = self._config.ingest.batch_traces
                batches = [
                    (traces[i : i + size], keys[i : i + size]) for i in range(0, len(keys), size)
                ]
                cached |= self.featurize(batches, known=cached)
            left = [
                (r, t) for r, t in zip(missing, traces, strict=True) if r.feature_key not in cached
            ]
            words = self._featurizer.lexical([t for _, t in left])
            cached |= {r.feature_key: f for (r, _), f in zip(left, words, strict=True)}
            pending |= {r.lsn for r, _ in left}
            if left and asked:
                self._retry_at = time.monotonic() + _RETRY_SECONDS
        return [cached[row.feature_key] for row in rows]

    def _unpack(self, keys: Sequence[bytes], fingerprint: str) -> dict[bytes, TraceFeatures]:
        found = {}
        for key, data in self._log.features(keys, fingerprint).items():
            try:
                found[key] = TraceFeatures.from_bytes(data)
            except CorruptStoreError as error:
                _log.warning("cached features are made anew: %s", error)
        return found
