"""Memory for asyncio: the same verbs, awaited; the work is done by threads."""

from __future__ import annotations

import asyncio
import os
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from functools import partial
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from zeromem.errors import InvalidInputError, StoreError
from zeromem.memory import Memory
from zeromem.memory import open as open_memory
from zeromem.types import (
    Added,
    Answer,
    Explanation,
    Retrieval,
    SessionSummary,
    StoredTrace,
    TokenUsage,
    Trace,
    TracePage,
)

if TYPE_CHECKING:
    from zeromem.answer import Reader

T = TypeVar("T")
# Calls that wait share rounds (``zeromem.combining``): more threads make larger rounds.
_THREADS = 64
_EXPORTED = 256


class AsyncMemory:
    """A :class:`Memory` whose verbs are coroutines.

    Calls that are awaited together are answered together, as threads' are. Whoever is cancelled
    stops waiting; a write that has begun is finished.

    Parameters
    ----------
    memory : Memory
        Closed with this.
    """

    def __init__(self, memory: Memory) -> None:
        if not isinstance(memory, Memory):
            raise InvalidInputError(
                f"memory must be a Memory, got {type(memory).__name__}; "
                "await AsyncMemory.open(path) opens one"
            )
        self.memory = memory
        self._closed = False
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="zeromem-aio")

    @staticmethod
    def open(path: str | os.PathLike[str] | None = None, **options: Any) -> Opening:
        """Open a memory; parameters as for :func:`zeromem.open`.

        Returns
        -------
        Opening
            ``mem = await AsyncMemory.open(path)``, or
            ``async with AsyncMemory.open(path) as mem:``, which closes it at the end.
        """
        return Opening(partial(open_memory, path, **options))

    @property
    def scope(self) -> str:
        return self.memory.scope

    @property
    def usage(self) -> dict[str, TokenUsage]:
        """LLM tokens by stage."""
        return self.memory.usage

    async def add(self, text: str, **fields: Any) -> Added:
        """As :meth:`Memory.add`."""
        return await self._run(self.memory.add, text, **fields)

    async def add_many(
        self, traces: Iterable[Trace | Mapping[str, Any] | str], *, progress: bool | None = None
    ) -> list[Added]:
        """As :meth:`Memory.add_many`."""
        return await self._run(self.memory.add_many, traces, progress=progress)

    async def retrieve(self, question: str, **options: Any) -> Retrieval:
        """As :meth:`Memory.retrieve`."""
        return await self._run(self.memory.retrieve, question, **options)

    async def retrieve_batch(self, questions: Sequence[str], **options: Any) -> list[Retrieval]:
        """As :meth:`Memory.retrieve_batch`."""
        return await self._run(self.memory.retrieve_batch, questions, **options)

    async def explain(self, question: str, **options: Any) -> Explanation:
        """As :meth:`Memory.explain`."""
        return await self._run(self.memory.explain, question, **options)

    async def answer(
        self, question: str, *, reader: Reader | None = None, **options: Any
    ) -> Answer:
        """As :meth:`Memory.answer`."""
        return await self._run(self.memory.answer, question, reader=reader, **options)

    async def get(self, ids: Iterable[str]) -> dict[str, Trace]:
        """As :meth:`Memory.get`."""
        return await self._run(self.memory.get, ids)

    async def traces(self, **options: Any) -> TracePage:
        """As :meth:`Memory.traces`."""
        return await self._run(self.memory.traces, **options)

    async def around(self, id: str, *, before: int = 3, after: int = 3) -> list[StoredTrace]:
        """As :meth:`Memory.around`."""
        return await self._run(self.memory.around, id, before=before, after=after)

    async def sessions(self) -> list[SessionSummary]:
        """As :meth:`Memory.sessions`."""
        return await self._run(self.memory.sessions)

    async def forget(self, ids: Iterable[str] | str | None = None, **conditions: Any) -> int:
        """As :meth:`Memory.forget`."""
        return await self._run(self.memory.forget, ids, **conditions)

    async def export(self) -> AsyncIterator[StoredTrace]:
        """As :meth:`Memory.export`."""
        exported = self.memory.export()
        while chunk := await self._run(_chunk, exported):
            for stored in chunk:
                yield stored

    async def import_(self, path: str | os.PathLike[str], **options: Any) -> list[Added]:
        """As :meth:`Memory.import_`."""
        return await self._run(self.memory.import_, path, **options)

    async def stats(self) -> dict[str, Any]:
        """As :meth:`Memory.stats`."""
        return await self._run(self.memory.stats)

    async def close(self) -> None:
        """Wait for what has begun, and close the memory. Idempotent."""
        self._closed = True
        await asyncio.to_thread(self._threads.shutdown)
        await asyncio.to_thread(self.memory.close)

    async def __aenter__(self) -> AsyncMemory:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"AsyncMemory({self.memory!r})"

    async def _run(self, call: Callable[..., T], *given: Any, **named: Any) -> T:
        if self._closed:
            raise StoreError(f"the memory {self.scope!r} is closed; open it again")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, partial(call, *given, **named))


class Opening(Awaitable[AsyncMemory], AbstractAsyncContextManager[AsyncMemory]):
    """A memory that is opened when it is awaited, or entered.

    Parameters
    ----------
    opened : callable
        Opens it; it may block.
    """

    def __init__(self, opened: Callable[[], Memory]) -> None:
        self._opened = opened
        self._entered: AsyncMemory | None = None

    def __await__(self) -> Generator[Any, None, AsyncMemory]:
        return self._open().__await__()

    async def _open(self) -> AsyncMemory:
        return AsyncMemory(await asyncio.to_thread(self._opened))

    async def __aenter__(self) -> AsyncMemory:
        self._entered = await self
        return self._entered

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._entered is not None:
            await self._entered.close()


def _chunk(exported: Iterator[StoredTrace]) -> list[StoredTrace]:
    return list(islice(exported, _EXPORTED))
