"""Parts of ``views``: signals added up, spread to windows and episodes, and cut down."""

from __future__ import annotations

import numpy as np

from zeromem.kernels._noise import NOISE
from zeromem.kernels._numba import inner
from zeromem.kernels._views import INFORMATIVE, N_SIGNALS, STATEMENT

_LAST = np.iinfo(np.int32).max
_BINS = 1024
_BLOCK = 2048  # floats that stay in the nearest cache while signals are added up


@inner
def range_of(values, mask, out):
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
def scale_of(signal, weight, low, high):
    """Return what a signal is multiplied by; 0 where it tells nothing apart.

    What differs by rounding alone is the same for all: a range that narrow would make it a signal
    as strong as any.
    """
    # These are differences of numbers in [0, 1], which may all be next to nothing.
    size = np.float32(1.0) if signal in (STATEMENT, INFORMATIVE) else np.float32(0.0)
    least = NOISE * max(size, max(abs(low), abs(high)))
    return weight / (high - low) if high - low > least else np.float32(0.0)


@inner
def add_scaled(values, low, scale, out):
    for i in range(len(out)):
        out[i] += scale * (values[i] - low)


@inner
def add_scaled_at(values, at, low, scale, out):
    for i in range(len(at)):
        out[i] += scale * (values[np.uint64(at[i])] - low)


@inner
def combine(signals, ranges, weights, out):
    """Add up signals that are each min-max-normalised over the turns they were ranged over."""
    n = signals.shape[1]
    for start in range(0, n, _BLOCK):
        stop = min(start + _BLOCK, n)
        part = out[start:stop]
        part[:] = 0.0
        for s in range(N_SIGNALS):
            low = ranges[s, 0]
            scale = scale_of(s, weights[s], low, ranges[s, 1])
            if scale != 0:
                add_scaled(signals[s, start:stop], low, scale, part)


@inner
def combine_at(signals, ranges, weights, rows, out):
    """Do what :func:`combine` does, for some rows."""
    out[:] = 0.0
    for s in range(N_SIGNALS):
        low = ranges[s, 0]
        scale = scale_of(s, weights[s], low, ranges[s, 1])
        if scale != 0:
            add_scaled_at(signals[s], rows, low, scale, out)


@inner
def gather(values, at, out):
    for i in range(len(at)):
        out[i] = values[np.uint64(at[i])]


@inner
def best_of_episode(values, mask, episode_of, best):
    """Put the best value within the mask, at least 0, at each episode's first turn."""
    best[:] = 0.0
    for i in range(len(values)):
        episode = np.uint64(episode_of[i])
        if mask[i] and values[i] > best[episode]:
            best[episode] = values[i]


@inner
def multiply(values, by, out):
    for i in range(len(out)):
        out[i] = values[i] * by[i]


@inner
def windows(dots, n_tokens, previous, following, inverse_norm, radius, out):
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
def best_near(dense, lexical, previous, following, radius, out_dense, out_lexical):
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
def keep_best(values, rows, k):
    """Keep the ``k`` best of the rows, in their order; ties go to the earlier one.

    A histogram finds the bin that holds the k-th: what lies above stays, and only the bin itself
    is sorted.
    """
    size = len(rows)
    if size <= k:
        return np.int64(size)
    ends = np.empty(2, np.float32)
    range_of(values, np.ones(size, np.bool_), ends)
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
def rows_of(mask, rows):
    size = 0
    for i in range(len(mask)):
        rows[size] = i
        size += mask[i]
    return np.int64(size)


@inner
def in_best_episodes(values, mask, episode_of, beam, by_episode, rows):
    """Fill in the turns of the ``beam`` best episodes; an episode is as good as its best turn."""
    n = len(values)
    there = np.zeros(n, np.bool_)
    for i in range(n):
        if mask[i]:
            episode = np.uint64(episode_of[i])
            if not there[episode] or values[i] > by_episode[episode]:
                by_episode[episode] = values[i]
                there[episode] = True
    n_episodes = rows_of(there, rows)
    if n_episodes > beam:
        best_turn = np.empty(n_episodes, np.float32)
        gather(by_episode, rows[:n_episodes], best_turn)
        n_kept = keep_best(best_turn, rows[:n_episodes], beam)
        there[:] = False
        for i in range(n_kept):
            there[rows[i]] = True
    size = 0
    for i in range(n):
        if mask[i] and there[np.uint64(episode_of[i])]:
            rows[size] = i
            size += 1
    return np.int64(size)
