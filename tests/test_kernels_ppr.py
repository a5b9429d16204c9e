"""PPR (eq. 10): every form against the oracle, and properties that need no oracle."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal

from zeromem.errors import InvalidInputError


def graph(rng, n, n_edges, *, hub=False, dangling=0):
    """PT in CSR of a random directed graph whose first ``dangling`` nodes have no way out."""
    source = rng.integers(0, n, n_edges)
    target = np.zeros(n_edges, int) if hub else rng.integers(0, n, n_edges)
    kept = source >= dangling
    A = sp.coo_matrix((np.ones(kept.sum()), (source[kept], target[kept])), shape=(n, n)).tocsr()
    degree = np.asarray(A.sum(axis=1)).ravel()
    P = sp.diags(1 / np.maximum(degree, 1)) @ A
    PT = P.T.tocsr()
    return (
        PT.indptr.astype(np.int64),
        PT.indices.astype(np.int32),
        PT.data.astype(np.float32),
        degree == 0,
    )


def resets(rng, n, b, n_seeds=5):
    reset = np.zeros((n, b), np.float32)
    for j in range(b):
        reset[rng.integers(0, n, n_seeds), j] = rng.random(n_seeds) + 0.1
    return reset / reset.sum(axis=0)


def cases(rng):
    for n, n_edges, b, options in (
        (1, 0, 1, {}),
        (1, 3, 2, {}),
        (2, 1, 3, {}),
        (60, 200, 1, {"dangling": 9}),
        (60, 200, 5, {"dangling": 60}),
        (150, 900, 33, {"dangling": 20}),
        (150, 900, 70, {}),
        (400, 3000, 17, {"hub": True}),
    ):
        yield graph(rng, n, n_edges, **options), resets(rng, n, b)
    empty = resets(rng, 40, 3)
    empty[:, 1] = 0  # a question without any seed, between others
    yield graph(rng, 40, 100, dangling=3), empty


def check_parity(run, oracle, rng):
    for matrix, reset in cases(rng):
        found = run("ppr", *matrix, reset, 0.6, 25)
        wanted = oracle("ppr", *matrix, reset, 0.6, 25)
        assert found.scores.dtype == np.float32
        assert found.n_iter == 25
        error = np.abs(found.scores - wanted.scores).sum(axis=0)
        assert (error <= 1e-5 * wanted.scores.sum(axis=0)).all()
        assert found.residual == pytest.approx(wanted.residual, abs=1e-5)


def test_parity(kernel, oracle, rng):
    check_parity(kernel, oracle, rng)


@pytest.mark.parametrize("what", ["damping", "dangling", "iterations", "weights", "transpose"])
def test_parity_fails_when_the_kernel_is_perturbed(kernel, oracle, rng, what):
    def perturbed(operation, indptr, indices, data, dangling, reset, damping, n_iter):
        if what == "damping":
            damping += 1e-4
        elif what == "dangling":
            dangling = np.zeros_like(dangling)
        elif what == "iterations":
            result = kernel(operation, indptr, indices, data, dangling, reset, damping, 12)
            return result._replace(n_iter=n_iter)
        elif what == "weights":
            data = data * np.float32(1.0003)
        else:
            n = len(indptr) - 1
            other = sp.csr_matrix((data, indices, indptr), shape=(n, n)).T.tocsr()
            indptr, indices, data = other.indptr, other.indices, other.data
        return kernel(operation, indptr, indices, data, dangling, reset, damping, n_iter)

    with pytest.raises(AssertionError):
        check_parity(perturbed, oracle, rng)


def test_mass_is_kept_and_empty_resets_stay_empty(kernel, rng):
    reset = resets(rng, 80, 6)
    reset[:, 2] = 0
    scores = kernel("ppr", *graph(rng, 80, 150, dangling=30), reset, 0.85, 40).scores
    assert scores.sum(axis=0) == pytest.approx([1, 1, 0, 1, 1, 1], abs=1e-5)
    assert not scores[:, 2].any()
    assert (scores >= 0).all()


def test_residual_reports_convergence(kernel, rng):
    matrix, reset = graph(rng, 80, 400), resets(rng, 80, 3)
    early = kernel("ppr", *matrix, reset, 0.6, 2).residual
    late = kernel("ppr", *matrix, reset, 0.6, 40).residual
    assert early > 1e-3
    assert late < 1e-6


@pytest.mark.parametrize("b", [2, 7, 8, 16, 17, 32, 33, 64, 65, 72, 100])
def test_a_column_alone_has_the_bits_it_has_in_a_batch(compiled, rng, b):
    matrix = graph(rng, 200, 900, dangling=11)
    reset = resets(rng, 200, b)
    together = compiled("ppr", *matrix, reset, 0.6, 20).scores
    for j in {0, b // 2, b - 1}:
        alone = compiled("ppr", *matrix, reset[:, j : j + 1], 0.6, 20).scores
        assert_array_equal(alone[:, 0], together[:, j])


def test_a_pack_of_memories_scores_as_each_alone(kernel, rng):
    sizes = (30, 0, 1, 50)  # the second memory is empty
    blocks = [graph(rng, n, 4 * n, dangling=n // 10) if n else None for n in sizes]
    matrices = [
        sp.csr_matrix((b[2], b[1], b[0]), shape=(n, n)) if b else sp.csr_matrix((0, 0))
        for b, n in zip(blocks, sizes, strict=True)
    ]
    packed = sp.block_diag([m for m in matrices if m.shape[0]], format="csr")
    dangling = np.concatenate([b[3] for b in blocks if b])
    starts = np.cumsum([0, *sizes])
    # Each memory asks its own question, so its columns are zero elsewhere.
    reset = np.zeros((starts[-1], len(sizes)), np.float32)
    for j, n in enumerate(sizes):
        if n:
            reset[starts[j] : starts[j + 1], j] = resets(rng, n, 1)[:, 0]
    parts = (packed.indptr.astype(np.int64), packed.indices, packed.data.astype(np.float32))
    scores = kernel("ppr", *parts, dangling, reset, 0.6, 30).scores
    for j, n in enumerate(sizes):
        own = slice(starts[j], starts[j + 1])
        outside = np.delete(scores[:, j], np.arange(own.start, own.stop))
        assert not outside.any()
        if n:
            alone = kernel("ppr", *blocks[j], reset[own, j : j + 1], 0.6, 30).scores
            np.testing.assert_allclose(scores[own, j], alone[:, 0], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(("n", "b"), [(0, 0), (0, 3), (4, 0)])
def test_empty_memory_or_no_question(kernel, n, b):
    matrix = (np.zeros(n + 1, np.int64), np.empty(0, np.int32), np.empty(0, np.float32))
    result = kernel("ppr", *matrix, np.ones(n, bool), np.zeros((n, b), np.float32), 0.6, 10)
    assert result.scores.shape == (n, b)
    assert result.residual == 0


@pytest.mark.parametrize(
    ("position", "value", "message"),
    [
        (0, np.array([0, 5, 2], np.int64), "PT_indptr must not decrease"),
        (0, np.array([0, 1, 5], np.int64), "PT_indptr must run .* = 2, got 0 to 5"),
        (1, np.array([0, 7], np.int32), r"PT_indices must be in \[0, 2\), got 7"),
        (1, np.array([0, -1], np.int32), r"PT_indices must be in \[0, 2\), got -1"),
        (1, np.array([0.0, 1.0]), "indices must be int32, got float64"),
        (2, np.ones(1, np.float32), r"PT_data must have shape \(2,\), got \(1,\)"),
        (3, np.zeros(3, bool), r"dangling must have shape \(2,\), got \(3,\)"),
        (4, np.array([[0.5], [0.7]], np.float32), "got sum 1.2 in column 0"),
        (4, np.array([[1.5], [-0.5]], np.float32), "non-negative"),
        (4, np.array([[np.nan], [1]], np.float32), "got sum nan in column 0"),
        (5, 1.0, r"damping must be in \[0, 1\), got 1.0; 0.6 is the paper's value"),
        (6, 0, "n_iter must be in .*, got 0"),
    ],
)
def test_bad_arguments_are_named(kernel, position, value, message):
    arguments = [
        np.array([0, 1, 2], np.int64),
        np.array([1, 0], np.int32),
        np.ones(2, np.float32),
        np.zeros(2, bool),
        np.array([[1], [0]], np.float32),
        0.6,
        5,
    ]
    arguments[position] = value
    with pytest.raises(InvalidInputError, match=message):
        kernel("ppr", *arguments)
