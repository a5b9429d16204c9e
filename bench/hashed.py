"""An encoder without a model, for benchmarks of all that is not encoding."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zeromem.ingest.encode import SpanVectors

Array = NDArray[Any]
_WORD = re.compile(r"\w+")


class SyntheticEncoder:
    """Vectors without a model: what a memory knows has its vectors, the rest by its words.

    Parameters
    ----------
    dim : int
    fingerprint : str
    known : callable
        From a text to its unit vector, or None.
    """

    def __init__(self, dim: int, fingerprint: str, known: Callable[[str], Array | None]) -> None:
        self.dim = dim
        self.fingerprint = fingerprint
        self._known = known

    def encode(self, texts: Sequence[str]) -> Array:
        """Return (n, dim) float32 unit rows."""
        rows = np.empty((len(texts), self.dim), np.float32)
        for row, text in zip(rows, texts, strict=True):
            found = self._known(text)
            row[:] = self._by_words(text) if found is None else found
        return _unit(rows)

    def encode_spans(self, texts: Sequence[str], spans: Sequence[Array]) -> SpanVectors:
        """Encode texts and their parts, each in a direction of its own."""
        parts = [t[a:z] for t, s in zip(texts, spans, strict=True) for a, z in s.tolist()]
        return SpanVectors(
            0.9 * self._apart(texts),
            self._apart(parts),
            np.array([len(t.split()) for t in texts], np.int32),
            np.array([len(p.split()) for p in parts], np.int32),
        )

    def _by_words(self, text: str) -> Array:
        return self._directions(text.lower().split() or [text]).sum(axis=0)

    def _apart(self, texts: Sequence[str]) -> Array:
        return _unit(self._directions(texts))

    def _directions(self, texts: Sequence[str]) -> Array:
        rows = np.empty((len(texts), self.dim), np.float32)
        for row, text in zip(rows, texts, strict=True):
            digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
            rng = np.random.default_rng(int.from_bytes(digest, "little"))
            rng.standard_normal(dtype=np.float32, out=row)
        return rows


class WordEncoder(SyntheticEncoder):
    """Each word has a direction of its own, and a text the sum of its words': as fast as one is.

    Parameters
    ----------
    dim : int
    """

    def __init__(self, dim: int = 64) -> None:
        super().__init__(dim, f"words-{dim}", lambda text: None)
        self._direction = lru_cache(1 << 14)(self._drawn)

    def _apart(self, texts: Sequence[str]) -> Array:
        return _unit(np.array([self._by_words(text) for text in texts]).reshape(-1, self.dim))

    def _by_words(self, text: str) -> Array:
        words = _WORD.findall(text.lower()) or [text]
        found: Array = np.sum([self._direction(word) for word in words], axis=0)
        return found

    def _drawn(self, word: str) -> Array:
        return self._directions([word])[0]


def _unit(rows: Array) -> Array:
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(norms, 1e-12), np.float32)
