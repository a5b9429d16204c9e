"""The log: what is appended comes back to the letter, once, in order, in its own scope."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from hashlib import blake2b
from pathlib import Path
from zoneinfo import TZPATH, ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zeromem.errors import DuplicateIdError, InvalidInputError, StaleReadError
from zeromem.store import LogVersion, Store
from zeromem.store.codec import stored_digest
from zeromem.times import EventTime
from zeromem.types import ROLES, Trace

T0 = EventTime.parse("2026-05-03T10:00+02:00")


def key_of(trace: Trace) -> bytes:
    return blake2b(repr((trace.text, trace.speaker)).encode(), digest_size=32).digest()


def add(log, *traces: Trace):
    return log.append(traces, keys=[key_of(t) for t in traces])


@pytest.fixture(params=["file", "memory"])
def store(request, tmp_path):
    with Store.open(tmp_path / "a.zm" if request.param == "file" else None) as opened:
        yield opened


@pytest.fixture
def log(store):
    return store.scope("ana")


FULL = Trace(
    "Miso is my new kitten!",
    id="m1",
    role="assistant",
    speaker="Ana",
    session="s1",
    time=T0,
    title="Pets",
    source="chat.json",
    metadata={"a": [1, 2.5, None, True, {"b": "ü\ud800"}], "n": 2**70},
)


def test_every_field_comes_back(log):
    (added,) = add(log, FULL)
    assert (added.id, added.lsn, added.created) == ("m1", 1, True)
    (stored,) = log.read([1])
    assert stored.trace == FULL
    assert stored.lsn == 1
    (row,) = log.rows()
    assert row[:8] == (1, "m1", "assistant", "Ana", "s1", T0, "Pets", "chat.json")
    assert row.feature_key == key_of(FULL)
    assert row.ingested_at == stored.ingested_at
    assert abs(datetime.now(UTC) - stored.ingested_at) < timedelta(minutes=1)


def test_defaults_come_back_with_an_id_made_of_the_content(log, tmp_path):
    (added,) = add(log, Trace("hello"))
    assert log.read([1])[0].trace == Trace("hello", id=added.id)
    with Store.open(tmp_path / "other.zm") as other:
        assert add(other.scope("bob"), Trace("hello"))[0].id == added.id


hard_text = st.text(st.characters(categories=["Cs", "Cc", "L", "So"]), max_size=20)
optional = st.none() | hard_text
times = st.none() | st.builds(
    EventTime,
    st.datetimes(
        min_value=datetime(1, 1, 3),
        max_value=datetime(9999, 12, 29),
        timezones=st.sampled_from(
            [UTC, ZoneInfo("Europe/Berlin"), timezone(timedelta(hours=-11, minutes=-30))]
        ),
    ),
    st.sampled_from(["year", "month", "day", "minute", "second"]),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | hard_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(hard_text, inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
traces = st.builds(
    Trace,
    text=hard_text,
    id=st.none() | hard_text.filter(bool),
    role=st.sampled_from(ROLES),
    speaker=optional,
    session=optional,
    time=times,
    title=optional,
    source=optional,
    metadata=st.dictionaries(hard_text, json_values, max_size=3),
)
shared = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture(scope="module")
def memory():
    with Store.open(None) as opened:
        yield opened


@shared
@given(trace=traces, data=st.data())
def test_any_trace_round_trips(memory, trace, data):
    log = memory.scope(f"round trip {data.draw(st.integers(0, 2**60))}")
    log.forget(log.select(everything=True))
    (added,) = add(log, trace)
    back = log.read([added.lsn])[0].trace
    assert back.metadata == dict(trace.metadata)
    assert back.id == (added.id if trace.id is None else trace.id)
    for name in ("text", "role", "speaker", "session", "title", "source"):
        assert getattr(back, name) == getattr(trace, name)
    if trace.time is None:
        assert back.time is None
    else:
        assert back.time.precision == trace.time.precision
        assert back.time.start.isoformat() == trace.time.start.isoformat()
        assert str(back.time.start.tzinfo) == str(trace.time.start.tzinfo)
    assert add(log, back)[0] == add(log, trace)[0]
    assert not add(log, trace)[0].created


@shared
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from("ab"),
            st.lists(
                st.tuples(st.sampled_from("xyz"), st.sampled_from(["", "1", "2"])), max_size=5
            ),
        ),
        max_size=6,
    ),
    seed=st.integers(0, 2**60),
)
def test_append_is_idempotent_and_scopes_are_apart(memory, steps, seed):
    """Against a model: per scope a list of (id or content, text), all or nothing per batch."""
    names = {n: f"{n} {seed}" for n in "ab"}
    for name in names.values():
        log = memory.scope(name)
        log.forget(log.select(everything=True))
    model: dict[str, dict[str, str]] = {"a": {}, "b": {}}
    base = {n: memory.scope(names[n]).version().last_lsn for n in "ab"}
    for scope, batch in steps:
        log = memory.scope(names[scope])
        after, want, ok = dict(model[scope]), [], True
        for text, name in batch:
            identity = name or f"content of {text}"
            want.append(identity not in after)
            ok = ok and after.setdefault(identity, text) == text
        given_traces = [Trace(text, id=name or None) for text, name in batch]
        if ok:
            assert [a.created for a in add(log, *given_traces)] == want
            model[scope] = after
        else:
            with pytest.raises(DuplicateIdError):
                add(log, *given_traces)
    for scope in "ab":
        log = memory.scope(names[scope])
        stored = list(log.export())
        assert [s.trace.text for s in stored] == list(model[scope].values())
        n = len(stored)
        assert [s.lsn for s in stored] == list(range(base[scope] + 1, base[scope] + n + 1))
        assert log.version().n_traces == n
        assert log.find([s.trace.id for s in stored]) == {s.trace.id: s.lsn for s in stored}


def test_same_id_with_other_content_writes_nothing_of_the_batch(log):
    add(log, Trace("a", id="1"))
    before = log.version()
    with pytest.raises(DuplicateIdError, match=r"'1'.*lsn 1"):
        add(log, Trace("new"), Trace("b", id="1"))
    with pytest.raises(DuplicateIdError, match="'2'"):
        add(log, Trace("c", id="2"), Trace("d", id="2"))
    assert log.version() == before
    assert [r.lsn for r in log.rows()] == [1]


@pytest.mark.parametrize(
    "change",
    [
        {"text": "b"},
        {"speaker": "Bo"},
        {"speaker": None, "session": "Ana"},
        {"role": "tool"},
        {"session": "s2"},
        {"time": EventTime.parse("2026-05-03T10:00+01:00")},
        {"time": EventTime(T0.start, "day")},
        {"title": "t"},
        {"source": "x"},
    ],
)
def test_every_content_field_counts_for_identity(log, change):
    trace = Trace("a", speaker="Ana", time=T0)
    other = replace(trace, **change)
    assert [a.created for a in add(log, trace, other)] == [True, True]
    with pytest.raises(DuplicateIdError):
        add(log, replace(trace, id="x"), replace(other, id="x"))


def test_equal_instants_and_metadata_do_not_count_for_identity(log):
    utc = EventTime.parse("2026-05-03T08:00Z")
    results = add(log, Trace("a", time=T0), Trace("a", time=utc, metadata={"k": 1}))
    assert [r.created for r in results] == [True, False]
    assert log.read([1])[0].trace.metadata == {}


@pytest.mark.parametrize(
    ("trace", "message"),
    [
        (Trace(3), r"trace 1: text must be a string, got 3"),
        (Trace("a", speaker=b"x"), r"trace 1: speaker"),
        (Trace("a", id=""), r"trace 1: id must not be empty"),
        (Trace("a", role="boss"), r"trace 1: role.*'boss'"),
        (Trace("a", time=datetime(2026, 1, 1)), r"trace 1: time"),
        (Trace("a", metadata={"a": {"b": [0, {1}]}}), r"trace 1: metadata\['a'\]\['b'\]\[1\]"),
        (Trace("a", metadata={"a": {2: 1}}), r"metadata\['a'\] has the key 2"),
        (Trace("a", metadata={"a": float("nan")}), r"metadata\['a'\] must be finite"),
        ("text", r"trace 1: must be a Trace"),
    ],
)
def test_bad_traces_are_refused_by_name_and_nothing_is_written(log, trace, message):
    with pytest.raises(InvalidInputError, match=message):
        log.append([Trace("fine"), trace], keys=[b"k", b"k"])
    assert log.version() == LogVersion(0, 0, 0)


@pytest.mark.parametrize(
    ("trace", "message"),
    [
        (Trace("a", metadata={"a": [10**5000]}), r"metadata\['a'\]\[0\] is an integer of more"),
        (Trace("a", metadata={"a": -(10**4300)}), "write it as a string"),
        (Trace("a", metadata=5), r"trace 1: metadata must be a mapping .* 5 \(int\)"),
        (Trace("a", metadata=[]), r"metadata must be a mapping .* \[\] \(list\)"),
        (Trace("a", metadata="k=v"), "metadata must be a mapping .* 'k=v'"),
        (Trace(10**5000), r"trace 1: text must be a string, got a value of type int"),
        (Trace("a", role=10**5000), r"trace 1: role"),
        ([10**5000], r"trace 1: must be a Trace"),
    ],
    ids=map(str, range(8)),
)
def test_what_no_json_or_message_can_show_is_refused_too(log, trace, message):
    with pytest.raises(InvalidInputError, match=message):
        log.append([Trace("fine"), trace], keys=[b"k", b"k"])
    assert log.version() == LogVersion(0, 0, 0)


def test_the_longest_number_comes_back(log):
    add(log, Trace("a", metadata={"n": 10**4300 - 1}))
    assert log.read([1])[0].trace.metadata == {"n": 10**4300 - 1}


def test_arguments_that_are_not_several_are_refused_by_name(log):
    for call, name in (
        (lambda: log.select(ids=5), "ids"),
        (lambda: log.select(sessions=5), "sessions"),
        (lambda: log.select(ids=[10**5000]), "ids"),
        (lambda: log.find(None), "ids"),
        (lambda: log.forget(5), "lsns"),
        (lambda: log.read(None), "lsns"),
        (lambda: log.features(5, "f"), "keys"),
        (lambda: log.put_features(5, "f"), "features"),
        (lambda: log.put_features({b"k": 5}, "f"), "features"),
        (lambda: log.append(5, keys=[]), "traces"),
        (lambda: log.append([], keys=5), "keys"),
    ):
        with pytest.raises(InvalidInputError, match=f"^{name} must"):
            call()


def test_any_iterable_of_traces_is_appended(log):
    assert len(log.append((Trace(t) for t in "ab"), keys=(b"k" for _ in "ab"))) == 2


EDGES = [
    datetime(9999, 12, 31, 23, 30, tzinfo=ZoneInfo("America/New_York")),
    datetime(9999, 12, 31, 23, 30, tzinfo=timezone(timedelta(hours=-5))),
    datetime(1, 1, 1, tzinfo=ZoneInfo("Asia/Tokyo")),
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin")),
    datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
    datetime(2026, 3, 29, 2, 30, tzinfo=ZoneInfo("Europe/Berlin")),  # no clock showed it
    datetime(2018, 11, 4, tzinfo=ZoneInfo("America/Sao_Paulo")),  # a day that began at one
    datetime(1880, 1, 1, tzinfo=ZoneInfo("Europe/Berlin")),
]


@pytest.mark.parametrize("precision", ["year", "day", "minute", "second"])
@pytest.mark.parametrize("start", EDGES, ids=str)
def test_times_at_the_edges_round_trip(log, start, precision):
    time = EventTime(start, precision)
    add(log, Trace("a", id="1", time=time))
    back = log.read([1])[0].trace.time
    assert back.start.isoformat() == time.start.isoformat()
    assert str(back.start.tzinfo) == str(time.start.tzinfo)
    assert [row.time for row in log.rows()] == [back]
    assert not add(log, Trace("a", id="1", time=back))[0].created
    assert log.select(before="9999-12-31T00:00Z") == ([] if start.year == 9999 else [1])
    log._store.check()
    assert log.forget(log.select(ids=["1"])) == 1


def test_a_zone_that_only_has_the_name_of_another_keeps_its_offset(log):
    found = (Path(folder) / "Asia/Tokyo" for folder in TZPATH)
    file = next((f for f in found if f.exists()), None)
    if file is None:
        pytest.skip("needs the system's zone files")
    with file.open("rb") as data:
        odd = ZoneInfo.from_file(data, key="Europe/Berlin")
    add(log, Trace("a", time=EventTime(datetime(2026, 5, 3, 10, tzinfo=odd), "minute")))
    assert log.read([1])[0].trace.time.isoformat() == "2026-05-03T10:00+09:00"


def set_time(log, lsn, value):
    with log._store._pool.writer() as con:
        con.execute("UPDATE texts SET time = ? WHERE text_id = ?", (value, lsn))


def test_times_that_an_older_program_wrote_are_read(log):
    """It kept what is finer than the precision, and such a store is not damaged."""
    old = b"day 2026-05-03T10:24:00.000007+02:00 Europe/Berlin"
    add(log, Trace("a", time=EventTime.parse("2026-05-03", zone=ZoneInfo("Europe/Berlin"))))
    set_time(log, 1, old)
    assert log.read([1])[0].trace.time.start.isoformat() == "2026-05-03T00:00:00+02:00"
    columns = (b"x", b"user", None, None, old, None, None, None, b"a")
    with log._store._pool.writer() as con:
        con.execute("UPDATE traces SET digest = ?", (stored_digest(columns),))
    log._store.check()


def test_metadata_that_an_older_program_took_is_read_as_a_mapping(log):
    add(log, Trace("a", metadata={"k": 1}))
    with log._store._pool.writer() as con:
        con.execute("UPDATE texts SET metadata = CAST('[5]' AS BLOB)")
    assert log.read([1])[0].trace.metadata == {"metadata": [5]}
    log._store.check()


def test_forgetting_by_id_needs_no_time(log):
    add(log, Trace("a", id="1", session="s"), Trace("b", id="2", session="s"), Trace("c"))
    for lsn in (1, 2, 3):
        set_time(log, lsn, b"day of reckoning")
    with pytest.raises(ValueError, match="isoformat"):
        list(log.rows())
    assert log.forget(log.select(ids=["1"])) == 1
    assert log.forget(log.select(sessions=["s"])) == 1
    assert log.forget(log.select(everything=True)) == 1


@pytest.mark.parametrize("everything", [None, "", "no", "True", 0, 1, 5, [], [10**5000]])
def test_everything_is_true_or_false(log, everything):
    add(log, Trace("a", id="1"))
    for more in ({}, {"ids": ["1"]}):
        with pytest.raises(InvalidInputError, match="everything must be True or False"):
            log.select(everything=everything, **more)


def test_metadata_that_contains_itself_is_refused(log):
    loop: dict = {}
    loop["me"] = loop
    with pytest.raises(InvalidInputError, match="levels deep"):
        add(log, Trace("a", metadata=loop))


def test_keys_must_match(log):
    with pytest.raises(InvalidInputError, match="keys must have one entry per trace, got 0 for 1"):
        log.append([Trace("a")], keys=[])
    with pytest.raises(InvalidInputError, match=r"keys\[0\]"):
        log.append([Trace("a")], keys=["k"])
    assert log.append([], keys=[]) == []


def test_scope_names_are_checked_and_any_text_is_one(store):
    with pytest.raises(InvalidInputError, match="scope"):
        store.scope("")
    names = ["a", "a\0", "A", "\ud800", "日本", "a" * 5000]
    for i, name in enumerate(names):
        assert add(store.scope(name), Trace(str(i)))[0].lsn == 1
    assert store.scopes() == sorted(names)
    for i, name in enumerate(names):
        assert [s.trace.text for s in store.scope(name).export()] == [str(i)]


def test_no_number_reaches_another_scope(store):
    """Keys pack scope and lsn; a number out of range must not become a neighbour's key."""
    a, b, c = (store.scope(n) for n in "abc")
    for i, log in enumerate((a, b, c)):
        add(log, *(Trace(f"{i} {j}") for j in range(3)))
    wide = 1 << 40
    for lsn in (wide + 1, -wide + 1, 2 * wide + 2, -1, 0, 4, wide):
        with pytest.raises(StaleReadError):
            b.read([lsn])
        assert b.forget([lsn]) == 0
    for after, until in ((-wide, None), (-5, 2 * wide), (-5, None)):
        assert [r.lsn for r in b.rows(after, until)] == [1, 2, 3]
    assert list(b.rows(wide, 2 * wide)) == []
    assert list(b.rows(0, -3)) == []
    assert b.find([r.id for r in a.rows()]) == {}
    assert b.select(ids=[r.id for r in a.rows()]) == []
    assert [log.version().n_traces for log in (a, b, c)] == [3, 3, 3]


def test_rows_and_export_are_complete_over_many_chunks(log, monkeypatch):
    monkeypatch.setattr("zeromem.store.log._CHUNK_ROWS", 7)
    monkeypatch.setattr("zeromem.store.log._CHUNK_BYTES", 3000)
    add(log, *(Trace(f"t{i}") for i in range(50)))
    log.forget([7, 8, 50])
    live = [i for i in range(1, 51) if i not in (7, 8, 50)]
    assert [r.lsn for r in log.rows()] == live
    assert [r.lsn for r in log.rows(5, 20)] == [i for i in live if 5 < i <= 20]
    assert [(s.lsn, s.trace.text) for s in log.export()] == [(i, f"t{i - 1}") for i in live]


def test_rows_hold_no_transaction_and_see_a_prefix(log, monkeypatch):
    monkeypatch.setattr("zeromem.store.log._CHUNK_ROWS", 2)
    add(log, *(Trace(str(i)) for i in range(5)))
    walk = log.rows()
    first = next(walk)
    add(log, Trace("later"))
    assert [first.lsn, *(r.lsn for r in walk)] == [1, 2, 3, 4, 5]
    walk = log.rows()
    next(walk)
    log.forget([5])  # returns at once: the half-read walk blocks nothing
    with pytest.raises(StaleReadError):
        list(walk)


def test_read_checks_the_version(log):
    add(log, *(Trace(str(i)) for i in range(4)))
    seen = log.version()
    add(log, Trace("4"))
    texts = [s.trace.text for s in log.read([3, 1, 5, 3], expect=seen)]
    assert texts == ["2", "0", "4", "2"]
    log.forget([2])
    with pytest.raises(StaleReadError, match="n_forgotten_ops 0, now it has 1"):
        log.read([1], expect=seen)
    with pytest.raises(StaleReadError):
        list(log.rows(expect=seen))
    with pytest.raises(StaleReadError, match="lsn 2 is not in the log"):
        log.read([1, 2])
    with pytest.raises(InvalidInputError, match="lsns"):
        log.read(["1"])


def test_version_never_repeats_even_when_a_scope_starts_again(log):
    seen = set()
    for _ in range(3):
        for i in range(2):
            add(log, Trace(str(i)))
            seen.add(log.version())
        log.forget(log.select(everything=True))
        seen.add(log.version())
    assert len(seen) == 9
    assert log.version() == LogVersion(6, 3, 0)


def test_lsn_at_is_monotonic_though_the_clock_steps_back(log, monkeypatch):
    clock = iter([1000, 3000, 2000, 2500, 4000])
    monkeypatch.setattr(time, "time_ns", lambda: next(clock) * 10**9)
    for i in range(5):
        add(log, Trace(f"a{i}"), Trace(f"b{i}"))
    stamps = [int(r.ingested_at.timestamp()) for r in log.rows()]
    assert stamps == [1000, 1000, *[3000] * 6, 4000, 4000]

    def at(seconds: float) -> int:
        return log.lsn_at(datetime.fromtimestamp(seconds, UTC))

    wanted = {0: 0, 999: 0, 1000: 2, 2999: 2, 3000: 8, 3999: 8, 4000: 10, 9999: 10}
    assert {s: at(s) for s in wanted} == wanted
    log.forget([1, 2, 4, 8])
    assert {s: at(s) for s in (1000, 3000, 4000)} == {1000: 0, 3000: 7, 4000: 10}
    with pytest.raises(InvalidInputError, match="zone"):
        log.lsn_at(datetime(2026, 1, 1))


def test_lsn_at_agrees_with_a_scan(log, monkeypatch):
    rng = random.Random(5)
    now = 10**6
    for i in range(60):
        now += rng.choice([0, 0, 1, 5, -3])
        monkeypatch.setattr(time, "time_ns", lambda now=now: now * 1000)
        add(log, *(Trace(f"{i} {j}") for j in range(rng.randint(1, 3))))
    log.forget(rng.sample([r.lsn for r in log.rows()], 40))
    rows = list(log.rows())
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    for micros in range(10**6 - 2, now + 3):
        moment = epoch + timedelta(microseconds=micros)
        assert log.lsn_at(moment) == max(
            (r.lsn for r in rows if r.ingested_at <= moment), default=0
        )


def test_select(log):
    add(
        log,
        Trace("1", id="a", session="s1", speaker="Ana", time=EventTime.parse("2026-05-03")),
        Trace("2", id="b", session="s2", speaker="Bo", time=EventTime.parse("2026-05")),
        Trace("3", id="c", session="s1", source="f", time=EventTime.parse("9999")),
        Trace("4", id="d"),
    )
    assert log.select(sessions=["s1"]) == [1, 3]
    assert log.select(sessions="s1") == [1, 3]
    assert log.select(sessions=["s1", "s2"], speakers=["Bo", "Ana"]) == [1, 2]
    assert log.select(sessions=[None]) == [4]
    assert log.select(sources=["f"]) == [3]
    assert log.select(ids=["d", "a", "zz"]) == [1, 4]
    assert log.select(sessions=[]) == []
    assert log.select(speakers=["ana"]) == []
    # a period must lie inside whole: May does not lie before 31 May
    assert log.select(before=EventTime.parse("2026-05-31")) == [1]
    assert log.select(before=EventTime.parse("2026-06")) == [1, 2]
    assert log.select(after="2026-05-02") == [1, 3]
    assert log.select(after="2026-05-01", before="2026-06-01", sessions=["s2"]) == [2]
    assert log.select(everything=True) == [1, 2, 3, 4]
    for bad in ({}, {"everything": True, "ids": ["a"]}):
        with pytest.raises(InvalidInputError, match="everything=True"):
            log.select(**bad)
    with pytest.raises(InvalidInputError, match="ids must be strings"):
        log.select(ids=[None])


def test_ten_megabytes_and_fifty_thousand_traces(tmp_path):
    with Store.open(tmp_path / "big.zm") as store:
        _append_much(store.scope("ana"))


def _append_much(log):
    big = "\0日本🐈\ud800" * 800_000
    add(log, Trace(big, id="big"))
    assert log.read([1])[0].trace.text == big
    batch = [Trace(f"trace {i}") for i in range(50_000)]
    results = add(log, *batch)
    assert [r.lsn for r in results] == list(range(2, 50_002))
    assert all(r.created for r in results)
    assert sum(1 for _ in log.rows()) == 50_001
    assert not any(r.created for r in add(log, *batch[::50]))
    assert len(log.find([r.id for r in results])) == 50_000


def test_stats(log):
    add(log, Trace("aé", session="x"), Trace("b"), Trace("a\u00e9", id="again"))
    key = key_of(Trace("aé"))
    log.set_fingerprint("f")
    log.put_features({key: b"12345"}, "f")
    found = log.stats()
    assert found.pop("store_bytes") > 4096
    assert found == {
        "traces": 3,
        "text_bytes": 7,
        "features": 1,
        "feature_bytes": 5,
        "pending": 1,
        "fingerprint": "f",
        "last_lsn": 3,
        "forgotten_ops": 0,
    }
