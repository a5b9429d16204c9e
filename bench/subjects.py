"""What is measured: every kernel on a synthetic memory's own data, checked before it is timed.

The only place in ``bench/`` that knows the kernels' signatures.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from floors import WORK, Work
from numpy.typing import NDArray
from synthetic import Question, Synthetic

from zeromem.backend import Device, resolve
from zeromem.config import Config
from zeromem.index import Index
from zeromem.ingest.annotate import RuleAnnotator, entity_names
from zeromem.query.profile import profile
from zeromem.query.retrieve import Options, Timer, retrieve

Array = NDArray[Any]

DAMPING, N_ITER = 0.6, 25
ADJACENCY_WEIGHT = 0.3
K1, B = 1.5, 0.75
CANDIDATES = 200
N_SIGNALS = 6
_PRIORS = 50
# PPR may differ from the float64 oracle by this much, relative L1.
TOLERANCE = 1e-5


def threads() -> int:
    """Cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


class WrongResult(AssertionError):
    """A result that is not the oracle's: it is not timed."""


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
    put, get : callable
        From a NumPy array to what the kernel takes, and from what it returns to NumPy.
    """

    suffix: str
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


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A kernel ready to run.

    Attributes
    ----------
    kernel : str
    b : int
        Questions at once.
    run : callable
        Takes nothing and returns the kernel's result.
    check : callable
        Takes that result and raises AssertionError where it is wrong, WrongResult or NumPy's own.
    work : Work
        For the floor.
    """

    kernel: str
    b: int
    run: Callable[[], Any]
    check: Callable[[Any], None]
    work: Work
    shapes: Mapping[str, int] = field(default_factory=dict)


def _case(
    kernel: str,
    n_questions: int,
    run: Callable[[], Any],
    check: Callable[[Any], None],
    **shapes: int,
) -> Case:
    return Case(kernel, n_questions, run, check, WORK[kernel](**shapes), shapes)


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
        PT = self.PT
        return (
            PT.indptr.astype(np.int64), PT.indices.astype(np.int32), PT.data.astype(np.float32),
            self.degree == 0,
        )  # fmt: skip

    def ppr(self, reset: Array, form: Form = CPU) -> Callable[[], Any]:
        """Return our kernel, ready to run: scores, (n + m, b) float32, where the form leaves them.

        The graph and the reset vectors lie where the kernel reads them.
        """
        kernel = form.kernel("ppr", "ppr")
        arguments = form.held((*self.arguments, reset))
        return lambda: kernel(*arguments, DAMPING, N_ITER).scores

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
        """Turn vectors as the dense kernel takes them."""
        return self.memory.turn_vectors().astype(np.float32)

    def asked(self, b: int) -> Array:
        """Vectors of the first b questions."""
        return np.stack([q.vector for q in self.questions[:b]])

    @cached_property
    def lexical(self) -> Lexical:
        return Lexical(self.memory)

    @cached_property
    def incidence(self) -> sp.csr_array:
        """Sentences × entities, binary."""
        sentence, entity = self.memory.sentence_pairs.T
        shape = (self.memory.n_sentences, len(self.memory.names))
        S = sp.csr_array((np.ones(len(sentence), np.float32), (sentence, entity)), shape=shape)
        S.sort_indices()
        return S


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

    def scores(self, query: tuple[Array, Array, Array], form: Form = CPU) -> Callable[[], Any]:
        """Return our kernel, ready to run: scores, (b, n) float32."""
        kernel = form.kernel("bm25", "scores")
        index = form.held((self.indptr, self.rows, self.tf, self.lengths, self.idf))
        asked = form.held(query)
        return lambda: kernel(*index, *asked, K1, B, self.average)

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

    vectors = inputs.vectors
    return lambda asked, k: topk_cpu.topk(dense_cpu.scores(vectors, asked), None, k)


class Whole:
    """A memory's index, and questions that are ready to be asked: retrieval without encoding.

    Parameters
    ----------
    inputs : Inputs
    config : Config, optional
    device : {"cpu", "cuda"}
    """

    def __init__(
        self, inputs: Inputs, config: Config | None = None, device: Device = "cpu"
    ) -> None:
        memory = inputs.memory
        self._encoder = memory.encoder(inputs.questions)
        index = Index.empty(memory.dim, config or Config(), resolve(device))
        for rows, features in memory.batches():
            index = index.extend(rows, features)
        self.index = index
        texts = [q.text for q in inputs.questions]
        known = index.arrays.names
        named = entity_names(texts, RuleAnnotator().annotate(texts))
        self.profiles = [
            profile(text, known_names=known, query_entities=names)
            for text, names in zip(texts, named, strict=True)
        ]
        self._vectors: dict[str, Array] = {}
        self.retrieve(slice(None))  # every text's vector is known from here on

    def _encode(self, texts: Sequence[str]) -> Array:
        for text in texts:
            if text not in self._vectors:
                self._vectors[text] = self._encoder.encode([text])[0]
        return np.stack([self._vectors[text] for text in texts])

    def retrieve(self, which: slice) -> list[Any]:
        """Answer these questions as one batch."""
        return retrieve(self.index, self.profiles[which], self._encode, Options(), Timer())

    def reference(self, which: slice) -> list[Any]:
        """Answer them one by one by the plain form of the same equations.

        Raises
        ------
        Missing
            Where this zeromem has no ``zeromem/query/reference.py``.
        """
        try:
            from zeromem.query import reference
        except ImportError as error:
            raise Missing("zeromem/query/reference.py is not there") from error
        asked = self.profiles[which]
        return reference.retrieve(self.index, asked, self._encode, Options(), Timer())


class Missing(Exception):
    """Something to compare with is not installed; it is named, and left out."""


def exempted(found: Sequence[Any], exact: Sequence[Any]) -> float:
    """Return the share of items of R(q) that stand elsewhere because their scores are equal.

    Raises
    ------
    WrongResult
        Where an item stands elsewhere although its score is not, to five digits.
    """
    moved = total = 0
    for j, (ours, theirs) in enumerate(zip(found, exact, strict=True)):
        must(len(ours.items) == len(theirs.items), f"question {j} has another number of items")
        for (item, score), (other, right) in zip(ours.items, theirs.items, strict=True):
            close = abs(score - right) <= 1e-5 * max(abs(score), abs(right))
            must(close, f"question {j}: score {score!r} where the oracle has {right!r}")
            moved += item.row != other.row
            total += 1
    must(moved <= 0.05 * total, f"{moved} of {total} items stand elsewhere")
    return moved / max(total, 1)


def question_terms(questions: list[Question]) -> list[list[str]]:
    """Words of questions: their own stems, stop words among them, which no memory knows."""
    return [question.text.lower().replace("?", "").split() for question in questions]


def cases(inputs: Inputs, b: int, form: Form = CPU) -> Iterator[Case]:
    """Yield every kernel that has this form on a memory's data, with b questions at once."""
    for kernel in KERNELS:
        if (b == 1 or kernel != "pool") and (form.suffix == "cpu" or kernel in ON_DEVICE):
            yield case(inputs, kernel, b, form)


def case(inputs: Inputs, kernel: str, b: int, form: Form = CPU) -> Case:
    """Return one kernel on a memory's data, with b questions at once."""
    made = KERNELS[kernel](inputs, b, form)
    return replace(made, check=lambda found: made.check(_fetched(found, form)))


def _fetched(found: Any, form: Form) -> Any:
    """Bring a result to NumPy; one of several arrays is a tuple."""
    if isinstance(found, tuple):
        parts = [form.get(part) for part in found]
        return found._make(parts) if hasattr(found, "_make") else tuple(parts)
    return form.get(found)


def _ppr(inputs: Inputs, b: int, form: Form) -> Case:
    graph, reset = inputs.graph, inputs.reset(b)

    def check(found: Array) -> None:
        distance = relative_l1(found, graph.exact(reset))
        must(distance < TOLERANCE, f"PPR is {distance:.2g} from the oracle")

    return _case(
        "ppr", b, graph.ppr(reset, form), check,
        n_nodes=len(reset), nnz=graph.A.nnz, b=b, n_iter=N_ITER,
    )  # fmt: skip


def _dense(inputs: Inputs, b: int, form: Form) -> Case:
    vectors, asked = inputs.vectors, inputs.asked(b)
    kernel, held = form.kernel("dense", "scores"), form.held((vectors, asked))

    def check(found: Array) -> None:
        np.testing.assert_allclose(found, asked @ vectors.T, atol=1e-4)

    return _case(
        "dense", b, lambda: kernel(*held), check,
        n=len(vectors), dim=vectors.shape[1], b=b,
    )  # fmt: skip


def _bm25(inputs: Inputs, b: int, form: Form) -> Case:
    lexical = inputs.lexical
    query = lexical.query(question_terms(inputs.questions[:b]))

    def check(found: Array) -> None:
        np.testing.assert_allclose(found, lexical.exact(query), rtol=1e-4, atol=1e-4)

    touched = int(np.diff(lexical.indptr)[query[1]].sum())
    return _case(
        "bm25", b, lexical.scores(query, form), check,
        postings=touched, n=len(lexical.lengths), b=b,
    )  # fmt: skip


def _propagate(inputs: Inputs, b: int, form: Form) -> Case:
    S = inputs.incidence
    E = S.T.tocsr()
    E.sort_indices()
    n = inputs.graph.mentions.shape[0]
    seeds = np.ascontiguousarray((inputs.reset(b)[n:] > 0).astype(np.float32))
    rng = np.random.default_rng(0)
    sims = rng.normal(0.1, 0.2, (S.shape[0], b)).astype(np.float32)
    matrices = tuple(
        array.astype(kind) for M in (S, E) for array, kind in
        ((M.indptr, np.int64), (M.indices, np.int32))
    )  # fmt: skip
    steps = 2
    active, touched = seeds.astype(np.float64), 0
    total = active.copy()
    for _ in range(steps):  # eq. 9 as two sparse products
        carried = S @ active
        touched += int(np.diff(E.indptr) @ (active > 0).sum(axis=1))
        touched += int(np.diff(S.indptr) @ (carried > 0).sum(axis=1))
        active = E @ (carried * np.maximum(sims, 0))
        total += active

    def check(found: Array) -> None:
        np.testing.assert_allclose(found, total, rtol=1e-4, atol=1e-5)

    kernel = form.kernel("propagate", "propagate")
    held = form.held((*matrices, seeds, sims))
    return _case(
        "propagate", b, lambda: kernel(*held, steps, 0.0, 0), check, touched=touched, n_entities=S.shape[1], b=b,
    )  # fmt: skip


def _scores(inputs: Inputs, b: int) -> tuple[Array, Array]:
    """Dense scores (b, n), and their best rows (b, k) by a stable sort."""
    scores = np.ascontiguousarray(inputs.asked(b) @ inputs.vectors.T)
    k = min(CANDIDATES, scores.shape[1])
    return scores, np.argsort(-scores, axis=1, kind="stable")[:, :k].astype(np.int32)


def _topk(inputs: Inputs, b: int, form: Form) -> Case:
    scores, order = _scores(inputs, b)
    n, k = scores.shape[1], order.shape[1]
    kernel, held = form.kernel("topk", "topk"), form.held((scores,))

    def same_rows(found: tuple[Array, Array]) -> None:
        must(bool((found[0] == order).all()), "top-k differs from a stable sort")

    return _case("topk", b, lambda: kernel(*held, None, k), same_rows, n=n, b=b, k=k)


def _combine(inputs: Inputs, b: int, form: Form) -> Case:
    kernel = form.kernel("combine", "combine")
    scores, _ = _scores(inputs, b)
    n = scores.shape[1]
    signals = np.stack([np.roll(scores, shift, axis=1) for shift in range(N_SIGNALS)])
    weights = np.linspace(0.5, 1.5, N_SIGNALS).astype(np.float32)
    mask = np.ones((b, n), np.bool_)

    def same_sum(found: Array) -> None:
        low = signals.min(axis=2, keepdims=True).astype(np.float64)
        span = signals.max(axis=2, keepdims=True) - low
        exact = (weights[:, None, None] * (signals - low) / span).sum(axis=0)
        np.testing.assert_allclose(found, exact, rtol=1e-4)

    return _case(
        "combine", b, lambda: kernel(signals, weights, mask), same_sum,
        n_signals=N_SIGNALS, n=n, b=b,
    )  # fmt: skip


def _span_max(inputs: Inputs, b: int, form: Form) -> Case:
    kernel = form.kernel("span_max", "span_max")
    scores, _ = _scores(inputs, b)
    n = scores.shape[1]
    starts = np.maximum(np.arange(n) - 1, 0)
    ends = np.minimum(np.arange(n) + 2, n)

    def same_maxima(found: Array) -> None:
        padded = np.pad(scores, ((0, 0), (1, 1)), constant_values=-np.inf)
        exact = np.maximum(np.maximum(padded[:, :-2], padded[:, 1:-1]), padded[:, 2:])
        must(bool((found == exact).all()), "maxima of spans differ")

    return _case(
        "span_max", b, lambda: kernel(scores, starts, ends), same_maxima,
        n=n, m=n, b=b,
    )  # fmt: skip


def _fuse(inputs: Inputs, b: int, form: Form) -> Case:
    kernel = form.kernel("fuse", "fuse")
    scores, order = _scores(inputs, b)
    k = order.shape[1]
    indptr = np.arange(0, (b + 1) * k, k)
    best = np.take_along_axis(scores, order, axis=1)
    other = np.ascontiguousarray(np.roll(order, 1, axis=0)) if b > 1 else order[:, ::-1].copy()
    rho = np.full(b, 0.6, np.float32)
    views = (indptr, order.ravel(), best.ravel(), indptr, other.ravel(), best.ravel(), rho)

    def same_fusion(found: Any) -> None:
        from zeromem.kernels import fuse_ref

        exact = fuse_ref.fuse(*views)
        must(bool((found.indptr == exact.indptr).all()), "fusion keeps other candidates")
        np.testing.assert_allclose(found.fused, exact.fused, atol=1e-5)

    return _case("fuse", b, lambda: kernel(*views), same_fusion, candidates=2 * b * k)


def _pool(inputs: Inputs, b: int, form: Form) -> Case:
    kernel = form.kernel("pool", "pool")
    vectors = inputs.vectors
    n, dim = vectors.shape
    weights = np.ones(n, np.float32)
    at = np.arange(n)
    spans = np.stack([np.maximum(at - 1, 0), np.minimum(at + 2, n)], axis=1).astype(np.int32)

    def check(found: Array) -> None:
        padded = np.pad(vectors, ((1, 1), (0, 0)))
        total = padded[:-2] + padded[1:-1] + padded[2:]
        cosine = np.einsum("ij,ij->i", found, total) / np.linalg.norm(total, axis=1)
        np.testing.assert_allclose(cosine / np.linalg.norm(found, axis=1), 1.0, atol=1e-4)

    held = form.held((vectors, weights, spans))
    members = int((spans[:, 1] - spans[:, 0]).sum())
    return _case(
        "pool", b, lambda: kernel(*held), check,
        n=n, m=n, dim=dim, members=members,
    )  # fmt: skip


KERNELS: Mapping[str, Callable[[Inputs, int, Form], Case]] = {
    "ppr": _ppr,
    "dense": _dense,
    "bm25": _bm25,
    "propagate": _propagate,
    "topk": _topk,
    "combine": _combine,
    "span_max": _span_max,
    "fuse": _fuse,
    "pool": _pool,
}
"""Every kernel, as a function from a memory's arrays and a number of questions."""
ON_DEVICE = ("ppr", "dense", "bm25", "propagate", "topk", "pool")
"""Those that have a form for a device."""
