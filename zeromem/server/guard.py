"""What stands before every route: who asks, how much, for how long; and what is counted and told.

Plain ASGI: it sees a body before anything reads it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from itertools import count

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from zeromem.server.access import Access, Gate
from zeromem.server.problems import Problem, problem_of
from zeromem.server.service import Service

_log = logging.getLogger("zeromem.server.requests")
_PROBES = ("/healthz", "/readyz", "/metrics")
PUBLIC = (*_PROBES, "/openapi.json", "/docs")
MCP_PATH = "/mcp"
# Their bodies or replies are streams: as long as both sides go on, so does the request.
UPLOADS = frozenset(("/v1/traces/stream", "/v1/import"))
_DOWNLOADS = frozenset(("/v1/export", "/v1/answer", "/v1/chat/completions", MCP_PATH))
STREAMED = UPLOADS | _DOWNLOADS
_PASSED_ON = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")
# Of request ids: random once, then counted, for a random number a request costs as much as routing.
_PROCESS = os.urandom(6).hex()
_numbers = count(1)


class Guard:
    """Middleware around the application.

    Parameters
    ----------
    app : ASGI application
    service : Service
    gate : Gate
    """

    def __init__(self, app: ASGIApp, service: Service, gate: Gate) -> None:
        self._app = app
        self._service = service
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection's request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        await _Exchange(self._service, self._gate, scope, receive, send).run(self._app)


class _Exchange:
    """One request and its response."""

    def __init__(
        self, service: Service, gate: Gate, scope: Scope, receive: Receive, send: Send
    ) -> None:
        self._service = service
        self._gate = gate
        self._access: Access | None = None
        self._settings = service.settings
        self._scope = scope
        self._receive = receive
        self._send = send
        self._path: str = scope["path"]
        self._headers = Headers(scope=scope)
        self._id = f"{_PROCESS}-{next(_numbers):x}"
        self._status = 0
        self._n_read = 0
        self._complete = False
        self._start = time.perf_counter()

    async def run(self, app: ASGIApp) -> None:
        key = "-"
        with self._service.tracing.request(self._scope, self._headers) as span:
            try:
                self._access = access = self._admitted()
                if access is not None:
                    self._scope.setdefault("state", {})["access"] = access
                    key = access.key.id if access.key else "-"
                await self._served(app)
            except Exception as error:
                await self._failed(error)
            finally:
                route = getattr(self._scope.get("route"), "path", "unknown")
                if self._path == MCP_PATH:
                    route = MCP_PATH
                span(route, self._status)
                self._told(route, key)

    def _admitted(self) -> Access | None:
        self._check_names()
        if self._path in PUBLIC or self._path.startswith("/docs"):
            return None
        if self._service.stopping:
            raise Problem(503, "stopping", "send it again to another server", retry_after=1)
        access = self._gate.access(self._headers, self._path)
        self._check_length()
        return access

    def _check_names(self) -> None:
        """Refuse, for a server without keys, what a web page makes a browser of this machine send.

        By a name that the page made point here, or by ours: then the browser says whose page it is.
        """
        wrong = self._misdirected()
        if wrong is not None and not self._gate.is_closed:  # by a key that was made meanwhile
            raise wrong

    def _misdirected(self) -> Problem | None:
        hosts = self._settings.hosts
        if hosts is None:
            return None
        if _bare(self._headers.get("host", "")) not in hosts:
            return Problem(
                421, "misdirected", "this server has no keys and answers to its own address alone; "
                "make a key with `zeromem keys create`, or ask it as 127.0.0.1",
            )  # fmt: skip
        if passed_on := next((name for name in _PASSED_ON if name in self._headers), None):
            return Problem(
                421, "misdirected", "this server has no keys and serves this machine alone, and "
                f"the header {passed_on} says that a proxy passed this on; make a key with "
                "`zeromem keys create`",
            )  # fmt: skip
        origin = self._headers.get("origin")
        if origin is not None and _bare(origin.partition("://")[2]) not in hosts:
            return Problem(
                403, "forbidden", "this server has no keys and serves no page of another site; "
                "make a key with `zeromem keys create`",
            )  # fmt: skip
        return None

    @property
    def _most(self) -> int:
        return self._settings.max_upload if self._path in UPLOADS else self._settings.max_body

    def _check_length(self) -> None:
        text = self._headers.get("content-length", "0")
        if text.isdecimal() and int(text) > self._most:
            raise self._too_large()

    def _too_large(self) -> Problem:
        return Problem(
            413, "too-large", f"the body may have {self._most} bytes; send less at once, or JSON "
            "Lines to /v1/traces/stream",
        )  # fmt: skip

    async def _served(self, app: ASGIApp) -> None:
        limit = None if self._path in STREAMED else self._settings.timeout
        async with asyncio.timeout(limit):
            await app(self._scope, self._received, self._sent)

    async def _received(self) -> Message:
        if self._complete:
            return await self._receive()
        try:
            async with asyncio.timeout(self._settings.read_timeout):
                message = await self._receive()
        except TimeoutError:
            raise Problem(
                408, "request-timeout", "the body did not go on for "
                f"{self._settings.read_timeout:g} s; send it again",
            ) from None  # fmt: skip
        if message["type"] == "http.request":
            self._check_key(UPLOADS)
            self._n_read += len(message.get("body", b""))
            self._complete = not message.get("more_body", False)
            if self._n_read > self._most:
                raise self._too_large()
        return message

    async def _sent(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            headers = [(b"x-request-id", self._id.encode()), *message.get("headers", ())]
            if not self._complete and self._status >= 400:
                headers.append((b"connection", b"close"))  # what is left of the body is not read
            message = {**message, "headers": headers}
        else:
            self._check_key(_DOWNLOADS)
        # A client that reads nothing must not hold a memory for ever; others' time is bounded.
        limit = self._settings.read_timeout if self._path in STREAMED else None
        async with asyncio.timeout(limit):
            await self._send(message)

    def _check_key(self, paths: frozenset[str]) -> None:
        """Go on with no stream, which may last for days, when its key was revoked."""
        if self._path in paths and self._access is not None:
            self._gate.check(self._access)

    async def _failed(self, error: Exception) -> None:
        problem = problem_of(error)
        if self._status:
            # A stream that breaks off: the client sees that its end is missing. The error is not
            # raised: servers log its message, which may quote what a user said.
            return
        await problem.response(self._path)(self._scope, self._receive, self._sent)

    def _told(self, route: str, key: str) -> None:
        seconds = time.perf_counter() - self._start
        metrics, method = self._service.metrics, self._scope["method"]
        metrics.requests.labels(method if route != "unknown" else "-", route, self._status).inc()
        metrics.seconds.labels(route).observe(seconds)
        level = logging.DEBUG if self._path in _PROBES else logging.INFO
        if _log.isEnabledFor(level):
            line = {
                "method": method, "route": route, "status": self._status,
                "ms": round(1000 * seconds, 2), "bytes_in": self._n_read, "key": key,
                "request_id": self._id,
            }  # fmt: skip
            _log.log(level, "%s %s %d", method, route, self._status, extra={"fields": line})


def _bare(host: str) -> str:
    """A host's name without its port."""
    host = host.lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]
