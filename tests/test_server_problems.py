"""What goes wrong below the routes: what the client is told, and what the log is."""

from __future__ import annotations

import errno
import json
import logging
import re

import pytest
from server_support import check_problem, events, logged, open_memories, running
from support import STORY, BrittleEncoder, HashEncoder

from zeromem.errors import EncoderError, ReaderError, StoreError, StoreFullError
from zeromem.keys import Keys
from zeromem.memory import Memory
from zeromem.records import plain
from zeromem.server.routes import operations
from zeromem.server.settings import Settings

# In every text, name and question that is sent; nowhere else.
MARK = "platypus"
STORE = "secretly-named-store"


def tell(client):
    sent = [{k: v for k, v in plain(trace).items() if v is not None} for trace in STORY]
    client.post("/v1/traces/batch", json={"traces": sent}).raise_for_status()


@pytest.fixture
def server(tmp_path):
    with running(open_memories(tmp_path / f"{STORE}.zm")) as found:
        yield found


WRITES = [
    ("/v1/traces", {"json": {"text": f"new {MARK}"}}),
    ("/v1/traces/batch", {"json": {"traces": [{"text": f"new {MARK}"}]}}),
    ("/v1/traces/stream", {"content": json.dumps({"text": f"new {MARK}"}).encode()}),
    ("/v1/import", {"content": json.dumps({"text": f"new {MARK}"}).encode()}),
    ("/v1/forget", {"json": {"everything": True}}),
]


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (StoreFullError("no room in /var/x/secretly-named-store.zm"), 507, "store-full"),
        (StoreError("cannot write /var/x/secretly-named-store.zm"), 503, "store-unavailable"),
        (OSError(errno.ENOSPC, "No space left", "/var/x/secretly-named-store"), 507, "store-full"),
        (MemoryError(f"{MARK} {STORE}"), 500, "internal"),
        (KeyError(f"{MARK} {STORE}"), 500, "internal"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_a_store_that_fails_is_told_by_its_status_alone(server, monkeypatch, error, status, kind):
    def fail(*given, **named):
        raise error

    with server.client() as client, logged() as lines:
        tell(client)
        with monkeypatch.context() as patch:
            # As the store does it, below all that is ours to test.
            patch.setattr("zeromem.store.log.ScopeLog.append", fail)
            patch.setattr("zeromem.store.log.ScopeLog.forget", fail)
            for path, request in WRITES:
                reply = client.post(path, **request)
                check_problem(reply, status, kind)
                assert STORE not in reply.text
                assert "/var/x" not in reply.text
                assert (reply.headers.get("retry-after") is not None) == (status == 503)
                told = [line for line in lines if reply.headers["x-request-id"] in line]
                assert len(told) == 1
                assert f'"status": {status}' in told[0]
        # The service lives on, and nothing of it was stored.
        assert client.get("/v1/stats").json()["traces"] == len(STORY)
        assert client.post("/v1/traces", json={"text": "after"}).status_code == 201
    assert not [line for line in lines if MARK in line]
    assert any(f"{type(error).__name__} in a request" in x for x in lines) == (status == 500)


def test_a_read_only_store_takes_no_writes_and_answers_questions(tmp_path):
    path = tmp_path / f"{STORE}.zm"
    with running(open_memories(path)) as server, server.client() as client:
        tell(client)
    with running(open_memories(path, read_only=True)) as server, server.client() as client:
        for route, request in WRITES:
            reply = client.post(route, **request)
            check_problem(reply, 503, "store-unavailable")
            assert STORE not in reply.text
        for route in ("retrieve", "explain", "answer"):
            found = client.post(f"/v1/{route}", json={"question": "Who founded Acme?"})
            assert found.json()["evidence"]
        assert len(client.get("/v1/traces").json()["traces"]) == len(STORY)
        assert client.get("/readyz").status_code == 200


def test_a_closed_store_is_unavailable_and_not_an_accident(server):
    with server.client() as client:
        tell(client)
        server.memories.close()
        for path, request in WRITES:
            reply = client.post(path, **request)
            check_problem(reply, 503, "store-unavailable")
            assert STORE not in reply.text
        asked = {"json": {"question": "x"}}
        for path in ("/v1/retrieve", "/v1/explain", "/v1/answer"):
            check_problem(client.post(path, **asked), 503, "store-unavailable")
        for path in ("/v1/traces", "/v1/sessions", "/v1/scopes", "/v1/stats", "/v1/export",
                     "/readyz"):  # fmt: skip
            check_problem(client.get(path), 503, "store-unavailable")
        assert client.get("/healthz").status_code == 200


def test_an_encoder_that_fails_leaves_words():
    encoder = BrittleEncoder()
    with running(open_memories(encoder=encoder)) as server, server.client() as client:
        tell(client)
        assert client.post("/v1/retrieve", json={"question": "warm"}).status_code == 200
        encoder.refuses = None
        for path in ("retrieve", "explain", "answer"):
            found = client.post(f"/v1/{path}", json={"question": "Who founded Acme, of chess?"})
            assert found.status_code == 200, found.text
            assert "Acme" in found.json()["evidence"][0]["text"]
        # A trace is on disk before it is encoded, and is found by its words.
        added = client.post("/v1/traces", json={"text": "A zebra came.", "id": "z"})
        assert added.status_code == 201
        found = client.post("/v1/retrieve", json={"question": "zebra"})
        assert found.status_code == 200, found.text
        assert found.json()["evidence"][0]["id"] == "z"
        encoder.refuses = lambda text: False
        assert client.get("/v1/trace", params={"id": "z"}).status_code == 200


def test_a_scope_of_another_encoder_is_told_to_its_own_users_alone(tmp_path):
    path = tmp_path / f"{STORE}.zm"
    with open_memories(path, encoder=HashEncoder("foreign")) as memories:
        with memories.use("old") as memory:
            memory.add_many(STORY)
    with running(open_memories(path)) as server:
        with server.client("old") as old, server.client("new") as new:
            tell(new)
            for path, request in WRITES:
                reply = old.post(path, **request)
                check_problem(reply, 409, "encoder-mismatch")
            reply = old.post("/v1/retrieve", json={"question": "x"})
            body = check_problem(reply, 409, "encoder-mismatch")
            assert "reencode" in body["detail"]
            assert "foreign" not in reply.text
            assert new.post("/v1/retrieve", json={"question": "x"}).status_code == 200


def test_a_reader_that_fails_is_the_upstreams_fault(server, monkeypatch):
    def fail(*given, **named):
        raise ReaderError(f"the model said no at 10.0.0.1 about {MARK}")

    monkeypatch.setattr("zeromem.server.service.answer_from", fail)
    with server.client() as client:
        tell(client)
        asked = {"question": "Who founded Acme?"}
        check_problem(client.post("/v1/answer", json=asked), 502, "upstream")
        told = events(client.post("/v1/answer", json={**asked, "stream": True}).text)
        assert [name for name, _ in told] == ["evidence", "problem"]
        assert told[1][1]["status"] == 502


def test_an_export_that_breaks_off_shows_that_its_end_is_missing(server, monkeypatch):
    import httpx

    def broken(memory):
        yield from memory._log.export()
        raise RuntimeError(f"the disk lost {MARK}")

    with server.client() as client, logged() as lines:
        client.post("/v1/traces/batch", json={"traces": [{"text": f"t{i}"} for i in range(300)]})
        with monkeypatch.context() as patch:
            patch.setattr(Memory, "export", broken)
            with pytest.raises(httpx.RemoteProtocolError):
                client.get("/v1/export")
        assert client.get("/v1/export").status_code == 200
    assert not [line for line in lines if MARK in line]
    assert any("RuntimeError in a request" in line for line in lines)


def test_an_export_that_cannot_begin_has_a_status(server, monkeypatch):
    def broken(memory):
        raise StoreError(f"{STORE} cannot be read")

    with server.client() as client:
        monkeypatch.setattr(Memory, "export", broken)
        check_problem(client.get("/v1/export"), 503, "store-unavailable")


def test_an_accident_is_logged_by_place_and_request_and_not_by_what_was_said(server, monkeypatch):
    def fail(memory):
        raise ValueError(f"something about {MARK}")

    with server.client() as client, logged() as lines:
        monkeypatch.setattr(Memory, "stats", fail)
        monkeypatch.setattr(operations.Memory, "stats", fail)
        reply = client.get("/v1/stats")
        body = check_problem(reply, 500, "internal")
        assert "X-Request-Id" in body["detail"]
        assert "ValueError" not in reply.text
        (error,) = [line for line in lines if line.startswith("ERROR")]
        assert "ValueError in a request" in error
        assert "in fail" in error
        assert MARK not in error
        assert any(reply.headers["x-request-id"] in line for line in lines)


def test_logs_at_info_hold_nothing_that_a_user_sent(tmp_path):
    """Marked texts through every route, good and bad, and the log has none of them."""
    keys = Keys(tmp_path / "m.zm")
    key = keys.create("tenant-of-" + MARK)[1]
    encoder = BrittleEncoder()
    with (
        logged() as lines,
        running(open_memories(tmp_path / "m.zm", encoder=encoder), keys=keys) as server,
        server.client(f"scope {MARK}", key) as client,
    ):
        trace = {
            "text": f"{MARK} text", "id": f"{MARK}-id", "session": MARK, "speaker": MARK,
            "title": MARK, "source": MARK, "metadata": {MARK: MARK},
        }  # fmt: skip
        sent = [
            client.post("/v1/traces", json=trace),
            client.post("/v1/traces", json={**trace, "text": f"other {MARK}"}),
            client.post("/v1/traces", json={**trace, "time": MARK}),
            client.post("/v1/traces", json={MARK: MARK}),
            client.post("/v1/traces", content=MARK.encode()),
            client.post("/v1/traces/batch", json={"traces": [trace]}),
            client.post("/v1/traces/stream", content=json.dumps(trace).encode()),
            client.post("/v1/traces/stream", content=MARK.encode()),
            client.post("/v1/import", content=MARK.encode()),
            client.post("/v1/import", content=json.dumps(trace).encode()),
            client.get("/v1/traces", params={"sessions": MARK, MARK: MARK}),
            client.get("/v1/traces", params={"cursor": MARK}),
            client.get("/v1/trace", params={"id": f"{MARK}-id"}),
            client.get("/v1/trace", params={"id": MARK}),
            client.get(f"/{MARK}"),
            client.get("/v1/export"), client.get("/v1/stats"), client.get("/v1/scopes"),
            client.get("/v1/sessions"), client.request("DELETE", f"/v1/traces?{MARK}"),
            client.get("/v1/stats", headers={"Zeromem-Scope": f"{MARK}%"}),
            client.get("/v1/stats", headers={"Authorization": f"Bearer {MARK}"}),
            client.get("/v1/stats", headers={"User-Agent": MARK, "Referer": MARK, "Cookie": MARK}),
        ]  # fmt: skip
        for path in ("retrieve", "explain", "answer"):
            sent.append(client.post(f"/v1/{path}", json={"question": f"what of {MARK}?"}))
            sent.append(client.post(f"/v1/{path}", json={"question": MARK, "after": MARK}))
        encoder.error = EncoderError("it is down")
        encoder.refuses = None
        sent.append(client.post("/v1/retrieve", json={"question": f"again {MARK}"}))
        sent.append(client.post("/v1/forget", json={"session": MARK}))
        assert {reply.status_code for reply in sent} == {200, 201, 401, 404, 405, 409, 415, 422}
    assert not [line for line in lines if MARK in line]
    assert not [line for line in lines if key in line or key[20:] in line]
    requests = [json.loads(x.partition(" ")[2]) for x in lines if "server.requests" in x]
    mine = [one for one in requests if one["key"] == key[3:19]]
    assert len(mine) == len(sent) - 2  # one had no key, and one no scope
    fields = {"time", "level", "logger", "method", "route", "status", "ms", "bytes_in", "key",
              "request_id"}  # fmt: skip
    assert all(set(one) == fields for one in requests)
    assert not any("?" in one["route"] for one in requests)
    assert {one["request_id"] for one in requests} >= {r.headers["x-request-id"] for r in sent}


def test_debug_logs_are_not_needed_to_serve(server):
    with logged(logging.DEBUG) as lines, server.client() as client:
        tell(client)
        assert client.post("/v1/retrieve", json={"question": "Acme"}).status_code == 200
    assert any(re.search(r'"route": "/v1/retrieve"', line) for line in lines)


def test_a_problem_never_names_the_store(server):
    with server.client() as client:
        for method, path, request in [
            ("GET", "/v1/stats", {}), ("GET", "/v1/traces", {"params": {"cursor": "x"}}),
            ("POST", "/v1/import", {"content": b"\xff"}), ("POST", "/v1/import", {"content": b"["}),
            ("POST", "/v1/import", {"content": b"{}", "params": {"conversation": "none"}}),
            ("POST", "/v1/import", {"content": b"PK\x03\x04"}), ("GET", "/openapi.json", {}),
            ("GET", "/metrics", {}), ("GET", "/docs", {}), ("POST", "/v1/forget", {"json": {}}),
        ]:  # fmt: skip
            reply = client.request(method, path, **request)
            assert reply.status_code < 500
            shown = reply.text + str(reply.headers)
            assert STORE not in shown
            assert "/tmp" not in shown
            assert ".zm" not in shown


def test_settings_that_are_wrong_are_named():
    from zeromem.errors import InvalidInputError

    for name, value in (("timeout", 0), ("max_body", -1), ("rate", "fast"), ("burst", True),
                        ("max_waiting", 0), ("read_timeout", float("nan"))):  # fmt: skip
        with pytest.raises(InvalidInputError, match=name):
            Settings(**{name: value})
