"""Propagation of entity activation through shared sentences (eq. 9): the oracle."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def propagate(
    S_indptr: NDArray[np.int64],
    S_indices: NDArray[np.int32],
    E_indptr: NDArray[np.int64],
    E_indices: NDArray[np.int32],
    seeds: NDArray[np.float32],
    sims: NDArray[np.float32],
    n_steps: int,
    threshold: float,
    top_sentences: int,
) -> NDArray[np.float64]:
    """Return (n_entities, b) float64; see ``propagate_cpu.propagate``."""
    total = np.array(seeds, dtype=np.float64)
    for j in range(total.shape[1]):
        sim = np.maximum(np.asarray(sims, dtype=np.float64)[:, j], 0.0)
        activation = total[:, j].copy()
        for _ in range(n_steps):
            following = np.zeros_like(activation)
            for e in range(len(activation)):
                if not (activation[e] > 0 and activation[e] >= threshold):
                    continue
                sentences = sorted(E_indices[E_indptr[e] : E_indptr[e + 1]])
                if top_sentences > 0:
                    sentences.sort(key=lambda z: (-sim[z], z))
                    sentences = sentences[:top_sentences]
                for z in sentences:
                    for other in S_indices[S_indptr[z] : S_indptr[z + 1]]:
                        following[other] += activation[e] * sim[z]
            activation = following
            total[:, j] += activation
    return total
