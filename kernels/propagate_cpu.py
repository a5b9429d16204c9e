"""Propagation of entity activation through shared sentences (eq. 9), only where it is active."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from zeromem.kernels._check import as_array, check_shape
from zeromem.kernels._half import row_dot
from zeromem.kernels._numba import (
    F32_1,
    F32_2,
    F64,
    I32_1,
    I64,
    I64_1,
    LISTS,
    OUT_F32_2,
    OUT_I64_1,
    VOID,
    inner,
    kernel,
)
from zeromem.kernels._propagate_check import checked


@inner
def _sentences(lists, entity, found):
    """Fill in the sentences of an entity."""
    indptr, base, _, head, older, tail, _ = lists
    size = 0
    if entity < len(indptr) - 1:
        for p in range(indptr[entity], indptr[entity + 1]):
            found[size] = base[p]
            size += 1
    at = head[entity]
    while at >= 0:
        found[size] = tail[at]
        size += 1
        at = older[at]
    return np.int64(size)


@inner
def _select(found, n_found, sim, top):
    """Keep the ``top`` most similar sentences, in front; ties go to the lower row."""
    size = 0
    for p in range(n_found):
        z = found[p]
        if not sim[z] > 0:
            continue  # carries nothing, and sorts behind all that carry something
        place = size
        while place > 0:
            ahead = found[place - 1]
            if sim[ahead] > sim[z] or (sim[ahead] == sim[z] and ahead < z):
                break
            place -= 1
        if place >= top:
            continue
        if size < top:
            size += 1
        for move in range(size - 1, place, -1):
            found[move] = found[move - 1]
        found[place] = z
    return np.int64(size)


@inner
def _n_sentences(lists, entity):
    indptr, head, older = lists[0], lists[3], lists[4]
    size = 0
    if entity < len(indptr) - 1:
        size += indptr[entity + 1] - indptr[entity]
    at = head[entity]
    while at >= 0:
        size += 1
        at = older[at]
    return np.int64(size)


@kernel(VOID(I64_1, I32_1, LISTS, I64_1, I32_1, I64, OUT_I64_1))
def _reach(sentence_indptr, sentence_entity, entity_sentences, seed_indptr, seeds, n_steps, out):
    n_sentences = len(sentence_indptr) - 1
    found = np.empty(n_sentences, np.int32)
    for j in range(len(out)):
        size = 0
        for p in range(seed_indptr[j], seed_indptr[j + 1]):
            n_found = _sentences(entity_sentences, seeds[p], found)
            size += n_found if n_steps > 0 else 0
            for i in range(n_found if n_steps > 1 else 0):
                z = found[i]
                for q in range(sentence_indptr[z], sentence_indptr[z + 1]):
                    size += _n_sentences(entity_sentences, sentence_entity[q])
                if size > n_sentences:
                    break
        out[j] = min(size, n_sentences) if n_steps < 3 or size == 0 else n_sentences


def reach(
    sentence_indptr: NDArray[np.int64],
    sentence_entity: NDArray[np.int32],
    entity_sentences: tuple[NDArray[Any], ...],
    seed_indptr: NDArray[np.int64],
    seed_entity: NDArray[np.int32],
    n_steps: int,
) -> NDArray[np.int64]:
    """Bound the sentences that each question's activation gets to, (b,): cheap, and from above.

    The parameters are those of :func:`propagate`.
    """
    out = np.zeros(len(seed_indptr) - 1, np.int64)
    _reach(
        sentence_indptr, sentence_entity, entity_sentences, seed_indptr, seed_entity, n_steps, out
    )
    return out


# One question at a time: a frontier of entities hands its activation to sentences, and each
# sentence that got some hands it, weighed by its similarity, to all its entities. Both passes walk
# only what is active, and only there is a sentence compared with the question.
@kernel(
    VOID(
        I64_1, I32_1, LISTS, I64_1, F32_1, F32_2, F32_2, I64_1, I32_1, F32_1, I64, F64, I64,
        OUT_F32_2,
    )
)  # fmt: skip
def _propagate(
    sentence_indptr,
    sentence_entity,
    entity_sentences,
    addresses,
    inverse_norm,
    queries,
    dots,
    seed_indptr,
    seed_entity,
    seed_value,
    n_steps,
    threshold,
    top,
    out,
):
    n_entities, n_sentences = out.shape[1], len(inverse_norm)
    activation = np.zeros(n_entities, np.float64)
    total = np.zeros(n_entities, np.float64)
    carried = np.zeros(n_sentences, np.float64)
    sim = np.full(n_sentences, np.nan, np.float32)
    known = np.empty(n_sentences, np.int32)
    touched = np.empty(n_sentences, np.int32)
    found = np.empty(n_sentences, np.int32)
    active = np.empty(n_entities, np.int32)
    reached = np.empty(n_entities, np.int32)
    lit = np.empty(n_entities, np.int32)
    for j in range(len(queries)):
        n_active, n_known, n_lit = 0, 0, 0
        given = dots[min(j, len(dots) - 1)]
        for p in range(seed_indptr[j], seed_indptr[j + 1]):
            e = seed_entity[p]
            activation[e] = seed_value[p]
            total[e] = seed_value[p]
            active[n_active] = e
            lit[n_lit] = e
            n_active += 1
            n_lit += 1
        for _ in range(n_steps):
            n_touched = 0
            for a in range(n_active):
                e = active[a]
                amount = activation[e]
                activation[e] = 0.0
                if not (amount > 0.0 and amount >= threshold):
                    continue
                n_found = _sentences(entity_sentences, e, found)
                for p in range(n_found):
                    z = found[p]
                    if np.isnan(sim[z]):
                        dot = given[z] if len(given) > 0 else row_dot(addresses, z, queries[j])
                        sim[z] = dot * inverse_norm[z]
                        known[n_known] = z
                        n_known += 1
                if top > 0 and n_found > top:
                    n_found = _select(found, n_found, sim, top)
                for p in range(n_found):
                    z = found[p]
                    if not sim[z] > 0:
                        continue
                    if carried[z] == 0.0:
                        touched[n_touched] = z
                        n_touched += 1
                    carried[z] += amount
            # In the order of rows, so that it does not matter how the lists came about.
            ordered = np.sort(touched[:n_touched])
            n_active = 0
            for z in ordered:
                amount = carried[z] * sim[z]
                carried[z] = 0.0
                if amount == 0.0:  # an underflow; zero marks what is not reached
                    continue
                for p in range(sentence_indptr[z], sentence_indptr[z + 1]):
                    e = sentence_entity[p]
                    if activation[e] == 0.0:
                        reached[n_active] = e
                        n_active += 1
                    activation[e] += amount
            active, reached = reached, active
            for a in range(n_active):
                e = active[a]
                if total[e] == 0.0:
                    lit[n_lit] = e
                    n_lit += 1
                total[e] += activation[e]
        for a in range(n_active):
            activation[active[a]] = 0.0
        for a in range(n_lit):
            out[j, lit[a]] = total[lit[a]]
            total[lit[a]] = 0.0
        for a in range(n_known):
            sim[known[a]] = np.nan


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
) -> NDArray[np.float32]:
    """Return the activation of every entity, summed over the steps 0 to ``n_steps`` of eq. 9.

    At each step an active entity hands its activation, times the similarity of question and
    sentence, through each of its sentences to every entity of that sentence, itself included.

    Parameters
    ----------
    sentence_indptr, sentence_entity : (n_sentences + 1,) int64, (nnz,) int32
        Binary CSR, sentences x entities.
    entity_sentences : tuple of arrays
        Its transpose, as ``Lists.kernel_args``.
    vectors : Chunks
        (n_sentences, dim) float16.
    inverse_norm : (n_sentences,) float32
        sim(q, z) is the inner product times this; negative similarity counts as 0.
    queries : (b, dim) float32
        Unit rows.
    dots : (b, n_sentences) or (1, 0) float32
        Inner products of queries and vectors; where they are left out, those of the sentences
        that activation reaches are computed one by one, with the same bits.
    seed_indptr, seed_entity, seed_value : CSR (b x n_entities), positive float32
        Step 0 (eq. 8); each entity once per question.
    n_entities : int
    n_steps : int
        0 returns the seeds.
    threshold : float
        An entity is active where its activation is positive and at least this.
    top_sentences : int
        An active entity uses only its most similar sentences, this many; 0 uses all.

    Returns
    -------
    (b, n_entities) float32
        A row does not depend on the other questions.

    Raises
    ------
    InvalidInputError
    """
    sentence_indptr = as_array(sentence_indptr, "sentence_indptr", np.int64, 1)
    sentence_entity = as_array(sentence_entity, "sentence_entity", np.int32, 1)
    check_shape(sentence_indptr, "sentence_indptr", (len(vectors) + 1,))
    check_shape(entity_sentences[3], "entity_sentences' keys", (n_entities,))
    asked = checked(
        np, vectors, inverse_norm, queries, dots, seed_indptr, seed_entity, seed_value, n_entities,
        n_steps, threshold, top_sentences,
    )  # fmt: skip
    graph = (sentence_indptr, sentence_entity, entity_sentences, vectors.addresses)
    out = np.zeros((len(queries), n_entities), np.float32)
    _propagate(*graph, *asked, n_steps, threshold, top_sentences, out)
    return out
