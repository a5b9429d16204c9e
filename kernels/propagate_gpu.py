"""Propagation of entity activation (eq. 9) as sparse matrix products."""

from __future__ import annotations

from typing import Any

import numpy as np

from zeromem.kernels._namespace import namespace
from zeromem.kernels._propagate_check import checked


def propagate(
    S_indptr: Any,
    S_indices: Any,
    E_indptr: Any,
    E_indices: Any,
    seeds: Any,
    sims: Any,
    n_steps: int,
    threshold: float,
    top_sentences: int,
) -> Any:
    """Return (n_entities, b) float32 in the arrays' namespace; see ``propagate_cpu.propagate``."""
    xp, sparse = namespace(S_indices, E_indices, seeds, sims)
    S_indptr, S_indices, E_indptr, E_indices, seeds, sims = checked(
        xp, S_indptr, S_indices, E_indptr, E_indices, seeds, sims, n_steps, threshold, top_sentences
    )
    n_entities, n_sentences = len(seeds), len(sims)
    if not (n_steps and len(S_indices) and seeds.shape[1]):
        return seeds.copy()
    ones = xp.ones(len(S_indices), np.float32)
    S = sparse.csr_matrix((ones, S_indices, S_indptr), shape=(n_sentences, n_entities))
    E = sparse.csr_matrix((ones, E_indices, E_indptr), shape=(n_entities, n_sentences))
    sims = xp.where(sims > 0, sims, np.float32(0))
    if top_sentences == 0:
        return _spread(xp, S, E, seeds, sims, n_steps, threshold)
    # Which sentences an entity uses depends on the question: a matrix for each.
    columns = []
    for j in range(seeds.shape[1]):
        kept = _top_edges(xp, E_indptr, E_indices, sims[:, j], top_sentences)
        limited = sparse.csr_matrix((kept, E_indices, E_indptr), shape=E.shape).T.tocsr()
        column = slice(j, j + 1)
        columns.append(
            _spread(xp, limited, E, seeds[:, column], sims[:, column], n_steps, threshold)
        )
    return xp.concatenate(columns, axis=1)


def _spread(xp: Any, S: Any, E: Any, seeds: Any, sims: Any, n_steps: int, threshold: float) -> Any:
    """Sum the activations of all steps; S takes activation to sentences, E to entities."""
    activation, total = seeds, seeds.copy()
    for _ in range(n_steps):
        active = (activation > 0) & (activation >= threshold)
        activation = E @ (sims * (S @ xp.where(active, activation, np.float32(0))))
        total += activation
    return total


def _top_edges(xp: Any, E_indptr: Any, E_indices: Any, sim: Any, top: int) -> Any:
    """Return (nnz,) float32: 1 on the edges to each entity's ``top`` most similar sentences."""
    edges = xp.arange(len(E_indices))
    entity = xp.searchsorted(E_indptr, edges, side="right") - 1
    order = xp.lexsort(xp.stack([E_indices.astype(np.float64), -sim[E_indices], entity]))
    # Sorted by entity, so the place within an entity is the place minus the entity's first.
    place = edges - E_indptr[entity[order]]
    kept = xp.empty(len(E_indices), np.float32)
    kept[order] = (place < top).astype(np.float32)
    return kept
