"""The baselines' turns and vectors: zeromem's own features, computed once and kept in a store."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from harness.data import Memory
from harness.progress import progress
from zeromem.ingest.encode import Encoder
from zeromem.index.features import TraceFeatures, feature_key
from zeromem.text import terms
from zeromem.types import Trace

BATCH = 512
T = TypeVar("T")


class SupportsFeaturize(Protocol):
    """The part of zeromem's Featurizer that is used here."""

    @property
    def fingerprint(self) -> str: ...

    def featurize(self, traces: Sequence[Trace]) -> list[TraceFeatures]: ...


class SupportsFeatureCache(Protocol):
    """The part of a store's scope that is used here."""

    def append(self, traces: Sequence[Trace], *, keys: Sequence[bytes]) -> object: ...

    def features(self, keys: Sequence[bytes], fingerprint: str) -> dict[bytes, bytes]: ...

    def put_features(self, features: dict[bytes, bytes], fingerprint: str) -> object: ...


class FeatureBank:
    """Features by content, in memory and, where a store is given, on disk.

    Parameters
    ----------
    featurizer : SupportsFeaturize
    encode : callable
        Texts to (n, dim) float32 unit rows.
    scope : callable, optional
        Store scope by name. Features live as long as a trace of some scope has them, so a
        memory's traces are kept under its name.
    close : callable, optional
        Releases the store; may be called twice.
    """

    def __init__(
        self,
        featurizer: SupportsFeaturize,
        encode: Callable[[Sequence[str]], NDArray[np.float32]],
        scope: Callable[[str], SupportsFeatureCache] | None = None,
        close: Callable[[], object] | None = None,
    ) -> None:
        self._featurizer = featurizer
        self._scope = scope
        self._known: dict[bytes, TraceFeatures] = {}
        self._words: dict[bytes, list[list[str]]] = {}
        self._turns: tuple[Memory, object] | None = None
        self._questions: tuple[tuple[str, ...], NDArray[np.float32]] | None = None
        self._encode = encode
        self.close = close or (lambda: None)

    def encode(self, questions: Sequence[str]) -> NDArray[np.float32]:
        """Encode questions as unit rows; the same batch again is not encoded twice."""
        batch = tuple(questions)
        if self._questions is None or self._questions[0] != batch:
            self._questions = (batch, self._encode(questions))
        return self._questions[1]

    def features(self, memory: Memory) -> list[TraceFeatures]:
        """Return the features of a memory's traces, in their order."""
        keys = [feature_key(trace) for trace in memory.traces]
        missing = {
            key: trace
            for key, trace in zip(keys, memory.traces, strict=True)
            if key not in self._known
        }
        if missing:
            self._fill(memory, keys, missing)
        return [self._known[key] for key in keys]

    def words(self, memory: Memory) -> list[list[str]]:
        """Return the lexical terms of every turn's title, speaker and text, in order.

        The baselines' own definition, whatever zeromem's index makes of a speaker or a title.
        """
        keys = [feature_key(trace) for trace in memory.traces]
        turns: list[tuple[bytes, str]] = []
        missing: set[bytes] = set()
        for key, trace, found in zip(keys, memory.traces, self.features(memory), strict=True):
            if key not in self._words and key not in missing:
                missing.add(key)
                head = f"{trace.title or ''}\n{trace.speaker or ''}\n"
                turns += [(key, head + trace.text[a:z]) for a, z in found.turns.tolist()]
        self._words.update((key, []) for key in missing)
        for (key, _), words in zip(turns, terms([text for _, text in turns]), strict=True):
            self._words[key].append(words)
        return [words for key in keys for words in self._words[key]]

    def _fill(self, memory: Memory, keys: list[bytes], missing: dict[bytes, Trace]) -> None:
        scope = None
        if self._scope is not None and not memory.ephemeral:
            scope = self._scope(f"features/{memory.name}")
            scope.append(memory.traces, keys=keys)
            stored = scope.features(list(missing), self._featurizer.fingerprint)
            for key, data in stored.items():
                self._known[key] = TraceFeatures.from_bytes(data)
                missing.pop(key)
        todo = list(missing.items())
        batches = [todo[at : at + BATCH] for at in range(0, len(todo), BATCH)]
        for batch in progress(batches, f"features of {memory.name}"):
            made = self._featurizer.featurize([trace for _, trace in batch])
            found = dict(zip((key for key, _ in batch), made, strict=True))
            self._known.update(found)
            if scope is not None:
                data = {key: features.to_bytes() for key, features in found.items()}
                scope.put_features(data, self._featurizer.fingerprint)

    def turns(self, memory: Memory, build: Callable[[Memory, FeatureBank], T]) -> tuple[T, float]:
        """Build what the baselines share, once per memory.

        Returns
        -------
        turns : T
        seconds : float
            That this call took to make it; 0 where it was there.
        """
        if self._turns is not None and self._turns[0] is memory:
            return self._turns[1], 0.0  # type: ignore[return-value]
        start = time.perf_counter()
        turns = build(memory, self)
        self._turns = (memory, turns)
        return turns, time.perf_counter() - start


def open_bank(encoder: Encoder, store: Path | None) -> FeatureBank:
    """Make a bank over zeromem's default annotator and the chosen encoder.

    Parameters
    ----------
    encoder : Encoder
    store : Path, optional
        A zeromem store that keeps the features for later runs.
    """
    from zeromem.ingest.annotate import SpacyAnnotator
    from zeromem.ingest.featurize import Featurizer

    featurizer = Featurizer(SpacyAnnotator(), encoder)
    if store is None:
        return FeatureBank(featurizer, encoder.encode)
    from zeromem.store import Store

    opened = Store.open(store)
    return FeatureBank(featurizer, encoder.encode, opened.scope, opened.close)
