"""The signals that views weigh: how well each admissible turn fits each question."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zeromem.backend import Backend
from zeromem.config import Config, SignalWeights
from zeromem.index import Arrays
from zeromem.index.arrays import Level
from zeromem.query.questions import Questions

Array = NDArray[Any]


class Signals:
    """Every signal of a batch as a (b, n) float32 array by row, computed when first asked for.

    Parameters
    ----------
    questions : Questions
    arrays : Arrays
    config : Config
    backend : Backend
    """

    def __init__(
        self, questions: Questions, arrays: Arrays, config: Config, backend: Backend
    ) -> None:
        self.questions = questions
        self.arrays = arrays
        self.config = config
        self.backend = backend

    def combine(self, weights: SignalWeights) -> Array:
        """Weighted sum of the signals that have a weight; NaN outside the boundary: (b, n)."""
        used = [f.name for f in fields(weights) if getattr(weights, f.name) != 0]
        shape = (len(used), len(self.questions), len(self.arrays))
        signals = np.empty(shape, np.float32)
        for i, name in enumerate(used):
            signals[i] = getattr(self, name)
        weight = np.array([getattr(weights, name) for name in used], np.float32)
        return self.backend.combine(signals, weight, self.questions.mask)

    def among_best(self, scores: Array, mask: Array, k: int) -> Array:
        """Whether each row is one of its question's ``k`` best within ``mask``: (b, n) bool."""
        kept, _ = self.backend.topk(scores, mask, k)
        question, at = np.nonzero(kept >= 0)
        chosen = np.zeros(scores.shape, np.bool_)
        chosen[question, kept[question, at]] = True
        return chosen

    @cached_property
    def turn_dense(self) -> Array:
        return self._dense(self.arrays.turn.vectors)

    @cached_property
    def turn_lexical(self) -> Array:
        return self._lexical(self.arrays.turn)

    @cached_property
    def window_dense(self) -> Array:
        return self._best_window(self._dense(self.arrays.window.vectors))

    @cached_property
    def window_lexical(self) -> Array:
        return self._best_window(self._lexical(self.arrays.window))

    @cached_property
    def episode_dense(self) -> Array:
        return self._of_episode(self._dense(self.arrays.episode.vectors))

    @cached_property
    def episode_lexical(self) -> Array:
        return self._of_episode(self._lexical(self.arrays.episode))

    @cached_property
    def sentences(self) -> Array:
        """sim(q, z) of eq. 9: (b, n_sentences)."""
        return self._dense(self.arrays.sentence_vectors)

    @cached_property
    def sentence_dense(self) -> Array:
        """Each turn's best sentence; a turn without sentences has its own similarity."""
        turn = self.arrays.turns.sentence_turn
        if not len(turn):
            return self.turn_dense
        starts = np.flatnonzero(np.concatenate(([True], turn[1:] != turn[:-1])))
        ends = np.append(starts[1:], len(turn))
        best = self.turn_dense.copy()
        best[:, turn[starts]] = self.backend.span_max(self.sentences, starts, ends)
        return best

    @cached_property
    def episode_best(self) -> Array:
        """The best turn and window of each turn's episode."""
        levels = SignalWeights(turn_dense=1, turn_lexical=1, window_dense=1, window_lexical=1)
        # Outside the boundary nothing may speak for an episode.
        base = np.nan_to_num(self.combine(levels), nan=0.0)[:, self.arrays.order]
        spans = self.arrays.episode.spans.astype(np.int64)
        return self._of_episode(self.backend.span_max(base, spans[:, 0], spans[:, 1]))

    @property
    def subject(self) -> Array:
        return self.questions.subject

    @property
    def phrase(self) -> Array:
        return self.questions.phrase

    @property
    def temporal(self) -> Array:
        return self.questions.in_period

    @property
    def standing(self) -> Array:
        return self.questions.standing

    @cached_property
    def statement(self) -> Array:
        return np.broadcast_to(-self.arrays.asks, self.turn_dense.shape)

    @cached_property
    def informative(self) -> Array:
        return np.broadcast_to(self.arrays.informative, self.turn_dense.shape)

    def _dense(self, vectors: Array) -> Array:
        return self.backend.dense_scores(self.backend.put(vectors), self.questions.vectors)

    def _lexical(self, level: Level) -> Array:
        p, q, put = level.postings, self.questions, self.backend.put
        lexical = self.config.lexical
        return self.backend.bm25_scores(
            put(p.indptr), put(p.rows), put(p.tf), put(p.lengths), put(p.idf),
            q.term_indptr, q.term, np.ones(len(q.term), np.float32),
            lexical.k1, lexical.b, p.avg_length,
        )  # fmt: skip

    def _best_window(self, scores: Array) -> Array:
        """From windows to the turns they hold: each turn's best window."""
        # Windows are centred, so those that hold a position are centred within its own window.
        spans = self.arrays.window.spans.astype(np.int64)
        best = self.backend.span_max(scores, spans[:, 0], spans[:, 1])
        return best[:, self.arrays.position]

    def _of_episode(self, scores: Array) -> Array:
        return scores[:, self.arrays.episode_of[self.arrays.position]]


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """What a view returns: candidates of each question, best first.

    Attributes
    ----------
    rows : (b, k) int32
        Padded with -1.
    scores : (b, k) float32
    """

    rows: Array
    scores: Array

    def flat(self) -> tuple[Array, Array, Array]:
        """Return as (indptr, rows, scores) without the padding."""
        found = self.rows >= 0
        indptr = np.zeros(len(self.rows) + 1, np.int64)
        np.cumsum(found.sum(axis=1), out=indptr[1:])
        return indptr, self.rows[found], self.scores[found]

    def folded(self, indptr: Array, weight: float) -> Ranking:
        """Make one ranking of each group: its first, plus the best of the others times ``weight``.

        Scores are min-max-normalised first (eq. 12), as they are of different questions.

        Parameters
        ----------
        indptr : (n_groups + 1,) int
            Rows of each group.
        weight : float
        """
        rows = self.rows[indptr[:-1]].copy()
        scores = self.scores[indptr[:-1]].copy()
        for group in np.flatnonzero(np.diff(indptr) > 1).tolist():
            members = range(indptr[group], indptr[group + 1])
            found = np.unique(self.rows[members.start : members.stop])
            found = found[found >= 0]
            shares = np.zeros((len(members), len(found)))
            for share, member in zip(shares, members, strict=True):
                there = self.rows[member] >= 0
                own = self.scores[member][there]
                if len(own):
                    width = own.max() - own.min()
                    at = np.searchsorted(found, self.rows[member][there])
                    share[at] = (own - own.min()) / width if width > 0 else 1.0
            total = shares[0] + weight * shares[1:].max(axis=0)
            order = np.lexsort((found, -total))[: rows.shape[1]]
            rows[group], scores[group] = -1, 0
            rows[group, : len(order)] = found[order]
            scores[group, : len(order)] = total[order]
        return Ranking(rows, scores)

    def rank_of(self, question: int) -> dict[int, int]:
        """Ranks from 1 by row."""
        return {int(r): i for i, r in enumerate(self.rows[question], 1) if r >= 0}
