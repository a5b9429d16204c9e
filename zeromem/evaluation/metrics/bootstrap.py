"""Paired bootstrap intervals that resample whole clusters."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from zeromem.errors import InvalidInputError

RESAMPLES = 10_000
_BLOCK = 4_000_000  # draws held at once


@dataclass(frozen=True)
class Interval:
    """A mean and where 95% of its resamples lie.

    Attributes
    ----------
    mean, low, high : float
    n, n_clusters : int
        Questions, and what was resampled.
    """

    mean: float
    low: float
    high: float
    n: int
    n_clusters: int


def interval(
    scores: Sequence[float],
    clusters: Sequence[Hashable],
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
    level: float = 0.95,
) -> Interval:
    """Percentile bootstrap of a mean over questions.

    Clusters are drawn with replacement, as many as there are, and all questions of a drawn one
    count; the mean is weighted by questions, as the tables' averages are. Questions about one
    conversation share its difficulty, so for LoCoMo the cluster is the conversation. Its five dev
    conversations give only 126 different resamples: the interval is coarse, misses the outer
    tails (the true coverage of so few clusters is nearer 85% than 95%), and is still wide. It says
    how far a figure would move with other conversations; read a difference that it does not
    separate from 0 as unknown, not as none.

    Parameters
    ----------
    scores : (n,) float
    clusters : (n,) hashable
        Each question's cluster; all different where questions are independent.
    resamples, seed : int
    level : float
        Share of the resamples inside, in (0, 1).

    Raises
    ------
    InvalidInputError
        Without scores, with another number of clusters than scores, or with fewer than two
        different clusters: one conversation says nothing about others.
    """
    values = np.asarray(scores, float)
    if values.ndim != 1 or not len(values) or len(clusters) != len(values):
        raise InvalidInputError(
            f"scores and clusters must be two lists of one length above 0, got {len(values)} and "
            f"{len(clusters)}"
        )
    if not 0 < level < 1 or resamples < 1:
        raise InvalidInputError(
            f"level must be in (0, 1) and resamples at least 1, got {level!r} and {resamples!r}"
        )
    number = {name: i for i, name in enumerate(dict.fromkeys(clusters))}
    if len(number) < 2:
        raise InvalidInputError(
            f"clusters must differ, all {len(values)} scores are of {clusters[0]!r}; resample by "
            "question, or add data"
        )
    row = np.array([number[name] for name in clusters])
    sums = np.bincount(row, values).astype(float)
    counts = np.bincount(row).astype(float)
    means = _resampled(sums, counts, resamples, np.random.default_rng(seed))
    tail = (1 - level) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return Interval(float(values.mean()), float(low), float(high), len(values), len(number))


def difference(
    scores: Sequence[float],
    other: Sequence[float],
    clusters: Sequence[Hashable],
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
    level: float = 0.95,
) -> Interval:
    """Bootstrap the mean of ``scores - other``, question by question: the paired difference.

    Both are taken from the same draws, so that what is hard for both methods does not count.

    Raises
    ------
    InvalidInputError
        As :func:`interval` does, and where the two differ in length.
    """
    a, b = np.asarray(scores, float), np.asarray(other, float)
    if a.shape != b.shape:
        raise InvalidInputError(
            f"scores and other must answer the same questions, got {len(a)} and {len(b)} of them"
        )
    return interval((a - b).tolist(), clusters, resamples=resamples, seed=seed, level=level)


def _resampled(
    sums: NDArray[np.float64],
    counts: NDArray[np.float64],
    resamples: int,
    rng: np.random.Generator,
) -> NDArray[np.float64]:
    """Question-weighted means of draws of clusters: (resamples,)."""
    n = len(sums)
    step = max(1, _BLOCK // n)
    parts = []
    for start in range(0, resamples, step):
        drawn = rng.integers(0, n, (min(step, resamples - start), n))
        parts.append(sums[drawn].sum(1) / counts[drawn].sum(1))
    return np.concatenate(parts)
