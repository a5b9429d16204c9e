"""OpenTelemetry spans of requests, where the environment configures an exporter."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
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
    provider : opentelemetry.sdk.trace.TracerProvider, optional
    """

    def __init__(self, provider: Any = None) -> None:
        self._provider = provider
        self._tracer = None if provider is None else provider.get_tracer("zeromem.server")

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
        return cls(provider)

    def stages(self, seconds: Mapping[str, float]) -> None:
        """Say in the current request's span how long the stages of its batch took."""
        if self._tracer is None:
            return
        from opentelemetry.trace import get_current_span

        span = get_current_span()
        for stage, spent in seconds.items():
            span.set_attribute(f"zeromem.seconds.{stage.replace(' ', '_')}", spent)

    def close(self) -> None:
        """Send what was not sent yet."""
        if self._provider is not None:
            self._provider.shutdown()

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
