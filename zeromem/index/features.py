"""Everything derived from one trace, as arrays, and its form on disk."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zeromem.errors import CorruptStoreError, InvalidInputError
from zeromem.types import Trace

Int32 = NDArray[np.int32]
Float16 = NDArray[np.float16]

# Part of the Featurizer's fingerprint: raise it when the same trace gives other features.
FEATURES_VERSION = 3

# Bits of `turn_flags`: what a turn holds that its terms do not tell.
ASKS = 1  # it ends in a question
HAS_TIME = 2  # a date, or words such as "last Friday"
HAS_NUMBER = 4
INSTRUCTS = 8  # it says how the reader of it should act from now on
PREFERS = 16  # it says what its speaker likes better

_MAGIC = b"ZMTF"
_FORMAT = 2
# Magic, format, encoded, turns, sentences, entities, mentions, dim, bytes of strings, checksum.
_HEADER = struct.Struct("<4sHHIIIIIII")
_SEPARATOR = "\n"


def feature_key(trace: Trace) -> bytes:
    """Name in 32 bytes what a trace's features depend on: text, speaker, role and title.

    Equal keys mean equal features under one fingerprint, in whatever scope or session.
    """
    digest = blake2b(digest_size=32, person=b"zm-features")
    for part in (trace.text, trace.speaker, trace.role, trace.title):
        # None and "" differ; lengths keep ("ab", "c") apart from ("a", "bc").
        data = b"" if part is None else part.encode("utf-8", "surrogatepass")
        digest.update(struct.pack("<q", -1 if part is None else len(data)))
        digest.update(data)
    return digest.digest()


@dataclass(frozen=True, slots=True, eq=False)
class TraceFeatures:
    """What the index needs to know of one trace; it needs no text beside this.

    Attributes
    ----------
    turns : (n_turns, 2) int32
        Character ranges in the trace's text, in order, disjoint; together they hold all of its
        text but whitespace.
    turn_terms : tuple of str
        For each turn the lexical terms of its title and text, with repeats, joined by spaces. Who
        speaks is matched as a name, not as a word.
    turn_tokens : (n_turns,) int32
        Encoder tokens of the turn's own text, special tokens apart; words where not encoded.
    turn_flags : (n_turns,) int32
        ``ASKS``, ``HAS_TIME``, ``HAS_NUMBER``, ``INSTRUCTS``, ``PREFERS``.
    sentences : (n_sentences, 2) int32
        Character ranges, each within one turn, in order.
    sentence_turn : (n_sentences,) int32
    entities : tuple of str
        Canonical names, each once, in order of first appearance: title, speaker, then mentions.
    entity_labels : tuple of str
        "TITLE", "SPEAKER", or the annotator's label of the first mention.
    mentions : (n_mentions, 5) int32
        Turn, sentence, entity, start, end. Sentence, start and end are -1 where the entity is the
        title's or the speaker's, which every turn mentions once.
    turn_vectors : (n_turns, dim) float16
        Mean of token states, not normalised: a window is the token-weighted mean of its turns.
    sentence_vectors : (n_sentences, dim) float16
        Unit rows.
    entity_vectors : (n_entities, dim) float16
        Unit rows.
    encoded : bool
        False where vectors are pending; they then have no columns.
    """

    turns: Int32
    turn_terms: tuple[str, ...]
    turn_tokens: Int32
    turn_flags: Int32
    sentences: Int32
    sentence_turn: Int32
    entities: tuple[str, ...]
    entity_labels: tuple[str, ...]
    mentions: Int32
    turn_vectors: Float16
    sentence_vectors: Float16
    entity_vectors: Float16
    encoded: bool

    @property
    def dim(self) -> int:
        """Columns of the vectors; 0 where they are pending."""
        return int(self.turn_vectors.shape[1])

    def to_bytes(self) -> bytes:
        """Pack the features into one block of bytes: header, integers, vectors, strings.

        Raises
        ------
        InvalidInputError
            Where an array has another shape or dtype than the class says, or points outside.
        """
        _check(self)
        strings = _SEPARATOR.join((*self.turn_terms, *self.entities, *self.entity_labels)).encode()
        arrays = (
            self.turns,
            self.turn_tokens,
            self.turn_flags,
            self.sentences,
            self.sentence_turn,
            self.mentions,
            self.turn_vectors,
            self.sentence_vectors,
            self.entity_vectors,
        )
        body = b"".join((*(np.ascontiguousarray(a).tobytes() for a in arrays), strings))
        counts = (len(self.turns), len(self.sentences), len(self.entities), len(self.mentions))
        fields = (_MAGIC, _FORMAT, int(self.encoded), *counts, self.dim, len(strings))
        # The checksum covers the header too: a flipped count must not pass for another layout.
        head = _HEADER.pack(*fields, 0)
        return _HEADER.pack(*fields, zlib.crc32(body, zlib.crc32(head))) + body

    @classmethod
    def from_bytes(cls, data: bytes) -> TraceFeatures:
        """Unpack what :meth:`to_bytes` packed; the arrays are read-only views of `data`.

        Raises
        ------
        CorruptStoreError
            Where `data` is not what :meth:`to_bytes` wrote, to the bit.
        """
        n_turns, n_sentences, n_entities, n_mentions, dim, encoded = _read_header(data)
        # Two buffers, sliced: opening thousands of records is most of a memory's opening time.
        n_ints = 4 * n_turns + 3 * n_sentences + 5 * n_mentions
        n_rows = n_turns + n_sentences + n_entities
        ints: Int32 = np.frombuffer(data, "<i4", n_ints, _HEADER.size)
        at_vectors = _HEADER.size + 4 * n_ints
        vectors: Float16 = np.frombuffer(data, "<f2", n_rows * dim, at_vectors).reshape(n_rows, dim)
        a = 2 * n_turns
        b = a + n_turns
        flags = b + n_turns
        c = flags + 2 * n_sentences
        d = c + n_sentences
        strings: list[str] = []
        if n_turns or n_entities:
            strings = data[at_vectors + 2 * n_rows * dim :].decode().split(_SEPARATOR)
        return cls(
            turns=ints[:a].reshape(n_turns, 2),
            turn_terms=tuple(strings[:n_turns]),
            turn_tokens=ints[a:b],
            turn_flags=ints[b:flags],
            sentences=ints[flags:c].reshape(n_sentences, 2),
            sentence_turn=ints[c:d],
            entities=tuple(strings[n_turns : n_turns + n_entities]),
            entity_labels=tuple(strings[n_turns + n_entities :]),
            mentions=ints[d:].reshape(n_mentions, 5),
            turn_vectors=vectors[:n_turns],
            sentence_vectors=vectors[n_turns : n_turns + n_sentences],
            entity_vectors=vectors[n_turns + n_sentences :],
            encoded=encoded,
        )


def _read_header(data: bytes) -> tuple[int, int, int, int, int, bool]:
    if len(data) < _HEADER.size or data[:4] != _MAGIC:
        raise CorruptStoreError(
            f"a feature record starts with {bytes(data[:4])!r} and has {len(data)} bytes, which is "
            "no zeromem feature record; drop the features and encode again"
        )
    _, version, encoded, turns, sents, entities, mentions, dim, n_strings, crc = (
        _HEADER.unpack_from(data)
    )
    if version != _FORMAT:
        raise CorruptStoreError(
            f"a feature record has format {version}, this zeromem reads format {_FORMAT}; drop the "
            "features and encode again"
        )
    size = 4 * (4 * turns + 3 * sents + 5 * mentions) + 2 * dim * (turns + sents + entities)
    head = data[: _HEADER.size - 4] + b"\0\0\0\0"
    if (
        len(data) != _HEADER.size + size + n_strings
        or zlib.crc32(memoryview(data)[_HEADER.size :], zlib.crc32(head)) != crc
    ):
        raise CorruptStoreError(
            f"a feature record of {len(data)} bytes fails its checksum; drop the features and "
            "encode again"
        )
    return turns, sents, entities, mentions, dim, bool(encoded)


def _check(f: TraceFeatures) -> None:
    n_turns, n_sentences, n_entities = len(f.turns), len(f.sentences), len(f.entities)
    dim = f.turn_vectors.shape[-1]
    int32, float16 = np.dtype(np.int32), np.dtype(np.float16)
    shapes: tuple[tuple[str, tuple[int, ...], np.dtype[Any]], ...] = (
        ("turns", (n_turns, 2), int32),
        ("turn_tokens", (n_turns,), int32),
        ("turn_flags", (n_turns,), int32),
        ("sentences", (n_sentences, 2), int32),
        ("sentence_turn", (n_sentences,), int32),
        ("mentions", (len(f.mentions), 5), int32),
        ("turn_vectors", (n_turns, dim), float16),
        ("sentence_vectors", (n_sentences, dim), float16),
        ("entity_vectors", (n_entities, dim), float16),
    )
    for name, shape, dtype in shapes:
        array = getattr(f, name)
        if array.shape != shape or array.dtype != dtype:
            raise InvalidInputError(
                f"TraceFeatures.{name} must be {dtype} of shape {shape}, got {array.dtype} of "
                f"shape {array.shape}"
            )
    limits = (n_turns, n_sentences, n_entities)
    lows = (0, -1, 0)
    for column, (name, low, limit) in enumerate(
        zip(("turn", "sentence", "entity"), lows, limits, strict=True)
    ):
        _check_range(f"mentions' {name}", f.mentions[:, column], low, limit)
    _check_range("sentence_turn", f.sentence_turn, 0, n_turns)
    _check_strings(f)


def _check_range(name: str, values: Int32, low: int, limit: int) -> None:
    if len(values) and not (values.min() >= low and values.max() < limit):
        raise InvalidInputError(
            f"TraceFeatures: {name} must be in [{low}, {limit}), got {values.min()} to "
            f"{values.max()}"
        )


def _check_strings(f: TraceFeatures) -> None:
    expected = (("turn_terms", len(f.turns)), ("entity_labels", len(f.entities)), ("entities", -1))
    for name, n in expected:
        strings: tuple[str, ...] = getattr(f, name)
        if n not in (-1, len(strings)):
            raise InvalidInputError(f"TraceFeatures.{name} must have {n} items, got {len(strings)}")
        if any(_SEPARATOR in s for s in strings):
            raise InvalidInputError(f"TraceFeatures.{name} must hold no line break")
