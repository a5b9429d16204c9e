"""Propagation (eq. 9): every form against the oracle."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

from zeromem.errors import InvalidInputError


def incidence(rng, n_sentences, n_entities, density):
    S = sp.csr_matrix(rng.random((n_sentences, n_entities)) < density)
    E = S.T.tocsr()
    return (
        S.indptr.astype(np.int64),
        S.indices.astype(np.int32),
        E.indptr.astype(np.int64),
        E.indices.astype(np.int32),
    )


def cases(rng):
    for n_sentences, n_entities, b in ((1, 1, 1), (30, 12, 1), (80, 40, 7), (5, 60, 3), (90, 2, 4)):
        matrices = incidence(rng, n_sentences, n_entities, 0.15 if n_entities > 2 else 0.7)
        seeds = (rng.random((n_entities, b)) * (rng.random((n_entities, b)) < 0.2)).astype("f4")
        # Few distinct values, some negative: ties for the top sentences are the rule.
        sims = rng.choice([-0.5, 0.0, 0.25, 0.5, 0.9], size=(n_sentences, b)).astype("f4")
        for n_steps, threshold, top in (
            (0, 0, 0),
            (1, 0, 0),
            (3, 0, 0),
            (2, 0.3, 0),
            (2, 0, 1),
            (3, 0.05, 3),
            (1, 0, 500),
        ):
            yield *matrices, seeds, sims, n_steps, threshold, top
    matrices = incidence(rng, 20, 10, 0.3)
    yield *matrices, np.zeros((10, 3), "f4"), rng.random((20, 3), "f4"), 2, 0.0, 2  # no seeds
    yield *matrices, rng.random((10, 3), "f4"), np.full((20, 3), -1, "f4"), 2, 0.0, 0


def check_parity(run, oracle, rng):
    for arguments in cases(rng):
        found, wanted = run("propagate", *arguments), oracle("propagate", *arguments)
        assert found.dtype == np.float32
        assert_allclose(found, wanted, rtol=1e-5, atol=1e-9)


def test_parity(kernel, oracle, rng):
    check_parity(kernel, oracle, rng)


@pytest.mark.parametrize("what", ["steps", "threshold", "top", "negative", "ties"])
def test_parity_fails_when_the_kernel_is_perturbed(kernel, oracle, rng, what):
    def perturbed(operation, *arguments):
        *matrices, seeds, sims, n_steps, threshold, top = arguments
        if what == "steps":
            n_steps = max(0, n_steps - 1)
        elif what == "threshold":
            threshold = 0.0
        elif what == "top":
            top = 0
        elif what == "negative":
            sims = np.abs(sims)
        else:  # the later of equal sentences: turn all sentence rows round
            n = len(sims)
            S = sp.csr_matrix(
                (np.ones(len(matrices[1])), matrices[1], matrices[0]), shape=(n, len(seeds))
            )[::-1].tocsr()
            E = S.T.tocsr()
            matrices = [S.indptr, S.indices, E.indptr, E.indices]
            sims = sims[::-1]
        return kernel(operation, *matrices, seeds, sims, n_steps, threshold, top)

    with pytest.raises(AssertionError):
        check_parity(perturbed, oracle, rng)


def test_by_hand(kernel):
    # Sentence 0 holds entities 0 and 1, sentence 1 entities 1 and 2.
    S = (np.array([0, 2, 4]), np.array([0, 1, 1, 2], np.int32))
    E = (np.array([0, 1, 3, 4]), np.array([0, 0, 1, 1], np.int32))
    seeds = np.array([[0.8], [0], [0]], np.float32)
    sims = np.array([[0.5], [0.25]], np.float32)
    one = kernel("propagate", *S, *E, seeds, sims, 1, 0.0, 0)
    assert_allclose(one[:, 0], [0.8 + 0.4, 0.4, 0], rtol=1e-6)
    two = kernel("propagate", *S, *E, seeds, sims, 2, 0.0, 0)
    # Step 2: entity 0 gives 0.2 to 0 and 1; entity 1 gives 0.2 to 0 and 1, and 0.1 to 1 and 2.
    assert_allclose(two[:, 0], [1.2 + 0.4, 0.4 + 0.5, 0.1], rtol=1e-6)


def test_a_column_alone_has_the_bits_it_has_in_a_batch(compiled, rng):
    matrices = incidence(rng, 70, 30, 0.2)
    seeds, sims = rng.random((30, 9), "f4"), rng.normal(size=(70, 9)).astype("f4")
    together = compiled("propagate", *matrices, seeds, sims, 3, 0.1, 4)
    for j in range(9):
        column = slice(j, j + 1)
        alone = compiled("propagate", *matrices, seeds[:, column], sims[:, column], 3, 0.1, 4)
        assert_array_equal(alone[:, 0], together[:, j])


@pytest.mark.parametrize(("n_sentences", "n_entities", "b"), [(0, 0, 2), (0, 3, 2), (3, 0, 1)])
def test_empty_graph(kernel, n_sentences, n_entities, b):
    matrices = incidence(np.random.default_rng(0), n_sentences, n_entities, 0.5)
    seeds = np.ones((n_entities, b), np.float32)
    sims = np.ones((n_sentences, b), np.float32)
    assert_array_equal(kernel("propagate", *matrices, seeds, sims, 2, 0.0, 1), seeds)


def test_a_similarity_that_is_not_a_number_carries_nothing(kernel, rng):
    matrices = incidence(rng, 20, 8, 0.4)
    seeds, sims = rng.random((8, 1), "f4"), rng.random((20, 1), "f4")
    silent, broken = sims.copy(), sims.copy()
    silent[3], broken[3] = 0, np.nan
    for top in (0, 2):
        assert_array_equal(
            kernel("propagate", *matrices, seeds, broken, 2, 0.0, top),
            kernel("propagate", *matrices, seeds, silent, 2, 0.0, top),
        )


@pytest.mark.parametrize(
    ("position", "value", "message"),
    [
        (1, np.array([0, 9], np.int32), r"S_indices must be in \[0, 2\), got 9"),
        (2, np.array([0, 1, 1], np.int64), "E_indptr must run from 0 to len"),
        (5, np.ones((2, 3), np.float32), r"sims must have shape \(2, 1\), got \(2, 3\)"),
        (6, -1, "n_steps must be in .*, got -1"),
        (7, float("nan"), "threshold must be in .*, got nan"),
        (8, -2, "top_sentences must be in .*, got -2"),
    ],
)
def test_bad_arguments_are_named(kernel, position, value, message):
    indptr, indices = np.array([0, 1, 2], np.int64), np.array([0, 1], np.int32)
    ones = np.ones((2, 1), np.float32)
    arguments = [indptr, indices, indptr, indices, ones, ones, 1, 0.0, 0]
    arguments[position] = value
    with pytest.raises(InvalidInputError, match=message):
        kernel("propagate", *arguments)
