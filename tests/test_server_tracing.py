"""Spans, by the protocol's own messages over a real socket; and metrics."""

from __future__ import annotations

import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from server_support import open_memories, running

from zeromem.errors import InvalidInputError
from zeromem.server.tracing import Tracing

pytest.importorskip("opentelemetry.sdk", reason="spans need zeromem[otel]")


@pytest.fixture
def collector():
    """A collector of OTLP over HTTP: its URL, and the spans it was sent."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
        ExportTraceServiceRequest,
        ExportTraceServiceResponse,
    )

    spans = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                import gzip

                body = gzip.decompress(body)
            sent = ExportTraceServiceRequest.FromString(body)
            for resource in sent.resource_spans:
                for scope in resource.scope_spans:
                    spans.extend(scope.spans)
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *args):
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{http.server_address[1]}", spans
    http.shutdown()
    http.server_close()


def attributes(span):
    return {
        one.key: one.value.string_value or one.value.int_value or one.value.double_value
        for one in span.attributes
    }


def test_requests_become_spans_of_the_callers_trace(collector, monkeypatch):
    url, spans = collector
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with running(tracing=Tracing.from_environment()) as server, server.client() as client:
        client.post("/v1/traces", json={"text": "The secret is marzipan."}).raise_for_status()
        asked = {"question": "What is marzipan?"}
        client.post("/v1/retrieve", json=asked, headers={"traceparent": parent}).raise_for_status()
        assert client.get("/v1/trace", params={"id": "marzipan"}).status_code == 404
    # All were sent by the end of the server.
    by_name = {span.name: span for span in spans}
    asked_span = by_name["POST /v1/retrieve"]
    assert asked_span.trace_id.hex() == parent.split("-")[1]
    assert asked_span.parent_span_id.hex() == parent.split("-")[2]
    told = attributes(asked_span)
    assert told["http.response.status_code"] == 200
    assert told["http.route"] == "/v1/retrieve"
    assert {"zeromem.seconds.hierarchy_view", "zeromem.seconds.text"} <= set(told)
    assert attributes(by_name["GET /v1/trace"])["http.response.status_code"] == 404
    assert "marzipan" not in str(spans)


def test_without_an_endpoint_there_are_no_spans(monkeypatch):
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    assert Tracing.from_environment()._tracer is None


def test_an_endpoint_without_the_packages_is_an_error(monkeypatch):
    import sys

    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(InvalidInputError, match=r"pip install 'zeromem\[otel\]'"):
        Tracing.from_environment()


def test_metrics_count_what_was_done_and_name_no_tenant(tmp_path):
    memories = open_memories(tmp_path / "m.zm", max_open=2)
    with running(memories) as server:
        for scope in ("tenant-a", "tenant-b", "tenant-c", "tenant-a"):
            with server.client(scope) as client:
                client.post("/v1/traces", json={"text": "A cat.", "id": "1"}).raise_for_status()
                client.post("/v1/retrieve", json={"question": "Cats?"}).raise_for_status()
        with server.client("tenant-a") as client:
            client.post("/v1/forget", json={"ids": ["1"]}).raise_for_status()
            text = client.get("/metrics").text
    found = dict(re.findall(r"^(\w+(?:\{.*?\})?) (\S+)$", text, re.MULTILINE))
    assert float(found['zeromem_traces_total{action="added"}']) == 3
    assert float(found['zeromem_traces_total{action="forgotten"}']) == 1
    assert float(found["zeromem_batch_questions_sum"]) == 4
    route = 'zeromem_requests_total{method="POST",route="/v1/retrieve",status="200"}'
    assert float(found[route]) == 4
    assert float(found['zeromem_stage_seconds_count{stage="hierarchy view"}']) == 4
    assert float(found["zeromem_open_memories"]) <= 3
    assert float(found['zeromem_memories_total{event="evictions"}']) >= 1
    assert float(found["zeromem_index_bytes"]) > 0
    for stage in ("ingest", "retrieval", "answer"):
        assert float(found[f'zeromem_llm_tokens_total{{kind="prompt",stage="{stage}"}}']) == 0
    assert "tenant-" not in text
