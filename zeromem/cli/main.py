"""The entry point: from arguments to an exit code, every failure one line on stderr."""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Sequence

from zeromem.cli import commands
from zeromem.cli.parser import build_parser
from zeromem.errors import ZeroMemError

FAILED = 1
INTERRUPTED = 130  # 128 + SIGINT, as shells have it
BROKEN_PIPE = 141  # 128 + SIGPIPE


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments without the program's name; by default those of the process.

    Returns
    -------
    int
        0; 1 where the command failed (and where `demo` has a wrong answer); 130 when interrupted;
        141 when the reader of the output went away. Wrong usage exits with 2, as argparse does.
    """
    args = build_parser().parse_args(argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # lone surrogates are no output error
    if args.debug:
        logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    try:
        code: int = commands.RUN[args.command](args)
        sys.stdout.flush()
        return code
    except BaseException as error:
        if args.debug or isinstance(error, SystemExit | GeneratorExit):
            raise
        message, code = _told(error)
        print(f"zeromem: {' '.join(message.split())}", file=sys.stderr)
        return code


def _told(error: BaseException) -> tuple[str, int]:
    """What to say of an error, and the exit code."""
    match error:
        case KeyboardInterrupt():
            return "interrupted; what was acknowledged is stored, and a rerun goes on", INTERRUPTED
        case BrokenPipeError():
            return "the reader of the output closed it before the end", BROKEN_PIPE
        case ZeroMemError():
            return str(error), FAILED
        case OSError(strerror=str(cause)) if error.filename is not None:
            return f"{os.fspath(error.filename)!s}: {cause}", FAILED
        case OSError():
            return str(error), FAILED
    kind = type(error).__name__
    return f"unexpected {kind}: {error} (--debug shows where)", FAILED
