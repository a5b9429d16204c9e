"""Fusion of the two views (eq. 12-13)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from zeromem.errors import InvalidInputError
from zeromem.kernels._check import as_array, check_shape
from zeromem.kernels._fuse import Fused
from zeromem.kernels._noise import NOISE
from zeromem.kernels._numba import (
    F32_1,
    I32_1,
    I64,
    I64_1,
    OUT_F32_1,
    OUT_I32_1,
    OUT_I64_1,
    inner,
    kernel,
)


@inner
def _normalize(scores, start, stop, normalized):
    """Eq. 12 over the candidates of one view."""
    if start == stop:
        return
    low = np.float64(scores[start])
    high = low
    for p in range(start, stop):
        low = min(low, np.float64(scores[p]))
        high = max(high, np.float64(scores[p]))
    apart = high - low > NOISE * max(abs(high), abs(low))
    for p in range(start, stop):
        normalized[p] = (scores[p] - low) / (high - low) if apart else 1.0


@kernel(
    I64(
        I64_1,
        I32_1,
        F32_1,
        I64_1,
        I32_1,
        F32_1,
        F32_1,
        OUT_I64_1,
        OUT_I32_1,
        OUT_F32_1,
        OUT_F32_1,
        OUT_F32_1,
    )
)
def _fuse(
    graph_indptr,
    graph_rows,
    graph_scores,
    hier_indptr,
    hier_rows,
    hier_scores,
    graph_weight,
    indptr,
    rows,
    fused,
    graph_normalized,
    hier_normalized,
):
    """Fill the result; return its length, or -1 - j where question j has a row twice in a view."""
    graph = np.empty(len(graph_rows), np.float64)
    hier = np.empty(len(hier_rows), np.float64)
    size = 0
    for j in range(len(graph_weight)):
        g, g_stop = graph_indptr[j], graph_indptr[j + 1]
        h, h_stop = hier_indptr[j], hier_indptr[j + 1]
        _normalize(graph_scores, g, g_stop, graph)
        _normalize(hier_scores, h, h_stop, hier)
        weight = np.float64(graph_weight[j])
        g_order = g + np.argsort(graph_rows[g:g_stop], kind="mergesort")
        h_order = h + np.argsort(hier_rows[h:h_stop], kind="mergesort")
        n_graph, n_hier = len(g_order), len(h_order)
        union = np.empty(n_graph + n_hier, np.int32)
        s_fused = np.empty(n_graph + n_hier, np.float64)
        s_graph = np.zeros(n_graph + n_hier, np.float64)
        s_hier = np.zeros(n_graph + n_hier, np.float64)
        a, b, n = 0, 0, 0
        while a < n_graph or b < n_hier:
            # The merge of two sorted lists; a row of both views joins them.
            take_graph = b == n_hier or (
                a < n_graph and graph_rows[g_order[a]] <= hier_rows[h_order[b]]
            )
            take_hier = a == n_graph or (
                b < n_hier and hier_rows[h_order[b]] <= graph_rows[g_order[a]]
            )
            if take_graph:
                union[n] = graph_rows[g_order[a]]
                s_graph[n] = graph[g_order[a]]
                a += 1
            if take_hier:
                union[n] = hier_rows[h_order[b]]
                s_hier[n] = hier[h_order[b]]
                b += 1
            if n > 0 and union[n] == union[n - 1]:
                return np.int64(-1 - j)
            s_fused[n] = weight * s_graph[n] + (1.0 - weight) * s_hier[n]
            n += 1
        # Rows ascend here, so a stable sort breaks ties by row.
        for i in np.argsort(-s_fused[:n].astype(np.float32), kind="mergesort"):
            rows[size] = union[i]
            fused[size] = s_fused[i]
            graph_normalized[size] = s_graph[i]
            hier_normalized[size] = s_hier[i]
            size += 1
        indptr[j + 1] = size
    return np.int64(size)


def _view(
    name: str, indptr: NDArray[np.int64], rows: NDArray[np.int32], scores: NDArray[np.float32]
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
    indptr = as_array(indptr, f"{name}_indptr", np.int64, 1)
    rows = as_array(rows, f"{name}_rows", np.int32, 1)
    scores = as_array(scores, f"{name}_scores", np.float32, 1)
    check_shape(scores, f"{name}_scores", rows.shape)
    if indptr[0] != 0 or indptr[-1] != len(rows) or bool((np.diff(indptr) < 0).any()):
        raise InvalidInputError(
            f"{name}_indptr must rise from 0 to len({name}_rows) = {len(rows)}, "
            f"got {indptr[0]} to {indptr[-1]}"
        )
    finite = np.isfinite(scores)
    if not finite.all():
        place = int(finite.argmin())
        raise InvalidInputError(
            f"{name}_scores must be finite, got {scores[place]} for row {rows[place]}"
        )
    return indptr, rows, scores


def fuse(
    graph_indptr: NDArray[np.int64],
    graph_rows: NDArray[np.int32],
    graph_scores: NDArray[np.float32],
    hier_indptr: NDArray[np.int64],
    hier_rows: NDArray[np.int32],
    hier_scores: NDArray[np.float32],
    graph_weight: NDArray[np.float32],
) -> Fused:
    """Normalise each view's candidates per question (eq. 12) and add them up (eq. 13).

    Parameters
    ----------
    graph_indptr, graph_rows, graph_scores : (b + 1,) int64, (n_g,) int32, (n_g,) float32
        The candidates of the graph view: those of question j lie in
        ``graph_indptr[j]:graph_indptr[j + 1]``, in any order, each row once.
    hier_indptr, hier_rows, hier_scores
        The same of the hierarchy view.
    graph_weight : (b,) float32
        Rho where the graph view is primary, else 1 - rho; in [0, 1].

    Returns
    -------
    Fused
        Descending by ``fused``, ties by row.

    Raises
    ------
    InvalidInputError
        On shapes that do not fit, scores that are not finite, or a row twice in one view.
    """
    weight = as_array(graph_weight, "graph_weight", np.float32, 1)
    graph = _view("graph", graph_indptr, graph_rows, graph_scores)
    hier = _view("hier", hier_indptr, hier_rows, hier_scores)
    check_shape(graph[0], "graph_indptr", (len(weight) + 1,))
    check_shape(hier[0], "hier_indptr", (len(weight) + 1,))
    if not bool(((weight >= 0) & (weight <= 1)).all()):
        raise InvalidInputError(f"graph_weight must be in [0, 1], got {weight.tolist()}")
    m = len(graph[1]) + len(hier[1])
    indptr = np.zeros(len(weight) + 1, np.int64)
    rows = np.empty(m, np.int32)
    values = [np.empty(m, np.float32) for _ in range(3)]
    size = _fuse(*graph, *hier, weight, indptr, rows, *values)
    if size < 0:
        raise InvalidInputError(
            f"graph_rows and hier_rows must name a row once, question {-1 - size} repeats one"
        )
    return Fused(indptr, rows[:size], *(value[:size] for value in values))
