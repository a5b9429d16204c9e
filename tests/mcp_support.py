"""An MCP server as a process of its own, and the official client to talk to it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import asynccontextmanager, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import anyio
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from support import DIM, HashEncoder


class Vectors:
    """An embeddings server of the hash encoder, over a real socket; a test may slow it down."""

    def __init__(self):
        self.gate = threading.Event()  # while it is cleared, requests wait
        self.gate.set()
        self.waiting = threading.Event()
        encoder, outer = HashEncoder(), self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input"]
                if not outer.gate.is_set():
                    outer.waiting.set()
                    outer.gate.wait(30)
                vectors = encoder.encode(texts).tolist() if texts else []
                data = [{"index": i, "embedding": v} for i, v in enumerate(vectors)]
                body = json.dumps({"data": data}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()
        self.model = f"http://127.0.0.1:{self.http.server_address[1]}/v1#hash-{DIM}"

    def close(self):
        self.gate.set()
        self.http.shutdown()
        self.http.server_close()


def arguments(store, model, *more):
    """What starts `zeromem mcp` in a process of its own; without a model, with the default ones."""
    models = [] if model is None else ["--encoder", model, "--annotator", "rules"]
    return [
        "-m", "zeromem", "mcp", "--store", str(store), "--device", "cpu", *models,
        *map(str, more),
    ]  # fmt: skip


def environment():
    """The environment of the process; the client passes on little by itself."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}


@asynccontextmanager
async def over_stdio(store, model, *more, errlog=sys.stderr, **options):
    """Connect the official client to a new process."""
    parameters = StdioServerParameters(
        command=sys.executable, args=arguments(store, model, *more), env=environment()
    )
    async with Client(stdio_client(parameters, errlog), **options) as client:
        yield client


@contextmanager
def served(store, model, *more):
    """Run `zeromem mcp --http` in a process; give its URL and the process."""
    process = subprocess.Popen(
        [sys.executable, *arguments(store, model, "--http", "--port", "0", *more)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(),
    )  # fmt: skip
    try:
        for line in process.stderr:
            if "MCP at http" in line:
                break
        else:
            raise AssertionError(f"the server ended with {process.wait()}")
        url = line.split()[-1]
        port = int(url.rsplit(":", 1)[1].split("/")[0])
        until = time.monotonic() + 30
        while time.monotonic() < until:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
        yield url, process
    finally:
        process.kill()
        process.communicate()


@asynccontextmanager
async def over_http(url, http_client=None, **options):
    """Connect the official client to a URL."""
    async with Client(streamable_http_client(url, http_client=http_client), **options) as client:
        yield client


class Raw:
    """A process that is spoken to line by line, for what no client sends."""

    def __init__(self, store, model, *more):
        self.process = subprocess.Popen(
            [sys.executable, *arguments(store, model, *more)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=environment(),
        )  # fmt: skip
        self.n = 0

    def send(self, line):
        data = line if isinstance(line, bytes) else line.encode()
        self.process.stdin.write(data + b"\n")
        self.process.stdin.flush()

    def receive(self):
        return json.loads(self.process.stdout.readline())

    def ask(self, method, params=None):
        """Send a request and give the whole reply."""
        self.n += 1
        self.send(json.dumps({"jsonrpc": "2.0", "id": self.n, "method": method} | (
            {} if params is None else {"params": params}
        )))  # fmt: skip
        return self.receive()

    def begin(self):
        """Shake hands as clients of 2025 do."""
        reply = self.ask(
            "initialize",
            {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "raw", "version": "1"},
            },
        )
        self.send('{"jsonrpc": "2.0", "method": "notifications/initialized"}')
        return reply["result"]

    def call(self, tool, **given):
        """Call a tool; give the result."""
        return self.ask("tools/call", {"name": tool, "arguments": given})["result"]

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            with suppress(BrokenPipeError):
                pipe.close()


def run(main):
    """Run an async function to its end; a test that hangs fails."""

    async def limited():
        with anyio.fail_after(120):
            return await main()

    return anyio.run(limited)
