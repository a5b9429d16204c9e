"""The commands that serve others."""

from __future__ import annotations

import logging
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

from zeromem.cli.common import Args, note, store_path, zone
from zeromem.cli.parser import setting
from zeromem.errors import ZeroMemError

if TYPE_CHECKING:
    from zeromem.memories import Memories


class MissingExtraError(ZeroMemError):
    """A command needs packages that are not installed."""


def serve(args: Args) -> int:
    """Serve HTTP until the process is told to stop."""
    try:
        from zeromem.server.run import serve as run
        from zeromem.server.settings import Settings
    except ImportError as error:
        raise MissingExtraError(
            f"`zeromem serve` needs {error.name}: pip install 'zeromem[server]'"
        ) from error
    from zeromem.keys import Keys

    settings = Settings(
        batching=not args.no_batching, batch_window=args.batch_window / 1000,
        max_waiting=args.max_waiting, timeout=args.timeout, max_body=args.max_body << 20,
        rate=args.rate, metrics=not args.no_metrics, shutdown_timeout=args.shutdown_timeout,
    )  # fmt: skip
    if not args.debug:
        logging.basicConfig(level=args.log_level.upper(), format="%(message)s", stream=sys.stderr)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    with ExitStack() as stack:
        memories = stack.enter_context(open_memories(args))
        keys = None if args.no_auth else stack.enter_context(Keys(store_path(args, create=True)))
        run(
            memories, settings, keys, host=args.host, port=args.port,
            started=lambda url: note(f"serving {url} (documentation at {url}/docs)"),
        )  # fmt: skip
    return 0


def open_memories(args: Args) -> Memories:
    """Open the store's memories with the models that the options name."""
    from zeromem.memories import Memories

    return Memories(
        store_path(args, create=True),
        encoder=setting(args, "encoder"),
        annotator=setting(args, "annotator"),
        device=setting(args, "device", "auto"),  # type: ignore[arg-type] # checked there
        zone=zone(args),
        read_only=args.read_only,
        max_open=args.max_open,
        max_bytes=args.max_index_bytes << 20,
    )
