"""Vectors that are being made while something else is still going on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]


class Early:
    """An encoder of questions that begins, in a thread, with what it will be asked.

    Parameters
    ----------
    encode : callable
        Texts to (n, dim) float32 rows, or None where it fails. It keeps what it made.
    texts : sequence of str
    dim : int
    """

    def __init__(
        self, encode: Callable[[Sequence[str]], Vectors | None], texts: Sequence[str], dim: int
    ) -> None:
        self._encode = encode
        self._dim = dim
        self._failed = False
        self._thread = threading.Thread(target=self._begin, args=(texts,), name="zeromem-encode")
        self._thread.start()

    def _begin(self, texts: Sequence[str]) -> None:
        self._failed = self._encode(texts) is None

    def __call__(self, texts: Sequence[str]) -> Vectors:
        """Return the rows of texts; zeros, which favour no turn, where the encoder fails."""
        self._thread.join()
        # Not asked a second time: it may have taken long to fail.
        found = None if self._failed else self._encode(texts)
        return np.zeros((len(texts), self._dim), np.float32) if found is None else found
