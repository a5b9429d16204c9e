"""Word search without an index: what an agent does with grep."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from zeromem.evaluation.methods.base import RankedList
from zeromem.evaluation.methods.turns import Scores
from zeromem.evaluation.types import Query
from zeromem.text import is_stop, word_spans


class Grep(RankedList):
    """The question's words over raw text, as ``grep -iw`` finds them: no stems, no weights.

    Turns rank by how many distinct words they hold, the latest first among equals. A turn that
    holds none is not found. Stop words are not searched for.
    """

    name = "grep"

    def prepare(self) -> None:
        """List each turn's words."""
        self._said = [words_of(text) for text in self.turns.texts]
        self._recency = np.empty(len(self.turns))
        self._recency[self.turns.in_time] = np.arange(len(self.turns)) / max(len(self.turns), 1)

    def scores(self, queries: Sequence[Query]) -> Scores:
        """Count distinct matches; recency decides between equal counts."""
        wanted = [{w for w in words_of(query.text) if not is_stop(w)} for query in queries]
        found = np.array([[len(words & said) for said in self._said] for words in wanted], float)
        return np.where(found > 0, found + self._recency, -np.inf)


def words_of(text: str) -> frozenset[str]:
    """Return the distinct words of a text, case-folded."""
    return frozenset(text[a:z].casefold() for a, z in word_spans(text))
