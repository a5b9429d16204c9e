"""The HTTP application: routes behind a guard, around one service."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Route

from zeromem import __version__
from zeromem.keys import Keys
from zeromem.memories import Memories
from zeromem.server.access import Gate
from zeromem.server.guard import MCP_PATH, Guard
from zeromem.server.problems import MEDIA_TYPE, told
from zeromem.server.routes import operations, proxy, questions, traces
from zeromem.server.service import Service
from zeromem.server.settings import Settings
from zeromem.server.tracing import Tracing

_ABOUT = """A memory for LLM agents that spends no LLM tokens.

Every request reaches one scope, which the header `Zeromem-Scope` names (percent-encoded UTF-8,
`default` without it), of the tenant that its API key belongs to. Errors are problem details
(RFC 9457) that name the field, its value and the fix.
"""


class _App(FastAPI):
    """Its document says that problems come as problem details alone."""

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document."""
        document = super().openapi()
        for path in document["paths"].values():
            for operation in path.values():
                for reply in operation["responses"].values():
                    # FastAPI adds JSON to all that have a model.
                    if MEDIA_TYPE in reply.get("content", {}):
                        reply["content"].pop("application/json", None)
        return document


def create_app(
    memories: Memories,
    settings: Settings | None = None,
    *,
    keys: Keys | None = None,
    tracing: Tracing | None = None,
    mcp: bool = False,
) -> FastAPI:
    """Make the application.

    Parameters
    ----------
    memories : Memories
        Closed when the application shuts down.
    settings : Settings, optional
    keys : Keys, optional
        Needed unless ``settings.auth`` is False.
    tracing : Tracing, optional
    mcp : bool
        Whether ``/mcp`` speaks the Model Context Protocol, with the same keys and scopes.

    Returns
    -------
    FastAPI
        An ASGI application; its lifespan starts and stops the service.
    """
    settings = settings or Settings()
    service = Service(memories, settings, tracing)

    endpoint = None
    if mcp:
        from zeromem.server import mcp as served  # an extra of its own

        endpoint = served.endpoint(service)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await service.start()
        try:
            async with endpoint.run() if endpoint else nullcontext():
                yield
        finally:
            await service.stop()

    app = _App(
        title="zeromem", version=__version__, description=_ABOUT, lifespan=lifespan,
        redoc_url=None, redirect_slashes=False,
    )  # fmt: skip
    app.state.service = service
    routers = (questions.router, traces.bodies, traces.router, proxy.router, operations.router)
    for router in routers:
        app.include_router(router)
    if endpoint is not None:
        # No GET: requests stand alone, and its stream would stay open without ever saying anything.
        app.router.routes.append(Route(MCP_PATH, endpoint=endpoint, methods=["POST"]))
    app.add_middleware(
        Guard,
        service=service,
        gate=Gate(keys, settings),
    )
    handlers: dict[Any, Any] = {RequestValidationError: told, HTTPException: told}
    app.exception_handlers.update(handlers)
    return app
