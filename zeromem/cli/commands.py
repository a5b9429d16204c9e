"""The commands by name. Each takes the parsed arguments and returns the exit code."""

from __future__ import annotations

from collections.abc import Callable

from zeromem.cli import access, demonstrate, log, questions, serving, transfer, upkeep
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
    "backup": upkeep.backup,
    "restore": upkeep.restore,
    "keys": access.keys,
    "demo": demonstrate.demonstrate,
}
