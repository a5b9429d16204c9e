"""Progress on stderr, silent where nobody watches."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")


def progress(items: Sequence[T], label: str) -> Iterable[T]:
    """Iterate with a progress bar on stderr, or plainly where stderr is not a terminal."""
    if len(items) < 2 or not sys.stderr.isatty():
        return items
    from tqdm import tqdm

    return tqdm(items, desc=label, file=sys.stderr, leave=False)
