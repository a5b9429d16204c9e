"""What the forms of ``evidence`` share: candidates, bounds and items."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

MAIN, BRIDGE, NEIGHBOR = range(3)
# Why an item of C(q) is not in R(q).
KEPT, OUTSIDE, SUPERSEDED, TOO_LONG = range(4)


class Turns(NamedTuple):
    """The memory's turns as this kernel reads them; the columns of ``zeromem.index.Arrays``."""

    n_tokens: NDArray[np.int32]
    flags: NDArray[np.int32]
    speaker: NDArray[np.int32]
    role: NDArray[np.int32]
    time: NDArray[np.int64]
    previous: NDArray[np.int32]
    following: NDArray[np.int32]
    mention_indptr: NDArray[np.int64]
    mention_entity: NDArray[np.int32]
    term_indptr: NDArray[np.int64]
    term: NDArray[np.int32]
    addresses: NDArray[np.int64]
    inverse_norm: NDArray[np.float32]


class Ranked(NamedTuple):
    """What the views say of a batch of b questions.

    Attributes
    ----------
    indptr, rows, fused : (b + 1,) int64, (m,) int32, (m,) float32
        Candidates by eq. 13, best first.
    graph_rows : (b, k) int32
        The graph view's candidates, best first, padded with -1.
    masks, mask_of, subject, period : see ``views_cpu``
    term_indptr, term : CSR of the question's distinct terms
    wanted : (b,) int32
        Bits of ``flags`` that an answer of the asked type carries; 0 for any.
    newest : (b,) bool
        Of two that stand equal the newer comes first.
    supersede : (b,) bool
        The present state is asked for: an older value of the same attribute gives way.
    """

    indptr: NDArray[np.int64]
    rows: NDArray[np.int32]
    fused: NDArray[np.float32]
    graph_rows: NDArray[np.int32]
    masks: NDArray[np.bool_]
    mask_of: NDArray[np.int32]
    subject: NDArray[np.bool_]
    period: NDArray[np.int64]
    term_indptr: NDArray[np.int64]
    term: NDArray[np.int32]
    wanted: NDArray[np.int32]
    newest: NDArray[np.bool_]
    supersede: NDArray[np.bool_]


class Bounds(NamedTuple):
    """The numbers of ``ClosureConfig``, ``CalibrationConfig`` and one call.

    Attributes
    ----------
    main : int
        Most main items.
    anchors, short, bridges, neighbors, tokens, local : int
        See ``ClosureConfig`` and ``HierarchyConfig``; 0 bridges or anchors leave a kind out.
    budget : int
        Most tokens of R(q); -1 for no bound.
    closure, calibration : bool
    """

    main: int
    anchors: int
    near: int
    short: int
    bridges: int
    neighbors: int
    tokens: int
    local: int
    budget: int
    closure: bool
    calibration: bool


class Items(NamedTuple):
    """C(q) of each question: first R(q), best first, then what was left out.

    Attributes
    ----------
    indptr : (b + 1,) int64
    n_kept : (b,) int64
        Items of R(q).
    row : (m,) int32
    kind : (m,) int8
        ``MAIN``, ``BRIDGE`` or ``NEIGHBOR``.
    fused, support, score : (m,) float64
        Eq. 13; what main evidence beside it lends it; what R(q) is ranked by.
    reason : (m,) int8
        ``KEPT``, or why not.
    newer : (m,) int32
        The row that supersedes it, or -1.
    """

    indptr: NDArray[np.int64]
    n_kept: NDArray[np.int64]
    row: NDArray[np.int32]
    kind: NDArray[np.int8]
    fused: NDArray[np.float64]
    support: NDArray[np.float64]
    score: NDArray[np.float64]
    reason: NDArray[np.int8]
    newer: NDArray[np.int32]
