"""What every encoder owes, and the checks that hold it to that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from zeromem.errors import EncoderError, InvalidInputError

Float32 = NDArray[np.float32]
Int32 = NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class SpanVectors:
    """Texts and spans of them as vectors.

    Attributes
    ----------
    text_vectors : (n, dim) float32
        Not normalised.
    span_vectors : (n_spans, dim) float32
        Unit rows, in the order of the spans, text by text.
    n_tokens : (n,) int32
        Tokens of each text, special tokens apart.
    span_tokens : (n_spans,) int32
        Tokens of each span.
    """

    text_vectors: Float32
    span_vectors: Float32
    n_tokens: Int32
    span_tokens: Int32


@runtime_checkable
class Encoder(Protocol):
    """Text to vectors.

    A text that is longer than the model reads is encoded in parts, all of it. A new encoder needs
    these four names and nothing else.
    """

    @property
    def fingerprint(self) -> str:
        """Names the model: equal fingerprints mean vectors that can be compared."""

    @property
    def dim(self) -> int:
        """Columns of every vector."""

    def encode(self, texts: Sequence[str]) -> Float32:
        """Encode questions or names: (n, dim) float32, unit rows."""

    def encode_spans(self, texts: Sequence[str], spans: Sequence[Int32]) -> SpanVectors:
        """Encode texts, and of each the character ranges in its (m, 2) int32 `spans`."""


def unit(rows: Float32) -> Float32:
    """Scale rows to length 1; a zero row stays zero."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(norms, np.finfo(np.float32).tiny), np.float32)


def check_vectors(rows: object, *, shape: tuple[int, int], source: str) -> Float32:
    """Return `rows` as float32, or raise `EncoderError` for another shape or a non-finite value."""
    try:
        array = np.asarray(rows, np.float32)
    except (TypeError, ValueError) as error:
        raise EncoderError(f"{source} returned no numeric matrix: {error}") from error
    if array.shape != shape:
        raise EncoderError(f"{source} returned vectors of shape {array.shape}, expected {shape}")
    if not np.isfinite(array).all():
        row = int(np.flatnonzero(~np.isfinite(array).all(axis=1))[0])
        raise EncoderError(
            f"{source} returned NaN or infinity for text {row} of {len(array)}; its weights or its "
            "number format are broken"
        )
    return array


def sums_of_tokens(tokens: object, lengths: Sequence[int], *, source: str) -> Int32:
    """Return each text's tokens from its spans'.

    Parameters
    ----------
    tokens : (n_spans,) integer
        What an encoder returned as ``span_tokens``.
    lengths : sequence of int
        Spans of each text.
    source : str
        Names the encoder in messages.

    Returns
    -------
    (n_texts,) int32

    Raises
    ------
    EncoderError
        Where they have another shape, are no integers, are negative or sum to more than int32.
    """
    n_spans = sum(lengths)
    counts = np.asarray(tokens)
    if counts.shape != (n_spans,):
        raise EncoderError(
            f"{source} returned span_tokens of shape {counts.shape}, expected ({n_spans},)"
        )
    if n_spans and counts.dtype.kind not in "iu":
        raise EncoderError(
            f"{source} returned span_tokens of type {counts.dtype}, expected integers"
        )
    limit = np.iinfo(np.int32).max
    if n_spans and not (counts.min() >= 0 and counts.max() <= limit):
        wrong = counts[(counts < 0) | (counts > limit)][0]
        raise EncoderError(f"{source} returned {wrong} span_tokens, expected 0 to {limit}")
    before = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    sums = np.diff(before[np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])])
    if len(sums) and sums.max() > limit:
        raise EncoderError(
            f"{source} returned {sums.max()} span_tokens for one text, expected at most {limit}"
        )
    return np.asarray(sums, np.int32)


def check_spans(texts: Sequence[str], spans: Sequence[Int32]) -> None:
    """Raise `InvalidInputError` unless each text has an (m, 2) array of ranges within it."""
    if len(texts) != len(spans):
        raise InvalidInputError(
            f"spans must have one array per text, got {len(spans)} for {len(texts)} texts"
        )
    for i, (text, span) in enumerate(zip(texts, spans, strict=True)):
        if span.ndim != 2 or span.shape[1] != 2:
            raise InvalidInputError(f"spans[{i}] must have shape (m, 2), got {span.shape}")
        if len(span) and not (
            span.min() >= 0 and span.max() <= len(text) and (span[:, 0] <= span[:, 1]).all()
        ):
            raise InvalidInputError(
                f"spans[{i}] must be ranges within a text of {len(text)} characters, got "
                f"{span.min()} to {span.max()}"
            )


def spans_apart(
    encode: Callable[[Sequence[str]], tuple[Float32, Int32]],
    texts: Sequence[str],
    spans: Sequence[Int32],
) -> SpanVectors:
    """Encode spans as texts of their own, for models whose token states share no space with them.

    Parameters
    ----------
    encode : callable
        From texts, all different, to (vectors, token counts).
    texts, spans
        As for :meth:`Encoder.encode_spans`.

    Notes
    -----
    A text's only span gets the text's vector: it differs by no more than a speaker's name, and
    most turns of a conversation would cost twice.
    """
    pieces = list(texts)
    rows: list[int] = []
    only: list[bool] = []
    for i, (text, ranges) in enumerate(zip(texts, spans, strict=True)):
        for start, end in ranges.tolist():
            only.append(len(ranges) == 1)
            rows.append(i if only[-1] else len(pieces))
            if not only[-1]:
                pieces.append(text[start:end])
    unique = {piece: row for row, piece in enumerate(dict.fromkeys(pieces))}
    place = np.fromiter((unique[piece] for piece in pieces), np.int64, len(pieces))
    vectors, counts = encode(list(unique))
    text_rows, span_rows = place[: len(texts)], place[np.asarray(rows, np.int64)]
    return SpanVectors(vectors[text_rows], unit(vectors[span_rows]), counts[text_rows],
                       counts[span_rows])  # fmt: skip
