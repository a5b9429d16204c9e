"""What the forms of ``ppr`` share: the result and the checks."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from zeromem.errors import InvalidInputError
from zeromem.kernels._check import as_array, check_csr, check_range, check_shape


class PPRResult(NamedTuple):
    """Stationary scores, and how far the iteration came.

    Attributes
    ----------
    scores : (n_nodes, b) float32
    n_iter : int
    residual : float
        The largest L1 change of a column in the last iteration.
    """

    scores: Any
    n_iter: int
    residual: float


def checked(
    xp: Any,
    indptr: Any,
    indices: Any,
    data: Any,
    dangling: Any,
    reset: Any,
    damping: float,
    n_iter: int,
) -> tuple[Any, Any, Any, Any, Any]:
    """Return the five arrays in the kernel's types, or raise InvalidInputError."""
    indptr = as_array(indptr, "indptr", np.int64, 1, xp)
    indices = as_array(indices, "indices", np.int32, 1, xp)
    data = as_array(data, "data", np.float32, 1, xp)
    dangling = as_array(dangling, "dangling", np.bool_, 1, xp)
    reset = as_array(reset, "reset", np.float32, 2, xp)
    n_nodes = len(reset)
    check_csr(indptr, indices, name="PT", shape=(n_nodes, n_nodes), data=data)
    check_shape(dangling, "dangling", (n_nodes,))
    if not 0 <= damping < 1:
        raise InvalidInputError(
            f"damping must be in [0, 1), got {damping!r}; 0.6 is the paper's value"
        )
    check_range(n_iter, "n_iter", 1, 1_000_000)
    if reset.size:
        sums = reset.sum(axis=0, dtype=np.float64)
        wrong = ~((abs(sums - 1) < 1e-3) | (sums == 0)) | (reset.min(axis=0) < 0)
        if bool(wrong.any()):
            column = int(wrong.argmax())
            raise InvalidInputError(
                "reset must be non-negative and each column must sum to 1 (or be all zero), "
                f"got sum {float(sums[column]):g} in column {column}"
            )
    return indptr, indices, data, dangling, reset
