"""Checks of the arguments of ``propagate``, shared by its forms."""

from __future__ import annotations

from typing import Any

import numpy as np

from zeromem.errors import InvalidInputError
from zeromem.kernels._check import as_array, check_csr, check_range, check_shape


def checked(
    sentence_indptr: Any,
    sentence_entity: Any,
    entity_sentences: tuple[Any, ...],
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
    """Return the arrays that the compiled form takes, or raise InvalidInputError."""
    sentence_indptr = as_array(sentence_indptr, "sentence_indptr", np.int64, 1)
    sentence_entity = as_array(sentence_entity, "sentence_entity", np.int32, 1)
    inverse_norm = as_array(inverse_norm, "inverse_norm", np.float32, 1)
    queries = as_array(queries, "queries", np.float32, 2)
    dots = as_array(dots, "dots", np.float32, 2)
    seed_indptr = as_array(seed_indptr, "seed_indptr", np.int64, 1)
    seed_entity = as_array(seed_entity, "seed_entity", np.int32, 1)
    seed_value = as_array(seed_value, "seed_value", np.float32, 1)
    n_sentences = len(vectors)
    check_shape(inverse_norm, "inverse_norm", (n_sentences,))
    check_shape(queries, "queries", (len(queries), vectors.dim))
    if dots.shape != (1, 0):
        check_shape(dots, "dots", (len(queries), n_sentences))
    shape = (len(queries), n_entities)
    check_csr(seed_indptr, seed_entity, name="seed", shape=shape, data=seed_value)
    check_shape(sentence_indptr, "sentence_indptr", (n_sentences + 1,))
    check_shape(entity_sentences[3], "entity_sentences' keys", (n_entities,))
    if len(seed_value) and not float(seed_value.min()) > 0:
        raise InvalidInputError(f"seed_value must be positive, got {float(seed_value.min())!r}")
    check_range(n_steps, "n_steps", 0, 1_000)
    check_range(threshold, "threshold", 0.0, float("inf"))
    check_range(top_sentences, "top_sentences", 0, 2**31 - 1)
    return (
        sentence_indptr, sentence_entity, entity_sentences, vectors.addresses, inverse_norm,
        queries, dots, seed_indptr, seed_entity, seed_value,
    )  # fmt: skip
