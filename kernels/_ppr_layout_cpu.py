"""The compiled passes that lay out a graph for the host's ``ppr``; ``_ppr_plan_cpu`` calls them."""

from __future__ import annotations

import numpy as np
from numba import njit

from zeromem.kernels._lanes import item
from zeromem.kernels._numba import (
    F32_1,
    F64,
    I32_1,
    I64,
    I64_1,
    OUT_F32_1,
    OUT_F32_2,
    OUT_I32_1,
    OUT_I32_2,
    OUT_I64_1,
    OUT_I64_2,
    VOID,
    kernel,
)

SLICE = 16  # rows of a slice; also how far a table may be read or written past its end
CELL = 8  # entries of a cache line: their columns, then their weights
STEP = 2 * SLICE  # from an entry of a slice's row to the next, in words
HUB = 32  # the longest row in a slice
# Turns of a window: as long as its chains go. Its rows are sorted by length, and its part of the
# table of turns is still in the first cache when its chains are solved.
WINDOW = 512


# What ``inspect`` finds wrong.
OK, INDPTR, ENTITY, NUMBER, PREVIOUS, TWICE = range(6)


@kernel(I64(I32_1, I64_1, I32_1, F32_1, F32_1, OUT_I32_1, OUT_I32_1))
def inspect(previous, indptr, entity, weight, inverse_degree, following, count):
    """Fill ``following`` (-1 for none) and mentions by entity; return what is wrong, or OK."""
    n, m = len(previous), len(count)
    following[:] = -1
    count[:] = 0
    if indptr[0] != 0 or indptr[n] != len(entity):
        return INDPTR
    for t in range(n):
        if indptr[t + 1] < indptr[t] or indptr[t + 1] > len(entity):
            return INDPTR
        before = previous[t]
        if before < -1 or before >= t:
            return PREVIOUS
        if before >= 0:
            if following[before] >= 0:
                return TWICE
            following[before] = t
    for e in entity:
        if e < 0 or e >= m:
            return ENTITY
        count[e] += 1
    # Without a way out of the loop the machine compares many numbers at a time.
    right = 0
    for value in weight:
        right += (value >= 0) & (value < np.inf)
    for value in inverse_degree:
        right += (value >= 0) & (value < np.inf)
    return OK if right == len(weight) + len(inverse_degree) else NUMBER


@kernel(VOID(I32_1, OUT_I32_1, OUT_I64_2))
def number_entities(count, number, starts):
    """Number the kept entities, -1 for the others: all hubs, then each memory's by their mentions.

    Within a memory the numbers depend on it alone, or packing it with others would change bits.
    """
    # By length, that of all hubs as one: the next number, and whether one is given.
    next_of, given = np.zeros(HUB + 2, np.int32), np.ones(HUB + 2, np.int32)
    given[:2] = 0
    hub, first = np.int32(0), np.int32(0)
    for size in count:
        first += size > HUB
    for memory in range(len(starts) - 1):
        starts[memory, 2], starts[memory, 3] = hub, first
        lo, hi = starts[memory, 1], starts[memory + 1, 1]
        next_of[:] = 0
        for e in range(lo, hi):
            next_of[min(count[e], HUB + 1)] += 1
        next_of[:2] = -1
        hub, next_of[HUB + 1] = hub + next_of[HUB + 1], hub
        for length in range(HUB, 1, -1):
            first, next_of[length] = first + next_of[length], first
        for e in range(lo, hi):
            length = min(count[e], HUB + 1)
            number[e] = next_of[length]
            next_of[length] += given[length]
    starts[len(starts) - 1, 2], starts[len(starts) - 1, 3] = hub, first


@kernel(VOID(I32_1, I32_1, I64, OUT_I64_1, OUT_I64_2, OUT_I32_1))
def lay_entities(count, number, n_hubs, slices, hubs, cursor):
    """Lay out the rows of entities; ``cursor`` is where each of them starts."""
    slices[:] = 0
    for e in range(len(count)):
        if number[e] >= n_hubs:
            at = (number[e] - n_hubs) // SLICE + 1
            slices[at] = max(slices[at], count[e])
    for s in range(len(slices) - 1):
        slices[s + 1] = slices[s] + STEP * slices[s + 1]
    for j in range(n_hubs, len(cursor)):
        lane = (j - n_hubs) % SLICE
        cursor[j] = slices[(j - n_hubs) // SLICE] + lane + (lane & CELL)
    for e in range(len(count)):
        if 0 <= number[e] < n_hubs:
            hubs[number[e], 2] = count[e]
    end = slices[len(slices) - 1]
    for j in range(n_hubs):
        hubs[j, 0], hubs[j, 1] = j, end
        cursor[j] = end
        end += 2 * CELL * -(-hubs[j, 2] // CELL)
        hubs[j, 2] = end


@kernel(
    VOID(
        I32_1, I32_1, I64_1, I32_1, I32_1, OUT_I32_1, OUT_I32_1, OUT_I32_2, OUT_I64_2, OUT_I32_1,
        OUT_I64_1, OUT_I64_2, OUT_I32_1, OUT_I64_1, OUT_I64_1,
    )
)  # fmt: skip
def lay_turns(
    previous, following, indptr, entity, number, named, turn_row, chains, windows, order, slices,
    hubs, length, at, sizes,
):  # fmt: skip
    """Put the turns in chains and windows, and lay out their rows; ``at`` is where each starts.

    ``named`` gets the number of each mention's entity, ``sizes`` those of windows, slices, hubs and
    chains.
    """
    n = len(previous)
    # By itself: no branch waits for these numbers, so many are looked up at a time.
    for p in range(len(entity)):
        named[p] = item(number, np.int64(item(entity, p)))
    next_of, unsorted = np.zeros(256, np.int64), np.empty((n + 1, 2), np.int32)
    position = chain = n_windows = n_slices = n_hubs = start = 0
    first_chain = 0
    slices[0] = 0
    windows[0] = 0
    for t in range(n):
        if previous[t] < 0:
            unsorted[chain, 0] = position
            row = t
            while row >= 0:
                turn_row[position] = row
                kept = np.int32(0)
                for p in range(item(indptr, row), item(indptr, row + 1)):
                    kept += item(named, p) >= 0
                length[position] = kept
                position += 1
                row = following[row]
            unsorted[chain, 1] = position
            chain += 1
        if position - start < WINDOW and not (t == n - 1 and position > start):
            continue
        next_of[:] = 0
        for c in range(first_chain, chain):
            next_of[min(unsorted[c, 1] - unsorted[c, 0], 255)] += 1
        place = np.int64(first_chain)
        for size in range(255, -1, -1):
            place, next_of[size] = place + next_of[size], place
        for c in range(first_chain, chain):
            size = min(unsorted[c, 1] - unsorted[c, 0], 255)
            chains[next_of[size], 0] = unsorted[c, 0]
            chains[next_of[size], 1] = unsorted[c, 1]
            next_of[size] += 1
        next_of[: HUB + 1] = 0
        for i in range(start, position):
            next_of[length[i] if length[i] <= HUB else 0] += 1
        first_row = place = np.int64(n_slices * SLICE)
        for size in range(HUB, -1, -1):
            place, next_of[size] = place + next_of[size], place
        for i in range(start, position):
            size = length[i]
            if size > HUB:
                hubs[n_hubs, 0] = i
                n_hubs += 1
                size = 0
            r = next_of[size]
            next_of[size] += 1
            order[r] = i
        for r in range(first_row, place, SLICE):
            size = length[order[r]]
            size = size if size <= HUB else 0
            slices[n_slices + 1] = slices[n_slices] + STEP * size
            for lane in range(SLICE):
                if r + lane < place:
                    at[order[r + lane]] = slices[n_slices] + lane + (lane & CELL)
                else:
                    order[r + lane] = n  # padding of the table
            n_slices += 1
        n_windows += 1
        start, first_chain = position, chain
        windows[n_windows, 0], windows[n_windows, 1] = position, chain
        windows[n_windows, 2], windows[n_windows, 3] = n_slices, n_hubs
    end = slices[n_slices]
    for h in range(n_hubs):
        hubs[h, 1] = end
        at[hubs[h, 0]] = end
        end += 2 * CELL * -(-length[hubs[h, 0]] // CELL)
        hubs[h, 2] = end
    sizes[0], sizes[1], sizes[2], sizes[3] = n_windows, n_slices, n_hubs, chain


@njit(forceinline=True)
def _next(p, is_hub):
    """Return where the next entry of a row is, without a branch: half of the entries are hubs'."""
    in_hub = 1 + CELL * np.int64(p & (CELL - 1) == CELL - 1)
    return p + STEP + np.int64(is_hub) * (in_hub - STEP)


@kernel(
    VOID(
        I32_1, I64_1, I32_1, F32_1, F32_1, F64, F64, I32_1, I32_1, I32_1, I32_1, I64_1, OUT_I32_1,
        I64, I64, OUT_I32_1, OUT_F32_1, OUT_I32_1, OUT_F32_1, OUT_I32_1, OUT_F32_1, OUT_F32_1,
        OUT_F32_2, OUT_F32_2,
    )
)  # fmt: skip
def fill(
    previous, indptr, entity, weight, inverse_degree, adjacency, damping, turn_row, following,
    number, named, at, cursor, turn_hubs_at, n_hubs, turn_entity, turn_weight, entity_turn,
    entity_weight, place, share, fold, factors, entity_degree,
):  # fmt: skip
    """Fill a plan's arrays. Rows of entities are in the order of the turns' positions."""
    n, k = len(previous), entity_degree.shape[1] - SLICE
    for e in range(len(number)):
        j = number[e]
        # Without branches: which entity is kept is as good as random. The others go to padding.
        kept = j >= 0
        inverse = inverse_degree[n + e] if kept else np.float32(0)
        degree = np.float32(1 / np.float64(inverse)) if inverse > 0 else np.float32(0)
        entity_degree[0, j if kept else k] = inverse
        entity_degree[1, j if kept else k] = degree
        place[n + e] = n + SLICE + j if kept else 0
        share[n + e] = degree
        fold[n + e] = -1 if inverse > 0 else 0
    link = damping * adjacency
    before = 0.0
    for i in range(n):
        row = turn_row[i]
        inverse = inverse_degree[row]
        own_degree = 1 / np.float64(inverse) if inverse > 0 else 0.0
        pivot = total = own_degree
        q = at[i]
        is_hub = q >= turn_hubs_at
        for p in range(item(indptr, row), item(indptr, row + 1)):
            j = np.int64(item(named, p))
            flow = np.float32(damping * item(weight, p))
            if j >= 0:
                turn_entity[q] = j
                turn_weight[q] = flow
                q = _next(q, is_hub)
                c = np.int64(item(cursor, j))
                entity_turn[c] = i
                entity_weight[c] = flow
                cursor[j] = _next(c, j < n_hubs)
            else:
                node = n + np.int64(item(entity, p))
                ratio = flow * inverse_degree[node]
                place[node] = i
                share[node] = flow
                fold[node] = ratio
                pivot -= np.float64(flow) * ratio
                total += flow  # type: ignore[assignment] # a scalar of Numba
        # T = D - damping A among turns: the sweep along a chain is Gaussian elimination.
        linked = previous[row] >= 0 and before > 0
        lower = link / before if linked else 0.0
        pivot -= link * lower
        alive = own_degree > 0 and pivot > 0
        before = pivot if alive else 0.0
        inverse_pivot = 1 / pivot if alive else 0.0
        factors[0, i] = lower
        factors[1, i] = link * inverse_pivot if following[row] >= 0 else 0.0
        factors[2, i] = inverse_pivot
        factors[3, i] = total
        place[row] = i
        share[row] = own_degree
        fold[row] = -1 if own_degree > 0 else 0
