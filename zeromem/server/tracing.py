"""OpenTelemetry spans of requests, where the environment configures an exporter."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from starlette.datastructures import Headers
from starlette.types import Scope

from zeromem.errors import InvalidInputError

Ended = Callable[[str, int], None]
_CONFIGURED = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


class Tracing:
    """Spans by OpenTelemetry's API; without a tracer, none.

    Parameters
    ----------
    tracer : opentelemetry.trace.Tracer, optional
    """

    def __init__(self, tracer: Any = None) -> None:
        self._tracer = tracer

    @classmethod
    def from_environment(cls) -> Tracing:
        """Export by OTLP over HTTP where ``OTEL_EXPORTER_OTLP_ENDPOINT`` is set.

        Raises
        ------
        InvalidInputError
            It is set and the packages are missing.
        """
        if not any(os.environ.get(name) for name in _CONFIGURED):
            return cls()
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ImportError as error:
            raise InvalidInputError(
                "OTEL_EXPORTER_OTLP_ENDPOINT is set and OpenTelemetry is not installed: "
                "pip install 'zeromem[otel]', or unset it"
            ) from error
        name = os.environ.get("OTEL_SERVICE_NAME", "zeromem")
        provider = TracerProvider(resource=Resource.create({"service.name": name}))
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        return cls(provider.get_tracer("zeromem.server"))

    @contextmanager
    def request(self, scope: Scope, headers: Headers) -> Iterator[Ended]:
        """Span a request; what it yields takes the route and the status at its end."""
        if self._tracer is None:
            yield lambda route, status: None
            return
        from opentelemetry.propagate import extract
        from opentelemetry.trace import SpanKind, Status, StatusCode

        context = extract(dict(headers))
        with self._tracer.start_as_current_span(
            scope["method"], context=context, kind=SpanKind.SERVER
        ) as span:

            def ended(route: str, status: int) -> None:
                span.update_name(f"{scope['method']} {route}")
                span.set_attribute("http.request.method", scope["method"])
                span.set_attribute("http.route", route)
                span.set_attribute("http.response.status_code", status)
                if status >= 500:
                    span.set_status(Status(StatusCode.ERROR))

            yield ended
