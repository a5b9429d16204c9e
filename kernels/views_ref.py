"""Signals, the hierarchy view and context priors: the oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from zeromem.kernels import _ref
from zeromem.kernels._views import NO_TIME, SIGNALS, Asked, Units, Views

F64 = NDArray[np.float64]
Mask = NDArray[np.bool_]

_ASKS, _INSTRUCTS, _PREFERS = 1, 8, 16
# Differences of numbers in [0, 1]: whether they are all alike is a question of those numbers' size.
_DIFFERENCES = ("statement", "informative")


def _best_sentence(units: Units, query: NDArray[np.float32], rows: Mask, otherwise: F64) -> F64:
    """Similarity of the best sentence of each of ``rows``; a turn without any keeps another."""
    best = otherwise.copy()
    for row in np.flatnonzero(rows).tolist():
        sentences = np.arange(units.sentence_indptr[row], units.sentence_indptr[row + 1])
        if len(sentences):
            vectors = _ref.vectors_at(units.sentence_addresses, sentences, len(query))
            cosines = _ref.products(vectors, query) * units.sentence_inverse_norm[sentences]
            best[row] = cosines.max()
    return best


def _subject(units: Units, asked: Asked, j: int) -> Mask:
    """Turns that are by a speaker whom, or have a title which, or are of the role that is named."""
    named = asked.speaker[asked.speaker_indptr[j] : asked.speaker_indptr[j + 1]]
    found = np.isin(units.speaker, named)
    if asked.by_role[j] >= 0:
        found |= units.role == asked.by_role[j]
    found[asked.row[asked.row_indptr[j] : asked.row_indptr[j + 1]]] = True
    return found


def _in_period(units: Units, low: int, high: int) -> F64:
    """Turns whose time overlaps the period; none where that is empty."""
    start, end = units.time.T
    return np.asarray((low < high) & (start != NO_TIME) & (start < high) & (end > low), np.float64)


def _standing(units: Units, user: int) -> F64:
    """The user's instructions, and to a quarter what the user prefers."""
    worth = np.where(units.flags & _INSTRUCTS, 1.0, np.where(units.flags & _PREFERS, 0.25, 0.0))
    return np.where(units.role == user, worth, 0.0)


def _signals(
    units: Units, asked: Asked, j: int, half_informative: float, radius: int, user: int
) -> dict[str, F64]:
    """What the signals of a question are, but for those that depend on other signals."""
    places = _ref.windows(units.previous, units.following, radius)
    dots = asked.dots[j].astype(np.float64)
    spoken = dots * units.n_tokens
    episode = np.bincount(units.episode_of, spoken, minlength=len(dots))
    # A share is a float32 number, as the means are: of a group of equal turns it is their mean.
    says = (units.n_tokens / (units.n_tokens + half_informative)).astype(np.float32)
    found = {
        "turn_dense": dots * units.turn_inverse_norm,
        "turn_lexical": asked.turn_lexical[j].astype(np.float64),
        "window_dense": _ref.window_max(
            _ref.window_sum(spoken, places) * units.window_inverse_norm, places
        ),
        "window_lexical": _ref.window_max(asked.window_lexical[j].astype(np.float64), places),
        "episode_dense": (episode * units.episode_inverse_norm)[units.episode_of],
        "episode_lexical": asked.episode_lexical[j].astype(np.float64)[units.episode_of],
        "subject": _subject(units, asked, j).astype(np.float64),
        "statement": units.group_asks[units.group].astype(np.float64)
        - ((units.flags & _ASKS) != 0),
        "informative": says.astype(np.float64) - units.group_informative[units.group],
        "temporal": _in_period(units, *asked.period[j].tolist()),
    }
    if len(asked.phrase):
        found["phrase"] = asked.phrase[j].astype(np.float64)
    if asked.standing[j]:
        found["standing"] = _standing(units, user)
    return found


def _combined(signals: dict[str, F64], weights: NDArray[np.float32], among: dict[str, Mask]) -> F64:
    """Weighted sum of the signals there are, each min-max-normalised over its rows."""
    total = np.zeros(len(signals["turn_dense"]))
    for name, weight in zip(SIGNALS, weights.tolist(), strict=True):
        if name in signals and weight != 0:
            least = 1.0 if name in _DIFFERENCES else 0.0
            total += weight * _ref.normalized(signals[name], among[name], least)
    return total


def _best_of_episodes(values: F64, mask: Mask, units: Units) -> F64:
    """Best value of each episode's turns within the mask, at its first turn; -inf for none."""
    best = np.full(len(values), -np.inf)
    np.maximum.at(best, units.episode_of[mask], values[mask])
    return best


def _priors(
    similarity: F64, mask: Mask, sharpness: float, top: int
) -> tuple[NDArray[np.int64], F64]:
    """Context priors of eq. 10: the turns that have one, and they."""
    rows = _ref.ranked(similarity, mask, top)
    worth = similarity[rows]
    if sharpness > 0 and len(rows):
        worth = np.exp(sharpness * (worth - worth[0]))
    total = worth.sum()
    return rows, worth / total if total > 0 else np.zeros(len(rows))


def _zeros(shape: tuple[int, int]) -> Any:
    """Float64, which a result may hold though it says float32."""
    return np.zeros(shape)


def _among(rows: NDArray[np.int64], n: int) -> Mask:
    mask = np.zeros(n, np.bool_)
    mask[rows] = True
    return mask


def views(
    units: Units,
    asked: Asked,
    weights: NDArray[np.float32],
    *,
    half_informative: float,
    radius: int,
    n_episodes: int,
    episode_beam: int,
    window_beam: int,
    sharpness: float,
    contrast: float,
    user: int,
    prior_top: int,
    candidates: int,
) -> Views:
    """Return float64 views; see ``views_cpu.views``.

    ``asked.sentence_dots`` say nothing that the vectors do not.
    """
    n, b = len(units.n_tokens), len(asked.queries)
    p, k = min(prior_top or n, n), min(candidates, n)
    prior, refine, score, region, episode, window = weights
    prior_rows, best_rows = (np.full((b, size), -1, np.int32) for size in (p, k))
    priors, scores, refined = (_zeros((b, size)) for size in (p, k, n))
    subject = np.zeros((b, n), np.bool_)
    sentence_dense = SIGNALS.index("sentence_dense")
    for j in range(b):
        mask = asked.masks[asked.mask_of[j]]
        among = dict.fromkeys(SIGNALS, mask)
        signals = _signals(units, asked, j, half_informative, radius, user)
        subject[j] = signals["subject"]
        everywhere = prior[sentence_dense] != 0 or refine[sentence_dense] != 0
        if everywhere:
            signals["sentence_dense"] = _best_sentence(
                units, asked.queries[j], mask, signals["turn_dense"]
            )
        # Outside the boundary nothing may speak for an episode.
        best = _best_of_episodes(_combined(signals, region, among), mask, units)
        signals["episode_best"] = np.maximum(best, 0.0)[units.episode_of]

        rows, worth = _priors(_combined(signals, prior, among), mask, sharpness, p)
        prior_rows[j, : len(rows)], priors[j, : len(rows)] = rows, worth
        refined[j] = _combined(signals, refine, among)

        # Eq. 11: episodes, windows in them, turns in those.
        chosen = mask
        if n_episodes > episode_beam:
            best = _best_of_episodes(_combined(signals, episode, among), mask, units)
            kept = _among(_ref.ranked(best, best > -np.inf, episode_beam), n)
            chosen = mask & kept[units.episode_of]
        chosen = _among(_ref.ranked(_combined(signals, window, among), chosen, window_beam), n)
        if not everywhere:
            signals["sentence_dense"] = _best_sentence(
                units, asked.queries[j], chosen, signals["turn_dense"]
            )
            among["sentence_dense"] = chosen
        total = _combined(signals, score, among)
        rows = _ref.ranked(total, chosen, k)
        best_rows[j, : len(rows)] = rows
        scores[j, : len(rows)] = _ref.shares(total[rows]) ** contrast
    return Views(prior_rows, priors, refined, best_rows, scores, subject)
