"""Adds under load: acknowledged when on disk, encoded together with those of other tenants."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from zeromem.memories import Memories
from zeromem.memory import Appended, Memory, featurize
from zeromem.server.access import Access
from zeromem.types import Added, Trace

_log = logging.getLogger(__name__)
T = TypeVar("T")
# Traces that one call of the models takes: more would only make its scopes' next questions wait.
_TOGETHER = 64
# Characters of an add beyond which it waits in a lane of its own, or all others would wait for it.
_LONG = 50_000


class _Lane:
    """What is to be encoded, in order, by one thread.

    Parameters
    ----------
    ended : callable
        Called with the scope of each add that was encoded, or tried, and its future.
    """

    def __init__(self, ended: Callable[[str, asyncio.Future[None]], None]) -> None:
        self._ended = ended
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="zeromem-encode")
        self._waiting: list[tuple[str, Appended, asyncio.Future[None]]] = []
        self._task: asyncio.Task[None] | None = None

    @property
    def n_traces(self) -> int:
        return sum(len(stored.traces) for _, stored, _ in self._waiting)

    def put(self, scope: str, stored: Appended) -> asyncio.Future[None]:
        """Have traces encoded; the future tells when that is over."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((scope, stored, done))
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        return done

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            work = self._take()
            try:
                await loop.run_in_executor(self._threads, featurize, [one for _, one, _ in work])
            except Exception as error:  # those who came meanwhile still have their turn
                _log.error("what was added is not encoded yet: %s", type(error).__name__)
            for scope, _, done in work:  # whatever was not encoded is made by whoever asks
                done.set_result(None)
                self._ended(scope, done)
        self._task = None

    def _take(self) -> list[tuple[str, Appended, asyncio.Future[None]]]:
        """Take what one call of the models encodes: at least one add, whatever its size."""
        n, held = 0, 0
        while n < len(self._waiting) and held < _TOGETHER:
            held += len(self._waiting[n][1].traces)
            n += 1
        work, self._waiting = self._waiting[:n], self._waiting[n:]
        return work

    async def close(self) -> None:
        """Finish what waits."""
        if self._task is not None:
            await self._task
        await asyncio.to_thread(self._threads.shutdown)


class Writer:
    """Writes to memories in threads, which share the store's commits, and so its fsyncs.

    Belongs to one event loop.

    Parameters
    ----------
    memories : Memories
    n_threads : int
        Calls that may run at once; those of one tenant take half of them at most.
    """

    def __init__(self, memories: Memories, *, n_threads: int = 16) -> None:
        self._memories = memories
        self._share = max(1, n_threads // 2)
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._writing = ThreadPoolExecutor(n_threads, thread_name_prefix="zeromem-write")
        self._short, self._long = _Lane(self._ended), _Lane(self._ended)
        self._unsettled: dict[str, set[asyncio.Future[None]]] = {}

    @property
    def n_pending(self) -> int:
        """Traces that are stored and wait to be encoded."""
        return self._short.n_traces + self._long.n_traces

    async def run(self, access: Access, write: Callable[..., T], *given: Any) -> T:
        """Call ``write(memory, *given)`` in a thread; once begun it is finished."""
        turns = self._turns.get(access.tenant)
        if turns is None:
            turns = self._turns[access.tenant] = asyncio.Semaphore(self._share)
        loop = asyncio.get_running_loop()
        async with turns:
            return await loop.run_in_executor(
                self._writing, self._in_thread, access.scope, write, *given
            )

    async def run_alone(self, call: Callable[..., T], *given: Any) -> T:
        """Call what needs no memory in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._writing, call, *given)

    def _in_thread(self, scope: str, write: Callable[..., T], *given: Any) -> T:
        with self._memories.use(scope) as memory:
            return write(memory, *given)

    async def add(self, access: Access, traces: Sequence[Trace]) -> list[Added]:
        """Store traces, all or none; durable when it returns, and encoded soon after."""
        stored = await self.run(access, Memory.append, traces)
        if any(one.created for one in stored.added):
            self._encode_soon(access.scope, stored)
        return stored.added

    def _encode_soon(self, scope: str, stored: Appended) -> None:
        is_long = sum(len(trace.text) for trace in stored.traces) > _LONG
        done = (self._long if is_long else self._short).put(scope, stored)
        self._unsettled.setdefault(scope, set()).add(done)

    def _ended(self, scope: str, done: asyncio.Future[None]) -> None:
        self._unsettled[scope].discard(done)
        if not self._unsettled[scope]:
            del self._unsettled[scope]

    async def settled(self, scope: str) -> None:
        """Wait until what was added to a scope by now is encoded, or was tried."""
        if unsettled := self._unsettled.get(scope):
            await asyncio.wait(list(unsettled))

    async def close(self) -> None:
        """Finish what was accepted."""
        await asyncio.to_thread(self._writing.shutdown)
        await self._short.close()
        await self._long.close()
