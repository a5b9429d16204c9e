"""What is measured: every kernel on a synthetic memory's own data, checked before it is timed.

The only place in ``bench/`` that knows the kernels' signatures.
"""

from __future__ import annotations

import functools
import importlib
import math
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from synthetic import Question, Synthetic

from zeromem.config import Config
from zeromem.index.chunks import Chunks
from zeromem.index.lists import Lists

Array = NDArray[Any]

_GRAPH = Config().graph
DAMPING, ADJACENCY_WEIGHT, TOL = _GRAPH.damping, _GRAPH.adjacency_weight, _GRAPH.tol
N_ITER = math.ceil(math.log(TOL / 2) / math.log(DAMPING))
"""Power iterations whose error is below the engine's own tolerance."""
K1, B = 1.5, 0.75
CANDIDATES = 200
_PRIORS = 50
# PPR may differ from the float64 oracle by this much, relative L1.
TOLERANCE = 1e-5


def threads() -> int:
    """Cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


@functools.cache
def pool() -> ThreadPoolExecutor:
    """Threads for kernels that take some, one for each core."""
    return ThreadPoolExecutor(threads(), "bench")


def apart(n: int, function: Callable[[slice], Any]) -> list[Any]:
    """Share n questions out among threads, each its own run of them."""
    borders = np.linspace(0, n, min(n, threads()) + 1).astype(int).tolist()
    return list(pool().map(function, [slice(a, z) for a, z in pairwise(borders)]))


class WrongResult(AssertionError):
    """A result that is not the oracle's: it is not timed."""


class Missing(Exception):
    """Something to compare with is not installed; it is named, and left out."""


def must(condition: bool, message: str) -> None:
    """Raise WrongResult unless the condition holds."""
    if not condition:
        raise WrongResult(message)


@dataclass(frozen=True, slots=True)
class Form:
    """Which form of a kernel runs, and how its arrays get there and back.

    Attributes
    ----------
    suffix : {"cpu", "gpu"}
        Of the kernel's module.
    module : module
        NumPy or CuPy.
    put, get : callable
        From a NumPy array to what the kernel takes, and from what it returns to NumPy.
    """

    suffix: str
    module: Any = np
    put: Callable[[Array], Any] = lambda array: array
    get: Callable[[Any], Array] = lambda array: array

    def kernel(self, operation: str, function: str) -> Callable[..., Any]:
        """Return the kernel's function, its array arguments not yet moved."""
        module = importlib.import_module(f"zeromem.kernels.{operation}_{self.suffix}")
        found: Callable[..., Any] = getattr(module, function)
        return found

    def held(self, arrays: Iterable[Any]) -> tuple[Any, ...]:
        """Move arrays to where the kernel reads them; other arguments stay."""
        return tuple(self.put(a) if isinstance(a, np.ndarray) else a for a in arrays)


CPU = Form("cpu")
GPU_ON_NUMPY = Form("gpu")
"""The device's array code with NumPy and SciPy behind it."""


@dataclass(frozen=True, eq=False)
class Graph:
    """The graph of eq. 3, undirected: turns, then entities.

    Attributes
    ----------
    previous : (n,) int32
        The turn before each in its session, -1 for none.
    mentions : (n, m) CSR float32
        Rows sum to 1: eq. 4.
    """

    previous: Array
    mentions: sp.csr_array

    @cached_property
    def A(self) -> sp.csr_array:
        """Weights of both directions, float64."""
        n = len(self.previous)
        at = np.flatnonzero(self.previous >= 0)
        weights = np.full(len(at), ADJACENCY_WEIGHT)
        adjacent = sp.coo_array((weights, (at, self.previous[at])), shape=(n, n))
        B = self.mentions.astype(np.float64)
        A = sp.block_array([[adjacent + adjacent.T, B], [B.T, None]], format="csr")
        A.sort_indices()
        return A

    @cached_property
    def degree(self) -> Array:
        """Sum of each node's weights, float64."""
        return np.asarray(self.A.sum(axis=1)).ravel()

    @cached_property
    def PT(self) -> sp.csr_array:
        """The transposed transition matrix, float64."""
        scale = 1.0 / np.where(self.degree == 0, 1.0, self.degree)
        PT = sp.csr_array(self.A.multiply(scale[None, :]))
        PT.sort_indices()
        return PT

    @cached_property
    def arguments(self) -> tuple[Array, ...]:
        """The graph as the kernel takes it."""
        B = self.mentions
        inverse = np.divide(1.0, self.degree, out=np.zeros_like(self.degree), where=self.degree > 0)
        return (
            self.previous, B.indptr.astype(np.int64), B.indices.astype(np.int32), B.data,
            inverse.astype(np.float32),
        )  # fmt: skip

    def ppr(self, reset: Array, form: Form = CPU) -> Callable[[], Any]:
        """Return our kernel, ready to run: scores, (n + m, b) float32, where the form leaves them.

        The graph, what is made of it once, and the reset vectors lie where the kernel reads them.
        """
        if form.suffix == "cpu":
            from zeromem.kernels import ppr_cpu

            plan = ppr_cpu.prepare(*self.arguments, ADJACENCY_WEIGHT, DAMPING)
            given = (*self.arguments, reset, ADJACENCY_WEIGHT, DAMPING, TOL)
            return lambda: ppr_cpu.ppr(*given, plan=plan, pool=pool()).scores
        from zeromem.kernels import ppr_gpu

        graph = form.held(self.arguments)
        matrix = ppr_gpu.transition(*graph, ADJACENCY_WEIGHT)
        kept: dict[str, Any] = {"matrix": matrix}
        if form.module is not np:
            from zeromem.kernels import _ppr_cuda

            kept = {"loops": _ppr_cuda.Loops(form.module, matrix)}
        given = (*graph, form.put(reset), ADJACENCY_WEIGHT, DAMPING, TOL)
        return lambda: ppr_gpu.ppr(*given, **kept).scores

    def power_iteration(self, reset: Array, n_iter: int) -> Array:
        """Eq. 10 by SciPy in the reset's own precision, dangling mass returned to the reset."""
        PT = self.PT if reset.dtype == np.float64 else self.PT32
        lost = self.degree == 0
        pi = reset
        for _ in range(n_iter):
            back = pi[lost].sum(axis=0)
            pi = DAMPING * (PT @ pi) + (1 - DAMPING + DAMPING * back) * reset
        return pi

    @cached_property
    def PT32(self) -> sp.csr_array:
        return self.PT.astype(np.float32)

    def exact(self, reset: Array) -> Array:
        """The oracle: float64, iterated until nothing changes any more."""
        return self.power_iteration(reset.astype(np.float64), 50)


def relative_l1(found: Array, exact: Array) -> float:
    """Return the largest relative L1 distance of a column from the oracle's."""
    distance = np.abs(np.asarray(found, np.float64) - exact).sum(axis=0)
    return float((distance / np.maximum(np.abs(exact).sum(axis=0), 1e-300)).max())


class Inputs:
    """A memory's arrays as kernels read them, and questions about it.

    Parameters
    ----------
    memory : Synthetic
    questions : list of Question
    """

    def __init__(self, memory: Synthetic, questions: list[Question]) -> None:
        self.memory = memory
        self.questions = questions

    @cached_property
    def graph(self) -> Graph:
        memory = self.memory
        turn, entity = memory.mention_pairs.T
        n, m = memory.n_turns, len(memory.names)
        each = 1.0 / np.bincount(turn, minlength=n)[turn]
        mentions = sp.csr_array((each.astype(np.float32), (turn, entity)), shape=(n, m))
        session = memory.sessions
        previous = np.arange(-1, n - 1, dtype=np.int32)
        previous[np.diff(session, prepend=-1) != 0] = -1
        return Graph(previous, mentions)

    def reset(self, b: int) -> Array:
        """Restart vectors like those of the graph view: 50 turns and the turn's entities."""
        vectors, graph = self.vectors, self.graph
        n, m = graph.mentions.shape
        out = np.zeros((n + m, b), np.float32)
        for j, question in enumerate(self.questions[:b]):
            similar = vectors @ question.vector
            best = np.argpartition(-similar, min(_PRIORS, n - 1))[:_PRIORS]
            prior = np.exp(15 * (similar[best] - similar[best].max()))
            row = slice(*graph.mentions.indptr[question.row : question.row + 2])
            entities = graph.mentions.indices[row]
            share = 0.2 if len(entities) else 0.0
            out[best, j] = (1 - share) * prior / prior.sum()
            out[n + entities, j] = share / max(len(entities), 1)
        return out / out.sum(axis=0, dtype=np.float64).astype(np.float32)

    @cached_property
    def vectors(self) -> Array:
        """Turn vectors, (n, dim) float32."""
        return self.memory.turn_vectors().astype(np.float32)

    @cached_property
    def chunks(self) -> Chunks:
        """The same as the dense kernel takes them."""
        return Chunks.of(self.memory.turn_vectors())

    def asked(self, b: int) -> Array:
        """Vectors of the first b questions."""
        return np.stack([q.vector for q in self.questions[:b]])

    @cached_property
    def lexical(self) -> Lexical:
        return Lexical(self.memory)


class Lexical:
    """Postings of a memory's turns.

    Attributes
    ----------
    vocabulary : dict of str to int
    counts : (n, n_terms) CSR float32
    """

    def __init__(self, memory: Synthetic) -> None:
        self.vocabulary: dict[str, int] = {}
        number = self.vocabulary
        lines = [line.split() for line in memory.terms()]
        ids = np.array(
            [number.setdefault(w, len(number)) for line in lines for w in line], np.int32
        )
        self.lines = lines
        self.lengths = np.array([len(line) for line in lines], np.float32)
        indptr = np.concatenate(([0], np.cumsum(self.lengths, dtype=np.int64)))
        counts = sp.csr_array((np.ones(len(ids), np.float32), ids, indptr),
                              shape=(len(lines), len(number)))  # fmt: skip
        counts.sum_duplicates()
        by_term = counts.tocsc()
        by_term.sort_indices()
        self.indptr = by_term.indptr.astype(np.int64)
        self.rows = by_term.indices.astype(np.int32)
        self.tf = by_term.data.astype(np.float32)
        df = np.diff(self.indptr)
        n = len(lines)
        self.idf = np.log1p((n - df + 0.5) / (df + 0.5)).astype(np.float32)
        self.average = float(self.lengths.mean())

    def query(self, texts: list[list[str]]) -> tuple[Array, Array, Array]:
        """Known terms of each text: (indptr, term, weight)."""
        known = [
            sorted({self.vocabulary[w] for w in line if w in self.vocabulary}) for line in texts
        ]
        indptr = np.concatenate(([0], np.cumsum([len(line) for line in known]))).astype(np.int64)
        term = np.array([t for line in known for t in line], np.int32)
        return indptr, term, np.ones(len(term), np.float32)

    def scores(self, query: tuple[Array, Array, Array]) -> Callable[[slice], Array]:
        """Return our kernel, ready to run on some of the questions: turns' scores, (b, n) float32.

        It scores windows of three turns and episodes of eight beside them, as it always does.
        """
        from zeromem.kernels import bm25_cpu

        n = len(self.lines)
        at = np.arange(n, dtype=np.int32)
        following = at + np.int32(1)
        following[-1] = -1
        window = self.lengths.copy()
        window[1:] += self.lengths[:-1]
        window[:-1] += self.lengths[1:]
        episode_of = at // 8 * 8
        by_episode = np.bincount(episode_of, self.lengths, n).astype(np.float32)
        levels = bm25_cpu.Levels(
            self.lengths, window, by_episode, at - 1, following, episode_of, 1, -(-n // 8)
        )
        csr = self.indptr, self.rows, self.tf
        postings = Lists.sealed(csr, counted=True).kernel_args
        indptr, term, weight = query

        def run(which: slice) -> Array:
            first, last = indptr[which.start], indptr[which.stop]
            asked = indptr[which.start : which.stop + 1] - first
            found = bm25_cpu.scores(
                postings, levels, asked, term[first:last], weight[first:last], K1, B
            )
            return found[0]

        return run

    def exact(self, query: tuple[Array, Array, Array]) -> Array:
        """The oracle, float64, by whole columns."""
        indptr, term, _ = query
        damped = K1 * (1 - B + B * self.lengths.astype(np.float64) / self.average)
        out = np.zeros((len(indptr) - 1, len(self.lengths)))
        for j in range(len(out)):
            for t in term[indptr[j] : indptr[j + 1]]:
                at = slice(self.indptr[t], self.indptr[t + 1])
                tf = self.tf[at].astype(np.float64)
                out[j, self.rows[at]] += float(self.idf[t]) * tf / (tf + damped[self.rows[at]])
        return out


def dense_topk(inputs: Inputs) -> Callable[[Array, int], tuple[Array, Array]]:
    """Return our search: from (b, dim) questions and k to the rows and scores of the best k."""
    from zeromem.kernels import dense_cpu, topk_cpu

    chunks = inputs.chunks

    def search(asked: Array, k: int) -> tuple[Array, Array]:
        if len(asked) < threads():  # rows are shared out, not questions
            return topk_cpu.topk(dense_cpu.scores(chunks, asked, pool()), None, k)
        found = apart(
            len(asked), lambda part: topk_cpu.topk(dense_cpu.scores(chunks, asked[part]), None, k)
        )
        return np.concatenate([f[0] for f in found]), np.concatenate([f[1] for f in found])

    return search


def question_terms(questions: list[Question]) -> list[list[str]]:
    """Words of questions: their own stems, stop words among them, which no memory knows."""
    return [question.text.lower().replace("?", "").split() for question in questions]
