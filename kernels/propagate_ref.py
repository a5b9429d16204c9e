"""Propagation of entity activation through shared sentences (eq. 9): the oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from zeromem.kernels import _ref


def propagate(
    sentence_indptr: NDArray[np.int64],
    sentence_entity: NDArray[np.int32],
    entity_sentences: tuple[NDArray[Any], ...],
    vectors: Any,
    inverse_norm: NDArray[np.float32],
    queries: NDArray[np.float32],
    dots: NDArray[np.float32],
    seed_indptr: NDArray[np.int64],
    seed_entity: NDArray[np.int32],
    seed_value: NDArray[np.float32],
    n_entities: int,
    n_steps: int,
    threshold: float,
    top_sentences: int,
) -> NDArray[np.float64]:
    """Return float64 activations; see ``propagate_cpu.propagate``.

    A step is eta' = S^T diag(sim) S eta, with S the sentences x entities; ``entity_sentences`` and
    ``dots`` say nothing that S and the vectors do not.
    """
    n_sentences = len(sentence_indptr) - 1
    S = sp.csr_matrix(
        (np.ones(len(sentence_entity)), sentence_entity, sentence_indptr),
        shape=(n_sentences, n_entities),
    )
    columns = S.tocsc()
    columns.sort_indices()
    everything = vectors.array().astype(np.float64)
    totals = np.zeros((len(queries), n_entities))
    for j, query in enumerate(queries):
        # Negative similarity counts as 0, and so does one that is not a number.
        sim = np.nan_to_num(_ref.products(everything, query) * inverse_norm, nan=0.0)
        sim = np.maximum(sim, 0.0)
        eta = np.zeros(n_entities)
        own = slice(seed_indptr[j], seed_indptr[j + 1])
        eta[seed_entity[own]] = seed_value[own]
        totals[j] += eta
        for _ in range(n_steps):
            carried = np.zeros(n_sentences)
            for entity in np.flatnonzero((eta > 0) & (eta >= threshold)):
                z = columns.indices[columns.indptr[entity] : columns.indptr[entity + 1]]
                if top_sentences > 0:
                    z = z[np.lexsort((z, -sim[z]))][:top_sentences]
                carried[z] += eta[entity]
            eta = S.T @ (carried * sim)
            totals[j] += eta
    return totals
