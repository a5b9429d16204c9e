"""Propagation (eq. 9): every form against the oracle."""

import itertools
from functools import cache

import kernel_support as ks
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from zeromem.errors import InvalidInputError
from zeromem.index.chunks import CHUNK, Chunks
from zeromem.kernels import dense_cpu, propagate_ref

NAMES = (
    "sentence_indptr", "sentence_entity", "entity_sentences", "vectors", "inverse_norm", "queries",
    "dots", "seed_indptr", "seed_entity", "seed_value", "n_entities", "n_steps", "threshold",
    "top_sentences",
)  # fmt: skip
SETTINGS = ((0, 0, 0), (1, 0, 0), (3, 0, 0), (2, 0.3, 0), (2, 0, 1), (3, 0.05, 3), (1, 0, 500))


def graph(rng, n_sentences, n_entities, density, *, n_sealed=None, few_values=True):
    """Sentences and entities; few distinct similarities, so that ties are the rule."""
    names = [np.flatnonzero(rng.random(n_entities) < density).tolist() for _ in range(n_sentences)]
    indptr, entity = ks.csr(names)
    n_sealed = n_sentences // 2 if n_sealed is None else n_sealed
    lists = ks.lists(names, n_entities, n_sealed=n_sealed)
    vectors = rng.choice([-0.5, 0.0, 0.25, 0.5], size=(n_sentences, 4))
    if few_values:
        vectors[:, 1:] = 0
    return [indptr, entity, lists.kernel_args, Chunks.of(vectors.astype(np.float16)),
            rng.choice([0.5, 1.0], n_sentences).astype(np.float32)]  # fmt: skip


LEFT_OUT = np.zeros((1, 0), np.float32)  # the inner products that vectors give


def products(memory, queries):
    """All inner products."""
    return (queries @ memory[3].array().astype(np.float32).T).astype(np.float32)


def seeds(rng, n_entities, b, share=0.3):
    rows = [np.flatnonzero(rng.random(n_entities) < share) for _ in range(b)]
    indptr, entity = ks.csr(rows)
    return [indptr, entity, rng.uniform(0.1, 1.0, len(entity)).astype(np.float32), n_entities]


@cache
def cases():
    rng = np.random.default_rng(2)
    found = []
    for n_sentences, n_entities, b in ((1, 1, 1), (30, 12, 1), (80, 40, 7), (5, 60, 3), (90, 2, 4)):
        for few in (True, False):
            density = 0.15 if n_entities > 2 else 0.7
            memory = graph(rng, n_sentences, n_entities, density, few_values=few)
            queries = rng.uniform(0.2, 1.0, (b, 4)).astype(np.float32)
            dots = LEFT_OUT if few else products(memory, queries)
            asked = [queries, dots, *seeds(rng, n_entities, b)]
            found += [[*memory, *asked, *setting] for setting in SETTINGS]
    memory = graph(rng, 20, 10, 0.3)
    queries = np.ones((3, 4), np.float32)
    found.append([*memory, queries, LEFT_OUT, *seeds(rng, 10, 3, share=0.0), 2, 0.0, 2])
    found.append([*memory, -queries, LEFT_OUT, *seeds(rng, 10, 3), 2, 0.0, 0])
    memory = graph(rng, CHUNK + 50, 9, 0.3, n_sealed=CHUNK - 7, few_values=False)
    found.append([*memory, queries, LEFT_OUT, *seeds(rng, 9, 3), 2, 0.0, 0])  # vectors in two parts
    return [(arguments, propagate_ref.propagate(*arguments)) for arguments in found]


def check_parity(run, perturb=lambda arguments: arguments):
    for arguments, wanted in cases():
        found = run("propagate", *perturb(list(arguments)))
        assert found.dtype == np.float32
        assert_allclose(found, wanted, rtol=ks.RTOL, atol=1e-9)


def test_parity(kernel):
    check_parity(kernel)


def turned_round(arguments):
    """The same graph with its sentences in reverse order: the later of equal ones is chosen."""
    indptr, entity, _, vectors, inverse_norm = arguments[:5]
    names = [entity[a:z].tolist() for a, z in itertools.pairwise(indptr)][::-1]
    lists = ks.lists(names, arguments[10], n_sealed=len(names) // 2)
    backwards = Chunks.of(np.ascontiguousarray(vectors.array()[::-1]))
    dots = np.ascontiguousarray(arguments[6][:, ::-1])
    rest = [inverse_norm[::-1].copy(), arguments[5], dots, *arguments[7:]]
    return [*ks.csr(names), lists.kernel_args, backwards, *rest]


def perturb_argument(name):
    def perturb(arguments):
        at = NAMES.index(name)
        value = arguments[at]
        if name == "dots":
            value = np.roll(value, 1, axis=1) if value.size else value
        elif name == "vectors":
            value = Chunks.of(np.ascontiguousarray(value.array()[::-1]))
        elif name == "entity_sentences":  # the tail's chains begin one entry earlier
            *sealed, head, older, tail, counts = value
            value = *sealed, np.array([older[h] if h >= 0 else h for h in head], np.int32), *(
                older, tail, counts)  # fmt: skip
        elif name in ("sentence_indptr", "seed_indptr"):
            value = ks.spread_evenly(value)
        elif name == "seed_entity":  # once per question still
            value = (value + 1) % arguments[10]
        elif name == "n_steps":
            value = max(0, value - 1)
        elif name in ("threshold", "top_sentences"):
            value = type(value)(0)
        else:
            value = ks.perturbed(value)
        arguments[at] = value
        return arguments

    return perturb


@pytest.mark.parametrize("name", [n for n in NAMES if n != "n_entities"])
def test_parity_fails_when_an_argument_is_perturbed(kernel, name):
    with pytest.raises(AssertionError):
        check_parity(kernel, perturb_argument(name))


def test_parity_fails_when_ties_go_to_the_later_sentence(kernel):
    with pytest.raises(AssertionError):
        check_parity(kernel, turned_round)


def by_hand():
    """Sentence 0 holds entities 0 and 1, sentence 1 entities 1 and 2; similarities 0.5, 0.25."""
    names = [[0, 1], [1, 2]]
    vectors = Chunks.of(np.array([[0.5], [0.25]], np.float16))
    lists = ks.lists(names, 3, n_sealed=1).kernel_args
    memory = [*ks.csr(names), lists, vectors, np.ones(2, np.float32), np.ones((1, 1), np.float32)]
    memory.append(LEFT_OUT)
    seed = [np.array([0, 1]), np.zeros(1, np.int32), np.array([0.8], np.float32), 3]
    return [*memory, *seed]


def test_by_hand(kernel, oracle):
    for run in (kernel, oracle):
        assert_allclose(run("propagate", *by_hand(), 1, 0.0, 0), [[0.8 + 0.4, 0.4, 0]], rtol=1e-6)
        # Step 2: entity 0 gives 0.2 to 0 and 1; entity 1 gives 0.2 to 0 and 1, and 0.1 to 1 and 2.
        two = run("propagate", *by_hand(), 2, 0.0, 0)
        assert_allclose(two, [[1.2 + 0.4, 0.4 + 0.5, 0.1]], rtol=1e-6)


def test_a_question_alone_has_the_bits_it_has_in_a_batch(compiled, rng):
    memory = graph(rng, 70, 30, 0.2, few_values=False)
    queries = rng.normal(size=(33, 4)).astype(np.float32)
    indptr, entity, value, n_entities = seeds(rng, 30, 33)
    setting = (3, 0.1, 4)
    dots = dense_cpu.scores(memory[3], queries)
    seed = indptr, entity, value, n_entities
    together = compiled("propagate", *memory, queries, dots, *seed, *setting)
    assert together.any(axis=1).sum() > 20
    for j in range(33):
        own = slice(indptr[j], indptr[j + 1])
        seed = (np.array([0, own.stop - own.start]), entity[own], value[own], n_entities)
        alone = compiled("propagate", *memory, queries[j : j + 1], LEFT_OUT, *seed, *setting)
        assert_array_equal(alone[0], together[j])


def test_it_does_not_matter_what_of_the_lists_is_sealed(compiled):
    found = []
    for n_sealed in (0, 13, 60):
        rng = np.random.default_rng(3)
        memory = graph(rng, 60, 20, 0.2, n_sealed=n_sealed, few_values=False)
        asked = [rng.normal(size=(4, 4)).astype(np.float32), LEFT_OUT, *seeds(rng, 20, 4)]
        found.append(compiled("propagate", *memory, *asked, 3, 0.0, 3))
    assert_array_equal(found[1], found[0])
    assert_array_equal(found[2], found[0])


@pytest.mark.parametrize(("n_sentences", "n_entities"), [(0, 3), (3, 0), (0, 0)])
def test_empty_graph(kernel, oracle, rng, n_sentences, n_entities):
    memory = graph(rng, n_sentences, n_entities, 0.5)
    asked = [np.ones((2, 4), np.float32), LEFT_OUT, *seeds(rng, n_entities, 2, share=1.0)]
    for run in (kernel, oracle):
        found = run("propagate", *memory, *asked, 2, 0.0, 1)
        assert_array_equal(found, asked[4].reshape(2, n_entities).astype(found.dtype))


def test_a_similarity_that_is_not_a_number_carries_nothing(kernel, oracle, rng):
    memory = graph(rng, 20, 8, 0.4, few_values=False)
    asked = [np.ones((1, 4), np.float32), LEFT_OUT, *seeds(rng, 8, 1, share=0.6)]
    silent, broken = (np.array(memory[4]) for _ in range(2))
    silent[3], broken[3] = 0, np.nan
    for run in (kernel, oracle):
        for top in (0, 2):
            assert_array_equal(
                run("propagate", *memory[:4], broken, *asked, 2, 0.0, top),
                run("propagate", *memory[:4], silent, *asked, 2, 0.0, top),
            )


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("sentence_indptr", np.array([0, 2]), r"sentence_indptr must have shape \(3,\)"),
        ("inverse_norm", np.ones(3, np.float32), r"inverse_norm must have shape \(2,\)"),
        ("queries", np.ones((1, 2), np.float32), r"queries must have shape \(1, 1\)"),
        ("dots", np.ones((1, 3), np.float32), "dots must"),
        ("seed_entity", np.array([3], np.int32), r"seed_indices must be in \[0, 3\), got 3"),
        ("seed_value", np.zeros(1, np.float32), "seed_value must be positive, got 0.0"),
        ("n_entities", 4, "keys must have shape"),
        ("n_steps", -1, "n_steps must be in .*, got -1"),
        ("threshold", float("nan"), "threshold must be in .*, got nan"),
        ("top_sentences", -2, "top_sentences must be in .*, got -2"),
    ],
)
def test_bad_arguments_are_named(kernel, name, value, message):
    arguments = [*by_hand(), 1, 0.0, 0]
    arguments[NAMES.index(name)] = value
    with pytest.raises(InvalidInputError, match=message):
        kernel("propagate", *arguments)
