"""The OpenAI-compatible reader against a real local server that speaks, stalls and misbehaves."""

from __future__ import annotations

import json
import socket
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from zeromem.answer import readers
from zeromem.errors import InvalidInputError, ReaderError
from zeromem.types import Evidence, QueryProfile, TokenUsage, Trace

openai = pytest.importorskip("openai", reason="the official client is an optional extra")

EVIDENCE = [
    Evidence("His dog is Biscuit.", Trace("His dog is Biscuit.", id="a"), 1, 0, 19, "main", 1, 1,
             1, 1, 1, (), (), "", 4),
    Evidence("It rained.", Trace("It rained.", id="b"), 2, 0, 10, "main", 1, 1, 2, 2, 2, (), (),
             "", 2),
]  # fmt: skip
QUESTION = "What is the dog called?"
REPLY = "Answer: Biscuit\nSources: 1"
USAGE = {"prompt_tokens": 111, "completion_tokens": 7, "total_tokens": 118}


class Server:
    """Answers each request by the next step of a script; the last step repeats."""

    def __init__(self, *script):
        self.script = list(script)
        self.requests = []
        self.headers = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.requests.append(body)
                outer.headers.append({k.lower(): v for k, v in self.headers.items()})
                step = outer.script[min(len(outer.requests), len(outer.script)) - 1]
                with suppress(BrokenPipeError, ConnectionResetError):
                    step(self, body)

            def log_message(self, *args):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/v1"

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.http.shutdown()
        self.http.server_close()


def send(handler, status, body, content_type="application/json", **headers):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    handler.send_response(status)
    handler.send_header("Content-Type", content_type)
    handler.send_header("Content-Length", str(len(data)))
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(data)


def good(handler, body, text=REPLY):
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    send(handler, 200, {"id": "c", "object": "chat.completion", "created": 1, "model": "m",
                        "choices": [choice], "usage": USAGE})  # fmt: skip


def failing(status, message="no", **headers):
    return lambda h, body: send(h, status, {"error": {"message": message}}, **headers)


def garbage(handler, body):
    send(handler, 200, b"<html>proxy says hi</html>", "text/html")


def truncated_json(handler, body):
    send(handler, 200, b'{"choices": [', "application/json")


def other_json(handler, body):
    send(handler, 200, {"hello": "world"})


def hang(handler, body):
    time.sleep(3)


def drop(handler, body):
    handler.close_connection = True
    handler.connection.shutdown(socket.SHUT_RDWR)


def chunk(delta, finish=None, usage=None, choices=True):
    choice = [{"index": 0, "delta": delta, "finish_reason": finish}] if choices else []
    data = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
            "choices": choice, "usage": usage}  # fmt: skip
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def streaming(*, end=True, usage=True, pause=0.0):
    def step(handler, body):
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.send_header("Connection", "close")
        handler.end_headers()
        handler.close_connection = True
        parts = [chunk({"role": "assistant", "content": ""})]
        parts += [chunk({"content": REPLY[i : i + 5]}) for i in range(0, len(REPLY), 5)]
        if end:
            parts.append(chunk({}, "stop"))
            if usage and body.get("stream_options", {}).get("include_usage"):
                parts.append(chunk({}, usage=USAGE, choices=False))
            parts.append(b"data: [DONE]\n\n")
        for part in parts:
            handler.wfile.write(part)
            handler.wfile.flush()
            time.sleep(pause)

    return step


def ask(server, **options):
    options = {"api_key": "sk-secret", "backoff": 0.001, "timeout": 5.0} | options
    reader = readers.openai("m", base_url=server.url, **options)
    return reader.read(QUESTION, EVIDENCE, profile=QueryProfile(QUESTION))


def test_answer_sources_and_usage_come_back():
    with Server(good) as server:
        draft = ask(server)
    assert (draft.text, draft.cited, draft.usage) == ("Biscuit", (0,), TokenUsage(111, 7, 1))
    (request,) = server.requests
    assert request["model"] == "m"
    assert request["temperature"] == 0
    assert [m["role"] for m in request["messages"]] == ["system", "user"]
    assert "| His dog is Biscuit." in request["messages"][1]["content"]
    assert server.headers[0]["authorization"] == "Bearer sk-secret"


def test_streaming_joins_the_events_and_meters_the_tokens():
    with Server(streaming()) as server:
        draft = ask(server, stream=True)
    assert (draft.text, draft.cited, draft.usage) == ("Biscuit", (0,), TokenUsage(111, 7, 1))
    assert server.requests[0]["stream_options"] == {"include_usage": True}


def test_a_server_that_refuses_stream_options_still_answers():
    def refuse(handler, body):
        step = (
            failing(400, "unknown field stream_options")
            if "stream_options" in body
            else streaming()
        )
        step(handler, body)

    with Server(refuse) as server:
        draft = ask(server, stream=True)
    assert draft.text == "Biscuit"
    assert draft.usage == TokenUsage(0, 0, 1)
    assert "stream_options" not in server.requests[1]


@pytest.mark.parametrize(
    "bad",
    [failing(429, Retry_After="0"), failing(500), failing(503), failing(408), garbage,
     truncated_json, other_json, drop],
)  # fmt: skip
def test_passing_failures_are_retried(bad):
    with Server(bad, bad, good) as server:
        draft = ask(server)
    assert draft.text == "Biscuit"
    assert draft.usage == TokenUsage(111, 7, 3)
    assert len(server.requests) == 3


def test_a_stream_that_breaks_off_is_retried_and_never_half_an_answer():
    with Server(streaming(end=False), streaming()) as server:
        draft = ask(server, stream=True)
    assert draft.text == "Biscuit"
    assert draft.usage.calls == 2


def test_a_hanging_server_times_out_and_says_so():
    with Server(hang) as server, pytest.raises(ReaderError, match=r"'m' at http.*timeout") as error:
        ask(server, timeout=0.2, max_retries=1)
    assert "2 requests" in str(error.value)


def test_a_stream_that_drips_past_the_timeout_is_given_up():
    with Server(streaming(pause=0.1)) as server, pytest.raises(ReaderError, match="longer than"):
        ask(server, stream=True, timeout=0.3, max_retries=0)


@pytest.mark.parametrize(
    ("status", "hint"), [(400, "accept"), (401, "api_key"), (403, "access"), (404, "base_url")]
)
def test_refusals_are_not_retried_and_name_the_fix(status, hint):
    with Server(failing(status)) as server, pytest.raises(ReaderError, match=hint):
        ask(server)
    assert len(server.requests) == 1


def test_after_the_last_retry_the_error_names_the_endpoint_and_never_the_key():
    with Server(failing(500, "boom")) as server, pytest.raises(ReaderError) as error:
        ask(server, max_retries=2)
    assert len(server.requests) == 3
    assert server.url in str(error.value)
    assert "500" in str(error.value)
    assert "sk-secret" not in str(error.value)


def test_retry_after_is_waited_for():
    slept = []
    with Server(failing(429, Retry_After="7"), good) as server:
        reader = readers.openai("m", base_url=server.url, api_key="k", backoff=0.001)
        import zeromem.answer.openai_reader as module

        real, module.time.sleep = module.time.sleep, slept.append
        try:
            reader.read(QUESTION, EVIDENCE, profile=QueryProfile(QUESTION))
        finally:
            module.time.sleep = real
    assert slept == [7.0]


def test_an_unreachable_server_is_a_reader_error():
    with Server(good) as server:
        url = server.url
    reader = readers.openai("m", base_url=url, api_key="k", max_retries=1, backoff=0.001)
    with pytest.raises(ReaderError, match="check that the server runs"):
        reader.read(QUESTION, EVIDENCE, profile=QueryProfile(QUESTION))


def test_a_missing_key_is_named_before_any_request(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(ReaderError, match="OPENAI_API_KEY"):
        readers.openai("m")
    readers.openai("m", base_url="http://127.0.0.1:1/v1")  # a local server needs none


@pytest.mark.parametrize("options", [{"timeout": 0}, {"max_retries": -1}, {"backoff": -1}])
def test_bad_options_are_refused(options):
    with pytest.raises(InvalidInputError, match=next(iter(options))):
        readers.openai("m", base_url="http://127.0.0.1:1/v1", **options)
    with pytest.raises(InvalidInputError, match="model"):
        readers.openai("", base_url="http://127.0.0.1:1/v1")
