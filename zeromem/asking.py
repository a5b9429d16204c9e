"""Questions on their way to evidence: vectors and names, the round they share, and the text."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from zeromem.combining import Combiner
from zeromem.errors import StaleReadError, told
from zeromem.forks import Lock
from zeromem.indexer import State
from zeromem.ingest.annotate import Annotator, entity_names
from zeromem.ingest.encode import Encoder
from zeromem.ingest.encoders.base import check_vectors
from zeromem.inputs import as_options, check_question
from zeromem.query.evidence import materialise
from zeromem.query.piece import Timer
from zeromem.query.profile import profile
from zeromem.query.ranked import Options, Ranked
from zeromem.query.retrieve import Work, retrieve_many
from zeromem.times import EventTime
from zeromem.types import Boundary, QueryProfile, Retrieval, StoredTrace

if TYPE_CHECKING:
    from zeromem.memory import Memory

_log = logging.getLogger(__name__)
# Vectors of recent questions.
_KEPT = 4096
# Rounds of questions that may wait for an endpoint at once.
_ROUNDS = 8
# Questions up to which a call shares a round with others.
_FEW = 16
_ATTEMPTS = 10


Rounds: TypeAlias = "Combiner[Sequence[Asked], list[list[Answered] | None]]"


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
        self._dim: int | None = None

    @property
    def dim(self) -> int:
        """Columns, as they were when first asked for: an index does not change its own."""
        if self._dim is None:
            self._dim = self._encoder.dim
        return self._dim

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return (n, dim) unit rows; zeros, which favour no turn, where the encoder fails."""
        missing = [t for t in dict.fromkeys(texts) if t not in self._kept]
        found = self._kept
        if missing:
            fresh = self._encode(missing)
            if fresh is None:
                return np.zeros((len(texts), self.dim), np.float32)
            found = {**found, **dict(zip(missing, fresh, strict=True))}
            kept = found
            if len(found) > max(_KEPT, len(missing)):
                kept = dict(list(found.items())[-max(_KEPT, len(missing)) :])
            # Replaced, never changed: other threads may be reading it.
            self._kept = kept
        if not texts:
            return np.zeros((0, self.dim), np.float32)
        return np.stack([found[t] for t in texts])

    def _encode(self, texts: Sequence[str]) -> NDArray[np.float32] | None:
        shape = (len(texts), self.dim)
        try:
            source = f"encoder {self._encoder.fingerprint}"
            return check_vectors(self._encoder.encode(texts), shape=shape, source=source)
        except Exception as error:  # whatever an encoder raises, words and links still answer
            _log.warning("questions are answered by words and links alone: %s", told(error))
            return None


# By identity: encoders that compare equal need not encode alike. A value keeps its encoder, so that
# no other object can have that identity meanwhile; memories keep the values.
_shared: weakref.WeakValueDictionary[int, QuestionVectors] = weakref.WeakValueDictionary()
_together: weakref.WeakValueDictionary[tuple[int, int], Rounds] = weakref.WeakValueDictionary()
_lock = Lock()


def question_vectors(encoder: Encoder) -> QuestionVectors:
    """Return the encoder's question vectors, which all memories that use it share."""
    with _lock:
        found = _shared.get(id(encoder))
        if found is None:
            found = _shared[id(encoder)] = QuestionVectors(encoder)
        return found


def combiner_of(annotator: Annotator, encoder: Encoder) -> Rounds:
    """Return what answers calls with these models together: a slow model is its users' alone."""
    key = id(annotator), id(encoder)
    with _lock:
        found = _together.get(key)
        if found is None:
            # An endpoint is waited for: rounds beside each other cost nothing.
            rounds = _ROUNDS if getattr(encoder, "remote", False) else 1
            found = _together[key] = Combiner(answer_together, rounds)
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
            _log.warning("names in questions are known ones alone: %s", told(error))
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


class Answered(NamedTuple):
    """R(q) of one question with its text, and the state of the log that it shows."""

    ranked: Ranked
    retrieval: Retrieval
    state: State
    stored: dict[int, StoredTrace]


class Call(NamedTuple):
    """Questions to one memory, with checked options.

    ``filtered`` asks for the text of what was left out, which ``explain`` shows.
    """

    memory: Memory
    texts: list[str]
    options: Options
    boundary: Boundary
    asked_at: EventTime | None
    filtered: bool = False

    @classmethod
    def of(
        cls,
        memory: Memory,
        questions: Sequence[str],
        given: Mapping[str, Any],
        *,
        filtered: bool = False,
    ) -> Call:
        """Check questions and the options of :meth:`Memory.retrieve`.

        Raises
        ------
        InvalidInputError
        """
        texts = [check_question(q) for q in questions]
        return cls(memory, texts, *as_options(given, memory._zone), filtered)

    @property
    def is_ready(self) -> bool:
        """Whether :meth:`now` would return at once."""
        return self.boundary.as_of is None and self.memory._indexer.is_current()

    def now(self) -> Asked:
        """Ask of all that is acknowledged by now."""
        return Asked(self, self.memory._state(self.boundary))


class Asked(NamedTuple):
    """A call in one state of its memory's log."""

    call: Call
    state: State

    @property
    def batch(self) -> tuple[Any, ...]:
        """Name the batch that its questions join."""
        call = self.call
        return id(call.memory), id(self.state.index), call.options, call.filtered


def ask(calls: Sequence[Call]) -> list[list[Answered]]:
    """Answer with whoever else asks now; what was forgotten meanwhile is asked for again.

    Raises
    ------
    Exception
        Of the first call that failed.
    """
    found = []
    for answered in ask_each(calls, _in_a_round):
        if isinstance(answered, Exception):
            raise answered
        found.append(answered)
    return found


def ask_each(
    calls: Sequence[Call],
    together: Callable[[Sequence[Asked]], Sequence[list[Answered] | None]] | None = None,
) -> list[list[Answered] | Exception]:
    """Answer several calls; one that fails has its error, and harms no other.

    Parameters
    ----------
    calls : sequence of Call
    together : callable, optional
        Answers those of one round; by default without anybody else's.
    """
    found: dict[int, list[Answered] | Exception] = {}
    left = list(range(len(calls)))
    for _ in range(_ATTEMPTS):
        asked: dict[int, Asked] = {}
        for i in left:
            try:
                asked[i] = calls[i].now()
            except Exception as error:  # whatever it is, it is told to whom it belongs
                found[i] = error
        for i, answered in zip(asked, answer_each(list(asked.values()), together), strict=True):
            if answered is not None:
                found[i] = answered
        left = [i for i in asked if i not in found]
        if not left:
            break
    for i in left:
        found[i] = StaleReadError(
            f"scope {calls[i].memory.scope!r} was changed by others in each of {_ATTEMPTS} "
            "attempts to read it; ask again"
        )
    return [found[i] for i in range(len(calls))]


def answer_each(
    asked: Sequence[Asked],
    together: Callable[[Sequence[Asked]], Sequence[list[Answered] | None]] | None = None,
) -> Sequence[list[Answered] | Exception | None]:
    """Answer what was asked of states of the log; one that fails has its error.

    None stands for questions whose evidence was forgotten since.
    """
    if not asked:
        return []
    try:
        return (together or _alone)(asked)
    except Exception as error:
        if len(asked) == 1:
            return [error]
    return [answer for one in asked for answer in answer_each([one])]


def _in_a_round(asked: Sequence[Asked]) -> list[list[Answered] | None]:
    """Answer in a round that is shared with other threads."""
    combiners = {group.call.memory._combiner for group in asked}
    few = sum(len(group.call.texts) for group in asked) <= _FEW
    # Many questions, and those to several models, are a batch that nobody has to wait for.
    return combiners.pop()(asked) if few and len(combiners) == 1 else _alone(asked)


def answer_together(calls: Sequence[Sequence[Asked]]) -> list[list[list[Answered] | None]]:
    """Profile, rank and fetch the text for several calls: those of one memory as one batch.

    None stands for questions whose evidence was forgotten since their index was looked at.
    """
    asked = [group for call in calls for group in call]
    timer, batches = Timer(), {group.batch: group for group in asked}
    with timer.stage("profile"):
        names = names_in([(a.call.memory._featurizer.annotator, a.call.texts) for a in asked])
        made: dict[tuple[Any, ...], list[QueryProfile]] = {key: [] for key in batches}
        places = []
        for group, named in zip(asked, names, strict=True):
            index, call = group.state.index, group.call
            known = index.arrays.names if len(index) else {}
            own = profiles(call.texts, named, known, call.boundary, call.asked_at)
            start = len(made[group.batch])
            places.append((group.batch, slice(start, start + len(own))))
            made[group.batch] += own
    answered: dict[tuple[Any, ...], list[Answered] | None] = {}
    for options in dict.fromkeys(group.call.options for group in batches.values()):
        keys = [key for key, group in batches.items() if group.call.options == options]
        works = [
            Work(batches[k].state.index, made[k], batches[k].call.memory._encode) for k in keys
        ]
        for key, ranked in zip(keys, retrieve_many(works, options, timer), strict=True):
            answered[key] = _with_text(batches[key], ranked, timer)
    rest = iter([(answered[key], part) for key, part in places])
    return [
        [None if own is None else own[part] for own, part in (next(rest) for _ in call)]
        for call in calls
    ]


def _with_text(group: Asked, ranked: list[Ranked], timer: Timer) -> list[Answered] | None:
    try:
        with timer.stage("text"):
            call = group.call
            stored = call.memory._read(ranked, group.state, filtered=call.filtered)
    except StaleReadError:
        return None
    arrays = group.state.index.arrays
    return [
        Answered(r, materialise(r, arrays, stored, timer.seconds), group.state, stored)
        for r in ranked
    ]


def _alone(asked: Sequence[Asked]) -> list[list[Answered] | None]:
    return answer_together([asked])[0]
