"""Every route over a real socket: what it does, what it refuses, and how it says so."""

from __future__ import annotations

import json
import re
import threading
from functools import partial
from urllib.parse import quote

import httpx
import pytest
from server_support import check_problem, events, json_lines, routes_of, running
from support import STORY

from zeromem.records import plain
from zeromem.server.settings import LOOPBACK, Settings

NDJSON = "application/x-ndjson"


@pytest.fixture(scope="module")
def server():
    with running() as found:
        yield found


@pytest.fixture
def scope(request):
    return request.node.name


@pytest.fixture
def client(server, scope):
    with server.client(scope) as found:
        yield found


def story():
    return [{k: v for k, v in plain(trace).items() if v is not None} for trace in STORY]


def add_story(client):
    reply = client.post("/v1/traces/batch", json={"traces": story()})
    assert reply.status_code == 201
    return reply.json()["added"]


# ---- what each route does


def test_the_routes_are_these(server):
    assert routes_of(server.app) == sorted(
        [
            (m, p)
            for m in ("GET", "HEAD")
            for p in ("/openapi.json", "/docs", "/docs/oauth2-redirect")
        ]
        + [
            ("POST", f"/v1/{p}")
            for p in (
                "traces",
                "traces/batch",
                "traces/stream",
                "forget",
                "import",
                "retrieve",
                "retrieve/batch",
                "explain",
                "answer",
                "chat/completions",
            )
        ]
        + [
            ("GET", f"/v1/{p}")
            for p in ("models", "traces", "trace", "sessions", "export", "scopes", "stats")
        ]
        + [("GET", p) for p in ("/healthz", "/readyz", "/metrics")]
    )


def test_add_says_what_it_stored(client):
    sent = {"text": "Miso is my new kitten!", "speaker": "Ana", "id": "t1"}
    first = client.post("/v1/traces", json=sent)
    assert (first.status_code, first.headers["content-type"]) == (201, "application/json")
    assert first.json() == {"id": "t1", "lsn": 1, "created": True}
    again = client.post("/v1/traces", json=sent)
    assert (again.status_code, again.json()) == (201, {"id": "t1", "lsn": 1, "created": False})
    other = client.post("/v1/traces", json={**sent, "text": "Another."})
    assert "t1" in check_problem(other, 409, "duplicate-id")["detail"]
    assert client.get("/v1/stats").json()["traces"] == 1


def test_a_batch_is_stored_whole_or_not_at_all(client):
    client.post("/v1/traces", json={"text": "one", "id": "taken"})
    sent = [{"text": "fine", "id": "a"}, {"text": "other", "id": "taken"}]
    body = check_problem(
        client.post("/v1/traces/batch", json={"traces": sent}), 409, "duplicate-id"
    )
    assert "taken" in body["detail"]
    assert client.get("/v1/stats").json()["traces"] == 1
    added = client.post("/v1/traces/batch", json={"traces": [sent[0], {"text": "b"}]}).json()
    assert [one["lsn"] for one in added["added"]] == [2, 3]
    assert all(one["created"] for one in added["added"])


def test_retrieve_and_its_batch_give_the_same_evidence(client):
    add_story(client)
    questions = ["What is Ana's kitten called?", "Where does Ana live?", "Who founded Acme?"]
    alone = [client.post("/v1/retrieve", json={"question": q, "k": 2}) for q in questions]
    batch = client.post("/v1/retrieve/batch", json={"questions": questions, "k": 2})
    assert batch.status_code == 200
    assert [r.json()["evidence"] for r in alone] == [
        r["evidence"] for r in batch.json()["retrievals"]
    ]
    first = alone[0].json()
    assert first["question"] == questions[0]
    assert first["route"] in ("relational", "local")
    item = next(e for e in first["evidence"] if "kitten" in e["text"])
    assert item["speaker"] == "Ana"
    assert item["session"] == "s1"
    assert item["why"]


def test_retrieve_takes_every_option(client):
    add_story(client)
    options = {
        "k": 3, "token_budget": 200, "view": "graph", "closure": False, "calibration": False,
        "sessions": ["s1", "s2"], "speakers": ["ana"], "roles": ["user"], "as_of": 4,
        "reference_time": "2026-05-03",
    }  # fmt: skip
    found = client.post("/v1/retrieve", json={"question": "Where is Ana?", **options})
    assert found.status_code == 200, found.text
    evidence = found.json()["evidence"]
    assert evidence
    assert {e["speaker"] for e in evidence} == {"Ana"}
    assert {e["session"] for e in evidence} <= {"s1", "s2"}
    assert all(e["kind"] == "main" for e in evidence)
    assert found.json()["n_tokens"] <= 200


def test_explain_names_scores_and_what_was_left_out(client):
    add_story(client)
    told = client.post("/v1/explain", json={"question": "What does Miso eat?", "k": 2}).json()
    assert all({"graph_score", "hierarchy_score", "sentences"} <= set(e) for e in told["evidence"])
    assert {"seeds", "activated", "left_out", "n_outside"} <= set(told)


def test_answer_plain_and_streamed_are_the_same(client):
    add_story(client)
    asked = {"question": "Who founded Acme?"}
    whole = client.post("/v1/answer", json=asked)
    assert whole.status_code == 200
    assert "Carla Reis" in whole.json()["answer"]
    cited = whole.json()["citations"][0]
    assert STORY[4].text[cited["start"] : cited["end"]] == cited["text"]
    streamed = client.post("/v1/answer", json={**asked, "stream": True})
    assert streamed.headers["content-type"].startswith("text/event-stream")
    told = events(streamed.text)
    assert told[0][0] == "evidence"
    assert told[-1][0] == "answer"
    assert told[0][1]["evidence"] == whole.json()["evidence"]
    assert told[-1][1]["answer"] == whole.json()["answer"]


def test_a_streamed_answer_that_cannot_begin_has_a_status(client):
    reply = client.post("/v1/answer", json={"question": " ", "stream": True})
    check_problem(reply, 422, "invalid-input")


def test_a_trace_with_its_neighbours(client):
    added = add_story(client)
    found = client.get("/v1/trace", params={"id": added[1]["id"], "before": 1, "after": 5}).json()
    assert [t["id"] for t in found["traces"]] == [one["id"] for one in added[:3]]
    alone = client.get("/v1/trace", params={"id": added[1]["id"]}).json()["traces"]
    assert [t["text"] for t in alone] == [STORY[1].text]
    check_problem(client.get("/v1/trace", params={"id": "nobody's"}), 404, "not-found")


def test_sessions_scopes_and_stats(client, scope):
    add_story(client)
    listed = client.get("/v1/sessions").json()["sessions"]
    assert [(s["name"], s["n_traces"]) for s in listed] == [("s1", 3), ("s2", 2), ("s3", 2)]
    assert scope in client.get("/v1/scopes").json()["scopes"]
    stats = client.get("/v1/stats").json()
    assert stats["traces"] == len(STORY)
    assert stats["scope"] == scope
    assert not {"store_bytes", "llm_usage", "path"} & set(stats)


def test_forget_says_how_many(client):
    add_story(client)
    assert client.post("/v1/forget", json={"session": "s1", "speaker": "Ben"}).json() == {
        "forgotten": 1
    }
    assert client.post("/v1/forget", json={"ids": ["nobody's"]}).json() == {"forgotten": 0}
    for given, got in (({}, "neither"), ({"everything": True, "speaker": "Ana"}, "both")):
        reply = client.post("/v1/forget", json=given)
        (error,) = check_problem(reply, 422, "invalid-input")["errors"]
        assert error["field"] == "everything"
        assert error["value"] == got
        assert "ids, session, speaker, source, after, before; got" in error["fix"]
    assert client.post("/v1/forget", json={"everything": True}).json()["forgotten"] == 8
    assert client.get("/v1/traces").json() == {"traces": [], "cursor": None}


def test_health_readiness_and_metrics(client):
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/readyz").json() == {"status": "ok"}
    reply = client.get("/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "zeromem_requests_total" in reply.text
    assert "_created" not in reply.text
    kinds = dict(re.findall("^# TYPE (\\S+) (\\S+)$", reply.text, re.MULTILINE))
    assert {name for name, kind in kinds.items() if kind == "counter"} == {
        name for name in kinds if name.endswith("_total")
    }


def test_uses_of_memories_are_counted_up():
    def uses():
        found = re.findall('^zeromem_memories_total{event="(.+)"} (.+)$', read().text, re.MULTILINE)
        return {event: float(n) for event, n in found}

    with running() as server, server.client("ana") as client:
        read = partial(client.get, "/metrics")
        assert uses() == {"hits": 0, "misses": 0, "evictions": 0}
        for _ in range(3):
            client.get("/v1/sessions").raise_for_status()
        assert uses() == uses() == {"hits": 2, "misses": 1, "evictions": 0}


def test_metrics_can_be_off():
    with running(settings=Settings(metrics=False)) as server, server.client() as client:
        check_problem(client.get("/metrics"), 404, "not-found")


# ---- streams

RICH = [
    {"text": "Year.", "time": "2026"},
    {"text": "Month.", "time": "2026-05", "zone": "Europe/Berlin"},
    {"text": "Day.", "time": "2026-05-03", "zone": "+05:30"},
    {"text": "Minute.", "time": "2026-05-03T10:00+02:00"},
    {"text": "Second.", "time": "2026-05-03T10:00:07+02:00", "zone": "Europe/Berlin"},
    {
        "text": "tab\tand\nline, NUL \0, é, 日本, 👩‍👩‍👧, ‮right",
        "title": "Ünïcode",
        "source": "mail",
    },
    {"text": "lone \ud800 surrogate", "id": "\udfff"},
    {
        "text": "All.",
        "id": "i",
        "role": "assistant",
        "speaker": "Ana",
        "session": "s/../1",
        "metadata": {"a": [1, 2.5, None, True, {"b": "é"}], "": "empty", "big": 10**40},
    },
    {"text": "Tool.", "role": "tool"},
    {"text": "Doc.", "role": "document", "title": "T"},
]


def test_export_and_import_lose_nothing(server, scope):
    lines = "".join(json.dumps(one) + "\n" for one in RICH)
    exports = []
    with server.client(scope) as first, server.client(f"{scope}'s copy/日本") as second:
        sent = first.post("/v1/import", content=lines.encode())
        assert sent.json() == {"traces": len(RICH), "created": len(RICH)}, sent.text
        exports.append(first.get("/v1/export"))
        assert exports[0].headers["content-type"].startswith(NDJSON)
        copied = second.post("/v1/import", content=exports[0].content)
        assert copied.json() == {"traces": len(RICH), "created": len(RICH)}
        exports.append(second.get("/v1/export"))
        assert second.post("/v1/import", content=exports[0].content).json()["created"] == 0
        third = httpx.Client(base_url=server.url, headers={"Zeromem-Scope": quote(scope + "3")})
        with third:
            acks = json_lines(third.post("/v1/traces/stream", content=exports[0].content).content)
            assert all(ack["created"] for ack in acks)
            assert len(acks) == len(RICH)
            exports.append(third.get("/v1/export"))
    parsed = [
        [{k: v for k, v in one.items() if k != "ingested_at"} for one in json_lines(e.content)]
        for e in exports
    ]
    assert parsed[0] == parsed[1] == parsed[2]
    for given, found in zip(RICH, parsed[0], strict=True):
        assert {k: found[k] for k in given} == given
    shown = json.loads(httpx.get(f"{server.url}/v1/traces",
                                 headers={"Zeromem-Scope": quote(scope)}).content)  # fmt: skip
    assert [t["text"] for t in shown["traces"]] == [one["text"] for one in RICH]


def test_acknowledgements_come_while_the_body_is_still_sent(server, scope):
    """Each line's is read before the next is sent, so none can wait for the body's end."""
    head = (
        f"POST /v1/traces/stream HTTP/1.1\r\nHost: 127.0.0.1\r\nZeromem-Scope: {quote(scope)}\r\n"
        "Transfer-Encoding: chunked\r\nContent-Type: application/x-ndjson\r\n\r\n"
    ).encode()
    with server.connect() as connection, connection.makefile("rb") as replies:
        connection.sendall(head)
        for i in range(5):
            line = json.dumps({"text": f"line {i}", "id": str(i)}).encode() + b"\n"
            # In two chunks: a line's end is no chunk's.
            for part in (line[:9], line[9:]):
                connection.sendall(b"%x\r\n%s\r\n" % (len(part), part))
            if i == 0:
                assert replies.readline() == b"HTTP/1.1 200 OK\r\n"
                while replies.readline() != b"\r\n":
                    pass
            size = int(replies.readline(), 16)
            assert json.loads(replies.read(size)) == {"id": str(i), "lsn": i + 1, "created": True}
            replies.readline()
            with server.memories.use(scope) as memory:
                assert memory.stats()["traces"] == i + 1
        connection.sendall(b"0\r\n\r\n")
        assert replies.readline() == b"0\r\n"


def test_a_bad_line_ends_a_stream_with_a_problem_that_names_it(client):
    body = b'{"text": "one"}\n\n{"text": "two"}\n{"txet": 3}\n{"text": "four"}\n'
    reply = client.post("/v1/traces/stream", content=body)
    # All came in one piece, of which nothing was stored: the status says so.
    assert "line 4" in check_problem(reply, 422, "invalid-input")["detail"]
    assert client.get("/v1/stats").json()["traces"] == 0

    def pieces():
        yield b'{"text": "one"}\n'
        yield b'{"text": "two"}\n'
        while client_of_its_own.get("/v1/stats").json()["traces"] < 2:
            pass
        yield b"[]\n"

    with httpx.Client(base_url=client.base_url, headers=client.headers) as client_of_its_own:
        reply = client.post("/v1/traces/stream", content=pieces())
    assert reply.status_code == 200
    *acks, problem = json_lines(reply.content)
    assert [ack["lsn"] for ack in acks] == [1, 2]
    assert problem["status"] == 422
    assert "line 3" in problem["detail"]


def test_metadata_that_is_nested_too_deeply_is_told_by_what_was_sent(client):
    sent = f'{{"text": "x", "metadata": {{"a": {"[" * 101 + "]" * 101}}}}}'
    one = client.post("/v1/traces", content=sent, headers={"Content-Type": "application/json"})
    told = check_problem(one, 422, "invalid-input")["detail"]
    assert re.match(r"metadata\['a'\]\[0\].* nested more than 100 levels", told)
    reply = client.post(
        "/v1/traces/stream", content=f'{{"text": "y"}}\n\n{{"text": "z"}}\n{sent}\n'
    )
    assert check_problem(reply, 422, "invalid-input")["detail"] == f"line 4: {told}"
    with_others = f'{{"traces": [{{"text": "y"}}, {sent}]}}'
    headers = {"Content-Type": "application/json"}
    reply = client.post("/v1/traces/batch", content=with_others, headers=headers)
    assert check_problem(reply, 422, "invalid-input")["detail"] == f"trace 1: {told}"


def test_a_conflict_in_the_first_lines_of_a_stream_has_its_status(client):
    client.post("/v1/traces", json={"text": "one", "id": "taken"})
    reply = client.post("/v1/traces/stream", content=b'{"text": "two", "id": "taken"}\n')
    check_problem(reply, 409, "duplicate-id")


@pytest.mark.parametrize(
    "line", [b"{", b"[1]", b'"x"', b"nul", b"\xff\xfe", b'{"text": 1}', b'{"text": ""}',
             b'{"text": "x", "time": "yesterday"}', b'{"text": "x", "role": "god"}',
             b'{"text": "x", "metadata": {"a": NaN}}', b'{"text": "x", "metadata": {"a": 1e999}}',
             b"[" * 100_000, b'{"text": "x", "id": 1' + b"0" * 6000 + b"}"],
    ids=lambda line: line[:20].decode("latin-1"),
)  # fmt: skip
@pytest.mark.parametrize("path", ["/v1/traces/stream", "/v1/import"])
def test_lines_that_cannot_be_stored(client, path, line):
    body = check_problem(client.post(path, content=line + b"\n"), 422, "invalid-input")
    assert "/tmp" not in body["detail"]
    assert "upload" not in body["detail"]
    assert client.get("/v1/stats").json()["traces"] == 0


def test_an_empty_stream_import_and_export(client):
    assert client.post("/v1/traces/stream", content=b"").content == b""
    assert client.post("/v1/traces/stream", content=b"\n \n").content == b""
    assert client.post("/v1/import", content=b"").json() == {"traces": 0, "created": 0}
    reply = client.get("/v1/export")
    assert (reply.status_code, reply.content) == (200, b"")


def test_import_reads_a_chat_export_and_names_formats(client):
    chat = json.dumps([{"role": "user", "content": "I moved."}, {"role": "assistant",
                        "content": "Where to?"}])  # fmt: skip
    done = client.post("/v1/import", content=chat.encode(), params={"format": "messages"})
    if done.status_code == 422:  # the formats' names are the importers' own
        done = client.post("/v1/import", content=chat.encode())
    assert done.json() == {"traces": 2, "created": 2}
    wrong = client.post("/v1/import", content=chat.encode(), params={"format": "pickle"})
    assert check_problem(wrong, 422, "invalid-input")["errors"][0]["field"] == "format"


def test_an_export_of_many_traces_is_whole(client):
    sent = "".join(json.dumps({"text": f"number {i}"}) + "\n" for i in range(1500))
    acks = json_lines(client.post("/v1/traces/stream", content=sent.encode()).content)
    assert [ack["lsn"] for ack in acks] == list(range(1, 1501))
    with client.stream("GET", "/v1/export") as reply:
        found = [json.loads(line)["text"] for line in reply.iter_lines()]
    assert found == [f"number {i}" for i in range(1500)]


# ---- pages


def test_a_cursor_goes_on_while_traces_come_and_go(client):
    added = client.post(
        "/v1/traces/batch", json={"traces": [{"text": f"t{i}"} for i in range(10)]}
    ).json()["added"]
    page = client.get("/v1/traces", params={"limit": 4}).json()
    assert [t["text"] for t in page["traces"]] == ["t0", "t1", "t2", "t3"]
    # The last shown one goes, one before it, and one to come; another is added.
    client.post("/v1/forget", json={"ids": [added[i]["id"] for i in (1, 3, 5)]})
    client.post("/v1/traces", json={"text": "t10"})
    seen = []
    while page["cursor"]:
        page = client.get("/v1/traces", params={"limit": 3, "cursor": page["cursor"]}).json()
        seen += [t["text"] for t in page["traces"]]
    assert seen == ["t4", "t6", "t7", "t8", "t9", "t10"]


def test_pages_take_filters_and_refuse_others_cursors(client):
    add_story(client)
    got = client.get("/v1/traces", params={"sessions": ["s1", "s3"], "speakers": "ANA",
                                           "descending": "true"}).json()  # fmt: skip
    assert [t["text"] for t in got["traces"]] == [STORY[i].text for i in (5, 2, 0)]
    roles = client.get("/v1/traces", params={"roles": "document"}).json()["traces"]
    assert [t["title"] for t in roles] == ["Lisbon", "Tagus"]
    cursor = client.get("/v1/traces", params={"limit": 2}).json()["cursor"]
    for params in ({"order": "time"}, {"descending": "true"}):
        wrong = client.get("/v1/traces", params={"cursor": cursor, **params})
        assert "cursor" in check_problem(wrong, 422, "invalid-input")["detail"]


@pytest.mark.parametrize(
    "params",
    [{"cursor": "x"}, {"cursor": "é"}, {"cursor": "A" * 99}, {"cursor": "A" * 101}, {"cursor": ""},
     {"cursor": "bG9nKzowOjA_"}, {"limit": 0}, {"limit": 1001}, {"limit": "ten"}, {"limit": 1e30},
     {"order": "up"}, {"descending": "maybe"}, {"roles": "god"}, {"session": "s1"},
     {"after": "soon"},
     {"before": "2026-05-03T10:00"}, {"after": "x" * 70}],
    ids=str,
)  # fmt: skip
def test_bad_parameters_of_a_page(client, params):
    body = check_problem(client.get("/v1/traces", params=params), 422, "invalid-input")
    assert next(iter(params)) in json.dumps(body) or "time" in body["detail"]


# ---- methods and paths


@pytest.mark.parametrize("method", ["DELETE", "PUT", "PATCH", "HEAD", "OPTIONS", "TRACE"])
def test_other_methods_are_named_wrong(client, method):
    reply = client.request(method, "/v1/traces/batch")
    assert reply.status_code == 405
    assert reply.headers["allow"] == "POST"
    if method != "HEAD":
        check_problem(reply, 405, "method-not-allowed")


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/v1",
        "/v1/",
        "/v1/traces/",
        "/v1//traces",
        "/v2/traces",
        "/v1/traces/../stats",
        "/v1/tracesx",
        "/V1/traces",
        "/docsx",
        "/healthz/",
        "/v1/%2e%2e/stats",
        "/v1/traces%00",
    ],
)
def test_other_paths_are_not_there(server, path):
    got = server.raw(
        f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode()
    )
    assert got.startswith(b"HTTP/1.1 404"), got[:200]
    # Below /v1 it may be a client of OpenAI's that asks.
    is_problem = b"application/problem+json" in got
    assert is_problem != (b'{"error":{"message":' in got)
    assert is_problem == (not path.startswith("/v1/") or path.startswith("/v1/traces/"))


# ---- bodies that cannot be used

BODIES = {
    "/v1/traces": {"text": "x"},
    "/v1/traces/batch": {"traces": [{"text": "x"}]},
    "/v1/retrieve": {"question": "x"},
    "/v1/retrieve/batch": {"questions": ["x"]},
    "/v1/explain": {"question": "x"},
    "/v1/answer": {"question": "x"},
    "/v1/forget": {"session": "x"},
}
BROKEN = {
    "nothing": b"", "brace": b"{", "text": b"hello", "NaN alone": b"NaN", "array": b"[]",
    "string": b'"x"', "null": b"null", "number": b"1", "latin-1": b'{"text": "\xe9"}',
    "deep": b"[" * 200_000,
    "deep object": b'{"a":' * 100_000, "long number": b'{"k": 1' + b"0" * 10_000 + b"}",
    "two": b"{}{}", "comment": b"{} // x", "single quotes": b"{'text': 'x'}",
}  # fmt: skip


@pytest.mark.parametrize("path", BODIES)
def test_bodies_that_are_no_json_object(client, path):
    for name, broken in BROKEN.items():
        reply = client.post(path, content=broken, headers={"Content-Type": "application/json"})
        assert reply.status_code in (400, 422), name
        kind = "bad-request" if reply.status_code == 400 else "invalid-input"
        told = json.dumps(check_problem(reply, reply.status_code, kind))
        assert "JSON" in told or "body" in told or "field" in told, name
    assert client.get("/v1/stats").json()["traces"] == 0


@pytest.mark.parametrize("path", BODIES)
def test_a_body_of_another_type_is_refused(client, path):
    # A page of another site can send these without asking the browser's leave first.
    for kind in ("text/plain", "application/x-www-form-urlencoded", "text/html", "",
                 "multipart/form-data; boundary=x"):  # fmt: skip
        reply = client.post(path, content=json.dumps(BODIES[path]), headers={"Content-Type": kind})
        check_problem(reply, 415, "unsupported-media-type")
    assert client.get("/v1/stats").json()["traces"] == 0


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "application/JSON",
                                  "application/problem+json"])  # fmt: skip
def test_json_by_its_other_names(client, kind):
    reply = client.post("/v1/traces", content=b'{"text": "x"}', headers={"Content-Type": kind})
    assert reply.status_code == 201


def wrong_fields():
    """Every field of every body with values of each wrong type, from the schema itself."""
    from zeromem.server import schemas

    models = {
        "/v1/traces": schemas.TraceIn, "/v1/traces/batch": schemas.TracesIn,
        "/v1/retrieve": schemas.QuestionIn, "/v1/retrieve/batch": schemas.QuestionsIn,
        "/v1/explain": schemas.QuestionIn, "/v1/answer": schemas.AnswerIn,
        "/v1/forget": schemas.ForgetIn,
    }  # fmt: skip
    samples = [
        "\0 nothing \n", "", 7, -1, 1.5, True, {"a": 1}, [], [["x"]], [1], None, 10**30, "x" * 5000
    ]  # fmt: skip
    found = []
    for path, model in models.items():
        for name in model.model_fields:
            wrong = [v for v in samples if not _fits(model, BODIES[path], name, v)]
            found.append(pytest.param(path, name, wrong, id=f"{path[4:]} {name}"))
        unknown = [pytest.param(path, n, [1], id=f"{path[4:]} {n}") for n in ("Text", "__class__")]
        found += unknown
    return found


def _fits(model, body, name, value):
    from pydantic import ValidationError

    try:
        model.model_validate({**body, name: value})
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize(("path", "name", "wrong"), wrong_fields())
def test_a_field_of_a_wrong_type_is_named_with_its_value(client, path, name, wrong):
    assert wrong
    for value in wrong:
        reply = client.post(path, json={**BODIES[path], name: value})
        body = check_problem(reply, 422, "invalid-input")
        part = body["errors"][0]
        assert part["field"].split(".")[0] == name
        assert repr(value)[:20] in part["value"] or part["field"] != name
        assert name in body["detail"]
    assert client.get("/v1/stats").json()["traces"] == 0


# Types fit, values do not: (path, field, value).
WRONG_VALUES = [
    ("/v1/traces", "text", "  \n "), ("/v1/traces", "time", "yesterday"),
    ("/v1/traces", "time", "2026-05-03T10:00"), ("/v1/traces", "time", "2026-13"),
    ("/v1/traces", "time", "0000"), ("/v1/retrieve", "question", " \t"),
    ("/v1/retrieve", "k", 1001), ("/v1/retrieve", "as_of", "later"),
    ("/v1/retrieve", "after", "2026-02-30"), ("/v1/retrieve", "before", "2026-05-03T25:00Z"),
    ("/v1/retrieve", "reference_time", "now"), ("/v1/retrieve/batch", "questions", ["x", " "]),
    ("/v1/explain", "question", "x" * 32_769), ("/v1/answer", "question", "x" * 32_769),
    ("/v1/retrieve/batch", "questions", ["x"] * 257), ("/v1/forget", "after", "soon"),
    ("/v1/traces/batch", "traces", [{"text": "x"}] * 1001),
    ("/v1/forget", "everything", True),  # beside a session: which is meant?
]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "name", "value"),
    WRONG_VALUES,
    ids=[f"{p[4:]} {n} {str(v)[:20]!r}" for p, n, v in WRONG_VALUES],
)
def test_a_value_that_cannot_be_used_is_told(client, path, name, value):
    reply = client.post(path, json={**BODIES[path], name: value})
    body = check_problem(reply, 422, "invalid-input")
    named = {"questions": "question"}.get(name, name)
    assert named in body["detail"]


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e999", '"\\ud800"',
                                   '{"\\ud800": 1}', "[" * 300 + "]" * 300,
                                   '{"a":' * 2000 + "1" + "}" * 2000])  # fmt: skip
def test_metadata_that_json_cannot_hold_is_refused_or_kept(client, value):
    sent = f'{{"text": "x", "metadata": {{"a": {value}}}}}'.encode()
    reply = client.post("/v1/traces", content=sent, headers={"Content-Type": "application/json"})
    if reply.status_code == 201:
        kept = client.get("/v1/traces")
        assert json.loads(kept.content)["traces"][0]["metadata"] == json.loads(sent)["metadata"]
        exported = client.get("/v1/export")
        assert json.loads(exported.content)["metadata"] == json.loads(sent)["metadata"]
    else:
        assert reply.status_code in (400, 422)
        kind = "bad-request" if reply.status_code == 400 else "invalid-input"
        check_problem(reply, reply.status_code, kind)
    if value in ("NaN", "Infinity", "-Infinity", "1e999"):
        assert reply.status_code == 422


@pytest.mark.parametrize("field", ["text", "id", "speaker", "session", "title", "source"])
def test_lone_surrogates_and_nul_in_fields(client, field):
    for odd in ("a\ud800b", "a\0b", "\U0010ffff", "‮", "é", "e\u0301"):
        sent = {"text": "x", "id": f"id of {odd}", field: odd}
        reply = client.post("/v1/traces", content=json.dumps(sent),
                            headers={"Content-Type": "application/json"})  # fmt: skip
        if "\ud800" in odd:
            check_problem(reply, 400, "bad-request")
            continue
        assert reply.status_code == 201, reply.text
        found = client.get("/v1/trace", params={"id": reply.json()["id"]})
        assert found.json()["traces"][0][field] == odd


def test_a_question_with_odd_characters(client):
    add_story(client)
    for odd in ("a\0b", "‮", "'; DROP TABLE traces; --", "💥" * 1000, '"unbalanced', "%s %(x)s {}"):
        assert client.post("/v1/retrieve", json={"question": odd}).status_code == 200
    lone = client.post("/v1/retrieve", content=b'{"question": "\\ud800"}',
                       headers={"Content-Type": "application/json"})  # fmt: skip
    check_problem(lone, 400, "bad-request")


@pytest.mark.slow
def test_a_text_of_ten_megabytes(client):
    # Of few words: what is tried is the way there and back, and not the models.
    text = "Ana saw the river. " + "~" * (10 * 1024 * 1024)
    assert client.post("/v1/traces", json={"text": text, "id": "long"}).status_code == 201
    with client.stream("GET", "/v1/export") as reply:
        assert json.loads(reply.read())["text"] == text


# ---- the scope's header


@pytest.mark.parametrize(
    "name",
    [
        "..",
        ".",
        "/",
        "a/b",
        "../../etc/passwd",
        "a b",
        " a ",
        "👩‍👩‍👧",
        "%",
        "%2e%2e",
        "a\0b",
        "\n",
        "a\r\nX-Evil: 1",
        "x" * 512,
        "日" * 512,
        "con",
        "ａ",
        "é",
        "e\u0301",
        "'; --",
        "*",
        "?",
        "\\",
    ],
)
def test_scope_names_are_data(server, name):
    with server.client(f"data {name}"[:512]) as client:
        text = f"{name} is here"
        assert client.post("/v1/traces", json={"text": text}).status_code == 201
        assert [t["text"] for t in client.get("/v1/traces").json()["traces"]] == [text]
        assert client.get("/v1/stats").json()["scope"] == f"data {name}"[:512]
        assert f"data {name}"[:512] in client.get("/v1/scopes").json()["scopes"]


@pytest.mark.parametrize("name", ["..", ".", "/", "//", "a/b", "%2F", "\0", " "])
def test_bare_scope_names_are_data_too(server, name):
    with server.client(name) as client:
        client.post("/v1/forget", json={"everything": True})
        assert client.post("/v1/traces", json={"text": f"of {name}"}).status_code == 201
        assert len(client.get("/v1/traces").json()["traces"]) == 1


@pytest.mark.parametrize(
    "raw", [b"", b"   ", b"%", b"%zz", b"a%2", b"%ff", b"%ed%a0%80", b"\xe9", b"%c3", b"x" * 513,
            b"%f4%90%80%80"], ids=repr,
)  # fmt: skip
def test_scope_headers_that_name_nothing(server, raw):
    got = server.raw(b"GET /v1/stats HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
                     b"Zeromem-Scope: " + raw + b"\r\n\r\n")  # fmt: skip
    assert got.startswith(b"HTTP/1.1 422"), got[:300]
    body = json.loads(got.partition(b"\r\n\r\n")[2])
    assert body["errors"][0]["field"] == "Zeromem-Scope"


def test_a_scope_that_is_named_twice_is_no_scope(server):
    for other in (b"a", b"b"):
        got = server.raw(b"GET /v1/stats HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
                         b"Zeromem-Scope: a\r\nzeromem-scope: " + other + b"\r\n\r\n")  # fmt: skip
        assert got.startswith(b"HTTP/1.1 422"), got[:300]


def test_control_characters_in_a_header_are_no_request(server):
    for raw in (b"a\0b", b"a\x01b", b"a\x7fb"):
        got = server.raw(b"GET /v1/stats HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
                         b"Zeromem-Scope: " + raw + b"\r\n\r\n")  # fmt: skip
        assert got.startswith((b"HTTP/1.1 400", b"HTTP/1.1 422", b"HTTP/1.1 200")), got[:300]
    # Whatever it was taken for, it was nobody's line end.
    assert b"X-Evil" not in got


def test_a_scope_is_named_by_default(server):
    with server.client() as client:
        assert client.get("/v1/stats").json()["scope"] == "default"


def test_another_host_is_told_that_it_is_not_meant():
    with running(settings=Settings(hosts=LOOPBACK)) as server:
        reply = httpx.get(f"{server.url}/v1/stats", headers={"Host": "evil.example"})
        check_problem(reply, 421, "misdirected")
        for host in ("localhost:80", "127.0.0.1", "[::1]:8080", "LOCALHOST"):
            assert httpx.get(f"{server.url}/v1/stats", headers={"Host": host}).status_code == 200


def test_requests_at_once_from_many_threads(server, scope):
    with server.client(scope) as client:
        add_story(client)
        expected = client.post("/v1/retrieve", json={"question": "Who founded Acme?"}).json()
        wrong = []

        def ask():
            for _ in range(5):
                got = client.post("/v1/retrieve", json={"question": "Who founded Acme?"}).json()
                if got["evidence"] != expected["evidence"]:
                    wrong.append(got)

        threads = [threading.Thread(target=ask) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong


def test_an_import_has_the_source_that_is_named_and_else_none(client):
    chat = json.dumps([{"role": "user", "content": "Tofu is my dog."}])
    for params, source in (({}, None), ({"source": "mail"}, "mail")):
        scope = {"Zeromem-Scope": f"import-{source}"}
        done = client.post("/v1/import", content=chat, params=params, headers=scope)
        assert done.json() == {"traces": 1, "created": 1}
        (trace,) = client.get("/v1/traces", headers=scope).json()["traces"]
        assert trace["source"] == source


@pytest.mark.parametrize("name", ["Zeromem-Session", "Zeromem-Speaker", "Zeromem-K"])
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [("POST", "/v1/traces", {"text": "x"}), ("POST", "/v1/retrieve", {"question": "x"}),
     ("GET", "/v1/traces", None), ("GET", "/v1/stats", None), ("POST", "/v1/answer", {})],
)  # fmt: skip
def test_a_header_of_chats_is_refused_elsewhere(server, method, path, body, name):
    with server.client() as client:
        reply = client.request(method, path, json=body, headers={name: "1"})
    problem = check_problem(reply, 422, "invalid-input")
    assert problem["errors"][0]["field"] == name.lower()
