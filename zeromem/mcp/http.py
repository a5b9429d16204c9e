"""MCP over streamable HTTP: an ASGI endpoint, alone or mounted in another application."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

import anyio
import uvicorn
from anyio import to_thread
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from zeromem.connections import Connection
from zeromem.errors import ZeroMemError
from zeromem.mcp.server import Context, Grant, build
from zeromem.mcp.stdio import MAX_MESSAGE, on_signal

if TYPE_CHECKING:
    from zeromem.memories import Memories

PATH = "/mcp"
Authorize = Callable[[Mapping[str, str]], Grant | None]
_GRANT = "zeromem.grant"
_SCHEMES = ("http", "https")
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
# Seconds: many clients drop a connection that was idle for 5, and a server that does so at the same
# moment breaks a request that is just on its way.
_IDLE = 75
_LAST_REPLIES = 3  # seconds for open streams to end


class Endpoint:
    """An ASGI application that speaks MCP; each request stands alone, there are no sessions.

    ``Route("/mcp", endpoint=endpoint, methods=["POST"])`` mounts it; ``async with endpoint.run():``
    surrounds the life of the application that it is mounted in.

    Parameters
    ----------
    memories : Memories
    scope : str or callable
        Whose memory, where `authorize` is not given: one for all requests, or what each request's
        context grants, where the application around it has told who asks.
    authorize : callable, optional
        From a request's headers to what it may use, or None for status 401. It may block. The
        names of headers compare without case.
    hosts : iterable of str, optional
        Names, with the port where it is not the usual one, under which this server is reached, as
        in the Host header; "name:*" admits any port. Requests to other names are refused, so that
        no web page can reach it by a name of its own (DNS rebinding). Those of the loopback
        interface are always among them. Where each request is
        told apart and `hosts` is not given all are admitted: such a page has no key.
    read_only : bool
        Offer no tool that writes.
    max_bytes : int
        Of a request's body.
    """

    def __init__(
        self,
        memories: Memories,
        *,
        scope: str | Callable[[Context], Grant] = "default",
        authorize: Authorize | None = None,
        hosts: Iterable[str] | None = None,
        read_only: bool = False,
        max_bytes: int = MAX_MESSAGE,
    ) -> None:
        allowed = [form for name in _LOOPBACK for form in (name, f"{name}:*")]
        allowed += hosts or ()
        anybody = authorize is None and isinstance(scope, str)
        self._authorize = authorize
        self._manager = StreamableHTTPSessionManager(
            build(memories, scope=scope if authorize is None else _granted, read_only=read_only),
            stateless=True,
            max_request_body_size=max_bytes,
            security_settings=TransportSecuritySettings(
                enable_dns_rebinding_protection=anybody or hosts is not None,
                allowed_hosts=allowed,
                allowed_origins=[f"{kind}://{name}" for name in allowed for kind in _SCHEMES],
            ),
        )

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Be ready for requests; once for each endpoint."""
        async with self._manager.run():
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        app: ASGIApp = self._manager.handle_request
        if self._authorize is not None:
            granted = await to_thread.run_sync(self._authorize, Headers(scope=scope))
            scope = {**scope, _GRANT: granted}
            if granted is None:
                app = JSONResponse(
                    {"error": "this server needs a valid API key: Authorization: Bearer KEY"},
                    status_code=401,
                    headers={"WWW-Authenticate": "Bearer"},
                )
        await app(scope, receive, send)


def _granted(context: Context) -> Grant:
    if context.request is None:
        raise TypeError("a request without its HTTP request: only an Endpoint may be asked")
    granted: Grant = context.request.scope[_GRANT]
    return granted


class Server(uvicorn.Server):
    """uvicorn without its way with signals: it raises them again, before memories are closed."""

    def stop(self) -> None:
        """End when what runs now is finished."""
        self.should_exit = True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield


async def healthz(request: Request) -> Response:
    """Say that the server is there."""
    return PlainTextResponse("ok\n")


def server(endpoint: Endpoint) -> Server:
    """Make a server that has the endpoint at /mcp, and /healthz."""
    # No GET: requests stand alone, and its stream would stay open without ever saying anything.
    routes = [Route(PATH, endpoint=endpoint, methods=["POST"]), Route("/healthz", healthz)]
    app = Starlette(routes=routes, lifespan=lambda app: endpoint.run())
    config = uvicorn.Config(
        app, http=Connection, log_config=None, access_log=False, limit_concurrency=1000, ws="none",
        timeout_graceful_shutdown=_LAST_REPLIES, timeout_keep_alive=_IDLE,
    )  # fmt: skip
    return Server(config)


async def serve(endpoint: Endpoint, listening: socket.socket) -> None:
    """Serve on an open socket until SIGTERM or SIGINT comes; what runs then is finished."""
    serving = server(endpoint)
    async with anyio.create_task_group() as tasks:
        await tasks.start(on_signal, serving.stop)
        await serving.serve(sockets=[listening])
        tasks.cancel_scope.cancel()


def listen(host: str, port: int) -> socket.socket:
    """Open the socket to serve on.

    Raises
    ------
    ZeroMemError
        The address is taken, or none of this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family)
    except (OSError, OverflowError, UnicodeError) as error:
        raise ZeroMemError(
            f"cannot listen on {host!r}, port {port}: {error}; choose others with --host and --port"
        ) from None
    # Connections take it over. asyncio sets it only on sockets made by itself, and without it the
    # body of a reply waits for the client's acknowledgement of the head, 40 ms.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening
