"""The hierarchy's spans: against an oracle, and what each level promises to cover."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from zeromem import _hierarchy

NO_TIME = np.iinfo(np.int64).min
NEVER = np.iinfo(np.int64).max


def indptr_of(lengths):
    return np.cumsum([0, *lengths]).astype(np.int64)


lengths_strategy = st.lists(st.integers(0, 40), max_size=6)


# --- the oracle: the text of csrc/hierarchy.hpp, said slowly -------------------------------------


def oracle_similarities(vectors, window):
    n = len(vectors)
    found = []
    for i in range(n - 1):
        left = vectors[max(i - window // 2, 0)].astype(float)
        right = vectors[min(i + 1 + (window - 1) // 2, n - 1)].astype(float)
        norms = np.linalg.norm(left) * np.linalg.norm(right)
        cosine = left @ right / norms if norms > 0 else 0.0
        found.append(np.round(cosine * 2**20) / 2**20)
    return found


def oracle_depths(similarities):
    depths = []
    for g, here in enumerate(similarities):
        climb = 0.0
        for side in (similarities[:g][::-1], similarities[g + 1 :]):
            peak = here
            for value in side:
                if value < peak:
                    break
                peak = value
            climb += peak - here
        depths.append(climb)
    return depths


def oracle_halves(start, stop, depth_after, min_turns, max_turns):
    length = stop - start
    if length <= max_turns:
        return [(start, stop)]
    margin = max(-(-length // 4), min(min_turns, length // 2))
    cuts = range(start + margin, stop - margin + 1)
    cut = min(cuts, key=lambda c: (-depth_after[c - 1], abs(2 * c - start - stop), c))
    return [
        *oracle_halves(start, cut, depth_after, min_turns, max_turns),
        *oracle_halves(cut, stop, depth_after, min_turns, max_turns),
    ]


def oracle_session(vectors, times, depth, min_turns, max_turns, gap_us, window):
    n = len(vectors)
    silences = [
        i
        for i in range(n - 1)
        if NO_TIME not in (times[i, 1], times[i + 1, 0])
        and int(times[i + 1, 0]) - int(times[i, 1]) > gap_us
    ]
    borders = [0, *(i + 1 for i in silences), n]
    depth_after = {}  # by the position on the left of the gap
    for start, stop in itertools.pairwise(borders):
        found = oracle_depths(oracle_similarities(vectors[start:stop], window))
        depth_after |= dict(enumerate(found, start))
    cuts = set(borders)
    if depth_after:
        values = np.array(list(depth_after.values()))
        threshold = values.mean() + depth * values.std()
        for i in sorted(depth_after, key=lambda i: (-depth_after[i], i)):
            far = all(abs(i + 1 - cut) >= min_turns for cut in cuts)
            if depth_after[i] > threshold and far:
                cuts.add(i + 1)
    depth_after |= dict.fromkeys(silences, 0.0)
    spans = []
    ordered = sorted(cuts)
    for start, stop in itertools.pairwise(ordered):
        spans += oracle_halves(start, stop, depth_after, min_turns, max_turns)
    return spans


def oracle_episodes(indptr, vectors, times, *options):
    spans = []
    for low, high in itertools.pairwise(indptr):
        if low < high:
            found = oracle_session(vectors[low:high], times[low:high], *options)
            spans += [(low + start, low + stop) for start, stop in found]
    return np.array(spans, np.int32).reshape(-1, 2)


# --- episodes ------------------------------------------------------------------------------------


def topical(rng, n, dim=12):
    """Vectors that wander, with jumps and with rows that are not encoded."""
    jumps = np.cumsum(rng.random(n) < 0.2) if n else np.empty(0, int)
    topics = rng.normal(size=(n + 1, dim))
    vectors = topics[jumps] + 0.4 * rng.normal(size=(n, dim))
    vectors[rng.random(n) < 0.05] = 0
    return vectors.astype(np.float32)


def irregular(rng, n):
    start = np.cumsum(rng.choice([1, 10, 5000], size=n, p=[0.6, 0.3, 0.1])).astype(np.int64)
    times = np.stack([start, start + rng.integers(0, 3, n)], 1).astype(np.int64)
    times[rng.random(n) < 0.1] = NO_TIME
    return times


def check_against_oracle(run, rng):
    for lengths in ((0,), (1,), (2, 3), (60, 0, 1, 45), (200,)):
        indptr = indptr_of(lengths)
        n = int(indptr[-1])
        vectors, times = topical(rng, n), irregular(rng, n)
        for options in (
            (0.5, 3, 24, 1000, 3),
            (0.0, 1, 24, NEVER, 3),
            (-1.0, 2, 5, 3, 1),
            (1.5, 5, 8, NEVER, 4),
            (0.5, 4, 5, 1000, 7),
            (0.5, 1, 1, 0, 3),
        ):
            found = run(indptr, vectors, times, *options)
            assert_array_equal(found, oracle_episodes(indptr, vectors, times, *options))


def test_episodes_are_the_oracles(rng):
    check_against_oracle(_hierarchy.episodes, rng)


@pytest.mark.parametrize("what", ["depth", "gap", "window", "min", "max", "sessions"])
def test_the_oracle_notices_a_perturbation(rng, what):
    def perturbed(indptr, vectors, times, depth, low, high, gap_us, window):
        if what == "depth":
            depth += 0.1
        elif what == "gap":
            gap_us = NEVER
        elif what == "window":
            window += 2
        elif what == "min":
            low = 1
        elif what == "max":
            high += 1
        else:
            indptr = indptr[[0, -1]]
        return _hierarchy.episodes(indptr, vectors, times, depth, low, high, gap_us, window)

    with pytest.raises(AssertionError):
        check_against_oracle(perturbed, rng)


@given(
    lengths=lengths_strategy,
    depth=st.floats(-3, 3),
    bounds=st.tuples(st.integers(1, 9), st.integers(1, 30)).map(sorted),
    gap_us=st.sampled_from([0, 2, 4000, NEVER]),
    window=st.integers(1, 9),
    seed=st.integers(0, 1000),
)
def test_episodes_partition_every_session(lengths, depth, bounds, gap_us, window, seed):
    rng = np.random.default_rng(seed)
    indptr = indptr_of(lengths)
    n = int(indptr[-1])
    times = irregular(rng, n)
    arguments = (topical(rng, n), times, depth, *bounds, gap_us, window)
    spans = _hierarchy.episodes(indptr, *arguments)
    assert spans.dtype == np.int32
    assert_array_equal(np.concatenate([np.arange(a, b) for a, b in spans] or [[]]), np.arange(n))
    assert ((spans[:, 1] - spans[:, 0] >= 1) & (spans[:, 1] - spans[:, 0] <= bounds[1])).all()
    assert set(indptr[np.flatnonzero(np.diff(indptr))].tolist()) <= set(spans[:, 0].tolist())
    for i in range(n - 1):
        end, start = int(times[i, 1]), int(times[i + 1, 0])
        if NO_TIME not in (end, start) and start - end > gap_us and i + 1 not in indptr:
            assert i + 1 in spans[:, 0]
    # Touching one session leaves the spans of the others as they are.
    for s, (low, high) in enumerate(itertools.pairwise(indptr)):
        own = np.array([0, high - low])
        alone = _hierarchy.episodes(own, arguments[0][low:high], times[low:high], *arguments[2:])
        inside = spans[(spans[:, 0] >= low) & (spans[:, 1] <= high)]
        assert (alone + low).tolist() == inside.tolist(), f"session {s}"


def test_an_obvious_change_of_topic_ends_an_episode():
    indptr, times = np.array([0, 24]), np.full((24, 2), NO_TIME)
    topics = np.repeat(np.eye(3, 8, dtype=np.float32), 8, axis=0)
    for size in (1, 2, 3, 5):
        windows = np.stack([topics[a:b].sum(axis=0) for a, b in _hierarchy.windows(indptr, size)])
        spans = _hierarchy.episodes(indptr, windows, times, 0.5, 3, 24, NEVER, size)
        assert spans.tolist() == [[0, 8], [8, 16], [16, 24]]


@pytest.mark.parametrize("dim", [0, 6])
def test_what_is_not_encoded_or_all_alike_splits_evenly(dim):
    times = np.full((80, 2), NO_TIME)
    for value in (0, 0.1, np.inf, np.nan):
        vectors = np.full((80, dim), value, np.float32)
        spans = _hierarchy.episodes(np.array([0, 80]), vectors, times, 0.5, 3, 24, NEVER)
        assert spans.tolist() == [[0, 20], [20, 40], [40, 60], [60, 80]]


def test_times_at_the_ends_of_their_range():
    low, high = NO_TIME + 1, np.iinfo(np.int64).max
    times = np.array([[low, low], [high, high], [low, low], [low, low]], np.int64)
    vectors = np.ones((4, 2), np.float32)
    spans = _hierarchy.episodes(np.array([0, 4]), vectors, times, 0.5, 1, 24, NEVER)
    assert spans.tolist() == [[0, 1], [1, 4]]  # only forwards, and the difference does not wrap


# --- windows and local spans ---------------------------------------------------------------------


@given(lengths=lengths_strategy, size=st.one_of(st.integers(1, 50), st.just(2**62)))
def test_windows_are_centred_and_clipped(lengths, size):
    indptr = indptr_of(lengths)
    spans = _hierarchy.windows(indptr, size)
    assert spans.dtype == np.int32
    assert len(spans) == indptr[-1]
    for low, high in zip(indptr[:-1].tolist(), indptr[1:].tolist(), strict=True):
        for i in range(low, high):
            expected = max(low, i - (size - 1) // 2), min(high, i + size // 2 + 1)
            assert tuple(spans[i].tolist()) == expected


@given(
    lengths=lengths_strategy, radius=st.one_of(st.integers(0, 9), st.just(2**62)), data=st.data()
)
def test_local_spans_stay_in_their_session(lengths, radius, data):
    indptr = indptr_of(lengths)
    n = int(indptr[-1])
    positions = data.draw(st.lists(st.integers(0, n - 1), max_size=9)) if n else []
    spans = _hierarchy.local_spans(indptr, np.array(positions, np.int64), radius)
    assert spans.shape == (len(positions), 2)
    for p, (start, stop) in zip(positions, spans.tolist(), strict=True):
        session = int(np.searchsorted(indptr, p, side="right")) - 1
        assert start == max(p - radius, indptr[session])
        assert stop == min(p + radius + 1, indptr[session + 1])


# --- arguments -----------------------------------------------------------------------------------

GOOD = {
    "session_indptr": np.array([0, 2, 3]),
    "window_vectors": np.ones((3, 2), np.float32),
    "times": np.zeros((3, 2), np.int64),
    "depth": 0.5,
    "min_turns": 2,
    "max_turns": 4,
    "gap_us": 10,
    "window": 3,
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"session_indptr": np.array([1, 3])}, "session_indptr must start with 0, got 1"),
        ({"session_indptr": np.array([], np.int64)}, "session_indptr must start with 0, got no"),
        ({"session_indptr": np.array([0, 3, 2])}, "got 3 followed by 2 at entry 2"),
        ({"session_indptr": np.array([0, 2**31])}, "must end below .* got 2147483648"),
        (
            {"session_indptr": np.array([0, 3], np.int32)},
            r"session_indptr .* int32 of shape \(2,\)",
        ),
        ({"session_indptr": np.array([[0, 3]])}, r"session_indptr must .* shape \(1, 2\)"),
        ({"session_indptr": [0, 3]}, "session_indptr must be .*, got <class 'list'>"),
        ({"session_indptr": np.arange(8)[::2]}, "not C-contiguous"),
        ({"window_vectors": np.ones((3, 2))}, "window_vectors must .* got float64"),
        ({"window_vectors": np.ones((4, 2), np.float32)}, "window_vectors must .* 3 .* got 4"),
        ({"times": np.zeros((3, 3), np.int64)}, "times must have two columns.* got 3"),
        ({"times": np.zeros((2, 2), np.int64)}, "times must have one row .* got 2"),
        ({"times": np.zeros((3, 2))}, "times must .* got float64"),
        ({"depth": float("nan")}, "depth must be finite, got nan"),
        ({"min_turns": 0}, "min_turns must be at least 1, got 0"),
        ({"max_turns": 1}, "max_turns must be at least min_turns = 2, got 1"),
        ({"gap_us": -1}, "gap_us must be at least 0, got -1"),
        ({"window": 0}, "window must be at least 1, got 0"),
    ],
)
def test_bad_arguments_are_named(change, message):
    assert len(_hierarchy.episodes(**GOOD)) == 2
    with pytest.raises(ValueError, match=message):
        _hierarchy.episodes(**{**GOOD, **change})


def test_bad_sizes_and_positions_are_named():
    indptr = np.array([0, 3])
    with pytest.raises(ValueError, match="size must be at least 1, got 0"):
        _hierarchy.windows(indptr, 0)
    with pytest.raises(ValueError, match="radius must be at least 0, got -1"):
        _hierarchy.local_spans(indptr, np.array([0]), -1)
    for position in (-1, 3):
        with pytest.raises(ValueError, match=rf"positions must be in \[0, 3\), got {position}"):
            _hierarchy.local_spans(indptr, np.array([0, position]), 1)
