"""Entities, sentences and passages of a history, and which of them hold which."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from zeromem.evaluation.methods.features import FeatureBank, Kind, texts_of, turn_spans
from zeromem.evaluation.types import History
from zeromem.ingest.annotate import MAX_NAME, Annotation, Annotator
from zeromem.ingest.encode import Encoder
from zeromem.text import canonical
from zeromem.types import Trace

VERSION = 1
Float32 = NDArray[np.float32]


@dataclass(frozen=True)
class TriGraph:
    """Which sentences and passages hold which entities.

    Attributes
    ----------
    mentions : (n_sentences, n_entities) csr, of 0 and 1
    counts : (n_passages, n_entities) csr
        How often a passage mentions an entity.
    """

    mentions: sp.csr_array
    counts: sp.csr_array


@dataclass(frozen=True)
class Nodes:
    """The graph with its nodes' vectors.

    Attributes
    ----------
    graph : TriGraph
    sentence_vectors, entity_vectors : (n, dim) float32
        Unit rows.
    names : tuple of str
        Canonical, by entity.
    """

    graph: TriGraph
    sentence_vectors: Float32
    entity_vectors: Float32
    names: tuple[str, ...]


@dataclass(frozen=True)
class TraceEntities:
    """Sentences and entities of one trace's passages.

    Attributes
    ----------
    n_passages : int
    mentions : (m, 3) int32
        Passage, sentence, name of each mention, all counted within the trace.
    names : tuple of str
    sentence_vectors, name_vectors : (n, dim) float16
        Unit rows.
    """

    n_passages: int
    mentions: NDArray[np.int32]
    names: tuple[str, ...]
    sentence_vectors: NDArray[np.float16]
    name_vectors: NDArray[np.float16]

    def to_bytes(self) -> bytes:
        """Write as an npz file."""
        file = io.BytesIO()
        np.savez(
            file,
            head=np.frombuffer(json.dumps([self.n_passages, *self.names]).encode(), np.uint8),
            mentions=self.mentions,
            sentence_vectors=self.sentence_vectors,
            name_vectors=self.name_vectors,
        )
        return file.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes) -> TraceEntities:
        """Read what :meth:`to_bytes` wrote."""
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            n_passages, *names = json.loads(arrays["head"].tobytes())
            return cls(
                n_passages,
                arrays["mentions"],
                tuple(names),
                arrays["sentence_vectors"],
                arrays["name_vectors"],
            )


def kind(bank: FeatureBank, annotator: Annotator) -> Kind[TraceEntities]:
    """Describe these features to a bank."""
    return Kind(
        f"bench-entities-v{VERSION}|{annotator.fingerprint}",
        lambda traces: recognise(traces, bank.encoder, annotator),
        TraceEntities.from_bytes,
    )


def build(history: History, bank: FeatureBank, annotator: Annotator) -> Nodes:
    """Join the entities of a history's traces.

    Parameters
    ----------
    history : History
    bank : FeatureBank
    annotator : Annotator
    """
    parts = bank.derived(history, kind(bank, annotator))
    ids: dict[str, int] = {}
    rows: list[NDArray[np.int64]] = []
    name_vectors: list[NDArray[np.float16]] = []
    passages = sentences = 0
    for part in parts:
        own = np.array([ids.setdefault(name, len(ids)) for name in part.names], np.int64)
        fresh = own >= sum(map(len, name_vectors))
        name_vectors.append(part.name_vectors[fresh])
        passage, sentence, name = part.mentions.T
        rows.append(np.stack([passage + passages, sentence + sentences, own[name]], axis=1))
        passages += part.n_passages
        sentences += len(part.sentence_vectors)
    dim = bank.encoder.dim
    at = np.concatenate([np.empty((0, 3), np.int64), *rows])
    mentions = _counted(at[:, 1], at[:, 2], (sentences, len(ids)))
    mentions.data = np.ones_like(mentions.data)
    return Nodes(
        TriGraph(mentions, _counted(at[:, 0], at[:, 2], (passages, len(ids)))),
        _stacked([part.sentence_vectors for part in parts], dim),
        _stacked(name_vectors, dim),
        tuple(ids),
    )


def recognise(
    traces: Sequence[Trace], encoder: Encoder, annotator: Annotator
) -> list[TraceEntities]:
    """Find sentences and entities of traces, and encode them.

    Parameters
    ----------
    traces : sequence of Trace
    encoder : Encoder
    annotator : Annotator
    """
    divided = [texts_of(trace, turn_spans(trace)) for trace in traces]
    texts = [text for passages in divided for text in passages]
    annotated = annotator.annotate(texts)
    encoded = encoder.encode_spans(texts, [a.sentences for a in annotated])
    names = sorted({n for t, a in zip(texts, annotated, strict=True) for n, _ in _named(t, a)})
    vectors = dict(zip(names, encoder.encode(names), strict=True)) if names else {}
    out, text, sentence = [], 0, 0
    for passages in divided:
        some = list(zip(passages, annotated[text : text + len(passages)], strict=True))
        n_sentences = sum(len(a.sentences) for _, a in some)
        found = encoded.span_vectors[sentence : sentence + n_sentences]
        out.append(_one(some, found, vectors, encoder.dim))
        text += len(passages)
        sentence += n_sentences
    return out


def _one(
    passages: Sequence[tuple[str, Annotation]],
    sentence_vectors: Float32,
    vectors: dict[str, Float32],
    dim: int,
) -> TraceEntities:
    ids: dict[str, int] = {}
    mentions, first = [], 0
    for i, (text, annotation) in enumerate(passages):
        for name, sentence in _named(text, annotation):
            mentions.append((i, first + sentence, ids.setdefault(name, len(ids))))
        first += len(annotation.sentences)
    return TraceEntities(
        len(passages),
        np.array(mentions, np.int32).reshape(-1, 3),
        tuple(ids),
        sentence_vectors.astype(np.float16),
        np.array([vectors[name] for name in ids], np.float16).reshape(-1, dim),
    )


def _named(text: str, annotation: Annotation) -> list[tuple[str, int]]:
    """Canonical name and sentence of each mention; one outside every sentence is left out."""
    found = []
    for start, end, _ in annotation.mentions:
        name = canonical(text[start:end])
        sentence = int(np.searchsorted(annotation.sentences[:, 0], start, side="right")) - 1
        if sentence >= 0 and 0 < len(name) <= MAX_NAME:
            found.append((name, sentence))
    return found


def _stacked(parts: Sequence[NDArray[np.float16]], dim: int) -> Float32:
    return np.concatenate([np.empty((0, dim), np.float16), *parts]).astype(np.float32)


def _counted(
    rows: NDArray[np.int64], columns: NDArray[np.int64], shape: tuple[int, int]
) -> sp.csr_array:
    counts = sp.coo_array((np.ones(len(rows)), (rows, columns)), shape=shape).tocsr()
    counts.sum_duplicates()
    counts.sort_indices()
    return counts
