"""Latency of the host kernels at a memory's real sizes: ``make bench``.

Each kernel is checked against another path before it is timed. Reproduce one line with
``.venv/bin/python -m pytest bench/bench_kernels.py --benchmark-only -k ppr``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from zeromem.kernels import bm25_cpu, dense_cpu, ppr_cpu, ppr_gpu, propagate_cpu, topk_cpu

N_TURNS, DIM = 20_000, 384
N_NODES, N_EDGES = 27_000, 80_000
N_SENTENCES, N_ENTITIES = 40_000, 12_000
N_TERMS = 30_000


def _rng() -> np.random.Generator:
    return np.random.default_rng(0)


def _units(n: int) -> np.ndarray[Any, Any]:
    rows = _rng().normal(size=(n, DIM))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize("b", [1, 64])
@pytest.mark.benchmark(group="dense")
def test_dense(benchmark: Any, b: int) -> None:
    vectors, queries = _units(N_TURNS), _units(b)
    np.testing.assert_allclose(dense_cpu.scores(vectors, queries), queries @ vectors.T, atol=1e-5)
    benchmark.extra_info["GFLOP"] = 2e-9 * N_TURNS * DIM * b
    benchmark(dense_cpu.scores, vectors, queries)


@pytest.mark.parametrize("b", [1, 8, 64])
@pytest.mark.benchmark(group="ppr")
def test_ppr(benchmark: Any, b: int) -> None:
    rng = _rng()
    ends = rng.integers(0, N_NODES, N_EDGES), rng.zipf(1.5, N_EDGES) % N_NODES
    A = sp.coo_matrix((np.ones(N_EDGES), ends), shape=(N_NODES, N_NODES)).tocsr()
    A = A + A.T  # hubs, as speakers are
    degree = np.asarray(A.sum(axis=1)).ravel()
    PT = (sp.diags(1 / np.maximum(degree, 1)) @ A).T.tocsr()
    graph = (PT.indptr.astype(np.int64), PT.indices, PT.data.astype(np.float32), degree == 0)
    reset = np.zeros((N_NODES, b), np.float32)
    reset[rng.integers(0, N_NODES, (20, b)), np.arange(b)] = 1
    reset /= reset.sum(axis=0)
    found = ppr_cpu.ppr(*graph, reset, 0.6, 30).scores
    assert np.abs(found - ppr_gpu.ppr(*graph, reset, 0.6, 30).scores).sum(axis=0).max() < 1e-5
    benchmark(ppr_cpu.ppr, *graph, reset, 0.6, 30)


@pytest.mark.parametrize("b", [1, 64])
@pytest.mark.benchmark(group="propagate")
def test_propagate(benchmark: Any, b: int) -> None:
    rng = _rng()
    ends = np.arange(N_SENTENCES).repeat(2), rng.zipf(1.4, 2 * N_SENTENCES) % N_ENTITIES
    S = sp.coo_matrix((np.ones(len(ends[0])), ends), shape=(N_SENTENCES, N_ENTITIES)).tocsr()
    E = S.T.tocsr()
    matrices = (S.indptr.astype(np.int64), S.indices, E.indptr.astype(np.int64), E.indices)
    seeds = np.zeros((N_ENTITIES, b), np.float32)
    seeds[rng.integers(0, N_ENTITIES, (3, b)), np.arange(b)] = 0.9
    sims = rng.normal(0.1, 0.2, (N_SENTENCES, b)).astype(np.float32)
    assert (propagate_cpu.propagate(*matrices, seeds, sims, 0, 0.0, 0) == seeds).all()
    benchmark(propagate_cpu.propagate, *matrices, seeds, sims, 2, 0.0, 10)


@pytest.mark.parametrize("b", [1, 64])
@pytest.mark.benchmark(group="bm25")
def test_bm25(benchmark: Any, b: int) -> None:
    rng = _rng()
    terms = rng.zipf(1.3, (N_TURNS, 20)) % N_TERMS
    rows = np.arange(N_TURNS).repeat(20)
    counts = sp.coo_matrix((np.ones(rows.size), (terms.ravel(), rows)), (N_TERMS, N_TURNS)).tocsr()
    lengths = np.full(N_TURNS, 20, np.float32)
    df = np.diff(counts.indptr)
    idf = np.log(1 + (N_TURNS - df + 0.5) / (df + 0.5)).astype(np.float32)
    postings = (counts.indptr.astype(np.int64), counts.indices, counts.data.astype(np.float32))
    asked = rng.integers(0, 5_000, 8 * b).astype(np.int32)
    query = (np.arange(0, 8 * b + 1, 8), asked, np.ones(8 * b, np.float32))
    benchmark(bm25_cpu.scores, *postings, lengths, idf, *query, 1.5, 0.75, 20.0)


@pytest.mark.parametrize("b", [1, 64])
@pytest.mark.benchmark(group="topk")
def test_topk(benchmark: Any, b: int) -> None:
    scores = _rng().normal(size=(b, N_TURNS)).astype(np.float32)
    rows, _ = topk_cpu.topk(scores, None, 100)
    assert (rows == np.argsort(-scores, axis=1, kind="stable")[:, :100]).all()
    benchmark(topk_cpu.topk, scores, None, 100)
