"""Names with ids in order of first appearance, shared between an index and those made of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from zeromem.index.columns import End


class Names(Mapping[str, int]):
    """The first n names of a dictionary that newer values write on.

    Parameters
    ----------
    names : iterable of str
        Distinct, in order of their ids.
    """

    __slots__ = ("_end", "_ids", "_n", "_names")

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = list(names)
        self._ids = {name: i for i, name in enumerate(self._names)}
        self._n = len(self._names)
        self._end = End(self._n)

    def __getitem__(self, name: str) -> int:
        found = self._ids[name]
        if found >= self._n:  # a newer value's
            raise KeyError(name)
        return found

    def __contains__(self, name: object) -> bool:
        return self._ids.get(name, self._n) < self._n  # type: ignore[call-overload,no-any-return]

    def __iter__(self) -> Iterator[str]:
        return islice(self._names, self._n)

    def __len__(self) -> int:
        return self._n

    def __repr__(self) -> str:
        return f"Names({list(self)!r})"

    def name(self, i: int) -> str:
        """Return the name with an id."""
        if not 0 <= i < self._n:
            raise IndexError(f"ids of {self._n} names end before {i}")
        return self._names[i]

    def extended(self, names: Iterable[str]) -> tuple[Names, NDArray[np.int32]]:
        """Add those names that are new.

        Returns
        -------
        Names
        ids : (k,) int32
            Of the names given.
        """
        wanted = list(names)
        ids = np.fromiter((self.get(name, -1) for name in wanted), np.int32, len(wanted))
        missing = np.flatnonzero(ids < 0)
        if not len(missing):
            return self, ids
        # What is claimed and not given back (an interrupt) is copied by whoever comes next.
        grown = _sharing(self) if self._end.take(self._n) else _copied(self)
        for at in missing.tolist():
            name = wanted[at]
            found = grown._ids.get(name, -1)
            if found < 0:
                found = len(grown._names)
                grown._names.append(name)
                grown._ids[name] = found
            ids[at] = found
        grown._n = len(grown._names)
        grown._end.put(grown._n)
        return grown, ids


def _sharing(names: Names) -> Names:
    other = Names.__new__(Names)
    other._names, other._ids, other._n, other._end = names._names, names._ids, names._n, names._end
    return other


def _copied(names: Names) -> Names:
    other = Names(names)
    other._end.take(other._n)
    return other
