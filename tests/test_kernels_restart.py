"""The reset vector of eq. 10: the compiled form against the oracle."""

from functools import cache

import kernel_support as ks
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from zeromem.kernels import restart_ref

NAMES = ("prior_rows", "priors", "activation", "entity_share")


def arguments(rng, n, n_entities, b):
    """Questions with priors of some, one or no turns, and some, one or no active entities."""
    p = min(n, 5)
    rows, priors = np.full((b, p), -1, np.int32), np.zeros((b, p))
    activation = np.zeros((b, n_entities), np.float32)
    for j in range(b):
        k = (p, 1, 0)[j % 3]
        rows[j, :k] = rng.choice(n, k, replace=False)
        priors[j, :k] = rng.dirichlet(np.ones(k)) if k else 0
        if j % 4 == 3:
            priors[j] = 0  # the turns are there, but all alike
        active = rng.random(n_entities) < (0.5, 0.1, 0.0, 1.0, 0.5)[j % 5]
        activation[j, active] = rng.uniform(0.1, 3.0, active.sum())
    return [rows, priors, activation]


@cache
def cases():
    rng = np.random.default_rng(6)
    found = []
    for n, n_entities in ((1, 1), (1, 0), (30, 12), (5, 200)):
        for share in (0.2, 0.0, 1.0, 0.5):
            given = [*arguments(rng, n, n_entities, 20), share]
            found.append((given, n, restart_ref.restart(*given, n)))
    return found


def check_parity(run, perturb=lambda given: given):
    for given, n, wanted in cases():
        found = run("restart", *perturb(list(given)), n)
        assert found.dtype == np.float32
        assert_allclose(found, wanted, rtol=ks.RTOL, atol=0)


def test_parity(compiled):
    check_parity(compiled)


@pytest.mark.parametrize("name", NAMES)
def test_parity_fails_when_an_argument_is_perturbed(compiled, name):
    def perturb(given):
        at = NAMES.index(name)
        given[at] = ks.perturbed(given[at])
        return given

    with pytest.raises(AssertionError):
        check_parity(compiled, perturb)


def test_columns_sum_to_1_or_to_0_without_any_prior(compiled, oracle):
    for run in (compiled, oracle):
        for given, n, _ in cases():
            _rows, priors, activation, _share = given
            total = run("restart", *given, n).sum(axis=0, dtype=np.float64)
            any_prior = priors.any(axis=1) | activation.any(axis=1)
            assert_allclose(total, any_prior, rtol=1e-5)
    assert 0 < any_prior.sum() < len(any_prior)


@pytest.mark.parametrize(
    ("priors", "activation", "wanted"),
    [
        ([0.75, 0.25], [3.0, 1.0], [0.6, 0.2, 0.0, 0.15, 0.05]),
        ([0.75, 0.25], [0.0, 0.0], [0.75, 0.25, 0.0, 0.0, 0.0]),
        ([0.0, 0.0], [3.0, 1.0], [0.0, 0.0, 0.0, 0.75, 0.25]),
        ([0.0, 0.0], [0.0, 0.0], [0.0, 0.0, 0.0, 0.0, 0.0]),
    ],
)
def test_by_hand(compiled, oracle, priors, activation, wanted):
    given = [np.array([[0, 1]], np.int32), np.array([priors]), np.array([activation], np.float32)]
    for run in (compiled, oracle):
        assert_allclose(run("restart", *given, 0.2, 3)[:, 0], wanted, rtol=1e-6)


def test_a_question_alone_has_the_bits_it_has_in_a_batch(compiled, rng):
    given = arguments(rng, 40, 15, 33)
    together = compiled("restart", *given, 0.2, 40)
    for j in range(33):
        alone = compiled("restart", *(a[j : j + 1] for a in given), 0.2, 40)
        assert_array_equal(alone[:, 0], together[:, j])
