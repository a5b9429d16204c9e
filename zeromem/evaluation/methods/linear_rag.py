"""A graph-only retriever after LinearRAG's published description (arXiv 2510.10114).

Written from the paper's equations; none of its code was used. A history is a graph of three kinds
of nodes: entities, the sentences that mention them and the passages that contain them, found by
named-entity recognition, without relations. Retrieval has two stages.

1. *Local semantic bridging.* Each entity of the query activates the graph's most similar one, with
   their cosine. Activation then spreads from entities through sentences to entities,
   a_t = max(M' (sigma * (F a_{t-1})), a_{t-1}), where M is the sentence-entity incidence, sigma the
   sentences' cosines with the query, and F keeps of each entity its most similar sentences. Only
   activation above the threshold delta spreads on; the step at which an entity was first reached is
   its level L_e.
2. *Global importance aggregation.* Personalised PageRank over passages and entities. An entity
   restarts with its activation, a passage with
   (lambda * sim(q, p) + ln(1 + sum_e a_e ln(1 + N_pe) / L_e)) * w, where N_pe counts mentions.

Here a passage is a turn as every baseline here reads it (``speaker: text``, title and text), and
encoder and recogniser are zeromem's, so that nothing but the algorithm differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from zeromem.errors import InvalidInputError
from zeromem.evaluation.methods.base import RankedList
from zeromem.evaluation.methods.features import FeatureBank
from zeromem.evaluation.methods.tri_graph import TriGraph, build, kind
from zeromem.evaluation.methods.turns import Scores, minmax
from zeromem.evaluation.types import History, Query
from zeromem.ingest.annotate import Annotator, entity_names, load_annotator

_MOST_STEPS = 10_000


@dataclass(frozen=True, kw_only=True)
class LinearRagSettings:
    """Constants of the two stages; the defaults are those of its published command line.

    Attributes
    ----------
    n_steps : int
        Most propagation steps.
    threshold : float
        delta: least activation that spreads on.
    top_sentences : int
        Sentences per entity through which it spreads.
    passage_ratio : float
        lambda, of the dense similarity (min-max normalised) beside the entities' support.
    passage_weight : float
        w, of passages beside entities in the reset vector.
    damping : float
        d of PageRank.
    tolerance : float
        L1 change at which the walk has converged.
    """

    n_steps: int = 3
    threshold: float = 0.4
    top_sentences: int = 3
    passage_ratio: float = 2.0
    passage_weight: float = 0.05
    damping: float = 0.5
    tolerance: float = 1e-9

    def __post_init__(self) -> None:
        if not 0 <= self.damping < 1:
            raise InvalidInputError(
                f"damping must be in [0, 1), got {self.damping}; 0.5 is the published value"
            )


@dataclass(frozen=True)
class Activation:
    """Outcome of the first stage.

    Attributes
    ----------
    scores : (n_entities,) float64
        a; 0 where it did not arrive.
    levels : (n_entities,) int
        L_e: 1 for the query's own entities, 2 for what one step reached; 0 where it did not arrive.
    """

    scores: Scores
    levels: NDArray[np.intp]


def activate(
    graph: TriGraph, seeds: Scores, similarity: Scores, settings: LinearRagSettings
) -> Activation:
    """Spread activation by local semantic bridging.

    Parameters
    ----------
    graph : TriGraph
    seeds : (n_entities,) float
        Cosine of each query entity at the entity most like it.
    similarity : (n_sentences,) float
        sigma.
    settings : LinearRagSettings
    """
    scores = seeds.astype(np.float64)
    levels = (scores > 0).astype(np.intp)
    by_entity = graph.mentions.T.tocsr()
    sentence = np.repeat(np.arange(len(similarity)), np.diff(graph.mentions.indptr))
    frontier = np.flatnonzero(scores > settings.threshold)
    for step in range(2, settings.n_steps + 2):
        if not len(frontier):
            break
        reached = np.zeros(len(similarity))
        for entity in frontier:
            known = by_entity.indices[by_entity.indptr[entity] : by_entity.indptr[entity + 1]]
            best = known[np.lexsort((known, -similarity[known]))[: settings.top_sentences]]
            reached[best] = np.maximum(reached[best], scores[entity])
        passed = reached * similarity
        proposed = np.zeros(len(scores))
        np.maximum.at(proposed, graph.mentions.indices, passed[sentence])
        frontier = np.flatnonzero((proposed > settings.threshold) & (proposed > scores))
        scores[frontier] = proposed[frontier]
        levels[frontier[levels[frontier] == 0]] = step
    return Activation(scores, levels)


def passage_seeds(
    graph: TriGraph, activation: Activation, similarity: Scores, settings: LinearRagSettings
) -> Scores:
    """Weigh passages for the walk's reset: (n_passages,), not negative.

    Parameters
    ----------
    graph : TriGraph
    activation : Activation
    similarity : (n_passages,) float
        sim(q, p).
    settings : LinearRagSettings
    """
    share = np.zeros(len(activation.scores))
    arrived = activation.levels > 0
    share[arrived] = activation.scores[arrived] / activation.levels[arrived]
    said = graph.counts.copy()
    said.data = np.log1p(said.data)
    support = np.log1p(said @ share)
    dense = settings.passage_ratio * minmax(similarity)
    return np.asarray((dense + support) * settings.passage_weight, dtype=np.float64)


def walk(
    graph: TriGraph, passages: Scores, entities: Scores, settings: LinearRagSettings
) -> Scores:
    """Solve the walk over passages and entities; return the passages' importance.

    I(v) = (1 - d) r(v) + d * sum over neighbours u of I(u) / deg(u); what a node without edges
    holds returns to r.

    Parameters
    ----------
    graph : TriGraph
    passages, entities : (n,) float
        Reset weights before normalisation.
    settings : LinearRagSettings
    """
    reset = np.concatenate([passages, entities])
    total = reset.sum()
    if total <= 0:
        return np.zeros(len(passages))
    reset = reset / total
    edges = graph.counts.copy()
    edges.data = np.ones_like(edges.data)
    adjacency = sp.block_array([[None, edges], [edges.T, None]], format="csr")
    degree = np.asarray(adjacency.sum(axis=0)).ravel()
    alone = degree == 0
    scale = 1.0 / np.where(alone, 1.0, degree)
    rank = reset
    # Each step shrinks the change by the damping at least, so the bound is never what ends it.
    for _ in range(_MOST_STEPS):
        before = rank
        lost = before[alone].sum()
        spread = adjacency @ (before * scale) + lost * reset
        rank = (1 - settings.damping) * reset + settings.damping * spread
        if np.abs(rank - before).sum() <= settings.tolerance:
            break
    return np.asarray(rank[: len(passages)], dtype=np.float64)


class LinearRag(RankedList):
    """The two stages over turns.

    Where no entity of the query activates anything, the dense ranking stands, as published.

    Parameters
    ----------
    bank : FeatureBank
    settings : LinearRagSettings, optional
    annotator : Annotator, optional
        By default zeromem's.
    names : Annotator, optional
        What finds names in queries, where that is another.
    """

    name = "linear-rag"

    def __init__(
        self,
        bank: FeatureBank,
        settings: LinearRagSettings | None = None,
        annotator: Annotator | None = None,
        names: Annotator | None = None,
    ) -> None:
        super().__init__(bank)
        self.settings = settings or LinearRagSettings()
        self._annotator = annotator or load_annotator(None)
        self._names = names or self._annotator

    def prepare(self) -> None:
        """Recognise entities and join them to sentences and passages."""
        self.nodes = build(self.turns.history, self.bank, self._annotator)

    def scores(self, queries: Sequence[Query]) -> Scores:
        """Return each passage's importance."""
        graph = self.nodes.graph
        vectors = self.bank.encode([query.text for query in queries])
        sentences = np.asarray(vectors @ self.nodes.sentence_vectors.T, dtype=np.float64)
        passages = np.asarray(vectors @ self.turns.vectors.T, dtype=np.float64)
        out = np.empty((len(queries), len(self.turns)))
        for j, seeds in enumerate(self._seeds(queries)):
            if not seeds.any():
                out[j] = passages[j]
                continue
            activation = activate(graph, seeds, sentences[j], self.settings)
            reset = passage_seeds(graph, activation, passages[j], self.settings)
            out[j] = walk(graph, reset, activation.scores, self.settings)
        return out

    def share(self, history: History) -> None:
        """Make the features of the history's traces."""
        super().share(history)
        self.bank.derived(history, kind(self.bank, self._annotator))

    def _seeds(self, queries: Sequence[Query]) -> Scores:
        """Activate for each name of a query the entity most like it: (n_queries, n_entities)."""
        texts = [query.text for query in queries]
        named = entity_names(texts, self._names.annotate(texts))
        vectors = self.nodes.entity_vectors
        seeds = np.zeros((len(named), len(vectors)))
        names = sorted({name for some in named for name in some})
        if not names or not len(vectors):
            return seeds
        cosine = self.bank.encode(names) @ vectors.T
        best = dict(zip(names, zip(cosine.argmax(1), cosine.max(1), strict=True), strict=True))
        for j, some in enumerate(named):
            for name in some:
                entity, value = best[name]
                seeds[j, entity] = max(seeds[j, entity], float(value))
        return seeds
