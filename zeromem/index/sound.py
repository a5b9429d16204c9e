"""Whether an index that was read from a file holds together: compiled code trusts its numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zeromem.index.segment import NO_TIME, TITLE
from zeromem.index.state import BASE, DERIVED, LISTS, NAMES, VECTORS, State

Array = NDArray[Any]

_BY_TURN = (
    "lsn", "span", "n_tokens", "flags", "speaker", "source", "session", "role", "time", "encoded",
    "turn_inverse_norm", "lengths", "previous", "following", "window_inverse_norm", "similarity",
    "episode_of", "episode_inverse_norm", "turn_mass", "group",
)  # fmt: skip
_BY_SENTENCE = ("sentence_span", "sentence_inverse_norm")
_BY_ENTITY = ("entity_inverse_norm", "entity_mass", "spoken")
_BY_SESSION = ("session_last", "session_length")
_BY_GROUP = ("group_turns", "group_asking", "group_informing")
_LIST_PARTS = (("indptr", np.int64), ("values", np.int32), ("counts", np.float32))
_NOT_NEGATIVE = (
    "lsn", "n_tokens", "flags", "turn_inverse_norm", "sentence_inverse_norm", "entity_inverse_norm",
    "lengths", "window_inverse_norm", "episode_inverse_norm", "mention_weight", "turn_mass",
    "entity_mass", "inverse_degree", "group_asking", "group_informing",
)  # fmt: skip


def fault(state: State, dim: int) -> str | None:
    """Say what is wrong with an index's parts; None where they belong together.

    Types, shapes, lengths, offsets, ids and links are checked, so that no query and no addition
    reads outside an array or walks in a circle. What the numbers mean is not made anew: vectors
    and weights may be others than the log's.

    Parameters
    ----------
    state : State
    dim : int
        Columns that the vectors should have.
    """
    # Each step relies on those before it, so the first fault ends the search.
    steps = (_types, _lengths, _offsets, _ids, _order, _numbers, _sessions)
    shaped = _vectors(state, dim)
    return next((wrong for found in (shaped, *(s(state) for s in steps)) for wrong in found), None)


def _vectors(state: State, dim: int) -> Iterator[str]:
    for kind in VECTORS:
        if state.vectors[kind].dim != dim:
            yield f"{kind} have {state.vectors[kind].dim} columns, not {dim}"


def _types(state: State) -> Iterator[str]:
    for name, (dtype, shape) in (BASE | DERIVED).items():
        yield from _typed(name, state.columns[name], dtype, shape)
        if dtype is np.bool_ and _outside(state.columns[name].view(np.uint8), 0, 2):
            yield f"{name} holds other bytes than 0 and 1"
    for name in LISTS:
        for (part, dtype), array in zip(_LIST_PARTS, state.lists[name].csr(), strict=True):
            yield from _typed(f"{name}.{part}", array, dtype, ())
    for kind in NAMES:
        names = list(state.names[kind])
        if set(map(type, names)) - {str} or len(set(names)) < len(names):
            yield f"{kind} are not distinct names"


def _typed(name: str, array: Array, dtype: Any, shape: tuple[int, ...]) -> Iterator[str]:
    if array.dtype != dtype or array.shape[1:] != shape or not array.ndim:
        yield f"{name} is {array.dtype} {array.shape}, not {np.dtype(dtype)} (n, *{shape})"
    elif not (array.flags.aligned and array.flags.c_contiguous):
        yield f"{name} lies at an odd address"


def _lengths(state: State) -> Iterator[str]:
    c, vectors, lists = state.columns, state.vectors, state.lists
    n, m, z = len(state), state.n_entities, len(c["sentence_span"])
    n_names = {kind: len(state.names[kind]) for kind in NAMES}
    wanted = dict.fromkeys(_BY_TURN, n) | dict.fromkeys(_BY_SENTENCE, z)
    wanted |= dict.fromkeys(_BY_ENTITY, m) | dict.fromkeys(_BY_SESSION, n_names["sessions"])
    wanted |= dict.fromkeys(_BY_GROUP, n_names["groups"])
    wanted |= {"inverse_degree": n + m, "mention_weight": len(c["mention_entity"])}
    for name, length in wanted.items():
        if len(c[name]) != length:
            yield f"{name} has {len(c[name])} rows, not {length}"
    for kind, length in zip(VECTORS, (n, z, m), strict=True):
        if len(vectors[kind]) != length:
            yield f"{kind} have {len(vectors[kind])} rows, not {length}"
    n_terms = n_names["vocabulary"]
    for name, most in (
        ("postings", n_terms), ("entity_sentences", m), ("titled", m), ("title_first", n_terms),
    ):  # fmt: skip
        length = len(lists[name])
        # A title's first word need not be the newest word there is.
        if length > most or (length < most and name != "title_first"):
            yield f"{name} has {length} keys, not {most}"
        _, values, counts = lists[name].csr()
        if len(counts) != len(values) * LISTS[name]:
            yield f"{name} has {len(counts)} counts of {len(values)} values"


def _offsets(state: State) -> Iterator[str]:
    for name, indptr, n_rows, values in _rows(state):
        if len(indptr) != n_rows + 1 or indptr[0] != 0 or indptr[-1] != len(values):
            yield f"{name} does not divide {len(values)} entries among {n_rows} rows"
        elif (indptr[1:] < indptr[:-1]).any():
            yield f"{name} falls"


def _rows(state: State) -> Iterator[tuple[str, Array, int, Array]]:
    """Every CSR: its name, indptr, number of rows and values."""
    c, n, z = state.columns, len(state), len(state.columns["sentence_span"])
    yield "term_indptr", c["term_indptr"], n, c["term"]
    yield "sentence_indptr", c["sentence_indptr"], n, c["sentence_span"]
    yield "mention_indptr", c["mention_indptr"], n, c["mention_entity"]
    yield "sentence_entity_indptr", c["sentence_entity_indptr"], z, c["sentence_entity"]
    yield "title_indptr", c["title_indptr"], len(c["title_entity"]), c["title_term"]
    for name in LISTS:
        indptr, values, _ = state.lists[name].csr()
        yield f"{name}.indptr", indptr, len(state.lists[name]), values


def _ids(state: State) -> Iterator[str]:
    c, names, lists = state.columns, state.names, state.lists
    n, m, z = len(state), state.n_entities, len(c["sentence_span"])
    n_terms = len(names["vocabulary"])
    for name, ids, first, end in (
        ("speaker", c["speaker"], -1, len(names["speakers"])),
        ("source", c["source"], -1, len(names["sources"])),
        ("session", c["session"], 0, len(names["sessions"])),
        ("group", c["group"], 0, len(names["groups"])),
        ("term", c["term"], 0, n_terms),
        ("mentions' turn", c["mentions"][:, 0], 0, n),
        ("mentions' sentence", c["mentions"][:, 1], TITLE, z),
        ("mentions' entity", c["mentions"][:, 2], 0, m),
        ("mention_entity", c["mention_entity"], 0, m),
        ("sentence_entity", c["sentence_entity"], 0, m),
        ("title_term", c["title_term"], 0, n_terms),
        ("title_entity", c["title_entity"], 0, m),
        ("previous", c["previous"], -1, n),
        ("following", c["following"], -1, n),
        ("episode_of", c["episode_of"], 0, n),
        ("session_last", c["session_last"], 0, n),
        ("postings", lists["postings"].csr()[1], 0, n),
        ("entity_sentences", lists["entity_sentences"].csr()[1], 0, z),
        ("titled", lists["titled"].csr()[1], 0, n),
        ("title_first", lists["title_first"].csr()[1], 0, len(c["title_entity"])),
    ):
        if _outside(ids, first, end):
            yield f"{name} holds ids outside [{first}, {end})"


def _outside(ids: Array, first: int, end: int) -> bool:
    return len(ids) > 0 and not first <= int(ids.min()) <= int(ids.max()) < end


def _order(state: State) -> Iterator[str]:
    c = state.columns
    if (c["lsn"][1:] < c["lsn"][:-1]).any():
        yield "lsn falls"
    for name in ("span", "sentence_span"):
        start, end = c[name].T
        if ((start < 0) | (end < start)).any():
            yield f"{name} holds ranges that end before they start"
    start, end = c["time"].T
    if ((end < start) | ((start == NO_TIME) != (end == NO_TIME))).any():
        yield "time holds periods that end before they start"
    turn, sentence, _ = c["mentions"].T
    if (turn[1:] < turn[:-1]).any():
        yield "mentions are not in order of turns"
    bounds = c["sentence_indptr"]
    apart = (sentence < bounds[turn]) | (sentence >= bounds[turn + 1])
    if (apart & (sentence >= 0)).any():
        yield "mentions name sentences of other turns"
    if (np.diff(c["title_indptr"]) < 1).any():
        yield "titles without a word"
    for name, indptr, _, values in _rows(state):
        if name.split("_indptr")[0] in ("term", "sentence", "title"):
            continue  # in the order of the text
        rising = values[1:] > values[:-1]
        cuts = indptr[(indptr > 0) & (indptr < len(values))]
        rising[cuts - 1] = True
        if not rising.all():
            yield f"the values of {name} do not rise within a row"


def _numbers(state: State) -> Iterator[str]:
    c = state.columns
    numbers = {name: c[name] for name in _NOT_NEGATIVE}
    numbers["postings.counts"] = state.lists["postings"].csr()[2]
    for name, values in numbers.items():
        # Not a number is neither more nor less than any.
        if len(values) and not (values.min() >= 0 and values.max() < np.inf):
            yield f"{name} holds what is negative or no finite number"
    if not np.isfinite(c["similarity"]).all():
        yield "similarity holds what is no finite number"


def _sessions(state: State) -> Iterator[str]:
    """Find whether each session is one chain of its turns, oldest first, cut into episodes."""
    c, n = state.columns, len(state)
    previous, following, session, episode = (
        c[name] for name in ("previous", "following", "session", "episode_of")
    )
    counts = np.bincount(session, minlength=len(c["session_length"]))
    later = np.flatnonzero(previous >= 0)
    before = previous[later]
    # As many chains as sessions, each within one session: so a session's turns are all in one.
    if (
        len(later) != n - np.count_nonzero(counts)
        or np.count_nonzero(following >= 0) != len(later)
        or (before >= later).any()
        or (following[before] != later).any()
        or (session[before] != session[later]).any()
    ):
        yield "previous and following do not link the turns of each session"
    last = np.flatnonzero(following < 0)
    if (c["session_last"][session[last]] != last).any():
        yield "session_last is not the last turn"
    if (c["session_length"] != counts).any():
        yield "session_length is not how many turns there are"
    own = np.arange(n)
    goes_on = (previous >= 0) & (episode[previous] == episode)
    if not (goes_on | (episode == own)).all():
        yield "episode_of is not the first turn of a run of a session"
    if (np.bincount(c["group"], minlength=len(c["group_turns"])) != c["group_turns"]).any():
        yield "group_turns is not how many turns there are"
