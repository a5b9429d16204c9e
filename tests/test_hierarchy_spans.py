"""The hierarchy's spans: against an oracle, and what each level promises to cover."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from zeromem import _hierarchy

NO_TIME = np.iinfo(np.int64).min
NEVER = np.iinfo(np.int64).max


def indptr_of(lengths):
    return np.cumsum([0, *lengths]).astype(np.int64)


lengths_strategy = st.lists(st.integers(0, 40), max_size=6)


# --- the oracle: the text of csrc/hierarchy.hpp, said slowly -------------------------------------


def silences_of(times, gap_us):
    return [
        i
        for i in range(len(times) - 1)
        if NO_TIME not in (times[i, 1], times[i + 1, 0])
        and int(times[i + 1, 0]) - int(times[i, 1]) > gap_us
    ]


def oracle_similarities(vectors, weights, times, window, gap_us):
    """Of one session: the gap behind each position; its last one has none."""
    n = len(vectors)
    weighted = vectors.astype(float) * weights[:, None]
    windows = [
        weighted[max(i - (window - 1) // 2, 0) : i + window // 2 + 1].sum(axis=0) for i in range(n)
    ]
    silences = silences_of(times, gap_us)
    found = np.zeros(n)
    for start, stop in itertools.pairwise([0, *(i + 1 for i in silences), n]):
        for i in range(start, stop - 1):
            left = windows[max(i - window // 2, start)]
            right = windows[min(i + 1 + (window - 1) // 2, stop - 1)]
            norms = np.linalg.norm(left) * np.linalg.norm(right)
            found[i] = left @ right / norms if norms > 0 else 0.0
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


def oracle_session(similarity, times, depth, min_turns, max_turns, gap_us):
    n = len(similarity)
    silences = silences_of(times, gap_us)
    borders = [0, *(i + 1 for i in silences), n]
    depth_after = {}  # by the position on the left of the gap
    for start, stop in itertools.pairwise(borders):
        found = oracle_depths(similarity[start : stop - 1])
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


def oracle_episodes(indptr, similarity, times, *options):
    spans = []
    for low, high in itertools.pairwise(indptr):
        if low < high:
            found = oracle_session(similarity[low:high], times[low:high], *options)
            spans += [(low + start, low + stop) for start, stop in found]
    return np.array(spans, np.int32).reshape(-1, 2)


# --- similarities ---------------------------------------------------------------------------------


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


def lengths_of(rng, n):
    return rng.integers(0, 40, n).astype(np.float32)


QUANTUM = 2.0**-20


@given(
    lengths=lengths_strategy,
    gap_us=st.sampled_from([0, 2, 4000, NEVER]),
    window=st.integers(1, 9),
    seed=st.integers(0, 1000),
)
def test_similarities_are_the_oracles(lengths, gap_us, window, seed):
    rng = np.random.default_rng(seed)
    indptr = indptr_of(lengths)
    n = int(indptr[-1])
    vectors, weights, times = topical(rng, n), lengths_of(rng, n), irregular(rng, n)
    found = _hierarchy.similarities(indptr, vectors, weights, times, window, gap_us)
    assert found.dtype == np.float32
    assert (found / QUANTUM == np.round(found / QUANTUM)).all()
    for low, high in itertools.pairwise(indptr):
        own = slice(low, high)
        expected = oracle_similarities(vectors[own], weights[own], times[own], window, gap_us)
        assert_allclose(found[own], expected, rtol=0, atol=QUANTUM)


def test_a_session_that_grows_changes_its_last_gaps_alone(rng):
    for window in (1, 2, 3, 4, 7):
        vectors, weights, times = topical(rng, 60), lengths_of(rng, 60), irregular(rng, 60)
        for n in range(1, 60):
            arguments = vectors[: n + 1], weights[: n + 1], times[: n + 1], window, 1000
            longer = _hierarchy.similarities(np.array([0, n + 1]), *arguments)
            shorter = _hierarchy.similarities(
                np.array([0, n]), *(a[:n] for a in arguments[:3]), window, 1000
            )
            kept = max(0, n - window)
            assert_array_equal(longer[:kept], shorter[:kept])
            # The last gaps are known from the last turns alone.
            near = max(0, n + 1 - 3 * window)
            tail = _hierarchy.similarities(
                np.array([0, n + 1 - near]), *(a[near:] for a in arguments[:3]), window, 1000
            )
            assert_array_equal(longer[kept:], tail[kept - near :])


def test_windows_that_are_equal_but_for_rounding_tie():
    vectors = np.full((30, 5), 0.1, np.float32)
    times = np.full((30, 2), NO_TIME)
    weights = np.linspace(1, 7, 30).astype(np.float32)
    found = _hierarchy.similarities(np.array([0, 30]), vectors, weights, times, 3, NEVER)
    assert set(found[:-1].tolist()) == {1.0}
    assert found[-1] == 0


def test_what_has_no_direction_is_like_nothing():
    times = np.full((6, 2), NO_TIME)
    for value in (0, np.inf, np.nan):
        vectors = np.full((6, 3), value, np.float32)
        found = _hierarchy.similarities(
            np.array([0, 6]), vectors, np.ones(6, np.float32), times, 3, NEVER
        )
        assert found.tolist() == [0] * 6


@given(seed=st.integers(0, 1000), dim=st.integers(0, 9))
def test_norms_are_numpys(seed, dim):
    rng = np.random.default_rng(seed)
    vectors, weights = rng.normal(size=(20, dim)).astype(np.float32), lengths_of(rng, 20)
    spans = np.sort(rng.integers(0, 21, (8, 2)), axis=1).astype(np.int32)
    weighted = vectors.astype(float) * weights[:, None]
    expected = [np.linalg.norm(weighted[a:b].sum(axis=0)) for a, b in spans.tolist()]
    assert_allclose(_hierarchy.norms(spans, vectors, weights), expected, rtol=1e-12)


# --- episodes ------------------------------------------------------------------------------------


def linked(indptr):
    """Sessions laid side by side, as links between rows."""
    previous = np.arange(-1, indptr[-1] - 1).astype(np.int32)
    lengths = np.diff(indptr)
    previous[indptr[:-1][lengths > 0]] = -1
    last = (indptr[1:] - 1)[lengths > 0].astype(np.int32)
    return previous, last, lengths[lengths > 0].astype(np.int32)


def episodes(indptr, similarity, times, *options):
    """Spans of a first segmentation."""
    none = np.zeros(0, np.int32)
    moved, episode, changed, bounds, members, cleared = _hierarchy.segment(
        *linked(indptr), similarity, times, none, *options
    )
    n = int(indptr[-1])
    assert_array_equal(members, np.arange(n))
    assert_array_equal(moved, np.arange(n))
    spans = np.stack([bounds[:-1], bounds[1:]], axis=1).astype(np.int32)
    assert_array_equal(changed, spans[:, 0])
    assert_array_equal(episode, np.repeat(changed, np.diff(bounds)))
    assert_array_equal(cleared, np.setdiff1d(np.arange(n), changed))
    return spans


def alike(rng, n):
    """Similarities with ties, in whole quanta."""
    found = np.where(rng.random(n) < 0.3, rng.integers(0, 4, n) / 4, rng.random(n))
    return (np.round(found / QUANTUM) * QUANTUM).astype(np.float32)


def check_against_oracle(run, rng):
    for lengths in ((0,), (1,), (2, 3), (60, 0, 1, 45), (200,)):
        indptr = indptr_of(lengths)
        n = int(indptr[-1])
        similarity, times = alike(rng, n), irregular(rng, n)
        for options in (
            (0.5, 3, 24, 1000),
            (0.0, 1, 24, NEVER),
            (-1.0, 2, 5, 3),
            (1.5, 5, 8, NEVER),
            (0.5, 4, 5, 1000),
            (0.5, 1, 1, 0),
        ):
            found = run(indptr, similarity, times, *options)
            assert_array_equal(found, oracle_episodes(indptr, similarity, times, *options))


def test_episodes_are_the_oracles(rng):
    check_against_oracle(episodes, rng)


@pytest.mark.parametrize("what", ["depth", "gap", "min", "max", "sessions"])
def test_the_oracle_notices_a_perturbation(rng, what):
    def perturbed(indptr, similarity, times, depth, low, high, gap_us):
        if what == "depth":
            depth += 0.1
        elif what == "gap":
            gap_us = NEVER
        elif what == "min":
            low = 1
        elif what == "max":
            high += 1
        else:
            indptr = indptr[[0, -1]]
        return episodes(indptr, similarity, times, depth, low, high, gap_us)

    with pytest.raises(AssertionError):
        check_against_oracle(perturbed, rng)


@given(
    lengths=lengths_strategy,
    depth=st.floats(-3, 3),
    bounds=st.tuples(st.integers(1, 9), st.integers(1, 30)).map(sorted),
    gap_us=st.sampled_from([0, 2, 4000, NEVER]),
    seed=st.integers(0, 1000),
)
def test_episodes_partition_every_session(lengths, depth, bounds, gap_us, seed):
    rng = np.random.default_rng(seed)
    indptr = indptr_of(lengths)
    n = int(indptr[-1])
    similarity, times = alike(rng, n), irregular(rng, n)
    options = (depth, *bounds, gap_us)
    spans = episodes(indptr, similarity, times, *options)
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
        alone = episodes(own, similarity[low:high], times[low:high], *options)
        inside = spans[(spans[:, 0] >= low) & (spans[:, 1] <= high)]
        assert (alone + low).tolist() == inside.tolist(), f"session {s}"


@given(
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=4),
    depth=st.floats(-1, 1),
    seed=st.integers(0, 1000),
    data=st.data(),
)
def test_changes_lead_from_one_segmentation_to_the_next(lengths, depth, seed, data):
    """Rows of several sessions, interleaved as a log has them."""
    rng = np.random.default_rng(seed)
    n = sum(lengths)
    session = rng.permutation(np.repeat(np.arange(len(lengths)), lengths))
    rows = [np.flatnonzero(session == s).astype(np.int32) for s in range(len(lengths))]
    previous = np.full(n, -1, np.int32)
    for own in rows:
        previous[own[1:]] = own[:-1]
    start = data.draw(st.integers(0, n))
    options = (depth, 2, 6, 1000)
    times = irregular(rng, n)

    def segmented(similarity, until, episode_of):
        ends = [own[own < until] for own in rows]
        last = np.array([own[-1] for own in ends if len(own)], np.int32)
        length = np.array([len(own) for own in ends if len(own)], np.int32)
        return _hierarchy.segment(
            previous[:until], last, length, similarity[:until], times[:until], episode_of, *options
        )

    none = np.zeros(0, np.int32)
    before = np.empty(start, np.int32)
    moved, episode, *_ = segmented(alike(rng, n), start, none)
    before[moved] = episode
    similarity = alike(rng, n)
    moved, episode, changed, bounds, members, cleared = segmented(similarity, n, before)
    all_moved, all_episode, *_ = segmented(similarity, n, none)
    after = np.empty(n, np.int32)
    after[all_moved] = all_episode
    was = np.append(before, np.full(n - start, -1, np.int32))
    assert_array_equal(np.sort(moved), np.flatnonzero(after != was))
    assert_array_equal(after[moved], episode)
    held = {int(e): set(np.flatnonzero(after == e).tolist()) for e in np.unique(after)}
    old = {int(e): set(np.flatnonzero(was == e).tolist()) for e in np.unique(before)}
    assert sorted(changed.tolist()) == [e for e in held if held[e] != old.get(e)]
    for e, low, high in zip(changed.tolist(), bounds[:-1], bounds[1:], strict=True):
        assert set(members[low:high].tolist()) == held[e]
    firsts = set(held)
    expected = {r for r in range(n) if r not in firsts and (r >= start or r in old)}
    assert sorted(cleared.tolist()) == sorted(expected)


def test_an_obvious_change_of_topic_ends_an_episode():
    indptr, times = np.array([0, 24]), np.full((24, 2), NO_TIME)
    topics = np.repeat(np.eye(3, 8, dtype=np.float32), 8, axis=0)
    for size in (1, 2, 3, 5):
        similarity = _hierarchy.similarities(
            indptr, topics, np.ones(24, np.float32), times, size, NEVER
        )
        spans = episodes(indptr, similarity, times, 0.5, 3, 24, NEVER)
        assert spans.tolist() == [[0, 8], [8, 16], [16, 24]]


def test_what_is_all_alike_splits_evenly():
    times = np.full((80, 2), NO_TIME)
    for value in (0.0, 0.5, -1.0):
        similarity = np.full(80, value, np.float32)
        spans = episodes(np.array([0, 80]), similarity, times, 0.5, 3, 24, NEVER)
        assert spans.tolist() == [[0, 20], [20, 40], [40, 60], [60, 80]]


def test_times_at_the_ends_of_their_range():
    low, high = NO_TIME + 1, np.iinfo(np.int64).max
    times = np.array([[low, low], [high, high], [low, low], [low, low]], np.int64)
    similarity = np.array([0, 1, 1, 0], np.float32)
    spans = episodes(np.array([0, 4]), similarity, times, 0.5, 1, 24, NEVER)
    assert spans.tolist() == [[0, 1], [1, 4]]  # only forwards, and the difference does not wrap


# --- windows and paths ---------------------------------------------------------------------------


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


def test_paths_lead_back_as_far_as_they_are_asked_to():
    previous = np.array([-1, -1, 0, 1, 2, 4], np.int32)
    last, length = np.array([5, 3, 4], np.int32), np.array([3, 9, 1], np.int32)
    assert _hierarchy.paths(previous, last, length).tolist() == [2, 4, 5, 1, 3, 4]
    # A link that leads to no earlier row is an end, whoever made it.
    crooked = np.array([7, 1, -9, 2], np.int32)
    ends = np.arange(4, dtype=np.int32)
    found = _hierarchy.paths(crooked, ends, np.full(4, 9, np.int32))
    assert found.tolist() == [0, 1, 2, 2, 3]


# --- arguments -----------------------------------------------------------------------------------

GOOD = {
    "previous": np.array([-1, 0, -1], np.int32),
    "last": np.array([1, 2], np.int32),
    "length": np.array([2, 1], np.int32),
    "similarity": np.ones(3, np.float32),
    "times": np.zeros((3, 2), np.int64),
    "episode_of": np.zeros(0, np.int32),
    "depth": 0.5,
    "min_turns": 2,
    "max_turns": 4,
    "gap_us": 10,
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"previous": np.array([-1, 0, -1])}, r"previous must .* int64 of shape \(3,\)"),
        ({"previous": [-1, 0, -1]}, "previous must be .*, got <class 'list'>"),
        ({"last": np.array([1, 3], np.int32)}, r"last must be in \[0, 3\), got 3"),
        ({"last": np.array([-1, 2], np.int32)}, r"last must be in \[0, 3\), got -1"),
        ({"length": np.array([2], np.int32)}, "length must have one row for each of the 2 .* 1"),
        ({"similarity": np.ones(3)}, "similarity must .* got float64"),
        ({"similarity": np.ones(4, np.float32)}, "similarity must .* 3 .* got 4"),
        ({"similarity": np.ones(6, np.float32)[::2]}, "not C-contiguous"),
        ({"times": np.zeros((3, 3), np.int64)}, "times must have two columns.* got 3"),
        ({"times": np.zeros((2, 2), np.int64)}, "times must have one row .* got 2"),
        ({"times": np.zeros((3, 2))}, "times must .* got float64"),
        ({"episode_of": np.zeros(4, np.int32)}, "episode_of must have at most the 3 .* got 4"),
        ({"depth": float("nan")}, "depth must be finite, got nan"),
        ({"min_turns": 0}, "min_turns must be at least 1, got 0"),
        ({"max_turns": 1}, "max_turns must be at least min_turns = 2, got 1"),
        ({"gap_us": -1}, "gap_us must be at least 0, got -1"),
    ],
)
def test_bad_arguments_are_named(change, message):
    assert _hierarchy.segment(**GOOD)[2].tolist() == [0, 2]
    with pytest.raises(ValueError, match=message):
        _hierarchy.segment(**{**GOOD, **change})


LAID_OUT = {
    "session_indptr": np.array([0, 2, 3]),
    "vectors": np.ones((3, 2), np.float32),
    "weights": np.ones(3, np.float32),
    "times": np.zeros((3, 2), np.int64),
    "window": 3,
    "gap_us": 10,
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
        ({"session_indptr": np.arange(8)[::2]}, "not C-contiguous"),
        ({"vectors": np.ones((3, 2))}, "vectors must .* got float64"),
        ({"vectors": np.ones((4, 2), np.float32)}, "vectors must .* 3 .* got 4"),
        ({"weights": np.ones(2, np.float32)}, "weights must .* 3 .* got 2"),
        ({"window": 0}, "window must be at least 1, got 0"),
        ({"gap_us": -1}, "gap_us must be at least 0, got -1"),
    ],
)
def test_bad_positions_are_named(change, message):
    assert len(_hierarchy.similarities(**LAID_OUT)) == 3
    with pytest.raises(ValueError, match=message):
        _hierarchy.similarities(**{**LAID_OUT, **change})


def test_bad_sizes_and_spans_are_named():
    with pytest.raises(ValueError, match="size must be at least 1, got 0"):
        _hierarchy.windows(np.array([0, 3]), 0)
    vectors, weights = np.ones((3, 2), np.float32), np.ones(3, np.float32)
    for span in ([-1, 2], [2, 1], [0, 4]):
        with pytest.raises(ValueError, match=rf"\[0, 3\), got \[{span[0]}, {span[1]}\)"):
            _hierarchy.norms(np.array([span], np.int32), vectors, weights)
