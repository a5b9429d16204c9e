"""A real server in a thread, its clients, and what its tests share."""

from __future__ import annotations

import json
import logging
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx
import uvicorn
from fastapi import FastAPI
from support import HashEncoder

import zeromem
from zeromem.keys import Keys
from zeromem.server import run
from zeromem.server.app import create_app
from zeromem.server.logs import JSONFormatter
from zeromem.server.problems import MEDIA_TYPE, TITLES
from zeromem.server.settings import Settings

HOST = "127.0.0.1"


def open_memories(path: Any = None, **options: Any) -> zeromem.Memories:
    """Open memories with the fast encoder and annotator."""
    known = {"encoder": HashEncoder(), "annotator": "rules", "device": "cpu"}
    return zeromem.Memories(path, **{**known, **options})


class GatedEncoder(HashEncoder):
    """Encodes questions that hold "gate" when it is opened, and says which it was asked for."""

    def __init__(self):
        super().__init__()
        self.open = threading.Event()
        self.entered = threading.Event()
        self.asked = []

    def encode(self, texts):
        self.asked += texts
        if any("gate" in text for text in texts):
            self.entered.set()
            assert self.open.wait(30)
        return super().encode(texts)


@dataclass(frozen=True)
class Running:
    """A server that runs.

    Attributes
    ----------
    url : str
    app : FastAPI
    server : uvicorn.Server
    """

    url: str
    app: FastAPI
    server: uvicorn.Server

    @property
    def memories(self) -> zeromem.Memories:
        return self.app.state.service.memories

    def client(self, scope: str | None = None, key: str | None = None, **more: Any) -> httpx.Client:
        """Make a client that names a scope and sends a key."""
        headers = {}
        if scope is not None:
            headers["Zeromem-Scope"] = quote(scope, safe="")
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        return httpx.Client(
            base_url=self.url, headers=headers, verify=False, **{"timeout": 60, **more}
        )

    def connect(self, timeout: float = 8) -> socket.socket:
        """Open a connection of one's own, for requests that no client would send."""
        return socket.create_connection((HOST, int(self.url.rpartition(":")[2])), timeout)

    def raw(self, sent: bytes, timeout: float = 8) -> bytes:
        """Send bytes, and return all that comes until the server closes."""
        with self.connect(timeout) as connection:
            connection.sendall(sent)
            return read_all(connection)


def read_all(connection: socket.socket) -> bytes:
    """Read until the other side closes."""
    found = b""
    try:
        while part := connection.recv(1 << 16):
            found += part
    except ConnectionResetError:
        pass  # closed with bytes of ours unread
    return found


@contextmanager
def running(
    memories: zeromem.Memories | None = None,
    settings: Settings | None = None,
    keys: Keys | None = None,
    **more: Any,
) -> Iterator[Running]:
    """Serve on a free port, with the fast models unless memories are given; until the end."""
    settings = settings or Settings()
    settings = run.guarded(settings, keys, HOST)
    app = create_app(memories or open_memories(), settings, keys=keys, **more)
    server = uvicorn.Server(run._config(app, settings))
    listening = run._listen(HOST, 0)
    listening.listen()  # a client that is faster than the server waits, and is not refused
    thread = threading.Thread(target=server.run, args=([listening],), name="server")
    listening.listen(2048)  # whoever knocks before it accepts waits
    thread.start()
    url = f"http://{HOST}:{listening.getsockname()[1]}"
    try:
        with httpx.Client(base_url=url) as client:
            while client.get("/readyz").status_code != 200:
                time.sleep(0.02)
        yield Running(url, app, server)
    finally:
        server.should_exit = True
        thread.join(60)
        assert not thread.is_alive(), "the server did not stop"


def check_problem(reply: httpx.Response, status: int, kind: str) -> dict[str, Any]:
    """Hold a reply to RFC 9457 and to an expected status and kind, and return its body."""
    assert reply.status_code == status, (reply.status_code, reply.text[:500])
    assert reply.headers["content-type"] == MEDIA_TYPE
    body: dict[str, Any] = reply.json()
    assert body["type"] == f"urn:zeromem:problem:{kind}", body
    assert body["title"] == TITLES[kind]
    assert body["status"] == status
    assert isinstance(body["detail"], str)
    assert body["detail"]
    assert set(body) <= {"type", "title", "status", "detail", "errors"}
    for part in body.get("errors", ()):
        assert set(part) == {"field", "value", "fix"}
        assert part["field"]
        assert part["fix"]
    assert "Traceback" not in reply.text
    assert 'File "' not in reply.text
    assert re.fullmatch(r"[0-9a-f]{12}-[0-9a-f]+", reply.headers["x-request-id"])
    return body


def json_lines(body: bytes | str) -> list[Any]:
    """Parse JSON Lines."""
    return [json.loads(line) for line in body.splitlines()]


def events(body: str) -> list[tuple[str, Any]]:
    """Parse server-sent events."""
    found = []
    for one in body.split("\n\n"):
        if one:
            name, data = one.split("\n")
            found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


def routes_of(app: FastAPI) -> list[tuple[str, str]]:
    """List (method, path) of every route, those of included routers too."""
    found, left = [], list(app.routes)
    while left:
        route = left.pop(0)
        if hasattr(route, "original_router"):
            left += route.original_router.routes
        else:
            found += [(method, route.path) for method in route.methods]
    return sorted(found)


class Prefixed(JSONFormatter):
    """As the command writes it, its level before it."""

    def format(self, record: logging.LogRecord) -> str:
        return f"{record.levelname} {super().format(record)}"


@contextmanager
def logged(level: int = logging.INFO) -> Iterator[list[str]]:
    """Collect what is logged by anybody meanwhile, as it would be written."""
    lines: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(self.format(record))

    handler, root = Collector(level), logging.getLogger()
    # Clients run in the same process, and say what they ask for.
    handler.addFilter(lambda record: not record.name.startswith(("httpx", "httpcore")))
    handler.setFormatter(Prefixed())
    before = root.level
    # uvicorn's loggers keep their records from the root where nobody configured them.
    own = [logging.getLogger(name) for name in ("uvicorn", "uvicorn.error", "uvicorn.access")]
    propagated = [one.propagate for one in own]
    root.addHandler(handler)
    root.setLevel(level)
    for one in own:
        one.propagate = True
    try:
        yield lines
    finally:
        root.removeHandler(handler)
        root.setLevel(before)
        for one, was in zip(own, propagated, strict=True):
            one.propagate = was
