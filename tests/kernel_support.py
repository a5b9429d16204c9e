"""Small random memories as the query kernels read them, and what their parity tests share."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from zeromem.index.chunks import Chunks
from zeromem.index.lists import Lists
from zeromem.kernels._bm25 import Levels
from zeromem.kernels._evidence import Turns
from zeromem.kernels._views import NO_TIME, Units
from zeromem.kernels._walked import Hops

DIM = 12
RTOL = 1e-5
HALF_INFORMATIVE = 10.0
EXEMPT = 0.05  # share of places where other rows of the same score may stand
SIZES = (1, 2, 7, 40, 150)


@dataclass(frozen=True, eq=False)
class Memory:
    """Sessions interleaved, lists with sealed parts and tails, and everything that may be missing.

    ``vectors`` and ``sentences`` have a row more than there are turns and sentences, so that a
    test may read all of them one row off.
    """

    n: int
    n_terms: int
    n_entities: int
    radius: int
    n_episodes: int
    vectors: Chunks
    sentences: Chunks
    postings: Lists
    entity_sentences: Lists
    titled: Lists
    units: Units
    levels: Levels
    hops: Hops
    turns: Turns


def csr(rows: list[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Lay rows of ids out as a CSR."""
    indptr = np.cumsum([0, *(len(row) for row in rows)]).astype(np.int64)
    return indptr, np.array([value for row in rows for value in row], np.int32)


def lists(rows: list[Any], n_keys: int, *, n_sealed: int, counts: Any = None) -> Lists:
    """Invert rows of keys: the first ``n_sealed`` sealed, every further row added to the tail."""
    known = max((key + 1 for row in rows[:n_sealed] for key in row), default=0)
    by_key: list[list[int]] = [[] for _ in range(known)]
    weights: list[list[float]] = [[] for _ in range(known)]
    for i, row in enumerate(rows[:n_sealed]):
        for at, key in enumerate(row):
            by_key[key].append(i)
            weights[key].append(counts[i][at] if counts else 1.0)
    indptr, values = csr(by_key)
    flat = np.array([w for line in weights for w in line] if counts else [], np.float32)
    found = Lists.sealed((indptr, values, flat), counted=counts is not None)
    for i, row in enumerate(rows[n_sealed:], n_sealed):
        known = max(known, 1 + max(row, default=-1))
        values = np.full(len(row), i, np.int32)
        tf = np.array(counts[i], np.float32) if counts else None
        found = found.extended(known, np.array(row, np.int32), values, tf)
    nothing = np.zeros(0, np.int32)
    return found.extended(
        n_keys, nothing, nothing, np.zeros(0, np.float32) if counts is not None else None
    )


def links(session: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The turn before and after each in its session; -1 for none."""
    previous = np.full(len(session), -1, np.int32)
    following = previous.copy()
    last: dict[int, int] = {}
    for i, s in enumerate(session.tolist()):
        if s in last:
            previous[i], following[last[s]] = last[s], i
        last[s] = i
    return previous, following


def episodes(rng: np.random.Generator, previous: np.ndarray) -> np.ndarray:
    """Cut sessions at random: the first turn of each turn's episode."""
    found = np.arange(len(previous), dtype=np.int32)
    for i, before in enumerate(previous.tolist()):
        if before >= 0 and rng.random() < 0.8:
            found[i] = found[before]
    return found


def _members(previous: np.ndarray, following: np.ndarray, row: int, radius: int) -> list[int]:
    found = [row]
    for link in (previous, following):
        at = row
        for _ in range(radius):
            at = int(link[at])
            if at < 0:
                break
            found.append(at)
    return found


def _inverse_norms(vectors: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(vectors.astype(np.float64), axis=1)
    return np.divide(1.0, norms, out=np.zeros(len(norms)), where=norms > 0).astype(np.float32)


def _of_windows_and_episodes(
    values: np.ndarray,
    previous: np.ndarray,
    following: np.ndarray,
    episode: np.ndarray,
    radius: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Sums of turns' values over the window centred on each turn, and at each episode's first."""
    windows = np.array(
        [values[_members(previous, following, i, radius)].sum(axis=0) for i in range(len(values))]
    )
    whole = np.zeros_like(windows)
    np.add.at(whole, episode, values)
    return windows, whole


def memory(
    rng: np.random.Generator,
    n: int,
    *,
    radius: int = 1,
    per_turn: int = 4,
    n_terms: int = 30,
    n_entities: int = 12,
    n_sealed: int | None = None,
    twins: bool = False,
) -> Memory:
    """Make a memory of ``n`` turns.

    Parameters
    ----------
    radius : int
        Of windows.
    per_turn : int
        Most sentences of a turn; some turns have none.
    n_sealed : int, optional
        Turns whose lists are sealed; half without it.
    twins : bool
        Every second turn says what the one before said, so that scores tie.
    """
    n_sealed = n // 2 if n_sealed is None else n_sealed

    def doubled(values: np.ndarray) -> np.ndarray:
        if twins:
            values[1::2] = values[: len(values) - 1 : 2]
        return values

    session = doubled(rng.integers(0, max(1, n // 6), n)) if not twins else np.arange(n)
    previous, following = links(session)
    episode = episodes(rng, previous)
    n_tokens = doubled(rng.integers(1, 60, n)).astype(np.int32)
    raw = rng.normal(size=(n + 1, DIM)) * rng.uniform(0.2, 2.0, (n + 1, 1))
    raw[:n] = doubled(raw[:n])
    vectors = np.concatenate([raw, raw[:1]])[: n + 1].astype(np.float16)
    if n > 5:
        vectors[3 - twins : 4] = 0  # not encoded yet
    n_sentences = doubled(rng.integers(0, per_turn + 1, n))
    sentence_indptr = np.cumsum([0, *n_sentences]).astype(np.int64)
    z = int(sentence_indptr[-1])
    sentences = rng.normal(size=(z + 1, DIM))
    if twins:
        sentences[:] = sentences[0]
    sentences = (sentences / np.linalg.norm(sentences, axis=1, keepdims=True)).astype(np.float16)
    names = [
        sorted(set(rng.integers(0, n_entities, rng.integers(0, 4)).tolist())) for _ in range(z)
    ]
    spans = [range(a, b) for a, b in itertools.pairwise(sentence_indptr)]
    titles = [[int(rng.integers(0, n_entities))] if rng.random() < 0.3 else [] for _ in range(n)]
    mentions = [
        sorted({e for s in span for e in names[s]} | set(title))
        for span, title in zip(spans, titles, strict=True)
    ]
    # Terms with repeats; rare ones are rare, and a turn may be without any.
    words = [
        np.minimum(rng.geometric(0.15, rng.integers(0, 12)) - 1, n_terms - 1).tolist()
        for _ in range(n)
    ]
    if twins:
        for i in range(1, n, 2):
            words[i] = words[i - 1]
    distinct = [sorted(set(line)) for line in words]
    tf = [[line.count(term) for term in own] for line, own in zip(words, distinct, strict=True)]
    speaker, role = doubled(rng.integers(-1, 4, n)), doubled(rng.integers(0, 3, n))
    pairs, group = np.unique(np.stack([speaker, role], axis=1), axis=0, return_inverse=True)
    group = group.reshape(-1)
    flags = doubled(rng.integers(0, 32, n))
    turns_of = np.bincount(group, minlength=len(pairs))
    start = doubled(rng.integers(0, 1000, n))
    time = np.stack([start, start + rng.integers(1, 50, n)], axis=1).astype(np.int64)
    time[doubled(rng.random(n)) < 0.3] = NO_TIME
    weighted = n_tokens[:, None] * vectors[:n].astype(np.float64)
    around = (previous, following, episode, radius)
    window_norms, episode_norms = map(_inverse_norms, _of_windows_and_episodes(weighted, *around))
    lengths = np.array([len(line) for line in words], np.float32)
    window_lengths, episode_lengths = _of_windows_and_episodes(lengths, *around)
    turn_norms, sentence_norms = _inverse_norms(vectors[:n]), _inverse_norms(sentences[:z])
    turn_chunks = Chunks.of(vectors[: n // 2 + 1]).extended(vectors[n // 2 + 1 :])
    sentence_chunks = Chunks.of(sentences)
    mention_indptr, mention = csr(mentions)
    name_indptr, name = csr(names)
    term_indptr, term = csr(words)
    split = int(sentence_indptr[n_sealed])
    titled = lists(titles, max((t[0] + 1 for t in titles if t), default=0), n_sealed=n_sealed)
    says = n_tokens / (n_tokens + HALF_INFORMATIVE)
    said = (n_tokens, flags.astype(np.int32), speaker.astype(np.int32), role.astype(np.int32), time)
    return Memory(
        n, n_terms, n_entities, radius, len(np.unique(episode)), turn_chunks, sentence_chunks,
        lists(distinct, n_terms, n_sealed=n_sealed, counts=tf),
        lists(names, n_entities, n_sealed=split),
        titled,
        Units(
            *said, group.astype(np.int32),
            (np.bincount(group, flags & 1, minlength=len(pairs)) / turns_of).astype(np.float32),
            (np.bincount(group, says, minlength=len(pairs)) / turns_of).astype(np.float32),
            turn_norms, previous, following, window_norms, episode, episode_norms,
            sentence_indptr, sentence_chunks.addresses, sentence_norms,
        ),
        Levels(
            lengths, window_lengths.astype(np.float32), episode_lengths.astype(np.float32),
            previous, following, episode, radius, len(np.unique(episode)),
        ),
        Hops(
            mention_indptr, mention, titled.kernel_args, sentence_indptr, name_indptr, name,
            sentence_chunks.addresses, sentence_norms,
        ),
        Turns(
            *said, previous, following, mention_indptr, mention, term_indptr, term,
            turn_chunks.addresses, turn_norms,
        ),
    )  # fmt: skip


def unit_rows(rng: np.random.Generator, b: int) -> np.ndarray:
    """Questions' vectors."""
    rows = rng.normal(size=(b, DIM))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def masks(rng: np.random.Generator, n: int, b: int) -> tuple[np.ndarray, np.ndarray]:
    """Boundaries that admit all, some, one and none, and which question has which."""
    some = rng.random(n) < 0.6
    one = np.arange(n) == rng.integers(0, n)
    found = np.stack([np.ones(n, bool), some, one, np.zeros(n, bool)])
    return found, np.resize([0, 1, 0, 2, 1, 3], b).astype(np.int32)


def perturbed(values: Any) -> Any:
    """Values of the same kind and range that say something else."""
    if isinstance(values, bool):
        return not values
    if isinstance(values, int):
        return values + 1
    if isinstance(values, float):
        return values * 1.01 + 0.001
    if values.dtype == np.bool_:
        return ~values
    if values.dtype.kind == "f":
        return (
            values * np.linspace(0.9, 1.1, values.size, dtype="f8").reshape(values.shape)
        ).astype(values.dtype)
    return np.roll(values, 1, axis=0)


def spread_evenly(indptr: np.ndarray) -> np.ndarray:
    """Another CSR's indptr over the same entries."""
    return np.linspace(0, indptr[-1], len(indptr)).astype(np.int64)


class Rankings:
    """Compares rankings: equal scores, and equal ids but where scores hardly differ.

    Scores differ by no more than ``RTOL`` of a list's best, or of ``scale``. ``finish`` fails where
    too many places were exempted from equal ids.
    """

    def __init__(self, scale: float = 0.0) -> None:
        self.scale = scale
        self.places = 0
        self.exempted = 0

    def check(self, rows: Any, scores: Any, wanted_rows: Any, wanted: Any) -> None:
        """One question's: ids, best first and padded with -1, and scores."""
        nearly = RTOL * np.abs(wanted).max(initial=self.scale)
        assert_allclose(scores, wanted, rtol=0, atol=nearly)
        assert_array_equal(rows < 0, wanted_rows < 0)
        there = rows[rows >= 0].tolist()
        assert len(set(there)) == len(there)
        place = {int(row): at for at, row in enumerate(wanted_rows)}
        for at, row in enumerate(there):
            self.places += 1
            if row != wanted_rows[at]:
                self.exempted += 1
                # What the oracle left out is no better than the last that it did not.
                other = wanted[place.get(row, len(there) - 1)]
                assert abs(other - wanted[at]) <= nearly, (at, row, int(wanted_rows[at]))

    def finish(self) -> None:
        """Fail where more than a few places were exempted."""
        assert self.places > 0
        assert self.exempted <= EXEMPT * self.places, (self.exempted, self.places)
