"""What the forms of ``bm25`` share: levels, their mean lengths, and scores."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Levels(NamedTuple):
    """The units that postings of turns are summed up into.

    Attributes
    ----------
    lengths, window_lengths, episode_lengths : (n,) float32
        Terms per turn, per window (by the turn at its centre) and per episode (at its first turn,
        0 elsewhere).
    previous, following : (n,) int32
        The turn before and after in the same session; -1 for none.
    episode_of : (n,) int32
        First turn of each turn's episode.
    radius : int
        A window holds up to this many turns on each side of its centre.
    n_episodes : int
    """

    lengths: NDArray[np.float32]
    window_lengths: NDArray[np.float32]
    episode_lengths: NDArray[np.float32]
    previous: NDArray[np.int32]
    following: NDArray[np.int32]
    episode_of: NDArray[np.int32]
    radius: int
    n_episodes: int


class LevelScores(NamedTuple):
    """BM25 scores (n_queries, n) float32: turns by row, windows by centre, episodes by first turn.

    An episode's score stands at its first turn; other cells are 0.
    """

    turn: NDArray[np.float32]
    window: NDArray[np.float32]
    episode: NDArray[np.float32]


def averages(levels: Levels) -> NDArray[np.float64]:
    """Return the mean length of turns, windows and episodes; 1 where all are empty."""
    means = np.ones(3)
    for i, (lengths, n_units) in enumerate(
        (
            (levels.lengths, len(levels.lengths)),
            (levels.window_lengths, len(levels.lengths)),
            (levels.episode_lengths, levels.n_episodes),
        )
    ):
        total = float(lengths.sum(dtype=np.float64))
        if total > 0:
            means[i] = total / n_units
    return means
