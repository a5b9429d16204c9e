"""HTTP clients that cost next to nothing, to load a server on the same machine.

    python bench/clients.py '{"port": …, "requests": […], "clients": 64, "seconds": 5}'

Each client sends its next request when it has the reply to the last. The requests are bytes made
beforehand, and of a reply only the status and the length are read. Prints one JSON object: the
seconds of each reply in order, statuses by count, and the clients' own share of a core.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Sequence
from itertools import count
from typing import Any

_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)\r\n", re.IGNORECASE)


def request(
    path: str, body: object, headers: dict[str, str] | None = None, method: str = "POST"
) -> str:
    """Write one HTTP request with a JSON body."""
    text = json.dumps(body)
    more = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
    return (
        f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"{more}Content-Length: {len(text.encode())}\r\n\r\n{text}"
    )


class Client(asyncio.Protocol):
    """One connection that asks until the end.

    Parameters
    ----------
    requests : sequence of bytes
    places : iterator of int
        Which request is next, shared by all clients.
    until : float
    seconds : list
        Filled with the seconds of each reply.
    statuses : Counter
    """

    def __init__(
        self, requests: Sequence[bytes], places: Any, until: float, seconds: list[float],
        statuses: Counter[int],
    ) -> None:  # fmt: skip
        self._requests, self._places, self._until = requests, places, until
        self._seconds, self._statuses = seconds, statuses
        self._buffer = b""
        self._needed = -1
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        """Ask for the first time."""
        self._transport = transport
        self._ask()

    def _ask(self) -> None:
        self._transport.write(self._requests[next(self._places) % len(self._requests)])
        self._since = time.perf_counter()

    def data_received(self, data: bytes) -> None:
        """Take a part of a reply; at its end ask again."""
        self._buffer += data
        if self._needed < 0:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            found = _LENGTH.search(self._buffer, 0, end + 2)
            self._needed = end + 4 + (int(found[1]) if found else 0)
        if len(self._buffer) < self._needed:
            return
        now = time.perf_counter()
        self._seconds.append(now - self._since)
        self._statuses[int(self._buffer[9:12])] += 1
        self._buffer, self._needed = self._buffer[self._needed :], -1
        if now < self._until:
            self._ask()
        else:
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        """Count a connection that broke as status 0."""
        if error is not None:
            self._statuses[0] += 1
        if not self.done.done():
            self.done.set_result(None)


async def load(given: dict[str, Any]) -> dict[str, Any]:
    """Ask with all clients at once."""
    loop = asyncio.get_running_loop()
    requests = [text.encode() for text in given["requests"]]
    seconds: list[float] = []
    statuses: Counter[int] = Counter()
    start, spent = time.perf_counter(), time.process_time()
    places = count()

    def client() -> Client:
        return Client(requests, places, start + given["seconds"], seconds, statuses)

    made = [
        await loop.create_connection(client, "127.0.0.1", given["port"])
        for _ in range(given["clients"])
    ]
    await asyncio.gather(*(made_.done for _, made_ in made))
    wall = time.perf_counter() - start
    share = (time.process_time() - spent) / wall
    return {"seconds": seconds, "statuses": dict(statuses), "wall": wall, "share": share}


def main() -> int:
    """Run the command line."""
    import uvloop

    print(json.dumps(uvloop.run(load(json.loads(sys.argv[1] if sys.argv[1] != "-" else
                                                sys.stdin.read())))))  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
