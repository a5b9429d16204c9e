"""Hierarchy spans (eq. 5), built by the C++ extension; ``csrc/hierarchy.hpp`` says how.

Positions are a scope's turns laid out session after session; session ``s`` is
``[session_indptr[s], session_indptr[s + 1])``. Every function releases the GIL and raises
ValueError naming the argument and its value.
"""

import numpy as np
from numpy.typing import NDArray

def windows(session_indptr: NDArray[np.int64], size: int) -> NDArray[np.int32]:
    """Span of the ``size`` positions centred on each position, clipped: int32 (n, 2)."""

def episodes(
    session_indptr: NDArray[np.int64],
    window_vectors: NDArray[np.float32],
    times: NDArray[np.int64],
    depth: float,
    min_turns: int,
    max_turns: int,
    gap_us: int,
    window: int = 3,
) -> NDArray[np.int32]:
    """Partition every session into episodes: int32 (m, 2), half-open, in order.

    Parameters
    ----------
    session_indptr : (n_sessions + 1,) int64
    window_vectors : (n, dim) float32
        One row per position for the window of ``window`` turns centred there; a zero row is one
        that is not encoded. Need not be normalised; ``dim`` may be 0.
    times : (n, 2) int64
        ``[start, end)`` in microseconds UTC; the least int64 where not known.
    depth : float
        A gap deeper than mean + depth * std of its session's gaps ends an episode.
    min_turns, max_turns : int
        ``max_turns`` always holds; ``min_turns`` yields to it and to silences.
    gap_us : int
        A silence of more microseconds ends an episode; 2**63 - 1 never does.
    window : int
    """

def local_spans(
    session_indptr: NDArray[np.int64], positions: NDArray[np.int64], radius: int
) -> NDArray[np.int32]:
    """Positions at most ``radius`` from each of ``positions``, in its session: int32 (k, 2)."""
