"""Progress of long work on stderr; silent where nobody is looking."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

T = TypeVar("T")

# Below this the work is done before a bar could be read.
_SHORTEST = 64


class Progress(Generic[T]):
    """Items that are counted as they are taken, and the stage the current batch is in."""

    def __init__(self, items: Iterable[T], bar: Any) -> None:
        self._items = items
        self._bar = bar

    def __iter__(self) -> Iterator[T]:
        for item in self._items:
            yield item
            if self._bar is not None:
                self._bar.update()

    def stage(self, name: str, done: int, total: int) -> None:
        """Show what the current batch is at."""
        if self._bar is not None:
            self._bar.set_postfix_str(f"{name} {done}/{total}", refresh=True)


@contextmanager
def progress_bar(items: Iterable[T], label: str, wanted: bool | None) -> Iterator[Progress[T]]:
    """Wrap items in a bar.

    Parameters
    ----------
    items : iterable
    label : str
    wanted : bool, optional
        By default where stderr is a terminal and there is enough to do.
    """
    total = len(items) if isinstance(items, Sized) else None
    short = total is not None and total < _SHORTEST
    show = wanted if wanted is not None else sys.stderr.isatty() and not short
    if not show:
        yield Progress(items, None)
        return
    from tqdm import tqdm

    with tqdm(total=total, desc=label, unit=" traces", file=sys.stderr) as bar:
        yield Progress(items, bar)
