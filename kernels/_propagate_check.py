"""Checks of the arguments of ``propagate``, shared by its compiled and device forms."""

from __future__ import annotations

from typing import Any

import numpy as np

from zeromem.kernels._check import as_array, check_csr, check_range, check_shape


def checked(
    xp: Any,
    S_indptr: Any,
    S_indices: Any,
    E_indptr: Any,
    E_indices: Any,
    seeds: Any,
    sims: Any,
    n_steps: int,
    threshold: float,
    top_sentences: int,
) -> tuple[Any, ...]:
    """Return the six arrays in the kernel's types, or raise InvalidInputError."""
    S_indptr = as_array(S_indptr, "S_indptr", np.int64, 1, xp)
    S_indices = as_array(S_indices, "S_indices", np.int32, 1, xp)
    E_indptr = as_array(E_indptr, "E_indptr", np.int64, 1, xp)
    E_indices = as_array(E_indices, "E_indices", np.int32, 1, xp)
    seeds = as_array(seeds, "seeds", np.float32, 2, xp)
    sims = as_array(sims, "sims", np.float32, 2, xp)
    n_sentences, n_entities = len(sims), len(seeds)
    check_shape(sims, "sims", (n_sentences, seeds.shape[1]))
    check_csr(S_indptr, S_indices, name="S", shape=(n_sentences, n_entities))
    check_csr(E_indptr, E_indices, name="E", shape=(n_entities, n_sentences))
    check_shape(E_indices, "E_indices", S_indices.shape)
    check_range(n_steps, "n_steps", 0, 1_000)
    check_range(threshold, "threshold", 0.0, float("inf"))
    check_range(top_sentences, "top_sentences", 0, 2**31 - 1)
    return S_indptr, S_indices, E_indptr, E_indices, seeds, sims
