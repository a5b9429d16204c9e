"""Annotating in another thread while what is annotated already is being encoded.

spaCy holds the interpreter for most of its work and PyTorch lets go of it for nearly all of its
own, so that one thread of each uses two cores as well as two processes would: measured on two
cores, both together take 1.03 times the longer of the two.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager

from zeromem.ingest.annotate import Annotation, Annotator
from zeromem.types import Trace

# Starting a thread for less than this many characters costs more than it brings.
WORTH = 8_000
# Traces that are annotated in one go: encoding starts behind the first of these.
SLAB = 128
# Traces that are encoded in one go: in longer ones lengths no longer get more alike.
_MOST = 1024

_lock = threading.Lock()
_busy = 0


@contextmanager
def _one_core() -> Iterator[None]:
    global _busy
    with _lock:
        _busy += 1
    try:
        yield
    finally:
        with _lock:
            _busy -= 1


def busy_cores() -> int:
    """Count the cores that annotating takes at this moment."""
    return _busy


class Annotating:
    """Annotations of traces, made ahead of their use where that is worth it.

    Parameters
    ----------
    annotator : Annotator
    traces : sequence of Trace
    pool : Executor, optional
        Of one thread. Without it, or for little text, traces are annotated when they are asked
        for.
    """

    def __init__(
        self, annotator: Annotator, traces: Sequence[Trace], pool: Executor | None
    ) -> None:
        self._annotator = annotator
        self._slabs = [traces[i : i + SLAB] for i in range(0, len(traces), SLAB)]
        self._made: list[Future[list[Annotation]]] = []
        if pool is not None and sum(len(t.text) for t in traces) >= WORTH:
            self._made = [pool.submit(self._apart, slab) for slab in self._slabs]

    def cancel(self) -> None:
        """Leave out what has not been begun."""
        for made in self._made:
            made.cancel()

    def groups(self) -> Iterator[tuple[list[Trace], list[Annotation]]]:
        """Yield traces with their annotations, in order: all that are done by then, at least one.

        The more there is at once, the more alike in length are the texts of an encoder's batch.
        """
        done = 0
        while done < len(self._slabs):
            traces: list[Trace] = []
            annotations: list[Annotation] = []
            while done < len(self._slabs) and len(traces) < _MOST and self._is_due(done, traces):
                annotations += self._made[done].result() if self._made else self._now(done)
                traces += self._slabs[done]
                done += 1
            yield traces, annotations

    def _is_due(self, slab: int, waiting: Sequence[Trace]) -> bool:
        # Where nothing runs ahead, waiting for more delays nobody.
        return not waiting or not self._made or self._made[slab].done()

    def _now(self, slab: int) -> list[Annotation]:
        return self._annotator.annotate([t.text for t in self._slabs[slab]])

    def _apart(self, slab: Sequence[Trace]) -> list[Annotation]:
        with _one_core():
            return self._annotator.annotate([t.text for t in slab])
