"""Where turns name titles, said slowly: the oracle of ``titles_cpu.py``."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def in_old(
    title_indptr: Array,
    title_term: Array,
    start: int,
    term_indptr: Array,
    term: Array,
    postings: tuple[Any, ...],
    n_turns: int,
) -> Array:
    """Find titles from ``start`` on in turns below ``n_turns``: ``titles_cpu.in_old``."""
    found = [
        (turn, title)
        for title in range(start, len(title_indptr) - 1)
        for turn in range(n_turns)
        if _places(_row(term_indptr, term, turn), _row(title_indptr, title_term, title))
    ]
    return np.array(found, np.int32).reshape(-1, 2)


def in_turns(
    turns: Array,
    term_indptr: Array,
    term: Array,
    title_indptr: Array,
    title_term: Array,
    title_first: tuple[Any, ...],
) -> Array:
    """Find all titles in some turns: ``titles_cpu.in_turns``."""
    found = [
        (turn, title)
        for turn in turns.tolist()
        for title in range(len(title_indptr) - 1)
        for _ in range(
            _places(_row(term_indptr, term, turn), _row(title_indptr, title_term, title))
        )
    ]
    return np.array(found, np.int32).reshape(-1, 2)


def _row(indptr: Array, values: Array, i: int) -> list[int]:
    row: list[int] = values[indptr[i] : indptr[i + 1]].tolist()
    return row


def _places(words: list[int], title: list[int]) -> int:
    """How often a title stands in a text."""
    return sum(words[i : i + len(title)] == title for i in range(len(words) - len(title) + 1))
