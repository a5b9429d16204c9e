"""Weighted means of consecutive vectors: windows and episodes from their turns."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from zeromem.kernels._check import as_array, check_shape
from zeromem.kernels._numba import F32_1, F32_2, I32_2, OUT_F32_2, VOID, kernel
from zeromem.kernels._spans import check_spans


@kernel(VOID(F32_2, F32_1, I32_2, OUT_F32_2))
def _pool(vectors, weights, spans, out):
    dim = vectors.shape[1]
    total = np.empty(dim, np.float64)
    for m in range(len(spans)):
        total[:] = 0.0
        for i in range(spans[m, 0], spans[m, 1]):
            weight = np.float64(weights[i])
            for c in range(dim):
                total[c] += weight * vectors[i, c]
        squares = 0.0
        for c in range(dim):
            squares += total[c] * total[c]
        # The division by the sum of the weights cancels in the normalisation.
        scale = 1.0 / np.sqrt(squares) if squares > 0.0 else 0.0
        for c in range(dim):
            out[m, c] = total[c] * scale


def pool(
    vectors: NDArray[np.float32], weights: NDArray[np.float32], spans: NDArray[np.int32]
) -> NDArray[np.float32]:
    """Return the weighted mean of each span's vectors, scaled to unit norm.

    Parameters
    ----------
    vectors : (n, dim) float32
        Need not be normalised.
    weights : (n,) float32, non-negative
        Tokens of each row.
    spans : (m, 2) int32
        Half-open ranges of rows; they may overlap.

    Returns
    -------
    (m, dim) float32
        A row is zero where its span is empty or all its vectors or weights are zero.

    Raises
    ------
    InvalidInputError
        On other dtypes or shapes, or a span outside the rows.
    """
    vectors = as_array(vectors, "vectors", np.float32, 2)
    weights = as_array(weights, "weights", np.float32, 1)
    spans = as_array(spans, "spans", np.int32, 2)
    check_shape(weights, "weights", (len(vectors),))
    check_spans(spans, len(vectors))
    out = np.empty((len(spans), vectors.shape[1]), np.float32)
    _pool(vectors, weights, spans, out)
    return out
