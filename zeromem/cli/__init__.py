"""The command line: ``zeromem add | import | search | ask | …``. See ``zeromem --help``."""

from zeromem.cli.main import main

__all__ = ["main"]
