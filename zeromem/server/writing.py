"""Adds under load: acknowledged when on disk, encoded together with those of other tenants."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from zeromem.memories import Memories
from zeromem.memory import Appended, Memory, featurize
from zeromem.types import Added, Trace

_log = logging.getLogger(__name__)
T = TypeVar("T")
# Traces that one call of the models takes: more would only make its scopes' next questions wait.
_TOGETHER = 64


class Writer:
    """Writes to memories in threads, which share the store's commits, and so its fsyncs.

    Belongs to one event loop.

    Parameters
    ----------
    memories : Memories
    n_threads : int
        Writes that may wait for the disk at once.
    """

    def __init__(self, memories: Memories, *, n_threads: int = 16) -> None:
        self._memories = memories
        self._writing = ThreadPoolExecutor(n_threads, thread_name_prefix="zeromem-write")
        self._encoding = ThreadPoolExecutor(1, thread_name_prefix="zeromem-encode")
        self._pending: list[Appended] = []
        self._done: asyncio.Future[None] | None = None
        self._waiting_for: dict[str, asyncio.Future[None]] = {}
        self._encoder: asyncio.Task[None] | None = None

    @property
    def n_pending(self) -> int:
        """Traces that are stored and wait to be encoded."""
        return sum(len(stored.traces) for stored in self._pending)

    async def run(self, scope: str, write: Callable[..., T], *given: Any) -> T:
        """Call ``write(memory, *given)`` in a thread; once begun it is finished."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._writing, self._in_thread, scope, write, *given)

    async def run_alone(self, call: Callable[..., T], *given: Any) -> T:
        """Call what needs no memory in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._writing, call, *given)

    def _in_thread(self, scope: str, write: Callable[..., T], *given: Any) -> T:
        with self._memories.use(scope) as memory:
            return write(memory, *given)

    async def add(self, scope: str, traces: Sequence[Trace]) -> list[Added]:
        """Store traces, all or none; durable when it returns, and encoded soon after."""
        stored = await self.run(scope, Memory.append, traces)
        if any(one.created for one in stored.added):
            self._encode_soon(scope, stored)
        return stored.added

    def _encode_soon(self, scope: str, stored: Appended) -> None:
        if self._done is None:
            self._done = asyncio.get_running_loop().create_future()
        self._pending.append(stored)
        self._waiting_for[scope] = self._done
        if self._encoder is None:
            self._encoder = asyncio.create_task(self._encode())

    async def settled(self, scope: str) -> None:
        """Wait until what was added to a scope by now is encoded, or was tried."""
        if (done := self._waiting_for.get(scope)) is not None:
            await asyncio.shield(done)

    async def _encode(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._pending and self._done is not None:
                work, self._pending = self._pending, []
                done, self._done = self._done, None
                try:
                    for start, end in _runs(work):
                        await loop.run_in_executor(self._encoding, featurize, work[start:end])
                except Exception as error:  # those who came meanwhile still have their turn
                    _log.error("what was added is not encoded yet: %s", type(error).__name__)
                finally:
                    # Whatever was not encoded is made by whoever asks.
                    done.set_result(None)
                    for scope in [s for s, d in self._waiting_for.items() if d is done]:
                        del self._waiting_for[scope]
        finally:
            self._encoder = None

    async def close(self) -> None:
        """Finish what was accepted."""
        await asyncio.to_thread(self._writing.shutdown)
        if self._encoder is not None:
            await self._encoder
        await asyncio.to_thread(self._encoding.shutdown)


def _runs(work: Sequence[Appended]) -> list[tuple[int, int]]:
    """Divide what waits into parts of a bounded number of traces."""
    runs, start, held = [], 0, 0
    for i, stored in enumerate(work):
        held += len(stored.traces)
        if held >= _TOGETHER:
            runs.append((start, i + 1))
            start, held = i + 1, 0
    if start < len(work):
        runs.append((start, len(work)))
    return runs
