"""The entity–context graph of eq. 3-4 and its transition matrix, as CSR arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from zeromem.config import GraphConfig
from zeromem.index.segment import SPEAKER, TITLE, Segment
from zeromem.index.titles import title_mentions

Array = NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """Nodes are the n turns, then the entities.

    Attributes
    ----------
    indptr, indices, data : CSR of PT, (n + n_entities) square, float32
        Transposed row-normalised transition matrix: column sums are 1, or 0 for dangling nodes.
    dangling : (n + n_entities,) bool
    mention_indptr, mention_entity, mention_weight : CSR of B, n × n_entities, float32
        w(d, e) of eq. 4 with the configuration's title and speaker edges.
    S_indptr, S_indices : CSR of sentences × entities
    E_indptr, E_indices : its transpose
    title_indptr, title_rows : CSR of entities × turns
        The turns whose title an entity is.
    """

    indptr: Array
    indices: Array
    data: Array
    dangling: Array
    mention_indptr: Array
    mention_entity: Array
    mention_weight: Array
    S_indptr: Array
    S_indices: Array
    E_indptr: Array
    E_indices: Array
    title_indptr: Array
    title_rows: Array


def build_graph(s: Segment, neighbours: Array, config: GraphConfig) -> Graph:
    """Build the graph of one scope.

    Parameters
    ----------
    s : Segment
        All turns of the scope.
    neighbours : (m, 2) int32
        Turns that follow one another in a session.
    config : GraphConfig
    """
    n, n_entities = len(s), len(s.entities)
    B = mention_weights(s, config)
    adjacent = _matrix(neighbours[:, 0], neighbours[:, 1], config.adjacency_weight, (n, n))
    A = sp.block_array([[adjacent + adjacent.T, B], [B.T, None]], format="csr")
    degree = np.asarray(A.sum(axis=1)).ravel()
    dangling = degree == 0
    scale = 1.0 / np.where(dangling, 1.0, degree)
    PT = (A * scale[:, None]).T.tocsr()
    PT.sum_duplicates()
    in_sentence = s.mentions[s.mentions[:, 1] >= 0]
    S = _matrix(in_sentence[:, 1], in_sentence[:, 2], 1.0, (len(s.sentence_turn), n_entities))
    E = S.T.tocsr()
    E.sort_indices()
    turn, sentence, entity = s.mentions.T
    titled = sentence == TITLE
    T = _matrix(entity[titled], turn[titled], 1.0, (n_entities, n))
    return Graph(
        indptr=PT.indptr.astype(np.int64),
        indices=PT.indices.astype(np.int32),
        data=PT.data.astype(np.float32),
        dangling=dangling,
        mention_indptr=B.indptr.astype(np.int64),
        mention_entity=B.indices.astype(np.int32),
        mention_weight=B.data.astype(np.float32),
        S_indptr=S.indptr.astype(np.int64),
        S_indices=S.indices.astype(np.int32),
        E_indptr=E.indptr.astype(np.int64),
        E_indices=E.indices.astype(np.int32),
        title_indptr=T.indptr.astype(np.int64),
        title_rows=T.indices.astype(np.int32),
    )


def mention_weights(s: Segment, config: GraphConfig) -> sp.csr_array:
    """w(d, e), eq. 4, plus the edges that metadata gives; float64, n × n_entities."""
    shape = (len(s), len(s.entities))
    turn, sentence, entity = s.mentions.T
    found = sentence >= 0
    if not config.speaker_mentions:
        is_speaker = np.isin(np.array(s.entities, dtype=object), list(s.speakers))
        found &= ~is_speaker[entity]
    counts = _counts(turn[found], entity[found], shape)
    if config.title_links:
        linked = _counts(*title_mentions(s), shape)
        counts = counts.maximum(linked)
    if config.idf_weighting:
        df = np.bincount(counts.indices, minlength=shape[1])
        counts = (counts * np.log1p((len(s) - df + 0.5) / (df + 0.5))[None, :]).tocsr()
    total = np.asarray(counts.sum(axis=1)).ravel()
    B = counts * (1.0 / np.where(total == 0, 1.0, total))[:, None]
    for kind, weight in ((TITLE, config.title_weight), (SPEAKER, config.speaker_weight)):
        if weight > 0:
            which = sentence == kind
            B = B + _matrix(turn[which], entity[which], weight, shape)
    result = sp.csr_array(B)
    result.sort_indices()
    return result


def _counts(rows: Array, columns: Array, shape: tuple[int, int]) -> sp.csr_array:
    """How often each pair occurs."""
    ones = np.ones(len(rows))
    counts = sp.coo_array((ones, (rows, columns)), shape=shape).tocsr()
    counts.sum_duplicates()
    return counts


def _matrix(rows: Array, columns: Array, value: float, shape: tuple[int, int]) -> sp.csr_array:
    """Give every pair that occurs the same value, however often it does."""
    counts = _counts(rows, columns, shape)
    counts.data[:] = value
    counts.sort_indices()
    return counts
