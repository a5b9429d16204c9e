"""BM25: every form against the oracle, and the oracle against bm25s."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

from zeromem.errors import InvalidInputError


def corpus(rng, n, n_terms):
    counts = rng.poisson(0.15, size=(n, n_terms))
    if n > 2:
        counts[rng.integers(0, n)] = 0  # a text of stop words only
    return counts


def index(counts):
    n = len(counts)
    postings = sp.csr_matrix(counts.T)
    frequency = (counts > 0).sum(axis=0)
    idf = np.log(1 + (n - frequency + 0.5) / (frequency + 0.5))
    return (
        postings.indptr.astype(np.int64),
        postings.indices.astype(np.int32),
        postings.data.astype(np.float32),
        counts.sum(axis=1).astype(np.float32),
        idf.astype(np.float32),
    )


def questions(rng, n_terms, lengths):
    terms = [rng.integers(0, n_terms, length) for length in lengths]  # repeats included
    indptr = np.cumsum([0, *lengths]).astype(np.int64)
    flat = np.concatenate(terms).astype(np.int32) if lengths else np.empty(0, np.int32)
    return indptr, flat, rng.choice([1.0, 2.0, 0.5], len(flat)).astype(np.float32)


def cases(rng):
    for n, n_terms, lengths in (
        (1, 3, (2,)),
        (60, 30, (1, 0, 7, 40)),
        (200, 80, (5,) * 12),
        (7, 5, ()),
    ):
        counts = corpus(rng, n, n_terms)
        mean = max(counts.sum(axis=1).mean(), 0.1)
        for k1, b in ((1.5, 0.75), (0.9, 0.0), (2.0, 1.0), (0.0, 0.5)):
            yield *index(counts), *questions(rng, n_terms, lengths), k1, b, mean


def check_parity(run, oracle, rng):
    for arguments in cases(rng):
        found = run("bm25", *arguments)
        assert found.dtype == np.float32
        assert_allclose(found, oracle("bm25", *arguments), rtol=1e-5, atol=1e-9)


def test_parity(kernel, oracle, rng):
    check_parity(kernel, oracle, rng)


@pytest.mark.parametrize("what", ["k1", "b", "weights", "idf", "mean", "length"])
def test_parity_fails_when_the_kernel_is_perturbed(kernel, oracle, rng, what):
    def perturbed(operation, *arguments):
        arguments = list(arguments)
        if what == "k1":
            arguments[8] += 0.001
        elif what == "b":
            arguments[9] = min(1, arguments[9] + 0.001)
        elif what == "mean":
            arguments[10] *= 1.001
        elif what == "weights":
            arguments[7] = np.ones_like(arguments[7])
        elif what == "idf":
            arguments[4] = np.roll(arguments[4], 1)
        else:
            arguments[3] = arguments[3] + np.float32(0.1)
        return kernel(operation, *arguments)

    with pytest.raises(AssertionError):
        check_parity(perturbed, oracle, rng)


def test_the_oracle_is_lucene_as_bm25s_has_it(kernel, rng):
    bm25s = pytest.importorskip("bm25s")
    counts = corpus(rng, 50, 20)
    texts = [
        [f"t{t}" for t in range(20) for _ in range(line[t])] or ["t0"] * line[0] for line in counts
    ]
    reference = bm25s.BM25(method="lucene", k1=1.2, b=0.6)
    reference.index(texts, show_progress=False, create_empty_token=False)
    terms = [3, 7, 7, 11]
    query = (
        np.array([0, 4], np.int64),
        np.array(terms, np.int32),
        np.ones(4, np.float32),
    )
    found = kernel("bm25", *index(counts), *query, 1.2, 0.6, counts.sum(axis=1).mean())
    expected = np.sum([reference.get_scores([f"t{t}"]) for t in terms], axis=0)
    assert expected.max() > 1
    assert_allclose(found[0], expected, rtol=1e-4, atol=1e-6)


def test_a_question_alone_has_the_bits_it_has_in_a_batch(compiled, rng):
    counts = corpus(rng, 90, 25)
    indptr, terms, weights = questions(rng, 25, (6,) * 8)
    mean = counts.sum(axis=1).mean()
    together = compiled("bm25", *index(counts), indptr, terms, weights, 1.5, 0.75, mean)
    for j in range(8):
        own = slice(indptr[j], indptr[j + 1])
        one = (np.array([0, 6], np.int64), terms[own], weights[own])
        alone = compiled("bm25", *index(counts), *one, 1.5, 0.75, mean)
        assert_array_equal(alone[0], together[j])


def test_scores_of_a_block_are_those_of_the_whole(compiled, rng):
    # The caller's idf and mean length are the whole's, so a segment can be scored by itself.
    counts = corpus(rng, 90, 25)
    whole = index(counts)
    query = questions(rng, 25, (6, 3))
    mean = counts.sum(axis=1).mean()
    together = compiled("bm25", *whole, *query, 1.5, 0.75, mean)
    for rows in (slice(0, 40), slice(40, 40), slice(40, 90)):
        part = index(counts[rows]) if rows.start < rows.stop else index(counts[:0])
        alone = compiled("bm25", *part[:4], whole[4], *query, 1.5, 0.75, mean)
        assert_array_equal(alone, together[:, rows])


@pytest.mark.parametrize("mean", [0.0, 1.0])
def test_empty_memory(kernel, mean):
    empty = index(np.zeros((0, 4), int))
    query = (np.array([0, 1], np.int64), np.zeros(1, np.int32), np.ones(1, np.float32))
    assert kernel("bm25", *empty, *query, 1.5, 0.75, mean).shape == (1, 0)
    nothing = (np.zeros(1, np.int64), *(np.empty(0, t) for t in ("i4", "f4", "f4", "f4")))
    no_terms = (np.array([0, 0], np.int64), np.empty(0, np.int32), np.empty(0, np.float32))
    assert kernel("bm25", *nothing, *no_terms, 1.5, 0.75, mean).shape == (1, 0)


def test_without_lengths_length_has_no_influence(kernel, oracle):
    arguments = [*index(np.array([[1, 0], [2, 1]])), np.array([0, 1]), np.zeros(1, np.int32)]
    arguments += [np.ones(1, np.float32), 1.5, 0.75, 0.0]
    assert_allclose(kernel("bm25", *arguments), oracle("bm25", *arguments), rtol=1e-6)


@pytest.mark.parametrize(
    ("position", "value", "message"),
    [
        (0, np.array([0, 1, 9], np.int64), "indptr must .*, got 0 to 9"),
        (1, np.array([0, 5], np.int32), r"must be in \[0, 2\), got 5"),
        (1, np.array([0, -5], np.int32), r"must be in \[0, 2\), got -5"),
        (2, np.ones(3, np.float32), r"must have shape \(2,\), got \(3,\)"),
        (4, np.ones(3, np.float32), r"idf must have shape \(2,\), got \(3,\)"),
        (6, np.array([0, 2], np.int32), r"query_indices must be in \[0, 2\), got 2"),
        (8, -1.0, "k1 must be in .*, got -1.0"),
        (9, 1.5, r"b must be in \[0, 1\], got 1.5"),
    ],
)
def test_bad_arguments_are_named(kernel, position, value, message):
    indptr, rows, ones = np.array([0, 1, 2]), np.array([0, 1], np.int32), np.ones(2, np.float32)
    arguments = [indptr, rows, ones, ones, ones, np.array([0, 2]), rows, ones, 1.5, 0.75, 1.0]
    arguments[position] = value
    with pytest.raises(InvalidInputError, match=message):
        kernel("bm25", *arguments)
