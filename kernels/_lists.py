"""Inverted lists (``zeromem.index.lists.Lists``) as array code reads them: all in one CSR."""

from __future__ import annotations

from typing import Any

import numpy as np


def sealed(xp: Any, lists: tuple[Any, ...]) -> tuple[Any, Any, Any]:
    """Return indptr (n_keys + 1,), values (n,) and counts (n,) or (0,) of ``Lists.kernel_args``.

    The tail is a chain of entries for each key. Where each leads to is found for all at once, by
    steps that double in length.
    """
    indptr, values, counts, head, older, tail_values, tail_counts = lists
    n_keys, n_tail = len(head), len(older)
    if not n_tail and len(indptr) == n_keys + 1:
        return indptr, values, counts
    if not n_tail + len(values):
        return xp.zeros(n_keys + 1, np.int64), values, counts
    # From each entry to a newer one of its key, in the end to the newest, which is its own.
    newest = xp.arange(n_tail)
    linked = xp.flatnonzero(older >= 0)
    newest[older[linked]] = linked
    for _ in range(n_tail.bit_length()):
        newest = newest[newest]
    keys = xp.flatnonzero(head >= 0)
    key_of = xp.zeros(n_tail, np.int64)
    key_of[head[keys]] = keys
    base = xp.searchsorted(indptr[1:], xp.arange(len(values)), side="right")
    key = xp.concatenate([base, key_of[newest]])
    # Stable: the sealed values of a key first, then those of the tail as they came.
    order = xp.argsort(key, kind="stable")
    joined = xp.concatenate([values, tail_values])[order]
    counts = xp.concatenate([counts, tail_counts])
    starts = xp.cumsum(xp.bincount(key, minlength=n_keys)).astype(np.int64)
    starts = xp.concatenate([xp.zeros(1, np.int64), starts])
    return starts, joined, counts[order] if len(counts) else counts
