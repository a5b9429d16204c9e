"""What the views see of questions: for analysis, not on the way to evidence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zeromem.config import SignalWeights
from zeromem.index import Index
from zeromem.query.graph_view import graph_view
from zeromem.query.piece import before_walk, views_of
from zeromem.query.plan import plan_of
from zeromem.query.questions import Encode
from zeromem.query.ranked import Options
from zeromem.query.retrieve import Batch, Work, encode_all
from zeromem.types import QueryProfile

Array = NDArray[Any]


def restarts(index: Index, profiles: Sequence[QueryProfile], encode: Encode) -> Array:
    """Return r_q of eq. 10 for each question as a whole: (n_questions, n + n_entities) float32."""
    work = Work(index, profiles, encode)
    batch = Batch.of(work)
    encode_all([batch])
    found = [np.zeros((0, len(index.arrays.graph.inverse_degree)), np.float32)]
    for piece in batch.pieces(1) if len(index) else ():
        found.append(before_walk(piece, Options()).start.reset.T[piece.indptr[:-1]])
    return np.concatenate(found)


@dataclass(frozen=True, slots=True, eq=False)
class Looked:
    """What the views see of a question: for analysis, not on the way to evidence.

    Attributes
    ----------
    graph, hierarchy : (k,) int32
        Their candidates, best first.
    scores : (n_uses, n) float32
        Of each use of signals; meaningless outside the mask.
    pi : (n,) float32
        Eq. 10.
    mask : (n,) bool
    """

    graph: Array
    hierarchy: Array
    scores: Array
    pi: Array
    mask: Array


def look(
    index: Index,
    profiles: Sequence[QueryProfile],
    encode: Encode,
    uses: Sequence[SignalWeights],
    k: int,
) -> Iterator[Looked]:
    """Yield what the views see of each question as a whole, with ``k`` candidates of each."""
    plan, backend = plan_of(index), index.backend
    batch = Batch.of(Work(index, profiles, encode))
    encode_all([batch])
    for piece in batch.pieces(1) if len(index) else ():
        walk = before_walk(piece, Options(k=k))
        pi = backend.ppr(*walk.arguments)
        graph, _ = graph_view(
            index, plan, walk.signals, walk.views, walk.start, pi, walk.candidates
        )
        scores = [views_of(index, plan, walk.signals, use, walk.candidates).refine for use in uses]
        masks = walk.questions.masks[walk.questions.mask_of]
        for j in piece.indptr[:-1].tolist():
            found, rows = graph[j], walk.views.rows[j]
            yield Looked(
                found[found >= 0][:k],
                rows[rows >= 0][:k],
                np.stack([score[j] for score in scores]),
                pi[: len(index), j],
                masks[j],
            )
