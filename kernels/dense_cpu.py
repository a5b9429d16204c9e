"""Inner products of vectors and queries, each summed in one fixed order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from zeromem.kernels._check import as_array, check_shape
from zeromem.kernels._numba import F32_2, OUT_F32_2, VOID, kernel

_BLOCK = 32  # rows that stay in the nearest cache while all queries pass over them


# Sums may be reordered by the compiler, which lets it use vector registers. It does so once, for
# every cell alike: the loop below does not know how many queries or rows there are.
@kernel(VOID(F32_2, F32_2, OUT_F32_2), fastmath={"reassoc", "contract"})
def _scores(vectors, queries, out):
    n, dim = vectors.shape
    for start in range(0, n, _BLOCK):
        stop = min(start + _BLOCK, n)
        for j in range(len(queries)):
            for i in range(start, stop):
                total = np.float32(0.0)
                for c in range(dim):
                    total += vectors[i, c] * queries[j, c]
                out[j, i] = total


def scores(vectors: NDArray[np.float32], queries: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the inner product of every query with every vector.

    A cell depends on its own vector and query alone, to the last bit: a question asked alone
    scores as it does in any batch, and a vector scores alike in any segment.

    Parameters
    ----------
    vectors : (n, dim) float32
    queries : (b, dim) float32

    Returns
    -------
    (b, n) float32

    Raises
    ------
    InvalidInputError
        On other dtypes or widths that differ.
    """
    vectors = as_array(vectors, "vectors", np.float32, 2)
    queries = as_array(queries, "queries", np.float32, 2)
    check_shape(queries, "queries", (len(queries), vectors.shape[1]))
    out = np.empty((len(queries), len(vectors)), np.float32)
    _scores(vectors, queries, out)
    return out
