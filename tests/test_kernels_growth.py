"""The kernels of an index that grows, against their oracles: lists and titles."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from zeromem.index.lists import Lists
from zeromem.kernels import lists_cpu, lists_ref, titles_cpu, titles_ref


def chained(rng, n_base_keys, n_keys, n_base, n_tail, *, counted, links=lists_cpu):
    """A CSR over some keys, and chains over more of them."""
    key = np.sort(rng.integers(0, max(1, n_base_keys), n_base if n_base_keys else 0))
    indptr = np.searchsorted(key, np.arange(n_base_keys + 1)).astype(np.int64)
    head = np.full(n_keys, -1, np.int32)
    keys = rng.integers(0, n_keys, n_tail if n_keys else 0).astype(np.int32)
    cut = len(keys) // 2
    older = [links.link(head, part, at) for part, at in ((keys[:cut], 0), (keys[cut:], cut))]
    counts = [rng.random(len(x)).astype(np.float32)[: None if counted else 0] for x in (key, keys)]
    values = rng.integers(0, 99, len(key)).astype(np.int32)
    tail = rng.integers(100, 199, len(keys)).astype(np.int32)
    return indptr, values, counts[0], head, np.concatenate(older), tail, counts[1]


sizes = st.tuples(st.integers(0, 6), st.integers(0, 6), st.integers(0, 20), st.integers(0, 20))


@given(sizes, st.booleans(), st.integers(0, 1000))
def test_lists_are_the_oracles(sizes, counted, seed):
    n_base_keys, more, n_base, n_tail = sizes
    shape = n_base_keys, n_base_keys + more, n_base, n_tail
    mine = chained(np.random.default_rng(seed), *shape, counted=counted)
    theirs = chained(np.random.default_rng(seed), *shape, counted=counted, links=lists_ref)
    for a, b in zip(mine, theirs, strict=True):
        assert_array_equal(a, b)
    for a, b in zip(lists_cpu.seal(*mine), lists_ref.seal(*theirs), strict=True):
        assert a.dtype == b.dtype
        assert_array_equal(a, b)


def test_the_oracle_notices_another_order(rng):
    parts = chained(rng, 3, 5, 10, 30, counted=True)
    indptr, values, _ = lists_cpu.seal(*parts)
    key = int(np.argmax(np.diff(indptr)))
    values[indptr[key] : indptr[key + 1]] = values[indptr[key] : indptr[key + 1]][::-1]
    assert not np.array_equal(values, lists_ref.seal(*parts)[1])


def texts(rng, n, longest):
    rows = [rng.integers(0, 5, rng.integers(0, longest)).astype(np.int32) for _ in range(n)]
    indptr = np.cumsum([0, *map(len, rows)]).astype(np.int64)
    return indptr, np.concatenate([np.zeros(0, np.int32), *rows])


def lists_of(pairs, n_keys, sealed):
    """Lists of (key, value) pairs, partly sealed."""
    found = Lists.empty(counted=False)
    for part in (pairs[:sealed], pairs[sealed:]):
        keys = np.array([k for k, _ in part], np.int32)
        values = np.array([v for _, v in part], np.int32)
        found = found.extended(n_keys, keys, values)
        if part is not pairs[sealed:]:
            found = Lists.sealed(found.csr(), counted=False)
    return found.kernel_args


def setting(rng, n_turns, n_titles):
    term_indptr, term = texts(rng, n_turns, 12)
    titles = [rng.integers(0, 5, rng.integers(2, 4)).astype(np.int32) for _ in range(n_titles)]
    title_indptr = np.cumsum([0, *map(len, titles)]).astype(np.int64)
    title_term = np.concatenate([np.zeros(0, np.int32), *titles])
    words = [
        (int(w), t) for t in range(n_turns)
        for w in np.unique(term[term_indptr[t] : term_indptr[t + 1]])
    ]  # fmt: skip
    firsts = [(int(title[0]), i) for i, title in enumerate(titles)]
    return term_indptr, term, title_indptr, title_term, words, firsts


def found_both_ways(rng, n_turns, n_titles, sealed, start=0, until=None, titles=titles_cpu):
    term_indptr, term, title_indptr, title_term, words, firsts = setting(rng, n_turns, n_titles)
    postings = lists_of(words, 5, min(sealed, len(words)))
    first = lists_of(firsts, 5, min(sealed, len(firsts)))
    until = n_turns if until is None else min(until, n_turns)
    old = titles.in_old(
        title_indptr, title_term, min(start, n_titles), term_indptr, term, postings, until
    )
    turns = rng.permutation(n_turns).astype(np.int32)
    new = titles.in_turns(turns, term_indptr, term, title_indptr, title_term, first)
    return sorted(map(tuple, old.tolist())), sorted(map(tuple, new.tolist()))


@given(
    st.integers(0, 12), st.integers(0, 6), st.integers(0, 30), st.integers(0, 6),
    st.integers(0, 12), st.integers(0, 1000),
)  # fmt: skip
def test_titles_are_the_oracles(n_turns, n_titles, sealed, start, until, seed):
    runs = [
        found_both_ways(
            np.random.default_rng(seed), n_turns, n_titles, sealed, start, until, titles
        )
        for titles in (titles_cpu, titles_ref)
    ]
    assert runs[0] == runs[1]


def test_more_titles_are_found_than_there_was_room_for(rng):
    old, new = found_both_ways(rng, 400, 12, 50)
    assert len(old) > 256
    assert len(new) >= len(old)
    assert sorted(set(new)) == old


@pytest.mark.parametrize("change", ["start", "until"])
def test_the_oracle_notices_other_bounds(rng, change):
    seed = int(rng.integers(1000))
    bounds = {"start": 2, "until": 20}
    mine = found_both_ways(np.random.default_rng(seed), 40, 6, 9, **bounds)
    bounds[change] += {"start": 1, "until": 15}[change]
    other = found_both_ways(np.random.default_rng(seed), 40, 6, 9, **bounds, titles=titles_ref)
    assert mine != other
