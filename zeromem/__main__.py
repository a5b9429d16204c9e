"""``python -m zeromem``: the command line."""

import sys

from zeromem.cli import main

if __name__ == "__main__":
    sys.exit(main())
