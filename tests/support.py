"""A fast, deterministic encoder, and what tests of the whole flow share."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np
from hypothesis import strategies as st

import zeromem
from zeromem.backend import resolve
from zeromem.config import Config
from zeromem.errors import EncoderError
from zeromem.index import Index, TraceFeatures
from zeromem.index.chunks import Chunks
from zeromem.index.lists import Lists
from zeromem.index.names import Names
from zeromem.ingest.annotate import RuleAnnotator
from zeromem.ingest.encode import SpanVectors
from zeromem.ingest.featurize import Featurizer
from zeromem.times import EventTime
from zeromem.types import Retrieval, Trace

DIM = 32
_WORD = re.compile(r"\w+")


@cache
def _direction(word: str) -> np.ndarray:
    digest = blake2b(word.encode("utf-8", "surrogatepass"), digest_size=DIM).digest()
    return np.frombuffer(digest, np.int8).astype(np.float64) / 128


class HashEncoder:
    """Each word has a direction of its own; a text is the mean of its words'."""

    dim = DIM

    def __init__(self, name: str = "hash") -> None:
        self.fingerprint = f"{name}-{DIM}"
        self.calls = 0

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        self.calls += 1
        rows = [self._mean(text) for text in texts]
        return np.array([v / np.linalg.norm(v) for v in rows], np.float32).reshape(-1, DIM)

    def encode_spans(self, texts: Sequence[str], spans: Sequence[np.ndarray]) -> SpanVectors:
        self.calls += 1
        parts = [t[a:z] for t, s in zip(texts, spans, strict=True) for a, z in s.tolist()]
        return SpanVectors(
            np.array([self._mean(t) for t in texts], np.float32).reshape(-1, DIM),
            HashEncoder.encode(self, parts),
            np.array([self._count(t) for t in texts], np.int32),
            np.array([self._count(p) for p in parts], np.int32),
        )

    def _mean(self, text: str) -> np.ndarray:
        words = _WORD.findall(text.lower())[:2000] or [text[:100]]
        return np.mean([_direction(w) for w in words], axis=0)

    def _count(self, text: str) -> int:
        return max(1, len(_WORD.findall(text)))


class BlindEncoder(HashEncoder):
    """Finds all texts alike, so that words alone decide."""

    def _mean(self, text: str) -> np.ndarray:
        return np.ones(DIM)


class BrittleEncoder(HashEncoder):
    """Fails for texts that ``refuses`` accepts, or for all while it is None."""

    def __init__(
        self,
        refuses: Callable[[str], bool] | None = lambda text: False,
        error: BaseException | None = None,
    ) -> None:
        super().__init__()
        self.refuses = refuses
        self.error = error or EncoderError("the encoder is down")

    def _mean(self, text: str) -> np.ndarray:
        if self.refuses is None or self.refuses(text):
            raise self.error
        return super()._mean(text)


def open_memory(path: Any = None, **options: Any) -> zeromem.Memory:
    """Open a memory with the fast encoder and annotator."""
    return zeromem.open(
        path, **{"encoder": HashEncoder(), "annotator": "rules", "device": "cpu", **options}
    )


def shown(found: Retrieval) -> tuple[Any, ...]:
    """All of a retrieval but its times and places in the log."""
    items = [
        (
            e.id, e.text, e.start, e.end, e.kind, e.score, e.fused, e.main_rank, e.graph_rank,
            e.hierarchy_rank, e.matched, e.entities, e.why, e.n_tokens, e.speaker, e.session,
            e.time,
        )
        for e in found
    ]  # fmt: skip
    return found.route, found.route_reason, found.profile, items


def ids(found: Retrieval) -> list[str]:
    """Ids of the evidence, best first."""
    return [e.id for e in found]


def difference(a: Any, b: Any, path: str = "") -> str | None:
    """Say where two values differ, arrays inside included; None where they are equal to the bit."""
    if type(a) is not type(b):
        return f"{path}: {type(a).__name__} and {type(b).__name__}"
    if isinstance(a, np.ndarray):
        same = a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
        return None if same else f"{path}: {a!r} and {b!r}"
    if isinstance(a, Chunks):
        return difference(a.array(), b.array(), path)
    if isinstance(a, Lists):
        return difference(a.csr(), b.csr(), path)
    if isinstance(a, Names):
        return None if list(a) == list(b) else f"{path}: {list(a)} and {list(b)}"
    if isinstance(a, Mapping) and isinstance(b, Mapping) and list(a) == list(b):
        pairs = [(name, a[name], b[name]) for name in a]
    elif is_dataclass(a):
        pairs = [(f.name, getattr(a, f.name), getattr(b, f.name)) for f in fields(a)]
    elif isinstance(a, tuple | list) and len(a) == len(b):
        pairs = [(str(i), x, y) for i, (x, y) in enumerate(zip(a, b, strict=True))]
    else:
        return None if a == b else f"{path}: {a!r} and {b!r}"
    found = (difference(x, y, f"{path}.{name}") for name, x, y in pairs)
    return next((d for d in found if d), None)


STORY = [
    Trace("Miso is my new kitten! I got her from the shelter in Porto.", speaker="Ana",
          session="s1"),
    Trace("How lovely! What does Miso eat?", speaker="Ben", session="s1"),
    Trace("She likes tuna, and she sleeps on the piano.", speaker="Ana", session="s1"),
    Trace("I moved from Porto to Lisbon for the job at Acme.", speaker="Ana", session="s2"),
    Trace("Acme was founded by Carla Reis, who plays chess.", speaker="Ben", session="s2"),
    Trace("I still live in Lisbon, near the river.", speaker="Ana", session="s3"),
    Trace("My sister visits Porto every summer.", speaker="Ben", session="s3"),
    Trace("Lisbon\nis the capital of Portugal and lies on the Tagus.", role="document",
          title="Lisbon"),
    Trace("The Tagus rises in Spain.", role="document", title="Tagus"),
]  # fmt: skip
"""Nine traces of all kinds, with links between them."""

# ---- random logs, and indexes without a store

NAMES = ["Ana", "Ben", "Carla Reis", "Lisbon", "Porto", "Acme"]
WORDS = ["cat", "piano", "moved", "loves", "river", "tea", "yesterday", "two", "why"]
BACKEND = resolve("cpu")
_FEATURIZER = Featurizer(RuleAnnotator(), HashEncoder())

_words = st.lists(st.sampled_from(NAMES + WORDS), min_size=1, max_size=7).map(" ".join)
_sentences = st.tuples(_words, st.sampled_from([". ", "? ", "!\n"])).map("".join)
_times = st.sampled_from(
    [None, None, "2024", "2025-03", "2025-03-01T10:00Z", "2025-03-01T10:05Z", "2026-01-01T00:00Z"]
)
traces = st.builds(
    Trace,
    text=st.lists(_sentences, min_size=1, max_size=4).map("".join),
    role=st.sampled_from(["user", "user", "assistant", "document"]),
    speaker=st.sampled_from([None, "Ana", "ana", "Ben"]),
    session=st.sampled_from([None, "s1", "s2", "s3"]),
    time=_times.map(lambda t: t and EventTime.parse(t)),
    title=st.sampled_from([None, None, "Lisbon", "Carla Reis", "Ana"]),
    source=st.sampled_from([None, "mail", "chat"]),
)
logs = st.lists(traces, max_size=14)


@dataclass(frozen=True)
class Row:
    """A trace with its place in the log, as the index reads it."""

    lsn: int
    trace: Trace

    def __getattr__(self, name: str) -> Any:
        return getattr(self.trace, name)


def rows_of(log: Sequence[Trace]) -> list[Row]:
    """Number traces from 1."""
    return [Row(lsn, trace) for lsn, trace in enumerate(log, 1)]


@lru_cache(maxsize=4096)
def _features(*known: str | None) -> TraceFeatures:
    text, speaker, role, title = known
    return _FEATURIZER.featurize([Trace(text, speaker=speaker, role=role, title=title)])[0]


def features(rows: Sequence[Row]) -> list[TraceFeatures]:
    """Features of rows, each made once."""
    return [_features(r.text, r.speaker, r.role, r.title) for r in rows]


def build(rows: Sequence[Row], config: Config | None = None) -> Index:
    """Index rows at once."""
    return Index.empty(DIM, config or Config(), BACKEND).extend(rows, features(rows))
