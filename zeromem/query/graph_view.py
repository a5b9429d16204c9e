"""The graph view: alignment, propagation and Personalized PageRank (eq. 8-10)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zeromem.index import Index
from zeromem.kernels._views import Asked, Views
from zeromem.query.plan import Plan
from zeromem.query.questions import Questions

Array = NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Restart:
    """Where the walk of eq. 10 starts.

    Attributes
    ----------
    seed_indptr, seed_entity, seed_value : CSR (b x n_entities) float32
        eta_0, eq. 8.
    activation : (b, n_entities) float32
        Sum of eta_t, eq. 9.
    reset : (n + n_entities, b) float32
        r_q: columns sum to 1, or to 0 without any prior.
    """

    seed_indptr: Array
    seed_entity: Array
    seed_value: Array
    activation: Array
    reset: Array


def restart(index: Index, seeds: tuple[Array, Array, Array], asked: Asked, views: Views) -> Restart:
    """Spread the seeds' activation, and join it to context priors.

    Parameters
    ----------
    index : Index
    seeds : indptr, entities, values
        What :func:`align` returns.
    asked : Asked
    views : Views
    """
    arrays, config = index.arrays, index.config.graph
    activation = index.backend.propagate(
        arrays.graph, arrays.sentence_vectors, arrays.sentence_inverse_norm, asked.queries,
        asked.sentence_dots, *seeds, config.n_steps, config.threshold, config.top_sentences,
    )  # fmt: skip
    reset = index.backend.restart(
        views.prior_rows, views.priors, activation, config.entity_share, len(arrays)
    )
    return Restart(*seeds, activation, reset)


def graph_view(
    index: Index,
    plan: Plan,
    asked: Asked,
    views: Views,
    start: Restart,
    pi: Array,
    candidates: int,
) -> tuple[Array, Array]:
    """Rank turns by relational evidence.

    Parameters
    ----------
    index : Index
    plan : Plan
    asked : Asked
    views : Views
    start : Restart
    pi : (n + n_entities, b) float32
        Eq. 10.
    candidates : int

    Returns
    -------
    rows : (b, k) int32
        Best first, padded with -1.
    scores : (b, k) float32
    """
    arrays, config, backend = index.arrays, index.config.graph, index.backend
    # The paper: where no entity of the question is in the graph, the dense ranking stands.
    by_dense = (np.diff(start.seed_indptr) == 0) & config.dense_fallback
    has_titles = len(arrays.graph.titled.kernel_args[1]) + len(arrays.graph.titled.kernel_args[5])
    return backend.walked(
        pi, views.refine, by_dense, asked.dots, arrays.turn_inverse_norm, asked.masks,
        asked.mask_of, asked.queries, plan.hops, log_span=config.log_span,
        hop_weight=config.hop_weight if has_titles else 0.0, hop_from=config.hop_from,
        candidates=candidates,
    )  # fmt: skip


def align(
    index: Index, questions: Questions, names: dict[str, Array]
) -> tuple[Array, Array, Array]:
    """eta_0, eq. 8: each entity of the questions to the graph entity most like it, as a CSR.

    Parameters
    ----------
    index : Index
    questions : Questions
    names : dict of str to (dim,) float32
        Vectors of the names that the graph does not know.

    Returns
    -------
    indptr, entities, values : (b + 1,) int64, int32, float32
    """
    least = index.config.graph.min_alignment
    nearest = _nearest(index, names)
    lines: list[dict[int, float]] = []
    for question in questions.read:
        line: dict[int, float] = {}
        for name, known in question.entities:
            entity, cosine = (known, 1.0) if known >= 0 else nearest.get(name, (-1, 0.0))
            if entity >= 0 and cosine > 0 and cosine >= least:
                line[entity] = max(line.get(entity, 0.0), cosine)
        lines.append(dict(sorted(line.items())))
    indptr = np.zeros(len(lines) + 1, np.int64)
    np.cumsum([len(line) for line in lines], out=indptr[1:])
    entities = np.array([e for line in lines for e in line], np.int32)
    values = np.array([v for line in lines for v in line.values()], np.float32)
    return indptr, entities, values


def _nearest(index: Index, names: dict[str, Array]) -> dict[str, tuple[int, float]]:
    """Return the graph entity most like each name, and its cosine."""
    arrays, backend = index.arrays, index.backend
    if not names or not len(arrays.entity_vectors):
        return {}
    cosine = backend.dense(arrays.entity_vectors, np.stack(list(names.values())))
    cosine *= arrays.entity_inverse_norm
    top, value = backend.topk(cosine, None, 1)
    pairs: Sequence[tuple[int, float]] = list(
        zip(top[:, 0].tolist(), value[:, 0].tolist(), strict=True)
    )
    return dict(zip(names, pairs, strict=True))
