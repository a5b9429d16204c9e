"""The index: an immutable value over columns that newer values go on writing behind its end."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zeromem.backend import Backend
from zeromem.config import Config
from zeromem.index.arrays import Arrays
from zeromem.index.extend import extend
from zeromem.index.features import TraceFeatures
from zeromem.index.segment import Row, Segment
from zeromem.index.state import State

# Turns that are added at once: what an addition needs beside the index is bounded by them.
_BATCH = 4096


class Index:
    """An immutable value; a longer one shares its memory, a shorter one shares nothing.

    Whatever way an index came about, its arrays depend on the turns it holds alone:
    ``build(a + b)`` and ``build(a).extend(b)`` and ``build(a + x + b).without(x)`` are alike,
    to the bit.

    Parameters
    ----------
    state : State
    dim : int
        Columns of the vectors.
    config : Config
    backend : Backend
    """

    def __init__(self, state: State, dim: int, config: Config, backend: Backend) -> None:
        self.state = state
        self.dim = dim
        self.config = config
        self.backend = backend
        self.arrays = Arrays.of(state)

    @classmethod
    def empty(cls, dim: int, config: Config, backend: Backend) -> Index:
        """Index no trace."""
        return cls(State.empty(dim), dim, config, backend)

    @property
    def last_lsn(self) -> int:
        """The newest trace's place in the log; 0 where there is none."""
        return int(self.arrays.turns.lsn[-1]) if len(self) else 0

    @cached_property
    def n_bytes(self) -> int:
        """Bytes that it takes; what it shares with other indexes and with a snapshot counts too."""
        return self.state.n_bytes

    def __len__(self) -> int:
        """Turns."""
        return len(self.state)

    def extend(self, rows: Sequence[Row], features: Sequence[TraceFeatures]) -> Index:
        """Add traces that are newer than all there are.

        Parameters
        ----------
        rows : sequence of Row
            Ascending in ``lsn``.
        features : sequence of TraceFeatures
            One for each row.
        """
        state = self.state
        for part in _parts([len(f.turns) for f in features]):
            segment = Segment.build(rows[part], features[part], self.dim)
            if len(segment):
                state = extend(state, segment, self.config)
        return self if state is self.state else self._with(state)

    def without(self, lsns: Collection[int]) -> Index:
        """Leave out traces, and every name and term that came from them alone."""
        gone = np.fromiter(lsns, np.int64, len(lsns))
        return self._where(~np.isin(self.arrays.turns.lsn, gone))

    def until(self, lsn: int) -> Index:
        """Return the index of the log's prefix that ends with ``lsn``: as_of."""
        return self._where(self.arrays.turns.lsn <= lsn)

    def _where(self, kept: NDArray[Any]) -> Index:
        """Build the index of some turns anew, out of the features that this one holds."""
        if kept.all():
            return self
        rows = np.flatnonzero(kept)
        state = State.empty(self.dim)
        for start in range(0, len(rows), _BATCH):
            state = extend(state, self.state.select(rows[start : start + _BATCH]), self.config)
        return self._with(state)

    def _with(self, state: State) -> Index:
        return Index(state, self.dim, self.config, self.backend)


def _parts(n_turns: Sequence[int]) -> Iterator[slice]:
    """Runs of traces of about ``_BATCH`` turns."""
    start = held = 0
    for i, n in enumerate(n_turns):
        held += n
        if held >= _BATCH:
            yield slice(start, i + 1)
            start, held = i + 1, 0
    if start < len(n_turns):
        yield slice(start, len(n_turns))
