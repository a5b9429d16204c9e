"""Search on a device: the exact forms against the oracle, and what approximation is measured by."""

import importlib.util

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from zeromem.errors import InvalidInputError
from zeromem.index.chunks import CHUNK, Chunks
from zeromem.kernels import dense_gpu
from zeromem.kernels.dense_gpu import Searcher, put


def unit(rng, n, dim):
    rows = rng.normal(size=(n, dim))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


class HalfSearch:
    """What cuVS' brute force computes: the largest products with queries as halves, in any order.

    ``drop`` leaves every ``drop``-th of the best rows out, as an approximate search may.
    """

    def __init__(self, vectors, drop=0):
        self.matrix = vectors.array().astype(np.float32)
        self.drop = drop
        self.calls = 0

    def __call__(self, queries, k):
        assert queries.dtype == np.float16
        self.calls += 1
        products = queries.astype(np.float32) @ self.matrix.T
        order = np.argsort(-products, axis=1, kind="stable")
        if self.drop:
            order = np.delete(order, np.s_[:: self.drop], axis=1)
        order = order[:, :k][:, ::-1]
        return order, np.take_along_axis(products, order, axis=1)


def searcher(vectors, method, drop=0):
    propose = None if method == "product" else HalfSearch(vectors, drop)
    return Searcher(put(vectors, np), method, propose)


def cases(rng):
    for n, b, dim, k in ((1, 1, 1, 1), (40, 3, 8, 5), (300, 4, 24, 50), (30, 2, 16, 64)):
        yield Chunks.of(unit(rng, n, dim).astype(np.float16)), unit(rng, b, dim), k
    tied = unit(rng, 400, 16).astype(np.float16)
    tied[50:350] = tied[7]  # more equal rows than are asked for, and than the margin
    yield Chunks.of(tied), np.concatenate([tied[7:8].astype(np.float32), unit(rng, 2, 16)]), 40
    yield Chunks.of(unit(rng, CHUNK + 60, 8).astype(np.float16)), unit(rng, 2, 8), 30


def check_search(run, oracle, rng):
    """The same rows but for near ties, and the products of the rows that were found."""
    from test_kernels_topk import exempted_share

    for vectors, queries, k in cases(rng):
        rows, products = run(vectors, queries, k)
        wanted_rows, wanted = oracle(vectors, queries, k)
        assert rows.dtype == np.int32
        assert products.dtype == np.float32
        assert_array_equal(rows < 0, wanted_rows < 0)
        assert_allclose(products, wanted, rtol=0, atol=1e-6)
        exact = queries.astype(float) @ vectors.array().astype(float).T
        assert exempted_share(rows, wanted_rows, exact) <= 0.05


def oracle_search(vectors, queries, k):
    from zeromem.kernels import dense_ref

    return dense_ref.search(vectors, queries, k)


@pytest.mark.parametrize("method", ["product", "brute_force"])
def test_exact_search_parity(rng, method):
    check_search(lambda v, q, k: searcher(v, method).search(q, k), oracle_search, rng)


@pytest.mark.parametrize("what", ["row", "product", "rounded queries"])
def test_search_parity_fails_when_perturbed(rng, what):
    def perturbed(vectors, queries, k):
        if what == "rounded queries":
            queries = queries.astype(np.float16).astype(np.float32)
        rows, products = searcher(vectors, "product").search(queries, k)
        if what == "row":
            rows = np.roll(rows, 1, axis=1)
        if what == "product":
            products = products * np.float32(1.0001)
        return rows, products

    with pytest.raises(AssertionError):
        check_search(perturbed, oracle_search, rng)


def test_rows_that_rounding_may_hide_are_asked_for_again(rng, monkeypatch):
    # All rows are one but for a half's last digit, so rounding the query reorders them at will.
    base = unit(rng, 1, 64)
    near = (base + rng.normal(size=(600, 64)) * 1e-4).astype(np.float16)
    vectors, queries = Chunks.of(near), base
    wanted_rows, wanted = oracle_search(vectors, queries, 20)
    rows, products = searcher(vectors, "brute_force").search(queries, 20)
    assert_array_equal(rows, wanted_rows)
    assert_allclose(products, wanted, atol=1e-6)
    # That took a second look, by the product.
    monkeypatch.setattr(dense_gpu, "_MARGIN", 0)
    monkeypatch.setattr(dense_gpu, "_best_by_product", None)
    with pytest.raises(TypeError):
        searcher(vectors, "brute_force").search(queries, 20)


def test_well_separated_rows_are_proposed_once(rng, monkeypatch):
    vectors, queries = Chunks.of(unit(rng, 2000, 64).astype(np.float16)), unit(rng, 5, 64)
    wanted_rows, _ = oracle_search(vectors, queries, 20)
    monkeypatch.setattr(dense_gpu, "_best_by_product", None)  # no second look is taken
    rows, _ = searcher(vectors, "brute_force").search(queries, 20)
    assert_array_equal(rows, wanted_rows)


def test_recall_is_the_share_found(rng):
    vectors, queries = Chunks.of(unit(rng, 500, 16).astype(np.float16)), unit(rng, 6, 16)
    assert searcher(vectors, "cagra").recall(queries, 40) == 1
    # Every fourth of the best 40 is left out, so 10 of 40 are missing.
    assert searcher(vectors, "cagra", drop=4).recall(queries, 40) == pytest.approx(0.75)
    assert searcher(vectors, "cagra").recall(queries[:0], 40) == 1
    assert searcher(vectors, "cagra").recall(queries, 0) == 1


def test_many_queries_go_block_by_block(rng, monkeypatch):
    vectors, queries = Chunks.of(unit(rng, 90, 8).astype(np.float16)), unit(rng, 7, 8)
    whole = searcher(vectors, "product").search(queries, 9)
    everything = dense_gpu.scores(vectors, queries)
    monkeypatch.setattr(dense_gpu, "_QUERIES", 3)
    blocks = searcher(vectors, "product").search(queries, 9)
    assert_array_equal(blocks[0], whole[0])
    assert_allclose(blocks[1], whole[1], atol=1e-6)
    assert_allclose(dense_gpu.scores(vectors, queries), everything, atol=1e-6)


def test_groups_of_parts_are_merged(rng, monkeypatch):
    vectors = Chunks.of(np.repeat(unit(rng, 20, 8).astype(np.float16), 1000, axis=0))
    queries = unit(rng, 3, 8)
    monkeypatch.setattr(dense_gpu, "_COLUMNS", 8192)  # one part at a time; equal rows span parts
    rows, products = searcher(vectors, "product").search(queries, 1500)
    wanted_rows, wanted = oracle_search(vectors, queries, 1500)
    assert_array_equal(rows, wanted_rows)
    assert_allclose(products, wanted, atol=1e-6)


@pytest.mark.parametrize("size", [1e-30, 1e-3, 1.0, 7e5, 1e30])
def test_queries_of_any_size_keep_float32_precision(rng, size):
    vectors = Chunks.of(unit(rng, 50, 32).astype(np.float16))
    queries = unit(rng, 2, 32) * np.float32(size)
    exact = queries.astype(float) @ vectors.array().astype(float).T
    found = dense_gpu.scores(vectors, queries)
    assert_allclose(found, exact, rtol=0, atol=5e-7 * size)


def test_put_shares_known_parts(rng):
    old = Chunks.of(unit(rng, CHUNK + 5, 4).astype(np.float16))
    new = old.extended(unit(rng, 3, 4).astype(np.float16))
    moved = []

    class Device:
        @staticmethod
        def asarray(part):
            moved.append(len(part))
            return part.copy()

    held = put(old, Device)
    longer = put(new, Device, held)
    assert moved == [CHUNK, 5, 8]
    assert longer.parts[0] is held.parts[0]
    assert len(longer) == len(new) == CHUNK + 8
    assert_array_equal(np.concatenate(longer.parts), new.array())


def test_search_of_nothing_and_bad_arguments(rng):
    empty = Chunks.of(np.empty((0, 4), np.float16))
    rows, products = searcher(empty, "product").search(np.ones((2, 4), "f4"), 3)
    assert_array_equal(rows, np.full((2, 3), -1))
    assert_array_equal(products, np.zeros((2, 3)))
    vectors = Chunks.of(unit(rng, 9, 4).astype(np.float16))
    assert searcher(vectors, "product").search(np.ones((2, 4), "f4"), 0)[0].shape == (2, 0)
    assert searcher(vectors, "product").search(np.ones((0, 4), "f4"), 3)[0].shape == (0, 3)
    with pytest.raises(InvalidInputError, match="method must be one of .*, got 'hnsw'"):
        Searcher(put(vectors, np), "hnsw")
    with pytest.raises(InvalidInputError, match=r"k must be in \[0, 512\], got 513"):
        searcher(vectors, "cagra").search(np.ones((1, 4), "f4"), 513)
    with pytest.raises(InvalidInputError, match=r"queries must have shape \(1, 4\), got \(1, 3\)"):
        searcher(vectors, "product").search(np.ones((1, 3), "f4"), 2)


@pytest.mark.skipif(importlib.util.find_spec("cuvs") is not None, reason="cuVS is installed")
def test_without_cuvs(rng):
    vectors = Chunks.of(unit(rng, 9, 4).astype(np.float16))
    assert Searcher(put(vectors, np)).method == "product"
    with pytest.raises(ImportError, match="cuvs"):
        Searcher(put(vectors, np), "brute_force")


@pytest.mark.gpu
@pytest.mark.parametrize("method", ["product", "brute_force", "cagra"])
def test_on_the_device(rng, method):
    import cupy

    if method != "product":
        pytest.importorskip("cuvs")
    vectors, queries = Chunks.of(unit(rng, 20_000, 64).astype(np.float16)), unit(rng, 9, 64)
    search = Searcher(put(vectors, cupy), method)
    rows, products = (cupy.asnumpy(a) for a in search.search(cupy.asarray(queries), 50))
    if method == "cagra":
        assert search.recall(cupy.asarray(queries), 50) >= 0.9
        return
    wanted_rows, wanted = oracle_search(vectors, queries, 50)
    assert_allclose(products, wanted, atol=1e-6)
    assert (rows == wanted_rows).mean() >= 0.95
