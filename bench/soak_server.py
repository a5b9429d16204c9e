"""The server of a soak, in a process of its own: serves until it gets SIGTERM.

    python bench/soak_server.py STORE [--encoder words|default|NAME] [--annotator NAME]
        [--max-open N]

Prints its URL once it accepts connections. The keys beside the store are asked for.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from typing import Any

from hashed import WordEncoder

from zeromem.keys import Keys
from zeromem.memories import Memories
from zeromem.server.run import serve
from zeromem.server.settings import Settings


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("store")
    parser.add_argument("--encoder", default="words")
    parser.add_argument("--annotator")
    parser.add_argument("--max-open", type=int, default=1000)
    parser.add_argument("--port", type=int, default=0)
    args = parser.parse_args(arguments)
    logging.basicConfig(level=logging.WARNING)
    words = args.encoder == "words"
    encoder: Any = WordEncoder() if words else None if args.encoder == "default" else args.encoder
    with Keys(args.store) as keys:
        memories = Memories(
            args.store,
            encoder=encoder,
            annotator=args.annotator or ("rules" if words else None),
            device="cpu",
            max_open=args.max_open,
        )
        serve(
            memories, Settings(), keys, host="127.0.0.1", port=args.port,
            started=lambda url: print(url, flush=True),
        )  # fmt: skip


if __name__ == "__main__":
    main()
