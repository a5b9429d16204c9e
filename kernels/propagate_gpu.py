"""Propagation of entity activation (eq. 9) on a device: two sparse products a step, for a batch.

``activation' = E (sim * (S activation))``, with S the sentences x entities, E its transpose and
sim the similarity of question and sentence. In float64 as on the host: an activation is compared
with the threshold, and a step is bound by what it reads.

Where the arrays are NumPy's the same code runs with ``scipy.sparse``; that is what the tests run.
No line of it has run on a device yet.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from zeromem.kernels import dense_gpu
from zeromem.kernels._check import as_array, check_csr, check_shape
from zeromem.kernels._lists import sealed
from zeromem.kernels._namespace import namespace
from zeromem.kernels._propagate_check import checked


class Incidence(NamedTuple):
    """Which sentence names which entity.

    Attributes
    ----------
    S : CSR (n_sentences, n_entities) float64
    E : CSR (n_entities, n_sentences) float64
        Its transpose: a device is slow, and not repeatable, in multiplying by a transpose.
    """

    S: Any
    E: Any


def incidence(
    sentence_indptr: Any, sentence_entity: Any, entity_sentences: tuple[Any, ...], n_entities: int
) -> Incidence | None:
    """Return the matrices of a memory, in the namespace of its arrays; None where they are empty.

    The parameters are those of ``propagate_cpu.propagate``. Worth keeping.

    Raises
    ------
    InvalidInputError
    """
    xp, sparse = namespace(sentence_indptr, sentence_entity, *entity_sentences)
    sentence_indptr = as_array(sentence_indptr, "sentence_indptr", np.int64, 1, xp)
    sentence_entity = as_array(sentence_entity, "sentence_entity", np.int32, 1, xp)
    n_sentences = len(sentence_indptr) - 1
    check_shape(entity_sentences[3], "entity_sentences' keys", (n_entities,))
    shape = (n_sentences, n_entities)
    check_csr(sentence_indptr, sentence_entity, name="sentence", shape=shape)
    indptr, sentences, _ = sealed(xp, entity_sentences)
    check_csr(indptr, sentences, name="entity_sentences", shape=shape[::-1])
    if not (len(sentences) and len(sentence_entity)):
        return None
    ones = xp.ones(len(sentence_entity)), xp.ones(len(sentences))
    return Incidence(
        sparse.csr_matrix((ones[0], sentence_entity, sentence_indptr), shape=shape),
        sparse.csr_matrix((ones[1], sentences, indptr), shape=shape[::-1]),
    )


def propagate(
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
) -> Any:
    """Return (b, n_entities) float32 in the arrays' namespace; see ``propagate_cpu.propagate``.

    ``vectors`` is what ``dense_gpu.put`` returns, or Chunks where the arrays are NumPy's.
    """
    check_shape(sentence_indptr, "sentence_indptr", (len(vectors) + 1,))
    matrices = incidence(sentence_indptr, sentence_entity, entity_sentences, n_entities)
    return spread(
        matrices, vectors, inverse_norm, queries, dots, seed_indptr, seed_entity, seed_value,
        n_entities, n_steps, threshold, top_sentences,
    )  # fmt: skip


def spread(
    matrices: Incidence | None,
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
) -> Any:
    """Propagate over the matrices of a memory; the seeds may lie on the host."""
    xp, _ = namespace(inverse_norm, queries, dots, *vectors.parts[:1])
    inverse_norm, queries, dots, *seeds = checked(
        xp, vectors, inverse_norm, queries, dots, seed_indptr, seed_entity, seed_value, n_entities,
        n_steps, threshold, top_sentences,
    )  # fmt: skip
    activation = _dense(xp, seeds, (n_entities, len(queries)))
    total = activation
    if matrices is not None and n_steps and activation.size:
        if not dots.size:
            dots = dense_gpu.scores(vectors, queries)
        sims = (dots * inverse_norm).T
        sims = xp.where(sims > 0, sims, np.float32(0))  # also what is not a number
        reached = _reached(xp, matrices, sims, top_sentences)
        for _ in range(n_steps):
            active = (activation > 0) & (activation >= threshold)
            activation = matrices.E @ (sims * reached(xp.where(active, activation, 0.0)))
            total = total + activation
    return xp.ascontiguousarray(total.T, dtype=np.float32)


def _dense(xp: Any, seeds: Any, shape: tuple[int, int]) -> Any:
    """Return the seeds, rows of questions, as float64 columns."""
    own, _ = namespace(*seeds)
    indptr, entity, value = seeds
    question = own.searchsorted(indptr[1:], own.arange(len(entity)), side="right")
    found = xp.zeros(shape)
    found[xp.asarray(entity), xp.asarray(question)] = xp.asarray(value)
    return found


def _reached(xp: Any, matrices: Incidence, sims: Any, top: int) -> Any:
    """Return what takes activation (n_entities, b) to the sentences (n_sentences, b) it uses."""
    S, E = matrices
    if not top:
        return lambda activation: S @ activation
    # Which sentences an entity uses depends on the question: its edges are kept or not by column,
    # and a sentence adds up the edges that lead to it.
    n_edges = len(E.indices)
    edge = xp.arange(n_edges)
    entity = xp.searchsorted(E.indptr[1:], edge, side="right")
    kept = _kept(xp, E.indptr, E.indices, entity, sims, top)
    counts = xp.bincount(E.indices, minlength=len(sims))
    indptr = xp.concatenate([xp.zeros(1, np.int64), xp.cumsum(counts).astype(np.int64)])
    to_sentence = type(E)(
        (xp.ones(n_edges), xp.argsort(E.indices, kind="stable"), indptr),
        shape=(len(sims), n_edges),
    )
    return lambda activation: to_sentence @ (kept * activation[entity])


def _kept(xp: Any, indptr: Any, sentences: Any, entity: Any, sims: Any, top: int) -> Any:
    """Return (n_edges, b): whether each edge leads to one of its entity's ``top`` sentences."""
    b = sims.shape[1]
    # Stable sorts of edges that are in the order of entities and sentences: by similarity, then
    # back by entity. Ties go to the lower sentence.
    order = xp.argsort(-sims[sentences].T, axis=1, kind="stable")
    back = xp.argsort(entity[order], axis=1, kind="stable")
    order = xp.take_along_axis(order, back, axis=1)
    place = xp.arange(len(entity)) - indptr[entity]
    kept = xp.empty((b, len(entity)), np.bool_)
    kept[xp.arange(b)[:, None], order] = place < top
    return kept.T
