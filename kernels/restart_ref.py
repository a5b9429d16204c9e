"""The reset vector of eq. 10: the oracle."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def restart(
    prior_rows: NDArray[np.int32],
    priors: NDArray[np.float64],
    activation: NDArray[np.float32],
    entity_share: float,
    n: int,
) -> NDArray[np.float64]:
    """Return float64 columns; see ``restart_cpu.restart``."""
    reset = np.zeros((n + activation.shape[1], len(activation)))
    for j, active in enumerate(activation.astype(np.float64)):
        there = prior_rows[j] >= 0
        turns = np.zeros(n)
        turns[prior_rows[j][there]] = priors[j][there]
        if active.sum() == 0:
            share = 0.0
        elif turns.sum() == 0:
            share = 1.0
        else:
            share = entity_share
        reset[:n, j] = (1.0 - share) * turns
        if share > 0:
            reset[n:, j] = share * active / active.sum()
    return reset
