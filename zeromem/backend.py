"""Which device runs the kernels: the only place that asks.

A :class:`Backend` takes and returns NumPy arrays, so no stage above it knows where it computes.
Index arrays that many questions read are handed to :meth:`Backend.put` once; what it returns goes
into the kernels' arguments.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import logging
import sys
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from zeromem.errors import DeviceError, InvalidInputError
from zeromem.kernels._fuse import Fused
from zeromem.kernels._ppr import PPRResult

Device = Literal["auto", "cpu", "cuda"]
DEVICES: tuple[Device, ...] = ("auto", "cpu", "cuda")
F32 = NDArray[np.float32]
I32 = NDArray[np.int32]
# What `put` returns: the array itself, or its copy on the device.
Held = Any

OPERATIONS = (
    "bm25", "combine", "dense", "fuse", "lists", "pool", "ppr", "propagate", "span_max",
    "titles", "topk",
)  # fmt: skip
_log = logging.getLogger(__name__)


class Backend:
    """The kernels on the host (Numba). Each method is the kernel of its name, documented there.

    Attributes
    ----------
    device : {"cpu", "cuda"}
    """

    device: Literal["cpu", "cuda"] = "cpu"

    def put(self, array: NDArray[Any]) -> Held:
        """Make ``array`` read-only and return what kernels take in its place.

        On a device that is a copy, made once and kept for as long as ``array`` lives.
        """
        array.flags.writeable = False
        return array

    def dense_scores(self, vectors: Held, queries: F32) -> F32:
        """Inner products (b, n): ``kernels/dense_cpu.py``."""
        from zeromem.kernels import dense_cpu

        scores: F32 = dense_cpu.scores(vectors, queries)
        return scores

    def bm25_scores(
        self,
        indptr: Held,
        rows: Held,
        tf: Held,
        lengths: Held,
        idf: Held,
        query_indptr: NDArray[np.int64],
        query_terms: I32,
        query_weights: F32,
        k1: float,
        b: float,
        avg_length: float,
    ) -> F32:
        """Lucene's BM25 (n_queries, n): ``kernels/bm25_cpu.py``."""
        from zeromem.kernels import bm25_cpu

        query = (query_indptr, query_terms, query_weights)
        scores: F32 = bm25_cpu.scores(indptr, rows, tf, lengths, idf, *query, k1, b, avg_length)
        return scores

    def propagate(
        self,
        S_indptr: Held,
        S_indices: Held,
        E_indptr: Held,
        E_indices: Held,
        seeds: F32,
        sims: F32,
        n_steps: int,
        threshold: float = 0.0,
        top_sentences: int = 0,
    ) -> F32:
        """Eq. 9, (n_entities, b): ``kernels/propagate_cpu.py``."""
        from zeromem.kernels import propagate_cpu

        graph = (S_indptr, S_indices, E_indptr, E_indices)
        activation: F32 = propagate_cpu.propagate(
            *graph, seeds, sims, n_steps, threshold, top_sentences
        )
        return activation

    def ppr(
        self,
        indptr: Held,
        indices: Held,
        data: Held,
        dangling: Held,
        reset: F32,
        damping: float,
        n_iter: int,
    ) -> PPRResult:
        """Eq. 10, scores (n_nodes, b): ``kernels/ppr_cpu.py``."""
        from zeromem.kernels import ppr_cpu

        result: PPRResult = ppr_cpu.ppr(indptr, indices, data, dangling, reset, damping, n_iter)
        return result

    def topk(self, scores: F32, mask: NDArray[np.bool_] | None, k: int) -> tuple[I32, F32]:
        """Best k rows (b, k) and their scores: ``kernels/topk_cpu.py``."""
        from zeromem.kernels import topk_cpu

        result: tuple[I32, F32] = topk_cpu.topk(scores, mask, k)
        return result

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
        """Eq. 12-13, always on the host: ``kernels/fuse_cpu.py``."""
        from zeromem.kernels import fuse_cpu

        graph = (graph_indptr, graph_rows, graph_scores)
        hier = (hier_indptr, hier_rows, hier_scores)
        result: Fused = fuse_cpu.fuse(*graph, *hier, graph_weight)
        return result

    def combine(self, signals: F32, weights: F32, mask: NDArray[np.bool_]) -> F32:
        """Weighted sums of normalised signals (b, n), on the host: ``kernels/combine_cpu.py``."""
        from zeromem.kernels import combine_cpu

        combined: F32 = combine_cpu.combine(signals, weights, mask)
        return combined

    def span_max(self, scores: F32, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> F32:
        """Maxima of ranges of columns (b, m), on the host: ``kernels/span_max_cpu.py``."""
        from zeromem.kernels import span_max_cpu

        best: F32 = span_max_cpu.span_max(scores, starts, ends)
        return best

    def pool(self, vectors: Held, weights: Held, spans: I32) -> F32:
        """Weighted means of spans (m, dim): ``kernels/pool_cpu.py``."""
        from zeromem.kernels import pool_cpu

        pooled: F32 = pool_cpu.pool(vectors, weights, spans)
        return pooled


class DeviceBackend(Backend):
    """The kernels as array code on a device. Scoring and fusion stay on the host.

    Parameters
    ----------
    to_device : callable
        Copies a NumPy array to the device (``cupy.asarray``).
    to_host : callable
        Copies a device array to the host (``cupy.asnumpy``).
    """

    device = "cuda"

    def __init__(
        self, to_device: Callable[[Any], Any], to_host: Callable[[Any], NDArray[Any]]
    ) -> None:
        self._to_device = to_device
        self._to_host = to_host
        # By identity; the entry goes when the host's array does.
        self._held: dict[int, tuple[weakref.ref[NDArray[Any]], Any]] = {}

    def put(self, array: NDArray[Any]) -> Held:
        key = id(array)
        if key not in self._held:
            super().put(array)
            forget = functools.partial(_forget, self._held, key)
            self._held[key] = (weakref.ref(array, forget), self._to_device(array))
        return self._held[key][1]

    def _run(self, operation: str, function: str, *arguments: Any) -> Any:
        """Call the device form with every array argument on the device."""
        kernel = importlib.import_module(f"zeromem.kernels.{operation}_gpu")
        moved = []
        for argument in arguments:
            if isinstance(argument, np.ndarray):
                held = self._held.get(id(argument))
                argument = self._to_device(argument) if held is None else held[1]
            moved.append(argument)
        return getattr(kernel, function)(*moved)

    def dense_scores(self, vectors: Held, queries: F32) -> F32:
        return self._to_host(self._run("dense", "scores", vectors, queries))

    def bm25_scores(
        self,
        indptr: Held,
        rows: Held,
        tf: Held,
        lengths: Held,
        idf: Held,
        query_indptr: NDArray[np.int64],
        query_terms: I32,
        query_weights: F32,
        k1: float,
        b: float,
        avg_length: float,
    ) -> F32:
        index = (indptr, rows, tf, lengths, idf)
        query = (query_indptr, query_terms, query_weights)
        return self._to_host(self._run("bm25", "scores", *index, *query, k1, b, avg_length))

    def propagate(
        self,
        S_indptr: Held,
        S_indices: Held,
        E_indptr: Held,
        E_indices: Held,
        seeds: F32,
        sims: F32,
        n_steps: int,
        threshold: float = 0.0,
        top_sentences: int = 0,
    ) -> F32:
        graph = (S_indptr, S_indices, E_indptr, E_indices)
        limits = (n_steps, threshold, top_sentences)
        return self._to_host(self._run("propagate", "propagate", *graph, seeds, sims, *limits))

    def ppr(
        self,
        indptr: Held,
        indices: Held,
        data: Held,
        dangling: Held,
        reset: F32,
        damping: float,
        n_iter: int,
    ) -> PPRResult:
        graph = (indptr, indices, data, dangling)
        result = self._run("ppr", "ppr", *graph, reset, damping, n_iter)
        on_host: PPRResult = result._replace(scores=self._to_host(result.scores))
        return on_host

    def topk(self, scores: F32, mask: NDArray[np.bool_] | None, k: int) -> tuple[I32, F32]:
        rows, best = self._run("topk", "topk", scores, mask, k)
        return self._to_host(rows), self._to_host(best)

    def pool(self, vectors: Held, weights: Held, spans: I32) -> F32:
        return self._to_host(self._run("pool", "pool", vectors, weights, spans))


def _forget(held: dict[int, Any], key: int, _: Any) -> None:
    held.pop(key, None)


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
    problem = driver_problem() or cupy_problem()
    if problem is None:
        _log.info("device: cuda (%s)", "found" if device == "auto" else "as asked")
        import cupy

        return DeviceBackend(cupy.asarray, cupy.asnumpy)
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


def warmup() -> Mapping[str, float]:
    """Compile every host kernel, or read it from the cache on disk; return seconds by operation."""
    seconds = {}
    for operation in OPERATIONS:
        started = time.perf_counter()
        # The kernels state their types, so that importing is compiling.
        importlib.import_module(f"zeromem.kernels.{operation}_cpu")
        seconds[operation] = time.perf_counter() - started
    return seconds
