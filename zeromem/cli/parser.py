"""What the command line takes. Imports nothing heavy: ``--help`` answers at once."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable

from zeromem import __version__
from zeromem.importers import FORMATS
from zeromem.types import ROLES

DEFAULT_STORE = "memory.zm"
DEFAULT_SCOPE = "default"
READERS = ("extractive", "openai", "llama_cpp")

_EPILOG = """\
Each of --store, --scope, --encoder, --annotator, --device and --zone can also be set in the
environment: ZEROMEM_STORE, ZEROMEM_SCOPE, and so on. Options may stand before or after the command.
"""
_Parser = argparse.ArgumentParser
_Group = Callable[[_Parser], None]


def build_parser() -> argparse.ArgumentParser:
    """Return the parser; its result has ``command`` and the options of that command."""
    parser = _Parser(
        prog="zeromem",
        description="A memory for LLM agents that spends no LLM tokens: raw traces in, grounded "
        "and cited evidence out.",
        epilog=_EPILOG,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"zeromem {__version__}")
    _global_options(parser, defaults=True)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (summary, groups) in _COMMANDS.items():
        command = commands.add_parser(
            name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.",
            allow_abbrev=False,
        )  # fmt: skip
        _global_options(command, defaults=False)
        for group in groups:
            group(command)
    return parser


def setting(args: argparse.Namespace, name: str, fallback: str | None = None) -> str | None:
    """Return a global option: as given, else from the environment, else the fallback."""
    return getattr(args, name) or os.environ.get(f"ZEROMEM_{name.upper()}") or fallback


def _global_options(parser: _Parser, *, defaults: bool, read_only: bool = True) -> None:
    """Add the options that every command takes, before and after its name."""
    group = parser.add_argument_group("options of every command")

    def value(name: str, metavar: str, text: str) -> None:
        default = None if defaults else argparse.SUPPRESS
        group.add_argument(f"--{name}", metavar=metavar, default=default, help=text)

    def flag(name: str, text: str) -> None:
        default = False if defaults else argparse.SUPPRESS
        group.add_argument(f"--{name}", action="store_true", default=default, help=text)

    value("store", "PATH", f"the memory's file (default: ./{DEFAULT_STORE})")
    value("scope", "NAME", f"whose memory (default: {DEFAULT_SCOPE})")
    value("encoder", "MODEL", "name, folder or http://host/v1#model of the sentence encoder")
    value("annotator", "NAME", "spaCy pipeline that finds sentences and names, or 'rules'")
    value("device", "DEVICE", "auto, cpu or cuda (default: auto)")
    value("zone", "ZONE", "time zone of times given without one, such as Europe/Berlin")
    if read_only:
        flag("read-only", "write nothing, not even caches")
    flag("json", "print data as JSON")
    flag("quiet", "no progress bar")
    flag("debug", "log what happens, and show tracebacks")


def _one_trace(parser: _Parser) -> None:
    parser.add_argument("text", help="what to remember, word for word; '-' reads it from stdin")
    parser.add_argument("--id", help="your identifier, unique in the scope")
    parser.add_argument("--role", choices=ROLES, default="user")
    parser.add_argument("--speaker", help="who said it")
    parser.add_argument("--session", help="the conversation or document it belongs to")
    parser.add_argument("--time", help="when it happened: ISO 8601, as precise as is known")
    parser.add_argument("--title", help="title of a document, subject of a message")
    parser.add_argument("--source", help="where it came from")
    parser.add_argument("--metadata", metavar="JSON", help="a JSON object to keep with it")


def _import(parser: _Parser) -> None:
    parser.add_argument("file", help="the file to read; '-' reads stdin")
    parser.add_argument(
        "--format", choices=("auto", *FORMATS), default="auto",
        help="by default told from the first record",
    )  # fmt: skip
    parser.add_argument(
        "--sample", metavar="NAME",
        help="of a file with several conversations import this one, into --scope; without it each "
        "gets a scope of its own, named SCOPE/NAME, or NAME where no --scope is given",
    )  # fmt: skip
    parser.add_argument("--source", help="source of traces that name none (default: the file name)")
    parser.add_argument(
        "--keep-system", action="store_true", help="keep a chat's system messages, as documents"
    )


def _question(parser: _Parser) -> None:
    parser.add_argument("question")
    parser.add_argument("-k", type=int, metavar="N", help="main items (default: 5)")
    parser.add_argument(
        "--token-budget", type=int, metavar="N", help="most encoder tokens of all evidence"
    )
    parser.add_argument(
        "--asked-at", metavar="TIME", help="when it is asked: 'last week' counts from here"
    )
    parser.add_argument("--view", choices=("graph", "hierarchy"), help="one view alone")
    parser.add_argument("--no-closure", action="store_true", help="main items without support")
    parser.add_argument("--no-calibration", action="store_true", help="in the order of the ranking")


def _boundary(parser: _Parser) -> None:
    group = parser.add_argument_group("boundary", "hard limits; name options may be repeated")
    for name in ("session", "speaker", "source"):
        group.add_argument(f"--{name}", action="append", metavar="NAME")
    group.add_argument("--role", action="append", choices=ROLES)
    _period(group)
    group.add_argument(
        "--as-of", metavar="TIME",
        help="only what was stored by then: a time, or lsn:N, a place in the log",
    )  # fmt: skip


def _period(group: argparse._ActionsContainer) -> None:
    group.add_argument("--after", metavar="TIME", help="what happened at that time or later")
    group.add_argument("--before", metavar="TIME", help="what happened before that time")


def _reader(parser: _Parser) -> None:
    group = parser.add_argument_group("reader", "the only stage that may use a language model")
    group.add_argument(
        "--reader", choices=READERS, default="extractive",
        help="extractive (default) quotes the evidence without any LLM",
    )  # fmt: skip
    group.add_argument("--model", help="openai: the chat model; OPENAI_API_KEY has the key")
    group.add_argument("--base-url", metavar="URL", help="openai: another compatible server")
    group.add_argument("--model-path", metavar="GGUF", help="llama_cpp: the model's file")
    _shown(parser, 0)


def _shown(parser: _Parser, default: int) -> None:
    parser.add_argument(
        "--evidence", type=int, default=default, metavar="N",
        help=f"evidence items to show beside those cited (default: {default})",
    )  # fmt: skip


def _target(parser: _Parser) -> None:
    parser.add_argument("file", nargs="?", default="-", help="where to write (default: stdout)")


def _forget(parser: _Parser) -> None:
    parser.add_argument("ids", nargs="*", metavar="ID")
    for name in ("session", "speaker", "source"):
        parser.add_argument(f"--{name}", metavar="NAME")
    _period(parser)
    parser.add_argument("--everything", action="store_true", help="the whole scope")
    parser.add_argument("--dry-run", action="store_true", help="only count what would go")


def _address(parser: _Parser, port: int) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="address to serve (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=port, help=f"0: any free (default: {port})")


def _memories(parser: _Parser) -> None:
    parser.add_argument(
        "--max-open", type=int, default=1000, metavar="N",
        help="memories that are kept open (default: 1000)",
    )  # fmt: skip
    parser.add_argument(
        "--max-index-bytes", type=int, default=1024, metavar="MIB",
        help="room for the indexes of open memories, in MiB (default: 1024)",
    )  # fmt: skip


def _upstream(parser: _Parser) -> None:
    group = parser.add_argument_group(
        "language models", "ZEROMEM_UPSTREAM_API_KEY has the key of their server"
    )
    group.add_argument(
        "--upstream", metavar="URL",
        help="pass chats (/v1/chat/completions) on to this server of OpenAI's protocol",
    )  # fmt: skip
    group.add_argument(
        "--upstream-model", metavar="NAME",
        help="the one model that chats may ask for, and need not name",
    )  # fmt: skip
    group.add_argument(
        "--reader-model", metavar="NAME", help="the model that answers /v1/answer (default: none)"
    )
    group.add_argument(
        "--upstream-timeout", type=float, default=600.0, metavar="S",
        help="seconds that a whole reply may take (default: 600)",
    )  # fmt: skip
    group.add_argument(
        "--upstream-gap", type=float, default=120.0, metavar="S",
        help="seconds for which a streamed reply may stand still (default: 120)",
    )  # fmt: skip


def _serve(parser: _Parser) -> None:
    _address(parser, 8080)
    _memories(parser)
    parser.add_argument("--mcp", action="store_true", help="speak MCP at /mcp too")
    parser.add_argument("--no-auth", action="store_true", help="serve anybody, without API keys")
    parser.add_argument("--rate", type=float, metavar="N", help="requests a second of one key")
    parser.add_argument("--no-batching", action="store_true", help="each question by itself")
    parser.add_argument(
        "--batch-window", type=float, default=1.5, metavar="MS",
        help="milliseconds for which a batch gathers (default: 1.5)",
    )  # fmt: skip
    parser.add_argument(
        "--max-waiting", type=int, default=1024, metavar="N",
        help="questions that may wait before others are refused with 429 (default: 1024)",
    )  # fmt: skip
    parser.add_argument(
        "--timeout", type=float, default=30.0, metavar="S",
        help="seconds that a request may take (default: 30)",
    )  # fmt: skip
    _upstream(parser)
    parser.add_argument(
        "--shutdown-timeout", type=float, default=30.0, metavar="S",
        help="seconds that requests in progress have at the end (default: 30)",
    )  # fmt: skip
    parser.add_argument(
        "--max-body", type=int, default=16, metavar="MIB", help="MiB of a request (default: 16)"
    )
    parser.add_argument("--no-metrics", action="store_true", help="without /metrics")
    parser.add_argument(
        "--log-level", choices=("debug", "info", "warning", "error"), default="info",
        help="info writes a line of JSON for each request (default: info)",
    )  # fmt: skip


def _backup(parser: _Parser) -> None:
    parser.add_argument("target", metavar="TARGET", help="the file to write")
    parser.add_argument("--force", action="store_true", help="replace a file that is there")


def _restore(parser: _Parser) -> None:
    parser.add_argument("backup", metavar="BACKUP", help="a file that backup wrote")
    parser.add_argument(
        "--force", action="store_true", help="replace the store at --store; it must not be open"
    )


def _keys(parser: _Parser) -> None:
    actions = parser.add_subparsers(dest="keys_command", metavar="ACTION", required=True)

    def action(name: str, summary: str, *, read_only: bool = True) -> _Parser:
        added = actions.add_parser(
            name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.",
            allow_abbrev=False,
        )  # fmt: skip
        _global_options(added, defaults=False, read_only=read_only)
        return added

    create = action("create", "make a key and print it, this once", read_only=False)
    whose = create.add_mutually_exclusive_group(required=True)
    whose.add_argument("--tenant", metavar="NAME", help="whose memories it reaches")
    whose.add_argument("--all-tenants", action="store_true", help="an operator's key")
    create.add_argument("--name", default="", help="what the key is for")
    create.add_argument(
        "--read-only", action="store_true", dest="key_read_only", help="a key that may only read"
    )
    create.add_argument("--rate", type=float, metavar="R", help="most requests per second")
    action("list", "list the keys, revoked ones too, without their secrets")
    action("revoke", "take a key back for good").add_argument("id", metavar="ID")


def _mcp(parser: _Parser) -> None:
    parser.add_argument(
        "--http", action="store_true", help="serve streamable HTTP at /mcp, not stdin and stdout"
    )
    parser.add_argument("--host", help="HTTP: the address to listen on (default: 127.0.0.1)")
    parser.add_argument(
        "--port", type=int, metavar="N", help="HTTP: 0 takes any that is free (default: 8765)"
    )
    parser.add_argument(
        "--allow-host", action="append", metavar="NAME",
        help="HTTP: a name, with its port, by which clients reach this server beside localhost; "
        "'NAME:*' for any port",
    )  # fmt: skip


def _demo(parser: _Parser) -> None:
    _shown(parser, 3)


_COMMANDS: dict[str, tuple[str, tuple[_Group, ...]]] = {
    "add": ("remember one trace", (_one_trace,)),
    "import": (
        "remember a file: JSON Lines, a chat export, LoCoMo, BEAM or LongMemEval",
        (_import,),
    ),
    "search": ("find the evidence for a question", (_question, _boundary)),
    "ask": ("answer a question from its evidence, with citations", (_question, _boundary, _reader)),
    "explain": ("show how the evidence for a question came about", (_question, _boundary)),
    "stats": ("count what a scope holds", ()),
    "export": ("write a scope as JSON Lines, which import reads back", (_target,)),
    "forget": ("delete traces and all that was derived from them, for good", (_forget,)),
    "reencode": ("encode a scope anew, with --encoder and --annotator", ()),
    "scopes": ("list the scopes of a store", ()),
    "warmup": ("compile the kernels and load the models ahead of the first question", ()),
    "serve": ("serve HTTP: memory for many tenants", (_serve,)),
    "backup": ("copy the whole store into one file, while it is in use", (_backup,)),
    "restore": ("put a backup in the place of the store", (_restore,)),
    "keys": ("make, list or revoke the API keys of a server's clients", (_keys,)),
    "mcp": ("serve a scope to MCP clients, over stdin and stdout or over HTTP", (_mcp,)),
    "demo": ("ask ten questions about a conversation that ships with zeromem", (_demo,)),
}
