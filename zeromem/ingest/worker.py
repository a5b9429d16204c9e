"""A process that annotates for another: ``python -m zeromem.ingest.worker PIPELINE``.

It reads frames from stdin and answers each on stdout; a frame is its length in four bytes and then
JSON: a list of texts, and for each of them its sentences and mentions. Nothing is unpickled, and
no module of the caller's is imported. It ends with its input, so also when its caller dies.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import sys
from typing import IO, Any

_LENGTH = struct.Struct("<I")


def write_frame(stream: IO[bytes], value: Any) -> None:
    """Write a value as one frame."""
    data = json.dumps(value).encode()
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


def read_frame(stream: IO[bytes]) -> Any:
    """Read one frame.

    Raises
    ------
    EOFError
        The other side has ended.
    """
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    size = _LENGTH.unpack(head)[0]
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return json.loads(data)


def main(package: str) -> None:
    """Serve until stdin ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller decides what an interrupt means
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints is no answer
    # Were it installed, thinc would import it: most of this process's start and memory.
    sys.modules["torch"] = None  # type: ignore[assignment]
    from zeromem.english import english
    from zeromem.ingest.annotate import read_doc

    pipeline = english(package)
    pipeline.warm()
    write_frame(answers, "ready")
    try:
        while True:
            texts = read_frame(sys.stdin.buffer)
            write_frame(answers, pipeline.each(texts, read_doc))
    except (EOFError, BrokenPipeError):
        return


if __name__ == "__main__":
    main(sys.argv[1])
