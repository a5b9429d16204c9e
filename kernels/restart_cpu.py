"""The reset vector of eq. 10: activated entities joined to context priors."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from zeromem.kernels._numba import F32_2, F64, F64_2, I32_2, OUT_F32_2, VOID, inner, kernel


@inner
def _sum(values):
    """Add up in four lanes: one waits for each addition."""
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    whole = len(values) // 4
    for i in range(whole):
        a += values[4 * i]
        b += values[4 * i + 1]
        c += values[4 * i + 2]
        d += values[4 * i + 3]
    for i in range(4 * whole, len(values)):
        a += values[i]
    return (a + b) + (c + d)


@kernel(VOID(I32_2, F64_2, F32_2, F64, OUT_F32_2))
def _restart(prior_rows, priors, activation, entity_share, reset):
    b, n_entities = activation.shape
    n = len(reset) - n_entities
    for j in range(b):
        total, prior = _sum(activation[j]), 0.0
        for i in range(prior_rows.shape[1]):
            prior += priors[j, i]
        share = (entity_share if prior > 0 else 1.0) if total > 0 else 0.0
        for i in range(prior_rows.shape[1]):
            if prior_rows[j, i] >= 0:
                reset[prior_rows[j, i], j] = priors[j, i] * (1.0 - share)
        if share > 0:
            scale = share / total
            for e in range(n_entities):
                if activation[j, e] != 0:
                    reset[n + e, j] = activation[j, e] * scale


def restart(
    prior_rows: NDArray[np.int32],
    priors: NDArray[np.float64],
    activation: NDArray[np.float32],
    entity_share: float,
    n: int,
) -> NDArray[np.float32]:
    """Return r_q: where the walk starts and returns to.

    Parameters
    ----------
    prior_rows, priors : (b, p) int32, (b, p) float64
        Turns with a prior, padded with -1; each row of priors sums to 1 or to 0.
    activation : (b, n_entities) float32
        Sum of eta_t, eq. 9.
    entity_share : float
        The part that entities get; all of it where no turn has a prior, none where no entity is
        active.
    n : int
        Turns.

    Returns
    -------
    (n + n_entities, b) float32
        Columns sum to 1, or to 0 without any prior.
    """
    # Zero pages cost nothing until a value lands on them.
    reset = np.zeros((n + activation.shape[1], len(activation)), np.float32)
    _restart(prior_rows, priors, activation, entity_share, reset)
    return reset
