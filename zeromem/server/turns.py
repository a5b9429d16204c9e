"""Who may work now: a bound for all, and one for each tenant or memory among them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Hashable, Mapping
from contextlib import asynccontextmanager


class Turns:
    """Lends a number of turns; those who wait get them in order, past whoever is at a bound.

    Threads alone would be taken by whoever comes first: one tenant's long work, and its further
    requests that wait for the first one, would leave none for the others.

    Belongs to one event loop.

    Parameters
    ----------
    n : int
        Turns that are taken at once.
    """

    def __init__(self, n: int) -> None:
        self._n_free = n
        self._held: Counter[Hashable] = Counter()
        self._waiting: list[tuple[Mapping[Hashable, int], asyncio.Future[None]]] = []

    async def take(self, bounds: Mapping[Hashable, int]) -> None:
        """Have a turn, until :meth:`give_back` with the same bounds.

        Parameters
        ----------
        bounds : mapping
            In whose name it is taken, and how many turns may be taken in that name.
        """
        if self._may(bounds):
            self._count(bounds)
        else:
            await self._given(bounds)

    def give_back(self, bounds: Mapping[Hashable, int]) -> None:
        """Let the next one have the turn."""
        self._n_free += 1
        for name in bounds:
            self._held[name] -= 1
            if not self._held[name]:
                del self._held[name]
        for waiting in list(self._waiting):
            wanted, future = waiting
            if not future.done() and self._may(wanted):
                self._count(wanted)
                self._waiting.remove(waiting)
                future.set_result(None)

    @asynccontextmanager
    async def of(self, bounds: Mapping[Hashable, int]) -> AsyncIterator[None]:
        """Have a turn for as long as the block runs."""
        await self.take(bounds)
        try:
            yield
        finally:
            self.give_back(bounds)

    async def _given(self, bounds: Mapping[Hashable, int]) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = bounds, future
        self._waiting.append(waiting)
        try:
            await future
        except asyncio.CancelledError:
            if future.cancelled():
                self._waiting.remove(waiting)
            else:  # it was given just now
                self.give_back(bounds)
            raise

    def _may(self, bounds: Mapping[Hashable, int]) -> bool:
        return self._n_free > 0 and all(self._held[name] < most for name, most in bounds.items())

    def _count(self, bounds: Mapping[Hashable, int]) -> None:
        self._n_free -= 1
        self._held.update(bounds.keys())
