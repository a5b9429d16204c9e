"""spaCy in a process of its own, from the side of the process that asks it."""

from __future__ import annotations

import os
import subprocess
import sys
import weakref
from collections.abc import Sequence
from typing import Any

from zeromem.errors import ZeroMemError
from zeromem.forks import Lock
from zeromem.ingest.worker import read_frame, write_frame


class WorkerError(ZeroMemError):
    """A worker process did not start, or ended before its answer."""


class Worker:
    """One process of :mod:`zeromem.ingest.worker`; starting it waits for nothing.

    Parameters
    ----------
    package : str
        The spaCy pipeline that it loads.

    Raises
    ------
    WorkerError
        No process can be started here.
    """

    def __init__(self, package: str) -> None:
        if getattr(sys, "frozen", False) or not sys.executable:
            raise WorkerError("this program has no Python to start")
        # Modules are found where this process finds them, and never in the folder it happens to be.
        path = os.pathsep.join(p for p in sys.path if p)
        one_thread = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "zeromem.ingest.worker", package],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **one_thread, "PYTHONPATH": path},
            )
        except (OSError, ValueError) as error:
            raise WorkerError(f"no process could be started: {error}") from error
        self._owner = os.getpid()
        self._ready = False
        self._lock = Lock()
        self._close = weakref.finalize(self, _end, self._process, self._owner)

    def annotate(self, texts: Sequence[str]) -> list[Any]:
        """Return the sentences and mentions of each text.

        Raises
        ------
        WorkerError
        """
        with self._lock:
            try:
                stdin, stdout = self._process.stdin, self._process.stdout
                if stdin is None or stdout is None or os.getpid() != self._owner:
                    raise EOFError
                if not self._ready:
                    self._ready = read_frame(stdout) == "ready"
                write_frame(stdin, list(texts))
                found: list[Any] = read_frame(stdout)
            except (OSError, ValueError, EOFError) as error:
                raise WorkerError("its process has ended") from error
            except BaseException:
                self.close()  # an answer that nobody read would be taken for the next
                raise
        return found

    def close(self) -> None:
        """End the process."""
        self._close()


def _end(process: subprocess.Popen[bytes], owner: int) -> None:
    if os.getpid() != owner:
        return  # a fork's copy: the process is its parent's
    process.kill()  # it holds nothing that could be lost
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            try:
                stream.close()
            except OSError:
                continue  # what was still to be written
    process.wait()
