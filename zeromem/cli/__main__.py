"""``python -m zeromem.cli``: the command line where no script `zeromem` is on the path."""

import sys

from zeromem.cli import main

sys.exit(main())
