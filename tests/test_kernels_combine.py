"""Weighted signals and maxima over units against the oracle, and by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from zeromem.errors import InvalidInputError
from zeromem.kernels import combine_cpu, combine_ref, span_max_cpu, span_max_ref


def combine_cases(rng):
    for n_signals, b, n in ((1, 1, 1), (3, 2, 40), (5, 4, 7), (0, 2, 5), (2, 0, 4), (2, 3, 0)):
        for kind in ("normal", "ties", "flat"):
            signals = rng.normal(size=(n_signals, b, n)).astype(np.float32)
            if kind == "ties":
                signals = np.round(signals)
            elif kind == "flat" and n_signals:
                signals[0] = 2.5
            weights = rng.uniform(-1, 2, n_signals).astype(np.float32)
            for share in (1.0, 0.5, 0.0):
                yield signals, weights, rng.random((b, n)) < share


def check_combine(run, rng):
    for signals, weights, mask in combine_cases(rng):
        found, wanted = run(signals, weights, mask), combine_ref.combine(signals, weights, mask)
        assert found.dtype == np.float32
        assert_array_equal(np.isnan(found), ~mask)
        assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def check_span_max(run, rng):
    for b, n in ((1, 1), (3, 50), (0, 5)):
        scores = rng.normal(size=(b, n)).astype(np.float32)
        for m in (0, 1, 30):
            starts = rng.integers(0, n, m)
            ends = np.array([rng.integers(s + 1, n + 1) for s in starts], np.int64)
            found = run(scores, starts, ends)
            assert found.dtype == np.float32
            assert_array_equal(found, span_max_ref.span_max(scores, starts, ends))


def test_combine_parity(rng):
    check_combine(combine_cpu.combine, rng)


def test_span_max_parity(rng):
    check_span_max(span_max_cpu.span_max, rng)


@pytest.mark.parametrize("what", ["weight", "mask", "signal", "flat", "scale", "row"])
def test_combine_parity_fails_when_the_kernel_is_perturbed(what, rng):
    def perturbed(signals, weights, mask):
        if what == "weight":
            weights = weights * np.float32(1.001)
        elif what == "mask":
            mask = ~mask
        elif what == "signal" and len(signals) > 1:
            signals = signals[::-1]
        found = combine_cpu.combine(signals, weights, mask)
        if what == "flat" and len(signals):  # a signal that is alike everywhere counted as 1
            span = np.ptp(np.where(mask, signals, np.nan), axis=2, keepdims=True)
            found = found + (weights[:, None, None] * (span == 0)).sum(axis=0)
        elif what == "scale":
            found = found * np.float32(1.0001)
        elif what == "row":
            found = np.roll(found, 1, axis=1)
        return found

    with np.errstate(all="ignore"), pytest.raises(AssertionError):
        check_combine(perturbed, rng)


@pytest.mark.parametrize("what", ["min", "short", "first"])
def test_span_max_parity_fails_when_the_kernel_is_perturbed(what, rng):
    def perturbed(scores, starts, ends):
        if what == "min":
            return -span_max_cpu.span_max(-scores, starts, ends)
        if what == "short":
            return span_max_cpu.span_max(scores, starts, np.maximum(starts + 1, ends - 1))
        return np.ascontiguousarray(scores[:, starts])

    with pytest.raises(AssertionError):
        check_span_max(perturbed, rng)


def test_combine_by_hand():
    signals = np.array([[[0, 5, 10, 99]], [[3, 3, 3, 0]], [[1, 0, 1, 1]]], np.float32)
    weights = np.array([2, 7, -1], np.float32)
    mask = np.array([[True, True, True, False]])
    # The masked 99 stretches nothing; the flat second signal counts as 0.
    assert_array_equal(combine_cpu.combine(signals, weights, mask), [[-1, 1, 1, np.nan]])


def test_span_max_by_hand():
    scores = np.array([[1, -2, 3, -4]], np.float32)
    starts, ends = np.array([0, 1, 3, 0]), np.array([2, 2, 4, 4])
    assert_array_equal(span_max_cpu.span_max(scores, starts, ends), [[1, -2, -4, 3]])


@settings(max_examples=30)
@given(st.integers(1, 5), st.integers(1, 20), st.integers(0, 2**32 - 1))
def test_a_question_scores_alone_as_in_a_batch(b, n, seed):
    rng = np.random.default_rng(seed)
    signals = rng.normal(size=(4, b, n)).astype(np.float32)
    weights = rng.normal(size=4).astype(np.float32)
    mask = rng.random((b, n)) < 0.7
    together = combine_cpu.combine(signals, weights, mask)
    for j in range(b):
        alone = combine_cpu.combine(np.ascontiguousarray(signals[:, j : j + 1]), weights,
                                  mask[j : j + 1])  # fmt: skip
        assert alone.tobytes() == together[j : j + 1].tobytes()
    ordered = np.random.default_rng(seed).permutation(n)
    moved = combine_cpu.combine(signals[:, :, ordered], weights, mask[:, ordered])
    assert_array_equal(moved, together[:, ordered])  # nor does a row's place matter


def test_one_mask_serves_all_questions(rng):
    signals = rng.normal(size=(2, 3, 8)).astype(np.float32)
    weights = np.ones(2, np.float32)
    mask = rng.random((1, 8)) < 0.5
    every = np.repeat(mask, 3, axis=0)
    wanted = combine_cpu.combine(signals, weights, every)
    assert_array_equal(combine_cpu.combine(signals, weights, mask), wanted)
    assert_allclose(combine_ref.combine(signals, weights, mask), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"signals": np.zeros((2, 5), np.float32)}, r"signals must have 3 dimension\(s\)"),
        ({"signals": np.zeros((2, 3, 5), np.int64).astype(object)}, "signals must be float32"),
        ({"weights": np.ones(3, np.float32)}, r"weights must have shape \(2,\), got \(3,\)"),
        ({"weights": np.ones((2, 1), np.float32)}, r"weights must have 1 dimension\(s\)"),
        ({"mask": np.ones((3, 4), np.bool_)}, "mask must have shape"),
        ({"mask": np.ones((2, 5), np.bool_)}, "mask must have shape"),
        ({"mask": np.ones((3, 5), np.float32)}, "mask must be bool"),
    ],
)
def test_bad_arguments_of_combine_are_named(changed, message):
    good = {
        "signals": np.zeros((2, 3, 5), np.float32),
        "weights": np.ones(2, np.float32),
        "mask": np.ones((3, 5), np.bool_),
    }
    with pytest.raises(InvalidInputError, match=message):
        combine_cpu.combine(**{**good, **changed})


@pytest.mark.parametrize(
    ("starts", "ends", "message"),
    [
        ([0, 2], [1], r"ends must have shape \(2,\), got \(1,\)"),
        ([-1], [1], "spans must be non-empty ranges of 4 columns, got starts -1"),
        ([0], [5], "spans must be non-empty ranges of 4 columns"),
        ([2], [2], "spans must be non-empty ranges of 4 columns"),
        ([3], [1], "spans must be non-empty ranges of 4 columns"),
    ],
)
def test_bad_arguments_of_span_max_are_named(starts, ends, message):
    with pytest.raises(InvalidInputError, match=message):
        span_max_cpu.span_max(np.zeros((1, 4), np.float32), np.array(starts), np.array(ends))
