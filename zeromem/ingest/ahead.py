"""Annotating beside the encoding of what is annotated already.

spaCy holds the interpreter for most of its work and PyTorch lets go of it for nearly all of its
own, so that one thread of each uses two cores as well as two processes would: measured on two
cores, both together take 1.03 times the longer of the two. More cores are used by processes.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from queue import SimpleQueue

from zeromem.forks import Lock
from zeromem.ingest.annotate import Annotation, Annotator, SpacyAnnotator
from zeromem.ingest.apart import Worker, WorkerError
from zeromem.types import Trace

_log = logging.getLogger(__name__)
# Starting a thread for less than this many characters costs more than it brings.
WORTH = 8_000
# A process takes the time of 30,000 characters to start.
WORTH_PROCESSES = 200_000
_MOST_PROCESSES = 7
# Traces that are annotated in one go: encoding starts behind the first of these.
SLAB = 128
# Traces that are encoded in one go: in longer ones lengths no longer get more alike.
_MOST = 1024

_lock = Lock()
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


def n_processes() -> int:
    """Count the processes that are started for much text: annotating and encoding cost alike."""
    usable = getattr(os, "sched_getaffinity", None)
    n_cores = len(usable(0)) if usable else os.cpu_count() or 1
    return min(n_cores // 2 - 1, _MOST_PROCESSES)


_Job = tuple[Sequence[Trace], "Future[list[Annotation]]"]


class Ahead:
    """A thread that annotates ahead, joined by processes where there is much text and cores allow.

    A context manager: on leaving it what has not been begun is left out, and nothing runs on.

    Parameters
    ----------
    annotator : Annotator
    """

    def __init__(self, annotator: Annotator) -> None:
        self._annotator = annotator
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._lanes: list[threading.Thread] = []
        self._workers: list[Worker] = []
        self._characters = 0
        self._leaving = False

    def __enter__(self) -> Ahead:
        return self

    def __exit__(self, *exception: object) -> None:
        self._leaving = True
        while not self._jobs.empty():
            if (job := self._jobs.get()) is not None:
                job[1].cancel()
        for _ in self._lanes:
            self._jobs.put(None)
        for worker in self._workers:  # first: a lane may be waiting for one to load
            worker.close()
        for lane in self._lanes:
            lane.join()

    def begin(self, traces: Sequence[Trace]) -> Annotating:
        """Begin to annotate traces, behind those that were begun before."""
        slabs = [traces[i : i + SLAB] for i in range(0, len(traces), SLAB)]
        size = sum(len(t.text) for t in traces)
        if size < WORTH:
            return Annotating(self._annotator, slabs, [])
        self._characters += size
        jobs: list[_Job] = [(slab, Future()) for slab in slabs]
        for job in jobs:
            self._jobs.put(job)
        self._staff()
        return Annotating(self._annotator, slabs, [made for _, made in jobs])

    def _staff(self) -> None:
        """Start what the text so far is worth."""
        if not self._lanes:
            self._start(None)
        if self._workers or self._characters < WORTH_PROCESSES:
            return
        if isinstance(self._annotator, SpacyAnnotator):
            try:
                for _ in range(n_processes()):
                    self._workers.append(Worker(self._annotator.package))
                    self._start(self._workers[-1])
            except WorkerError as error:
                _log.warning("texts are annotated in this process alone: %s", error)

    def _start(self, worker: Worker | None) -> None:
        lane = threading.Thread(target=self._lane, args=(worker,), name="zeromem-annotate")
        self._lanes.append(lane)
        lane.start()

    def _lane(self, worker: Worker | None) -> None:
        while (job := self._jobs.get()) is not None:
            slab, made = job
            if not made.set_running_or_notify_cancel():
                continue
            texts = [t.text for t in slab]
            try:
                with _one_core():
                    if worker is not None and isinstance(self._annotator, SpacyAnnotator):
                        try:
                            made.set_result(self._annotator.annotate_by(worker, texts))
                            continue
                        except WorkerError as error:
                            if self._leaving:  # after an interrupt nobody asks
                                raise
                            _log.warning("a process less annotates: %s", error)
                            worker = None
                    made.set_result(self._annotator.annotate(texts))
            except BaseException as error:  # of whatever annotator: it is raised where it is asked
                made.set_exception(error)


class Annotating:
    """Annotations of traces, made ahead of their use where that is worth it.

    Parameters
    ----------
    annotator : Annotator
    slabs : list of sequences of Trace
    made : list of Future
        One for each slab; or none, and slabs are annotated when they are asked for.
    """

    def __init__(
        self,
        annotator: Annotator,
        slabs: list[Sequence[Trace]],
        made: list[Future[list[Annotation]]],
    ) -> None:
        self._annotator = annotator
        self._slabs = slabs
        self._made = made

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
