"""Inner products of float16 vectors and queries on a device, and the search for the largest.

The vectors stay on the device as the parts they are. A product of halves runs on the tensor cores
and adds in float32; a float32 query enters as two halves, its rounding and 2048 times what that
leaves over, so the result is a float32 product's while the vectors are read once.

``cupy.matmul`` of halves also adds in float32 but rounds what it returns to a half, hence the call
of cuBLAS below. Where the arrays are NumPy's the same code runs with ``numpy.matmul``; that is
what the tests run. No line of it has run on a device yet.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from zeromem.errors import InvalidInputError
from zeromem.kernels._check import as_array, check_range, check_shape
from zeromem.kernels._namespace import namespace
from zeromem.kernels.topk_gpu import topk

Method = Literal["auto", "product", "brute_force", "cagra"]
METHODS: tuple[Method, ...] = ("auto", "product", "brute_force", "cagra")
CAGRA_ABOVE = 1_000_000  # rows; "auto" searches exactly up to here
MAX_CAGRA_K = 512  # the most candidates that a view takes from a device

_LOW = np.float32(2048.0)  # what a half leaves over of a float32 is 2**11 times smaller
_COLUMNS = 1 << 16  # rows scored before their best are kept: 128 MB of products at 256 queries
_QUERIES = 256
_MARGIN = 32


@dataclass(frozen=True)
class Held:
    """Vectors on a device, as ``Chunks`` are on the host.

    Attributes
    ----------
    parts : tuple of (<= 8192, dim) float16 arrays
        On the device.
    host : tuple of arrays
        The host's parts they are copies of, by which a part is known again.
    dim : int
    """

    parts: tuple[Any, ...]
    host: tuple[Any, ...]
    dim: int

    def __len__(self) -> int:
        return sum(len(part) for part in self.parts)


def put(vectors: Any, xp: Any, known: Held | None = None) -> Held:
    """Return ``vectors`` (Chunks) in ``xp``'s memory; parts that ``known`` has are shared."""
    held = {} if known is None else dict(zip(map(id, known.host), known.parts, strict=True))
    parts = tuple(
        held[id(part)] if id(part) in held else xp.asarray(part) for part in vectors.parts
    )
    return Held(parts, tuple(vectors.parts), vectors.dim)


def scores(vectors: Any, queries: Any) -> Any:
    """Return (b, n) float32 in the namespace of ``queries``; see ``dense_cpu.scores``.

    ``vectors`` is what :func:`put` returns, or Chunks where ``queries`` is NumPy's. A matrix
    product may add in another order for another batch size, so the last bits are not fixed here as
    they are on the CPU: use it to select candidates.
    """
    xp, _ = namespace(queries, *vectors.parts[:1])
    queries = _checked(vectors, queries, xp)
    out = xp.empty((len(queries), len(vectors)), np.float32)
    for first in range(0, len(queries), _QUERIES):
        block = queries[first : first + _QUERIES]
        out[first : first + len(block)] = _products(vectors.parts, block, xp)
    return out


def _checked(vectors: Any, queries: Any, xp: Any) -> Any:
    queries = as_array(queries, "queries", np.float32, 2, xp)
    check_shape(queries, "queries", (len(queries), vectors.dim))
    return queries


def _products(parts: Any, queries: Any, xp: Any) -> Any:
    """Return (b, n) float32 for the rows of some parts."""
    b, n = len(queries), sum(len(part) for part in parts)
    if not queries.size:
        return xp.zeros((b, n), np.float32)
    # A power of two brings the largest element below 1: nothing overflows, and little underflows.
    _, exponent = xp.frexp(xp.abs(queries).max(axis=1, keepdims=True))
    scaled = xp.ldexp(queries, -exponent)
    high = scaled.astype(np.float16)
    low = ((scaled - high.astype(np.float32)) * _LOW).astype(np.float16)
    both = xp.concatenate([high, low])
    out = xp.empty((2 * b, n), np.float32)
    multiply = _multiply_numpy if xp is np else _multiply_cublas
    start = 0
    for part in parts:
        multiply(both, part, out, start)
        start += len(part)
    return xp.ldexp(out[:b] + out[b:] / _LOW, exponent)


def _multiply_numpy(queries: Any, part: Any, out: Any, start: int) -> None:
    rows = part.astype(np.float32)
    np.matmul(queries.astype(np.float32), rows.T, out=out[:, start : start + len(part)])


def _multiply_cublas(queries: Any, part: Any, out: Any, start: int) -> None:
    """Write ``queries @ part.T`` to float32 columns of ``out``: halves in, sums in float32."""
    from cupy.cuda import cublas, device, runtime

    b, dim = queries.shape
    rows, n = len(part), out.shape[1]
    one, zero = np.ones(1, np.float32), np.zeros(1, np.float32)
    # cuBLAS counts by columns, so a C-contiguous matrix is its own transpose there.
    cublas.gemmEx(
        device.get_cublas_handle(), cublas.CUBLAS_OP_T, cublas.CUBLAS_OP_N, rows, b, dim,
        one.ctypes.data, part.data.ptr, runtime.CUDA_R_16F, dim,
        queries.data.ptr, runtime.CUDA_R_16F, dim,
        zero.ctypes.data, out.data.ptr + 4 * start, runtime.CUDA_R_32F, n,
        cublas.CUBLAS_COMPUTE_32F, cublas.CUBLAS_GEMM_DEFAULT,
    )  # fmt: skip


def _best_by_product(vectors: Any, queries: Any, k: int, xp: Any) -> tuple[Any, Any]:
    """Return the exact best, group of parts by group of parts, keeping k of all before."""
    rows = xp.full((len(queries), k), -1, np.int32)
    best = xp.zeros((len(queries), k), np.float32)
    step = max(1, _COLUMNS // 8192)
    start = 0
    for first in range(0, len(vectors.parts), step):
        parts = vectors.parts[first : first + step]
        products = _products(parts, queries, xp)
        n = products.shape[1]
        new_rows, new = topk(products, None, k)
        # Earlier rows stand first, so that a tie goes to the lower row here too.
        both_rows = xp.concatenate([rows, xp.where(new_rows < 0, -1, new_rows + start)], axis=1)
        both = xp.concatenate([best, new], axis=1)
        place, best = topk(xp.where(both_rows < 0, np.float32(np.nan), both), None, k)
        rows = xp.where(place < 0, -1, xp.take_along_axis(both_rows, xp.maximum(place, 0), axis=1))
        rows = rows.astype(np.int32)
        start += n
    return rows, best


class Searcher:
    """Search of one set of vectors for those of the largest inner products.

    Parameters
    ----------
    vectors : Held
    method : {"auto", "product", "brute_force", "cagra"}
        ``product`` is the matrix product above. ``brute_force`` is cuVS's, which knows queries as
        halves only: it proposes candidates, whose products are then taken exactly, and a question
        where a row left out might belong to the best is asked again by ``product``; so the answer
        is exact. ``cagra`` is cuVS's graph, approximate: :meth:`recall` measures it. ``auto`` is
        ``brute_force`` where cuVS is installed, ``cagra`` above :data:`CAGRA_ABOVE` rows, and
        ``product`` without cuVS.
    propose : callable, optional
        ``(queries (b, dim) float16, k) -> (rows (b, k), products (b, k))``, the largest products
        with the halves in any order, in place of cuVS's.

    Attributes
    ----------
    method : str
        The one in use.

    Raises
    ------
    InvalidInputError
        On another name.
    ImportError
        Where cuVS is asked for and not installed.
    """

    def __init__(
        self,
        vectors: Held,
        method: Method = "auto",
        propose: Callable[[Any, int], tuple[Any, Any]] | None = None,
    ) -> None:
        if method not in METHODS:
            raise InvalidInputError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
        self.vectors = vectors
        self._xp, _ = namespace(*vectors.parts[:1])
        self.method = _chosen(len(vectors)) if method == "auto" else method
        self._propose = propose
        if self.method == "product" or not len(vectors):
            return
        xp = self._xp
        self._matrix = xp.concatenate(vectors.parts)
        norms = [xp.linalg.norm(part.astype(np.float32), axis=1).max() for part in vectors.parts]
        self._longest = float(max(float(norm) for norm in norms))
        if propose is None:
            build = _cuvs_cagra if self.method == "cagra" else _cuvs_brute_force
            self._propose = build(self._matrix)

    def search(self, queries: Any, k: int) -> tuple[Any, Any]:
        """Return the rows of the k largest products and these, best first, ties by row.

        Parameters
        ----------
        queries : (b, dim) float32
        k : int
            At least 0; may exceed n. At most 512 for ``cagra``.

        Returns
        -------
        rows : (b, k) int32
            Padded with -1.
        products : (b, k) float32
            Padded with 0.

        Raises
        ------
        InvalidInputError
        """
        xp = self._xp
        queries = _checked(self.vectors, queries, xp)
        check_range(k, "k", 0, MAX_CAGRA_K if self.method == "cagra" else 2**31 - 1)
        rows = xp.full((len(queries), k), -1, np.int32)
        best = xp.zeros((len(queries), k), np.float32)
        if not k or not len(self.vectors):
            return rows, best
        for first in range(0, len(queries), _QUERIES):
            here = slice(first, first + _QUERIES)
            rows[here], best[here] = self._search(queries[here], k)
        return rows, best

    def _search(self, queries: Any, k: int) -> tuple[Any, Any]:
        xp, n = self._xp, len(self.vectors)
        few = min(n, MAX_CAGRA_K if self.method == "cagra" else n, k + _MARGIN)
        if self._propose is None or (self.method == "brute_force" and few == n):
            return _best_by_product(self.vectors, queries, k, xp)
        halves = queries.astype(np.float16)
        proposed, products = (xp.asarray(a) for a in self._propose(halves, few))
        order = xp.argsort(proposed, axis=1, kind="stable")  # so that ties go to the lower row
        proposed = xp.take_along_axis(proposed, order, axis=1).astype(np.int64)
        exact = xp.einsum("bkd,bd->bk", self._matrix[proposed].astype(np.float32), queries)
        place, best = topk(exact.astype(np.float32), None, k)
        rows = xp.take_along_axis(proposed, xp.maximum(place, 0).astype(np.int64), axis=1)
        rows = xp.where(place < 0, -1, rows).astype(np.int32)
        if self.method == "brute_force":
            # No row left out exceeds the least product proposed, nor its exact one this by more
            # than the query's rounding times the longest vector (and float32's own rounding).
            rounding = xp.linalg.norm(queries - halves.astype(np.float32), axis=1)
            rounding = rounding + np.float32(1e-5) * xp.linalg.norm(queries, axis=1)
            limit = products.min(axis=1) + rounding * np.float32(self._longest)
            unsure = ~(best[:, min(k, few) - 1] > limit)  # also where a query holds NaN
            if bool(unsure.any()):
                again = xp.nonzero(unsure)[0]
                rows[again], best[again] = _best_by_product(self.vectors, queries[again], k, xp)
        return rows, best

    def recall(self, queries: Any, k: int) -> float:
        """Return the share of the exact k best that :meth:`search` finds; an equal product counts.

        Runs both searches, so it costs an exact one. 1 where there is nothing to find.
        """
        xp = self._xp
        queries = _checked(self.vectors, queries, xp)
        _, found = self.search(queries, k)
        width = min(k, len(self.vectors))
        if not width or not len(queries):
            return 1.0
        _, exact = _best_by_product(self.vectors, queries, width, xp)
        least = exact[:, -1:]
        hits = (found[:, :width] >= least - xp.abs(least) * np.float32(1e-5)).sum()
        return float(hits) / (len(queries) * width)


def _chosen(n: int) -> Method:
    if importlib.util.find_spec("cuvs") is None:
        return "product"
    return "cagra" if n > CAGRA_ABOVE else "brute_force"


def _cuvs_brute_force(matrix: Any) -> Callable[[Any, int], tuple[Any, Any]]:
    from cuvs.neighbors import brute_force

    index = brute_force.build(matrix, metric="inner_product")

    def propose(queries: Any, k: int) -> tuple[Any, Any]:
        products, rows = brute_force.search(index, queries, k)
        return rows, products

    return propose


def _cuvs_cagra(matrix: Any) -> Callable[[Any, int], tuple[Any, Any]]:
    from cuvs.neighbors import cagra

    index = cagra.build(cagra.IndexParams(metric="inner_product"), matrix)

    def propose(queries: Any, k: int) -> tuple[Any, Any]:
        # Twice the candidates asked for, as a power of two, cost little and raise the recall.
        size = min(MAX_CAGRA_K, 1 << max(6, (2 * k - 1).bit_length()))
        products, rows = cagra.search(cagra.SearchParams(itopk_size=size), index, queries, k)
        return rows, products

    return propose
