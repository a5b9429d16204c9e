"""The signals of a question, the hierarchy view, and where the graph view's walk starts.

Everything about one question is worked out before the next, so that its arrays stay in the cache.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from zeromem.kernels._half import fetch_row, row_dot
from zeromem.kernels._noise import NOISE
from zeromem.kernels._numba import (
    BOOL_2,
    F32_1,
    F32_2,
    F64,
    I8_1,
    I32_1,
    I64,
    I64_1,
    I64_2,
    OUT_BOOL_2,
    OUT_F32_2,
    OUT_F64_2,
    OUT_I32_2,
    VOID,
    inner,
    kernel,
    record,
)
from zeromem.kernels._signals import (
    best_near,
    best_of_episode,
    combine,
    combine_at,
    gather,
    in_best_episodes,
    keep_best,
    multiply,
    range_of,
    rows_of,
    windows,
)
from zeromem.kernels._views import (
    EPISODE,
    EPISODE_BEST,
    EPISODE_DENSE,
    EPISODE_LEXICAL,
    INFORMATIVE,
    N_SIGNALS,
    NO_TIME,
    PHRASE,
    PRIOR,
    REFINE,
    REGION,
    SCORE,
    SENTENCE_DENSE,
    STANDING,
    STATEMENT,
    SUBJECT,
    TEMPORAL,
    TURN_DENSE,
    TURN_LEXICAL,
    WINDOW,
    WINDOW_DENSE,
    WINDOW_LEXICAL,
    Asked,
    Units,
    Views,
)  # fmt: skip
from zeromem.kernels.topk_cpu import best

# Bits of the flags: see ``zeromem.index.features``.
_ASKS, _INSTRUCTS, _PREFERS = 1, 8, 16
_PREFERENCE = 0.25  # of a standing instruction
_AHEAD = 3  # turns whose sentences are asked for before they are read
_ANY = np.empty(0, np.bool_)


_UNITS = record(
    I32_1, I32_1, I32_1, I32_1, I64_2, I32_1, F32_1, F32_1, F32_1, I32_1, I32_1, F32_1, I32_1,
    F32_1, I64_1, I64_1, F32_1,
)  # fmt: skip
_ASKED = record(
    F32_2, F32_2, F32_2, F32_2, F32_2, BOOL_2, I32_1, I64_1, I32_1, I64_1, I32_1, I32_1, I64_2,
    I8_1, F32_2, F32_2,
)  # fmt: skip


@inner
def _sentences(rows, indptr, addresses, inverse_norm, query, dots, out, ranged):
    """Give each row its best sentence; a turn without sentences keeps what ``out`` holds."""
    low = np.float32(np.inf)
    high = np.float32(-np.inf)
    dim = len(query)
    given = len(dots) > 0
    for i in range(len(rows)):
        if not given and i + _AHEAD < len(rows):
            later = rows[i + _AHEAD]
            for z in range(indptr[later], indptr[later + 1]):
                fetch_row(addresses, z, dim)
        row = rows[i]
        if indptr[row] < indptr[row + 1]:
            found = np.float32(-np.inf)
            for z in range(indptr[row], indptr[row + 1]):
                dot = dots[z] if given else row_dot(addresses, z, query)
                found = max(found, dot * inverse_norm[z])
            out[row] = found
        low = min(low, out[row])
        high = max(high, out[row])
    if len(rows) > 0:
        ranged[0] = low
        ranged[1] = high


@inner
def _contrast(scores, size, power):
    """Raise the normalised score to a power: order stays, the view speaks up for its best only.

    A linear score would let the view's hundredth candidate outvote the other view's tenth once
    eq. 13 adds the two.
    """
    if size == 0:
        return
    high, low = scores[0], scores[size - 1]
    apart = high - low > NOISE * max(abs(high), abs(low))
    for i in range(size):
        share = (scores[i] - low) / (high - low) if apart else np.float32(1.0)
        scores[i] = np.float32(np.float64(share) ** power)


@inner
def _prior(similarity, mask, sharpness, rows, priors):
    """Weigh the best turns by softmax, or in proportion where ``sharpness`` is 0."""
    scores = np.empty(len(rows), np.float32)
    size = best(similarity, mask, rows, scores)
    total = 0.0
    for i in range(size):
        value = np.float64(scores[i])
        priors[i] = np.exp(sharpness * (value - scores[0])) if sharpness > 0 else value
        total += priors[i]
    for i in range(size):
        priors[i] = priors[i] / total if total > 0 else 0.0


@inner
def _mark_subject(units, asked, j, mask, subject, out):
    """Turns whose speaker, title or role is what the question names."""
    speaker, role = units[2], units[3]
    speaker_indptr, speakers, row_indptr, rows, by_role = asked[7:12]
    first, last = speaker_indptr[j], speaker_indptr[j + 1]
    if first < last or by_role[j] >= 0:
        for i in range(len(speaker)):
            found = role[i] == by_role[j]
            for p in range(first, last):
                found |= speaker[i] == speakers[p]
            subject[i] = found
    for p in range(row_indptr[j], row_indptr[j + 1]):
        subject[rows[p]] = True
    for i in range(len(speaker)):
        out[i] = np.float32(1.0) if subject[i] else np.float32(0.0)


@inner
def _needed(weights, signal):
    return (weights[:, signal] != 0).any()


@kernel(
    VOID(
        _UNITS, _ASKED, F32_2, F64, I64, I64, I64, I64, F64, F64, I64,
        OUT_I32_2, OUT_F64_2, OUT_F32_2, OUT_I32_2, OUT_F32_2, OUT_BOOL_2,
    )
)  # fmt: skip
def _views(
    units,
    asked,
    weights,
    half_informative,
    radius,
    n_episodes,
    episode_beam,
    window_beam,
    sharpness,
    contrast,
    user,
    prior_rows,
    priors,
    refine,
    rows,
    scores,
    subject,
):
    (
        n_tokens, flags, _, role, time, group, group_asks, group_informative,
        turn_inverse_norm, previous, following, window_inverse_norm, episode_of,
        episode_inverse_norm, sentence_indptr, addresses, sentence_inverse_norm,
    ) = units  # fmt: skip
    (
        queries, dots, turn_lexical, window_lexical, episode_lexical, masks, mask_of, _, _, _, _,
        _, period, standing, phrase, sentence_dots,
    ) = asked  # fmt: skip
    n = len(n_tokens)
    signals = np.empty((N_SIGNALS, n), np.float32)
    ranges = np.zeros((N_SIGNALS, 2), np.float32)
    scratch = np.empty(n, np.float32)
    region = np.empty(n, np.float32)
    tokens = n_tokens.astype(np.float32)
    left = np.empty(n + 1, np.int32)
    everywhere = _needed(weights[:SCORE], SENTENCE_DENSE)
    for i in range(n):  # what does not depend on the question
        asks = np.float32(flags[i] & _ASKS)
        signals[STATEMENT, i] = group_asks[group[i]] - asks
        says = np.float32(n_tokens[i] / (n_tokens[i] + half_informative))
        signals[INFORMATIVE, i] = says - group_informative[group[i]]
    for j in range(len(queries)):
        mask = masks[mask_of[j]]
        multiply(dots[j], turn_inverse_norm, signals[TURN_DENSE])
        signals[TURN_LEXICAL, :] = turn_lexical[j]
        windows(dots[j], tokens, previous, following, window_inverse_norm, radius, scratch)
        best_near(
            scratch, window_lexical[j], previous, following, radius, signals[WINDOW_DENSE],
            signals[WINDOW_LEXICAL],
        )  # fmt: skip
        if _needed(weights, EPISODE_DENSE):
            for i in range(n):
                scratch[i] = 0.0
            for i in range(n):
                scratch[episode_of[i]] += np.float32(n_tokens[i]) * dots[j, i]
            for i in range(n):
                episode = episode_of[i]
                signals[EPISODE_DENSE, i] = scratch[episode] * episode_inverse_norm[episode]
        gather(episode_lexical[j], episode_of, signals[EPISODE_LEXICAL])
        _mark_subject(units, asked, j, mask, subject[j], signals[SUBJECT])
        ranges[PHRASE, :] = 0.0
        if phrase.shape[0] > 0:
            signals[PHRASE, :] = phrase[j]
            range_of(signals[PHRASE], mask, ranges[PHRASE])
        ranges[TEMPORAL, :] = 0.0
        if period[j, 0] < period[j, 1]:
            for i in range(n):
                inside = (
                    time[i, 0] != NO_TIME
                    and time[i, 0] < period[j, 1]
                    and time[i, 1] > period[j, 0]
                )
                signals[TEMPORAL, i] = np.float32(1.0) if inside else np.float32(0.0)
            range_of(signals[TEMPORAL], mask, ranges[TEMPORAL])
        ranges[STANDING, :] = 0.0
        if standing[j] != 0:
            for i in range(n):
                value = np.float32(0.0)
                if role[i] == user:
                    if flags[i] & _INSTRUCTS:
                        value = np.float32(1.0)
                    elif flags[i] & _PREFERS:
                        value = np.float32(_PREFERENCE)
                signals[STANDING, i] = value
            range_of(signals[STANDING], mask, ranges[STANDING])
        for s in range(N_SIGNALS):
            if s < SENTENCE_DENSE or EPISODE_BEST < s < PHRASE:
                range_of(signals[s], mask, ranges[s])
        if not _needed(weights, EPISODE_DENSE):
            ranges[EPISODE_DENSE, :] = 0.0
        ranges[SENTENCE_DENSE, :] = 0.0
        signals[SENTENCE_DENSE, :] = signals[TURN_DENSE]
        if everywhere:
            size = rows_of(mask, left)
            _sentences(
                left[:size], sentence_indptr, addresses, sentence_inverse_norm, queries[j],
                sentence_dots[min(j, len(sentence_dots) - 1)], signals[SENTENCE_DENSE],
                ranges[SENTENCE_DENSE],
            )  # fmt: skip
        # The best turn and window of each turn's episode, within the boundary.
        combine(signals, ranges, weights[REGION], region)
        best_of_episode(region, mask, episode_of, scratch)
        gather(scratch, episode_of, signals[EPISODE_BEST])
        range_of(signals[EPISODE_BEST], mask, ranges[EPISODE_BEST])

        # The graph view's: context priors of eq. 10 and what refines its ranking.
        combine(signals, ranges, weights[PRIOR], scratch)
        _prior(scratch, mask, sharpness, prior_rows[j], priors[j])
        combine(signals, ranges, weights[REFINE], refine[j])

        # The hierarchy view's: episodes, then windows, then turns (eq. 11).
        if n_episodes > episode_beam:
            combine(signals, ranges, weights[EPISODE], scratch)
            size = in_best_episodes(scratch, mask, episode_of, episode_beam, region, left)
        else:
            size = rows_of(mask, left)
        if size > window_beam:
            combine_at(signals, ranges, weights[WINDOW], left[:size], scratch[:size])
            size = keep_best(scratch[:size], left[:size], window_beam)
        turns = left[:size]
        if weights[SCORE, SENTENCE_DENSE] != 0 and not everywhere:
            _sentences(
                turns, sentence_indptr, addresses, sentence_inverse_norm, queries[j],
                sentence_dots[min(j, len(sentence_dots) - 1)], signals[SENTENCE_DENSE],
                ranges[SENTENCE_DENSE],
            )  # fmt: skip
        combine_at(signals, ranges, weights[SCORE], turns, scratch[:size])
        size = best(scratch[:size], _ANY, rows[j], scores[j])
        for i in range(size):
            rows[j, i] = turns[rows[j, i]]
        _contrast(scores[j], size, contrast)


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
    """Search the hierarchy (eq. 11) and weigh context priors (eq. 10), question by question.

    Parameters
    ----------
    units : Units
    asked : Asked
    weights : (6, 14) float32
        Of each of ``SIGNALS``, for each of the uses ``PRIOR`` to ``WINDOW``.
    half_informative, radius, n_episodes, episode_beam, window_beam, contrast
        See ``HierarchyConfig``; a sentence is compared with the question only where its turn is
        left in the beams, unless the graph view weighs sentences.
    sharpness, prior_top
        See ``GraphConfig``; ``prior_top`` 0 gives every admissible turn a prior.
    user : int
        The role whose standing instructions count.
    candidates : int
        Turns that the hierarchy view returns per question.

    Returns
    -------
    Views
        A row does not depend on the other questions.
    """
    n, b = len(units.n_tokens), len(asked.queries)
    p = min(prior_top or n, n)
    found = Views(
        np.full((b, p), -1, np.int32),
        np.zeros((b, p), np.float64),
        np.empty((b, n), np.float32),
        np.full((b, min(candidates, n)), -1, np.int32),
        np.zeros((b, min(candidates, n)), np.float32),
        np.zeros((b, n), np.bool_),
    )
    _views(
        tuple(units), tuple(asked), weights, half_informative, radius, n_episodes, episode_beam,
        window_beam, sharpness, contrast, user, *found,
    )  # fmt: skip
    return found
