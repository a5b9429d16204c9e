"""Pages, neighbours and sessions against a slow and obvious model."""

from __future__ import annotations

from datetime import UTC

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import STORY, logs, open_memory

from zeromem.errors import InvalidInputError, TraceNotFoundError
from zeromem.times import EventTime
from zeromem.types import Trace

filters = st.fixed_dictionaries(
    {},
    optional={
        "sessions": st.sampled_from(["s1", ["s1", "s2"], [None], [None, "s2"], ["none"]]),
        "speakers": st.sampled_from(["ana", ["Ana", "Ben"], ["nobody"]]),
        "sources": st.sampled_from(["mail", ["mail", "chat"]]),
        "roles": st.sampled_from(["document", ["user", "assistant"]]),
        "after": st.sampled_from(["2025", "2025-03-01T10:05Z"]),
        "before": st.sampled_from(["2025-03-01T10:05Z", "2026", "2027"]),
    },
)
orders = st.fixed_dictionaries(
    {"order": st.sampled_from(["log", "time"]), "descending": st.booleans()}
)


def several(value):
    return [value] if isinstance(value, str) else value


def unnamed(trace):
    """Whether a trace belongs to the one unnamed session: documents do not."""
    return trace.session is None and trace.role != "document"


def admitted(trace, f):
    if "sessions" in f:
        named = trace.session is not None and trace.session in several(f["sessions"])
        if not named and not (None in several(f["sessions"]) and unnamed(trace)):
            return False
    if "speakers" in f:
        wanted = {name.casefold() for name in several(f["speakers"])}
        if trace.speaker is None or trace.speaker.casefold() not in wanted:
            return False
    if "sources" in f and trace.source not in several(f["sources"]):
        return False
    if "roles" in f and trace.role not in several(f["roles"]):
        return False
    if "after" in f or "before" in f:
        if trace.time is None:
            return False
        if "after" in f and trace.time.start < EventTime.parse(f["after"]).start:
            return False
        if "before" in f and trace.time.end > EventTime.parse(f["before"]).start:
            return False
    return True


def key_of(stored, order, descending):
    sign = -1 if descending else 1
    if order == "log":
        return 0, 0.0, sign * stored.lsn
    time = stored.trace.time
    return time is None, 0 if time is None else sign * time.start.timestamp(), sign * stored.lsn


def expected(memory, f, order, descending):
    found = [s for s in memory.export() if admitted(s.trace, f)]
    return sorted(found, key=lambda s: key_of(s, order, descending))


def paged(memory, limit, **options):
    found, cursor = [], None
    while True:
        page = memory.traces(limit=limit, cursor=cursor, **options)
        assert len(page.items) <= limit
        assert page.cursor is None or len(page.items) == limit
        found += page.items
        cursor = page.cursor
        if cursor is None:
            return found


@settings(max_examples=40)
@given(logs, filters, orders, st.sampled_from([1, 2, 5, 100]))
def test_pages_are_the_sorted_and_filtered_log(log, f, o, limit):
    with open_memory() as memory:
        memory.add_many(log)
        assert paged(memory, limit, **o, **f) == expected(memory, f, **o)


@settings(max_examples=40)
@given(logs, logs, orders, st.integers(1, 4), st.data())
def test_a_cursor_goes_on_where_it_was_while_traces_come_and_go(log, more, o, limit, data):
    with open_memory() as memory:
        memory.add_many(log)
        first = memory.traces(limit=limit, **o)
        going = data.draw(st.sets(st.sampled_from([s.trace.id for s in memory.export()] or ["x"])))
        memory.add_many(more)
        if going:
            memory.forget(sorted(going))
        if first.cursor is None:
            return
        last = key_of(first.items[-1], **o)
        rest = [s for s in expected(memory, {}, **o) if key_of(s, **o) > last]
        page = memory.traces(limit=10_000, cursor=first.cursor, **o)
        assert list(page.items) == rest
        assert page.cursor is None


@settings(max_examples=40)
@given(logs, st.integers(0, 3), st.integers(0, 3))
def test_neighbours_are_those_of_the_session(log, before, after):
    with open_memory() as memory:
        memory.add_many(log)
        everything = list(memory.export())
        for stored in everything:
            trace = stored.trace
            if trace.session is None and trace.role == "document":
                session = [stored]
            elif trace.session is None:
                session = [s for s in everything if unnamed(s.trace)]
            else:
                session = [s for s in everything if s.trace.session == trace.session]
            at = session.index(stored)
            found = memory.around(trace.id, before=before, after=after)
            assert found == session[max(0, at - before) : at + after + 1]


@settings(max_examples=40)
@given(logs)
def test_sessions_are_counted_with_their_times(log):
    with open_memory() as memory:
        memory.add_many(log)
        model = {}
        for stored in memory.export():
            if stored.trace.session is not None or unnamed(stored.trace):
                model.setdefault(stored.trace.session, []).append(stored.trace)
        found = memory.sessions()
        assert [s.name for s in found] == list(model)
        for summary in found:
            traces = model[summary.name]
            times = [t.time for t in traces if t.time is not None]
            assert summary.n_traces == len(traces)
            assert summary.first == min((t.start for t in times), default=None)
            assert summary.last == max((t.start for t in times), default=None)
            assert summary.first is None or summary.first.tzinfo is UTC


def test_a_long_trace_is_one_item():
    long = " ".join(f"Ana counted {i} boats on the river." for i in range(400))
    with open_memory() as memory:
        memory.add_many([Trace("first", session="s"), Trace(long, id="long", session="s"),
                         Trace("last", session="s")])  # fmt: skip
        assert memory.stats()["turns"] > 5
        assert [s.trace.text for s in paged(memory, 1)] == ["first", long, "last"]
        assert [s.trace.text for s in memory.around("long", before=1, after=1)] == [
            "first", long, "last"
        ]  # fmt: skip
        assert [s.n_traces for s in memory.sessions()] == [3]
        assert [s.lsn for s in paged(memory, 2, descending=True)] == [3, 2, 1]


def test_an_empty_memory_has_nothing_to_show():
    with open_memory() as memory:
        assert memory.traces() == memory.traces(order="time", descending=True)
        assert memory.traces().items == ()
        assert memory.traces().cursor is None
        assert memory.sessions() == []
        with pytest.raises(TraceNotFoundError, match="'x'"):
            memory.around("x")


@pytest.mark.parametrize(
    ("name", "value"),
    [("order", "up"), ("order", None), ("descending", 1), ("limit", 0), ("limit", 10_001),
     ("limit", True), ("limit", "5"), ("cursor", "x"), ("cursor", 7), ("cursor", b"x"),
     ("cursor", "A" * 200), ("sessions", 5), ("speakers", [1]), ("roles", "god"), ("after", "soon"),
     ("before", 5)],
)  # fmt: skip
def test_what_no_page_can_be_made_of_is_named(name, value):
    with open_memory() as memory:
        memory.add_many(STORY)
        with pytest.raises(InvalidInputError, match=name):
            memory.traces(**{name: value})


def test_a_cursor_of_another_order_is_refused():
    with open_memory() as memory:
        memory.add_many(STORY)
        cursor = memory.traces(limit=2).cursor
        for options in ({"order": "time"}, {"descending": True}):
            with pytest.raises(InvalidInputError, match="cursor"):
                memory.traces(cursor=cursor, **options)
        for options in ({"before": -1}, {"after": True}, {"before": 10_001}, {"after": 1.0}):
            with pytest.raises(InvalidInputError, match=next(iter(options))):
                memory.around("x", **options)


@pytest.mark.parametrize(
    ("name", "written", "n"), [("session", "S1", 1), ("speaker", "ANA", 2), ("source", "F1", 1)]
)
def test_speakers_compare_without_case_and_the_rest_exactly(name, written, n):
    """In a boundary, in a list and in what is forgotten alike."""
    with open_memory() as memory:
        for form in (str.lower, str.upper):
            fields = {"session": form("s1"), "speaker": form("ana"), "source": form("f1")}
            memory.add(f"I like tea, {form('really')}.", **fields)
        limits = {f"{name}s": [written]}
        assert len(memory.retrieve("What tea?", closure=False, **limits)) == n
        assert len(memory.traces(**limits).items) == n
        assert memory.forget(**{name: written}) == n
