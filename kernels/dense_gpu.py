"""Inner products of vectors and queries by one matrix product."""

from __future__ import annotations

from typing import Any

import numpy as np

from zeromem.kernels._check import as_array, check_shape
from zeromem.kernels._namespace import namespace


def scores(vectors: Any, queries: Any) -> Any:
    """Return (b, n) float32 in the namespace of ``vectors``; see ``dense_cpu.scores``.

    A matrix product may add in another order for another batch size, so the last bits are not
    fixed here as they are on the CPU: use it to select candidates.
    """
    xp, _ = namespace(vectors, queries)
    vectors = as_array(vectors, "vectors", np.float32, 2, xp)
    queries = as_array(queries, "queries", np.float32, 2, xp)
    check_shape(queries, "queries", (len(queries), vectors.shape[1]))
    return queries @ vectors.T
