"""Many memories of one store in one process: opened when they are asked for, within a budget."""

from __future__ import annotations

import logging
import os
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import tzinfo
from typing import Any

from zeromem.backend import Device, resolve, warmup
from zeromem.config import Config
from zeromem.errors import InvalidInputError, StoreError
from zeromem.forks import Lock
from zeromem.ingest.annotate import Annotator, load_annotator
from zeromem.ingest.encode import Encoder, load_encoder
from zeromem.ingest.featurize import Featurizer
from zeromem.inputs import as_zone
from zeromem.memory import Memory, claim
from zeromem.store import Store

_log = logging.getLogger(__name__)


class _Held:
    """A memory, who uses it, and a lock for its opening and closing."""

    __slots__ = ("closed", "lock", "memory", "n_bytes", "n_users")

    def __init__(self) -> None:
        self.lock = Lock()
        self.memory: Memory | None = None
        self.n_users = 0
        self.n_bytes = 0
        self.closed = False


class Memories:
    """The memories of one store, which share its file, its writer and the models.

    A memory is opened by its first user, which costs next to nothing; its index is mapped from its
    snapshot at the first question. Those that were not used for the longest are closed when there
    are too many, or when their indexes take too much. Safe to use from many threads.

    Parameters
    ----------
    path : path-like, optional
        The store's file; None keeps everything in a private temporary file.
    encoder, annotator, config, device, zone, read_only
        As for :func:`zeromem.open`, for all memories alike.
    max_open : int
        Memories that are kept open, those in use aside.
    max_bytes : int
        Bytes that the indexes of open memories may take together, those in use aside.

    Raises
    ------
    StoreError, ModelNotFoundError, DeviceError, InvalidInputError
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        encoder: str | os.PathLike[str] | Encoder | None = None,
        annotator: str | Annotator | None = None,
        config: Config | None = None,
        device: Device = "auto",
        zone: str | tzinfo | None = None,
        read_only: bool = False,
        max_open: int = 1000,
        max_bytes: int = 1 << 30,
    ) -> None:
        for name, value in (("max_open", max_open), ("max_bytes", max_bytes)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InvalidInputError(f"{name} must be an integer of at least 1, got {value!r}")
        self.config = config or Config()
        self.max_open = max_open
        self.max_bytes = max_bytes
        self._backend = resolve(device)
        self._annotator = load_annotator(annotator)
        self._encoder = load_encoder(encoder, self._backend.device)
        self.zone = as_zone(zone)
        self._read_only = read_only
        self._held: OrderedDict[str, _Held] = OrderedDict()
        self._n_bytes = 0
        self._counts = {"hits": 0, "misses": 0, "evictions": 0}
        self._lock = Lock()
        self._closed = False
        self.store = Store.open(path, read_only=read_only)

    @property
    def remote(self) -> bool:
        """Whether an endpoint encodes, so that waiting for it costs no core."""
        return bool(getattr(self._encoder, "remote", False))

    @contextmanager
    def use(self, scope: str) -> Iterator[Memory]:
        """Open a scope's memory, or share it; it stays open for as long as the block runs.

        Raises
        ------
        InvalidInputError
            The scope's name is empty or no str.
        FingerprintMismatchError
            It was encoded by another model.
        StoreError
            The store cannot be read, or these memories are closed.
        """
        memory = self.take(scope)
        try:
            yield memory
        finally:
            self.give_back(memory)
            self.trim()

    def take(self, scope: str) -> Memory:
        """Open a scope's memory, or share it, until :meth:`give_back`; as :meth:`use` does."""
        check_scope(scope)
        while True:
            memory = self.taken_at_once(scope)
            if memory is not None:
                return memory
            with self._lock:
                held = self._held.get(scope)
                if held is None:
                    held = self._held[scope] = _Held()
                held.n_users += 1
            try:
                with held.lock:  # whoever opens or closes it now is waited for
                    if held.memory is None and not held.closed:
                        held.memory = self._opened(scope)
                        self._counts["misses"] += 1
                        return held.memory
            except BaseException:
                self._leave(scope, held)
                raise
            self._leave(scope, held)

    def taken_at_once(self, scope: str) -> Memory | None:
        """Share a scope's memory where it is open: for event loops, which must not wait.

        Raises
        ------
        StoreError
            These memories are closed.
        """
        with self._lock:
            if self._closed:
                raise StoreError("these memories are closed; make others to go on")
            held = self._held.get(scope)
            if held is None or held.closed or held.memory is None:
                return None
            self._held.move_to_end(scope)
            self._counts["hits"] += 1
            held.n_users += 1  # nobody closes what has users
            return held.memory

    def give_back(self, memory: Memory) -> bool:
        """End what :meth:`take` began.

        Returns
        -------
        bool
            Whether the budget is spent, so that :meth:`trim` has something to do.
        """
        with self._lock:
            held = self._held.get(memory.scope)
            if held is not None and held.memory is memory:
                held.n_users -= 1
                n_bytes = memory.n_bytes
                self._n_bytes += n_bytes - held.n_bytes
                held.n_bytes = n_bytes
            return self._is_full()

    def trim(self) -> None:
        """Close what was not used for the longest until the rest is within the budget."""
        while self._is_full() and self._evict():
            pass

    def warm(self) -> None:
        """Load the kernels and the models now, and not with the first trace or question."""
        warmup()
        try:
            self._encoder.encode(["warm"])
            self._annotator.annotate(["warm"])
        except Exception as error:  # whoever needs them is told
            _log.warning("a model is not loaded: %s", error)

    def scopes(self) -> list[str]:
        """List the names of the scopes that hold anything, sorted."""
        return self.store.scopes()

    def stats(self) -> dict[str, Any]:
        """Count open memories, the bytes of their indexes, and how often one was open already."""
        with self._lock:
            return {"open": len(self._held), "bytes": self._n_bytes, **self._counts}

    def close(self) -> None:
        """Close every memory, its snapshot saved, and the store. Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            held, self._held = list(self._held.values()), OrderedDict()
            self._n_bytes = 0
        for one in held:
            with one.lock:
                one.closed = True
                if one.memory is not None:
                    one.memory.close()
        self.store.close()

    def __enter__(self) -> Memories:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Memories({self.store.label!r}, open={len(self._held)})"

    def _opened(self, scope: str) -> Memory:
        log = self.store.scope(scope)
        # Names met on the way are kept by a featurizer until they are forgotten: one for each.
        featurizer = Featurizer(self._annotator, self._encoder, self.config.ingest)
        claim(log, featurizer.fingerprint)
        return Memory(
            self.store, log, featurizer, self.config, self._backend, zone=self.zone,
            read_only=self._read_only, owns_store=False,
        )  # fmt: skip

    def _leave(self, scope: str, held: _Held) -> None:
        """Let go of what was not opened, or was closed."""
        with self._lock:
            held.n_users -= 1
            if self._held.get(scope) is held and (held.closed or held.memory is None):
                del self._held[scope]

    def _is_full(self) -> bool:
        return len(self._held) > self.max_open or self._n_bytes > self.max_bytes

    def _evict(self) -> bool:
        """Close the memory that nobody has used for the longest; False where all are in use."""
        with self._lock:
            idle = ((s, h) for s, h in self._held.items() if not h.n_users and not h.closed)
            scope, held = next(idle, (None, None))
            if held is None or scope is None:
                return False
            held.closed = True  # who comes from now on waits for the lock and opens it anew
            held.lock.__enter__()
        try:
            if held.memory is not None:
                held.memory.close()
        finally:
            held.lock.__exit__()
            with self._lock:
                self._counts["evictions"] += 1
                self._n_bytes -= held.n_bytes
                if self._held.get(scope) is held:
                    del self._held[scope]
        return True


def check_scope(scope: object) -> None:
    """Refuse what is no scope's name."""
    if not isinstance(scope, str) or not scope:
        raise InvalidInputError(f"scope must be a non-empty str, got {scope!r:.80}")
