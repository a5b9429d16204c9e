"""Which device runs the kernels: the only place that asks.

A :class:`Backend` takes and returns NumPy arrays, so no stage above it knows where it computes.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import logging
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from zeromem.errors import DeviceError, InvalidInputError

if TYPE_CHECKING:
    from zeromem.kernels._bm25 import Levels, LevelScores
    from zeromem.kernels._evidence import Bounds, Items, Ranked, Turns
    from zeromem.kernels._fuse import Fused
    from zeromem.kernels._views import Asked, Units, Views
    from zeromem.kernels._walked import Hops

Device = Literal["auto", "cpu", "cuda"]
DEVICES: tuple[Device, ...] = ("auto", "cpu", "cuda")
F32 = NDArray[np.float32]
I32 = NDArray[np.int32]
T = TypeVar("T")
R = TypeVar("R")

OPERATIONS = (
    "bm25", "dense", "evidence", "fuse", "lists", "ppr", "propagate", "restart", "titles", "topk",
    "views", "walked",
)  # fmt: skip
# Rows from which one product is worth several threads.
_LARGE = 1 << 15
_log = logging.getLogger(__name__)


class Chunks(Protocol):
    """Vectors in parts: ``zeromem.index.chunks.Chunks``."""

    parts: tuple[NDArray[np.float16], ...]
    addresses: NDArray[np.int64]
    dim: int

    def __len__(self) -> int: ...


class Lists(Protocol):
    """Inverted lists: ``zeromem.index.lists.Lists``."""

    @property
    def kernel_args(self) -> tuple[NDArray[Any], ...]: ...


class Graph(Protocol):
    """The entity-context graph: ``zeromem.index.arrays.Graph``."""

    @property
    def mention_indptr(self) -> NDArray[np.int64]: ...
    @property
    def mention_entity(self) -> I32: ...
    @property
    def mention_weight(self) -> F32: ...
    @property
    def inverse_degree(self) -> F32: ...
    @property
    def sentence_entity_indptr(self) -> NDArray[np.int64]: ...
    @property
    def sentence_entity(self) -> I32: ...
    @property
    def entity_sentences(self) -> Lists: ...


class Walk(Protocol):
    """What is known of some questions before their walk."""

    @property
    def arguments(self) -> tuple[Any, ...]:
        """What :meth:`Backend.ppr` takes."""


def _n_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Thread(threading.local):
    """Whether this thread is one of the pool's: one that waited for others could wait for ever."""

    working = False

    def start(self) -> None:
        self.working = True


_thread = _Thread()


@functools.cache
def _pool(n_threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(n_threads, "zeromem", initializer=_thread.start)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # a fork leaves its threads behind


class Backend:
    """The kernels on the host (Numba). Each method is the kernel of its name, documented there.

    Attributes
    ----------
    device : {"cpu", "cuda"}
    n_threads : int
        Threads that :meth:`map` uses.
    """

    device: Literal["cpu", "cuda"] = "cpu"
    form = "cpu"

    def __init__(self, n_threads: int | None = None) -> None:
        self.n_threads = n_threads or _n_cores()
        # What a kernel makes of a graph once, for as long as that lives.
        self._plans: weakref.WeakKeyDictionary[Graph, Any] = weakref.WeakKeyDictionary()

    def map(self, function: Callable[[T], R], items: Sequence[T]) -> Iterable[R]:
        """Apply ``function`` to each item, on our thread pool where there are several.

        Kernels hold no lock of the interpreter, so threads run side by side.
        """
        if len(items) < 2 or self.n_threads < 2 or _thread.working:
            return map(function, items)
        return _pool(self.n_threads).map(function, items)

    def around_walk(
        self, items: Sequence[T], before: Callable[[T], Walk], after: Callable[[Any, F32], R]
    ) -> list[R]:
        """Return ``after(before(item), pi)`` of each item, with pi from :meth:`ppr` in between.

        On the host an item goes all the way on one thread, while its arrays are in the caches.
        """

        def whole(item: T) -> R:
            walk = before(item)
            return after(walk, self.ppr(*walk.arguments))

        return list(self.map(whole, items))

    def _kernel(self, operation: str, form: str | None = None) -> Any:
        return importlib.import_module(f"zeromem.kernels.{operation}_{form or self.form}")

    def dense(self, vectors: Chunks, queries: F32) -> F32:
        """Inner products (b, n)."""
        if len(vectors) < _LARGE or self.n_threads < 2 or _thread.working:
            scores: F32 = self._kernel("dense").scores(vectors, queries)
        else:  # one core alone does not draw the memory's whole bandwidth
            scores = self._kernel("dense").scores(vectors, queries, _pool(self.n_threads))
        return scores

    def bm25(
        self,
        postings: Lists,
        levels: Levels,
        query_indptr: NDArray[np.int64],
        query_terms: I32,
        query_weights: F32,
        k1: float,
        b: float,
    ) -> LevelScores:
        """Lucene's BM25 of turns, windows and episodes, each (b, n)."""
        query = (query_indptr, query_terms, query_weights)
        scores: LevelScores = self._kernel("bm25").scores(
            postings.kernel_args, levels, *query, k1, b
        )
        return scores

    def propagate(
        self,
        graph: Graph,
        vectors: Chunks,
        inverse_norm: F32,
        queries: F32,
        dots: F32,
        seed_indptr: NDArray[np.int64],
        seed_entity: I32,
        seed_value: F32,
        n_steps: int,
        threshold: float,
        top_sentences: int,
    ) -> F32:
        """Eq. 9, (b, n_entities)."""
        n_entities = len(graph.inverse_degree) - (len(graph.mention_indptr) - 1)
        activation: F32 = self._kernel("propagate").propagate(
            graph.sentence_entity_indptr, graph.sentence_entity,
            graph.entity_sentences.kernel_args, vectors, inverse_norm, queries, dots, seed_indptr,
            seed_entity, seed_value, n_entities, n_steps, threshold, top_sentences,
        )  # fmt: skip
        return activation

    def reach(
        self, graph: Graph, seed_indptr: NDArray[np.int64], seed_entity: I32, n_steps: int
    ) -> NDArray[np.int64]:
        """Bound the sentences that activation gets to, (b,); always on the host."""
        from zeromem.kernels import propagate_cpu

        return propagate_cpu.reach(
            graph.sentence_entity_indptr, graph.sentence_entity,
            graph.entity_sentences.kernel_args, seed_indptr, seed_entity, n_steps,
        )  # fmt: skip

    def restart(
        self,
        prior_rows: I32,
        priors: NDArray[np.float64],
        activation: F32,
        entity_share: float,
        n: int,
    ) -> F32:
        """The reset vectors of eq. 10, (n + n_entities, b); always on the host."""
        reset: F32 = self._kernel("restart").restart(
            prior_rows, priors, activation, entity_share, n
        )
        return reset

    def ppr(
        self,
        graph: Graph,
        previous: I32,
        reset: F32,
        adjacency_weight: float,
        damping: float,
        tol: float,
    ) -> F32:
        """Eq. 10, scores (n + n_entities, b)."""
        arguments = (
            previous, graph.mention_indptr, graph.mention_entity, graph.mention_weight,
            graph.inverse_degree,
        )  # fmt: skip
        kernel = self._kernel("ppr")
        key = (adjacency_weight, damping)
        plans = self._plans.setdefault(graph, {})
        if key not in plans:
            # Two threads may make it at once: the same value twice.
            plans[key] = kernel.prepare(*arguments, *key)
        scores: F32 = kernel.ppr(*arguments, reset, *key, tol, plan=plans[key]).scores
        return scores

    def topk(self, scores: F32, mask: NDArray[np.bool_] | None, k: int) -> tuple[I32, F32]:
        """Best k rows (b, k) and their scores."""
        result: tuple[I32, F32] = self._kernel("topk").topk(scores, mask, k)
        return result

    def views(self, units: Units, asked: Asked, weights: F32, **options: Any) -> Views:
        """The hierarchy view (eq. 11) and context priors; always on the host."""
        found: Views = self._kernel("views").views(units, asked, weights, **options)
        return found

    def walked(
        self,
        pi: F32,
        refine: F32,
        by_dense: NDArray[np.bool_],
        dots: F32,
        inverse_norm: F32,
        masks: NDArray[np.bool_],
        mask_of: I32,
        queries: F32,
        hops: Hops,
        **options: Any,
    ) -> tuple[I32, F32]:
        """The graph view's candidates; always on the host."""
        dense = (by_dense, dots, inverse_norm)
        found: tuple[I32, F32] = self._kernel("walked").walked(
            pi, refine, *dense, masks, mask_of, queries, hops, **options
        )
        return found

    def fuse(
        self,
        graph_indptr: NDArray[np.int64],
        graph_rows: I32,
        graph_scores: F32,
        hier_indptr: NDArray[np.int64],
        hier_rows: I32,
        hier_scores: F32,
        graph_weight: F32,
    ) -> Fused:
        """Eq. 12-13; always on the host."""
        graph = (graph_indptr, graph_rows, graph_scores)
        hier = (hier_indptr, hier_rows, hier_scores)
        result: Fused = self._kernel("fuse").fuse(*graph, *hier, graph_weight)
        return result

    def evidence(
        self,
        turns: Turns,
        ranked: Ranked,
        bounds: Bounds,
        weights: NDArray[np.float64],
        vectors: Chunks,
    ) -> Items:
        """Closure and calibration (eq. 14-15); always on the host."""
        items: Items = self._kernel("evidence").evidence(turns, ranked, bounds, weights, vectors)
        return items


class ReferenceBackend(Backend):
    """The same equations in plain Python and NumPy, float64: the oracle of the compiled kernels."""

    form = "ref"

    def dense(self, vectors: Chunks, queries: F32) -> F32:
        scores: F32 = self._kernel("dense").scores(vectors, queries)
        return scores

    def ppr(
        self,
        graph: Graph,
        previous: I32,
        reset: F32,
        adjacency_weight: float,
        damping: float,
        tol: float,
    ) -> F32:
        result = self._kernel("ppr").ppr(
            previous, graph.mention_indptr, graph.mention_entity, graph.mention_weight,
            graph.inverse_degree, reset, adjacency_weight, damping, tol,
        )  # fmt: skip
        scores: F32 = result.scores
        return scores


def resolve(device: Device = "auto") -> Backend:
    """Return the backend of ``device``; the choice is made and logged once per process.

    Raises
    ------
    InvalidInputError
        For a name that is not one of ``auto``, ``cpu``, ``cuda``.
    DeviceError
        For ``cuda`` where there is none, with the reason.
    """
    if device not in DEVICES:
        raise InvalidInputError(f"device must be one of {', '.join(DEVICES)}, got {device!r}")
    return _resolved(device)


@functools.cache
def _resolved(device: Device) -> Backend:
    if device == "cpu":
        _log.info("device: cpu, as asked")
        return Backend()
    why = "found" if device == "auto" else "as asked"
    problem = driver_problem()
    if problem is None:
        from zeromem import device as on

        problem = cupy_problem()
        if problem is None:
            _log.info("device: cuda (%s)", why)
            return on.on_cupy()
        if torch_problem() is None:
            _log.info("device: cuda (%s), walks alone, in torch: %s", why, problem)
            return on.on_torch()
    if device == "cuda":
        raise DeviceError(f"device='cuda' cannot be used: {problem}; device='cpu' always works")
    _log.info("device: cpu (%s)", problem)
    return Backend()


def driver_problem() -> str | None:
    """Say why the CUDA driver cannot be used; None where it can. Takes microseconds."""
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        driver = ctypes.CDLL(name)
    except OSError:
        return f"no CUDA driver ({name} is not installed)"
    code = driver.cuInit(0)
    if code != 0:
        return f"the CUDA driver does not start (cuInit returned {code})"
    count = ctypes.c_int(0)
    code = driver.cuDeviceGetCount(ctypes.byref(count))
    if code != 0 or count.value == 0:
        return f"the CUDA driver sees no device (cuDeviceGetCount returned {code})"
    return None


def cupy_problem() -> str | None:
    """Say why CuPy cannot compute here; None where it can. Allocates and adds up a real array."""
    try:
        import cupy
        import cupyx.scipy.sparse  # noqa: F401
    except ImportError as error:
        return f"a CUDA driver is there but CuPy is not ({error}): pip install 'zeromem[gpu]'"
    try:
        total = int(cupy.arange(1024, dtype=cupy.int32).sum())
    except Exception as error:  # CuPy raises its own, the runtime's and the compiler's errors
        return f"CuPy {cupy.__version__} cannot compute on the device ({error})"
    return None if total == 523_776 else f"the device adds up wrongly (got {total})"


def torch_problem() -> str | None:
    """Say why torch cannot compute on a device; None where it can. Imports it: a second or more."""
    try:
        import torch

        total = int(torch.arange(1024, device="cuda").sum())
    except Exception as error:  # torch raises its own, the runtime's and AssertionError
        return f"torch cannot compute on the device ({error})"
    return None if total == 523_776 else f"the device adds up wrongly in torch (got {total})"


def warmup() -> Mapping[str, float]:
    """Compile every host kernel, or read it from the cache on disk; return seconds by operation."""
    seconds = {}
    for operation in OPERATIONS:
        started = time.perf_counter()
        # The kernels state their types, so that importing is compiling.
        importlib.import_module(f"zeromem.kernels.{operation}_cpu")
        seconds[operation] = time.perf_counter() - started
    return seconds
