"""Questions that are asked at about the same time, of any tenant, answered as one batch."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from zeromem.asking import Answered, Asked, Call, answer_each
from zeromem.errors import StaleReadError
from zeromem.server.problems import Problem, whole_seconds
from zeromem.server.turns import Turns

Outcome = list[Answered] | Exception
Seen = Callable[[int, Sequence[float], Mapping[str, float]], None]
_ATTEMPTS = 10
# Weight of the newest batch in the rate by which waiting times are told.
_NEWEST = 0.1
# A batch gathers for at most this share of the time that the one before took.
_PATIENCE = 0.5
# Of all questions of a batch, beside their number: the longest one takes as long as dozens.
_CHARACTERS = 1 << 16


class _Waiting:
    """A call, and the future of its answer."""

    __slots__ = ("asked", "attempts", "call", "future", "since", "tenant")

    def __init__(self, tenant: str, call: Call, future: asyncio.Future[list[Answered]]) -> None:
        self.tenant = tenant
        self.call = call
        self.future = future
        self.asked: Asked | None = None
        self.attempts = 0
        self.since = time.perf_counter()


class Batcher:
    """Micro-batching across tenants.

    While one batch is being answered the next one gathers. Each takes from the tenants in turn, so
    that one who asks much makes itself wait and not the others. Memories whose index is not up to
    date are refreshed beside the batch and join a later one. What waits is bounded: beyond it
    questions are refused, those first of a tenant with more than its share.

    Belongs to one event loop.

    Parameters
    ----------
    window : float
        Seconds without a further question after which a batch begins. Who asks alone, after a
        batch of one, waits for nobody.
    max_batch : int
        Questions of one batch; fewer where they are long.
    max_waiting : int
        Questions that may wait.
    n_rounds : int
        Batches that may run at once. On a CPU one has all cores in its kernels; what waits for an
        endpoint can wait beside others.
    n_refreshing : int
        Memories that are refreshed at once, half of them of one tenant.
    seen : callable, optional
        Called after each batch with the questions in it, the seconds that its calls had waited, and
        those of its stages.
    """

    def __init__(
        self,
        *,
        window: float = 0.0015,
        max_batch: int = 64,
        max_waiting: int = 1024,
        n_rounds: int = 1,
        n_refreshing: int = 4,
        seen: Seen = lambda size, waited, seconds: None,
    ) -> None:
        self._window = window
        self._max_batch = max_batch
        self._max_waiting = max_waiting
        self._seen = seen
        self._queues: OrderedDict[str, deque[_Waiting]] = OrderedDict()
        self._counts: dict[str, int] = {}
        self._n_waiting = 0
        self._n_arrived = 0
        self._last_size = 1
        self._last_seconds = 0.0
        self._rate = 100.0
        self._arrived = asyncio.Event()
        self._rounds = asyncio.Semaphore(n_rounds)
        self._answering = ThreadPoolExecutor(n_rounds, thread_name_prefix="zeromem-batch")
        self._refreshing = ThreadPoolExecutor(n_refreshing, thread_name_prefix="zeromem-refresh")
        self._turns, self._most = Turns(n_refreshing), max(1, n_refreshing // 2)
        self._tasks: set[asyncio.Task[None]] = set()
        self._runner: asyncio.Task[None] | None = None
        self._unanswered: set[_Waiting] = set()
        self._closed = False

    @property
    def n_waiting(self) -> int:
        """Questions that wait or are being answered."""
        return self._n_waiting

    def start(self) -> None:
        """Begin to answer, in the running event loop."""
        self._runner = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Finish what is being answered; what still waits is refused, and who asks from now on."""
        self._closed = True
        if self._runner is not None:
            self._runner.cancel()
        while self._tasks:
            await asyncio.wait(self._tasks)
        for waiting in self._unanswered:
            _tell(waiting, _stopping())
        for threads in (self._answering, self._refreshing):
            await asyncio.to_thread(threads.shutdown)

    async def ask(self, tenant: str, call: Call) -> list[Answered]:
        """Answer a call, with others.

        Raises
        ------
        Problem
            429: too much is waiting. 503: the server is stopping.
        """
        if self._closed:
            raise _stopping()
        n = len(call.texts)
        self._admit(tenant, n)
        loop = asyncio.get_running_loop()
        parts = [_Waiting(tenant, part, loop.create_future()) for part in self._parts(call)]
        self._n_waiting += n
        self._unanswered.update(parts)
        self._counts[tenant] = self._counts.get(tenant, 0) + n
        try:
            for part in parts:
                self._put(part)
            if len(parts) == 1:
                return await parts[0].future
            answered = await asyncio.gather(*(part.future for part in parts))
            return [one for own in answered for one in own]
        finally:
            self._n_waiting -= n
            for part in parts:
                part.future.cancel()  # where another part failed
            self._unanswered.difference_update(parts)
            self._counts[tenant] -= n
            if not self._counts[tenant]:
                del self._counts[tenant]

    def _admit(self, tenant: str, n: int) -> None:
        own, total = self._counts.get(tenant, 0), self._n_waiting
        share = self._max_waiting // (len(self._counts) + (tenant not in self._counts))
        # A first call is admitted whatever its size, or a large one would never be.
        full = total + n > self._max_waiting and total > 0
        greedy = own > 0 and own + n > share and total + n > self._max_waiting // 2
        if full or greedy:
            what = "this tenant's share of waiting questions is" if greedy else "the queue is"
            wait = whole_seconds(total / self._rate)
            raise Problem(
                429, "overloaded", f"{what} full ({own if greedy else total} wait); ask again in "
                f"{wait} s", retry_after=wait,
            )  # fmt: skip

    def _parts(self, call: Call) -> list[Call]:
        """Divide a call where it alone would make others wait for long."""
        if len(call.texts) <= self._max_batch and sum(map(len, call.texts)) < _CHARACTERS:
            return [call]
        parts: list[Call] = []
        start, size = 0, 0
        for i, text in enumerate(call.texts, 1):
            size += len(text)
            if i == len(call.texts) or i - start == self._max_batch or size >= _CHARACTERS:
                parts.append(call._replace(texts=call.texts[start:i]))
                start, size = i, 0
        return parts

    def _put(self, waiting: _Waiting) -> None:
        self._queues.setdefault(waiting.tenant, deque()).append(waiting)
        self._n_arrived += 1
        self._arrived.set()

    async def _run(self) -> None:
        while True:
            await self._arrived.wait()
            await self._rounds.acquire()
            await self._gather()
            batch = self._take()
            if not batch:
                self._rounds.release()
                continue
            self._begin(self._answer(batch))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _gather(self) -> None:
        """Wait while questions keep coming: those who were answered just now ask again.

        Replies are written and requests read by the thread that would start the next batch, so the
        first of them to come back would otherwise be answered alone and hold up the others.
        """
        if self._last_size == 1:
            return
        until = time.perf_counter() + max(self._window, _PATIENCE * self._last_seconds)
        while sum(map(len, self._queues.values())) < self._max_batch:
            n = self._n_arrived
            await asyncio.sleep(self._window)
            if self._n_arrived == n or time.perf_counter() > until:
                return

    def _take(self) -> list[_Waiting]:
        """Take calls from the tenants in turn."""
        batch: list[_Waiting] = []
        n, size = 0, 0
        while self._queues and n < self._max_batch and size < _CHARACTERS:
            tenant, queue = next(iter(self._queues.items()))
            waiting = queue.popleft()
            self._queues.move_to_end(tenant)
            if not queue:
                del self._queues[tenant]
            if not waiting.future.done():  # else its client has gone
                batch.append(waiting)
                n += len(waiting.call.texts)
                size += sum(map(len, waiting.call.texts))
        if not self._queues:
            self._arrived.clear()
        return batch

    async def _answer(self, batch: Sequence[_Waiting]) -> None:
        loop, start = asyncio.get_running_loop(), time.perf_counter()
        try:
            outcomes = await loop.run_in_executor(self._answering, _answered, batch)
        except Exception as error:
            outcomes = [error] * len(batch)
        finally:
            self._rounds.release()
        end, n = time.perf_counter(), 0
        seconds: Mapping[str, float] = {}
        for waiting, outcome in zip(batch, outcomes, strict=True):
            if outcome is None:
                self._begin(self._refresh(waiting))
                continue
            n += len(waiting.call.texts)
            if outcome and not isinstance(outcome, Exception):
                seconds = outcome[0].retrieval.seconds  # of the batch: the same for all
            _tell(waiting, outcome)
        if n:
            self._last_size, self._last_seconds = len(batch), end - start
            self._rate += _NEWEST * (n / max(end - start, 1e-6) - self._rate)
            self._seen(n, [start - waiting.since for waiting in batch], seconds)

    async def _refresh(self, waiting: _Waiting) -> None:
        """Bring a memory up to date, and ask again."""
        waiting.attempts += 1
        if waiting.attempts > _ATTEMPTS:
            _tell(waiting, StaleReadError("the scope was changed by others all the time"))
            return
        loop, call = asyncio.get_running_loop(), waiting.call
        # Others who ask the same memory would only hold a thread until the first is done.
        async with self._turns.of({("tenant", waiting.tenant): self._most, id(call.memory): 1}):
            if waiting.future.done():
                return
            try:
                waiting.asked = await loop.run_in_executor(self._refreshing, call.now)
            except Exception as error:
                _tell(waiting, error)
                return
        if not waiting.future.done():
            self._put(waiting)


def _answered(batch: Sequence[_Waiting]) -> list[Outcome | None]:
    """Answer those whose memory is up to date; None for the others."""
    outcomes: list[Outcome | None] = [None] * len(batch)
    asked: dict[int, Asked] = {}
    for i, waiting in enumerate(batch):
        ready, waiting.asked = waiting.asked, None
        try:
            if ready is not None:
                asked[i] = ready
            elif waiting.call.is_ready:
                asked[i] = waiting.call.now()
        except Exception as error:
            outcomes[i] = error
    for i, outcome in zip(asked, answer_each(list(asked.values())), strict=True):
        outcomes[i] = outcome
    return outcomes


def _stopping() -> Problem:
    return Problem(503, "stopping", "ask another server", retry_after=1)


def _tell(waiting: _Waiting, outcome: Outcome) -> None:
    if waiting.future.done():
        return
    if isinstance(outcome, Exception):
        waiting.future.set_exception(outcome)
    else:
        waiting.future.set_result(outcome)
