"""``/v1/answer`` by a language model: streamed, calibrated, cancelled, metered."""

from __future__ import annotations

import json
import re
import time
from urllib.parse import quote

import httpx
import pytest
from chat_server import (
    REPLY,
    USAGE,
    Server,
    calling_tools,
    failing,
    garbage,
    saying,
    silent,
)
from server_support import running

from zeromem.server.settings import Settings, UpstreamSettings

QUESTION = {"question": "What is Ana's dog called?"}


@pytest.fixture(scope="module")
def upstream():
    with Server(saying(REPLY)) as server:
        yield server


@pytest.fixture(scope="module")
def place(upstream):
    models = UpstreamSettings(url=upstream.url, reader_model="reader", timeout=8.0, gap_timeout=2.0)
    with running(settings=Settings(upstream=models)) as server:
        for scope in ("ana", "näme/1"):
            with server.memories.use(scope) as memory:
                memory.add("My dog is called Biscuit.", speaker="Ana", time="2026-05-03", id="dog")
                memory.add("It rained in Porto.", speaker="Ben", id="rain")
        yield server


@pytest.fixture
def client(place):
    headers = {"Zeromem-Scope": "ana"}
    with httpx.Client(base_url=place.url, headers=headers, timeout=20) as client:
        yield client


def script(upstream, *steps):
    upstream.script = list(steps)
    upstream.requests.clear()
    upstream.left.clear()


def ask(client, **more):
    return client.post("/v1/answer", json=QUESTION | more)


def told(reply):
    """Read server-sent events."""
    assert reply.headers["content-type"].startswith("text/event-stream")
    found = re.findall(r"event: (\w+)\ndata: (.*)\n\n", reply.text)
    return [(name, json.loads(data)) for name, data in found]


@pytest.mark.model
def test_the_answer_is_the_models_calibrated_and_cited(client, upstream):
    script(upstream, saying(REPLY))
    answer = ask(client).json()
    assert (answer["answer"], answer["draft"]) == ("Biscuit", "Biscuit")
    assert [c["id"] for c in answer["citations"]] == [answer["evidence"][0]["id"]] == ["dog"]
    assert answer["usage"] == {
        "prompt": USAGE["prompt_tokens"], "completion": USAGE["completion_tokens"],
        "calls": 1, "cached": 0,
    }  # fmt: skip
    (sent,) = upstream.requests
    assert (sent["model"], sent["temperature"], sent["max_tokens"]) == ("reader", 0.0, 512)
    assert [m["role"] for m in sent["messages"]] == ["system", "user"]
    assert "| My dog is called Biscuit." in sent["messages"][1]["content"]


@pytest.mark.model
def test_events_come_in_order_and_as_they_are_made(client, upstream):
    script(upstream, saying("Answer: Bis", "cuit\n", "Sources: 1", pause=0.2))
    arrived = []
    with client.stream("POST", "/v1/answer", json=QUESTION | {"stream": True}) as reply:
        for line in reply.iter_lines():
            if line.startswith("event: "):
                arrived.append((line[7:], time.monotonic()))
    assert [name for name, _ in arrived] == ["evidence", "delta", "delta", "delta", "answer"]
    assert arrived[3][1] - arrived[1][1] > 0.25
    events = told(ask(client, stream=True))
    assert "".join(e["text"] for name, e in events if name == "delta") == REPLY
    assert events[-1][1]["answer"] == "Biscuit"
    assert [c["id"] for c in events[-1][1]["citations"]] == ["dog"]


@pytest.mark.model
def test_tokens_are_metered_under_answer(client, upstream):
    def spent(stage):
        text = client.get("/metrics").text
        return float(re.search(rf'completion",stage="{stage}"}} (\S+)', text).group(1))

    script(upstream, saying(REPLY))
    before = spent("answer")
    ask(client)
    ask(client, stream=True)
    assert spent("answer") - before == 2 * USAGE["completion_tokens"]
    assert spent("proxy") == 0


@pytest.mark.model
def test_what_a_model_does_not_know_is_left_out(place, upstream, client):
    def reasoning(handler, body):
        for name in ("temperature", "max_tokens"):
            if name in body:
                failing(400, f"Unsupported parameter: '{name}'")(handler, body)
                return
        saying(REPLY)(handler, body)

    models = UpstreamSettings(url=upstream.url, reader_model="thinker")
    script(upstream, reasoning)
    with running(settings=Settings(upstream=models)) as other:
        with other.memories.use("default") as memory:
            memory.add("My dog is called Biscuit.", speaker="Ana")
        for _ in range(2):
            reply = httpx.post(f"{other.url}/v1/answer", json=QUESTION, timeout=20)
            assert reply.json()["answer"] == "Biscuit"
    assert len(upstream.requests) == 4  # each is refused once


def test_no_model_is_asked_where_there_is_no_evidence(client, upstream):
    script(upstream, saying(REPLY))
    client.headers["Zeromem-Scope"] = "nobody"
    assert ask(client).json()["answer"] == ""
    assert [name for name, _ in told(ask(client, stream=True))] == ["evidence", "answer"]
    assert upstream.requests == []


def test_evidence_is_of_the_scope_alone(client, upstream):
    script(upstream, saying(REPLY))
    client.headers["Zeromem-Scope"] = quote("näme/2", safe="")
    ask(client)
    assert upstream.requests == []


@pytest.mark.parametrize(
    ("step", "status"),
    [
        (failing(400, "context too long"), 502),
        (failing(401, "wrong key"), 502),
        (failing(429, "slow down", Retry_After="60"), 503),
        (failing(500, "oops"), 502),
        (garbage, 502),
        (saying("Answer: Bis", "cuit", broken_after=2), 502),
        (saying("", finish="length"), 502),
        (saying("Answer:", finish="length"), 502),
        (silent(5), 504),
    ],
)
def test_an_upstream_that_fails_is_a_problem(client, upstream, step, status):
    script(upstream, step)
    reply = ask(client)
    assert reply.status_code == status, reply.text
    assert reply.headers["content-type"] == "application/problem+json"
    problem = reply.json()
    assert (problem["type"], problem["status"]) == ("urn:zeromem:problem:upstream", status)
    events = told(ask(client, stream=True))
    assert events[0][0] == "evidence"
    assert events[-1] == ("problem", problem)


def test_a_reply_of_tool_calls_alone_is_no_answer(client, upstream):
    script(upstream, calling_tools)
    assert ask(client).json()["answer"] == ""


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_ends_the_models_work(place, upstream, stream):
    script(upstream, saying(*["word "] * 500, pause=0.02))
    headers = {"Zeromem-Scope": "ana"}
    with httpx.Client(base_url=place.url, headers=headers, timeout=0.7) as client:
        if stream:
            body = QUESTION | {"stream": True}
            with client.stream("POST", "/v1/answer", json=body) as reply:
                for line in reply.iter_lines():
                    if line == "event: delta":
                        break
        else:
            with pytest.raises(httpx.ReadTimeout):
                client.post("/v1/answer", json=QUESTION)
        gone = time.monotonic()
    end = gone + 5
    while not upstream.left and time.monotonic() < end:
        time.sleep(0.01)
    assert upstream.left
    assert upstream.left[0] - gone < 1
