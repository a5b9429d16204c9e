"""MCP over stdin and stdout: one client, whose process this is."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from typing import Any

import anyio
from anyio.abc import TaskStatus
from mcp import stdio_server, types
from mcp.server.lowlevel.server import Server
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from zeromem.mcp.results import SURROGATE

MAX_MESSAGE = 4 * 1024 * 1024  # bytes, as over HTTP
_CHUNK = 1 << 16
_Refused = tuple[types.RequestId | None, str]


async def serve(server: Server[Any]) -> None:
    """Serve until stdin ends, or SIGTERM or SIGINT comes.

    While it runs, what anything prints goes to stderr: stdout has messages alone.
    """
    stop = anyio.CancelScope()
    lines = _Lines()
    async with anyio.create_task_group() as tasks:
        await tasks.start(on_signal, stop.cancel)
        with stop:
            # The SDK wants a text file and reads lines of it.
            async with stdio_server(stdin=lines) as (incoming, outgoing):  # type: ignore[arg-type]
                lines.answer = outgoing.send
                await server.run(incoming, outgoing, server.create_initialization_options())
        tasks.cancel_scope.cancel()


async def on_signal(stop: Callable[[], None], *, task_status: TaskStatus[None]) -> None:
    """Call `stop` at each SIGTERM and SIGINT; the task has started when it is ready for them."""
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        async for _ in signals:
            stop()


class _Lines:
    """The lines of stdin that are messages; what is none is answered with an error.

    A thread of its own reads: one that waits for input can be left behind at the end, where those
    of the event loop would be waited for, and a signal could not end the process.
    """

    def __init__(self) -> None:
        self.answer: Any = None  # sends a message to the client
        # Whatever else reads stdin, as a child process does, finds it empty.
        self._wire = os.dup(0)
        empty = os.open(os.devnull, os.O_RDONLY)
        os.dup2(empty, 0)
        os.close(empty)

    async def __aiter__(self) -> AsyncIterator[str]:
        send, receive = anyio.create_memory_object_stream[bytes | _Refused](0)
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, args=(loop, send), daemon=True).start()
        async with receive:
            async for line in receive:
                checked = _checked(line) if isinstance(line, bytes) else line
                if isinstance(checked, str):
                    yield checked
                else:
                    await self.answer(_error(*checked))

    def _read(self, loop: asyncio.AbstractEventLoop, send: Any) -> None:
        with suppress(RuntimeError, anyio.BrokenResourceError):  # the loop is gone: nobody listens
            for line in _lines(self._wire):
                asyncio.run_coroutine_threadsafe(send.send(line), loop).result()
            loop.call_soon_threadsafe(send.close)


def _lines(file: int) -> Iterator[bytes | _Refused]:
    """Yield lines; of one that is too long a refusal, when its end has come."""
    held = bytearray()
    too_long = False
    while chunk := os.read(file, _CHUNK):
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            held += part
            if too_long or len(held) > MAX_MESSAGE:
                yield None, f"a message must have at most {MAX_MESSAGE} bytes"
            elif held.strip():
                yield bytes(held)
            held.clear()
            too_long = False
        held += rest
        if len(held) > MAX_MESSAGE:
            too_long = True
            held.clear()
    if held.strip() and not too_long:
        yield bytes(held)


def _checked(line: bytes) -> str | _Refused:
    """Return a line that is a message; of another, the request's id where it has one, and why."""
    try:
        types.jsonrpc_message_adapter.validate_json(line, by_name=False)
        return line.decode()
    except (ValidationError, UnicodeDecodeError):
        pass
    try:
        read = json.loads(line)
        halved = SURROGATE.search(json.dumps(read, ensure_ascii=False))
    except (ValueError, RecursionError):
        return None, "a message must be JSON in UTF-8, on one line, and not deeply nested"
    request = read.get("id") if isinstance(read, dict) else None
    known = request if isinstance(request, int | str) and not isinstance(request, bool) else None
    if halved:
        return known, "a message must be Unicode text: it has half of a surrogate pair"
    return known, "a message must be a JSON-RPC 2.0 request, notification or response"


def _error(request: types.RequestId | None, why: str) -> SessionMessage:
    code = types.PARSE_ERROR if request is None else types.INVALID_REQUEST
    error = types.ErrorData(code=code, message=why)
    return SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=request, error=error))
