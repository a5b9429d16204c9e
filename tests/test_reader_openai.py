"""The OpenAI-compatible reader against a real local server that speaks, stalls and misbehaves."""

from __future__ import annotations

import json

import pytest
from chat_server import (
    REPLY,
    USAGE,
    Server,
    drop,
    failing,
    garbage,
    good,
    hang,
    other_json,
    send,
    streaming,
    truncated_json,
)

from zeromem.answer import readers
from zeromem.answer.openai_reader import EndpointError
from zeromem.answer.prompt import answer_span
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


def thinking(*refused):
    """A server of a reasoning model: it names what it does not take, one thing at a time."""
    messages = {
        "max_tokens": "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
        "'max_completion_tokens' instead.",
        "temperature": "Unsupported value: 'temperature' does not support 0 with this model.",
    }

    def step(handler, body):
        for name in refused:
            if name in body:
                return failing(400, messages[name])(handler, body)
        return (streaming() if body.get("stream") else good)(handler, body)

    return step


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "refused", [("max_tokens",), ("temperature",), ("max_tokens", "temperature")]
)
def test_what_a_reasoning_model_refuses_is_left_out_once_and_for_all(refused, stream):
    with Server(thinking(*refused)) as server:
        reader = readers.openai("m", base_url=server.url, api_key="k", stream=stream, max_retries=0)
        for _ in range(2):
            draft = reader.read(QUESTION, EVIDENCE, profile=QueryProfile(QUESTION))
            assert (draft.text, draft.usage) == ("Biscuit", TokenUsage(111, 7, 1))
    assert len(server.requests) == len(refused) + 2  # remembered
    for body in server.requests[-2:]:
        assert not any(name in body for name in refused)
        assert body.get("max_completion_tokens") == (512 if "max_tokens" in refused else None)
        assert body.get("temperature") == (None if "temperature" in refused else 0)


def test_a_max_tokens_that_is_too_large_is_no_reason_to_rename_it():
    message = "max_tokens is too large: 512. This model generates at most 256."
    with Server(failing(400, message)) as server, pytest.raises(EndpointError, match="too large"):
        ask(server)
    assert len(server.requests) == 1


def stopping(finish, content):
    def step(handler, body):
        choice = {"index": 0, "message": {"role": "assistant", "content": content},
                  "finish_reason": finish}  # fmt: skip
        send(handler, 200, {"id": "c", "object": "chat.completion", "created": 1, "model": "m",
                            "choices": [choice], "usage": USAGE})  # fmt: skip

    return step


@pytest.mark.parametrize("content", [None, "", " \n", "<think>The dog", "Answer:", "**Answer:** "])
def test_a_length_spent_before_the_answer_is_a_failure_and_no_abstention(content):
    with Server(stopping("length", content)) as server:
        with pytest.raises(EndpointError, match="7 tokens.*max_tokens") as error:
            ask(server)
        assert len(server.requests) == 1  # the same would come again
    assert error.value.usage == TokenUsage(111, 7, 1)


def test_a_stream_that_ends_before_the_answer_began_is_a_failure_too():
    def step(handler, body):
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.send_header("Connection", "close")
        handler.end_headers()
        handler.close_connection = True
        choice = {"index": 0, "delta": {"content": ""}, "finish_reason": "length"}
        handler.wfile.write(_event([choice], None) + b"data: [DONE]\n\n")

    with Server(step) as server, pytest.raises(EndpointError, match="finish_reason length"):
        ask(server, stream=True)


def test_half_an_answer_and_a_real_abstention_stay_what_they_are():
    with Server(stopping("length", "Answer: Bisc"), stopping("stop", "")) as server:
        assert ask(server).text == "Bisc"
        assert ask(server).text == ""


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
    with Server(failing(status)) as server, pytest.raises(EndpointError, match=hint) as error:
        ask(server)
    assert len(server.requests) == 1
    assert (error.value.status, error.value.unreachable) == (status, False)


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
    with pytest.raises(EndpointError, match="check that the server runs") as error:
        reader.read(QUESTION, EVIDENCE, profile=QueryProfile(QUESTION))
    assert (error.value.status, error.value.unreachable) == (None, True)


def test_a_missing_key_is_named_before_any_request(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(ReaderError, match="OPENAI_API_KEY"):
        readers.openai("m")
    readers.openai("m", base_url="http://127.0.0.1:1/v1")  # a local server needs none


def priced(handler, body, text=REPLY):
    """A reply with cached tokens, and log-probabilities where they were asked for."""
    pieces = ["Answer", ":", " Bis", "cuit", "\n", "Sources", ":", " 1"]
    assert "".join(pieces) == text
    known = [-9.0, -9.0, -0.25, -0.75, -9.0, -9.0, -9.0, -9.0]
    choice = {"index": 0, "message": {"role": "assistant", "content": text},
              "finish_reason": "stop"}  # fmt: skip
    if body.get("logprobs"):
        choice["logprobs"] = {"content": [
            {"token": t, "logprob": p, "bytes": None, "top_logprobs": []}
            for t, p in zip(pieces, known, strict=True)
        ]}  # fmt: skip
    usage = USAGE | {"prompt_tokens_details": {"cached_tokens": 64}}
    send(handler, 200, {"id": "c", "object": "chat.completion", "created": 1, "model": "m",
                        "choices": [choice], "usage": usage})  # fmt: skip


def test_confidence_is_the_mean_over_the_answers_tokens_alone():
    with Server(priced) as server:
        sure, unknown = ask(server, logprobs=True), ask(server)
    assert sure.confidence == pytest.approx(-0.5)
    assert unknown.confidence is None
    assert sure.usage == TokenUsage(111, 7, 1, 64)
    assert [r.get("logprobs") for r in server.requests] == [True, None]


def test_a_streams_log_probabilities_and_cached_tokens_count_too():
    def step(handler, body):
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.send_header("Connection", "close")
        handler.end_headers()
        handler.close_connection = True
        events = []
        for token, logprob in (("Answer: ", -9), ("Bis", -1.0), ("cuit", -3.0)):
            one = {"token": token, "logprob": logprob, "bytes": None, "top_logprobs": []}
            events.append({"index": 0, "delta": {"content": token}, "logprobs": {"content": [one]},
                           "finish_reason": None})  # fmt: skip
        events.append({"index": 0, "delta": {}, "finish_reason": "stop"})
        for choice in events:
            handler.wfile.write(_event([choice], None))
        usage = USAGE | {"prompt_tokens_details": {"cached_tokens": 5}}
        handler.wfile.write(_event([], usage) + b"data: [DONE]\n\n")

    with Server(step) as server:
        draft = ask(server, stream=True, logprobs=True)
    assert (draft.text, draft.confidence) == ("Biscuit", -2.0)
    assert draft.usage == TokenUsage(111, 7, 1, 5)


def _event(choices, usage):
    data = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
            "choices": choices, "usage": usage}  # fmt: skip
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def test_a_seed_is_sent_where_there_is_one_and_every_request_is_announced():
    announced = []
    with Server(failing(503), good) as server:
        ask(server, seed=7, before=announced.append)
        ask(server)
    assert [r.get("seed") for r in server.requests] == [7, 7, None]
    assert announced == [r["messages"] for r in server.requests[:2]]


@pytest.mark.parametrize("options", [{"timeout": 0}, {"max_retries": -1}, {"backoff": -1}])
def test_bad_options_are_refused(options):
    with pytest.raises(InvalidInputError, match=next(iter(options))):
        readers.openai("m", base_url="http://127.0.0.1:1/v1", **options)
    with pytest.raises(InvalidInputError, match="model"):
        readers.openai("", base_url="http://127.0.0.1:1/v1")


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("Answer: Biscuit\nSources: 1", "Biscuit"),
        ("<think>Answer: no</think>Answer: yes", "yes"),
        ("Biscuit", "Biscuit"),
    ],
)
def test_where_the_answer_stands_in_a_reply(reply, answer):
    start, end = answer_span(reply)
    assert reply[start:end] == answer
