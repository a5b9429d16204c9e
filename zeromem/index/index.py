"""The index: a tuple of sealed segments, and what is derived from them when first asked for."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence

import numpy as np

from zeromem.backend import Backend
from zeromem.config import Config
from zeromem.index.arrays import Arrays, assemble
from zeromem.index.features import TraceFeatures
from zeromem.index.segment import Row, Segment, concat


class Index:
    """An immutable value; every operation returns another one that shares its segments.

    Whatever way an index came about, its answers depend on the turns it holds alone:
    ``build(a + b)`` and ``build(a).extend(b)`` and ``build(a + x + b).without(x)`` answer alike,
    to the bit.

    Parameters
    ----------
    segments : tuple of Segment
        Ascending in lsn.
    dim : int
        Columns of the vectors.
    config : Config
    backend : Backend
    """

    def __init__(
        self, segments: tuple[Segment, ...], dim: int, config: Config, backend: Backend
    ) -> None:
        self.segments = segments
        self.dim = dim
        self.config = config
        self.backend = backend
        self._arrays: Arrays | None = None
        self._lock = threading.Lock()

    @classmethod
    def empty(cls, dim: int, config: Config, backend: Backend) -> Index:
        """Index no trace."""
        return cls((), dim, config, backend)

    @property
    def last_lsn(self) -> int:
        """The newest trace's place in the log; 0 where there is none."""
        return int(self.segments[-1].lsn[-1]) if self.segments else 0

    def __len__(self) -> int:
        """Turns."""
        return sum(map(len, self.segments))

    @property
    def arrays(self) -> Arrays:
        """What queries read; derived once, by the first thread that asks."""
        with self._lock:
            if self._arrays is None:
                whole = concat(self.segments, self.dim)
                self._arrays = assemble(whole, self.config, self.backend)
            return self._arrays

    def extend(self, rows: Sequence[Row], features: Sequence[TraceFeatures]) -> Index:
        """Add traces that are newer than all there are.

        Segments merge as in a log-structured tree, each no smaller than half the one before it, so
        that an added turn is copied O(log n) times in all.
        """
        tail = Segment.build(rows, features, self.dim)
        if not len(tail):
            return self
        segments = [*self.segments, tail]
        while len(segments) > 1 and len(segments[-2]) < 2 * len(segments[-1]):
            segments[-2:] = [concat(segments[-2:], self.dim)]
        return self._with(segments)

    def without(self, lsns: Collection[int]) -> Index:
        """Leave out traces, and every name and term that came from them alone."""
        gone = np.fromiter(lsns, np.int64, len(lsns))
        return self._with([s.where(lambda lsn: ~np.isin(lsn, gone)) for s in self.segments])

    def until(self, lsn: int) -> Index:
        """Return the index of the log's prefix that ends with ``lsn``: as_of."""
        if lsn >= self.last_lsn:
            return self
        return self._with([s.where(lambda found: found <= lsn) for s in self.segments])

    def _with(self, segments: Sequence[Segment]) -> Index:
        kept = tuple(s for s in segments if len(s))
        return Index(kept, self.dim, self.config, self.backend)
