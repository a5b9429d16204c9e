"""What tools ask of a memory, and who does it: threads, unless a server has better ways."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from anyio import to_thread

from zeromem.errors import ZeroMemError
from zeromem.memory import Memory
from zeromem.types import Added, Retrieval

if TYPE_CHECKING:
    from zeromem.memories import Memories

T = TypeVar("T")


class RefusedError(ZeroMemError):
    """Something is not done now, by no fault of the caller's; the message is told as it is."""


class Verbs(Protocol):
    """One memory, awaited. Writing that has begun runs to its end, cancelled or not."""

    async def add(self, text: str, **fields: Any) -> Added:
        """As :meth:`Memory.add`."""

    async def retrieve(self, question: str, **options: Any) -> Retrieval:
        """As :meth:`Memory.retrieve`."""

    async def forget(self, **conditions: Any) -> int:
        """As :meth:`Memory.forget`."""

    async def run(self, work: Callable[[Memory], T]) -> T:
        """Call what blocks."""


class Threads:
    """Each call in a thread of its own.

    Parameters
    ----------
    memories : Memories
    scope : str
    """

    def __init__(self, memories: Memories, scope: str) -> None:
        self._memories = memories
        self._scope = scope

    async def add(self, text: str, **fields: Any) -> Added:
        return await self.run(lambda memory: memory.add(text, **fields))

    async def retrieve(self, question: str, **options: Any) -> Retrieval:
        return await self.run(lambda memory: memory.retrieve(question, **options))

    async def forget(self, **conditions: Any) -> int:
        return await self.run(lambda memory: memory.forget(**conditions))

    async def run(self, work: Callable[[Memory], T]) -> T:
        def within() -> T:
            with self._memories.use(self._scope) as memory:
                return work(memory)

        return await to_thread.run_sync(within)
