"""``/mcp`` of the HTTP server: its tools take turns and share batches with all other routes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
        with _told():
            (added,) = await self._service.add(self._access, [Trace(text, **fields)])
            return added

    async def retrieve(self, question: str, **options: Any) -> Retrieval:
        with _told():
            return await self._service.retrieve(self._access, question, options)

    async def forget(self, **conditions: Any) -> int:
        with _told():
            return await self._service.forget(self._access, conditions)

    async def run(self, work: Callable[[Memory], T]) -> T:
        with _told():
            return await self._service.run(self._access, work)


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except (Problem, TimeoutError) as error:
        raise RefusedError(problem_of(error).detail) from None
