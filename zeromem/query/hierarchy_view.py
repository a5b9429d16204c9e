"""The hierarchy view: episodes, then windows, then turns (eq. 11)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from zeromem.config import SignalWeights
from zeromem.query.signals import Ranking, Signals

Array = NDArray[Any]

_EPISODE = SignalWeights(episode_dense=1.0, episode_lexical=1.0, episode_best=2.0)
_WINDOW = SignalWeights(window_dense=1.0, window_lexical=1.0)


def hierarchy_view(signals: Signals, candidates: int) -> Ranking:
    """Search coarse to fine and rank the turns that remain.

    Parameters
    ----------
    signals : Signals
    candidates : int
        Turns to return per question.
    """
    config = signals.config.hierarchy
    mask = signals.questions.mask
    if len(signals.arrays.episode.spans) > config.episode_beam:
        episode = signals.arrays.episode_of[signals.arrays.position]
        mask = mask & _in_best(signals.combine(_EPISODE), episode, config.episode_beam)
    if len(signals.arrays) > config.window_beam:
        score = np.where(mask, signals.combine(_WINDOW), np.nan)
        kept, _ = signals.backend.topk(score, mask, config.window_beam)
        question, at = np.nonzero(kept >= 0)
        within = np.zeros(score.shape, np.bool_)
        within[question, kept[question, at]] = True
        mask = mask & within
    score = signals.combine(config.score)
    rows, best = signals.backend.topk(score, mask, candidates)
    return Ranking(rows, _contrast(rows, best, config.contrast))


def _in_best(score: Array, episode: Array, beam: int) -> Array:
    """Turns of each question's ``beam`` best episodes; ties go to the earlier episode."""
    n = int(episode.max()) + 1
    by_episode = np.full((len(score), n), -np.inf, np.float32)
    for j, row in enumerate(np.nan_to_num(score, nan=-np.inf)):
        np.maximum.at(by_episode[j], episode, row)
    kept = np.argsort(-by_episode, axis=1, kind="stable")[:, :beam]
    chosen = np.zeros((len(score), n), np.bool_)
    np.put_along_axis(chosen, kept, True, axis=1)
    inside: Array = chosen[:, episode]
    return inside


def _contrast(rows: Array, scores: Array, power: float) -> Array:
    """Raise the normalised score to a power: order stays, the view speaks up for its best only.

    A linear score would let the view's hundredth candidate outvote the other view's tenth once
    eq. 13 adds the two.
    """
    found = rows >= 0
    low = np.min(scores, axis=1, where=found, initial=np.inf, keepdims=True)
    high = np.max(scores, axis=1, where=found, initial=-np.inf, keepdims=True)
    width = np.where(high > low, high - low, 1.0)
    share = np.where(high > low, (scores - low) / width, 1.0)
    raised: Array = (np.where(found, share, 0.0) ** power).astype(np.float32)
    return raised
