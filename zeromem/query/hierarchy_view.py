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
        mask = mask & _in_best_episodes(signals, config.episode_beam)
    if len(signals.arrays) > config.window_beam:
        score = np.where(mask, signals.combine(_WINDOW), np.nan)
        mask = mask & signals.among_best(score, mask, config.window_beam)
    score = signals.combine(config.score)
    rows, best = signals.backend.topk(score, mask, candidates)
    return Ranking(rows, _contrast(rows, best, config.contrast))


def _in_best_episodes(signals: Signals, beam: int) -> Array:
    """Turns of each question's ``beam`` best episodes; ties go to the earlier episode."""
    arrays = signals.arrays
    score = np.nan_to_num(signals.combine(_EPISODE), nan=-np.inf)[:, arrays.order]
    spans = arrays.episode.spans.astype(np.int64)
    by_episode = signals.backend.span_max(score, spans[:, 0], spans[:, 1])
    kept = np.argsort(-by_episode, axis=1, kind="stable")[:, :beam]
    chosen = np.zeros(by_episode.shape, np.bool_)
    np.put_along_axis(chosen, kept, True, axis=1)
    inside: Array = chosen[:, arrays.episode_of[arrays.position]]
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
