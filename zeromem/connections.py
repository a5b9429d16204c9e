"""Connections: what comes outside of bodies is bounded in bytes and time, and so is what waits."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class Connection(HttpToolsProtocol):
    """A client's connection, cut where the head of a request is too long or does not come.

    Whoever has no key can send a head, and uvicorn takes any: one without an end would fill the
    memory, and many that never go on would take all descriptors. The same goes for the trailers of
    a body in parts, for the rest of a body that nobody reads, and for replies that are not taken.

    Attributes
    ----------
    head_bytes : int
        Of a request's line and headers, of its trailers, and between two parts of its body.
    head_seconds : float
        From the connection, or the first byte of a further request, to the head's end; from a reply
        to the end of a body that it did not wait for; and how long a client may take nothing.
    """

    head_bytes = 1 << 16
    head_seconds = 20.0

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._in_head = True
        self._n_bare = 0  # bytes since the last of a body, or since the last head
        self._n_left = 0  # bytes that were not taken when it was last looked
        self._late: asyncio.TimerHandle | None = None
        self._looking: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first head."""
        super().connection_made(transport)
        self._wait()
        self._looking = self.loop.call_later(self.head_seconds, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing more."""
        self._in_time()
        if self._looking is not None:
            self._looking.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read what came, unless it is more than a head may be."""
        if self._n_bare > self.head_bytes:
            self._refuse()
            return
        self._n_bare += len(data)  # counted anew from the head's end on, and from each of a body
        if self._in_head and self._late is None:
            self._wait()
        super().data_received(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; what follows a body in parts is none of ours."""
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Begin the request."""
        self._in_head, self._n_bare = False, 0
        self._in_time()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        self._n_bare = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End its body: what comes next is another head."""
        self._in_head, self._n_bare = True, 0
        self._in_time()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Go on to the next request; what nobody reads of this one may come for a while."""
        super().on_response_complete()
        if not self._in_head and not self.pipeline and self._late is None:
            self._wait()

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

    def _look(self) -> None:
        """Cut a connection that takes nothing of what was written to it.

        Whoever writes more waits until something is taken, and closing it would wait as well.
        """
        n_left = self.transport.get_write_buffer_size()
        if n_left and n_left == self._n_left:
            self._refuse()
            return
        self._n_left = n_left
        self._looking = self.loop.call_later(self.head_seconds, self._look)

    def _refuse(self) -> None:
        self._in_time()
        if self.transport.get_write_buffer_size():
            self.transport.abort()  # closing would wait until it was taken
        else:
            self.transport.close()
