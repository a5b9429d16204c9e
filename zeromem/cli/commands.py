"""The commands by name. Each takes the parsed arguments and returns the exit code."""

from __future__ import annotations

from collections.abc import Callable

from zeromem.cli import demonstrate, log, questions, serving, transfer
from zeromem.cli.common import Args

RUN: dict[str, Callable[[Args], int]] = {
    "add": log.add,
    "import": transfer.import_,
    "search": questions.search,
    "ask": questions.ask,
    "explain": questions.explain,
    "stats": log.stats,
    "export": transfer.export,
    "forget": log.forget,
    "reencode": log.reencode,
    "scopes": log.scopes,
    "mcp": serving.mcp,
    "warmup": log.warmup,
    "serve": serving.serve,
    "demo": demonstrate.demonstrate,
}
