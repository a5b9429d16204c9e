"""Bodies that come and replies that go piece by piece.

Starlette's own streaming reply watches for a disconnect by reading what is left of the request's
body, and waits for no slow generator when its client has gone; these do neither.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, suppress
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from zeromem.server.problems import Problem, as_json

_log = logging.getLogger(__name__)
# Bytes that a client has to take in the time it is waited for.
_PIECE = 1 << 16
NDJSON = "application/x-ndjson"
EVENTS = "text/event-stream"


class Stream(Response):
    """A reply written as it comes; whoever makes it is cancelled when the client leaves.

    Parameters
    ----------
    parts : async iterator of bytes
    media_type : str
    watch : bool
        Whether the request's body is read to its end, so that what comes next is a disconnect.
    patience : float
        Seconds for which the client may take nothing; it then counts as gone.
    """

    def __init__(
        self,
        parts: AsyncIterator[bytes],
        media_type: str,
        *,
        watch: bool = True,
        patience: float = 60.0,
    ) -> None:
        super().__init__(None, 200, {"Cache-Control": "no-store"}, media_type)
        del self.headers["content-length"]
        self._parts = parts
        self._watch = watch
        self._patience = patience

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Write the reply."""
        writing = asyncio.ensure_future(self._write(send))
        watching = asyncio.ensure_future(_left(receive)) if self._watch else None
        try:
            waited = {writing} | ({watching} if watching else set())
            done, _ = await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            for ended in done:
                await ended  # what went wrong there is told
        finally:
            for task in (writing, watching):
                if task is not None and not task.done():
                    task.cancel()
                    with suppress(asyncio.CancelledError):
                        await task

    async def _write(self, send: Send) -> None:
        head = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        async with aclosing(self._parts) as parts:  # type: ignore[type-var]
            async for part in parts:
                if head:
                    await send(head)  # only now: until then an error still has a status
                    head = {}
                try:
                    for piece in chunked(part, _PIECE):
                        async with asyncio.timeout(self._patience):
                            await send(
                                {"type": "http.response.body", "body": piece, "more_body": True}
                            )
                except TimeoutError:
                    _log.warning("a client took nothing for %g s: it is let go", self._patience)
                    return
        if head:
            await send(head)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def event(name: str, data: Any) -> bytes:
    """Write one server-sent event."""
    return b"event: " + name.encode() + b"\ndata: " + as_json(data) + b"\n\n"


async def lines(request: Request, longest: int) -> AsyncIterator[list[bytes]]:
    """Yield the lines of a body as they arrive, those of a chunk together; without line ends.

    Raises
    ------
    Problem
        A line is longer than ``longest`` bytes, or the client left in the middle.
    """
    rest = bytearray()
    try:
        async for chunk in request.stream():
            # What waits for its end is not looked through again with each part that comes.
            head, end, tail = chunk.rpartition(b"\n")
            if end:
                whole = bytes(rest + head).split(b"\n")
                rest = bytearray(tail)
            else:
                whole = []
                rest += chunk
            if len(rest) > longest or any(len(line) > longest for line in whole):
                raise Problem(413, "too-large", f"a line may have {longest} bytes")
            if whole:
                yield whole
    except ClientDisconnect:
        raise Problem(400, "bad-request", "the body broke off; send the rest again") from None
    if rest.strip():
        yield [bytes(rest)]


def chunked(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    """Cut a sequence into parts."""
    for start in range(0, len(items), size):
        yield items[start : start + size]
