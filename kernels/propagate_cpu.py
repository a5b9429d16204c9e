"""Propagation of entity activation through shared sentences (eq. 9)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from zeromem.kernels._numba import (
    F32_1,
    F32_2,
    F64,
    I32_1,
    I64,
    I64_1,
    OUT_F32_2,
    OUT_F64_1,
    OUT_I32_1,
    VOID,
    kernel,
)
from zeromem.kernels._propagate_check import checked


@kernel(I64(I32_1, I64, I64, F32_1, I64, OUT_I32_1))
def _select(E_indices, start, stop, sim, top, kept):
    """Put the most similar sentences of one entity into ``kept``; ties go to the lower row."""
    size = 0
    for p in range(start, stop):
        z = E_indices[p]
        if not sim[z] > 0:
            continue  # carries nothing, and sorts behind all that carry something
        place = size
        while place > 0:
            ahead = kept[place - 1]
            if sim[ahead] > sim[z] or (sim[ahead] == sim[z] and ahead < z):
                break
            place -= 1
        if place >= top:
            continue
        if size < top:
            size += 1
        for move in range(size - 1, place, -1):
            kept[move] = kept[move - 1]
        kept[place] = z
    return np.int64(size)


# One column at a time: a frontier of entities hands its activation to sentences, and each sentence
# that got some hands it, weighed by its similarity, to all its entities. Both passes walk only
# what is active, in the order of first touch.
@kernel(
    I64(
        I64_1,
        I32_1,
        I64_1,
        I32_1,
        F32_1,
        F64,
        I64,
        OUT_F64_1,
        OUT_I32_1,
        I64,
        OUT_F64_1,
        OUT_I32_1,
        OUT_I32_1,
        OUT_I32_1,
    )
)
def _step(
    S_indptr,
    S_indices,
    E_indptr,
    E_indices,
    sim,
    threshold,
    top,
    activation,
    active,
    n_active,
    carried,
    touched,
    kept,
    reached,
):
    """Replace the activation by the next step's; return how many entities it reaches."""
    n_touched = 0
    for a in range(n_active):
        e = active[a]
        amount = activation[e]
        activation[e] = 0.0
        if not (amount > 0.0 and amount >= threshold):
            continue
        start, stop = E_indptr[e], E_indptr[e + 1]
        limited = top > 0 and stop - start > top
        n_kept = _select(E_indices, start, stop, sim, top, kept) if limited else stop - start
        for p in range(n_kept):
            z = kept[p] if limited else E_indices[start + p]
            if not sim[z] > 0:
                continue
            if carried[z] == 0.0:
                touched[n_touched] = z
                n_touched += 1
            carried[z] += amount
    n_reached = 0
    for t in range(n_touched):
        z = touched[t]
        amount = carried[z] * sim[z]
        carried[z] = 0.0
        if amount == 0.0:  # an underflow; zero marks what is not reached
            continue
        for p in range(S_indptr[z], S_indptr[z + 1]):
            e = S_indices[p]
            if activation[e] == 0.0:
                reached[n_reached] = e
                n_reached += 1
            activation[e] += amount
    return np.int64(n_reached)


@kernel(VOID(I64_1, I32_1, I64_1, I32_1, F32_2, F32_2, I64, F64, I64, OUT_F32_2))
def _propagate(S_indptr, S_indices, E_indptr, E_indices, seeds, sims, n_steps, threshold, top, out):
    n_entities, b = seeds.shape
    n_sentences = len(sims)
    activation = np.zeros(n_entities, np.float64)
    total = np.zeros(n_entities, np.float64)
    carried = np.zeros(n_sentences, np.float64)
    touched = np.empty(n_sentences, np.int32)
    kept = np.empty(min(top, n_sentences), np.int32)
    active = np.empty(n_entities, np.int32)
    reached = np.empty(n_entities, np.int32)
    sim = np.empty(n_sentences, np.float32)
    for j in range(b):
        for z in range(n_sentences):
            sim[z] = sims[z, j]
        n_active = 0
        for e in range(n_entities):
            total[e] = seeds[e, j]
            activation[e] = 0.0
            if seeds[e, j] > 0:
                activation[e] = seeds[e, j]
                active[n_active] = e
                n_active += 1
        for _ in range(n_steps):
            n_active = _step(
                S_indptr,
                S_indices,
                E_indptr,
                E_indices,
                sim,
                threshold,
                top,
                activation,
                active,
                n_active,
                carried,
                touched,
                kept,
                reached,
            )
            active, reached = reached, active
            for a in range(n_active):
                total[active[a]] += activation[active[a]]
        for e in range(n_entities):
            out[e, j] = total[e]


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
) -> NDArray[np.float32]:
    """Return the activation of every entity, summed over the steps 0 to ``n_steps`` of eq. 9.

    At each step an active entity hands its activation, times the similarity of question and
    sentence, through each of its sentences to every entity of that sentence, itself included.

    Parameters
    ----------
    S_indptr, S_indices : (n_sentences + 1,) int64, (nnz,) int32
        Binary CSR, sentences x entities.
    E_indptr, E_indices : (n_entities + 1,) int64, (nnz,) int32
        Its transpose.
    seeds : (n_entities, b) float32, non-negative
        Step 0 (eq. 8).
    sims : (n_sentences, b) float32
        sim(q, z); negative similarity counts as 0.
    n_steps : int
        0 returns the seeds.
    threshold : float
        An entity is active where its activation is positive and at least this.
    top_sentences : int
        An active entity uses only its most similar sentences, this many; 0 uses all.

    Returns
    -------
    (n_entities, b) float32
        A column does not depend on the other columns.

    Raises
    ------
    InvalidInputError
    """
    arrays = checked(
        np, S_indptr, S_indices, E_indptr, E_indices, seeds, sims, n_steps, threshold, top_sentences
    )
    out = np.empty(arrays[4].shape, np.float32)
    _propagate(*arrays, n_steps, threshold, top_sentences, out)
    return out
