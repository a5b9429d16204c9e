"""Checks of the arguments of ``propagate``, shared by its forms."""

from __future__ import annotations

from typing import Any

import numpy as np

from zeromem.errors import InvalidInputError
from zeromem.kernels._check import as_array, check_csr, check_range, check_shape
from zeromem.kernels._namespace import namespace


def checked(
    xp: Any,
    vectors: Any,
    inverse_norm: Any,
    queries: Any,
    dots: Any,
    seed_indptr: Any,
    seed_entity: Any,
    seed_value: Any,
    n_entities: int,
    n_steps: int,
    threshold: float,
    top_sentences: int,
) -> tuple[Any, ...]:
    """Return the arrays in the kernels' types, or raise InvalidInputError.

    The first three are ``xp``'s, and the seeds lie where they lay.
    """
    inverse_norm = as_array(inverse_norm, "inverse_norm", np.float32, 1, xp)
    queries = as_array(queries, "queries", np.float32, 2, xp)
    dots = as_array(dots, "dots", np.float32, 2, xp)
    own, _ = namespace(seed_indptr, seed_entity, seed_value)
    seed_indptr = as_array(seed_indptr, "seed_indptr", np.int64, 1, own)
    seed_entity = as_array(seed_entity, "seed_entity", np.int32, 1, own)
    seed_value = as_array(seed_value, "seed_value", np.float32, 1, own)
    n_sentences = len(vectors)
    check_shape(inverse_norm, "inverse_norm", (n_sentences,))
    check_shape(queries, "queries", (len(queries), vectors.dim))
    if dots.shape != (1, 0):
        check_shape(dots, "dots", (len(queries), n_sentences))
    shape = (len(queries), n_entities)
    check_csr(seed_indptr, seed_entity, name="seed", shape=shape, data=seed_value)
    if len(seed_value) and not float(seed_value.min()) > 0:
        raise InvalidInputError(f"seed_value must be positive, got {float(seed_value.min())!r}")
    check_range(n_steps, "n_steps", 0, 1_000)
    check_range(threshold, "threshold", 0.0, float("inf"))
    check_range(top_sentences, "top_sentences", 0, 2**31 - 1)
    return inverse_norm, queries, dots, seed_indptr, seed_entity, seed_value
