"""Boundaries are hard: nothing outside one is ever evidence, and none is felt across scopes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import NAMES, STORY, WORDS, difference, ids, open_memory, shown

from zeromem.config import Config
from zeromem.errors import InvalidInputError
from zeromem.text import canonical
from zeromem.times import EventTime
from zeromem.types import ROLES, Trace

TIMES = [None, "2024", "2024-06", "2024-06-15", "2024-06-15T10:00Z", "2025-01-01T00:30+02:00"]
LOG = [
    Trace(
        f"{NAMES[i % 6]} {WORDS[i % 9]} {NAMES[(i * 5) % 4]}, number {i}. {WORDS[i % 7]}?",
        id=str(i),
        role=ROLES[i % 4],
        speaker=[None, "Ana", "ANA", "José", "Jose\u0301", "Ben"][(i * 7) % 6],
        session=[None, "s1", "s2"][i % 3],
        source=[None, "mail", "chat"][(i * 2) % 3 if i % 5 else 0],
        time=t and EventTime.parse(t),
    )
    for i, t in enumerate(TIMES[(j * 11) % 6] for j in range(72))
]
QUESTIONS = ["What does Ana love?", "Carla Reis in Lisbon", "When did Ben move now?", "tea number"]


@cache
def memory_of(config: str):
    memory = open_memory(config=Config.paper() if config == "paper" else Config())
    memory.add_many(LOG)
    return memory


@pytest.fixture(scope="module")
def memory():
    return memory_of("default")


def inside(trace, sessions, speakers, sources, roles, after, before):
    def among(value, wanted):
        return wanted is None or value in wanted

    if speakers is not None and canonical(trace.speaker or "") not in map(canonical, speakers):
        return False
    time = trace.time
    if after is not None and (time is None or time.start < EventTime.parse(after).start):
        return False
    if before is not None and (time is None or time.end > EventTime.parse(before).start):
        return False
    return (
        among(trace.session, sessions) and among(trace.source, sources) and among(trace.role, roles)
    )


def several(*values):
    return st.none() | st.lists(st.sampled_from(values), max_size=2)


moments = st.none() | st.sampled_from(
    ["2024", "2024-06-15", "2024-06-15T10:00Z", "2024-12-31T22:30Z", "2024-12-31T22:31Z", "2030"]
)
boundaries = st.fixed_dictionaries(
    {
        "sessions": several("s1", "s2", "s9"),
        "speakers": several("ana", "Ana ", "JOSÉ", "Ben's", "Nobody"),
        "sources": several("mail", "chat", "Mail"),
        "roles": several(*ROLES),
        "after": moments,
        "before": moments,
    }
)


@settings(max_examples=80)
@given(boundaries, st.sampled_from(QUESTIONS), st.sampled_from(["default", "paper"]))
def test_no_evidence_violates_its_boundary(boundary, question, config):
    admitted = {t.id for t in LOG if inside(t, **boundary)}
    memory = memory_of(config)
    found = memory.retrieve(question, k=100, **boundary)
    assert set(ids(found)) == admitted  # all that is admitted is ranked, and nothing else
    few = memory.retrieve(question, k=2, **boundary)
    assert set(ids(few)) <= admitted
    assert len(few.main) == min(2, len(admitted))
    for view in ("graph", "hierarchy"):
        assert set(ids(memory.retrieve(question, view=view, **boundary))) <= admitted
    assert {x.id for x in memory.explain(question, k=9, **boundary).left_out} <= admitted


@pytest.mark.parametrize(
    "boundary",
    [
        {"sessions": "no such session"},
        {"sessions": []},
        {"speakers": ["nobody"]},
        {"sources": "fax"},
        {"before": "1900"},
        {"after": "2100"},
        {"after": "2025", "before": "2024"},
        {"as_of": 0},
        {"as_of": datetime(2000, 1, 1, tzinfo=UTC)},
        {"roles": ["tool"], "sessions": ["s1"], "speakers": ["Ana"], "sources": ["fax"]},
    ],
    ids=str,
)
@pytest.mark.parametrize("config", ["default", "paper"])
def test_a_boundary_that_matches_nothing_gives_nothing(boundary, config):
    memory = memory_of(config)
    for view in (None, "graph", "hierarchy"):
        for found in memory.retrieve_batch(QUESTIONS, view=view, **boundary):
            assert len(found) == 0
            assert found.route_reason
    assert memory.answer(QUESTIONS[0], **boundary).text == ""


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"roles": "robot"}, "roles must be among user, assistant, tool, document, got 'robot'"),
        ({"sessions": 5}, "sessions must be a str or several in a list, got 5"),
        ({"sessions": [None]}, "sessions must be strings, got None"),
        ({"speakers": ["Ana", 3]}, "speakers must be strings, got 3"),
        ({"before": "2024-05-01T10:00"}, "no zone; write an offset"),
        ({"after": "soon"}, "after must be ISO 8601"),
        ({"as_of": "2024-05-01T10:00"}, "no zone"),
        ({"as_of": datetime(2024, 5, 1)}, "no zone"),
        ({"as_of": True}, "got True"),
        ({"as_of": 1.5}, "got 1.5"),
        ({"view": "both"}, "view must be 'graph', 'hierarchy' or None, got 'both'"),
        ({"token_budget": 0}, "token_budget must be an integer from 1 to 2147483647, got 0"),
        ({"token_budget": 2**31}, "token_budget must be an integer from 1 to 2147483647"),
        ({"token_budget": True}, "token_budget must be an integer from 1 to 2147483647, got True"),
        ({"scope": "ben"}, "unknown option 'scope'; retrieve takes k, "),
        ({"k": 0}, "k must be an integer from 1 to 2147483647, got 0"),
        ({"k": -3}, "k must be an integer from 1 to 2147483647, got -3"),
        ({"k": True}, "k must be an integer from 1 to 2147483647, got True"),
        ({"k": 2.0}, "k must be an integer from 1 to 2147483647, got 2.0"),
        ({"k": "5"}, "k must be an integer from 1 to 2147483647, got '5'"),
        ({"k": 2**31}, "k must be an integer from 1 to 2147483647, got 2147483648"),
        ({"reference_time": "2024-05-01T10:00"}, "no zone"),
    ],
    ids=str,
)
def test_a_wrong_option_is_named(memory, option, message):
    with pytest.raises(InvalidInputError) as error:
        memory.retrieve_batch(["Where?"], **option)
    assert message in str(error.value)


def test_a_memorys_zone_reads_naive_limits():
    with open_memory(zone="Europe/Berlin") as memory:
        memory.add("early bird", time="2024-05-01T09:59")
        memory.add("late bird", time="2024-05-01T10:00")
        assert [e.text for e in memory.retrieve("bird", after="2024-05-01T10:00")] == ["late bird"]
        assert [e.text for e in memory.retrieve("bird", after="2024-05-01T08:00Z")] == ["late bird"]


# ---- as_of: the memory of a prefix


@settings(max_examples=20)
@given(st.integers(-2, len(LOG) + 3), st.sampled_from(["default", "paper"]))
def test_as_of_a_place_equals_a_memory_of_that_prefix(lsn, config):
    memory = memory_of(config)
    with open_memory(config=memory.config) as prefix:
        prefix.add_many(LOG[: max(0, lsn)])
        found = memory.retrieve_batch(QUESTIONS, k=9, as_of=lsn)
        for a, b in zip(found, prefix.retrieve_batch(QUESTIONS, k=9), strict=True):
            assert difference(shown(a)[3], shown(b)[3]) is None
            assert (a.route, a.route_reason) == (b.route, b.route_reason)


def test_as_of_an_instant_equals_a_memory_of_that_time():
    """Statistics, names and all: what came later must not be felt."""
    with open_memory() as memory:
        cuts = []
        for start in range(0, 72, 24):
            memory.add_many(LOG[start : start + 24])
            cuts.append(max(s.ingested_at for s in memory.export()))
        for n, moment in enumerate(cuts, 1):
            with open_memory() as prefix:
                prefix.add_many(LOG[: 24 * n])
                wanted = [shown(r)[3] for r in prefix.retrieve_batch(QUESTIONS)]
            for instant in (moment, moment.astimezone()):
                found = memory.retrieve_batch(QUESTIONS, as_of=instant)
                assert [shown(r)[3] for r in found] == wanted
            just_before = moment - timedelta(microseconds=1)
            assert not set(ids(memory.retrieve("tea", k=100, as_of=just_before))) - {
                t.id for t in LOG[: 24 * (n - 1)]
            }


def test_as_of_and_forgetting():
    """What is forgotten is in no prefix either, though the prefix was asked for before."""
    with open_memory() as memory:
        memory.add_many(LOG)
        assert "3" in ids(memory.retrieve("tea", k=100, as_of=30))
        memory.forget("3")
        found = memory.retrieve("tea", k=100, as_of=30)
        assert set(ids(found)) == {t.id for t in LOG[:30]} - {"3"}
        with open_memory() as prefix:
            prefix.add_many([t for t in LOG[:30] if t.id != "3"])
            assert shown(found)[3] == shown(prefix.retrieve("tea", k=100))[3]


def test_as_of_combines_with_other_limits(memory):
    found = memory.retrieve("tea", k=100, as_of=40, sessions="s1", roles="user")
    wanted = {t.id for t in LOG[:40] if t.session == "s1" and t.role == "user"}
    assert set(ids(found)) == wanted


# ---- scopes


def test_scopes_in_one_store_neither_leak_nor_lend_statistics(tmp_path):
    path = tmp_path / "shared.zm"
    hers = Trace("Lisbon Lisbon Acme Porto tuna and Ana's secret plan", speaker="Ana")
    crowd = [Trace(f"Acme tuna piano {i}, said Carla Reis.", speaker="Eve") for i in range(80)]
    questions = ["Who founded Acme?", "tuna on the piano", "Ana's secret plan", "Eve in Porto"]
    with open_memory(path, scope="ana") as ana, open_memory() as alone:
        ana.add_many(STORY)
        alone.add_many(STORY)
        with open_memory(path, scope="eve") as eve:
            eve.add_many([hers, *crowd, *STORY[:4]])  # the same texts too
            assert len(eve.retrieve("tuna", k=100)) == 85
        wanted = [shown(r) for r in alone.retrieve_batch(questions, k=9)]
        assert [shown(r) for r in ana.retrieve_batch(questions, k=9)] == wanted
        assert not any("secret" in e.text for r in ana.retrieve_batch(questions) for e in r)
        assert ana.stats()["traces"] == 9
    with open_memory(path, scope="eve") as eve:
        eve.forget(everything=True)
        assert len(eve.retrieve("tuna")) == 0
    with open_memory(path, scope="ana") as ana:  # texts that both had are still hers
        assert [shown(r) for r in ana.retrieve_batch(questions, k=9)] == wanted
        assert ana.stats()["pending"] == 0


def test_scope_names_are_exact(tmp_path):
    with open_memory(tmp_path / "s.zm", scope="ana") as ana:
        ana.add("a secret")
    for scope in ("Ana", "ana ", "an", "ana\0", "%", "ana' OR '1'='1"):
        with open_memory(tmp_path / "s.zm", scope=scope) as other:
            assert other.stats()["traces"] == 0
            assert len(other.retrieve("secret")) == 0
    for bad in ("", None, 5):
        with pytest.raises(InvalidInputError, match="scope must be a non-empty string"):
            open_memory(tmp_path / "s.zm", scope=bad)


def test_explain_counts_what_lies_outside_the_boundary():
    with open_memory() as memory:
        memory.add_many(
            [{"text": f"note {i}", "speaker": "Ana" if i < 2 else "Ben"} for i in range(5)]
        )
        assert memory.explain("note", speakers="Ana").n_outside == 3
        assert memory.explain("note").n_outside == 0
