"""Inner products and pooled vectors: every form against the oracle."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from zeromem.errors import InvalidInputError


def unit(rng, n, dim):
    rows = rng.normal(size=(n, dim))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def dense_cases(rng):
    for n, b, dim in ((1, 1, 1), (33, 1, 384), (100, 5, 100), (65, 3, 7), (31, 40, 384)):
        yield unit(rng, n, dim), unit(rng, b, dim)


def check_dense(run, oracle, rng):
    for vectors, queries in dense_cases(rng):
        found = run("dense", vectors, queries)
        assert found.dtype == np.float32
        assert_allclose(found, oracle("dense", vectors, queries), rtol=0, atol=2e-6)


def test_dense_parity(kernel, oracle, rng):
    check_dense(kernel, oracle, rng)


@pytest.mark.parametrize("what", ["scale", "last element", "order of queries"])
def test_dense_parity_fails_when_the_kernel_is_perturbed(kernel, oracle, rng, what):
    def perturbed(operation, vectors, queries):
        if what == "scale":
            vectors = vectors * np.float32(1.0001)
        elif what == "last element":
            vectors = vectors.copy()
            vectors[:, -1] = 0
        else:
            queries = queries[::-1]
        return kernel(operation, vectors, queries)

    with pytest.raises(AssertionError):
        check_dense(perturbed, oracle, rng)


@pytest.mark.parametrize("dim", [1, 15, 384, 1000, 1024])
def test_dense_cell_depends_on_its_vector_and_query_alone(compiled, rng, dim):
    vectors, queries = unit(rng, 101, dim), unit(rng, 37, dim)
    together = compiled("dense", vectors, queries)
    for j in (0, 17, 36):
        assert_array_equal(compiled("dense", vectors, queries[j : j + 1])[0], together[j])
    # In another segment, at another alignment, in a read-only array.
    part = vectors[13:97].copy()
    part.flags.writeable = False
    assert_array_equal(compiled("dense", part, queries), together[:, 13:97])
    shifted = np.empty(vectors.size + 1, np.float32)[1:].reshape(vectors.shape)
    shifted[:] = vectors
    assert_array_equal(compiled("dense", shifted, queries), together)


@pytest.mark.parametrize(("n", "b", "dim"), [(0, 3, 8), (4, 0, 8), (4, 3, 0), (0, 0, 0)])
def test_dense_of_nothing(kernel, n, b, dim):
    found = kernel("dense", np.ones((n, dim), np.float32), np.ones((b, dim), np.float32))
    assert found.shape == (b, n)
    assert not found.any()


def test_dense_takes_half_precision_and_memory_maps(kernel, rng, tmp_path):
    vectors, queries = unit(rng, 20, 16), unit(rng, 2, 16)
    half = vectors.astype(np.float16)
    expected = kernel("dense", half.astype(np.float32), queries)
    assert_array_equal(kernel("dense", half, queries), expected)
    np.save(tmp_path / "v.npy", vectors)
    mapped = np.load(tmp_path / "v.npy", mmap_mode="r")
    assert_array_equal(kernel("dense", mapped, queries), kernel("dense", vectors, queries))
    at_odd_byte = np.frombuffer(b"x" + vectors.tobytes(), np.uint8)[1:].view(np.float32)
    assert not at_odd_byte.flags.aligned
    unaligned = at_odd_byte.reshape(vectors.shape)
    assert_array_equal(kernel("dense", unaligned, queries), kernel("dense", vectors, queries))


def test_dense_refuses_what_does_not_fit(kernel):
    ones = np.ones((2, 4), np.float32)
    with pytest.raises(InvalidInputError, match=r"queries must have shape \(2, 4\), got \(2, 3\)"):
        kernel("dense", ones, ones[:, :3])
    with pytest.raises(InvalidInputError, match="vectors must have 2 dimension"):
        kernel("dense", ones[0], ones)
    with pytest.raises(InvalidInputError, match="queries must be float32, got complex128"):
        kernel("dense", ones, ones.astype(complex))


def pool_cases(rng):
    for n, m, dim in ((1, 1, 4), (40, 25, 33), (12, 60, 8)):
        starts = rng.integers(0, n + 1, m)
        stops = np.minimum(starts + rng.integers(0, 9, m), n)
        weights = rng.integers(0, 30, n).astype(np.float32)
        vectors = rng.normal(size=(n, dim)).astype(np.float32)
        vectors[rng.random(n) < 0.2] = 0
        yield vectors, weights, np.stack([starts, stops], 1).astype(np.int32)


def check_pool(run, oracle, rng):
    for arguments in pool_cases(rng):
        found = run("pool", *arguments)
        assert found.dtype == np.float32
        assert_allclose(found, oracle("pool", *arguments), rtol=0, atol=2e-6)


def test_pool_parity(kernel, oracle, rng):
    check_pool(kernel, oracle, rng)


@pytest.mark.parametrize("what", ["weights", "stop", "start"])
def test_pool_parity_fails_when_the_kernel_is_perturbed(kernel, oracle, rng, what):
    def perturbed(operation, vectors, weights, spans):
        if what == "weights":
            weights = np.ones_like(weights)
        else:
            change = [0, -1] if what == "stop" else [1, 0]
            longer = spans[:, 1] > spans[:, 0]
            spans = np.where(longer[:, None], spans + np.array(change, np.int32), spans)
        return kernel(operation, vectors, weights, spans)

    with pytest.raises(AssertionError):
        check_pool(perturbed, oracle, rng)


def test_pool_norms(kernel):
    vectors = np.array([[3, 0], [0, 4], [0, 0]], np.float32)
    weights = np.array([4, 3, 5], np.float32)
    spans = np.array([[0, 2], [2, 3], [1, 1], [1, 3]], np.int32)
    root = 1 / np.sqrt(2)
    expected = [[root, root], [0, 0], [0, 0], [0, 1]]
    assert_allclose(kernel("pool", vectors, weights, spans), expected, atol=1e-7)


@pytest.mark.parametrize(("n", "m"), [(0, 0), (0, 2), (3, 0)])
def test_pool_of_nothing(kernel, n, m):
    found = kernel("pool", np.ones((n, 5), "f4"), np.ones(n, "f4"), np.zeros((m, 2), np.int32))
    assert found.shape == (m, 5)
    assert not found.any()


@pytest.mark.parametrize("span", [(-1, 1), (2, 1), (0, 4)])
def test_pool_refuses_spans_outside_the_rows(kernel, span):
    spans = np.array([(0, 1), span], np.int32)
    message = rf"spans must be .* within \[0, 3\], got \({span[0]}, {span[1]}\) in row 1"
    with pytest.raises(InvalidInputError, match=message):
        kernel("pool", np.ones((3, 2), "f4"), np.ones(3, "f4"), spans)
