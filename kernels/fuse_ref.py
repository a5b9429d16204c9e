"""Fusion of the two views (eq. 12-13): the oracle."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from zeromem.kernels._fuse import Fused
from zeromem.kernels._noise import NOISE


def _normalized(rows: NDArray[np.int32], scores: NDArray[np.float32]) -> dict[int, float]:
    """Eq. 12 for the candidates of one view; what is absent has no entry."""
    if not len(scores):
        return {}
    low, high = float(min(scores)), float(max(scores))
    if high - low <= NOISE * max(abs(high), abs(low)):
        return {int(row): 1.0 for row in rows}
    return {
        int(row): (float(score) - low) / (high - low)
        for row, score in zip(rows, scores, strict=True)
    }


def fuse(
    graph_indptr: NDArray[np.int64],
    graph_rows: NDArray[np.int32],
    graph_scores: NDArray[np.float32],
    hier_indptr: NDArray[np.int64],
    hier_rows: NDArray[np.int32],
    hier_scores: NDArray[np.float32],
    graph_weight: NDArray[np.float32],
) -> Fused:
    """Return float64 scores; see ``fuse_cpu.fuse``."""
    indptr = [0]
    lines: list[tuple[int, float, float, float]] = []
    for j, weight in enumerate(np.asarray(graph_weight, dtype=np.float64)):
        g, h = slice(*graph_indptr[j : j + 2]), slice(*hier_indptr[j : j + 2])
        graph = _normalized(graph_rows[g], graph_scores[g])
        hier = _normalized(hier_rows[h], hier_scores[h])
        found = []
        for row in graph.keys() | hier.keys():
            s_g, s_h = graph.get(row, 0.0), hier.get(row, 0.0)
            found.append((row, weight * s_g + (1 - weight) * s_h, s_g, s_h))
        lines += sorted(found, key=lambda line: (-line[1], line[0]))
        indptr.append(len(lines))
    table = np.array(lines, dtype=np.float64).reshape(-1, 4)
    return Fused(np.array(indptr, np.int64), table[:, 0].astype(np.int32), *table[:, 1:].T.copy())
