"""Synthetic memories as real store files, which open without any model."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from synthetic import BLOCK, Question, Synthetic

import zeromem
from zeromem.config import Config
from zeromem.index.features import feature_key
from zeromem.ingest.annotate import RuleAnnotator, load_annotator
from zeromem.ingest.encode import load_encoder
from zeromem.ingest.featurize import Featurizer
from zeromem.store import Store


def make(
    path: Path,
    memory: Synthetic,
    *,
    scope: str = "default",
    last: int | None = None,
    models: bool = False,
) -> Path:
    """Write a memory into a store file, its features in the cache, and return the path.

    Parameters
    ----------
    path : Path
    memory : Synthetic
    scope : str
    last : int, optional
        Its first so many turns alone.
    models : bool
        Whether the store says that the default encoder and annotator made it, so that the command
        line opens it as it is.
    """
    encoder: Any = load_encoder(None) if models else memory.encoder()
    annotator = load_annotator(None) if models else RuleAnnotator()
    with Store.open(path) as store:
        fingerprint = Featurizer(annotator, encoder).fingerprint
        fill(store.scope(scope), memory, fingerprint, last=last)
    return path


def opened(
    path: Path | None,
    memory: Synthetic,
    questions: Sequence[Question] = (),
    *,
    scope: str = "default",
    models: bool = False,
    metered: bool = False,
    config: Config | None = None,
    device: Any = "cpu",
) -> zeromem.Memory:
    """Open a store that :func:`make` wrote, knowing the names and questions of its memory.

    Parameters
    ----------
    path : Path, optional
        Without one the memory is empty.
    memory, questions
    models : bool
        Whether questions are encoded by all-MiniLM-L6-v2 and annotated by spaCy, as they would be
        by default, instead of being known. What they cost is real; what they find is not.
    metered : bool
        Whether :func:`encoding_seconds` is asked of it.
    scope, config, device
        As for :func:`zeromem.open`.
    """
    encoder: Any = memory.encoder(questions)
    annotator: Any = RuleAnnotator()
    if models:
        encoder, annotator = _Real(encoder.fingerprint), _RealNames()
    if metered:
        encoder = _Metered(encoder)
    return zeromem.open(
        path, scope=scope, encoder=encoder, annotator=annotator, config=config, device=device
    )


def refresh(memory: zeromem.Memory) -> None:
    """Bring the index up to date with the log, as the next question would."""
    memory._indexer.current().index.arrays  # noqa: B018 - derived when first looked at


def encoding_seconds(memory: zeromem.Memory) -> float:
    """Seconds that a metered memory has spent in its encoder."""
    encoder: Any = memory._featurizer.encoder
    return float(encoder.seconds)


class _Metered:
    """An encoder that says how long it took."""

    def __init__(self, encoder: Any) -> None:
        self._encoder = encoder
        self.fingerprint, self.dim = encoder.fingerprint, encoder.dim
        self.seconds = 0.0

    def encode(self, texts: Sequence[str]) -> Any:
        return self._timed(self._encoder.encode, texts)

    def encode_spans(self, texts: Sequence[str], spans: Sequence[Any]) -> Any:
        return self._timed(self._encoder.encode_spans, texts, spans)

    def _timed(self, call: Callable[..., Any], *arguments: Any) -> Any:
        start = time.perf_counter()
        try:
            return call(*arguments)
        finally:
            self.seconds += time.perf_counter() - start


class _Real:
    """The default encoder under the name of the one that the store was made with."""

    def __init__(self, fingerprint: str) -> None:
        self.fingerprint = fingerprint
        self._model = load_encoder(None)
        self.dim = self._model.dim
        self.encode = self._model.encode
        self.encode_spans = self._model.encode_spans


class _RealNames:
    """The default annotator under the name of the one that the store was made with."""

    fingerprint = RuleAnnotator.fingerprint

    def __init__(self) -> None:
        self.annotate = load_annotator(None).annotate


def fill(log: Any, memory: Synthetic, fingerprint: str, *, last: int | None = None) -> None:
    """Write a memory's first ``last`` turns into a store, with their features in the cache.

    Parameters
    ----------
    log : ScopeLog
    memory : Synthetic
    fingerprint : str
        Of the featurizer that the store will be opened with.
    last : int, optional
        All by default.
    """
    last = memory.n_turns if last is None else last
    for first in range(0, last, BLOCK):
        end = min(first + BLOCK, last)
        traces = memory.traces(first, end)
        keys = [feature_key(trace) for trace in traces]
        log.append(traces, keys=keys)
        if not first:
            log.set_fingerprint(fingerprint)
        features = memory.features(first, end)
        packed = {key: f.to_bytes() for key, f in zip(keys, features, strict=True)}
        log.put_features(packed, fingerprint)
