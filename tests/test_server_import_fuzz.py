"""Any body gives a served import or stream its traces, or a problem that names the fault."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import HashEncoder
from test_importers_fuzz import FORMATS, bodies, damaged, structured

from zeromem.memories import Memories
from zeromem.server.app import create_app
from zeromem.server.settings import Settings

_NAMES = map(str, count())


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    memories = Memories(encoder=HashEncoder(), annotator="rules", device="cpu", max_open=4)
    app = create_app(memories, Settings(auth=False))
    with TestClient(app, raise_server_exceptions=True) as found:
        yield found


def held(client: TestClient, scope: dict[str, str]) -> list[dict[str, Any]]:
    reply = client.get("/v1/export", headers=scope)
    assert reply.status_code == 200
    return [json.loads(line) for line in reply.text.splitlines()]


def checked_problem(reply: Any) -> None:
    problem = reply.json()
    assert reply.headers["content-type"] == "application/problem+json"
    assert problem["status"] == reply.status_code
    assert reply.status_code in (400, 409, 413, 422), problem
    assert problem["detail"]
    assert "zeromem-" not in problem["detail"]  # where the upload lies is nobody's business


fuzzed = settings(
    max_examples=80,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@fuzzed
@given(body=bodies | structured, format=st.sampled_from([None, *FORMATS]))
def test_any_import(client: TestClient, body: bytes, format: str | None) -> None:
    """All of it is stored, or nothing: it is one batch here."""
    scope = {"Zeromem-Scope": next(_NAMES)}
    chosen = {"format": format} if format else {}
    reply = client.post("/v1/import", params=chosen, content=body, headers=scope)
    found = held(client, scope)
    if reply.status_code == 200:
        assert reply.json()["created"] == len(found) <= reply.json()["traces"]
    else:
        checked_problem(reply)
        assert found == []


@fuzzed
@given(body=bodies | structured | damaged(["jsonl"]).map(lambda given: given[1]))
def test_any_stream(client: TestClient, body: bytes) -> None:
    """What has its line is stored, and nothing else; the lines come one by one."""
    scope = {"Zeromem-Scope": next(_NAMES)}
    content = (line for line in body.splitlines(keepends=True))
    reply = client.post("/v1/traces/stream", content=content, headers=scope)
    found = held(client, scope)
    if reply.status_code == 200:
        told = [json.loads(line) for line in reply.text.splitlines()]
        if told and "status" in told[-1]:
            assert told.pop()["status"] in (400, 409, 413, 422)
        assert {one["id"] for one in told} == {t["id"] for t in found}
    else:
        checked_problem(reply)
        assert found == []
