"""The OpenAPI document is true of the server: generated requests, good and bad, checked."""

from __future__ import annotations

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.config import SchemathesisConfig
from server_support import open_memories, running
from support import STORY

EXAMPLES = 12
CONFIG = SchemathesisConfig.from_dict(
    {
        "generation": {"max-examples": EXAMPLES, "deterministic": True, "mode": "all"},
        "phases": {"coverage": {"enabled": False}, "stateful": {"enabled": False}},
    }
)


@pytest.fixture(scope="module")
def server():
    with running(open_memories()) as found:
        with found.memories.use("default") as memory:
            memory.add_many(STORY)
        yield found


@pytest.fixture(scope="module")
def document(server):
    with server.client() as client:
        return client.get("/openapi.json").json()


@pytest.fixture(scope="module")
def api(server):
    return schemathesis.openapi.from_url(f"{server.url}/openapi.json", config=CONFIG)


schema = schemathesis.pytest.from_fixture("api")


@pytest.mark.slow
@schema.parametrize()
@settings(
    max_examples=EXAMPLES, deadline=None, derandomize=True, database=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
def test_the_document_is_true(case):
    case.call_and_validate()


def operations(document):
    for path, methods in document["paths"].items():
        for method, one in methods.items():
            yield f"{method.upper()} {path}", one


def resolved(document, schema):
    while "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema


def test_each_body_has_an_example(document):
    n = 0
    for name, one in operations(document):
        for kind, content in one.get("requestBody", {}).get("content", {}).items():
            if kind == "application/octet-stream":
                continue  # a file
            found = resolved(document, content.get("schema", {}))
            inner = [resolved(document, p) for p in found.get("properties", {}).values()]
            inner += [resolved(document, p["items"]) for p in inner if "items" in p]
            shown = "example" in content or "examples" in content or "examples" in found
            assert shown or any("examples" in part for part in inner), f"{name} has no example"
            n += 1
    assert n >= 8


def test_each_operation_tells_its_problems_and_its_security(document):
    schemes = document["components"]["securitySchemes"]
    assert [one["scheme"] for one in schemes.values()] == ["bearer"]
    for name, one in operations(document):
        if "/v1/" not in name:
            continue
        assert one["security"], name
        assert any(p["name"] == "Zeromem-Scope" and p["in"] == "header" for p in one["parameters"])
        for status, told in one["responses"].items():
            if int(status) >= 400:
                assert list(told["content"]) == ["application/problem+json"], (name, status)
        assert {"401", "422", "429", "503"} <= set(one["responses"]), name
        assert one["summary"] and one["description"], name
