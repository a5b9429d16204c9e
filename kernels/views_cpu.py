"""The signals of a question, the hierarchy view, and where the graph view's walk starts.

Everything about one question is worked out before the next, so that its arrays stay in the cache.
"""

from __future__ import annotations

from typing import NamedTuple

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
from zeromem.kernels.topk_cpu import best

# The order of ``SignalWeights``' fields, which a test compares.
SIGNALS = (
    "turn_dense", "turn_lexical", "window_dense", "window_lexical", "episode_dense",
    "episode_lexical", "sentence_dense", "episode_best", "subject", "statement", "informative",
    "phrase", "temporal", "standing",
)  # fmt: skip
(
    TURN_DENSE, TURN_LEXICAL, WINDOW_DENSE, WINDOW_LEXICAL, EPISODE_DENSE, EPISODE_LEXICAL,
    SENTENCE_DENSE, EPISODE_BEST, SUBJECT, STATEMENT, INFORMATIVE, PHRASE, TEMPORAL, STANDING,
) = range(14)  # fmt: skip
N_SIGNALS = 14

# What each row of the weights is for.
PRIOR, REFINE, SCORE, REGION, EPISODE, WINDOW = range(6)
"""Context priors (eq. 10), the graph view's refinement, the hierarchy view's turns, what counts
as a good turn of an episode, and the beams over episodes and over windows (eq. 11)."""

NO_TIME = np.iinfo(np.int64).min
# Bits of the flags: see ``zeromem.index.features``.
_ASKS, _INSTRUCTS, _PREFERS = 1, 8, 16
_PREFERENCE = 0.25  # of a standing instruction
_LAST = np.iinfo(np.int32).max
_BINS = 1024
_AHEAD = 3  # turns whose sentences are asked for before they are read
_ANY = np.empty(0, np.bool_)
_BLOCK = 2048  # floats that stay in the nearest cache while signals are added up


class Units(NamedTuple):
    """The memory's turns as this kernel reads them; the columns of ``zeromem.index.Arrays``."""

    n_tokens: NDArray[np.int32]
    flags: NDArray[np.int32]
    speaker: NDArray[np.int32]
    role: NDArray[np.int32]
    time: NDArray[np.int64]
    group: NDArray[np.int32]
    group_asks: NDArray[np.float32]
    group_informative: NDArray[np.float32]
    turn_inverse_norm: NDArray[np.float32]
    previous: NDArray[np.int32]
    following: NDArray[np.int32]
    window_inverse_norm: NDArray[np.float32]
    episode_of: NDArray[np.int32]
    episode_inverse_norm: NDArray[np.float32]
    sentence_indptr: NDArray[np.int64]
    sentence_addresses: NDArray[np.int64]
    sentence_inverse_norm: NDArray[np.float32]


class Asked(NamedTuple):
    """A batch of b questions.

    Attributes
    ----------
    queries : (b, dim) float32
    dots : (b, n) float32
        Inner products with the turns' vectors as they are.
    turn_lexical, window_lexical, episode_lexical : (b, n) float32
        ``bm25``'s scores.
    masks : (n_masks, n) bool
        Turns within a boundary; question j's is ``masks[mask_of[j]]``.
    mask_of : (b,) int32
    speaker_indptr, speaker : CSR (b x n_speakers)
        Speakers that count as the question's subject.
    row_indptr, row : CSR (b x n)
        Turns that do so by their title.
    by_role : (b,) int32
        Where the subject is a role and not a name; -1 otherwise.
    period : (b, 2) int64
        Microseconds, half-open; empty where the question names no period.
    standing : (b,) int8
        1 where it asks for help: standing instructions of ``user_role`` count.
    phrase : (b, n) or (0, 0) float32
        Share of the question's phrases that stand in each turn; (0, 0) where unused.
    sentence_dots : (b, n_sentences) or (1, 0) float32
        Inner products with the sentences' vectors; where they are left out, those that are needed
        are computed one by one, with the same bits.
    """

    queries: NDArray[np.float32]
    dots: NDArray[np.float32]
    turn_lexical: NDArray[np.float32]
    window_lexical: NDArray[np.float32]
    episode_lexical: NDArray[np.float32]
    masks: NDArray[np.bool_]
    mask_of: NDArray[np.int32]
    speaker_indptr: NDArray[np.int64]
    speaker: NDArray[np.int32]
    row_indptr: NDArray[np.int64]
    row: NDArray[np.int32]
    by_role: NDArray[np.int32]
    period: NDArray[np.int64]
    standing: NDArray[np.int8]
    phrase: NDArray[np.float32]
    sentence_dots: NDArray[np.float32]


class Views(NamedTuple):
    """What the kernel returns.

    Attributes
    ----------
    prior_rows : (b, p) int32
        Turns with a context prior, padded with -1.
    priors : (b, p) float64
        They sum to 1, or to 0 where no turn is admissible or all are alike.
    refine : (b, n) float32
        Lexical and other support of the graph view's ranking; meaningless outside the mask.
    rows : (b, k) int32
        The hierarchy view's candidates, best first, padded with -1.
    scores : (b, k) float32
    subject : (b, n) bool
        Turns whose speaker or title is what the question names.
    """

    prior_rows: NDArray[np.int32]
    priors: NDArray[np.float64]
    refine: NDArray[np.float32]
    rows: NDArray[np.int32]
    scores: NDArray[np.float32]
    subject: NDArray[np.bool_]


_UNITS = record(
    I32_1, I32_1, I32_1, I32_1, I64_2, I32_1, F32_1, F32_1, F32_1, I32_1, I32_1, F32_1, I32_1,
    F32_1, I64_1, I64_1, F32_1,
)  # fmt: skip
_ASKED = record(
    F32_2, F32_2, F32_2, F32_2, F32_2, BOOL_2, I32_1, I64_1, I32_1, I64_1, I32_1, I32_1, I64_2,
    I8_1, F32_2, F32_2,
)  # fmt: skip


@inner
def _range(values, mask, out):
    """Put the least and the largest value within the mask into ``out``.

    Through integers that are ordered as the floats are: their minima and maxima vectorise.
    """
    bits = values.view(np.int32)
    found = out.view(np.int32)
    low, high = np.int32(_LAST), np.int32(-_LAST - 1)
    for i in range(len(bits)):
        key = bits[i] ^ ((bits[i] >> np.int32(31)) & np.int32(_LAST))
        low = min(low, key if mask[i] else np.int32(_LAST))
        high = max(high, key if mask[i] else np.int32(-_LAST - 1))
    found[0] = low ^ ((low >> np.int32(31)) & np.int32(_LAST))
    found[1] = high ^ ((high >> np.int32(31)) & np.int32(_LAST))
    if low > high:  # the mask is empty
        out[0] = out[1] = 0.0


@inner
def _scale(signal, weight, low, high):
    """Return what a signal is multiplied by; 0 where it tells nothing apart.

    What differs by rounding alone is the same for all: a range that narrow would make it a signal
    as strong as any.
    """
    # These are differences of numbers in [0, 1], which may all be next to nothing.
    size = np.float32(1.0) if signal in (STATEMENT, INFORMATIVE) else np.float32(0.0)
    least = NOISE * max(size, max(abs(low), abs(high)))
    return weight / (high - low) if high - low > least else np.float32(0.0)


@inner
def _add_scaled(values, low, scale, out):
    for i in range(len(out)):
        out[i] += scale * (values[i] - low)


@inner
def _add_scaled_at(values, at, low, scale, out):
    for i in range(len(at)):
        out[i] += scale * (values[np.uint64(at[i])] - low)


@inner
def _combine(signals, ranges, weights, out):
    """Add up signals that are each min-max-normalised over the turns they were ranged over."""
    n = signals.shape[1]
    for start in range(0, n, _BLOCK):
        stop = min(start + _BLOCK, n)
        part = out[start:stop]
        part[:] = 0.0
        for s in range(N_SIGNALS):
            low = ranges[s, 0]
            scale = _scale(s, weights[s], low, ranges[s, 1])
            if scale != 0:
                _add_scaled(signals[s, start:stop], low, scale, part)


@inner
def _combine_at(signals, ranges, weights, rows, out):
    """Do what :func:`_combine` does, for some rows."""
    out[:] = 0.0
    for s in range(N_SIGNALS):
        low = ranges[s, 0]
        scale = _scale(s, weights[s], low, ranges[s, 1])
        if scale != 0:
            _add_scaled_at(signals[s], rows, low, scale, out)


@inner
def _gather(values, at, out):
    for i in range(len(at)):
        out[i] = values[np.uint64(at[i])]


@inner
def _best_of_episode(values, mask, episode_of, best):
    """Put the best value within the mask, at least 0, at each episode's first turn."""
    best[:] = 0.0
    for i in range(len(values)):
        episode = np.uint64(episode_of[i])
        if mask[i] and values[i] > best[episode]:
            best[episode] = values[i]


@inner
def _multiply(values, by, out):
    for i in range(len(out)):
        out[i] = values[i] * by[i]


@inner
def _windows(dots, n_tokens, previous, following, inverse_norm, radius, out):
    """Cosines of windows: their vectors are the token-weighted sums of their turns'."""
    for i in range(len(dots)):
        total = n_tokens[i] * dots[i]
        back, ahead = previous[i], following[i]
        for _ in range(radius):
            if back >= 0:
                total += n_tokens[back] * dots[back]
                back = previous[back]
            if ahead >= 0:
                total += n_tokens[ahead] * dots[ahead]
                ahead = following[ahead]
        out[i] = total * inverse_norm[i]


@inner
def _best_near(dense, lexical, previous, following, radius, out_dense, out_lexical):
    """Give each turn the best of the windows that hold it."""
    for i in range(len(dense)):
        most, most_lexical = dense[i], lexical[i]
        back, ahead = previous[i], following[i]
        for _ in range(radius):
            if back >= 0:
                most, most_lexical = max(most, dense[back]), max(most_lexical, lexical[back])
                back = previous[back]
            if ahead >= 0:
                most, most_lexical = max(most, dense[ahead]), max(most_lexical, lexical[ahead])
                ahead = following[ahead]
        out_dense[i], out_lexical[i] = most, most_lexical


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
def _keep_best(values, rows, k):
    """Keep the ``k`` best of the rows, in their order; ties go to the earlier one.

    A histogram finds the bin that holds the k-th: what lies above stays, and only the bin itself
    is sorted.
    """
    size = len(rows)
    if size <= k:
        return np.int64(size)
    ends = np.empty(2, np.float32)
    _range(values, np.ones(size, np.bool_), ends)
    low, high = ends[0], ends[1]
    width = np.float32(_BINS - 1) / (high - low) if high > low else np.float32(0.0)
    bins = np.zeros(_BINS, np.int64)
    for i in range(size):
        bins[np.int64((values[i] - low) * width)] += 1
    above, border = 0, _BINS - 1
    while above + bins[border] < k:
        above += bins[border]
        border -= 1
    inside = np.empty(bins[border], np.int32)
    n_inside = 0
    kept = np.empty(size, np.bool_)
    for i in range(size):
        where = np.int64((values[i] - low) * width)
        if where == border:
            inside[n_inside] = i
            n_inside += 1
        kept[i] = where > border
    order = np.argsort(-values[inside], kind="mergesort")
    for i in range(k - above):
        kept[inside[order[i]]] = True
    n_kept = 0
    for i in range(size):
        if kept[i]:
            rows[n_kept] = rows[i]
            n_kept += 1
    return np.int64(n_kept)


@inner
def _rows_of(mask, rows):
    size = 0
    for i in range(len(mask)):
        rows[size] = i
        size += mask[i]
    return np.int64(size)


@inner
def _in_best_episodes(values, mask, episode_of, beam, by_episode, rows):
    """Fill in the turns of the ``beam`` best episodes; an episode is as good as its best turn."""
    n = len(values)
    there = np.zeros(n, np.bool_)
    for i in range(n):
        if mask[i]:
            episode = np.uint64(episode_of[i])
            if not there[episode] or values[i] > by_episode[episode]:
                by_episode[episode] = values[i]
                there[episode] = True
    n_episodes = _rows_of(there, rows)
    if n_episodes > beam:
        best_turn = np.empty(n_episodes, np.float32)
        _gather(by_episode, rows[:n_episodes], best_turn)
        n_kept = _keep_best(best_turn, rows[:n_episodes], beam)
        there[:] = False
        for i in range(n_kept):
            there[rows[i]] = True
    size = 0
    for i in range(n):
        if mask[i] and there[np.uint64(episode_of[i])]:
            rows[size] = i
            size += 1
    return np.int64(size)


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
    for use in range(len(weights)):
        if weights[use, signal] != 0:
            return True
    return False


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
        n_tokens, flags, speaker, role, time, group, group_asks, group_informative,
        turn_inverse_norm, previous, following, window_inverse_norm, episode_of,
        episode_inverse_norm, sentence_indptr, addresses, sentence_inverse_norm,
    ) = units  # fmt: skip
    (
        queries, dots, turn_lexical, window_lexical, episode_lexical, masks, mask_of, _, _, _, _,
        by_role, period, standing, phrase, sentence_dots,
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
        _multiply(dots[j], turn_inverse_norm, signals[TURN_DENSE])
        signals[TURN_LEXICAL, :] = turn_lexical[j]
        _windows(dots[j], tokens, previous, following, window_inverse_norm, radius, scratch)
        _best_near(
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
        _gather(episode_lexical[j], episode_of, signals[EPISODE_LEXICAL])
        _mark_subject(units, asked, j, mask, subject[j], signals[SUBJECT])
        ranges[PHRASE, :] = 0.0
        if phrase.shape[0] > 0:
            signals[PHRASE, :] = phrase[j]
            _range(signals[PHRASE], mask, ranges[PHRASE])
        ranges[TEMPORAL, :] = 0.0
        if period[j, 0] < period[j, 1]:
            for i in range(n):
                inside = (
                    time[i, 0] != NO_TIME
                    and time[i, 0] < period[j, 1]
                    and time[i, 1] > period[j, 0]
                )
                signals[TEMPORAL, i] = np.float32(1.0) if inside else np.float32(0.0)
            _range(signals[TEMPORAL], mask, ranges[TEMPORAL])
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
            _range(signals[STANDING], mask, ranges[STANDING])
        for s in range(N_SIGNALS):
            if s < SENTENCE_DENSE or EPISODE_BEST < s < PHRASE:
                _range(signals[s], mask, ranges[s])
        if not _needed(weights, EPISODE_DENSE):
            ranges[EPISODE_DENSE, :] = 0.0
        ranges[SENTENCE_DENSE, :] = 0.0
        signals[SENTENCE_DENSE, :] = signals[TURN_DENSE]
        if everywhere:
            size = _rows_of(mask, left)
            _sentences(
                left[:size], sentence_indptr, addresses, sentence_inverse_norm, queries[j],
                sentence_dots[min(j, len(sentence_dots) - 1)], signals[SENTENCE_DENSE],
                ranges[SENTENCE_DENSE],
            )  # fmt: skip
        # The best turn and window of each turn's episode, within the boundary.
        _combine(signals, ranges, weights[REGION], region)
        _best_of_episode(region, mask, episode_of, scratch)
        _gather(scratch, episode_of, signals[EPISODE_BEST])
        _range(signals[EPISODE_BEST], mask, ranges[EPISODE_BEST])

        # The graph view's: context priors of eq. 10 and what refines its ranking.
        _combine(signals, ranges, weights[PRIOR], scratch)
        _prior(scratch, mask, sharpness, prior_rows[j], priors[j])
        _combine(signals, ranges, weights[REFINE], refine[j])

        # The hierarchy view's: episodes, then windows, then turns (eq. 11).
        if n_episodes > episode_beam:
            _combine(signals, ranges, weights[EPISODE], scratch)
            size = _in_best_episodes(scratch, mask, episode_of, episode_beam, region, left)
        else:
            size = _rows_of(mask, left)
        if size > window_beam:
            _combine_at(signals, ranges, weights[WINDOW], left[:size], scratch[:size])
            size = _keep_best(scratch[:size], left[:size], window_beam)
        turns = left[:size]
        if weights[SCORE, SENTENCE_DENSE] != 0 and not everywhere:
            _sentences(
                turns, sentence_indptr, addresses, sentence_inverse_norm, queries[j],
                sentence_dots[min(j, len(sentence_dots) - 1)], signals[SENTENCE_DENSE],
                ranges[SENTENCE_DENSE],
            )  # fmt: skip
        _combine_at(signals, ranges, weights[SCORE], turns, scratch[:size])
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
