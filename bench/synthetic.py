"""Synthetic memories of any size: texts, features without a model, and questions about them.

The distributions are those of conversations with many names: turn lengths are log-normal, words
and entities follow Zipf's law while new ones keep coming (Heaps' law), sessions have a topic and
speak again of whom they just spoke of. At 448,000 tokens there are about 13,000 turns, 14,000
entities and 67,000 mentions. The same size and seed give the same memory; what is asked for in
parts is made in parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import pairwise
from typing import Any

import invented
import numpy as np
from hashed import SyntheticEncoder
from numpy.typing import NDArray
from streams import N_TOPICS, draw_words, stream

from zeromem.index.features import ASKS, HAS_NUMBER, HAS_TIME, TraceFeatures
from zeromem.store.reads import LogRow
from zeromem.text import canonical
from zeromem.times import EventTime
from zeromem.types import Trace

Array = NDArray[Any]

# Turns that are made at once.
BLOCK = 4096
LEAST_TOKENS = 200
_START = datetime(2024, 1, 8, 9, tzinfo=UTC)
_OPENER_WORDS = invented.OPENERS

# Of each question: its form and how many entities and words it names.
_FORMS = (
    ("When did {a} visit {b}?", 2, 0),
    ("Where did {a} and {b} buy the {w}?", 2, 1),
    ("What did {a} say about the {w} and the {v}?", 1, 2),
    ("Who told {a} about the {w}?", 1, 1),
    ("Why did {s} keep the {w} from {a}?", 1, 1),
    ("Which {w} did {a} give to {b} in {c}?", 3, 1),
    ("How did the {w} of {a} end up with {b}?", 2, 1),
    ("Does {s} still have the {w} that {a} found?", 1, 1),
)


@dataclass(frozen=True, slots=True)
class Question:
    """A question about a turn.

    Attributes
    ----------
    text : str
    row : int
        The turn that it is about.
    vector : (dim,) float32
        A unit vector near that turn's.
    """

    text: str
    row: int
    vector: Array


class Synthetic:
    """A memory that nobody lived.

    Parameters
    ----------
    n_tokens : int
        Encoder tokens in all, about; at least 200.
    dim : int
        Columns of the vectors.
    seed : int
    """

    def __init__(self, n_tokens: int, *, dim: int = 384, seed: int = 0) -> None:
        if n_tokens < LEAST_TOKENS:
            raise ValueError(f"n_tokens must be at least {LEAST_TOKENS}, got {n_tokens}")
        self.dim = dim
        self.seed = seed
        rng = np.random.default_rng([seed, 0])
        self._stream = s = stream(n_tokens, rng)
        self.n_turns = len(s.session)
        n_sessions = int(s.session[-1]) + 1
        self._topic = rng.integers(0, N_TOPICS, n_sessions)
        self.speakers = invented.speakers(2 + int(max(0.0, 2 * np.log10(n_tokens / 20_000))))
        pair = rng.integers(0, len(self.speakers), n_sessions)
        other = (pair + rng.integers(1, len(self.speakers), n_sessions)) % len(self.speakers)
        first = np.flatnonzero(np.diff(s.session, prepend=-1))
        place = np.arange(self.n_turns) - np.repeat(first, np.diff(first, append=self.n_turns))
        odd = (place + (rng.random(self.n_turns) < 0.1)) % 2
        self._speaker = np.where(odd, other[s.session], pair[s.session])
        days = np.cumsum(rng.integers(1, 6, n_sessions))
        self._minute = days[s.session] * 1440 + place * 2
        self._asks = rng.random(self.n_turns) < 0.2
        draw_words(s, self._topic, rng)
        self.names = invented.names(int(s.word[s.kind == 2].max(initial=-1)) + 1)
        self._vocabulary = invented.content_words(int(s.word[s.kind == 1].max(initial=-1)) + 1)
        rng = np.random.default_rng([seed, 1])
        self._topic_vectors = _unit(rng.standard_normal((N_TOPICS, dim), np.float32))
        drift = rng.standard_normal((n_sessions, dim), np.float32)
        self._session_vectors = _unit(self._topic_vectors[self._topic] + 0.7 * _unit(drift))

    # ---- what a memory is made of

    @property
    def n_tokens(self) -> int:
        """Encoder tokens of all turns."""
        return int(self._stream.tokens.sum())

    @property
    def n_sentences(self) -> int:
        return int(self._stream.opens.sum())

    @property
    def sessions(self) -> Array:
        """The session of each turn: (n_turns,) int32, ascending."""
        return self._stream.session

    @cached_property
    def mention_pairs(self) -> Array:
        """Distinct (turn, entity) pairs, sorted, speakers apart: (m, 2) int64."""
        return self._pairs(np.repeat(np.arange(self.n_turns), np.diff(self._stream.turn_indptr)))

    def _pairs(self, unit: Array) -> Array:
        is_entity = self._stream.kind == 2
        packed = unit[is_entity] * np.int64(len(self.names)) + self._stream.word[is_entity]
        return np.stack(np.divmod(np.unique(packed), len(self.names)), axis=1)

    def terms(self) -> Iterator[str]:
        """Yield the lexical terms of each turn, joined by spaces."""
        for block in self._blocks(0, None):
            yield from block.terms()

    def traces(self, first: int = 0, last: int | None = None) -> list[Trace]:
        """Return the turns of a half-open range as traces with text."""
        return [
            Trace(
                text, f"t{row}", "user", self.speakers[self._speaker[row]],
                f"s{self._stream.session[row]}", self._time(row),
            )
            for block in self._blocks(first, last) for row, text in block.texts()
        ]  # fmt: skip

    def rows(self, first: int = 0, last: int | None = None) -> list[LogRow]:
        """Return a half-open range of turns as the store would list them, one trace each."""
        last = self.n_turns if last is None else last
        return [
            LogRow(
                row + 1, f"t{row}", "user", self.speakers[self._speaker[row]],
                f"s{self._stream.session[row]}", self._time(row), None, None, b"", _START,
            )
            for row in range(first, last)
        ]  # fmt: skip

    def features(self, first: int = 0, last: int | None = None) -> list[TraceFeatures]:
        """Return the features of a half-open range of turns, vectors included."""
        return [f for block in self._blocks(first, last) for f in block.features()]

    def batches(self, size: int = 2 * BLOCK, *, last: int | None = None) -> Iterator[Any]:
        """Yield (rows, features) of the whole memory, or of its first ``last`` turns, in parts."""
        last = self.n_turns if last is None else last
        for first in range(0, last, size):
            end = min(first + size, last)
            yield self.rows(first, end), self.features(first, end)

    def turn_vectors(self, first: int = 0, last: int | None = None) -> Array:
        """Return the raw vectors of a half-open range of turns: (m, dim) float16."""
        parts = [block.turn_vectors for block in self._blocks(first, last)]
        return np.concatenate(parts) if parts else np.zeros((0, self.dim), np.float16)

    def entity_vectors(self) -> Array:
        """Return the unit vectors of ``names``: (n_entities, dim) float16."""
        return np.concatenate([self._entity_block(b) for b in range(0, len(self.names), BLOCK)])

    def encoder(self, questions: Sequence[Question] = ()) -> SyntheticEncoder:
        """Return an encoder that knows this memory's names and these questions."""
        names = {canonical(name): i for i, name in enumerate(self.names)}

        def known(text: str) -> Array | None:
            i = names.get(text)
            return None if i is None else self._entity_block(i - i % BLOCK)[i % BLOCK]

        asked = {question.text: question.vector for question in questions}
        return SyntheticEncoder(
            self.dim, f"synthetic-{self.dim}-{self.seed}", lambda t: asked.get(t, known(t))
        )

    def questions(self, n: int, *, seed: int = 0) -> list[Question]:
        """Ask n questions in natural forms; each names what its turn speaks of."""
        rng = np.random.default_rng([self.seed, 2, seed])
        s = self._stream
        asked: list[tuple[str, int]] = []
        while len(asked) < n:
            row = int(rng.integers(self.n_turns))
            span = slice(*s.turn_indptr[row : row + 2])
            entities = list(dict.fromkeys(s.word[span][s.kind[span] == 2].tolist()))
            words = list(dict.fromkeys(s.word[span][s.kind[span] == 1].tolist()))
            forms = [f for f in _FORMS if f[1] <= len(entities) and f[2] <= len(words)]
            if not entities or not forms:
                continue
            form = forms[int(rng.integers(len(forms)))][0]
            spelled = dict(zip("abc", (self.names[e] for e in entities), strict=False))
            spelled |= dict(zip("wv", (self._vocabulary[w] for w in words), strict=False))
            asked.append((form.format(s=self.speakers[self._speaker[row]], **spelled), row))
        rows = np.array([row for _, row in asked], np.int64)
        near = np.empty((n, self.dim), np.float32)
        for block in np.unique(rows // BLOCK).tolist():
            first = block * BLOCK
            vectors = self.turn_vectors(first, min(first + BLOCK, self.n_turns))
            here = rows // BLOCK == block
            near[here] = vectors[rows[here] - first]
        noise = _unit(rng.standard_normal((n, self.dim), np.float32))
        vectors = _unit(_unit(near) + 0.8 * noise)
        return [Question(t, row, v) for (t, row), v in zip(asked, vectors, strict=True)]

    # ---- how it is made

    def _time(self, row: int) -> EventTime:
        return EventTime(_START + timedelta(minutes=int(self._minute[row])), "minute")

    def _entity_block(self, first: int) -> Array:
        found = self._entity_blocks.get(first)
        if found is None:
            size = min(BLOCK, len(self.names) - first)
            rng = np.random.default_rng([self.seed, 3, first])
            rows = _unit(rng.standard_normal((BLOCK, self.dim), np.float32)[:size])
            found = self._entity_blocks[first] = rows.astype(np.float16)
        return found

    @cached_property
    def _entity_blocks(self) -> dict[int, Array]:
        return {}

    def _entity_rows(self, ids: Array) -> Array:
        """Gather entities' vectors; those of speakers have ids below 0."""
        rows = np.empty((len(ids), self.dim), np.float16)
        blocks = ids // BLOCK
        for block in np.unique(blocks).tolist():
            here = np.flatnonzero(blocks == block)
            if block < 0:
                rows[here] = self._speaker_vectors[ids[here]]
            else:
                rows[here] = self._entity_block(block * BLOCK)[ids[here] % BLOCK]
        return rows

    @cached_property
    def _speaker_vectors(self) -> Array:
        rng = np.random.default_rng([self.seed, 4])
        rows = rng.standard_normal((len(self.speakers), self.dim), np.float32)
        return _unit(rows).astype(np.float16)

    @cached_property
    def _spelling(self) -> tuple[Array, Array]:
        """Every word by code, and its length: function words, content words, names."""
        spelled = [*invented.FUNCTION, *self._vocabulary, *self.names]
        return np.array(spelled, object), np.fromiter(map(len, spelled), np.int32, len(spelled))

    def _codes(self, words: slice) -> Array:
        s = self._stream
        bases = np.array([0, len(invented.FUNCTION), len(invented.FUNCTION) +
                          len(self._vocabulary)])  # fmt: skip
        return s.word[words] + bases[s.kind[words]]

    def _blocks(self, first: int, last: int | None) -> Iterator[_Block]:
        last = self.n_turns if last is None else last
        while first < last:
            end = min(last, first - first % BLOCK + BLOCK)
            yield _Block(self, first, end)
            first = end


class _Block:
    """Consecutive turns of one block, laid out as characters."""

    def __init__(self, memory: Synthetic, first: int, last: int) -> None:
        self.memory, self.first, self.last = memory, first, last
        s = memory._stream
        self.words = slice(int(s.turn_indptr[first]), int(s.turn_indptr[last]))
        self.indptr = s.turn_indptr[first : last + 1] - s.turn_indptr[first]
        self.kind = s.kind[self.words]
        self.codes = memory._codes(self.words)
        self.opens = np.flatnonzero(s.opens[self.words])
        self.closes = np.flatnonzero(s.closes[self.words])
        spelled, lengths = memory._spelling
        # A hash of its place chooses how a sentence opens.
        chosen = (self.opens + self.words.start) * 7 % len(_OPENER_WORDS)
        self.openers = np.array(_OPENER_WORDS, object)[chosen]
        opening = np.array([len(w) + 1 for w in _OPENER_WORDS])[chosen]
        size = lengths[self.codes] + 1  # the space behind it
        size[self.opens] += opening
        size[self.closes] += 1
        end = np.cumsum(size)
        before = end - size
        base = np.repeat(before[self.indptr[:-1]], np.diff(self.indptr))
        self.start = before - base
        self.sentence = np.stack([self.start[self.opens], (end - base)[self.closes] - 1], axis=1)
        self.start[self.opens] += opening
        self.stop = self.start + lengths[self.codes]
        self.sentence_indptr = np.searchsorted(self.opens, self.indptr)
        self.spelled = spelled[self.codes]

    def texts(self) -> Iterator[tuple[int, str]]:
        """Yield (row, text)."""
        pieces = self.spelled.copy()
        pieces[self.opens] = self.openers + " " + pieces[self.opens]
        pieces[self.closes] = pieces[self.closes] + "."
        for i, row in enumerate(range(self.first, self.last)):
            text = " ".join(pieces[self.indptr[i] : self.indptr[i + 1]])
            yield row, f"{text[:-1]}?" if self.memory._asks[row] else text

    def terms(self) -> Iterator[str]:
        """Yield each turn's terms."""
        counted = self.kind > 0
        lower = np.char.lower(self.spelled[counted].astype(str)).astype(object)
        indptr = np.concatenate(([0], np.cumsum(counted)))[self.indptr]
        for a, z in pairwise(indptr.tolist()):
            yield " ".join(lower[a:z])

    @property
    def turn_vectors(self) -> Array:
        return self._noisy[0]

    @cached_property
    def _noisy(self) -> tuple[Array, Array]:
        """Turn vectors and sentence vectors, which do not depend on where a range was cut."""
        m = self.memory
        s = m._stream
        block = self.first - self.first % BLOCK
        end = min(block + BLOCK, m.n_turns)
        rng = np.random.default_rng([m.seed, 5, block])
        turns = m._session_vectors[s.session[block:end]]
        turns = _unit(turns + 0.9 * _unit(rng.standard_normal(turns.shape, np.float32)))
        raw = (turns * rng.uniform(0.8, 1.0, (len(turns), 1))).astype(np.float16)
        whole = s.opens[s.turn_indptr[block] : s.turn_indptr[end]]
        counts = np.add.reduceat(whole, s.turn_indptr[block:end] - s.turn_indptr[block], dtype=int)
        of = np.repeat(np.arange(len(turns)), counts)
        noise = _unit(rng.standard_normal((len(of), m.dim), np.float32))
        sentences = _unit(turns[of] + 0.6 * noise).astype(np.float16)
        own = slice(self.first - block, self.last - block)
        inside = slice(*np.searchsorted(of, (own.start, own.stop)))
        return raw[own], sentences[inside]

    def features(self) -> Iterator[TraceFeatures]:
        """Yield each turn's features, as ingesting its text would make them."""
        m = self.memory
        raw, sentences = self._noisy
        n = self.last - self.first
        turns = np.zeros((n, 2), np.int32)
        turns[:, 1] = self.sentence[self.sentence_indptr[1:] - 1, 1]
        tokens = m._stream.tokens[self.first : self.last].astype(np.int32).reshape(-1, 1)
        flags = self._flags()
        spans = self.sentence.astype(np.int32)
        of_sentence = np.zeros(len(spans), np.int32)
        terms = list(self.terms())
        entity_at = np.flatnonzero(self.kind == 2)
        entity_indptr = np.searchsorted(entity_at, self.indptr)
        sentence_at = np.searchsorted(self.opens, entity_at, side="right") - 1
        mention = np.zeros((len(entity_at), 5), np.int32)
        mention[:, 3], mention[:, 4] = self.start[entity_at], self.stop[entity_at]
        names = m._stream.word[self.words][entity_at]
        for i in range(n):
            a, z = entity_indptr[i], entity_indptr[i + 1]
            p, q = self.sentence_indptr[i], self.sentence_indptr[i + 1]
            speaker = int(m._speaker[self.first + i])
            ids = names[a:z].tolist()
            place = {name: j for j, name in enumerate(dict.fromkeys(ids), 1)}
            rows = np.empty((1 + z - a, 5), np.int32)
            rows[0] = (0, -1, 0, -1, -1)
            rows[1:] = mention[a:z]
            rows[1:, 1] = sentence_at[a:z] - p
            rows[1:, 2] = [place[name] for name in ids]
            vectors = m._entity_rows(np.array([speaker - len(m.speakers), *place], np.int64))
            yield TraceFeatures(
                turns=turns[i : i + 1],
                turn_terms=(terms[i],),
                turn_tokens=tokens[i],
                turn_flags=flags[i],
                sentences=spans[p:q],
                sentence_turn=of_sentence[p:q],
                entities=(m.speakers[speaker].lower(), *(m.names[e].lower() for e in place)),
                entity_labels=("SPEAKER", *("NAME",) * len(place)),
                mentions=rows,
                turn_vectors=raw[i : i + 1],
                sentence_vectors=sentences[p:q],
                entity_vectors=vectors,
                encoded=True,
            )

    def _flags(self) -> Array:
        flags = np.where(self.memory._asks[self.first : self.last], ASKS, 0).astype(np.int32)
        base = len(invented.FUNCTION)
        for bit, words in (
            (HAS_TIME, invented.TIME_WORDS),
            (HAS_NUMBER, invented.NUMBER_WORDS),
        ):
            codes = [base + invented.COMMON.index(word) for word in sorted(words)]
            flags |= bit * np.logical_or.reduceat(np.isin(self.codes, codes), self.indptr[:-1])
        return flags.reshape(-1, 1)


def _unit(rows: Array) -> Array:
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
    return (rows / np.maximum(norms, 1e-12)).astype(np.float32)
