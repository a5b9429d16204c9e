"""The graph view: alignment, propagation and Personalized PageRank (eq. 8-10)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zeromem.config import GraphConfig, SignalWeights
from zeromem.query.signals import Ranking, Signals

Array = NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class GraphView:
    """The view's ranking and what explains it.

    Attributes
    ----------
    ranking : Ranking
    seeds : (n_entities, b) float32
        eta_0, eq. 8.
    activation : (n_entities, b) float32
        Sum of eta_t, eq. 9.
    similarity : (b, n_sentences) float32
        sim(q, z), eq. 9.
    pi : (b, n) float32
        Context part of eq. 10; zero for questions without an aligned entity in the graph.
    """

    ranking: Ranking
    seeds: Array
    activation: Array
    similarity: Array
    pi: Array

    def folded(self, indptr: Array, weight: float) -> GraphView:
        """Rank each group as one question; what explains it is its first question's."""
        whole = indptr[:-1]
        return GraphView(
            self.ranking.folded(indptr, weight),
            self.seeds[:, whole],
            self.activation[:, whole],
            self.similarity[whole],
            self.pi[whole],
        )


@dataclass(frozen=True, slots=True, eq=False)
class Restart:
    """Where the walk of eq. 10 starts.

    Attributes
    ----------
    seeds, activation : (n_entities, b) float32
        eta_0 (eq. 8) and the sum of eta_t (eq. 9).
    reset : (n + n_entities, b) float32
        r_q: columns sum to 1, or to 0 without any prior.
    """

    seeds: Array
    activation: Array
    reset: Array


def restart(signals: Signals) -> Restart:
    """Align the questions' entities, spread their activation, and join it to the dense priors."""
    arrays, config, backend = signals.arrays, signals.config.graph, signals.backend
    graph, put = arrays.graph, backend.put
    seeds = _align(signals, config)
    activation = seeds
    if seeds.any() and config.n_steps:
        activation = backend.propagate(
            put(graph.S_indptr), put(graph.S_indices), put(graph.E_indptr), put(graph.E_indices),
            seeds, np.ascontiguousarray(signals.sentences.T),
            config.n_steps, config.threshold, config.top_sentences,
        )  # fmt: skip
    prior = _context_prior(signals, config)
    return Restart(seeds, activation, _reset(prior, activation, config.entity_share))


def graph_view(signals: Signals, candidates: int) -> GraphView:
    """Rank turns by relational evidence.

    Parameters
    ----------
    signals : Signals
    candidates : int
        Turns to return per question.
    """
    arrays, config, backend = signals.arrays, signals.config.graph, signals.backend
    graph, put = arrays.graph, backend.put
    start = restart(signals)
    result = backend.ppr(
        put(graph.indptr), put(graph.indices), put(graph.data), put(graph.dangling),
        start.reset, config.damping, config.n_iter,
    )  # fmt: skip
    pi = np.ascontiguousarray(result.scores[: len(arrays)].T)
    score = _spread(pi, signals.questions.mask, config.log_span)
    if config.dense_fallback:
        # The paper: where no entity of the question is in the graph, the dense ranking stands.
        unaligned = ~start.seeds.any(axis=0)
        dense = signals.combine(SignalWeights(turn_dense=1.0))
        score[unaligned] = dense[unaligned]
    score += signals.combine(config.refine)
    rows, best = backend.topk(score, signals.questions.mask, candidates)
    if config.hop_weight and len(graph.title_rows):
        score += config.hop_weight * _second_hop(signals, rows, best, config.hop_from)
        rows, best = backend.topk(score, signals.questions.mask, candidates)
    return GraphView(Ranking(rows, best), start.seeds, start.activation, signals.sentences, pi)


def _align(signals: Signals, config: GraphConfig) -> Array:
    """eta_0, eq. 8: each query entity to the graph entity most like it, (n_entities, b)."""
    arrays, questions = signals.arrays, signals.questions
    seeds = np.zeros((len(arrays.entity_id), len(questions)), np.float32)
    if not len(seeds):
        return seeds
    names = list(questions.entity_vectors)
    best: dict[str, tuple[int, float]] = {}
    if names:
        queries = np.stack([questions.entity_vectors[name] for name in names])
        cosine = signals.backend.dense_scores(signals.backend.put(arrays.entity_vectors), queries)
        top, value = signals.backend.topk(cosine, None, 1)
        best = {n: (int(top[i, 0]), float(value[i, 0])) for i, n in enumerate(names)}
    for j, entities in enumerate(questions.entities):
        for name, known in entities:
            entity, cosine_ = (known, 1.0) if known >= 0 else best[name]
            if cosine_ > 0 and cosine_ >= config.min_alignment:
                seeds[entity, j] = max(seeds[entity, j], cosine_)
    return seeds


def _context_prior(signals: Signals, config: GraphConfig) -> Array:
    """Dense context priors, (b, n); rows sum to 1, or to 0 where no turn is admissible."""
    weights = np.array([1.0, config.lexical_prior])
    turn, window = weights, weights * config.window_prior
    total = turn.sum() + window.sum()
    scale = [*(turn / total), *(window / total)]
    similarity = signals.combine(
        SignalWeights(
            turn_dense=scale[0],
            turn_lexical=scale[1],
            window_dense=scale[2],
            window_lexical=scale[3],
            subject=config.subject_prior,
        )
    )
    if config.prior_top:
        chosen = signals.among_best(similarity, signals.questions.mask, config.prior_top)
        similarity = np.where(chosen, similarity, np.nan)
    missing = np.isnan(similarity)
    if config.prior_sharpness:
        best = np.max(similarity, axis=1, where=~missing, initial=-np.inf, keepdims=True)
        similarity = np.exp(
            config.prior_sharpness * (similarity - np.where(np.isinf(best), 0, best))
        )
    prior = np.where(missing, 0.0, similarity).astype(np.float64)
    total = prior.sum(axis=1, keepdims=True)
    normalized: Array = prior / np.where(total == 0, 1.0, total)
    return normalized


def _reset(prior: Array, activation: Array, entity_share: float) -> Array:
    """r_q of eq. 10, (n + n_entities, b) float32: columns sum to 1, or to 0 without any prior.

    Where contexts have no prior (none is admissible, or all are alike) entities get all of it.
    """
    # By rows: NumPy adds a column up in another order when it stands alone.
    total = np.ascontiguousarray(activation.T).sum(axis=1, dtype=np.float64)
    share = np.where(prior.any(axis=1), entity_share, 1.0) * (total > 0)
    contexts = prior.T * (1.0 - share)
    entities = activation * (share / np.where(total == 0, 1.0, total))
    reset: Array = np.concatenate([contexts, entities]).astype(np.float32)
    return reset


def _second_hop(signals: Signals, rows: Array, best: Array, n_sources: int) -> Array:
    """What contexts are lent by better ones that name their title, in [0, 1]: (b, n) float32.

    The walk spreads over all that a context mentions; a question needs the one mention it is
    about ("the novel by ..."), so the naming sentence has to be like the question.
    """
    graph, similarity = signals.arrays.graph, signals.sentences
    lent = np.zeros((len(rows), len(signals.arrays)), np.float32)
    has_title = np.diff(graph.title_indptr) > 0
    sentence_turn = signals.arrays.turns.sentence_turn
    for j, found in enumerate(rows):
        found = found[found >= 0]
        if not len(found) or not similarity.shape[1]:
            continue
        low, width = best[j, len(found) - 1], best[j, 0] - best[j, len(found) - 1]
        top = max(float(similarity[j].max()), 1e-6)
        for i, source in enumerate(found[:n_sources].tolist()):
            strength = (best[j, i] - low) / width if width > 0 else 1.0
            first, last = np.searchsorted(sentence_turn, [source, source + 1])
            own = similarity[j, first:last]
            mentioned = graph.mention_entity[slice(*graph.mention_indptr[source : source + 2])]
            for entity in mentioned[has_title[mentioned]].tolist():
                titled = graph.title_rows[slice(*graph.title_indptr[entity : entity + 2])]
                if source in titled:
                    continue
                naming = graph.E_indices[slice(*graph.E_indptr[entity : entity + 2])]
                naming = naming[(naming >= first) & (naming < last)] - first
                # A title found word for word is in no sentence of its own: the best one stands.
                like = own[naming] if len(naming) else own
                value = strength * max(float(like.max(initial=0.0)), 0.0) / top
                lent[j, titled] = np.maximum(lent[j, titled], value)
    return lent


def _spread(pi: Array, mask: Array, span: float) -> Array:
    """Bring pi to [0, 1]: in proportion to the best, or by its logarithm over ``span`` e-folds.

    The walk's mass falls off by orders of magnitude; its logarithm keeps second-hop contexts apart
    from the rest once views are fused.
    """
    best = np.max(pi, axis=1, where=mask, initial=0.0, keepdims=True)
    share = pi / np.where(best == 0, 1.0, best)
    if span:
        share = np.maximum(np.log(np.maximum(share, 1e-30)) / span + 1.0, 0.0)
    spread: Array = share.astype(np.float32)
    return spread
