"""``/mcp`` of the HTTP server: its tools take turns and share batches with all other routes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from zeromem.mcp.http import Endpoint
from zeromem.mcp.server import Context, Grant
from zeromem.mcp.verbs import RefusedError
from zeromem.memory import Memory
from zeromem.server.access import Access
from zeromem.server.problems import Problem, problem_of
from zeromem.server.service import Service
from zeromem.types import Added, Retrieval, Trace

T = TypeVar("T")


def endpoint(service: Service) -> Endpoint:
    """Make the endpoint of a server whose guard tells who asks."""

    def granted(context: Context) -> Grant:
        if context.request is None:
            raise TypeError("an MCP request without its HTTP request")
        access: Access = context.request.scope["state"]["access"]
        return Grant(access.scope, not access.may_write, Served(service, access))

    return Endpoint(service.memories, scope=granted)


class Served:
    """The verbs of :class:`zeromem.mcp.verbs.Verbs`, done by the service.

    Parameters
    ----------
    service : Service
    access : Access
    """

    def __init__(self, service: Service, access: Access) -> None:
        self._service = service
        self._access = access

    async def add(self, text: str, **fields: Any) -> Added:
        async with self._told():
            (added,) = await self._service.add(self._access, [Trace(text, **fields)])
            return added

    async def retrieve(self, question: str, **options: Any) -> Retrieval:
        async with self._told():
            return await self._service.retrieve(self._access, question, options)

    async def forget(self, **conditions: Any) -> int:
        async with self._told():
            return await self._service.forget(self._access, conditions)

    async def run(self, work: Callable[[Memory], T]) -> T:
        async with self._told():
            return await self._service.run(self._access, work)

    @asynccontextmanager
    async def _told(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._service.settings.timeout):
                yield
        except (Problem, TimeoutError) as error:
            raise RefusedError(problem_of(error).detail) from None
