"""Synthetic memories as real store files, which open without any model."""

from __future__ import annotations

from collections.abc import Sequence
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


def make(path: Path, memory: Synthetic, *, last: int | None = None) -> Path:
    """Write a memory into a new store file, its features in the cache, and return the path.

    Parameters
    ----------
    path : Path
    memory : Synthetic
    last : int, optional
        Its first so many turns alone.
    """
    with Store.open(path) as store:
        fingerprint = Featurizer(RuleAnnotator(), memory.encoder()).fingerprint
        fill(store.scope("default"), memory, fingerprint, last=last)
    return path


def opened(
    path: Path | None,
    memory: Synthetic,
    questions: Sequence[Question] = (),
    *,
    models: bool = False,
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
    config, device
        As for :func:`zeromem.open`.
    """
    encoder: Any = memory.encoder(questions)
    annotator: Any = RuleAnnotator()
    if models:
        encoder, annotator = _Real(encoder.fingerprint), _RealNames()
    return zeromem.open(path, encoder=encoder, annotator=annotator, config=config, device=device)


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
