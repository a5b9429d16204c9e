"""What a server counts, for Prometheus. No label names a tenant, a scope or a text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_USES = ("hits", "misses", "evictions")


class _Registry(CollectorRegistry):
    """Leaves out the times at which series were made, which double them and are of no use here."""

    def collect(self) -> Iterable[Metric]:
        for metric in super().collect():
            metric.samples = [s for s in metric.samples if s.name != f"{metric.name}_created"]
            yield metric


class Metrics:
    """The counters of one server, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = _Registry()
        own = self.registry
        self.requests = Counter(
            "zeromem_requests", "Requests served", ["method", "route", "status"], registry=own
        )
        self.seconds = Histogram(
            "zeromem_request_seconds", "Time from a request's head to its response's end",
            ["route"], buckets=_SECONDS, registry=own,
        )  # fmt: skip
        self.stages = Histogram(
            "zeromem_stage_seconds", "Time of a batch of questions by stage", ["stage"],
            buckets=_SECONDS, registry=own,
        )  # fmt: skip
        self.batches = Histogram(
            "zeromem_batch_questions", "Questions answered together", buckets=_SIZES, registry=own
        )
        self.waited = Histogram(
            "zeromem_queue_seconds", "Time for which questions waited for their batch",
            buckets=_SECONDS, registry=own,
        )  # fmt: skip
        self.traces = Counter("zeromem_traces", "Traces by what was done", ["action"], registry=own)
        self.tokens = Counter(
            "zeromem_llm_tokens", "Tokens of language models by stage; memory stages have none",
            ["stage", "kind"], registry=own,
        )  # fmt: skip
        self.waiting = Gauge("zeromem_waiting_questions", "Questions in the queue", registry=own)
        self.unencoded = Gauge("zeromem_unencoded_traces", "Stored, not encoded yet", registry=own)
        self.open = Gauge("zeromem_open_memories", "Memories whose index is held", registry=own)
        self.bytes = Gauge("zeromem_index_bytes", "Bytes of open indexes", registry=own)
        self.uses = Counter(
            "zeromem_memories", "Uses of memories: open already, opened, closed for room",
            ["event"], registry=own,
        )  # fmt: skip
        self._used = dict.fromkeys(_USES, 0)
        for stage in ("ingest", "retrieval", "answer", "proxy"):
            for kind in ("prompt", "completion"):
                self.tokens.labels(stage, kind)

    def batch(self, size: int, waited: Sequence[float], seconds: Mapping[str, float]) -> None:
        """Count one batch: its questions, what its calls waited, and its stages."""
        self.batches.observe(size)
        for wait in waited:
            self.waited.observe(wait)
        for stage, spent in seconds.items():
            self.stages.labels(stage).observe(spent)

    def used(self, counts: Mapping[str, int]) -> None:
        """Bring the uses of memories to what was counted by now."""
        for event in _USES:
            self.uses.labels(event).inc(counts[event] - self._used[event])
            self._used[event] = counts[event]

    def text(self) -> bytes:
        """Return all of it in Prometheus' text format."""
        return generate_latest(self.registry)
