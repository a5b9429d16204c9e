"""The commands that serve others."""

from __future__ import annotations

import logging
import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from zeromem.cli.common import Args, note, scope, store_path, zone
from zeromem.cli.parser import setting
from zeromem.errors import InvalidInputError, MissingExtraError

_log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from zeromem.memories import Memories
    from zeromem.server.settings import UpstreamSettings

_MCP_HOST, _MCP_PORT = "127.0.0.1", 8765
_LOOPBACK = (_MCP_HOST, "localhost", "::1")


def serve(args: Args) -> int:
    """Serve HTTP until the process is told to stop."""
    try:
        from zeromem.server.logs import to_stderr
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
        upstream=_upstream(args), scope=scope(args),
    )  # fmt: skip
    with ExitStack() as stack:
        stack.enter_context(to_stderr("debug" if args.debug else args.log_level))
        memories = stack.enter_context(
            open_memories(args, max_open=args.max_open, max_bytes=args.max_index_bytes << 20)
        )
        keys = None if args.no_auth else stack.enter_context(Keys(store_path(args, create=True)))
        if keys is not None and not keys.list():
            _log.warning("there are no API keys: whoever is on this machine may read and write all")
        run(
            memories, settings, keys, host=args.host, port=args.port, mcp=args.mcp,
            started=lambda url: print(f"zeromem: serving {url}", flush=True),
        )  # fmt: skip
    return 0


def _upstream(args: Args) -> UpstreamSettings | None:
    """Read which language models there are."""
    from zeromem.server.settings import UpstreamSettings

    if args.upstream is None:
        for name in ("upstream_model", "reader_model"):
            if (model := getattr(args, name)) is not None:
                option = name.replace("_", "-")
                raise InvalidInputError(
                    f"--{option} {model!r} needs a server to ask; name it with --upstream URL"
                )
        return None
    return UpstreamSettings(
        url=args.upstream,
        api_key=os.environ.get("ZEROMEM_UPSTREAM_API_KEY") or None,
        model=args.upstream_model,
        reader_model=args.reader_model,
        timeout=args.upstream_timeout,
        gap_timeout=args.upstream_gap,
    )


def mcp(args: Args) -> int:
    """Serve MCP over stdin and stdout, or over HTTP."""
    for option in ("host", "port", "allow_host"):
        if getattr(args, option) is not None and not args.http:
            raise InvalidInputError(f"--{option.replace('_', '-')} goes with --http")
    host = _MCP_HOST if args.host is None else args.host
    if host not in _LOOPBACK and not args.allow_host:
        raise InvalidInputError(
            f"--host {host!r} would let other machines read, write and forget: this server has no "
            "keys; name what it is reached by with --allow-host to have it so"
        )
    import anyio

    from zeromem.mcp import stdio
    from zeromem.mcp.server import build

    with open_memories(args) as memories:
        with memories.use(scope(args)):
            pass  # its faults show now, not at the first request
        if args.http:
            _mcp_over_http(args, memories, host)
        else:
            server = build(memories, scope=scope(args), read_only=args.read_only)
            anyio.run(stdio.serve, server)
    return 0


def _mcp_over_http(args: Args, memories: Memories, host: str) -> None:
    import anyio

    from zeromem.mcp import http

    with http.listen(host, _MCP_PORT if args.port is None else args.port) as listening:
        port = listening.getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        endpoint = http.Endpoint(
            memories,
            scope=scope(args),
            hosts=[f"{shown}:{port}", *(args.allow_host or ())],
            read_only=args.read_only,
        )
        note(f"MCP at http://{shown}:{port}{http.PATH}")
        anyio.run(http.serve, endpoint, listening)


def open_memories(args: Args, **budget: Any) -> Memories:
    """Open the store's memories with the models that the options name, within a budget."""
    from zeromem.memories import Memories

    return Memories(
        store_path(args, create=not args.read_only),
        encoder=setting(args, "encoder"),
        annotator=setting(args, "annotator"),
        device=setting(args, "device", "auto"),  # type: ignore[arg-type] # checked there
        zone=zone(args),
        read_only=args.read_only,
        **budget,
    )
