"""Personalized PageRank (eq. 10) in torch, for a device that CuPy does not reach."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zeromem.kernels import ppr_gpu
from zeromem.kernels._ppr import (
    PPRResult,
    as_arrays,
    chebyshev,
    check_graph,
    check_options,
    check_reset,
)


def ppr(
    previous: NDArray[np.int32],
    mention_indptr: NDArray[np.int64],
    mention_entity: NDArray[np.int32],
    mention_weight: NDArray[np.float32],
    inverse_degree: NDArray[np.float32],
    reset: NDArray[np.float32],
    adjacency_weight: float,
    damping: float,
    tol: float,
    *,
    offsets: NDArray[np.int64] | None = None,
    matrix: tuple[Any, Any] | None = None,
    device: str = "cuda",
) -> PPRResult:
    """Return scores as ``ppr_gpu.ppr`` does, NumPy in and NumPy out, computed on ``device``.

    ``matrix`` is ``on_device(…)`` of the same graph; it is made here where it is not given.
    """
    import torch

    check_options(adjacency_weight, damping, tol)
    graph = (previous, mention_indptr, mention_entity, mention_weight, inverse_degree)
    arrays = as_arrays(np, *graph, offsets)
    reset = check_reset(np, reset, arrays)
    steps = chebyshev(damping, tol, halved=False)
    if matrix is None:
        check_graph(np, arrays)
        matrix = on_device(*graph, adjacency_weight, device=device)
    if not reset.size:
        return PPRResult(reset.copy(), len(steps), 0.0)
    parts, rows = matrix
    on_it = torch.from_numpy(reset).to(device)
    x, before = ppr_gpu.iterate(lambda x: rows @ (parts @ x), on_it, damping, steps)
    scores, residual = ppr_gpu.normalized(np, x.cpu().numpy(), before.cpu().numpy(), arrays)
    return PPRResult(scores, len(steps), residual)


def on_device(
    previous: NDArray[np.int32],
    mention_indptr: NDArray[np.int64],
    mention_entity: NDArray[np.int32],
    mention_weight: NDArray[np.float32],
    inverse_degree: NDArray[np.float32],
    adjacency_weight: float,
    *,
    device: str = "cuda",
) -> tuple[Any, Any]:
    """Return the transition matrix on ``device``: the parts of rows, and the rows of parts."""
    import torch

    graph = (previous, mention_indptr, mention_entity, mention_weight, inverse_degree)
    matrix = ppr_gpu.transition(*graph, adjacency_weight)
    n_parts, n_nodes = len(matrix.part_row), len(inverse_degree)
    ones = np.ones(n_parts, np.float32)

    def csr(indptr: Any, indices: Any, data: Any, shape: tuple[int, int]) -> Any:
        rows, columns = torch.from_numpy(indptr), torch.from_numpy(indices.astype(np.int64))
        values = torch.from_numpy(data)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
            made = torch.sparse_csr_tensor(rows, columns, values, shape, check_invariants=False)
        return made.to(device)

    return (
        csr(matrix.part_indptr, matrix.indices, matrix.data, (n_parts, n_nodes)),
        csr(matrix.row_parts, np.arange(n_parts), ones, (n_nodes, n_parts)),
    )
