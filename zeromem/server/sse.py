"""Server-sent events of a chat's reply: read as they come, kept as they are."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import orjson

from zeromem.server.problems import as_json

DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Event:
    """One event.

    Attributes
    ----------
    raw : bytes
        As it came, with its end; or a comment, which keeps a connection alive.
    data : dict
        Empty for a comment and for the end.
    done : bool
        Whether it is the end.
    """

    raw: bytes
    data: dict[str, Any]
    done: bool = False

    @property
    def choices(self) -> list[dict[str, Any]]:
        """Return the parts of choices that it holds."""
        found = self.data.get("choices")
        return [c for c in found if isinstance(c, dict)] if isinstance(found, list) else []


def written(data: Any) -> bytes:
    """Write an event."""
    return b"data: " + as_json(data) + b"\n\n"


async def events(body: AsyncIterator[bytes], longest: int) -> AsyncGenerator[Event, None]:
    """Read a body.

    Parameters
    ----------
    body : async iterator of bytes
    longest : int
        Bytes that one event may have.

    Raises
    ------
    ValueError
        An event is longer, or is no JSON object.
    """
    lines: list[bytes] = []
    rest = b""
    async with aclosing(body) as parts:  # type: ignore[type-var]
        async for part in parts:
            *whole, rest = (rest + part).split(b"\n")
            for line in whole:
                line = line.removesuffix(b"\r")
                if line:
                    lines.append(line)
                elif lines:
                    yield _event(lines)
                    lines = []
            if len(rest) + sum(map(len, lines)) > longest:
                raise ValueError(f"it has over {longest} bytes")
    if last := [*lines, *rest.splitlines()]:
        yield _event(last)


def _event(lines: list[bytes]) -> Event:
    raw = b"\n".join(lines) + b"\n\n"
    told = [line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:")]
    if not told:
        return Event(raw, {})
    data = b"\n".join(told).strip()
    if data == b"[DONE]":
        return Event(raw, {}, True)
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        value = None
    if not isinstance(value, dict):
        raise ValueError("an event is no JSON object")
    return Event(raw, value)
