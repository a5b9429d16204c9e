"""An index is a pure function of the traces it holds, however it came about."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import (
    BACKEND,
    DIM,
    NAMES,
    WORDS,
    HashEncoder,
    build,
    difference,
    features,
    logs,
    rows_of,
)

from zeromem.config import Config
from zeromem.index import Index
from zeromem.query.piece import Timer
from zeromem.query.profile import profile
from zeromem.query.ranked import Options
from zeromem.query.retrieve import retrieve
from zeromem.types import Trace

QUESTIONS = [
    "Where does Ana live, Lisbon or Porto?",
    "What do Carla Reis and Ben love?",
    "When did Ana move now?",
    "tea by the river",
]


def in_steps(rows, cuts, config=None):
    index = Index.empty(DIM, config or Config(), BACKEND)
    for part in np.split(np.arange(len(rows)), sorted(cuts)):
        some = [rows[i] for i in part]
        index = index.extend(some, features(some))
    return index


def asked(index):
    profiles = [
        profile(q, known_names=index.arrays.names if len(index) else (), query_entities=["Carla"])
        for q in QUESTIONS
    ]
    return retrieve(index, profiles, HashEncoder().encode, Options(k=3), Timer())


def assert_alike(a: Index, b: Index) -> None:
    assert len(a) == len(b)
    assert a.last_lsn == b.last_lsn
    if len(a):
        assert difference(a.arrays, b.arrays) is None
    assert difference(asked(a), asked(b)) is None


@given(logs, st.lists(st.integers(0, 14), max_size=6))
def test_any_segmentation_is_the_whole(log, cuts):
    rows = rows_of(log)
    assert_alike(in_steps(rows, [c for c in cuts if c <= len(rows)]), build(rows))


@given(logs, st.lists(st.integers(0, 14), max_size=4), st.sets(st.integers(1, 14)))
def test_forgetting_is_never_having_known(log, cuts, gone):
    rows = rows_of(log)
    index = in_steps(rows, [c for c in cuts if c <= len(rows)])
    assert_alike(index.without(gone), build([r for r in rows if r.lsn not in gone]))


@given(logs, st.lists(st.integers(0, 14), max_size=4), st.integers(-1, 16))
def test_as_of_is_the_prefix(log, cuts, lsn):
    rows = rows_of(log)
    index = in_steps(rows, [c for c in cuts if c <= len(rows)])
    assert_alike(index.until(lsn), build([r for r in rows if r.lsn <= lsn]))


@settings(max_examples=20)
@given(logs, st.data())
def test_any_history_is_what_it_left(log, data):
    """Extend, forget and cut in any order."""
    index, kept = build([]), []
    for row in rows_of(log):
        index, kept = index.extend([row], features([row])), [*kept, row]
        match data.draw(st.sampled_from(["add", "add", "add", "forget", "until"])):
            case "forget":
                gone = data.draw(st.sets(st.integers(1, row.lsn), max_size=3))
                index = index.without(gone)
                kept = [r for r in kept if r.lsn not in gone]
            case "until":
                lsn = data.draw(st.integers(0, row.lsn))
                index, kept = index.until(lsn), [r for r in kept if r.lsn <= lsn]
    assert_alike(index, build(kept))


def test_operations_leave_the_index_they_start_from_as_it_was():
    rows = rows_of([Trace(f"Ana met Ben in Porto, number {i}.", session="s") for i in range(9)])
    index = in_steps(rows[:6], [2, 4])
    before = asked(index)
    index.extend(rows[6:], features(rows[6:]))
    index.without([1, 5])
    index.until(3)
    assert difference(asked(index), before) is None
    assert_alike(index, build(rows[:6]))


def test_a_title_is_one_whoever_named_it_first():
    """What an entity is must not hang on the trace that happened to name it first."""
    told = Trace("Ben: Lisbon is far.", speaker="Ben")
    paper = Trace("It lies on the Tagus.", role="document", title="Lisbon")
    for log in ([told, paper], [paper, told]):
        rows = rows_of(log)
        graph = build(rows).arrays.graph
        row = log.index(paper)
        entity = build(rows).arrays.turns.entities["lisbon"]
        held = graph.mention_entity[graph.mention_indptr[row] : graph.mention_indptr[row + 1]]
        assert entity in held
    # With the paper gone, "Lisbon" is no title any more, and links nothing by its words.
    log = [paper, Trace("we saw old lisbon town"), Trace("x Lisbon")]
    assert_alike(build(rows_of(log)).without([1]), build(rows_of(log)[1:]))


def test_sessions_are_linked_and_documents_are_their_own():
    log = [
        Trace("a", session="x"), Trace("b"), Trace("c", session="y"), Trace("d", session="x"),
        Trace("e", role="document"), Trace("f", role="document"), Trace("g"),
        Trace("h", role="document", session="x"), Trace("i", session=""),
    ]  # fmt: skip
    arrays = build(rows_of(log)).arrays
    texts = [log[int(lsn) - 1].text for lsn in arrays.turns.lsn]
    parts = []
    for row in np.flatnonzero(arrays.previous < 0).tolist():
        part = []
        while row >= 0:
            part.append(texts[row])
            row = int(arrays.following[row])
        parts.append(part)
    assert parts == [["a", "d", "h"], ["b", "g"], ["c"], ["e"], ["f"], ["i"]]


def test_an_empty_index_has_arrays():
    arrays = Index.empty(DIM, Config(), BACKEND).arrays
    assert len(arrays) == len(arrays.names) == 0
    assert arrays.graph.inverse_degree.shape == (0,)


@pytest.mark.parametrize("config", [Config.paper(), Config()], ids=["paper", "default"])
def test_both_configurations_keep_the_invariants(config):
    log = [
        Trace(f"{NAMES[i % 6]} {WORDS[i % 9]} {NAMES[i % 4]}. Why {WORDS[i % 5]}?",
              speaker=["Ana", "Ben"][i % 2], session=f"s{i % 3}", title=[None, "Porto"][i % 7 == 0])
        for i in range(40)
    ]  # fmt: skip
    rows = rows_of(log)
    gone = {1, 7, 8, 40}
    kept = build([r for r in rows if r.lsn not in gone], config)
    assert_alike(in_steps(rows, [3, 17, 18], config).without(gone), kept)
