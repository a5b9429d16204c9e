"""Connections that send no whole request, or more than one may be."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest
from server_support import read_all, running

from zeromem.connections import Connection
from zeromem.server.streams import lines


@pytest.fixture(scope="module")
def server():
    with running() as found:
        yield found


def check_cut_off(server, begin, part):
    """Send parts without an end: the connection is cut before long."""
    with server.connect() as connection:
        connection.sendall(begin)
        n_sent = 0

        def flood():
            nonlocal n_sent
            while n_sent < 64 << 20:
                connection.sendall(part)
                n_sent += len(part)

        with pytest.raises(OSError, match="reset|pipe"):
            flood()
        assert n_sent < 16 << 20  # what lay in buffers of the system included


@pytest.mark.parametrize(
    ("begin", "part"),
    [(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n", b"x-a: " + b"a" * 4000 + b"\r\n"),
     (b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nx-a: ", b"a" * 4000),
     (b"GET /", b"a" * 4000)],
    ids=["headers", "one header", "path"],
)  # fmt: skip
def test_a_head_without_an_end_is_cut_off(server, begin, part):
    check_cut_off(server, begin, part)


def test_a_long_head_within_the_bound_is_served(server):
    head = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
    reply = server.raw(head + b"x-a: " + b"a" * (Connection.head_bytes - 4096) + b"\r\n\r\n")
    assert reply.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("begin", [b"", b"GET /healthz HT", b"\r\n"])
def test_a_silent_connection_is_closed(server, monkeypatch, begin):
    monkeypatch.setattr(Connection, "head_seconds", 0.3)
    with server.connect() as connection:
        connection.sendall(begin)
        start = time.monotonic()
        assert read_all(connection) == b""
        assert 0.2 < time.monotonic() - start < 5


def test_a_slow_reply_is_not_cut_off_by_the_head_that_waits_behind_it(server, monkeypatch):
    monkeypatch.setattr(Connection, "head_seconds", 0.2)
    body = b'{"text": "slow but whole"}'
    head = b"POST /v1/traces HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    head += b"Content-Length: %d\r\n\r\n" % len(body)
    with server.connect() as connection:
        connection.sendall(head + body[:5])
        time.sleep(0.5)  # a body has its own patience
        connection.sendall(body[5:] + b"GET /hea")
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 201 ")
        connection.sendall(b"lthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        assert read_all(connection).startswith(b"HTTP/1.1 200 ")


def test_headers_after_a_body_in_parts_are_not_kept(server):
    head = b"POST /v1/traces HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    head += b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    body = b'{"text": "in parts"}'
    trailers = b"Zeromem-Scope: elsewhere\r\nContent-Type: text/plain\r\n\r\n"
    reply = server.raw(head + b"%x\r\n%b\r\n0\r\n" % (len(body), body) + trailers)
    assert reply.startswith(b"HTTP/1.1 201 ")
    with server.client("elsewhere") as client:
        assert client.get("/v1/traces").json()["traces"] == []


CHUNKED = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("begin", "part"),
    [(b"0\r\nX-A: ", b"a" * 4000), (b"0\r\n", b"x-a: " + b"a" * 4000 + b"\r\n"),
     (b"", b"5; " + b"e" * 4000)],
    ids=["a trailer", "trailers", "a chunk's extension"],
)  # fmt: skip
def test_what_follows_a_head_without_an_end_is_cut_off(server, begin, part):
    check_cut_off(server, CHUNKED + begin, part)


def test_a_body_that_nobody_reads_ends_in_time(server, monkeypatch):
    monkeypatch.setattr(Connection, "head_seconds", 0.5)
    with server.connect() as connection:
        connection.sendall(CHUNKED)
        start = time.monotonic()

        def drip():
            while time.monotonic() < start + 20:
                connection.sendall(b"1\r\na\r\n")
                time.sleep(0.05)

        with pytest.raises(OSError, match="reset|pipe"):
            drip()
    with server.connect() as connection:  # one that ends is served on
        connection.sendall(CHUNKED + b"1\r\na\r\n")
        time.sleep(0.2)
        connection.sendall(b"0\r\n\r\n")
        time.sleep(0.6)
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert read_all(connection).count(b"HTTP/1.1 ") == 2


def test_a_reply_that_is_not_taken_is_let_go(server, monkeypatch):
    monkeypatch.setattr(Connection, "head_seconds", 0.5)
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        connection.connect(server.connect().getpeername())
        connection.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 200)
        assert wait(lambda: held(server), 20)
        assert wait(lambda: not held(server), 20), "it is held"


def held(server):
    """Bytes of replies that wait to be taken."""
    connections = list(server.server.server_state.connections)
    return sum(one.transport.get_write_buffer_size() for one in connections)


def wait(until, seconds):
    deadline = time.monotonic() + seconds
    while not until() and time.monotonic() < deadline:
        time.sleep(0.02)
    return until()


def test_a_reply_that_is_taken_slowly_is_not(server, monkeypatch):
    monkeypatch.setattr(Connection, "head_seconds", 0.3)
    with server.client() as client:
        traces = [{"text": f"{i} " + "long " * 2000} for i in range(100)]
        client.post("/v1/traces/batch", json={"traces": traces}).raise_for_status()
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(server.connect().getpeername())
        connection.settimeout(10)
        connection.sendall(
            b"GET /v1/traces HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
        )
        n = 0
        while part := connection.recv(50_000):
            n += len(part)
            if n < 300_000:
                time.sleep(0.02)
        assert n > 1_000_000


class _Trickle:
    """A body that comes byte by byte after its first megabytes."""

    def __init__(self, n_bytes: int, n_parts: int) -> None:
        self._parts = [b"a" * n_bytes, *[b"b"] * n_parts, b"\nlast\n\n", b"rest"]

    async def stream(self):
        for part in self._parts:
            yield part


def test_a_long_line_that_trickles_costs_no_more_than_its_length():
    async def read():
        return [whole async for whole in lines(_Trickle(12 << 20, 3000), 16 << 20)]

    start = time.process_time()
    found = asyncio.run(read())
    assert time.process_time() - start < 1  # each byte once: milliseconds; each part anew: 10 s
    assert found == [[b"a" * (12 << 20) + b"b" * 3000, b"last", b""], [b"rest"]]
