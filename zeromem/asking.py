"""Questions on their way to the index: who is named in them, and what they mean as vectors."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from zeromem.combining import Combiner
from zeromem.ingest.annotate import Annotator, entity_names
from zeromem.ingest.encode import Encoder
from zeromem.ingest.encoders.base import check_vectors
from zeromem.query.profile import profile
from zeromem.times import EventTime
from zeromem.types import Boundary, QueryProfile

_log = logging.getLogger(__name__)
# Vectors of recent questions.
_KEPT = 4096
# Rounds of questions that may wait for an endpoint at once.
_ROUNDS = 8
Q = TypeVar("Q")
A = TypeVar("A")


class QuestionVectors:
    """Vectors of questions by one encoder, kept for a while.

    A model gives a text other last bits in another batch, and a question must get the same
    evidence however it is asked.

    Parameters
    ----------
    encoder : Encoder
    """

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._kept: dict[str, NDArray[np.float32]] = {}

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return (n, dim) unit rows; zeros, which favour no turn, where the encoder fails."""
        missing = [t for t in dict.fromkeys(texts) if t not in self._kept]
        found = self._kept
        if missing:
            fresh = self._encode(missing)
            if fresh is None:
                return np.zeros((len(texts), self._encoder.dim), np.float32)
            found = {**found, **dict(zip(missing, fresh, strict=True))}
            # Replaced, never changed: other threads may be reading it.
            self._kept = dict(list(found.items())[-max(_KEPT, len(missing)) :])
        if not texts:
            return np.zeros((0, self._encoder.dim), np.float32)
        return np.stack([found[t] for t in texts])

    def _encode(self, texts: Sequence[str]) -> NDArray[np.float32] | None:
        shape = (len(texts), self._encoder.dim)
        try:
            source = f"encoder {self._encoder.fingerprint}"
            return check_vectors(self._encoder.encode(texts), shape=shape, source=source)
        except Exception as error:  # whatever an encoder raises, words and links still answer
            _log.warning("questions are answered by words and links alone: %s", error)
            return None


# By identity: encoders that compare equal need not encode alike. A value keeps its encoder, so that
# no other object can have that identity meanwhile; memories keep the values.
_shared: weakref.WeakValueDictionary[int, QuestionVectors] = weakref.WeakValueDictionary()
_together: weakref.WeakValueDictionary[tuple[int, int], Combiner[Any, Any]] = (
    weakref.WeakValueDictionary()
)
_lock = threading.Lock()


def question_vectors(encoder: Encoder) -> QuestionVectors:
    """Return the encoder's question vectors, which all memories that use it share."""
    with _lock:
        found = _shared.get(id(encoder))
        if found is None:
            found = _shared[id(encoder)] = QuestionVectors(encoder)
        return found


def combiner_of(
    annotator: Annotator, encoder: Encoder, answer: Callable[[Sequence[Q]], Sequence[A]]
) -> Combiner[Q, A]:
    """Return what answers calls with these models together: a slow model is its users' alone."""
    key = id(annotator), id(encoder)
    with _lock:
        found = _together.get(key)
        if found is None:
            # An endpoint is waited for: rounds beside each other cost nothing.
            rounds = _ROUNDS if getattr(encoder, "remote", False) else 1
            found = _together[key] = Combiner(answer, rounds)
        return found


def names_in(questions: Sequence[tuple[Annotator, Sequence[str]]]) -> list[list[list[str]]]:
    """Entities of questions, by one call for each annotator.

    Returns
    -------
    list of list of list of str
        For each pair, for each of its texts; none, beside names that the index knows, where the
        annotator fails.
    """
    by_annotator: dict[int, list[int]] = {}
    for i, (annotator, _) in enumerate(questions):
        by_annotator.setdefault(id(annotator), []).append(i)
    found: dict[int, list[list[str]]] = {}
    for places in by_annotator.values():
        annotator = questions[places[0]][0]
        texts = [text for i in places for text in questions[i][1]]
        try:
            names = entity_names(texts, annotator.annotate(texts))
        except Exception as error:  # whatever an annotator raises, known names are still found
            _log.warning("names in questions are known ones alone: %s", error)
            names = [[] for _ in texts]
        rest = iter(names)
        found.update((i, [next(rest) for _ in questions[i][1]]) for i in places)
    return [found[i] for i in range(len(questions))]


def profiles(
    texts: Sequence[str],
    names: Sequence[Sequence[str]],
    known: Mapping[str, int],
    boundary: Boundary,
    asked_at: EventTime | None,
) -> list[QueryProfile]:
    """φ(q) of each question, eq. 6."""
    return [
        profile(
            text,
            boundary=boundary,
            reference_time=asked_at,
            known_names=known,
            query_entities=named,
        )
        for text, named in zip(texts, names, strict=True)
    ]
