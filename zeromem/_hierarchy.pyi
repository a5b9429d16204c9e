"""The hierarchy (eq. 5), built by the C++ extension; ``csrc/hierarchy.hpp`` says how.

Positions are turns laid out session after session; session ``s`` is
``[session_indptr[s], session_indptr[s + 1])``. Every function releases the GIL and raises
ValueError naming the argument and its value.
"""

import numpy as np
from numpy.typing import NDArray

def windows(session_indptr: NDArray[np.int64], size: int) -> NDArray[np.int32]:
    """Span of the ``size`` positions centred on each position, clipped: int32 (n, 2)."""

def norms(
    spans: NDArray[np.int32], vectors: NDArray[np.float32], weights: NDArray[np.float32]
) -> NDArray[np.float64]:
    """Norm of the sum of weight * vector over each span of rows: float64 (m,).

    Parameters
    ----------
    spans : (m, 2) int32
    vectors : (n, dim) float32
    weights : (n,) float32
    """

def similarities(
    session_indptr: NDArray[np.int64],
    vectors: NDArray[np.float32],
    weights: NDArray[np.float32],
    times: NDArray[np.int64],
    window: int,
    gap_us: int,
) -> NDArray[np.float32]:
    """Cosine of the windows on the two sides of the gap behind each position: float32 (n,).

    Parameters
    ----------
    session_indptr : (n_sessions + 1,) int64
    vectors : (n, dim) float32
        Mean token state of each turn; a zero row is one that is not encoded. ``dim`` may be 0.
    weights : (n,) float32
        Tokens of each turn.
    times : (n, 2) int64
        ``[start, end)`` in microseconds UTC; the least int64 where not known.
    window : int
        Turns per window.
    gap_us : int
        A silence of more microseconds has no similarity; 2**63 - 1 never is one.
    """

def segment(
    previous: NDArray[np.int32],
    last: NDArray[np.int32],
    length: NDArray[np.int32],
    similarity: NDArray[np.float32],
    times: NDArray[np.int64],
    episode_of: NDArray[np.int32],
    depth: float,
    min_turns: int,
    max_turns: int,
    gap_us: int,
) -> tuple[
    NDArray[np.int32],
    NDArray[np.int32],
    NDArray[np.int32],
    NDArray[np.int64],
    NDArray[np.int32],
    NDArray[np.int32],
]:
    """Partition sessions into episodes and say what that changes.

    Parameters
    ----------
    previous : (n,) int32
        The row before each in its session, an earlier one; -1 for none.
    last, length : (k,) int32
        Last row of each session, and how many rows it has.
    similarity : (n,) float32
        Of the gap behind each row, in multiples of 2**-20.
    times : (n, 2) int64
    episode_of : (start,) int32
        First row of the episode of each row so far; rows from ``start`` on had none.
    depth : float
        A gap deeper than mean + depth * std of its session's gaps ends an episode.
    min_turns, max_turns : int
        ``max_turns`` always holds; ``min_turns`` yields to it and to silences.
    gap_us : int
        A silence of more microseconds ends an episode.

    Returns
    -------
    moved, episode : int32
        Rows that have another episode than before, and which.
    changed : int32
        Episodes that got a row or lost one.
    indptr, members : int64, int32
        The rows of each of these.
    cleared : int32
        Rows that begin no episode and are new or did before.
    """

def paths(
    previous: NDArray[np.int32], last: NDArray[np.int32], length: NDArray[np.int32]
) -> NDArray[np.int32]:
    """Rows that lead to each of ``last``, at most ``length`` of them, oldest first: int32."""
