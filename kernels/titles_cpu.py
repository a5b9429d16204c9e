"""Where turns name titles, word for word: new titles in turns, and turns against all titles."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from zeromem.kernels._numba import BOOL, F32_1, I32_1, I64, I64_1, OUT_I32_2, kernel

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]


@kernel(BOOL(I32_1, I64, I64, I32_1, I64, I64))
def _stands(term, at, last, title_term, first, end):
    if at + (end - first) > last:
        return False
    for i in range(end - first):  # noqa: SIM110 (a generator would not compile)
        if term[at + i] != title_term[first + i]:
            return False
    return True


@kernel(
    I64(I64_1, I32_1, I64, I64_1, I32_1, I64_1, I32_1, F32_1, I32_1, I32_1, I32_1, F32_1, I64,
        OUT_I32_2)
)  # fmt: skip
def _in_old(
    title_indptr, title_term, start, term_indptr, term,
    indptr, values, counts, head, older, tail_values, tail_counts, n_turns, out,
):  # fmt: skip
    found = np.int64(0)
    n_base = len(indptr) - 1
    for title in range(start, len(title_indptr) - 1):
        first, end = title_indptr[title], title_indptr[title + 1]
        # The turns of its rarest term.
        rarest, fewest = np.int32(-1), np.int64(-1)
        for i in range(first, end):
            key = title_term[i]
            n = np.int64(0)
            if key < n_base:
                n = indptr[key + 1] - indptr[key]
            if key < len(head):
                entry = head[key]
                while entry >= 0:
                    n += 1
                    entry = older[entry]
            if fewest < 0 or n < fewest:
                rarest, fewest = key, n
        at = np.int64(0)
        stop = np.int64(0)
        if rarest < n_base:
            at, stop = indptr[rarest], indptr[rarest + 1]
        entry = np.int32(-1)
        if rarest < len(head):
            entry = head[rarest]
        while at < stop or entry >= 0:
            if at < stop:
                turn = values[at]
                at += 1
            else:
                turn = tail_values[entry]
                entry = older[entry]
            if turn >= n_turns:
                continue
            last = term_indptr[turn + 1]
            for place in range(term_indptr[turn], last):
                if _stands(term, place, last, title_term, first, end):
                    if found < len(out):
                        out[found, 0] = turn
                        out[found, 1] = title
                    found += 1
                    break
    return found


@kernel(
    I64(I32_1, I64_1, I32_1, I64_1, I32_1, I64_1, I32_1, F32_1, I32_1, I32_1, I32_1, F32_1,
        OUT_I32_2)
)  # fmt: skip
def _in_turns(
    turns, term_indptr, term, title_indptr, title_term,
    indptr, values, counts, head, older, tail_values, tail_counts, out,
):  # fmt: skip
    found = np.int64(0)
    n_base = len(indptr) - 1
    for turn in turns:
        last = term_indptr[turn + 1]
        for place in range(term_indptr[turn], last):
            key = term[place]
            at = np.int64(0)
            stop = np.int64(0)
            if key < n_base:
                at, stop = indptr[key], indptr[key + 1]
            entry = np.int32(-1)
            if key < len(head):
                entry = head[key]
            while at < stop or entry >= 0:
                if at < stop:
                    title = values[at]
                    at += 1
                else:
                    title = tail_values[entry]
                    entry = older[entry]
                first, end = title_indptr[title], title_indptr[title + 1]
                if _stands(term, place, last, title_term, first, end):
                    if found < len(out):
                        out[found, 0] = turn
                        out[found, 1] = title
                    found += 1
    return found


def in_old(
    title_indptr: Int64,
    title_term: Int32,
    start: int,
    term_indptr: Int64,
    term: Int32,
    postings: tuple[Any, ...],
    n_turns: int,
) -> Int32:
    """Find titles from ``start`` on in turns below ``n_turns``.

    Parameters
    ----------
    title_indptr, title_term : CSR of titles' terms, int64 and int32
    start : int
        First title that is looked for.
    term_indptr, term : CSR of turns' terms in order, int64 and int32
    postings : tuple of 7 arrays
        Lists from terms to turns (``Lists.kernel_args``).
    n_turns : int

    Returns
    -------
    (m, 2) int32
        Turn and title, by title; each pair once.
    """
    return _collected(
        _in_old, (title_indptr, title_term, start, term_indptr, term, *postings, n_turns)
    )


def in_turns(
    turns: Int32,
    term_indptr: Int64,
    term: Int32,
    title_indptr: Int64,
    title_term: Int32,
    title_first: tuple[Any, ...],
) -> Int32:
    """Find all titles in some turns.

    Parameters
    ----------
    turns : (k,) int32
    term_indptr, term : CSR of turns' terms in order, int64 and int32
    title_indptr, title_term : CSR of titles' terms, int64 and int32
    title_first : tuple of 7 arrays
        Lists from terms to the titles that begin with them (``Lists.kernel_args``).

    Returns
    -------
    (m, 2) int32
        Turn and title, by turn; a pair once for each place where the title stands.
    """
    return _collected(_in_turns, (turns, term_indptr, term, title_indptr, title_term, *title_first))


def _collected(run: Any, arguments: tuple[Any, ...]) -> Int32:
    """Run with some room, and again with enough where that was too little."""
    out = np.empty((256, 2), np.int32)
    found = int(run(*arguments, out))
    if found > len(out):
        out = np.empty((found, 2), np.int32)
        run(*arguments, out)
    return out[:found]
