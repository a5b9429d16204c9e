"""Adds under load: acknowledged when on disk, encoded together with those of other tenants."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

from zeromem.memories import Memories
from zeromem.memory import Appended, Memory, featurize
from zeromem.server.access import Access
from zeromem.server.turns import Turns
from zeromem.types import Added, Trace

_log = logging.getLogger(__name__)
T = TypeVar("T")
# Traces, and characters of them, that one call of the models takes: more would only make others'
# next questions wait.
_TOGETHER = 64
_CHARACTERS = 1 << 16
# Seconds for which a question waits for the encoder; then it sees to its own scope.
_PATIENCE = 1.0
# Characters that may wait to be encoded, of a tenant and of all: their traces are held meanwhile.
_MOST_WAITING, _MOST_OF_ALL = 1 << 22, 1 << 26


class _Part(NamedTuple):
    """What the models take of an add, its characters, and the future that its last part settles."""

    stored: Appended
    size: int
    done: asyncio.Future[None] | None


class Writer:
    """Works on memories in threads: adds share the store's commits, and so its fsyncs.

    Adds are short and never wait for other work. All else has turns of its own, so that one
    tenant's imports, or questions to a memory that is busy, leave threads to the others.

    Belongs to one event loop.

    Parameters
    ----------
    memories : Memories
    n_threads : int
        Adds that may wait for the disk at once, and other work that may.
    n_imports : int
        Imports at once.
    """

    def __init__(self, memories: Memories, *, n_threads: int = 16, n_imports: int = 4) -> None:
        self._memories = memories
        self._writing = ThreadPoolExecutor(n_threads, thread_name_prefix="zeromem-write")
        self._working = ThreadPoolExecutor(n_threads, thread_name_prefix="zeromem-work")
        self._importing = ThreadPoolExecutor(n_imports, thread_name_prefix="zeromem-import")
        self._encoding = ThreadPoolExecutor(1, thread_name_prefix="zeromem-encode")
        # Two for what needs no memory, as to say that the server is there.
        self._works, self._imports = Turns(n_threads - 2), Turns(n_imports)
        self._most, self._most_imports = max(1, n_threads // 4), max(1, n_imports // 2)
        self._queues: OrderedDict[str, deque[_Part]] = OrderedDict()
        self._sizes: Counter[str] = Counter()  # characters that wait, by tenant
        self._settling: dict[str, set[asyncio.Future[None]]] = {}
        self._encoder: asyncio.Task[None] | None = None
        self._closing = False

    @property
    def n_pending(self) -> int:
        """Traces that wait here to be encoded."""
        return sum(len(part.stored.traces) for queue in self._queues.values() for part in queue)

    async def run(self, access: Access, work: Callable[..., T], *given: Any) -> T:
        """Call ``work(memory, *given)`` in a thread; once begun it is finished."""
        bounds: Mapping[Hashable, int] = {
            ("tenant", access.tenant): 2 * self._most, ("scope", access.scope): self._most
        }  # fmt: skip
        return await self._in_turn(self._works, self._working, bounds, access.scope, work, *given)

    async def run_long(self, access: Access, work: Callable[..., T], *given: Any) -> T:
        """Call what may take hours, as an import does: its tenant's others wait for it first."""
        bounds: Mapping[Hashable, int] = {
            ("tenant", access.tenant): self._most_imports, ("scope", access.scope): 1
        }  # fmt: skip
        threads = self._importing
        return await self._in_turn(self._imports, threads, bounds, access.scope, work, *given)

    async def _in_turn(
        self,
        turns: Turns,
        threads: ThreadPoolExecutor,
        bounds: Mapping[Hashable, int],
        scope: str,
        work: Callable[..., T],
        *given: Any,
    ) -> T:
        loop = asyncio.get_running_loop()
        await turns.take(bounds)
        try:
            doing = loop.run_in_executor(threads, self._in_thread, scope, work, *given)
        except BaseException:
            turns.give_back(bounds)
            raise

        def ended(done: asyncio.Future[T]) -> None:
            turns.give_back(bounds)
            done.exception()  # where nobody waits for it any more it is told to nobody

        doing.add_done_callback(ended)
        return await asyncio.shield(doing)  # its thread is taken to its end, waited for or not

    async def run_alone(self, call: Callable[..., T], *given: Any) -> T:
        """Call what needs no memory in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._working, call, *given)

    def _in_thread(self, scope: str, work: Callable[..., T], *given: Any) -> T:
        with self._memories.use(scope) as memory:
            return work(memory, *given)

    async def add(self, access: Access, traces: Sequence[Trace]) -> list[Added]:
        """Store traces, all or none; durable when it returns, and encoded soon after."""
        loop, scope = asyncio.get_running_loop(), access.scope
        stored: Appended = await loop.run_in_executor(
            self._writing, self._in_thread, scope, Memory.append, traces
        )
        if any(one.created for one in stored.added):
            self._encode_soon(access.tenant, stored)
        return stored.added

    def _encode_soon(self, tenant: str, stored: Appended) -> None:
        """Have the models take what was stored, unless so much waits that whoever asks does it."""
        size = sum(len(trace.text) for trace in stored.traces)
        waiting = self._sizes[tenant]
        full = waiting + size > _MOST_WAITING or self._sizes.total() + size > _MOST_OF_ALL
        if self._closing or (full and waiting):
            return
        done = asyncio.get_running_loop().create_future()
        self._settling.setdefault(stored.memory.scope, set()).add(done)
        self._sizes[tenant] += size
        self._queues.setdefault(tenant, deque()).extend(_parts(stored, done))
        if self._encoder is None:
            self._encoder = asyncio.create_task(self._encode())

    async def settled(self, scope: str) -> None:
        """Wait until what was added to a scope by now is encoded, or was tried, or takes long."""
        if waiting := self._settling.get(scope):
            await asyncio.wait(set(waiting), timeout=_PATIENCE)

    async def _encode(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while work := self._next():
                try:
                    parts = [part.stored for _, part in work]
                    await loop.run_in_executor(self._encoding, featurize, parts)
                except Exception as error:  # those who came meanwhile still have their turn
                    _log.error("what was added is not encoded yet: %s", type(error).__name__)
                for tenant, part in work:  # whatever was not encoded is made by whoever asks
                    self._ended(tenant, part)
        finally:
            self._encoder = None

    def _next(self) -> list[tuple[str, _Part]]:
        """Take from the tenants in turn what the models shall take together."""
        work: list[tuple[str, _Part]] = []
        n, size = 0, 0
        while self._queues and n < _TOGETHER and size < _CHARACTERS:
            tenant, queue = next(iter(self._queues.items()))
            part = queue.popleft()
            self._queues.move_to_end(tenant)
            if not queue:
                del self._queues[tenant]
            work.append((tenant, part))
            n += len(part.stored.traces)
            size += part.size
        return work

    def _ended(self, tenant: str, part: _Part) -> None:
        self._sizes[tenant] -= part.size
        if not self._sizes[tenant]:
            del self._sizes[tenant]
        if part.done is not None:
            part.done.set_result(None)
            scope = part.stored.memory.scope
            self._settling[scope].discard(part.done)
            if not self._settling[scope]:
                del self._settling[scope]

    async def close(self) -> None:
        """Finish what was accepted. What waits to be encoded is on disk: whoever asks makes it."""
        self._closing = True
        for threads in (self._writing, self._working, self._importing):
            await asyncio.to_thread(threads.shutdown)
        waiting = [(tenant, part) for tenant, queue in self._queues.items() for part in queue]
        self._queues.clear()
        for tenant, part in waiting:
            self._ended(tenant, part)
        if self._encoder is not None:
            await self._encoder
        await asyncio.to_thread(self._encoding.shutdown)


def _parts(stored: Appended, done: asyncio.Future[None]) -> list[_Part]:
    """Divide what was added into parts of a bounded size, or of one trace."""
    parts, start, size, n = [], 0, 0, len(stored.traces)
    for i, trace in enumerate(stored.traces, 1):
        size += len(trace.text)
        if i == n or i - start == _TOGETHER or size >= _CHARACTERS:
            own = stored._replace(traces=stored.traces[start:i], keys=stored.keys[start:i])
            parts.append(_Part(own, size, done if i == n else None))
            start, size = i, 0
    return parts
