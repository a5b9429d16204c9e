"""The HTTP encoder against a real server on a local socket."""

import json
import threading
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from hashlib import blake2b
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from support import open_memory

from zeromem.errors import EncoderError, InvalidInputError
from zeromem.ingest.encode import Encoder, HTTPEncoder, load_encoder
from zeromem.ingest.encoders import http as module
from zeromem.ingest.encoders.base import unit

DIM = 6


def vector(text, dim=DIM):
    seed = int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")
    return (3 * np.random.default_rng(seed).normal(size=dim)).tolist()


def answer(texts, dim=DIM):
    """Answer as the protocol allows: in any order, by index."""
    data = [
        {"object": "embedding", "index": i, "embedding": vector(t, dim)}
        for i, t in enumerate(texts)
    ]
    return {"object": "list", "data": data[::-1], "model": "m", "usage": {"total_tokens": 1}}


class Server:
    """An embeddings server whose next answers a test can script."""

    def __init__(self):
        self.requests = []
        self.script = []  # callables(handler, body), used up one by one
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                server.requests.append((self.path, dict(self.headers), body))
                step = server.script.pop(0) if server.script else good
                step(self, body)

            def log_message(self, *args):
                pass

        self.httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.httpd.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.httpd.server_address[1]}/v1"
        threading.Thread(target=self.httpd.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def inputs(self):
        return [body["input"] for _, _, body in self.requests]


def send(handler, status, payload, headers=None, length=None):
    data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    handler.send_response(status)
    for name, value in (headers or {}).items():
        handler.send_header(name, value)
    handler.send_header("Content-Length", str(len(data) if length is None else length))
    handler.end_headers()
    handler.wfile.write(data)


def good(handler, body):
    send(handler, 200, answer(body["input"], body.get("dimensions", DIM)))


def status(code, headers=None):
    return lambda handler, body: send(handler, code, {"error": {"message": f"no {code}"}}, headers)


def sends(payload):
    return lambda handler, body: send(handler, 200, payload)


def cut_short(handler, body):
    data = json.dumps(answer(body["input"])).encode()
    send(handler, 200, data[: len(data) // 2], length=len(data))


def hangs_up(handler, body):
    handler.connection.close()


@pytest.fixture
def server():
    made = Server()
    yield made
    made.httpd.shutdown()
    made.httpd.server_close()


@pytest.fixture
def make(server):
    def build(**options):
        options = {"base_url": server.url, "backoff": 0.001, "timeout": 10, **options}
        return HTTPEncoder("m", **options)

    return build


@pytest.fixture
def waits(monkeypatch):
    found = []
    monkeypatch.setattr(module.time, "sleep", found.append)
    return found


def test_the_protocol(server, make):
    encoder = make(api_key="sk-secret")
    found = encoder.encode(["a cat", "b", "a cat"])
    expected = unit(np.asarray([vector("a cat"), vector("b"), vector("a cat")], np.float32))
    np.testing.assert_allclose(found, expected, atol=1e-6)
    ((path, headers, body),) = server.requests
    assert path == "/v1/embeddings"
    assert headers["Authorization"] == "Bearer sk-secret"
    assert headers["Content-Type"] == "application/json"
    assert body == {"model": "m", "input": ["a cat", "b"], "encoding_format": "float"}
    assert isinstance(encoder, Encoder)


def test_without_a_key_none_is_sent(server, make):
    make().encode(["a"])
    assert "Authorization" not in server.requests[0][1]


def test_batches(server, make):
    texts = [f"text {i}" for i in range(7)]
    found = make(batch_size=3).encode(texts)
    assert server.inputs == [texts[:3], texts[3:6], texts[6:]]
    np.testing.assert_allclose(found, unit(np.float32([vector(t) for t in texts])), atol=1e-6)


def test_dimensions(server, make):
    encoder = make(dimensions=4)
    assert encoder.dim == 4
    assert server.requests == []
    assert encoder.encode(["a"]).shape == (1, 4)
    assert server.requests[0][2]["dimensions"] == 4
    assert encoder.fingerprint == "http-m-4"
    learned = make()
    assert learned.fingerprint == "http-m-full"
    assert learned.dim == DIM


def test_spans_are_texts_of_their_own(server, make):
    texts = ["Ana: one two. three!", "Leo: four", "Ana: one two. three!"]
    spans = [np.asarray(s, np.int32).reshape(-1, 2) for s in ([(5, 13), (14, 20)], [(5, 9)], [])]
    found = make().encode_spans(texts, spans)
    np.testing.assert_allclose(found.text_vectors, np.float32([vector(t) for t in texts]), 1e-5)
    expected = unit(np.float32([vector("one two."), vector("three!"), vector("Leo: four")]))
    np.testing.assert_allclose(found.span_vectors, expected, atol=1e-6)
    assert found.n_tokens.tolist() == [4, 2, 4]
    assert found.span_tokens.tolist() == [2, 1, 2]
    assert sorted(server.inputs[0]) == sorted({*texts[:2], "one two.", "three!"})


def test_long_text_is_split_and_all_of_it_counts(server, make):
    text = "alpha beta gamma delta"
    found = make(max_chars=12).encode_spans([text], [np.zeros((0, 2), np.int32)])
    (sent,) = server.inputs
    assert "".join(sent) == text
    assert max(map(len, sent)) <= 12
    assert len(sent) == 2
    weights = [len(part.split()) for part in sent]
    expected = np.average([vector(p) for p in sent], axis=0, weights=weights)
    np.testing.assert_allclose(found.text_vectors[0], expected, atol=1e-5)


def test_awkward_text(server, make):
    found = make().encode(["", " \n", "\ud800", "a\x00b", "🐱"])
    assert found.shape == (5, DIM)
    assert server.inputs == [[".", ".", "\ufffd", "a\ufffdb", "🐱"]]


def test_no_texts(server, make):
    assert make(dimensions=4).encode([]).shape == (0, 4)
    assert server.requests == []


@pytest.mark.parametrize(
    "failure",
    [status(500), status(503), status(429), status(408), cut_short, hangs_up, sends(b"{not json")],
    ids=["500", "503", "429", "408", "cut short", "hangs up", "not json"],
)
def test_what_passes_is_retried(server, make, waits, failure):
    server.script = [failure, failure]
    found = make().encode(["a"])
    np.testing.assert_allclose(found, unit(np.float32([vector("a")])), atol=1e-6)
    assert len(server.requests) == 3
    assert waits == [0.001, 0.002]


def test_retry_after_is_obeyed(server, make, waits):
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=20), usegmt=True)
    server.script = [
        status(429, {"Retry-After": "7"}),
        status(503, {"Retry-After": soon}),
        status(429, {"Retry-After": "9999"}),
        status(429, {"Retry-After": "nonsense"}),
    ]
    make().encode(["a"])
    assert waits[0] == 7
    assert 10 < waits[1] <= 20
    assert waits[2:] == [60, 0.008]


def test_a_server_that_keeps_failing_is_an_error(server, make, waits):
    server.script = [status(500)] * 10
    with pytest.raises(EncoderError, match="failed 3 times.*500") as caught:
        make(max_retries=2, api_key="sk-secret").encode(["a"])
    assert "no 500" in caught.value.__notes__[0]
    assert len(server.requests) == 3


@pytest.mark.parametrize("code", [400, 401, 404, 413, 422])
def test_a_refusal_is_not_retried_and_hides_the_key(server, make, waits, code):
    server.script = [status(code)]
    with pytest.raises(EncoderError, match=f"status {code}") as caught:
        make(api_key="sk-secret").encode(["a"])
    assert f"no {code}" in caught.value.__notes__[0]
    assert "sk-secret" not in str(caught.value) + caught.value.__notes__[0]
    assert len(server.requests) == 1


def test_no_log_quotes_what_a_server_quotes(server, make, waits, caplog):
    def quotes(handler, body):
        send(handler, 400, {"error": f"cannot read {body['input']}"})

    encoder = make()
    assert encoder.dim == DIM
    server.script = [quotes] * 20
    with caplog.at_level("INFO"), open_memory(encoder=encoder) as memory:
        memory.add("My SECRET is here.")
        memory.retrieve("What is my SECRET?")
    assert server.requests
    assert caplog.records
    assert "SECRET" not in caplog.text


def test_a_timeout_is_retried_then_an_error(server, make, waits):
    release = threading.Event()
    server.script = [lambda handler, body: release.wait(5)] * 2
    started = time.monotonic()
    with pytest.raises(EncoderError, match="failed 2 times.*timed out"):
        make(timeout=0.1, max_retries=1).encode(["a"])
    release.set()
    assert len(server.requests) == 2
    assert time.monotonic() - started < 5


def test_no_server_is_an_error(waits):
    with pytest.raises(EncoderError, match=r"http://127.0.0.1:9/v1/embeddings failed 2 times"):
        HTTPEncoder("m", base_url="http://127.0.0.1:9/v1", max_retries=1).encode(["a"])


def item(index, values):
    return {"index": index, "embedding": values}


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ({"data": [item(0, [1.0] * DIM)]}, "indices"),
        ({"data": [item(0, [1.0] * DIM), item(0, [1.0] * DIM)]}, "indices"),
        ({"data": [item(0, [1.0] * DIM), item(2, [1.0] * DIM)]}, "indices"),
        ({"data": [item(0, [1.0] * DIM), item(1, [1.0] * 5)]}, r"\[5, 6\] numbers, expected 6"),
        ({"data": [item(0, [1.0] * DIM), item(1, [float("nan")] * DIM)]}, "NaN"),
        ({"data": [item(0, [1.0] * DIM), item(1, ["x"] * DIM)]}, "numeric"),
        ({"data": [{"index": 0}, {"index": 1}]}, "no embeddings object"),
        ({"error": "overloaded"}, "no embeddings object"),
        ([], "no embeddings object"),
    ],
)
def test_a_wrong_answer_is_an_error(server, make, waits, payload, message):
    server.script = [sends(payload)]
    with pytest.raises(EncoderError, match=message):
        make().encode(["a", "b"])
    assert len(server.requests) == 1


def test_another_size_than_before_is_an_error(server, make):
    encoder = make()
    encoder.encode(["a"])
    server.script = [lambda handler, body: send(handler, 200, answer(body["input"], 5))]
    with pytest.raises(EncoderError, match="expected 6; another model"):
        encoder.encode(["b"])
    server.script = [lambda handler, body: send(handler, 200, answer(body["input"], 5))]
    with pytest.raises(EncoderError, match="expected 8"):
        make(dimensions=8).encode(["b"])


def test_an_interrupt_leaves_it_usable(server, make, monkeypatch):
    def interrupted(seconds):
        raise KeyboardInterrupt

    encoder = make()
    server.script = [status(500)]
    with monkeypatch.context() as patch:
        patch.setattr(module.time, "sleep", interrupted)
        with pytest.raises(KeyboardInterrupt):
            encoder.encode(["a"])
    assert encoder.encode(["a"]).shape == (1, DIM)


@pytest.mark.parametrize(
    "options",
    [
        {"base_url": "ftp://x"},
        {"batch_size": 0},
        {"max_chars": 0},
        {"timeout": 0},
        {"max_retries": -1},
        {"dimensions": 0},
    ],
)
def test_options_are_checked(options):
    (name,) = options
    with pytest.raises(InvalidInputError, match=name):
        HTTPEncoder("m", **options)


def test_no_request_before_its_first_use(make, server):
    encoder = make()
    assert load_encoder(encoder) is encoder
    assert not server.requests
