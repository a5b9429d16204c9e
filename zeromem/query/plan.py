"""An index as the query kernels read it: its columns in their tuples, its configuration as numbers.

Made once per index and kept for as long as that lives; nothing here is proportional to its size.
"""

from __future__ import annotations

import weakref
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zeromem.config import Config, SignalWeights
from zeromem.index import Arrays, Index
from zeromem.kernels import _bm25, _evidence, _views, _walked

Array = NDArray[Any]

# What counts as a good turn of an episode, and what episodes and windows are searched by (eq. 11).
_REGION = SignalWeights(turn_dense=1, turn_lexical=1, window_dense=1, window_lexical=1)
_EPISODE = SignalWeights(episode_dense=1.0, episode_lexical=1.0, episode_best=2.0)
_WINDOW = SignalWeights(window_dense=1.0, window_lexical=1.0)


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """What the kernels take beside the questions.

    Attributes
    ----------
    units, levels, hops, turns : NamedTuple of arrays
        See the kernels that read them.
    weights : (6, 14) float32
        Of each signal in each use.
    calibration : (5,) float64
    """

    units: _views.Units
    levels: _bm25.Levels
    hops: _walked.Hops
    turns: _evidence.Turns
    weights: Array
    calibration: Array

    @property
    def phrases(self) -> bool:
        """Whether any signal weighs phrases."""
        return bool(self.weights[:, _views.SIGNALS.index("phrase")].any())


_plans: weakref.WeakKeyDictionary[Index, Plan] = weakref.WeakKeyDictionary()


def plan_of(index: Index) -> Plan:
    """Return the index's plan, made at its first question."""
    found = _plans.get(index)
    if found is None:
        # Two threads may make it at once: the same value twice.
        found = _plans[index] = _plan(index.arrays, index.config)
    return found


def _plan(a: Arrays, config: Config) -> Plan:
    t, g, h = a.turns, a.graph, config.hierarchy
    sentences = a.sentence_vectors.addresses
    c = config.calibration
    return Plan(
        units=_views.Units(
            t.n_tokens, t.flags, t.speaker, t.role, t.time, a.group, a.group_asks,
            a.group_informative, a.turn_inverse_norm, a.previous, a.following,
            a.window_inverse_norm, a.episode_of, a.episode_inverse_norm, t.sentence_indptr,
            sentences, a.sentence_inverse_norm,
        ),
        levels=_bm25.Levels(
            a.lengths, *_unit_lengths(a, h.window // 2), a.previous, a.following, a.episode_of,
            h.window // 2, int(np.count_nonzero(a.episode_of == np.arange(len(a)))),
        ),
        hops=_walked.Hops(
            g.mention_indptr, g.mention_entity, g.titled.kernel_args, t.sentence_indptr,
            g.sentence_entity_indptr, g.sentence_entity, sentences, a.sentence_inverse_norm,
        ),
        turns=_evidence.Turns(
            t.n_tokens, t.flags, t.speaker, t.role, t.time, a.previous, a.following,
            g.mention_indptr, g.mention_entity, t.term_indptr, t.term, a.turn_vectors.addresses,
            a.turn_inverse_norm,
        ),
        weights=_weights(config),
        calibration=np.array(
            [c.support, c.subject, c.temporal, c.answer_type, c.superseded_similarity]
        ),
    )  # fmt: skip


def _unit_lengths(a: Arrays, radius: int) -> tuple[Array, Array]:
    """Terms per window and per episode."""
    window = a.lengths.copy()
    for link in (a.previous, a.following):
        at = link.copy()
        for _ in range(radius):
            there = at >= 0
            window[there] += a.lengths[at[there]]
            at[there] = link[at[there]]
    episode = np.bincount(a.episode_of, a.lengths, len(a)).astype(np.float32)
    return window, episode


def _weights(config: Config) -> Array:
    """Lay out the uses of signals in the order that ``kernels/_views`` names them."""
    prior = prior_weights(config)
    uses = (prior, config.graph.refine, config.hierarchy.score, _REGION, _EPISODE, _WINDOW)
    return np.array([astuple(use) for use in uses], np.float32)


def prior_weights(config: Config) -> SignalWeights:
    """Weights of the similarity that context priors are made of (eq. 10)."""
    graph = config.graph
    total = (1.0 + graph.lexical_prior) * (1.0 + graph.window_prior)
    return SignalWeights(
        turn_dense=1.0 / total,
        turn_lexical=graph.lexical_prior / total,
        window_dense=graph.window_prior / total,
        window_lexical=graph.lexical_prior * graph.window_prior / total,
        subject=graph.subject_prior,
    )
