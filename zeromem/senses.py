"""What evidence means, as the vectors that ingestion made of it: nothing is encoded again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zeromem.answer.similarity import Encode, Encoded
from zeromem.index import Arrays
from zeromem.types import Evidence

Float32 = NDArray[np.float32]
Int32 = NDArray[np.int32]


class Stored:
    """A :class:`zeromem.answer.similarity.Sense` over a memory's index.

    Parameters
    ----------
    encode : callable
        For questions, and for evidence that the index no longer has.
    arrays : callable
        Returns the index as it stands.
    """

    def __init__(self, encode: Encode, arrays: Callable[[], Arrays]) -> None:
        self.encode = encode
        self._arrays = arrays
        self._others = Encoded(encode)

    def senses(self, evidence: Sequence[Evidence], spans: Sequence[Int32]) -> list[Float32]:
        """Vectors of each item, then of its sentences: the stored ones that cover them most."""
        arrays = self._arrays()
        found: list[Float32] = []
        for item, own in zip(evidence, spans, strict=True):
            row = _row(arrays, item)
            if row is None:
                found += self._others.senses([item], [own])
            else:
                found.append(_rows(arrays, row, own + item.start))
        return found


def _row(arrays: Arrays, item: Evidence) -> int | None:
    """The turn that an item is, where the index has it with vectors."""
    turns = arrays.turns
    first, last = np.searchsorted(turns.lsn, [item.lsn, item.lsn + 1])
    same = np.flatnonzero((turns.span[first:last] == (item.start, item.end)).all(axis=1))
    if not len(same) or not turns.encoded[first + same[0]]:
        return None
    return int(first + same[0])


def _rows(arrays: Arrays, row: int, wanted: NDArray[Any]) -> Float32:
    turns = arrays.turns
    first, last = turns.sentence_indptr[row : row + 2].tolist()
    scale = arrays.turn_inverse_norm[row : row + 1, None]
    whole = arrays.turn_vectors.take(np.array([row])) * scale
    if first == last or not len(wanted):
        return np.repeat(whole, len(wanted) + 1, axis=0)
    known = turns.sentence_span[first:last]
    shared = np.minimum(wanted[:, None, 1], known[None, :, 1]) - np.maximum(
        wanted[:, None, 0], known[None, :, 0]
    )
    best = first + shared.argmax(axis=1)
    parts = arrays.sentence_vectors.take(best) * arrays.sentence_inverse_norm[best, None]
    return np.concatenate([whole, np.where(shared.max(axis=1)[:, None] > 0, parts, whole)])
