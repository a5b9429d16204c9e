"""Connections: what comes before a request is known is bounded in bytes and in time."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class Connection(HttpToolsProtocol):
    """A client's connection, closed where the head of a request is too long or does not come.

    Whoever has no key can send a head, and uvicorn takes any: one without an end would fill the
    memory, and many that never go on would take all descriptors.

    Attributes
    ----------
    head_bytes : int
        Of a request's line and headers.
    head_seconds : float
        From the connection, or the first byte of a further request, to the head's end.
    """

    head_bytes = 1 << 16
    head_seconds = 20.0

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._in_head = True
        self._n_head = 0
        self._late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first head."""
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing more."""
        self._in_time()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read what came, unless it is more than a head may be."""
        if self._in_head:
            if self._n_head > self.head_bytes:
                self._refuse()
                return
            self._n_head += len(data)  # counted anew from the head's end on
            if self._late is None:
                self._wait()
        super().data_received(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; what follows a body in parts is none of ours."""
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Begin the request."""
        self._in_head, self._n_head = False, 0
        self._in_time()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """End its body: what comes next is another head."""
        self._in_head = True
        super().on_message_complete()

    def _wait(self) -> None:
        self._late = self.loop.call_later(self.head_seconds, self._refuse_late)

    def _in_time(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _refuse_late(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._wait()  # of a request before, the reply is still on its way
        else:
            self._refuse()

    def _refuse(self) -> None:
        self._in_time()
        self.transport.close()
