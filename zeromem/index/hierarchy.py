"""Sessions' links, windows and episodes, brought up to date where turns came (eq. 5)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from zeromem import _hierarchy
from zeromem.config import HierarchyConfig
from zeromem.index.chunks import Chunks
from zeromem.index.columns import Columns
from zeromem.index.state import ranges

Array = NDArray[Any]
_HOUR = 3_600_000_000  # microseconds


def extend_hierarchy(
    c: Columns, vectors: Chunks, start: int, n_sessions: int, config: HierarchyConfig
) -> Columns:
    """Bring the hierarchy's columns up to date with the turns from ``start`` on.

    Parameters
    ----------
    c : Columns
        The turns' own columns hold the new turns already.
    vectors : Chunks
        Of all turns.
    start : int
        First new turn.
    n_sessions : int
        Of all turns.
    config : HierarchyConfig
    """
    session = c["session"][start:]
    n_new = len(session)
    touched, order, counts = _by_session(session)
    new = (start + order).astype(np.int32)  # new turns, session by session
    first = np.cumsum(counts) - counts
    known = len(c["session_last"])
    old = touched < known
    before = np.full(len(touched), -1, np.int32)
    before[old] = c["session_last"][touched[old]]
    c = _linked(c, start, new, first, before)
    last = new[first + counts - 1]
    length = counts.astype(np.int32)
    length[old] += c["session_length"][touched[old]]
    for name, values in (("session_last", last), ("session_length", length)):
        fresh = np.zeros(n_sessions - known, np.int32)
        fresh[touched[~old] - known] = values[~old]
        c = c.changed(name, touched[old], values[old], fresh)
    c = _windows(c, vectors, start, n_new, last, counts, length, config)
    return _episodes(c, vectors, start, n_new, last, length, config)


def _by_session(session: Array) -> tuple[Array, Array, Array]:
    """Distinct sessions, the turns in their order (stable), and how many each has."""
    if len(session) == 1:
        return session.astype(np.int64), np.zeros(1, np.int64), np.ones(1, np.int64)
    order = np.argsort(session, kind="stable")
    touched, counts = np.unique(session, return_counts=True)
    return touched.astype(np.int64), order, counts


def _linked(c: Columns, start: int, new: Array, first: Array, before: Array) -> Columns:
    previous = np.empty(len(new), np.int32)
    following = np.full(len(new), -1, np.int32)
    back = np.empty(len(new), np.int32)
    back[1:] = new[:-1]
    back[first] = before
    previous[new - start] = back
    inner = back >= start
    following[back[inner] - start] = new[inner]
    joined = before >= 0
    c = c.extended(previous=previous)
    return c.changed("following", before[joined], new[first[joined]], following)


def _windows(
    c: Columns,
    vectors: Chunks,
    start: int,
    n_new: int,
    last: Array,
    counts: Array,
    length: Array,
    config: HierarchyConfig,
) -> Columns:
    """Norms of the windows and similarities of the gaps that new turns change.

    Windows change half a window before the first new turn of a session, gaps a window before it.
    """
    half = (config.window - 1) // 2
    reach = np.minimum(length, counts + config.window + 2 * half).astype(np.int32)
    rows = _hierarchy.paths(c["previous"], last, reach)
    indptr = _indptr(reach)
    raw = vectors.take(rows)
    weights = c["n_tokens"][rows].astype(np.float32)
    spans = _hierarchy.windows(indptr, config.window)
    at = _tail(indptr, np.minimum(reach, counts + half))
    norms = _hierarchy.norms(np.ascontiguousarray(spans[at]), raw, weights)
    c = _put(c, "window_inverse_norm", start, n_new, rows[at], inverse(norms))
    similarity = _hierarchy.similarities(
        indptr, raw, weights, c["time"][rows], config.window, _gap(config)
    )
    at = _tail(indptr, np.minimum(reach, counts + config.window))
    return _put(c, "similarity", start, n_new, rows[at], similarity[at])


def _episodes(
    c: Columns,
    vectors: Chunks,
    start: int,
    n_new: int,
    last: Array,
    length: Array,
    config: HierarchyConfig,
) -> Columns:
    """Segment the touched sessions again; only episodes that changed are looked at anew."""
    moved, episode, changed, indptr, members, cleared = _hierarchy.segment(
        c["previous"], last, length, c["similarity"], c["time"], c["episode_of"],
        config.depth, config.min_turns, config.max_turns, _gap(config),
    )  # fmt: skip
    norms = _hierarchy.norms(
        np.stack((indptr[:-1], indptr[1:]), axis=1).astype(np.int32),
        vectors.take(members),
        c["n_tokens"][members].astype(np.float32),
    )
    c = _put(c, "episode_of", start, n_new, moved, episode)
    at = np.concatenate((changed, cleared))
    values = np.concatenate((inverse(norms), np.zeros(len(cleared), np.float32)))
    return _put(c, "episode_inverse_norm", start, n_new, at, values)


def inverse(norms: Array) -> Array:
    """1 / norm as float32; 0 for what has no direction."""
    usable = np.isfinite(norms) & (norms > 0)
    found: Array = np.zeros(len(norms), np.float32)
    found[usable] = 1.0 / norms[usable]
    return found


def _put(c: Columns, name: str, start: int, n_new: int, at: Array, values: Array) -> Columns:
    """Give rows their values; those from ``start`` on are appended, and are all among them."""
    fresh = np.empty(n_new, c[name].dtype)
    new = at >= start
    fresh[at[new] - start] = values[new]
    return c.changed(name, at[~new], values[~new], fresh)


def _tail(indptr: Array, counts: Array) -> Array:
    """The last ``counts`` entries of each range."""
    return ranges(np.stack((indptr[1:] - counts, indptr[1:]), axis=1).ravel(),
                  2 * np.arange(len(counts)))  # fmt: skip


def _indptr(counts: Array) -> Array:
    indptr = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=indptr[1:])
    return indptr


def _gap(config: HierarchyConfig) -> int:
    return int(min(config.gap_hours * _HOUR, float(2**62)))
