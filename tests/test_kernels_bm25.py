"""BM25: every form against the oracle, and the oracle against bm25s."""

from functools import cache

import kernel_support as ks
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from zeromem.errors import InvalidInputError
from zeromem.kernels import bm25_ref
from zeromem.kernels._bm25 import Levels

PARAMETERS = ((1.5, 0.75), (0.9, 0.0), (2.0, 1.0), (0.0, 0.5))


def questions(rng, n_terms, lengths):
    terms = [rng.integers(0, n_terms, length) for length in lengths]  # repeats included
    indptr = np.cumsum([0, *lengths]).astype(np.int64)
    flat = np.concatenate([np.zeros(0, int), *terms]).astype(np.int32)
    return indptr, flat, rng.choice([1.0, 2.0, 0.5], len(flat)).astype(np.float32)


@cache
def cases():
    """Arguments and what the oracle says."""
    rng = np.random.default_rng(5)
    found = []
    for n in ks.SIZES:
        for radius, n_sealed in ((1, None), (0, 0), (3, n)):
            memory = ks.memory(rng, n, radius=radius, n_sealed=n_sealed)
            query = questions(rng, memory.n_terms, (1, 0, 7, 40))
            for k1, b in PARAMETERS:
                arguments = memory.postings.kernel_args, memory.levels, *query, k1, b
                found.append((arguments, bm25_ref.scores(*arguments)))
    return found


def check_parity(run, perturb=lambda arguments: arguments):
    for arguments, wanted in cases():
        found = run("bm25", *perturb(list(arguments)))
        assert found._fields == wanted._fields
        for one, other in zip(found, wanted, strict=True):
            assert one.dtype == np.float32
            assert_allclose(one, other, rtol=ks.RTOL, atol=1e-9)


def test_parity(kernel):
    check_parity(kernel)
    assert max(wanted.episode.max() for _, wanted in cases()) > 1


@pytest.mark.parametrize("what", [2, 3, 4, 5, 6, "lists", *Levels._fields])
def test_parity_fails_when_an_argument_is_perturbed(kernel, what):
    def perturb(arguments):
        if what == "lists":  # each term has another's postings: the chains of the tail only
            indptr, rows, tf, head, *tail = arguments[0]
            arguments[0] = indptr, rows, tf, np.roll(head, 1), *tail
        elif what == 2:
            arguments[2] = ks.spread_evenly(arguments[2])
        elif isinstance(what, int):
            arguments[what] = (
                min(ks.perturbed(arguments[what]), 1.0)
                if what == 6
                else (ks.perturbed(arguments[what]))
            )
        else:
            value = ks.perturbed(getattr(arguments[1], what))
            arguments[1] = arguments[1]._replace(**{what: value})
        return arguments

    with pytest.raises(AssertionError):
        check_parity(kernel, perturb)


def test_the_sealed_part_counts(kernel):
    def perturb(arguments):
        indptr, rows, tf, *tail = arguments[0]
        arguments[0] = indptr, rows, tf + np.float32(1), *tail
        return arguments

    with pytest.raises(AssertionError):
        check_parity(kernel, perturb)


def as_lists(counts):
    """Texts (n, n_terms) of term counts, each a session of its own, and their lengths."""
    terms = [np.flatnonzero(line).tolist() for line in counts]
    tf = [line[line > 0].tolist() for line in counts]
    none = np.full(len(counts), -1, np.int32)
    lengths = counts.sum(axis=1).astype(np.float32)
    levels = Levels(
        lengths, lengths, lengths, none, none, np.arange(len(counts), dtype=np.int32), 1,
        len(counts),
    )  # fmt: skip
    return ks.lists(terms, counts.shape[1], n_sealed=len(counts) // 3, counts=tf), levels


def test_the_oracle_is_lucene_as_bm25s_has_it(kernel, oracle, rng):
    bm25s = pytest.importorskip("bm25s")
    counts = rng.poisson(0.15, size=(50, 20))
    texts = [[f"t{t}" for t in range(20) for _ in range(line[t])] or ["none"] for line in counts]
    reference = bm25s.BM25(method="lucene", k1=1.2, b=0.6)
    reference.index(texts, show_progress=False, create_empty_token=False)
    counts = np.column_stack([counts, counts.sum(axis=1) == 0])
    terms = [3, 7, 7, 11]
    query = (np.array([0, 4], np.int64), np.array(terms, np.int32), np.ones(4, np.float32))
    postings, levels = as_lists(counts)
    expected = np.sum([reference.get_scores([f"t{t}"]) for t in terms], axis=0)
    assert expected.max() > 1
    for run in (oracle, kernel):
        for level in run("bm25", postings.kernel_args, levels, *query, 1.2, 0.6):
            assert_allclose(level[0], expected, rtol=1e-4, atol=1e-6)


def test_windows_and_episodes_are_texts_of_their_own(kernel, oracle, rng):
    """Their scores are those of a memory whose turns are these texts."""
    memory = ks.memory(rng, 40, radius=1)
    query = questions(rng, memory.n_terms, (5, 3))
    counts = np.zeros((40, memory.n_terms))
    for term in range(memory.n_terms):
        rows = memory.postings.of(term)
        counts[rows, term] = memory.postings.csr()[2][
            memory.postings.csr()[0][term] : memory.postings.csr()[0][term + 1]
        ]
    previous, following = memory.levels.previous, memory.levels.following
    windows = counts.copy()
    for i in range(40):
        for j in (previous[i], following[i]):
            if j >= 0:
                windows[i] += counts[j]
    first, whole = np.unique(memory.levels.episode_of, return_inverse=True)
    episodes = np.zeros((len(first), memory.n_terms))
    np.add.at(episodes, whole.reshape(-1), counts)
    found = kernel("bm25", memory.postings.kernel_args, memory.levels, *query, 1.5, 0.75)
    for texts, level in ((windows, found.window), (episodes, found.episode[:, first])):
        postings, levels = as_lists(texts)
        wanted = oracle("bm25", postings.kernel_args, levels, *query, 1.5, 0.75)
        assert_allclose(level, wanted.turn, rtol=ks.RTOL, atol=1e-9)


def test_a_question_alone_has_the_bits_it_has_in_a_batch(compiled, rng):
    memory = ks.memory(rng, 90)
    indptr, terms, weights = questions(rng, memory.n_terms, (6,) * 33)
    own = (memory.postings.kernel_args, memory.levels)
    together = compiled("bm25", *own, indptr, terms, weights, 1.5, 0.75)
    for j in range(33):
        part = slice(indptr[j], indptr[j + 1])
        one = (np.array([0, 6], np.int64), terms[part], weights[part])
        alone = compiled("bm25", *own, *one, 1.5, 0.75)
        for found, wanted in zip(alone, together, strict=True):
            assert_array_equal(found[0], wanted[j])


def test_it_does_not_matter_what_of_the_lists_is_sealed(compiled):
    found = []
    for n_sealed in (0, 13, 60):
        rng = np.random.default_rng(3)
        memory = ks.memory(rng, 60, n_sealed=n_sealed)
        query = questions(rng, memory.n_terms, (6, 3))
        found.append(
            compiled("bm25", memory.postings.kernel_args, memory.levels, *query, 1.5, 0.75)
        )
    for scores in found[1:]:
        for one, other in zip(scores, found[0], strict=True):
            # Windows add up a term's frequencies, which are integers: exact in any order.
            assert_array_equal(one, other)


def test_a_memory_without_words(kernel, oracle):
    postings, levels = as_lists(np.zeros((3, 0), int))
    query = (np.array([0, 0], np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32))
    for run in (kernel, oracle):
        found = run("bm25", postings.kernel_args, levels, *query, 1.5, 0.75)
        assert [level.tolist() for level in found] == [[[0.0] * 3]] * 3


@pytest.mark.parametrize(
    ("position", "value", "message"),
    [
        (2, np.array([0, 3]), "query_indptr must .*"),
        (3, np.array([0, 2], np.int32), r"query_indices must be in \[0, 2\), got 2"),
        (3, np.array([0, -5], np.int32), r"query_indices must be in \[0, 2\), got -5"),
        (4, np.ones(3, np.float32), r"must have shape \(2,\), got \(3,\)"),
        (5, -1.0, "k1 must be in .*, got -1.0"),
        (6, 1.5, r"b must be in \[0, 1\], got 1.5"),
    ],
)
def test_bad_arguments_are_named(kernel, position, value, message):
    postings, levels = as_lists(np.array([[1, 0], [0, 1]]))
    query = (np.array([0, 2]), np.array([0, 1], np.int32), np.ones(2, np.float32))
    arguments = [postings.kernel_args, levels, *query, 1.5, 0.75]
    arguments[position] = value
    with pytest.raises(InvalidInputError, match=message):
        kernel("bm25", *arguments)


@pytest.mark.parametrize("field", Levels._fields[:6])
def test_levels_of_another_length_are_named(kernel, field):
    postings, levels = as_lists(np.array([[1, 0], [0, 1], [1, 1]]))
    query = (np.array([0, 2]), np.array([0, 1], np.int32), np.ones(2, np.float32))
    short = levels._replace(**{field: getattr(levels, field)[:2]})
    with pytest.raises(InvalidInputError, match=r"must have shape"):
        kernel("bm25", postings.kernel_args, short, *query, 1.5, 0.75)


@pytest.mark.parametrize("row", [-1, 2, 2**30])
def test_postings_that_name_no_row_are_refused(kernel, row):
    _, levels = as_lists(np.array([[1, 0], [0, 1]]))
    query = (np.array([0, 2]), np.array([0, 1], np.int32), np.ones(2, np.float32))
    ones = np.ones(1, np.float32)
    bad, none = np.array([row], np.int32), np.zeros(0, np.int32)
    neither, second = np.array([-1, -1], np.int32), np.array([-1, 0], np.int32)
    sealed = (np.array([0, 0, 1]), bad, ones, neither, none, none, ones[:0])
    tail = (np.array([0]), none, ones[:0], second, neither[:1], bad, ones)
    for postings in (sealed, tail):
        with pytest.raises(InvalidInputError, match="postings of term 1 must name each row"):
            kernel("bm25", postings, levels, *query, 1.5, 0.75)
