"""One tenant's long work beside another's short one."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import httpx
import pytest
from server_support import open_memories, running
from support import HashEncoder

from zeromem.keys import Keys
from zeromem.server.turns import Turns

QUICK = 3.0  # seconds: what waits for the long work here takes ten and more


class SlowEncoder(HashEncoder):
    """Takes its time for texts that say so."""

    def encode_spans(self, texts, spans):
        time.sleep(sum("slow" in text for text in texts) / 10)
        return super().encode_spans(texts, spans)


@pytest.fixture
def place(tmp_path):
    """A server with two tenants' keys; the second one has a memory that is up to date."""
    store = tmp_path / "s.zm"
    keys = Keys(store)
    busy, other = keys.create("busy")[1], keys.create("other")[1]
    memories = open_memories(store, encoder=SlowEncoder())
    with running(memories, keys=keys) as server, server.client("s", other) as client:
        assert add_and_ask(client) < QUICK
        yield server, busy, client


def add_and_ask(client):
    start = time.monotonic()
    assert client.post("/v1/traces", json={"text": f"Quick at {start}."}).status_code == 201
    assert client.post("/v1/retrieve", json={"question": "Who is quick?"}).json()["evidence"]
    assert client.get("/v1/traces").status_code == client.get("/readyz").status_code == 200
    return time.monotonic() - start


def slow_lines(n, name=""):
    return "\n".join(json.dumps({"text": f"slow {name} {i}"}) for i in range(n))


def test_many_traces_of_one_tenant_are_encoded_beside_those_of_others(place):
    server, busy, client = place
    with server.client("s", busy) as greedy:
        slow = {"traces": [{"text": f"slow {i}"} for i in range(150)]}
        assert greedy.post("/v1/traces/batch", json=slow).status_code == 201
    assert add_and_ask(client) < QUICK


def test_imports_of_one_tenant_leave_threads_to_others(place):
    server, busy, client = place
    n = 16
    with ThreadPoolExecutor(n) as threads:

        def import_(i):
            with server.client(f"s{i}", busy) as greedy:
                return greedy.post("/v1/import", content=slow_lines(20, i)).status_code

        found = [threads.submit(import_, i) for i in range(n)]
        time.sleep(0.5)
        assert add_and_ask(client) < QUICK
        assert [one.result() for one in found] == [200] * n


def test_questions_to_a_memory_that_is_busy_leave_threads_to_others(place):
    server, busy, client = place
    n = 24
    with ThreadPoolExecutor(n + 1) as threads:

        def ask(i):
            with server.client("s", busy) as greedy:
                if i % 2:
                    return greedy.get("/v1/traces").status_code
                return greedy.post("/v1/retrieve", json={"question": f"{i}?"}).status_code

        def import_():
            with server.client("s", busy) as greedy:
                return greedy.post("/v1/import", content=slow_lines(100)).status_code

        found = [threads.submit(import_)]
        time.sleep(0.3)
        found += [threads.submit(ask, i) for i in range(n)]
        time.sleep(0.3)
        assert add_and_ask(client) < QUICK
        assert [one.result() for one in found] == [200] * (n + 1)


def test_many_long_questions_of_one_tenant_are_answered_beside_those_of_others(place):
    server, busy, client = place
    with server.client("s", busy) as greedy, ThreadPoolExecutor(1) as threads:
        assert greedy.post("/v1/traces", json={"text": "x is long"}).status_code == 201
        questions = [f"{i} " + "x " * 12_000 for i in range(256)]
        found = threads.submit(greedy.post, "/v1/retrieve/batch", json={"questions": questions})
        time.sleep(1)
        assert add_and_ask(client) < QUICK
        assert not found.done()
        told = found.result().json()["retrievals"]
        assert [one["question"] for one in told] == questions


def test_turns_pass_whoever_is_at_a_bound_and_none_is_lost():
    async def run():
        turns, told = Turns(2), []

        async def work(name, until):
            async with turns.of({name: 1}):
                told.append(name)
                await until.wait()

        first, rest = asyncio.Event(), asyncio.Event()
        tasks = [asyncio.create_task(work(n, first if n == "a" else rest)) for n in "aabcb"]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert told == ["a", "b"]  # the second "a" is at its bound, "c" at that of all
        tasks[3].cancel()
        first.set()
        await asyncio.sleep(0)  # the turn of the first "a" is given to the second,
        await asyncio.sleep(0)
        tasks[1].cancel()  # which has left by then
        rest.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert told[2:] in (["b"], ["a", "b"])
        async with asyncio.timeout(1):
            async with turns.of({"a": 1}), turns.of({"b": 1}):  # both are free again
                assert not turns._held.keys() - {"a", "b"}

    asyncio.run(run())


# ---- keys under a running server


def test_a_key_that_is_being_made_stops_no_request(place, tmp_path):
    _, _, client = place
    con = sqlite3.connect(tmp_path / "s.zm.keys", isolation_level=None)
    with closing(con):
        con.execute("BEGIN EXCLUSIVE")
        assert add_and_ask(client) < QUICK


def test_a_stream_ends_with_its_key(place, tmp_path):
    server, busy, _ = place
    keys = Keys(tmp_path / "s.zm")
    (key,) = [key for key in keys.list() if key.tenant == "busy"]
    revoked = threading.Event()

    def pieces():
        yield b'{"text": "before"}\n'
        while not stored():
            time.sleep(0.02)
        keys.revoke(key.id)
        revoked.set()
        yield b'{"text": "after"}\n'

    def stored():
        with server.memories.use("busy/s") as memory:
            return [one.trace.text for one in memory.traces().items]

    with server.client("s", busy) as greedy:
        reply = greedy.post("/v1/traces/stream", content=pieces())
    assert revoked.is_set()
    said = [json.loads(line) for line in reply.text.splitlines()]
    assert said[0]["created"]
    assert said[1]["status"] == 401
    assert len(said) == 2
    assert stored() == ["before"]


def test_so_does_an_export(place, tmp_path):
    server, busy, _ = place
    keys = Keys(tmp_path / "s.zm")
    (key,) = [key for key in keys.list() if key.tenant == "busy"]
    with server.client("s", busy) as greedy:
        for part in range(3):
            traces = [{"text": f"{part} {i} " + "long " * 1000} for i in range(400)]
            greedy.post("/v1/traces/batch", json={"traces": traces}).raise_for_status()
        n = 0

        def read(reply):
            nonlocal n
            for n, _ in enumerate(reply.iter_lines(), 1):
                if n == 1:
                    keys.revoke(key.id)

        with greedy.stream("GET", "/v1/export") as reply:
            assert reply.status_code == 200
            with pytest.raises(httpx.RemoteProtocolError):
                read(reply)
        assert 0 < n < 1200
