"""Bodies of very many values: refused before they are read, or told in few words."""

from __future__ import annotations

import pytest
from server_support import check_problem, running


@pytest.fixture(scope="module")
def client():
    with running() as server, server.client(timeout=60) as found:
        yield found


MANY = {
    "lists": b'{"text": "x", "metadata": {"a": [' + b"[]," * 4_500_000 + b"1]}}",
    "values": b'{"traces": [' + b"1," * 3_000_000 + b"1]}",
    "fields": b'{"text": "x"' + b',"a":1' * 2_000_000 + b"}",
}
ANY = ("/v1/traces", "/v1/traces/batch", "/v1/traces/stream", "/v1/retrieve/batch", "/v1/forget",
       "/v1/answer", "/v1/chat/completions")  # fmt: skip


@pytest.mark.parametrize("path", ANY)
@pytest.mark.parametrize("body", MANY.values(), ids=list(MANY))
def test_json_of_too_many_values_is_refused_before_it_is_read(client, path, body):
    reply = client.post(path, content=body, headers={"Content-Type": "application/json"})
    if path == "/v1/chat/completions":  # no upstream: refused in OpenAI's form before
        assert reply.status_code in (413, 501)
    else:
        check_problem(reply, 413, "too-large")
    assert len(reply.content) < 1000


@pytest.mark.parametrize(
    ("path", "body"),
    [("/v1/traces/batch", b'{"traces": [' + b"1," * 900_000 + b"1]}"),
     ("/v1/retrieve/batch", b'{"questions": [' + b"1," * 900_000 + b"1]}"),
     ("/v1/traces", b'{"text": "x"' + b"".join(b',"a%d":1' % i for i in range(900_000)) + b"}")],
    ids=["traces", "questions", "fields"],
)  # fmt: skip
def test_of_many_mistakes_their_number_is_told(client, path, body):
    reply = client.post(path, content=body, headers={"Content-Type": "application/json"})
    check_problem(reply, 422, "invalid-input")
    assert "mistakes" in reply.json()["detail"]
    assert len(reply.content) < 1000


def test_a_long_text_with_many_marks_is_stored(client):
    text = "One, two [three], {four}.\n" * 60_000
    added = client.post("/v1/traces", json={"text": text, "id": "marks"})
    assert added.status_code == 201
    client.post("/v1/forget", json={"ids": ["marks"]}).raise_for_status()
