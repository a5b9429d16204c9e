"""Who takes part in which contest of ``peers.py``, and what counts as a right result."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from subjects import (
    DAMPING,
    K1,
    N_ITER,
    TOLERANCE,
    B,
    Graph,
    Inputs,
    Lexical,
    Missing,
    apart,
    dense_topk,
    must,
    question_terms,
    relative_l1,
    threads,
)
from whole import Whole, exempted

from zeromem.kernels import topk_cpu

OURS = "zeromem"
PLAIN = "plain Python, one by one"
LARGEST = 256  # questions of the largest batch of whole retrieval
K = 10
Run = Callable[[], Any]
One = Callable[[int], Any]


@dataclass(frozen=True, slots=True)
class Entry:
    """One contestant of a contest.

    Attributes
    ----------
    name : str
    n : int
        Questions that a run answers.
    prepare : callable
        Builds what it needs and returns what is timed; raises Missing.
    distance : callable
        From a run's result to its distance from the oracle; raises WrongResult beyond what is
        allowed.
    """

    name: str
    n: int
    prepare: Callable[[], Run]
    distance: Callable[[Any], float]


# ---- PPR


def ppr(inputs: Inputs, b: int) -> Iterator[Entry]:
    """Eq. 10 on the memory's graph, b questions."""
    graph, reset = inputs.graph, inputs.reset(b)
    wide = reset.astype(np.float64)
    exact = graph.exact(reset)

    def right(found: Any) -> float:
        distance = relative_l1(found, exact)
        must(distance < TOLERANCE, f"{distance:.2g} from the oracle, {TOLERANCE:g} is allowed")
        return distance

    def iterate(r: Any) -> Callable[[], Run]:
        return lambda: lambda: graph.power_iteration(r, N_ITER)

    yield Entry(OURS, b, lambda: graph.ppr(reset), right)
    # Turns and questions are shared out among all cores; SciPy's product takes one.
    yield Entry("SciPy power iteration, float32", b, iterate(reset), right)
    yield Entry("SciPy power iteration, float64", b, iterate(wide), right)
    if b > 1:
        yield _one_by_one("SciPy power iteration, one by one", b, _scipy(graph, reset), exact)
    yield _one_by_one("igraph prpack", b, _igraph(graph, wide), exact)
    yield _one_by_one("scikit-network, power iteration", b, _scikit_network(graph, wide), exact)
    yield _one_by_one("NetworkX", b, _networkx(graph, wide), exact)


def _one_by_one(name: str, b: int, prepare: Callable[[], One], exact: Any) -> Entry:
    """What answers one question at a time: each run takes the next of b questions."""
    turns = _Turns(b)

    def ready() -> Run:
        one = prepare()
        return lambda: (at := turns.next(), one(at))

    def right(found: tuple[int, Any]) -> float:
        at, scores = found
        distance = relative_l1(np.asarray(scores).reshape(-1, 1), exact[:, at : at + 1])
        must(distance < TOLERANCE, f"{distance:.2g} from the oracle, {TOLERANCE:g} is allowed")
        return distance

    return Entry(name, 1, ready, right)


class _Turns:
    """Whose turn it is among b questions."""

    def __init__(self, b: int) -> None:
        self._b, self._at = b, -1

    def next(self) -> int:
        self._at = (self._at + 1) % self._b
        return self._at


def _scipy(graph: Graph, reset: Any) -> Callable[[], One]:
    columns = [np.ascontiguousarray(reset[:, j : j + 1]) for j in range(reset.shape[1])]
    return lambda: lambda j: graph.power_iteration(columns[j], N_ITER)


def _igraph(graph: Graph, reset: Any) -> Callable[[], One]:
    def prepare() -> One:
        igraph = _import("igraph")
        first, second, weight = _edges(graph)
        made = igraph.Graph(n=graph.A.shape[0], edges=np.stack([first, second], axis=1))
        made.es["weight"] = weight
        resets = [reset[:, j].tolist() for j in range(reset.shape[1])]
        return lambda j: made.personalized_pagerank(
            directed=False, damping=DAMPING, reset=resets[j], weights="weight",
            implementation="prpack",
        )  # fmt: skip

    return prepare


def _networkx(graph: Graph, reset: Any) -> Callable[[], One]:
    def prepare() -> One:
        networkx = _import("networkx")
        made = networkx.Graph()
        n = graph.A.shape[0]
        made.add_nodes_from(range(n))
        made.add_weighted_edges_from(zip(*(a.tolist() for a in _edges(graph)), strict=True))
        resets = [dict(enumerate(reset[:, j].tolist())) for j in range(reset.shape[1])]

        def run(j: int) -> Any:
            # Its tolerance is per node.
            found = networkx.pagerank(
                made, alpha=DAMPING, personalization=resets[j], tol=TOLERANCE / 10 / n
            )
            return np.fromiter(found.values(), np.float64, n)

        return run

    return prepare


def _scikit_network(graph: Graph, reset: Any) -> Callable[[], One]:
    def prepare() -> One:
        rank = _import("sknetwork.ranking").PageRank
        ranker = rank(damping_factor=DAMPING, solver="piteration", n_iter=N_ITER, tol=0.0)
        A = sp.csr_matrix(graph.A)
        columns = [np.ascontiguousarray(reset[:, j]) for j in range(reset.shape[1])]
        return lambda j: ranker.fit_predict(A, weights=columns[j])

    return prepare


def _edges(graph: Graph) -> tuple[Any, Any, Any]:
    """Each undirected edge once: from, to, weight."""
    A = graph.A.tocoo()
    upper = A.coords[0] < A.coords[1]
    return A.coords[0][upper], A.coords[1][upper], A.data[upper]


# ---- lexical


def lexical(inputs: Inputs, b: int) -> Iterator[Entry]:
    """BM25 over all turns and the ten best of each; ours scores windows and episodes too."""
    words = inputs.lexical
    asked = question_terms(inputs.questions[:b])
    query = words.query(asked)
    known = [sorted({w for w in line if w in words.vocabulary}) for line in asked]
    exact = np.sort(words.exact(query), axis=1)[:, ::-1][:, :K]

    def right(found: Any) -> float:
        distance = float(np.abs(np.asarray(found) - exact).max())
        must(distance < 1e-3, f"scores of the best {K} are off by {distance:.2g}")
        return distance

    scores = words.scores(query)

    def ours() -> Any:
        found = apart(b, lambda part: topk_cpu.topk(scores(part), None, K)[1])
        return np.concatenate(found)

    yield Entry(OURS, b, lambda: ours, right)
    for backend in ("numpy", "numba"):
        yield Entry(f"bm25s retrieve, {backend}", b, _bm25s(words, known, backend), right)


def _bm25s(words: Lexical, asked: list[list[str]], backend: str) -> Callable[[], Run]:
    def prepare() -> Run:
        bm25s = _import("bm25s")
        index = bm25s.BM25(method="lucene", k1=K1, b=B, backend=backend)
        ids = [[words.vocabulary[w] for w in line] for line in words.lines]
        index.index((ids, words.vocabulary), show_progress=False)
        return lambda: index.retrieve(asked, k=K, show_progress=False, n_threads=0).scores

    return prepare


# ---- dense


def dense(inputs: Inputs, b: int) -> Iterator[Entry]:
    """The ten turns most similar to each question."""
    vectors, asked = inputs.vectors, inputs.asked(b)
    exact = np.sort(asked.astype(np.float64) @ vectors.astype(np.float64).T, axis=1)
    exact = exact[:, ::-1][:, :K]

    def right(found: Any) -> float:
        distance = float(np.abs(np.asarray(found, np.float64) - exact).max())
        must(distance < 1e-3, f"scores of the best {K} are off by {distance:.2g}")
        return distance

    search = dense_topk(inputs)
    yield Entry(OURS, b, lambda: lambda: search(asked, K)[1], right)
    for n in sorted({1, threads()}):
        name = f"FAISS flat, {n} thread{'s' * (n > 1)}"
        yield Entry(name, b, _faiss(vectors, asked, n), right)
    for kind in (np.float32, np.float16):
        name = f"usearch exact, {np.dtype(kind).name}"
        yield Entry(name, b, _usearch(vectors, asked, kind), right)
    yield Entry("NumPy product and partition", b, _numpy_topk(vectors, asked), right)


def _faiss(vectors: Any, asked: Any, n_threads: int) -> Callable[[], Run]:
    def prepare() -> Run:
        faiss = _import("faiss")
        index = faiss.IndexFlatIP(vectors.shape[1])
        index.add(vectors)

        def run() -> Any:
            faiss.omp_set_num_threads(n_threads)
            return index.search(asked, K)[0]

        return run

    return prepare


def _usearch(vectors: Any, asked: Any, kind: Any) -> Callable[[], Run]:
    def prepare() -> Run:
        usearch = _import("usearch.index")
        rows, queries = vectors.astype(kind), asked.astype(kind)
        return lambda: (
            1.0 - np.atleast_2d(usearch.search(
                rows, queries, K, usearch.MetricKind.IP, exact=True, threads=threads()
            ).distances)
        )  # fmt: skip

    return prepare


def _numpy_topk(vectors: Any, asked: Any) -> Callable[[], Run]:
    def run() -> Any:
        scores = asked @ vectors.T
        best = np.partition(scores, scores.shape[1] - K, axis=1)[:, -K:]
        return np.sort(best, axis=1)[:, ::-1]

    return lambda: run


# ---- whole retrieval


def retrieval(whole: Whole, b: int) -> Iterator[Entry]:
    """Eq. 8-15 without encoding, b questions, beside the plain form asked one by one."""
    few = min(b, 16)
    turns = _Turns(few)

    def right(found: Any) -> float:
        return exempted(found[:few], whole.reference(slice(0, few)))

    def plain() -> Any:
        at = turns.next()
        return whole.reference(slice(at, at + 1))

    yield Entry(OURS, b, lambda: lambda: whole.retrieve(slice(0, b)), right)
    yield Entry(PLAIN, 1, lambda: plain, lambda found: 0.0)


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Missing(f"{name.partition('.')[0]} is not installed ({error})") from error
