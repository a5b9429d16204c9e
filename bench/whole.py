"""Whole retrieval over an index, without a store, and the plain form of the same equations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from subjects import Inputs, must

from zeromem.backend import Backend, Device, ReferenceBackend, resolve
from zeromem.config import Config
from zeromem.index import Index
from zeromem.ingest.annotate import RuleAnnotator, entity_names
from zeromem.query.piece import Timer
from zeromem.query.profile import profile
from zeromem.query.ranked import Options
from zeromem.query.retrieve import retrieve

Array = NDArray[Any]


class Whole:
    """A memory's index, and questions that are ready to be asked: retrieval without encoding.

    Parameters
    ----------
    inputs : Inputs
    config : Config, optional
    device : {"cpu", "cuda"}
    backend : Backend, optional
        In place of the device's.
    """

    def __init__(
        self,
        inputs: Inputs,
        config: Config | None = None,
        device: Device = "cpu",
        backend: Backend | None = None,
    ) -> None:
        memory = inputs.memory
        self._encoder = memory.encoder(inputs.questions)
        index = Index.empty(memory.dim, config or Config(), backend or resolve(device))
        for rows, features in memory.batches():
            index = index.extend(rows, features)
        self.index = index
        texts = [q.text for q in inputs.questions]
        known = index.arrays.names
        named = entity_names(texts, RuleAnnotator().annotate(texts))
        self.profiles = [
            profile(text, known_names=known, query_entities=names)
            for text, names in zip(texts, named, strict=True)
        ]
        self._vectors: dict[str, Array] = {}
        self.retrieve(slice(None))  # every text's vector is known from here on

    def _encode(self, texts: Sequence[str]) -> Array:
        for text in texts:
            if text not in self._vectors:
                self._vectors[text] = self._encoder.encode([text])[0]
        return np.stack([self._vectors[text] for text in texts])

    def retrieve(self, which: slice) -> list[Any]:
        """Answer these questions as one batch."""
        return retrieve(self.index, self.profiles[which], self._encode, Options(), Timer())

    def reference(self, which: slice) -> list[Any]:
        """Answer them one by one by the plain form of the same equations, in float64."""
        plain = Index(self.index.state, self.index.dim, self.index.config, ReferenceBackend(1))
        found = []
        for asked in self.profiles[which]:
            found += retrieve(plain, [asked], self._encode, Options(), Timer())
        return found


def exempted(found: Sequence[Any], exact: Sequence[Any]) -> float:
    """Return the share of items of R(q) that stand elsewhere because their scores are equal.

    Raises
    ------
    WrongResult
        Where an item stands elsewhere although its score is not, to five digits.
    """
    moved = total = 0
    for j, (ours, theirs) in enumerate(zip(found, exact, strict=True)):
        must(len(ours.items) == len(theirs.items), f"question {j} has another number of items")
        for item, other in zip(ours.items, theirs.items, strict=True):
            close = abs(item.score - other.score) <= 1e-5 * max(abs(item.score), abs(other.score))
            must(close, f"question {j}: score {item.score!r}, the oracle has {other.score!r}")
            moved += item.row != other.row
            total += 1
    must(moved <= 0.05 * total, f"{moved} of {total} items stand elsewhere")
    return moved / max(total, 1)
