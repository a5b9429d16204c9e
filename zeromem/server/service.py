"""The server's work behind its routes: memories, batches, writes, readers."""

from __future__ import annotations

import asyncio
import gc
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from zeromem.answer import Reader, answer_from
from zeromem.asking import Answered, Call
from zeromem.memories import Memories
from zeromem.memory import Memory
from zeromem.server.access import Access
from zeromem.server.batching import Batcher
from zeromem.server.metrics import Metrics
from zeromem.server.problems import Problem
from zeromem.server.settings import Settings
from zeromem.server.tracing import Tracing
from zeromem.server.upstream import Upstream
from zeromem.server.writing import Writer
from zeromem.types import Added, Answer, Retrieval, TokenUsage, Trace

T = TypeVar("T")
# Rounds at once where an endpoint encodes; and threads where nothing is batched.
_ROUNDS = 8


class Service:
    """What all requests share. Its coroutines belong to the event loop that started it.

    Parameters
    ----------
    memories : Memories
        Closed with this.
    settings : Settings
    tracing : Tracing, optional
    """

    def __init__(
        self, memories: Memories, settings: Settings, tracing: Tracing | None = None
    ) -> None:
        self.memories = memories
        self.settings = settings
        self.tracing = tracing or Tracing()
        self.metrics = Metrics()
        self.upstream = None if settings.upstream is None else Upstream(settings.upstream)
        self.stopping = False
        self.warming: asyncio.Task[None] | None = None
        self._trimming: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to serve, in the running event loop."""
        # Of uploads: found once by writing there, for which a full table of files has no room.
        tempfile.gettempdir()
        batching = self.settings.batching
        self.writer = Writer(self.memories)
        self.batcher = Batcher(
            window=self.settings.batch_window if batching else 0.0,
            max_batch=self.settings.max_batch if batching else 1,
            max_waiting=self.settings.max_waiting,
            n_rounds=_ROUNDS if not batching or self.memories.remote else 1,
            seen=self.metrics.batch,
        )
        self.batcher.start()
        # Requests are served meanwhile, if slowly; `/readyz` says when there is no need to wait.
        self.warming = asyncio.create_task(asyncio.to_thread(self._warm))

    def _warm(self) -> None:
        self.memories.warm()
        gc.freeze()  # modules and models: there is nothing to collect among them

    @property
    def problem(self) -> str | None:
        """Why requests should be sent elsewhere for now."""
        if self.stopping:
            return "the server is stopping"
        if self.warming is None or not self.warming.done():
            return "kernels and models are being loaded"
        return None

    async def stop(self) -> None:
        """Finish accepted writes, save the indexes, close the store."""
        self.stopping = True
        if self.warming is not None:
            await self.warming
        if self.upstream is not None:
            await self.upstream.close()
        await self.batcher.close()
        await self.writer.close()
        if self._trimming is not None:
            await self._trimming
        await asyncio.to_thread(self.memories.close)
        await asyncio.to_thread(self.tracing.close)

    @asynccontextmanager
    async def memory(self, scope: str) -> AsyncIterator[Memory]:
        """Use a scope's memory; only one that is not open yet costs a thread."""
        memory = self.memories.taken_at_once(scope)
        if memory is None:
            memory = await self._taken(scope)
        try:
            yield memory
        finally:
            if self.memories.give_back(memory) and self._trimming is None:
                self._trimming = asyncio.create_task(self._trim())

    async def _taken(self, scope: str) -> Memory:
        """Open a memory in a thread; where nobody waits for it any more it is given back."""
        taking = asyncio.ensure_future(asyncio.to_thread(self.memories.take, scope))
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            taking.add_done_callback(self._let_go)
            raise

    def _let_go(self, taking: asyncio.Future[Memory]) -> None:
        if not taking.cancelled() and taking.exception() is None:
            self.memories.give_back(taking.result())

    async def _trim(self) -> None:
        try:
            await asyncio.to_thread(self.memories.trim)
        finally:
            self._trimming = None

    async def add(self, access: Access, traces: Sequence[Trace]) -> list[Added]:
        """Store traces, all or none; on disk when this returns."""
        added = await self.writer.add(access, traces)
        self.metrics.traces.labels("added").inc(sum(one.created for one in added))
        return added

    async def ask(
        self,
        access: Access,
        questions: Sequence[str],
        options: Mapping[str, Any],
        *,
        filtered: bool = False,
    ) -> list[Answered]:
        """Find evidence, in one batch with whoever asks now."""
        async with asyncio.timeout(self.settings.timeout):
            await self.writer.settled(access.scope)
            async with self.memory(access.scope) as memory:
                call = Call.of(memory, questions, options, filtered=filtered)
                found = await self.batcher.ask(access.tenant, call)
        self.tracing.stages(found[0].retrieval.seconds)
        return found

    async def retrieve(
        self, access: Access, question: str, options: Mapping[str, Any]
    ) -> Retrieval:
        """Find the evidence for one question."""
        return (await self.ask(access, [question], options))[0].retrieval

    async def read(
        self, access: Access, question: str, retrieval: Retrieval, reader: Reader | None = None
    ) -> Answer:
        """Answer from evidence: by the extractive reader unless another is given."""
        async with asyncio.timeout(self.settings.timeout):
            answer = await self.run(access, _read, question, retrieval, reader)
        self.spent("answer", answer.usage)
        return answer

    @property
    def models(self) -> Upstream:
        """The upstream, where there has to be one.

        Raises
        ------
        Problem
            501: the server was started without.
        """
        if self.upstream is None:
            raise Problem(
                501, "not-configured", "this server has no language model to pass chats on to; its "
                "operator names one with `zeromem serve --upstream URL`",
            )  # fmt: skip
        return self.upstream

    def spent(self, stage: str, usage: TokenUsage) -> None:
        """Count a language model's tokens."""
        self.metrics.tokens.labels(stage, "prompt").inc(usage.prompt)
        self.metrics.tokens.labels(stage, "completion").inc(usage.completion)

    async def run(self, access: Access, call: Callable[..., T], *given: Any) -> T:
        """Call ``call(memory, *given)`` in a thread."""
        return await self.writer.run(access, call, *given)

    async def run_long(self, access: Access, call: Callable[..., T], *given: Any) -> T:
        """Call ``call(memory, *given)``, which may take hours, in a thread."""
        return await self.writer.run_long(access, call, *given)

    async def run_alone(self, call: Callable[..., T], *given: Any) -> T:
        """Call what needs no memory in a thread."""
        return await self.writer.run_alone(call, *given)

    async def forget(self, access: Access, conditions: Mapping[str, Any]) -> int:
        """Delete traces and all that came from them; done when this returns."""
        n: int = await self.run(access, lambda memory: memory.forget(**conditions))
        self.metrics.traces.labels("forgotten").inc(n)
        return n

    def scopes(self, access: Access) -> list[str]:
        """List the scopes that this key may reach, by its own names for them."""
        prefix = access.prefix
        return [s[len(prefix) :] for s in self.memories.scopes() if s.startswith(prefix)]

    def measured(self) -> bytes:
        """Return the metrics as text."""
        shown = self.metrics
        shown.waiting.set(self.batcher.n_waiting)
        shown.unencoded.set(self.writer.n_pending)
        counts = self.memories.stats()
        shown.open.set(counts["open"])
        shown.bytes.set(counts["bytes"])
        shown.used(counts)
        return shown.text()


def _read(memory: Memory, question: str, retrieval: Retrieval, reader: Reader | None) -> Answer:
    return answer_from(question, retrieval, reader or memory.reader)
