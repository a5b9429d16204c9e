"""A server in a process of its own, which may be killed, and plain clients of it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import zeromem

HERE = Path(__file__).parent
ENV = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join([str(HERE), str(Path(zeromem.__file__).parents[1])]),
}
STOPPED = (0, -signal.SIGTERM)  # exit codes of a server that was asked to stop
GONE = (OSError, http.client.HTTPException, ValueError)  # what a client of a killed server meets
# As `zeromem serve` does it, with the fast encoder.
SERVE = """
import sys
from support import HashEncoder
from zeromem.keys import Keys
from zeromem.memories import Memories
from zeromem.server.run import serve
from zeromem.server.settings import Settings
memories = Memories(sys.argv[1], encoder=HashEncoder(), annotator="rules", device="cpu")
with Keys(sys.argv[1]) as keys:
    serve(memories, Settings(), keys, host="127.0.0.1", port=0,
          started=lambda url: print(url, flush=True))
"""


class ServerProcess:
    """A running server.

    Parameters
    ----------
    store : Path
    command : sequence of str, optional
        Prints the URL; by default a server with the fast encoder.
    **options
        Of ``subprocess.Popen``.
    """

    def __init__(
        self, store: Path, *, command: Sequence[str] | None = None, **options: Any
    ) -> None:
        self._command = list(command or [sys.executable, "-c", SERVE, str(store)])
        started = time.perf_counter()
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, text=True, **{"env": ENV, **options}
        )
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        assert self.url.startswith("http://"), self._process.wait(30)
        self.started = started
        self.pid = self._process.pid

    def client(self, key: str | None = None, scope: str = "default", timeout: float = 60) -> Client:
        return Client(self.url.rpartition(":")[2], key, scope, timeout)

    def kill(self) -> None:
        """End it as a lost power would, as far as a process can be ended so."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        """Ask it to stop, and wait."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(60)

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self.kill()
        assert self._process.stdout is not None
        self._process.stdout.close()


class Client:
    """One connection, of which the whole is known: what is sent again is so on purpose."""

    def __init__(self, port: str, key: str | None, scope: str, timeout: float) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=timeout)
        self._headers = {"Zeromem-Scope": quote(scope), "Content-Type": "application/json"}
        if key is not None:
            self._headers["Authorization"] = f"Bearer {key}"

    def ask(self, path: str, body: Mapping[str, Any] | bytes | None = None) -> tuple[int, Any]:
        """Send a request; return the status and the reply, of JSON Lines a list."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        method = "GET" if body is None else "POST"
        target = path if path == "/readyz" else f"/v1/{path}"
        try:
            self._connection.request(method, target, data, self._headers)
            response = self._connection.getresponse()
            text = response.read()
        except (OSError, http.client.HTTPException):
            self._connection.close()
            raise
        if "x-ndjson" in response.headers["Content-Type"]:
            return response.status, [json.loads(line) for line in text.splitlines()]
        return response.status, json.loads(text)

    def stream(self, blocks: Iterable[Sequence[Mapping[str, Any]]]) -> Iterable[Mapping[str, Any]]:
        """Send JSON Lines block by block, each after the reply to the one before; yield replies."""
        connection, response = self._connection, None
        connection.putrequest("POST", "/v1/traces/stream")
        for name, value in {**self._headers, "Transfer-Encoding": "chunked"}.items():
            connection.putheader(name, value)
        connection.endheaders()
        sock = connection.sock  # a reply that ends the connection takes it away
        for block in blocks:
            data = "".join(json.dumps(one) + "\n" for one in block).encode()
            sock.sendall(b"%x\r\n%s\r\n" % (len(data), data))
            if response is None:
                response = connection.getresponse()
            for _ in block:
                if not (line := response.readline()):
                    raise ConnectionError("the reply broke off")
                yield json.loads(line)
        sock.sendall(b"0\r\n\r\n")
        if response is not None:
            response.read()

    def export(self) -> list[dict[str, Any]]:
        """Return everything in the scope."""
        status, found = self.ask("export")
        assert status == 200, found
        return list(found)

    def close(self) -> None:
        self._connection.close()
