"""Logs as JSON Lines on stderr, which nobody has to read for the server to go on."""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from logging.handlers import QueueHandler, QueueListener
from queue import Full, Queue

# Lines that wait for a slow reader; further ones are dropped, and their number is told.
_MOST_WAITING = 10_000
_LAST_LINES = 2.0  # seconds


class JSONFormatter(logging.Formatter):
    """Writes a record as one line: time, level, logger, and its fields or its message."""

    def format(self, record: logging.LogRecord) -> str:
        """Write one record; of an exception where it was raised: its message may quote users."""
        moment = datetime.fromtimestamp(record.created, UTC)
        line = {
            "time": moment.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        fields = getattr(record, "fields", None)
        line |= {"message": record.getMessage()} if fields is None else fields
        if record.exc_info and record.exc_info[0] is not None:
            line["error"] = record.exc_info[0].__name__
            line["traceback"] = "".join(traceback.format_tb(record.exc_info[2]))
        return json.dumps(line)


class _Waiting(QueueHandler):
    """Hands lines to a thread; the one that logs never waits."""

    n_dropped = 0

    def enqueue(self, record: logging.LogRecord) -> None:
        try:
            self.queue.put_nowait(record)
        except Full:
            self.n_dropped += 1
            return
        if self.n_dropped:
            dropped, self.n_dropped = self.n_dropped, 0
            logging.getLogger(__name__).warning("%d lines of the log were dropped", dropped)


class _Raw(logging.Handler):
    """Writes to a descriptor: a thread that is stuck in there holds no lock that an exit needs."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor

    def createLock(self) -> None:
        """One thread writes: a lock would keep logging's own end waiting for it."""
        self.lock = None

    def emit(self, record: logging.LogRecord) -> None:
        left = f"{record.getMessage()}\n".encode()
        with suppress(OSError):  # nobody is there any more
            while left:
                left = left[os.write(self._descriptor, left) :]


@contextmanager
def to_stderr(level: str) -> Iterator[None]:
    """Log to stderr while the block runs.

    Parameters
    ----------
    level : {"debug", "info", "warning", "error"}
        Requests are at info; those for health and metrics at debug.
    """
    waiting: Queue[logging.LogRecord] = Queue(_MOST_WAITING)
    handler = _Waiting(waiting)
    handler.setFormatter(JSONFormatter())
    listener = QueueListener(waiting, _Raw(sys.stderr.fileno()))
    root = logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(level.upper())
    for noisy in ("httpx", "httpcore", "mcp", "opentelemetry"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    listener.start()
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(before)
        # Whoever reads stderr may have stopped doing so: its thread is a daemon and may be left.
        with suppress(Full):
            listener.enqueue_sentinel()
        if listener._thread is not None:
            listener._thread.join(_LAST_LINES)
