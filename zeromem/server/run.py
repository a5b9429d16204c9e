"""Running the application: address, keys, signals."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import uvicorn
from fastapi import FastAPI

from zeromem.connections import Connection
from zeromem.errors import InvalidInputError, StoreError
from zeromem.keys import Keys
from zeromem.memories import Memories
from zeromem.server.app import create_app
from zeromem.server.settings import LOOPBACK, Settings
from zeromem.server.tracing import Tracing

_BACKLOG = 2048
# Seconds; many clients drop an idle connection after 5, and who drops it first should be they.
_IDLE = 75
_YOUNG = 20_000


def serve(
    memories: Memories,
    settings: Settings,
    keys: Keys | None,
    *,
    host: str,
    port: int,
    mcp: bool = False,
    started: Callable[[str], None] = lambda url: None,
) -> None:
    """Serve until SIGINT or SIGTERM; requests in progress are finished.

    Parameters
    ----------
    memories : Memories
        Closed at the end.
    settings : Settings
    keys : Keys, optional
        None to serve without keys whoever can reach the address.
    host : str
    port : int
        0 for any free one.
    mcp : bool
        Whether ``/mcp`` speaks the Model Context Protocol.
    started : callable, optional
        Called with the URL once connections are accepted.

    Raises
    ------
    InvalidInputError
        There is no key, and others than this machine could reach the address.
    StoreError
        The address is taken or not ours.
    """
    app = create_app(
        memories,
        guarded(settings, keys, host),
        keys=keys,
        tracing=Tracing.from_environment(),
        mcp=mcp,
    )
    # Each reply makes thousands of short-lived objects. Looking through all that a server holds
    # whenever they have piled up took a tenth of its time.
    gc.set_threshold(_YOUNG, 20, 50)
    listening = _listen(host, port)
    shown = f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{listening.getsockname()[1]}"
    _Server(_config(app, settings), lambda: started(url)).run([listening])


def guarded(settings: Settings, keys: Keys | None, host: str) -> Settings:
    """Decide whether requests need a key.

    Without any key this machine alone is served, by its own names; from the first key on each
    request needs one.
    """
    if keys is None:
        return replace(settings, auth=False)
    if keys.list():
        return settings
    if host not in LOOPBACK:
        raise InvalidInputError(
            f"host {host!r} lets other machines in and there is no API key; make one with "
            "`zeromem keys create --tenant NAME`, or serve 127.0.0.1, or say --no-auth"
        )
    return replace(settings, auth=False, hosts=LOOPBACK)


def _config(app: FastAPI, settings: Settings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        ws="none",
        loop="asyncio" if sys.platform == "win32" else "uvloop",
        http=Connection,
        log_config=None,
        log_level=logging.WARNING,
        access_log=False,  # its lines have query strings, and so what users said
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=_IDLE,
        backlog=_BACKLOG,
        timeout_graceful_shutdown=int(settings.shutdown_timeout),
    )


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except (OSError, OverflowError) as error:
        listening.close()
        raise StoreError(
            f"cannot listen on host {host!r}, port {port}: {error}; give another --host or --port"
        ) from error
    # Connections take it over; without it the body of a reply waits for the head's acknowledgement.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._started = started

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop when told to, and not by raising the signal once more: that is no failure."""
        with super().capture_signals():
            yield
            self._captured_signals.clear()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen, and say so."""
        await super().startup(sockets)
        if self.started:
            await asyncio.to_thread(self._started)
