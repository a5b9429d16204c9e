"""The baselines' turns, vectors and terms: made from their own definition, kept in a store.

A turn's text is ``speaker: text`` (the role where there is no speaker), or title and text of a
document; a long trace divides as zeromem divides it, at sentence borders. The encoder is
zeromem's. Nothing else of zeromem's features is used, so that a change of them moves no baseline.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from zeromem.config import IngestConfig
from zeromem.evaluation.methods.asked import Asked, AskedEncoder
from zeromem.evaluation.types import History
from zeromem.index.features import feature_key
from zeromem.ingest.encode import Encoder
from zeromem.ingest.turns import layout, rule_sentences
from zeromem.progress import progress_bar
from zeromem.text import terms
from zeromem.types import Trace

BATCH = 512
VERSION = 1
T = TypeVar("T")


@dataclass(frozen=True)
class TurnFeatures:
    """One trace's turns.

    Attributes
    ----------
    spans : (n, 2) int32
        Character ranges in the trace's text.
    tokens : (n,) int32
        Encoder tokens of each turn's own text.
    vectors : (n, dim) float16
        Means of token states, not normalised.
    """

    spans: NDArray[np.int32]
    tokens: NDArray[np.int32]
    vectors: NDArray[np.float16]

    def to_bytes(self) -> bytes:
        """Write as an npz file."""
        file = io.BytesIO()
        np.savez(file, spans=self.spans, tokens=self.tokens, vectors=self.vectors)
        return file.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes) -> TurnFeatures:
        """Read what :meth:`to_bytes` wrote."""
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            return cls(arrays["spans"], arrays["tokens"], arrays["vectors"])


class SupportsFeatureCache(Protocol):
    """The part of a store's scope that is used here."""

    def append(self, traces: Sequence[Trace], *, keys: Sequence[bytes]) -> object: ...

    def features(self, keys: Sequence[bytes], fingerprint: str) -> dict[bytes, bytes]: ...

    def put_features(self, data: dict[bytes, bytes], fingerprint: str) -> object: ...


class Kept(Protocol):
    """What a trace's features must offer to be kept in a store."""

    def to_bytes(self) -> bytes: ...


K = TypeVar("K", bound=Kept)


@dataclass(frozen=True)
class Kind(Generic[K]):
    """A kind of features.

    Attributes
    ----------
    fingerprint : str
        Names all that they depend on beside trace and encoder.
    make : callable
        Features of each of some traces.
    from_bytes : callable
    """

    fingerprint: str
    make: Callable[[Sequence[Trace]], list[K]]
    from_bytes: Callable[[bytes], K]


class FeatureBank:
    """Turns by content, in memory and, where a store is given, on disk; questions' vectors too.

    Parameters
    ----------
    encoder : Encoder
    scope : callable, optional
        Store scope by name. Features live as long as a trace of some scope has them, so a
        history's traces are kept under its name.
    close : callable, optional
        Releases the store; may be called twice.
    asked : Asked, optional
        Keeps vectors of questions; by default in memory.
    """

    def __init__(
        self,
        encoder: Encoder,
        scope: Callable[[str], SupportsFeatureCache] | None = None,
        close: Callable[[], object] | None = None,
        asked: Asked | None = None,
    ) -> None:
        self.encoder = encoder
        self.encode = AskedEncoder(encoder, asked or Asked()).encode
        self._scope = scope
        self._kind = Kind(f"bench-turns-v{VERSION}", self._make, TurnFeatures.from_bytes)
        self._known: dict[str, dict[bytes, Any]] = {}
        self._words: dict[bytes, list[list[str]]] = {}
        self._turns: tuple[History, object] | None = None
        self.close = close or (lambda: None)

    def features(self, history: History) -> list[TurnFeatures]:
        """Return the features of a history's traces, in their order."""
        return self.derived(history, self._kind)

    def derived(self, history: History, kind: Kind[K]) -> list[K]:
        """Return features of any kind of a history's traces, in their order.

        What is known, in memory or in the store, is not made again.
        """
        keys = [feature_key(trace) for trace in history.traces]
        known: dict[bytes, K] = self._known.setdefault(kind.fingerprint, {})
        missing = {
            key: trace for key, trace in zip(keys, history.traces, strict=True) if key not in known
        }
        if missing:
            self._fill(history, keys, missing, kind, known)
        return [known[key] for key in keys]

    def words(self, history: History) -> list[list[str]]:
        """Return the lexical terms of every turn, in order."""
        found = self.features(history)
        keys = [feature_key(trace) for trace in history.traces]
        texts = {
            key: texts_of(trace, turns.spans)
            for key, trace, turns in zip(keys, history.traces, found, strict=True)
            if key not in self._words
        }
        rows = iter(terms([text for turns in texts.values() for text in turns]))
        for key, turns in texts.items():
            self._words[key] = [next(rows) for _ in turns]
        return [words for key in keys for words in self._words[key]]

    def turns(self, history: History, build: Callable[[History, FeatureBank], T]) -> T:
        """Return what ``build`` makes of a history; the same history again is not built twice."""
        if self._turns is None or self._turns[0] is not history:
            self._turns = (history, build(history, self))
        return cast(T, self._turns[1])

    def _fill(
        self,
        history: History,
        keys: list[bytes],
        missing: dict[bytes, Trace],
        kind: Kind[K],
        known: dict[bytes, K],
    ) -> None:
        fingerprint = f"{kind.fingerprint}|{self.encoder.fingerprint}"
        scope = None
        if self._scope is not None and not history.ephemeral:
            scope = self._scope(f"baselines/{scope_name(history)}")
            scope.append(history.traces, keys=keys)
            for key, data in scope.features(list(missing), fingerprint).items():
                known[key] = kind.from_bytes(data)
                missing.pop(key)
        todo = list(missing.items())
        batches = [todo[at : at + BATCH] for at in range(0, len(todo), BATCH)]
        with progress_bar(batches, f"features of {history.name}", None) as bar:
            for batch in bar:
                made = kind.make([trace for _, trace in batch])
                found = dict(zip((key for key, _ in batch), made, strict=True))
                known.update(found)
                if scope is not None:
                    packed = {key: features.to_bytes() for key, features in found.items()}
                    scope.put_features(packed, fingerprint)

    def _make(self, traces: Sequence[Trace]) -> list[TurnFeatures]:
        divided = [turn_spans(trace) for trace in traces]
        texts: list[str] = []
        own: list[NDArray[np.int32]] = []
        for trace, spans in zip(traces, divided, strict=True):
            for text in texts_of(trace, spans):
                texts.append(text)
                own.append(np.array([[len(prefix_of(trace)), len(text)]], np.int32))
        encoded = self.encoder.encode_spans(texts, own)
        vectors = encoded.text_vectors.astype(np.float16)
        out, first = [], 0
        for spans in divided:
            rows = slice(first, first + len(spans))
            out.append(TurnFeatures(spans, encoded.span_tokens[rows], vectors[rows]))
            first += len(spans)
        return out


def scope_name(history: History) -> str:
    """Name a history by its content, so that another version of it never meets this one's log."""
    digest = blake2b(digest_size=8)
    for trace in history.traces:
        digest.update(repr((trace.id, trace.session, str(trace.time))).encode())
        digest.update(feature_key(trace))
    return f"{history.name}/{digest.hexdigest()}"


def turn_spans(trace: Trace) -> NDArray[np.int32]:
    """Divide a trace into turns: character ranges, (n, 2)."""
    return layout(trace.text, rule_sentences(trace.text), IngestConfig().max_turn_words).turns


def prefix_of(trace: Trace) -> str:
    """Return what stands before a turn's own text: title, speaker."""
    title = f"{trace.title}\n" if trace.title else ""
    speaker = trace.speaker or (trace.role if trace.role != "document" else "")
    return f"{title}{speaker}: " if speaker else title


def texts_of(trace: Trace, spans: NDArray[np.int32]) -> list[str]:
    """Return a trace's turns as they are encoded."""
    return [prefix_of(trace) + trace.text[start:end] for start, end in spans.tolist()]


def open_bank(encoder: Encoder, store: Path | None, asked: Asked | None = None) -> FeatureBank:
    """Make a bank over the chosen encoder.

    Parameters
    ----------
    encoder : Encoder
    store : Path, optional
        A zeromem store that keeps the features for later runs.
    asked : Asked, optional
    """
    asked = asked or Asked()
    if store is None:
        return FeatureBank(encoder, None, asked.close, asked)
    from zeromem.store import Store

    opened = Store.open(store)

    def close() -> None:
        opened.close()
        asked.close()

    return FeatureBank(encoder, opened.scope, close, asked)
