"""The OpenAPI document is true of the server: generated requests, good and bad, checked."""

from __future__ import annotations

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi import checks
from server_support import open_memories, running
from support import STORY

from zeromem.keys import Keys

EXAMPLES = 12
CONFIG = SchemathesisConfig.from_dict(
    {
        "generation": {"max-examples": EXAMPLES, "deterministic": True, "mode": "all"},
        "phases": {"coverage": {"enabled": False}, "stateful": {"enabled": False}},
    }
)
# Its forms are OpenAI's, errors too; and what they do is another server's to say.
OPENAI = ("/v1/chat/completions", "/v1/models")
# Checks that do not hold for an operation, and why.
_TIMES = [checks.positive_data_acceptance]  # to the document a time is a string, and a blank a text
ANYWHERE = [checks.positive_data_acceptance]  # it cannot say that a scope's bytes are UTF-8
UNSOUND = {
    **dict.fromkeys(
        ("POST /v1/retrieve", "POST /v1/retrieve/batch", "POST /v1/explain", "POST /v1/answer",
         "POST /v1/traces", "POST /v1/traces/batch", "GET /v1/traces"),
        _TIMES,
    ),
    # It cannot say that one condition is needed, or that all must not stand beside another.
    "POST /v1/forget": [checks.positive_data_acceptance],
    # Nor what a line or a file holds: to it any text is a good one.
    "POST /v1/traces/stream": [checks.positive_data_acceptance],
    "POST /v1/import": [checks.positive_data_acceptance],
}  # fmt: skip


@schemathesis.serializer("application/x-ndjson")
def lines(ctx, value):
    """Send what was generated for JSON Lines as it is."""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    return Keys(tmp_path_factory.mktemp("schema") / "m.zm")


@pytest.fixture(scope="module")
def server(keys):
    keys.create("nobody")
    with running(open_memories(), keys=keys) as found:
        with found.memories.use("a/default") as memory:
            memory.add_many(STORY)
        yield found


@pytest.fixture(scope="module")
def headers(keys):
    return {"Authorization": f"Bearer {keys.create('a')[1]}"}


@pytest.fixture(scope="module")
def document(server):
    with server.client() as client:
        return client.get("/openapi.json").json()


@pytest.fixture(scope="module")
def api(server):
    found = schemathesis.openapi.from_url(f"{server.url}/openapi.json", config=CONFIG)
    return found.exclude(path=list(OPENAI))


@pytest.mark.slow
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_the_document_is_true(api, headers, mode):
    """All default checks on generated requests of each operation."""
    failures, n = [], 0
    for found in api.get_all_operations():
        operation = found.ok()

        @seed(7)
        @settings(
            max_examples=EXAMPLES, deadline=None, database=None, print_blob=False,
            suppress_health_check=list(HealthCheck), phases=[Phase.generate],
        )  # fmt: skip
        @given(case=operation.as_strategy(generation_mode=mode))
        def check(case):
            excluded = UNSOUND.get(case.operation.label, ANYWHERE)
            case.call_and_validate(headers=headers, excluded_checks=excluded)

        try:
            check()
        except Unsatisfiable:
            continue  # nothing that could be wrong
        except (AssertionError, BaseExceptionGroup) as error:
            failures.append(f"{operation.label}: {error} {getattr(error, 'exceptions', '')}")
        n += 1
    assert n > 8, n
    assert not failures, "\n\n".join(failures)


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
        if "/v1/" not in name or name.partition(" ")[2] in OPENAI:
            continue
        assert one["security"], name
        assert any(p["name"] == "Zeromem-Scope" and p["in"] == "header" for p in one["parameters"])
        for status, told in one["responses"].items():
            if int(status) >= 400:
                assert list(told["content"]) == ["application/problem+json"], (name, status)
        assert {"401", "422", "429", "503"} <= set(one["responses"]), name
        assert one["summary"], name
        assert one["description"], name
