"""The kernels on a device, and what is kept there for as long as the host's arrays live.

Scoring, views and fusion are the host's, by inheritance. On NumPy in a device's place all of this
runs in the tests; it has not run on a device yet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zeromem.backend import F32, I32, Chunks, Graph, Lists
from zeromem.packing import Kept, Pack, PackedBackend

_RESERVE = 2 << 30  # bytes left free for what is worked on: a walk takes most, some 0.8 GB


@dataclass(frozen=True, eq=False)
class _Solver:
    """A pack on the device."""

    arrays: tuple[Any, ...]
    matrix: Any
    packed: Any
    loops: Any


class DeviceBackend(PackedBackend):
    """The kernels as array code on a device. Scoring and fusion stay on the host.

    What many questions read (vectors, graphs, the weights of terms) is moved or made once, and
    kept for as long as the host's arrays live; where the device's memory runs short, what was not
    used for longest goes, and is moved again when it is asked for.

    Parameters
    ----------
    to_device : callable
        Copies a NumPy array to the device (``cupy.asarray``).
    to_host : callable
        Copies a device array to the host (``cupy.asnumpy``).
    free, n_threads
        See :class:`PackedBackend`.
    """

    def __init__(
        self,
        to_device: Callable[[Any], Any],
        to_host: Callable[[Any], NDArray[Any]],
        free: Callable[[], int] | None = None,
        n_threads: int | None = None,
    ) -> None:
        super().__init__(free, n_threads)
        self._to_device = to_device
        self._to_host = to_host
        self._kept = Kept()

    def put(self, array: NDArray[Any]) -> Any:
        """Return the device's copy of an array that never changes, made once."""

        def make() -> Any:
            lacking = array.nbytes + _RESERVE - self._free()
            if lacking > 0:
                self._kept.release(lacking, _n_bytes)
            return self._to_device(array)

        return self._kept.get([array], make)

    def _vectors(self, vectors: Chunks) -> Any:
        """Return vectors on the device: an older value's full parts are there already."""
        from zeromem.kernels.dense_gpu import Held

        return Held(tuple(map(self.put, vectors.parts)), vectors.parts, vectors.dim)

    def dense(self, vectors: Chunks, queries: F32) -> F32:
        scores = self._kernel("dense", "gpu").scores(
            self._vectors(vectors), self._to_device(queries)
        )
        return self._to_host(scores)

    def bm25(
        self,
        postings: Lists,
        levels: Any,
        query_indptr: NDArray[np.int64],
        query_terms: I32,
        query_weights: F32,
        k1: float,
        b: float,
    ) -> Any:
        kernel = self._kernel("bm25", "gpu")
        lists = postings.kernel_args

        def make() -> Any:
            on_device = levels._make(
                self.put(part) if isinstance(part, np.ndarray) else part for part in levels
            )
            return kernel.weights(tuple(map(self.put, lists)), on_device, k1, b)

        # Every value of the lists has heads of its own, and every plan windows of its own.
        weights = self._kept.get([lists[3], levels.window_lengths], make, "bm25", k1, b)
        scores = kernel.asked(weights, query_indptr, query_terms, query_weights)
        return type(scores)(*map(self._to_host, scores))

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
        """Eq. 9, (b, n_entities); ``dots`` are computed again, which is faster than moving them."""
        kernel = self._kernel("propagate", "gpu")
        lists = graph.entity_sentences.kernel_args
        n_entities = len(graph.inverse_degree) - (len(graph.mention_indptr) - 1)

        def make() -> Any:
            return kernel.incidence(
                self.put(graph.sentence_entity_indptr), self.put(graph.sentence_entity),
                tuple(map(self.put, lists)), n_entities,
            )  # fmt: skip

        matrices = self._kept.get([graph], make, "propagate")
        activation = kernel.spread(
            matrices, self._vectors(vectors), self.put(inverse_norm), self._to_device(queries),
            self._to_device(np.zeros((1, 0), np.float32)), seed_indptr, seed_entity, seed_value,
            n_entities, n_steps, threshold, top_sentences,
        )  # fmt: skip
        return self._to_host(activation)

    def topk(self, scores: F32, mask: NDArray[np.bool_] | None, k: int) -> tuple[I32, F32]:
        allowed = None if mask is None else self._to_device(mask)
        rows, best = self._kernel("topk", "gpu").topk(self._to_device(scores), allowed, k)
        return self._to_host(rows), self._to_host(best)

    def _prepare(self, packed: Any, adjacency_weight: float) -> _Solver:
        from zeromem.kernels._namespace import namespace

        arrays = tuple(map(self._to_device, packed[:5]))
        xp, sparse = namespace(*arrays)
        kernel = self._kernel("ppr", "gpu")
        matrix = kernel.transition(*arrays, adjacency_weight)
        memories = kernel.memories(xp, sparse, packed.offsets)
        if xp is np:
            return _Solver(arrays, matrix, memories, None)
        from zeromem.kernels._ppr_cuda import Loops

        return _Solver(arrays, matrix, memories, Loops(xp, matrix))

    def _solve(
        self, pack: Pack, reset: F32, adjacency_weight: float, damping: float, tol: float
    ) -> F32:
        solver: _Solver = pack.solver
        result = self._kernel("ppr", "gpu").ppr(
            *solver.arrays, self._to_device(reset), adjacency_weight, damping, tol,
            offsets=pack.packed.offsets, matrix=solver.matrix, loops=solver.loops,
            packed=solver.packed,
        )  # fmt: skip
        return self._to_host(result.scores)


def _n_bytes(value: Any) -> int:
    """Return the size of what is kept: an array, a sparse matrix, or a tuple of such."""
    if isinstance(value, tuple):
        return sum(map(_n_bytes, value))
    if hasattr(value, "indptr"):
        return _n_bytes((value.data, value.indices, value.indptr))
    return int(getattr(value, "nbytes", 0))


class TorchBackend(PackedBackend):
    """Walks in torch, all else on the host: for a device that CuPy does not reach.

    Parameters
    ----------
    place : str, optional
        The torch device.
    free, n_threads
        See :class:`PackedBackend`.
    """

    def __init__(
        self,
        place: str = "cuda",
        free: Callable[[], int] | None = None,
        n_threads: int | None = None,
    ) -> None:
        super().__init__(free, n_threads)
        self._place = place

    def _prepare(self, packed: Any, adjacency_weight: float) -> Any:
        kernel = self._kernel("ppr", "torch")
        return kernel.on_device(*packed[:5], adjacency_weight, device=self._place)

    def _solve(
        self, pack: Pack, reset: F32, adjacency_weight: float, damping: float, tol: float
    ) -> F32:
        scores: F32 = self._kernel("ppr", "torch").ppr(
            *pack.packed[:5], reset, adjacency_weight, damping, tol, offsets=pack.packed.offsets,
            matrix=pack.solver, device=self._place,
        ).scores  # fmt: skip
        return scores


def on_cupy() -> DeviceBackend:
    """Return the backend of CuPy's current device."""
    import cupy

    pool = cupy.get_default_memory_pool()

    def free() -> int:
        # What the pool holds and does not use is free as well.
        return int(cupy.cuda.Device().mem_info[0]) + int(pool.free_bytes())

    return DeviceBackend(cupy.asarray, cupy.asnumpy, free)


def on_torch() -> TorchBackend:
    """Return the backend of torch's current CUDA device."""
    import torch

    return TorchBackend("cuda", lambda: int(torch.cuda.mem_get_info()[0]))
