"""Every kernel as a case: ready to run on a synthetic memory's data, with its check and its floor.

Beside ``subjects.py`` the only place in ``bench/`` that knows the kernels' signatures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from floors import WORK, Work
from numpy.typing import NDArray
from subjects import (
    CANDIDATES,
    CPU,
    N_ITER,
    N_SIGNALS,
    TOLERANCE,
    Form,
    Inputs,
    must,
    question_terms,
    relative_l1,
)

Array = NDArray[Any]


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
    **shapes: Any,
) -> Case:
    sizes = {name: value for name, value in shapes.items() if isinstance(value, int)}
    return Case(kernel, n_questions, run, check, WORK[kernel](**shapes), sizes)


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
        n_nodes=len(reset), nnz=graph.A.nnz, b=b, n_iter=N_ITER, places=graph.A.indices,
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
        "propagate", b, lambda: kernel(*held, steps, 0.0, 0), check,
        touched=touched, n_entities=S.shape[1], b=b,
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
