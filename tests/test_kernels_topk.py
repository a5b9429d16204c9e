"""Selection, and the order it gives: ids are equal in every form but for near ties."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from zeromem.errors import InvalidInputError
from zeromem.index.chunks import Chunks


def cases(rng):
    for b, n in ((1, 1), (1, 40), (6, 300), (3, 0), (0, 5)):
        scores = rng.integers(-3, 4, size=(b, n)).astype(np.float32)  # ties everywhere
        if n > 9:
            scores[0, 2:7] = np.nan
            scores[-1, 5:20] = -np.inf
            scores[-1, 30] = np.inf
        mask = rng.random((b, n)) < 0.6
        for allowed in (None, mask, mask[0] if b else np.ones(n, bool), np.zeros(n, bool)):
            for k in (0, 1, 2, 7, n, n + 5):
                yield scores, allowed, k


def check_parity(run, oracle, rng):
    for scores, mask, k in cases(rng):
        rows, best = run("topk", scores, mask, k)
        wanted_rows, wanted = oracle("topk", scores, mask, k)
        assert rows.dtype == np.int32
        assert best.dtype == np.float32
        assert_array_equal(rows, wanted_rows)
        assert_array_equal(best, wanted)


def test_parity(kernel, oracle, rng):
    check_parity(kernel, oracle, rng)


def long_lines(rng, n):
    """Orders of n scores that are hard on one way of selecting or another."""
    values = (rng.normal(size=n) * 0.05).astype(np.float32)
    yield values
    yield np.sort(values)
    yield np.sort(values)[::-1].copy()
    yield np.full(n, -2, np.float32)
    yield np.where(values > 0.08, values, 0).astype(np.float32)  # a few matches, as words give
    yield np.where(values > 0, values, np.nan).astype(np.float32)
    yield np.where(values > 0, -0.0, 0.0).astype(np.float32)
    with np.errstate(over="ignore"):
        yield np.exp(700 * values).astype(np.float32)  # of all magnitudes, to infinity
    for period in (256, 800, 816):  # the best share one group of the first bound
        yield (np.arange(n) % period + np.arange(n) / n).astype(np.float32)


@pytest.mark.parametrize("n", [1023, 1024, 1040, 5003])
def test_long_lines(kernel, oracle, rng, n):
    for scores in long_lines(rng, n):
        for mask in (None, rng.random(n) < 0.5, rng.random(n) < 0.01):
            for k in (1, 50, 200):
                rows, best = kernel("topk", scores[None], mask, k)
                wanted_rows, wanted = oracle("topk", scores[None], mask, k)
                assert_array_equal(rows, wanted_rows)
                assert_array_equal(best, wanted)


def test_best_reads_no_further_than_its_line(rng):
    from zeromem.kernels.topk_cpu import best

    padded = np.full(2000, np.inf, np.float32)
    every = np.ones(2000, bool)
    for n in (1, 15, 16, 17, 1500):
        padded[:n] = rng.normal(size=n)
        for mask in (every[:n], every[:0]):
            rows, found = np.full(9, -7, np.int32), np.full(9, -7, np.float32)
            count = best(padded[:n], mask, rows, found)
            order = np.argsort(-padded[:n], kind="stable")[:9]
            assert count == len(order)
            assert_array_equal(rows[:count], order)
            assert_array_equal(found[:count], padded[order])
            assert (rows[count:] == -7).all()  # the rest is left as it was


@pytest.mark.parametrize("what", ["ties", "mask", "k", "nan"])
def test_parity_fails_when_the_kernel_is_perturbed(kernel, oracle, rng, what):
    def perturbed(operation, scores, mask, k):
        if what == "k" and k > 1:
            rows, best = kernel(operation, scores, mask, k - 1)
            return np.pad(rows, ((0, 0), (0, 1)), constant_values=-1), np.pad(
                best, ((0, 0), (0, 1))
            )
        if what == "mask":
            mask = None
        if what == "nan":
            scores = np.nan_to_num(scores, nan=1.0, posinf=np.inf, neginf=-np.inf)
        if what == "ties":
            mask = None if mask is None else mask[..., ::-1]
            rows, best = kernel(operation, scores[:, ::-1], mask, k)
            return np.where(rows < 0, rows, scores.shape[1] - 1 - rows).astype(np.int32), best
        return kernel(operation, scores, mask, k)

    with pytest.raises(AssertionError):
        check_parity(perturbed, oracle, rng)


@given(
    values=st.lists(
        st.sampled_from([-1.5, 0.0, -0.0, 2.0, float("nan"), float("inf")]), max_size=30
    ),
    k=st.integers(0, 40),
)
def test_selection_is_a_sorted_prefix(kernel, oracle, values, k):
    scores = np.array([values], np.float32).reshape(1, -1)
    rows, best = kernel("topk", scores, None, k)
    wanted_rows, wanted = oracle("topk", scores, None, k)
    assert_array_equal(rows, wanted_rows)
    assert_array_equal(best, wanted)


def test_bad_arguments_are_named(kernel):
    scores = np.zeros((2, 3), np.float32)
    with pytest.raises(InvalidInputError, match="k must be in .*, got -1"):
        kernel("topk", scores, None, -1)
    with pytest.raises(
        InvalidInputError, match=r"mask must have shape \(3,\) or \(2, 3\), got \(4,\)"
    ):
        kernel("topk", scores, np.ones(4, bool), 1)
    with pytest.raises(InvalidInputError, match="mask must be bool, got int64"):
        kernel("topk", scores, np.ones(3, np.int64), 1)


def exempted_share(rows, oracle_rows, exact):
    """Share of places whose ids differ, all of which must be near ties of the exact scores."""
    differ = rows != oracle_rows
    for j, place in zip(*np.nonzero(differ), strict=True):
        a, b = exact[j, rows[j, place]], exact[j, oracle_rows[j, place]]
        assert abs(a - b) <= 1e-5 * max(a, b), f"question {j}, place {place}: {a} is not {b}"
    return differ.mean()


def unit(rng, n, dim):
    rows = np.abs(rng.normal(size=(n, dim)))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def check_ranking(run, oracle, rng, record):
    vectors = unit(rng, 800, 48)
    vectors[300:310] = vectors[5]  # the same passage in ten contexts
    queries = unit(rng, 20, 48)
    vectors = Chunks.of(vectors.astype(np.float16))
    exact = oracle("dense", vectors, queries)
    oracle_rows, _ = oracle("topk", exact, None, 50)
    rows, _ = run("topk", run("dense", vectors, queries), None, 50)
    share = exempted_share(rows, oracle_rows, exact)
    record("exempted_share", float(share))
    print(f"near ties in another order: {share:.2%} of {rows.size} places")
    assert share <= 0.05


def test_same_ids_in_the_same_order(kernel, oracle, rng, record_property):
    check_ranking(kernel, oracle, rng, record_property)


def test_same_ids_fail_when_scores_are_perturbed(kernel, oracle, rng, record_property):
    def perturbed(operation, *arguments):
        result = kernel(operation, *arguments)
        return result if operation == "topk" else result.round(3)

    with pytest.raises(AssertionError):
        check_ranking(perturbed, oracle, rng, record_property)


def test_too_many_near_ties_fail(kernel, oracle, rng, record_property):
    # All vectors equal but for the seventh digit: any order is a near tie, most are exempted.
    def flat(operation, *arguments):
        if operation == "topk":
            return kernel(operation, *arguments)
        return 1 + rng.random((20, 800), "f4") * 1e-6

    def exact(operation, *arguments):
        if operation == "topk":
            return oracle(operation, *arguments)
        return 1 - np.arange(800) * 1e-9 * np.ones((20, 1))

    with pytest.raises(AssertionError, match=r"0\.05"):
        check_ranking(flat, exact, rng, record_property)
