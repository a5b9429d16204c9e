"""bench/soak.py: a short soak finds nothing; a server that lies is found out."""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soak
import uvicorn
from hashed import WordEncoder
from soak_clients import Tally
from soak_model import Clock, Scope

from zeromem.keys import Keys
from zeromem.memories import Memories
from zeromem.server.app import create_app


@pytest.mark.slow
def test_a_soak_of_half_a_minute_finds_nothing(tmp_path: Path) -> None:
    out = tmp_path / "soak.json"
    code = soak.main(["--minutes", "0.5", "--json", str(out)])
    record = json.loads(out.read_text())
    assert (code, record["told"]) == (0, [])
    assert record["wrong"] == record["errors_5xx"] == 0
    assert record["clients"] == 50
    assert record["tenants"] == 200
    assert record["requests"] > 100
    assert record["traces_at_the_end"] > 0


Tamper = Callable[[str, Any], Any]


class Lying:
    """The real application, with a hand on its requests and replies."""

    def __init__(self, app: Any, request: Tamper, reply: Tamper) -> None:
        self._app = app
        self._request = request
        self._reply = reply

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path, body, more = scope["path"], b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        given = json.loads(body) if body.startswith(b"{") and "stream" not in path else None
        instead = self._request(path, given) if given else None
        if instead is not None:
            await _say(send, 201 if path.endswith("traces") else 200, instead)
            return
        said: list[Any] = []

        async def hear(message: Any) -> None:
            said.append(message)

        await self._app(scope, _once(body, receive), hear)
        reply = b"".join(m.get("body", b"") for m in said[1:])
        plain = dict(said[0]["headers"])[b"content-type"] == b"application/json"
        changed = self._reply(path, json.loads(reply)) if plain else None
        if changed is None:
            for message in said:
                await send(message)
        else:
            await _say(send, said[0]["status"], changed)


def _once(body: bytes, receive: Any) -> Callable[[], Awaitable[Any]]:
    sent = False

    async def once() -> Any:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return once


async def _say(send: Any, status: int, value: Any) -> None:
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(value).encode()})


@contextmanager
def served(app: Any) -> Iterator[str]:
    """Serve an application in a thread."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="on"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(60)


def soaked(
    path: Path, request: Tamper, reply: Tamper, *, runs: int = 30, max_open: int = 1000
) -> Tally:
    """Soak a server that may lie, for some seconds or until that is found out."""
    clock, tally = Clock(), Tally()
    tenants = soak.make_tenants(path, 3, clock)
    memories = Memories(
        path, encoder=WordEncoder(), annotator="rules", device="cpu", max_open=max_open
    )
    with Keys(path) as keys, served(Lying(create_app(memories, keys=keys), request, reply)) as url:

        async def run() -> None:
            async with soak.session(1) as http:
                await soak.ready(http, url)
            for seed in range(runs):
                await soak.drive(
                    url, tenants, clock, tally, clients=4, seconds=1.0, seed=seed, size=12
                )
                if tally.faults:
                    return
            await soak.check_all(url, tenants, clock, tally)

        asyncio.run(run())
    return tally


def honest(path: str, value: Any) -> None:
    """Change nothing."""


def test_an_honest_server_is_found_to_be_so(tmp_path: Path) -> None:
    tally = soaked(tmp_path / "s.zm", honest, honest, runs=3, max_open=2)
    assert not tally.faults, tally.told
    assert sum(tally.requests.values()) > 20


def test_an_acknowledged_trace_that_is_not_stored_is_found(tmp_path: Path) -> None:
    lsn = iter(range(10_000, 20_000))

    def request(path: str, body: Any) -> Any:
        if path == "/v1/traces":
            return {"id": body["id"], "lsn": next(lsn), "created": True}
        return None

    tally = soaked(tmp_path / "s.zm", request, honest)
    assert tally.faults.keys() & {"retrieve", "list", "export", "add again", "stats", "sessions"}


def test_a_forgotten_trace_that_comes_back_is_found(tmp_path: Path) -> None:
    def request(path: str, body: Any) -> Any:
        if path == "/v1/forget" and "ids" in body:
            return {"forgotten": len(body["ids"])}
        return None

    tally = soaked(tmp_path / "s.zm", request, honest)
    assert tally.faults
    assert any("is forgotten" in what or "are right" in what for what in tally.told), tally.told


@pytest.mark.parametrize("field", ["text", "session", "speaker", "time", "id"])
def test_evidence_of_another_tenant_is_found(tmp_path: Path, field: str) -> None:
    last: list[Any] = []

    def reply(path: str, told: Any) -> Any:
        if path not in ("/v1/retrieve", "/v1/explain") or not told["evidence"]:
            return None
        item = told["evidence"][-1]
        last.append(item[field])
        if last[0] == item[field]:
            return None
        item[field] = last[0]
        return told

    tally = soaked(tmp_path / "s.zm", honest, reply)
    assert tally.faults.keys() <= {"retrieve", "explain"}
    assert tally.faults


# ---- the model itself


def scope() -> Scope:
    return Scope("t", "default", Clock())


def stored(held: Scope, n: int, rng: Any) -> list[Any]:
    facts = [held.new(rng) for _ in range(n)]
    first = 1 + max((f.lsn for f in held.facts.values()), default=0)
    added = [{"id": f.id, "lsn": first + i, "created": True} for i, f in enumerate(facts)]
    assert held.acknowledge(facts, added) == []
    return facts


def shown(fact: Any) -> dict[str, Any]:
    whole = {"start": 0, "end": len(fact.text), "kind": "main", "lsn": fact.lsn}
    return fact.body() | whole


def test_what_overlaps_with_a_change_may_be_seen_or_not() -> None:
    held, rng = scope(), random.Random(0)
    clock = held._clock
    (fact,) = stored(held, 1, rng)
    before = clock.now()
    held.leave([fact])
    during = clock.now()
    for traces in ([], [shown(fact)]):
        assert held.check_traces(traces, before, during) == []
    held.forgotten([fact])
    after = clock.now()
    assert held.check_traces([shown(fact)], during, after) == []
    assert "is forgotten" in held.check_traces([shown(fact)], after, clock.now())[0]
    coming = held.new(rng)
    start = clock.now()
    for traces in ([], [shown(coming)]):
        assert held.check_traces(traces, start, clock.now()) == []


def test_each_kind_of_wrong_reply_is_told() -> None:
    held, rng = scope(), random.Random(0)
    a, b = stored(held, 2, rng)
    start, end = held._clock.now(), held._clock.now()

    def evidence(*items: Any, k: int = 5) -> list[str]:
        return held.check_evidence({"evidence": list(items)}, a, start, end, k)

    assert evidence(shown(a), shown(b)) == []
    assert evidence(shown(a) | {"end": 5, "text": a.text[:5]}) == []
    assert "not found" in evidence(shown(b))[0]
    assert "not found" in evidence(shown(a) | {"kind": "bridge"})[0]
    assert "twice" in evidence(shown(a), shown(a))[0]
    assert "at k=1" in evidence(shown(a), shown(b), k=1)[0]
    assert "never sent" in evidence(shown(a), shown(b) | {"id": "t:99"})[0]
    assert "shown as" in evidence(shown(a), shown(b) | {"end": 5})[0]
    assert "lsn" in evidence(shown(a), shown(b) | {"lsn": 7})[0]
    lists = held.check_traces
    assert lists([shown(a), shown(b)], start, end) == []
    assert "missing" in lists([shown(a)], start, end)[0]
    assert "out of order" in lists([shown(b), shown(a)], start, end)[0]
    assert "lists traces of" in lists([shown(a), shown(b)], start, end, "another")[0]
    assert held.check_counts({"": 2}, start, end) == []
    assert held.check_counts({a.session: 2}, start, end) == []
    assert held.check_counts({"": 1}, start, end)
    assert held.check_counts({a.session: 1}, start, end)
    assert held.check_counts({a.session: 2, "another": 1}, start, end)
    cited = {"id": a.id, "start": 0, "end": 3, "text": a.text[:3]}
    given = {"evidence": [shown(a)], "citations": [cited]}
    assert held.check_answer(given, a, start, end, 5) == []
    given["citations"] = [cited | {"text": "xyz"}]
    assert "cited of" in held.check_answer(given, a, start, end, 5)[0]
    given["citations"] = [cited | {"id": b.id}]
    assert "no evidence" in held.check_answer(given, a, start, end, 5)[0]
    (fact,) = (held.new(rng),)
    assert held.acknowledge([fact], [{"id": fact.id, "lsn": b.lsn, "created": True}])
    (fact,) = (held.new(rng),)
    assert held.acknowledge([fact], [{"id": fact.id, "lsn": 9, "created": False}])
    assert held.acknowledge([held.new(rng)], [{"id": "another", "lsn": 10, "created": True}])


def test_growth_is_told_from_noise() -> None:
    at = np.arange(600.0)
    noise = np.random.default_rng(0).normal(0, 2e6, len(at))
    files = np.full(len(at), 90)
    flat = soak.growth(at, 4e8 + noise, files)
    assert flat["faults"] == []
    warming = soak.growth(at, 4e8 + np.minimum(at, 200) * 1e6 + noise, files)
    assert warming["faults"] == []
    rising = soak.growth(at, 4e8 + at * 2e5 + noise, files)
    assert rising["mb_a_minute"] == pytest.approx(12, rel=0.1)
    assert len(rising["faults"]) == 1
    assert len(soak.growth(at, 4e8 + noise, np.where(at > 400, 150, 90))["faults"]) == 1
