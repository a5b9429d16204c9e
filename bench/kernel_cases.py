"""Every kernel as a case: ready to run on what a query hands it, with its check and its floor.

A backend that records is put under a real query; what it saw is replayed. So a kernel is timed on
the arrays of a memory and on the intermediate results of real questions, whatever its signature.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import floors
import numpy as np
import scipy.sparse as sp
from floors import LINE, Floor, Rates, Work
from numpy.typing import NDArray
from subjects import (
    ADJACENCY_WEIGHT,
    DAMPING,
    TOL,
    TOLERANCE,
    Form,
    Inputs,
    must,
    relative_l1,
)
from whole import Whole

from zeromem.backend import Backend, ReferenceBackend

Array = NDArray[Any]
Call = tuple[tuple[Any, ...], dict[str, Any]]

KERNELS = (
    "dense", "bm25", "propagate", "restart", "ppr", "views", "walked", "fuse", "evidence", "topk",
)  # fmt: skip
"""Operations of the backend, in the order in which a query calls them; ``topk`` is called for names
that the memory does not know."""


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A kernel ready to run.

    Attributes
    ----------
    kernel : str
    b : int
        Questions that ``run`` serves.
    run : callable
        Takes nothing and returns the kernel's results.
    check : callable
        Takes that and raises AssertionError where it is wrong, WrongResult or NumPy's own.
    works : tuple of Work
        Of each call; None for a kernel without a floor.
    """

    kernel: str
    b: int
    run: Callable[[], Any]
    check: Callable[[Any], None]
    works: tuple[Work, ...]

    def floor(self, rates: Rates) -> Floor:
        """Return the least time of all calls; what sets most of it is what sets it."""
        found = [floors.floor(work, rates) for work in self.works]
        most = max(found, key=lambda least: least.seconds)
        return Floor(sum(least.seconds for least in found), most.bound)


class Recording(Backend):
    """The host's kernels on one thread; keeps what they are given."""

    def __init__(self) -> None:
        super().__init__(1)
        self.calls: dict[str, list[Call]] = {name: [] for name in KERNELS}


def _recorded(name: str) -> Callable[..., Any]:
    plain = getattr(Backend, name)

    def method(self: Recording, *arguments: Any, **options: Any) -> Any:
        self.calls[name].append((arguments, options))
        return plain(self, *arguments, **options)

    return method


for _name in KERNELS:
    setattr(Recording, _name, _recorded(_name))


class Cases:
    """The kernels of one memory.

    Parameters
    ----------
    inputs : Inputs
    """

    def __init__(self, inputs: Inputs) -> None:
        self._backend = Recording()
        self._whole = Whole(inputs, backend=self._backend)
        self._seen: dict[int, dict[str, list[Call]]] = {}

    def _calls(self, b: int) -> dict[str, list[Call]]:
        """What a batch of b questions calls; plans and other things made once are there before."""
        if b not in self._seen:
            self._backend.calls = {name: [] for name in KERNELS}
            self._whole.retrieve(slice(0, b))
            self._seen[b] = self._backend.calls
        return self._seen[b]

    def case(self, kernel: str, b: int, backend: Backend | None = None) -> Case | None:
        """Return one kernel with b questions at once; None where they do not need it.

        Parameters
        ----------
        kernel : str
        b : int
        backend : Backend, optional
            Whose kernel runs; the host's on one thread without it.
        """
        calls = self._calls(b)[kernel]
        if not calls:
            return None
        ours = backend or Backend(1)
        method = getattr(ours, kernel)
        oracle = getattr(ReferenceBackend(1), kernel)
        (given, options) = self._calls(1).get(kernel, calls)[0] if b == 1 else calls[0]

        def check(found: list[Any]) -> None:
            _same(kernel, found[0], oracle(*given, **options))

        works = tuple(_WORK[kernel](*a, **o) for a, o in calls)
        return Case(kernel, b, lambda: [method(*a, **o) for a, o in calls], check, works)

    def all(self, b: int) -> Iterator[Case]:
        """Yield every kernel that b questions need."""
        for kernel in KERNELS:
            found = self.case(kernel, b)
            if found is not None:
                yield found


def _same(kernel: str, found: Any, exact: Any, name: str = "") -> None:
    """Compare results array by array: values to four digits, rows but for a few near ties."""
    where = f"{kernel} {name}".strip()
    if kernel == "ppr":
        distance = relative_l1(found, exact)
        must(distance < TOLERANCE, f"PPR is {distance:.2g} from the oracle")
    elif isinstance(found, tuple):
        names = getattr(found, "_fields", [str(i) for i in range(len(found))])
        for part, ours, theirs in zip(names, found, exact, strict=True):
            _same(kernel, ours, theirs, part)
    elif found.dtype.kind == "f":
        np.testing.assert_allclose(found, exact, rtol=1e-3, atol=1e-4, err_msg=where)
    else:
        must(found.shape == exact.shape, f"{where} has shape {found.shape}, not {exact.shape}")
        differ = np.count_nonzero(found != exact)
        must(differ <= 0.05 * found.size, f"{where}: {differ} of {found.size} differ")


# ---- what each kernel cannot do without


def _ppr(graph: Any, previous: Any, reset: Any, *options: float) -> Work:
    matrix = (
        previous, graph.mention_indptr, graph.mention_entity, graph.mention_weight,
        graph.inverse_degree,
    )  # fmt: skip
    return ppr_work(matrix, reset.shape[1], *options)


def ppr_work(
    matrix: tuple[Array, ...],
    b: int,
    weight: float = ADJACENCY_WEIGHT,
    damping: float = DAMPING,
    tol: float = TOL,
) -> Work:
    """Count Chebyshev steps over the entities that two turns at least mention.

    Parameters
    ----------
    matrix : tuple of arrays
        The graph as ``ppr_cpu.ppr`` takes it.
    b : int
        Questions.
    weight, damping, tol
        Of ``ppr_cpu.ppr``.
    """
    from zeromem.kernels._ppr import chebyshev

    n_steps = len(chebyshev(damping, tol, halved=True))
    n, m = len(matrix[0]), len(matrix[4]) - len(matrix[0])
    turn, entity = np.repeat(np.arange(n), np.diff(matrix[1])), matrix[2]
    shared = np.bincount(entity, minlength=m) > 1
    kept = shared[entity]
    nnz, k = int(kept.sum()), int(shared.sum())
    number = np.cumsum(shared) - 1
    by_entity = turn[kept][np.argsort(entity[kept], kind="stable")]
    lines = max(1, b * 4 // LINE)
    # The reset vectors in, the scores out.
    once = sum(part.nbytes for part in matrix) + 8.0 * len(matrix[4]) * b
    return Work(
        dram=once,
        again=n_steps * (16.0 * nnz + 12.0 * n * b),
        working_set=once,
        # A step fetches an entity for each mention of a turn, and a turn for each of an entity.
        gathered=2.0 * n_steps * nnz * lines,
        table=n * min(4.0 * b, 4.0 * LINE),
        run=min(lines, 4),
        places=np.concatenate([number[entity[kept]], by_entity]) // max(1, LINE // 4 // b),
        operations=b * (4.0 * n_steps * nnz + 5.0 * (n_steps + 1) * n + 5.0 * n_steps * k),
    )


def _dense(vectors: Any, queries: Any) -> Work:
    return floors.dense(n=len(vectors), dim=vectors.dim, b=len(queries))


def _bm25(postings: Any, levels: Any, indptr: Any, terms: Any, *_: Any) -> Work:
    starts = postings.csr()[0]
    known = terms[terms < len(starts) - 1]
    touched = int((starts[known + 1] - starts[known]).sum())
    return floors.bm25(
        postings=touched * (2 * levels.radius + 3), n=len(levels.lengths), b=len(indptr) - 1
    )


def _propagate(graph: Any, vectors: Any, norm: Any, queries: Any, dots: Any, indptr: Any,
               entity: Any, value: Any, n_steps: int, *_: Any) -> Work:  # fmt: skip
    """Entries of the two incidence matrices that carry activation, over all steps."""
    m = len(graph.inverse_degree) - len(graph.mention_indptr) + 1
    sentence_indptr, sentence_entity = graph.sentence_entity_indptr, graph.sentence_entity
    shape = (len(sentence_indptr) - 1, m)
    S = sp.csr_array((np.ones(len(sentence_entity)), sentence_entity, sentence_indptr), shape=shape)
    E = S.T.tocsr()
    active = sp.csr_array((value, entity, indptr), shape=(len(indptr) - 1, m)).T.tocsr()
    touched = 0.0
    for _step in range(n_steps):
        carried = S @ active
        touched += float(np.diff(E.indptr) @ (active > 0).sum(axis=1).ravel())
        touched += float(np.diff(S.indptr) @ (carried > 0).sum(axis=1).ravel())
        active = E @ carried
    return floors.propagate(touched=int(touched), n_entities=m, b=len(queries))


def _restart(rows: Any, priors: Any, activation: Any, share: float, n: int) -> Work:
    return Work(dram=4.0 * activation.size + 12.0 * rows.size, operations=2.0 * activation.size)


def _views(units: Any, asked: Any, weights: Any, **options: Any) -> Work:
    """Four signals per turn in, the refinement out; a signal is seen for its range and its sum."""
    b, n = asked.dots.shape
    used = float((weights != 0).sum())
    return Work(dram=4.0 * 5 * n * b, operations=2.0 * used * n * b)


def _walked(pi: Any, refine: Any, *_: Any, **options: Any) -> Work:
    return Work(dram=8.0 * refine.size, operations=3.0 * refine.size)


def _fuse(*views: Any) -> Work:
    return floors.fuse(candidates=len(views[1]) + len(views[4]))


def _evidence(turns: Any, ranked: Any, bounds: Any, weights: Any, vectors: Any) -> Work:
    items = float(np.minimum(np.diff(ranked.indptr), bounds.main).sum())
    return Work(dram=16.0 * len(ranked.rows), operations=items * bounds.neighbors)


def _topk(scores: Any, mask: Any, k: int) -> Work:
    return floors.topk(n=scores.shape[1], b=len(scores), k=k)


_WORK: Mapping[str, Callable[..., Work]] = {
    "dense": _dense, "bm25": _bm25, "propagate": _propagate, "restart": _restart, "ppr": _ppr,
    "views": _views, "walked": _walked, "fuse": _fuse, "evidence": _evidence, "topk": _topk,
}  # fmt: skip


# ---- array code for a device, on its own data


ON_DEVICE = ("ppr", "dense", "topk")
"""Kernels that are timed alone on a device, their arrays already there."""


def device_case(inputs: Inputs, kernel: str, b: int, form: Form) -> Case:
    """Return a kernel of a device on arrays that lie there."""
    return {"ppr": _device_ppr, "dense": _device_dense, "topk": _device_topk}[kernel](
        inputs, b, form
    )


def _device_ppr(inputs: Inputs, b: int, form: Form) -> Case:
    from zeromem.kernels._ppr import chebyshev

    graph, reset = inputs.graph, inputs.reset(b)

    def check(found: Any) -> None:
        distance = relative_l1(form.get(found), graph.exact(reset))
        must(distance < TOLERANCE, f"PPR is {distance:.2g} from the oracle")

    work = floors.ppr(
        n_nodes=len(reset), nnz=graph.A.nnz, b=b,
        n_iter=len(chebyshev(DAMPING, TOL, halved=False)),
    )  # fmt: skip
    return Case("ppr", b, graph.ppr(reset, form), check, (work,))


def _device_dense(inputs: Inputs, b: int, form: Form) -> Case:
    from zeromem.kernels import dense_gpu

    asked = inputs.asked(b)
    held, queries = dense_gpu.put(inputs.chunks, form.module), form.put(asked)

    def check(found: Any) -> None:
        np.testing.assert_allclose(form.get(found), asked @ inputs.vectors.T, atol=1e-3)

    work = floors.dense(n=len(inputs.vectors), dim=inputs.vectors.shape[1], b=b)
    return Case("dense", b, lambda: dense_gpu.scores(held, queries), check, (work,))


def _device_topk(inputs: Inputs, b: int, form: Form, k: int = 200) -> Case:
    from zeromem.kernels import topk_gpu

    scores = np.ascontiguousarray(inputs.asked(b) @ inputs.vectors.T)
    k = min(k, scores.shape[1])
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    held = form.put(scores)

    def check(found: Any) -> None:
        must(bool((form.get(found[0]) == order).all()), "top-k differs from a stable sort")

    work = floors.topk(n=scores.shape[1], b=b, k=k)
    return Case("topk", b, lambda: topk_gpu.topk(held, None, k), check, (work,))
