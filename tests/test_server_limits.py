"""How much, how often, how long; and what becomes of those who overdo it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest
from server_support import GatedEncoder, check_problem, open_memories, read_all, running
from support import open_memory

import zeromem
from zeromem.errors import InvalidInputError
from zeromem.keys import Keys
from zeromem.server.service import Service
from zeromem.server.settings import Settings

HERE = Path(__file__).parent
SMALL = Settings(
    max_body=2000, max_upload=5000, max_traces=3, max_questions=3, max_k=7, max_text=50,
    read_timeout=0.5,
)  # fmt: skip


@pytest.fixture(scope="module")
def server():
    with running(settings=SMALL) as found:
        yield found


@pytest.fixture
def client(server):
    with server.client() as found:
        yield found


def test_a_body_that_is_too_large_is_refused_by_its_length_before_it_comes(server):
    for path, most in (("/v1/traces", 2000), ("/v1/import", 5000), ("/v1/retrieve", 2000)):
        got = server.raw(
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Content-Length: {most + 1}\r\n\r\n".encode()
        )
        assert got.startswith(b"HTTP/1.1 413"), got[:200]
        assert b"connection: close" in got
        assert str(most).encode() in got


@pytest.mark.parametrize("path", ["/v1/traces", "/v1/retrieve", "/v1/forget", "/v1/import",
                                  "/v1/traces/stream"])  # fmt: skip
def test_a_body_without_a_length_is_cut_off_at_the_limit(server, path):
    n = 0
    with server.connect() as connection:
        connection.sendall(
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            "Transfer-Encoding: chunked\r\n\r\n".encode()
        )
        try:
            for _ in range(200):  # 200 kB
                connection.sendall(b"3e8\r\n" + b" " * 1000 + b"\r\n")
                n += 1
        except (ConnectionResetError, BrokenPipeError):
            pass
        got = read_all(connection)
    assert b" 413 " in got.partition(b"\r\n")[0] or (n < 200 and not got)


def test_a_line_that_is_too_long_is_refused(client):
    line = json.dumps({"text": "x" * 2100}).encode()
    check_problem(client.post("/v1/traces/stream", content=line), 413, "too-large")


def test_batches_questions_and_k_are_bounded(client):
    texts = [{"text": f"t{i}"} for i in range(4)]
    for path, body, field in (
        ("traces/batch", {"traces": texts}, "traces"),
        ("retrieve/batch", {"questions": ["x"] * 4}, "questions"),
        ("retrieve/batch", {"questions": ["x" * 51]}, "question (characters)"),
        ("retrieve", {"question": "x" * 51}, "question (characters)"),
        ("answer", {"question": "x" * 51, "stream": True}, "question (characters)"),
        ("retrieve", {"question": "x", "k": 8}, "k"),
    ):
        reply = client.post(f"/v1/{path}", json=body)
        (part,) = check_problem(reply, 422, "invalid-input")["errors"]
        assert part["field"] == field
    assert client.post("/v1/traces/batch", json={"traces": texts[:3]}).status_code == 201
    assert client.post("/v1/retrieve", json={"question": "x" * 50, "k": 7}).status_code == 200


def test_a_client_that_sends_half_a_body_and_hangs_is_cut_off(server):
    for path, kind in (("/v1/traces", "application/json"), ("/v1/import", "x/x")):
        start = time.monotonic()
        got = server.raw(
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind}\r\n"
            'Content-Length: 100\r\n\r\n{"text": '.encode()
        )
        assert got.startswith(b"HTTP/1.1 408"), got[:300]
        assert b"connection: close" in got
        assert b"problem+json" in got
        assert time.monotonic() - start < 8
    assert httpx.get(f"{server.url}/healthz").status_code == 200


def test_a_client_that_leaves_in_the_middle_of_its_body_harms_nobody(server):
    for path in ("/v1/traces", "/v1/import", "/v1/traces/stream"):
        with server.connect() as connection:
            connection.sendall(
                f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                'Content-Length: 100\r\n\r\n{"text": '.encode()
            )
    with server.client() as client:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            counted = client.get("/metrics").text
            if counted.count('status="400"') >= 3:
                break
            time.sleep(0.05)
        routes = [line for line in counted.splitlines() if "/v1/" in line]
        assert routes
        assert not any('status="5' in line for line in routes)
        assert client.post("/v1/traces", json={"text": "fine"}).status_code == 201


def test_a_client_that_reads_nothing_of_an_export_is_let_go():
    with running(settings=Settings(read_timeout=0.3)) as server, server.client("big") as client:
        line = json.dumps({"text": "~" * 60_000}).encode() + b"\n"
        client.post("/v1/traces/stream", content=line).raise_for_status()
        many = b"".join(
            json.dumps({"text": "~" * 60_000, "id": str(i)}).encode() + b"\n" for i in range(300)
        )
        client.post("/v1/traces/stream", content=many).raise_for_status()
        held = server.memories._held["big"]
        with server.connect() as connection:
            connection.sendall(
                b"GET /v1/export HTTP/1.1\r\nHost: 127.0.0.1\r\nZeromem-Scope: big\r\n\r\n"
            )
            assert connection.recv(100).startswith(b"HTTP/1.1 200")
            assert wait(lambda: held.n_users == 0), "its memory is held for ever"
        assert client.get("/v1/stats").json()["traces"] == 301


def wait(true, seconds=15):
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


# ---- rates


def test_rates_belong_to_keys(tmp_path):
    keys = Keys(tmp_path / "m.zm")
    slow, own, free = (keys.create(t, rate=r)[1] for t, r in (("a", 0.5), ("a", None), ("b", 1e6)))
    with running(open_memories(tmp_path / "m.zm"), Settings(rate=1e6), keys) as server:
        with server.client(key=slow) as client:
            replies = [client.get("/v1/stats") for _ in range(4)]
            assert [r.status_code for r in replies] == [200, 429, 429, 429]
            check_problem(replies[1], 429, "rate-limited")
            assert 1 <= int(replies[1].headers["retry-after"]) <= 2
        for other in (own, free):
            with server.client(key=other) as client:
                assert {client.get("/v1/stats").status_code for _ in range(20)} == {200}
        time.sleep(2.1)
        with server.client(key=slow) as client:
            assert client.get("/v1/stats").status_code == 200


# ---- waiting


def test_back_pressure_refuses_and_does_not_grow(tmp_path):
    encoder = GatedEncoder()
    keys = Keys(tmp_path / "m.zm")
    greedy, modest = keys.create("greedy")[1], keys.create("modest")[1]
    settings = Settings(max_waiting=8, max_batch=1, batch_window=0.0)
    memories = open_memories(tmp_path / "m.zm", encoder=encoder)
    with running(memories, settings, keys) as server:
        statuses, lock = {"greedy": [], "modest": []}, threading.Lock()

        def ask(name, key, text):
            with server.client(key=key) as client:
                reply = client.post("/v1/retrieve", json={"question": text})
            with lock:
                statuses[name].append(reply.status_code)
            if reply.status_code == 429:
                check_problem(reply, 429, "overloaded")
                assert int(reply.headers["retry-after"]) >= 1

        for key in (greedy, modest):
            with server.client(key=key) as client:
                client.post("/v1/traces", json={"text": "Ana is here."}).raise_for_status()
                client.post("/v1/retrieve", json={"question": "warm"}).raise_for_status()
        encoder.asked.clear()
        batcher = server.app.state.service.batcher
        threads = []

        def begin(*given):
            threads.append(threading.Thread(target=ask, args=given))
            threads[-1].start()

        begin("greedy", greedy, "gate")
        assert encoder.entered.wait(10)
        begin("modest", modest, "m0")
        assert wait(lambda: batcher.n_waiting == 2)
        for i in range(20):
            begin("greedy", greedy, f"g{i}")
        assert wait(lambda: len(statuses["greedy"]) == 17), statuses  # four may wait, of eight
        assert batcher.n_waiting == 5
        begin("modest", modest, "m1")
        assert wait(lambda: batcher.n_waiting == 6)
        encoder.open.set()
        for thread in threads:
            thread.join(30)
        assert statuses["modest"] == [200, 200]
        assert sorted(statuses["greedy"]) == [200] * 4 + [429] * 17
        # Served in turn: m1 came last and is answered before the greedy one's last.
        assert encoder.asked.index("m1") < len(encoder.asked) - 1
        assert encoder.asked[1] == "m0"


def test_a_request_that_takes_too_long_is_told_and_the_service_lives_on():
    encoder = GatedEncoder()
    with running(open_memories(encoder=encoder), Settings(timeout=0.5)) as server:
        with server.client() as client:
            client.post("/v1/traces", json={"text": "Ana is here."}).raise_for_status()
            client.post("/v1/retrieve", json={"question": "warm"}).raise_for_status()
            reply = client.post("/v1/retrieve", json={"question": "gate"})
            check_problem(reply, 504, "timeout")
            assert client.get("/v1/traces").status_code == 200
            encoder.open.set()
            assert client.post("/v1/retrieve", json={"question": "Ana"}).status_code == 200
            assert wait(lambda: server.app.state.service.batcher.n_waiting == 0)


def test_who_leaves_while_a_memory_is_opened_holds_nothing():
    entered, gate = threading.Event(), threading.Event()

    async def main():
        with open_memories(max_open=1) as memories:
            real = memories._opened

            def slow(scope):
                entered.set()
                assert gate.wait(30)
                return real(scope)

            memories._opened = slow
            service = Service(memories, Settings())

            async def use():
                async with service.memory("a"):
                    raise AssertionError("it was cancelled before")

            task = asyncio.create_task(use())
            await asyncio.to_thread(entered.wait, 30)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            gate.set()
            for _ in range(500):
                held = memories._held.get("a")
                if held is not None and held.memory is not None and held.n_users == 0:
                    return
                await asyncio.sleep(0.01)
            raise AssertionError("the memory has a user that is gone")

    asyncio.run(main())


# ---- the end


SERVE = """
import sys
from support import HashEncoder
import zeromem.memories
from zeromem.cli.main import main
load = zeromem.memories.load_encoder
zeromem.memories.load_encoder = lambda encoder, device: HashEncoder()
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_sigterm_finishes_what_was_accepted(tmp_path):
    """A real process: what was acknowledged is there, in-flight requests are answered, it ends."""
    path = tmp_path / "m.zm"
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(HERE), str(Path(zeromem.__file__).parents[1])]),
    }
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE, "serve", "--store", str(path), "--annotator", "rules",
         "--no-auth", "--port", "0"],
        env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    # Nobody reads the log meanwhile: that must not hold the server up.
    url = process.stdout.readline().split()[2]
    acknowledged, broken, stopped = [], [], threading.Event()

    def work(i):
        with httpx.Client(base_url=url, timeout=30, verify=False) as client:
            for n in range(10_000):
                sent = {"text": f"{i} says number {n}", "id": f"{i}-{n}"}
                try:
                    reply = client.post("/v1/traces", json=sent)
                except httpx.HTTPError as error:
                    if not stopped.is_set():
                        broken.append(error)
                    return
                if reply.status_code != 201:
                    assert reply.status_code == 503, reply.text
                    return
                acknowledged.append(sent["id"])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    try:
        assert wait(lambda: len(acknowledged) > 60, 30)
        stopped.set()
        process.send_signal(signal.SIGTERM)
        code = process.wait(30)
        for thread in threads:
            thread.join(30)
    finally:
        process.kill()
    assert code == 0
    assert not broken
    with open_memory(path) as memory:
        stored = {s.trace.id for s in memory.export()}
        assert stored >= set(acknowledged)
        assert len(stored) <= len(acknowledged) + 6  # one of each client was without its reply
        assert memory.retrieve("number 3")


def test_a_port_that_is_taken_is_named(server):
    from zeromem.errors import StoreError
    from zeromem.server.run import _listen, guarded

    port = int(server.url.rpartition(":")[2])
    with pytest.raises(StoreError, match=f"port {port}"):
        _listen("127.0.0.1", port)
    with pytest.raises(StoreError, match="host"):
        _listen("127.0.0.1", 70_000)
    with pytest.raises(InvalidInputError, match="no API key"):
        guarded(Settings(), Keys(HERE / "none"), "0.0.0.0")


@pytest.mark.parametrize("path", ["traces", "traces/batch", "traces/stream"])
def test_metadata_has_a_limit_of_its_own(path):
    with running(settings=Settings(max_metadata=1000)) as server, server.client() as client:
        for size, status in ((900, (200, 201)), (2000, (422,))):
            trace = {"text": "A cat.", "id": str(size), "metadata": {"x": "y" * size}}
            body = {"traces": [trace]} if path == "traces/batch" else trace
            kind = "application/x-ndjson" if path == "traces/stream" else "application/json"
            sent = json.dumps(body).encode()
            reply = client.post(f"/v1/{path}", content=sent, headers={"Content-Type": kind})
            assert reply.status_code in status, reply.text
        assert "metadata (bytes) may have 1000" in reply.text
        assert client.get("/v1/stats").json()["traces"] == 1
