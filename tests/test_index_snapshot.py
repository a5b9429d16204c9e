"""The snapshot saves time and never changes an answer, whatever is wrong with it."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
import time
import zlib
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import STORY, build, difference, features, logs, open_memory, rows_of, shown

from zeromem.config import Config, GraphConfig, HierarchyConfig, IngestConfig
from zeromem.index import Index, snapshot
from zeromem.index.sound import fault
from zeromem.index.state import BASE, DERIVED, LISTS, NAMES, VECTORS, State
from zeromem.types import Trace

QUESTIONS = ["Where does Ana live now?", "Who founded Acme?", "What flows through Lisbon?", "tuna"]
OTHER = [Trace(f"Entirely other words, Walter, number {i}.", session="x") for i in range(9)]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "m.zm"


def answers(memory):
    return [shown(r) for r in memory.retrieve_batch(QUESTIONS)]


def written(path, traces=STORY, **options):
    """Store traces, close, and return (snapshot file, answers)."""
    with open_memory(path, **options) as memory:
        memory.add_many(traces)
        found = answers(memory)
    (file,) = path.parent.glob(f"{path.name}.*.zmi")
    return file, found


def test_reopening_reads_the_snapshot_and_answers_alike(path, monkeypatch):
    _, before = written(path)

    def refuse(*_):
        raise AssertionError("an index was built")

    monkeypatch.setattr(Index, "extend", refuse)
    monkeypatch.setattr(snapshot, "derived", refuse)
    with open_memory(path) as memory:
        assert answers(memory) == before


def test_save_and_load_are_inverse(tmp_path):
    with open_memory() as memory:
        memory.add_many(STORY)
        index = memory._indexer.current().index
    stamp = snapshot.Stamp("f", index.dim, 9, 2, "last")
    snapshot.save(tmp_path / "x.zmi", index.state, index.config, stamp)
    found = snapshot.load(tmp_path / "x.zmi")
    assert found.stamp == stamp
    assert found.under(index.config) is found.state
    assert difference(found.state, index.state) is None
    assert not any(array.flags.writeable for array in found.state.columns.values())
    assert not any(part.flags.writeable for c in found.state.vectors.values() for part in c.parts)
    assert list(tmp_path.iterdir()) == [tmp_path / "x.zmi"]


@pytest.mark.parametrize(
    "config",
    [
        Config.paper(),
        Config(graph=GraphConfig(adjacency_weight=0.5)),
        Config(hierarchy=HierarchyConfig(window=5)),
        Config(hierarchy=HierarchyConfig(half_informative=3.0)),
    ],
    ids=["paper", "adjacency", "window", "half informative"],
)
def test_under_another_configuration_what_is_derived_is_derived_anew(tmp_path, config):
    index = build(rows_of(STORY))
    stamp = snapshot.Stamp("f", index.dim, 9, 2, "last")
    snapshot.save(tmp_path / "x.zmi", index.state, index.config, stamp)
    found = snapshot.load(tmp_path / "x.zmi")
    assert difference(found.under(config), build(rows_of(STORY), config).state) is None
    assert difference(found.under(config), index.state) is not None


@settings(max_examples=20)
@given(logs, st.integers(0, 14))
def test_an_index_that_was_read_grows_as_any_other(tmp_path_factory, log, cut):
    path = tmp_path_factory.mktemp("grown") / "x.zmi"
    rows = rows_of(log)
    index = build(rows[:cut])
    snapshot.save(path, index.state, index.config, snapshot.Stamp("f", index.dim, 0, 0, ""))
    state = snapshot.load(path).under(index.config)
    read = Index(state, index.dim, index.config, index.backend)
    assert difference(read.arrays, index.arrays) is None
    longer = read.extend(rows[cut:], features(rows[cut:]))
    assert difference(longer.state, build(rows).state) is None
    assert difference(read.without([1]).state, index.without([1]).state) is None


def test_what_came_after_a_snapshot_replays_from_the_log(path):
    file, _ = written(path, STORY[:5])
    old = file.read_bytes()
    written(path, STORY)
    file.write_bytes(old)
    with open_memory(path) as memory, open_memory() as whole:
        whole.add_many(STORY)
        assert answers(memory) == answers(whole)
        assert difference(
            memory._indexer.current().index.arrays, whole._indexer.current().index.arrays
        ) is None  # fmt: skip


def damaged(data: bytes):
    yield "empty", b""
    yield "one byte", data[:1]
    yield "header alone", data[:24]
    yield "half", data[: len(data) // 2]
    yield "one byte short", data[:-1]
    yield "one byte long", data + b"\0"
    yield "foreign", b"PK\3\4" + data[4:]
    yield "all zero", bytes(len(data))
    for at in (0, 9, 17, 30, len(data) // 3, len(data) // 2, len(data) - 40):
        flipped = bytearray(data)
        flipped[at] ^= 4
        yield f"bit of byte {at}", bytes(flipped)


def test_a_damaged_snapshot_is_left_aside_with_a_line_in_the_log(path, caplog):
    file, before = written(path)
    for what, data in damaged(file.read_bytes()):
        file.write_bytes(data)
        caplog.clear()
        with caplog.at_level(logging.WARNING), open_memory(path) as memory:
            assert answers(memory) == before, what
        assert [r for r in caplog.records if f"snapshot {file}" in r.getMessage()], what
        with open_memory(path):  # it was written anew
            assert snapshot.load(file) is not None, what


def test_a_missing_snapshot_is_no_matter(path):
    file, before = written(path)
    file.unlink()
    with open_memory(path) as memory:
        assert answers(memory) == before
    assert file.exists()


def test_a_folder_in_place_of_a_snapshot_is_left_aside(path):
    file, before = written(path)
    file.unlink()
    file.mkdir()
    with open_memory(path) as memory:
        assert answers(memory) == before


def expect_stale(path, caplog, traces, **options):
    with open_memory() as fresh:
        fresh.add_many(traces)
        wanted = answers(fresh)
    caplog.clear()
    with caplog.at_level(logging.INFO), open_memory(path, **options) as memory:
        assert answers(memory) == wanted
    assert any("is stale" in r.getMessage() for r in caplog.records)


def test_the_snapshot_of_another_store_is_stale(tmp_path, caplog):
    """The same scope, encoder, number of traces: only the traces differ."""
    file, _ = written(tmp_path / "a.zm", STORY)
    other, _ = written(tmp_path / "b.zm", OTHER)
    shutil.copy(file, other)
    expect_stale(tmp_path / "b.zm", caplog, OTHER)


def test_the_snapshot_of_a_later_state_than_a_backup_is_stale(path, caplog):
    """A backup is put back, goes on another way and passes the place where the snapshot was."""
    written(path, STORY[:4])
    backup = path.read_bytes()
    written(path, STORY)
    path.write_bytes(backup)
    with open_memory(path) as memory:
        memory.add_many(OTHER)
        memory._indexer.save = lambda: None
    expect_stale(path, caplog, STORY[:4] + OTHER)


def test_a_snapshot_from_before_something_was_forgotten_is_stale(path, caplog):
    file, _ = written(path)
    old = file.read_bytes()
    with open_memory(path) as memory:
        memory.forget(speaker="Ana")
    file.write_bytes(old)
    expect_stale(path, caplog, [t for t in STORY if t.speaker != "Ana"])


def test_a_snapshot_of_another_division_into_turns_is_stale(path, caplog):
    short = Config(ingest=IngestConfig(max_turn_words=8))
    with open_memory(path, config=short) as memory:
        memory.add_many(STORY)
        n = memory.stats()["turns"]
    with open_memory(path, reencode=True) as memory:
        assert memory.stats()["turns"] == len(STORY) < n


def test_a_snapshot_that_cannot_be_written_is_no_error(path, monkeypatch, caplog):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(snapshot, "save", full)
    with open_memory(path) as memory:
        memory.add_many(STORY)
        before = answers(memory)
    assert "was not written" in caplog.text
    monkeypatch.undo()
    with open_memory(path) as memory:
        assert answers(memory) == before


def test_a_failed_write_leaves_the_old_snapshot(path, monkeypatch):
    file, _ = written(path, STORY[:5])
    old = file.read_bytes()
    with open_memory() as memory:
        memory.add_many(STORY)
        index = memory._indexer.current().index
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        snapshot.save(file, index.state, index.config, snapshot.Stamp("f", 32, 9, 0, ""))
    assert file.read_bytes() == old
    assert [f for f in path.parent.glob("*.zmi")] == [file]


def test_a_snapshot_is_written_anew_after_forgetting(path):
    file, _ = written(path, [Trace(f"Number {i}, said Ana.") for i in range(200)])
    with open_memory(path) as memory:
        memory.retrieve("Ana")
        (first,) = list(memory.export())[:1]
        memory.forget(first.trace.id)
        assert not file.exists()
        memory.retrieve("Ana")
    assert file.exists()


def test_nothing_is_written_where_nothing_changed(path):
    file, _ = written(path)
    stamp = file.stat().st_mtime_ns, file.stat().st_ino
    with open_memory(path) as memory:
        answers(memory)
    assert (file.stat().st_mtime_ns, file.stat().st_ino) == stamp


def test_scopes_have_snapshots_of_their_own(path):
    _, ana = written(path, STORY, scope="ana")
    with open_memory(path, scope="ben") as memory:
        memory.add_many(OTHER)
        ben = answers(memory)
    assert len(list(path.parent.glob("*.zmi"))) == 2
    for scope, wanted in (("ana", ana), ("ben", ben)):
        with open_memory(path, scope=scope) as memory:
            assert answers(memory) == wanted


def with_other_contents(file, change):
    """Change a snapshot's head and bytes and give it the checksum of what it holds then."""
    data = file.read_bytes()
    magic, n_head, _ = snapshot._HEADER.unpack_from(data)
    at = snapshot._HEADER.size
    head, body = json.loads(data[at : at + n_head]), bytearray(data[at + n_head :])
    change(head, body)
    text = json.dumps(head).encode()
    rest = text + b" " * (-(at + len(text)) % 64) + body
    file.write_bytes(snapshot._HEADER.pack(magic, len(rest) - len(body), zlib.crc32(rest)) + rest)


def expect_left_aside(file, caplog):
    caplog.clear()
    assert snapshot.load(file) is None
    assert f"snapshot {file} is left aside: it is damaged" in caplog.text


LIST_PARTS = [f"{name}.{part}" for name in LISTS for part in ("indptr", "values")]
COLUMNS = [*BASE, *DERIVED, *LIST_PARTS, "postings.counts"]
# Nothing is looked up by these, and text ends where it ends.
ANY_NUMBER = {"time", "role"}
MAY_BE_LARGE = ANY_NUMBER | {"span", "sentence_span", "n_tokens", "flags", "entity_mass"}
FRACTIONS = [n for n, (dtype, _) in DERIVED.items() if np.dtype(dtype).kind == "f"]
LINKED = ("previous", "following", "session_last", "session_length", "episode_of", "group_turns")


def values_of(head, body, name):
    dtype, shape, offset = head["arrays"][name]
    return np.frombuffer(body, dtype, int(np.prod(shape)), offset).reshape(shape)


TITLED = [
    *STORY,
    Trace("Its port is old.", role="document", title="Old Porto"),
    Trace("Ana saw old Porto.", role="document", title="River Tagus"),
    Trace("Old Porto lies far from the river Tagus.", speaker="Ben", source="letters"),
    Trace("Ben saw the river Tagus.", speaker="Ben", title="Old Porto"),
]


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    path = tmp_path_factory.mktemp("good") / "m.zm"
    file, _ = written(path, TITLED)
    return file, file.read_bytes()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, "greatest") for name in COLUMNS if name not in MAY_BE_LARGE),
        *((name, "negative") for name in COLUMNS if name not in ANY_NUMBER),
        *((name, "no number") for name in FRACTIONS),
    ],
)
def test_numbers_that_no_index_has_are_left_aside(good, caplog, name, value):
    file, data = good
    file.write_bytes(data)

    def change(head, body):
        values = values_of(head, body, name)
        assert values.size, "there is nothing to damage"
        if values.dtype == np.bool_:
            values.view(np.uint8)[:] = 7
        elif values.dtype.kind == "f":
            values[:] = {"greatest": np.inf, "negative": -np.inf, "no number": np.nan}[value]
        else:
            values.flat[values.size // 2] = (
                np.iinfo(values.dtype).max if value == "greatest" else -9
            )

    with_other_contents(file, change)
    expect_left_aside(file, caplog)


@pytest.mark.parametrize(
    ("how", "name"),
    [
        *product(["dtype", "wider", "far", "gone"], [*COLUMNS, *VECTORS]),
        # One mention fewer is another log's, and bytes have no odd address.
        *(("shorter", name) for name in [*COLUMNS, *VECTORS] if name != "mentions"),
        *(("odd", name) for name in COLUMNS if name not in ("encoded", "spoken")),
    ],
)
def test_arrays_of_another_kind_are_left_aside(good, caplog, name, how):
    file, data = good
    file.write_bytes(data)

    def change(head, body):
        dtype, shape, offset = head["arrays"][name]
        if how == "gone":
            del head["arrays"][name]
            return
        shape = [shape[0] - 1, *shape[1:]] if how == "shorter" else shape
        shape = [shape[0] // 2, 2, *shape[1:]] if how == "wider" else shape
        dtype = ("<i2" if np.dtype(dtype).itemsize != 1 else "<u1") if how == "dtype" else dtype
        offset = {"far": 2**70, "odd": offset + 1}.get(how, offset)
        head["arrays"][name] = [dtype, shape, offset]

    with_other_contents(file, change)
    expect_left_aside(file, caplog)


@pytest.mark.parametrize("name", ["time", "span", "sentence_span"])
def test_ranges_that_end_before_they_start_are_left_aside(good, caplog, name):
    file, data = good
    file.write_bytes(data)

    def change(head, body):
        values_of(head, body, name)[1] = (9, 8)

    with_other_contents(file, change)
    expect_left_aside(file, caplog)


@pytest.mark.parametrize("name", [n for n in COLUMNS if n.endswith("indptr")])
def test_offsets_that_fall_are_left_aside(good, caplog, name):
    file, data = good
    file.write_bytes(data)

    def change(head, body):
        indptr = values_of(head, body, name)
        indptr[1:-1] = indptr[-1] if name != "title_indptr" else 0
        indptr[len(indptr) // 2] = 0

    with_other_contents(file, change)
    expect_left_aside(file, caplog)


@pytest.mark.parametrize("name", LINKED)
def test_links_in_range_that_lead_elsewhere_are_left_aside(good, caplog, name):
    """Each number is one that the column may hold: a walk along them would not come to an end."""
    file, data = good
    file.write_bytes(data)

    def change(head, body):
        values = values_of(head, body, name)
        values[:] = np.roll(values, 1) if len(set(values.tolist())) > 1 else values + 1

    with_other_contents(file, change)
    expect_left_aside(file, caplog)


ROWS = ("mention_entity", "sentence_entity", "postings.values", "entity_sentences.values")


@pytest.mark.parametrize("name", ["lsn", "mentions", *ROWS, "titled.values"])
def test_rows_that_are_not_in_order_are_left_aside(good, caplog, name):
    file, data = good
    file.write_bytes(data)

    def change(head, body):
        values = values_of(head, body, name)
        values[:] = values[::-1].copy()

    with_other_contents(file, change)
    expect_left_aside(file, caplog)


def test_mentions_in_sentences_of_other_turns_are_left_aside(good, caplog):
    file, data = good
    file.write_bytes(data)

    def change(head, body):
        sentence = values_of(head, body, "mentions")[:, 1]
        sentence[sentence >= 0] = 0

    with_other_contents(file, change)
    expect_left_aside(file, caplog)
    assert "sentences of other turns" in caplog.text


def test_titles_without_a_word_are_left_aside(good, caplog):
    file, data = good
    file.write_bytes(data)
    with_other_contents(
        file, lambda head, body: values_of(head, body, "title_indptr").__setitem__(1, 0)
    )
    expect_left_aside(file, caplog)
    assert "titles without a word" in caplog.text


@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("how", ["fewer", "twice", "numbers", "none"])
def test_names_that_do_not_fit_are_left_aside(good, caplog, kind, how):
    file, data = good
    file.write_bytes(data)

    def change(head, body):
        names = head["names"]
        held = names[kind]
        assert held
        names[kind] = {"fewer": held[:-1], "twice": held[:-1] + held[:1] * 2,
                       "numbers": list(range(len(held))), "none": None}[how]  # fmt: skip

    with_other_contents(file, change)
    expect_left_aside(file, caplog)


@pytest.mark.parametrize(
    "change",
    [
        lambda head, body: head.update(arrays=[]),
        lambda head, body: head.pop("key"),
        lambda head, body: head.update(stamp=head["stamp"][:3]),
        lambda head, body: head["stamp"].__setitem__(1, head["stamp"][1] * 2),
        lambda head, body: body.clear(),
    ],
    ids=["arrays", "key", "stamp", "dim", "body"],
)
def test_a_head_that_says_something_else_is_left_aside(good, caplog, change):
    file, data = good
    file.write_bytes(data)
    with_other_contents(file, change)
    expect_left_aside(file, caplog)


@settings(max_examples=30)
@given(logs, st.sets(st.integers(1, 14), max_size=5))
def test_no_fault_is_found_in_an_index_that_has_none(log, gone):
    for config in (Config(), Config.paper()):
        index = build(rows_of(log), config)
        assert fault(index.state, index.dim) is None
        assert fault(index.without(gone).state, index.dim) is None
        assert fault(State.empty(index.dim), index.dim) is None


def test_drafts_of_killed_processes_are_removed_and_no_others(path):
    file, before = written(path)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    living = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        drafts = {
            who: file.with_name(f"{file.stem}.{pid}-7.zmi")
            for who, pid in (("gone", gone.pid), ("living", living.pid), ("old", os.getpid()))
        }
        drafts["another's"] = file.with_name(f"other.{gone.pid}-7.zmi")
        for draft in drafts.values():
            draft.write_bytes(b"half")
        hours_ago = time.time() - 2 * 3600
        os.utime(drafts["old"], (hours_ago, hours_ago))
        os.utime(drafts["another's"], (hours_ago, hours_ago))
        with open_memory(path, read_only=True) as memory:
            assert answers(memory) == before
        assert all(draft.exists() for draft in drafts.values())
        with open_memory(path) as memory:
            assert answers(memory) == before
        assert {who for who, d in drafts.items() if d.exists()} == {"living", "another's"}
        drafts["gone"].write_bytes(b"half")
        index = build(rows_of(STORY))
        snapshot.save(file, index.state, index.config, snapshot.Stamp("f", index.dim, 9, 2, ""))
        assert {who for who, d in drafts.items() if d.exists()} == {"living", "another's"}
    finally:
        living.communicate(b"\n")
