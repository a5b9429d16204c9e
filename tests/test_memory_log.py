"""A memory is its log: what is acknowledged is there, for everybody, word for word."""

from __future__ import annotations

import io
import sqlite3
import sys
from contextlib import closing
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from support import STORY, BlindEncoder, difference, ids, logs, open_memory, shown

import zeromem
from zeromem.config import Config, IngestConfig
from zeromem.errors import CorruptStoreError, SchemaTooNewError, StoreError
from zeromem.text import canonical
from zeromem.types import ROLES, TokenUsage, Trace

QUESTIONS = ["Where does Ana live now?", "Who founded Acme?", "tuna", "Tagus in Lisbon"]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "m.zm"


def answers(memory):
    return [shown(r) for r in memory.retrieve_batch(QUESTIONS)]


# ---- adding


def test_what_was_added_is_found_by_the_next_call():
    with open_memory() as memory:
        for i in range(30):
            memory.add(f"secret{i} lies in box {i}", speaker="Ana", session=f"s{i % 3}")
            assert memory.retrieve(f"secret{i}", k=1)[0].text.startswith(f"secret{i} ")


def test_one_by_one_equals_all_at_once_and_any_batches():
    with open_memory() as whole:
        whole.add_many(STORY)
        wanted = answers(whole)
    for size in (1, 2, 5):
        config = Config(ingest=IngestConfig(batch_traces=size))
        with open_memory(config=config) as memory:
            memory.add_many(STORY[:4])
            answers(memory)  # builds an index in between
            memory.add_many(t for t in STORY)  # a generator, and some are there already
            assert answers(memory) == wanted
            assert memory.stats()["traces"] == len(STORY)


@settings(max_examples=8)
@given(logs, logs)
def test_what_is_added_and_forgotten_and_reopened_is_as_if_built_at_once(tmp_path_factory, a, b):
    folder = tmp_path_factory.mktemp("m")
    with open_memory(folder / "m.zm") as memory:
        memory.add_many(a)
        memory.retrieve("Ana")
    with open_memory(folder / "m.zm") as memory:
        memory.add_many(b)
        memory.retrieve("Ana")
        memory.forget(speaker="Ana")
        memory.retrieve("Ana")
    with open_memory(folder / "m.zm") as memory, open_memory() as whole:
        whole.add_many(t for t in [*a, *b] if canonical(t.speaker or "") != "ana")
        for x, y in zip(memory.retrieve_batch(QUESTIONS), whole.retrieve_batch(QUESTIONS),
                        strict=True):  # fmt: skip
            assert difference(shown(x)[3], shown(y)[3]) is None


def test_fields_come_back_as_they_went_in(path):
    given_ = Trace(
        "Miso sleeps.", id="a/1", role="assistant", speaker="Ana's", session="s 1",
        time=zeromem.EventTime.parse("2026-05-03T10:00+02:00"), title="Cats", source="chat.json",
        metadata={"n": 1, "list": [1, None, {"x": "ü"}], "t": True, "f": 0.5},
    )  # fmt: skip
    before = datetime.now(UTC)
    with open_memory(path) as memory:
        (added,) = memory.add_many([given_])
        assert (added.id, added.lsn, added.created) == ("a/1", 1, True)
    with open_memory(path) as memory:
        (stored,) = memory.export()
        assert stored.trace == given_
        assert before <= stored.ingested_at <= datetime.now(UTC)
        assert memory.get(["a/1", "none"]) == {"a/1": given_}
        (found,) = memory.retrieve("Miso")
        assert found.trace == given_
        assert (found.id, found.speaker, found.session) == ("a/1", "Ana's", "s 1")
        assert found.time == given_.time


def test_mappings_strings_and_traces_may_be_mixed():
    with open_memory() as memory:
        added = memory.add_many(["one", {"text": "two", "speaker": "Ana"}, Trace("three")])
        assert [s.trace.text for s in memory.export()] == ["one", "two", "three"]
        assert [a.lsn for a in added] == [1, 2, 3]


def test_every_role_is_found():
    with open_memory() as memory:
        for role in ROLES:
            memory.add(f"the {role} spoke", role=role)
        for role in ROLES:
            assert [e.trace.role for e in memory.retrieve("spoke", roles=role)] == [role]


def test_long_texts_give_evidence_of_their_own_turns():
    text = " ".join(f"Sentence {i} is about thing{i}." for i in range(200))
    with open_memory(encoder=BlindEncoder()) as memory:
        memory.add(text, id="long")
        assert memory.stats()["turns"] > 3
        for i in (0, 77, 199):
            (best,) = memory.retrieve(f"thing{i}", k=1, closure=False)
            assert f"thing{i}." in best.text
            assert best.text == text[best.start : best.end]
        found = memory.retrieve("Sentence", k=99)
        ranges = sorted((e.start, e.end) for e in found)
        assert all(a[1] <= b[0] for a, b in pairwise(ranges))


# ---- progress, stats, usage


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_shows_on_a_terminal_and_is_silent_elsewhere(monkeypatch):
    texts = [f"number {i}" for i in range(100)]
    for stream, wanted, shows in (
        (Terminal(), None, True), (io.StringIO(), None, False), (Terminal(), False, False),
        (io.StringIO(), True, True),
    ):  # fmt: skip
        monkeypatch.setattr(sys, "stderr", stream)
        with open_memory() as memory:
            memory.add_many(texts, progress=wanted)
        assert ("remembering" in stream.getvalue()) is shows


def test_stats_count():
    with open_memory(scope="ana") as memory:
        memory.add_many(STORY)
        stats = memory.stats()
        assert stats["scope"] == "ana"
        assert (stats["traces"], stats["turns"], stats["pending"]) == (9, 9, 0)
        assert stats["sessions"] == 5  # three, and two documents
        assert stats["features"] == 9
        assert stats["dim"] == 32
        assert stats["device"] == "cpu"
        assert "rule-" in stats["fingerprint"]
        assert "hash-32" in stats["fingerprint"]
        assert stats["text_bytes"] == sum(len(t.text) for t in STORY)
        assert stats["entities"] >= 6
        assert repr(memory) == "Memory(scope='ana', store=':memory:')"
        memory.forget(session="s1")
        assert memory.stats()["traces"] == 6
        assert memory.stats()["llm_usage"] == dict.fromkeys(
            ("ingest", "retrieval", "answer"), TokenUsage()
        )


# ---- opening


def test_a_store_without_a_path_goes_when_closed():
    memory = open_memory()
    memory.add("tuna")
    folder = Path(memory._store._file).parent
    assert folder.exists()
    memory.close()
    assert not folder.exists()
    memory.close()
    for call in (lambda: memory.add("x"), lambda: memory.retrieve("x"), memory.stats):
        with pytest.raises(StoreError, match="closed; open it again"):
            call()


@pytest.mark.parametrize(
    "content", [b"", b"not a store", b"SQLite format 3\0" + b"x" * 4096, b"\0" * 8192], ids=len
)
def test_a_file_that_is_no_store_is_refused_and_left_alone(path, content):
    path.write_bytes(content)
    if not content:
        open_memory(path).close()  # an empty file is a new store
        return
    with pytest.raises(CorruptStoreError, match="m.zm"):
        open_memory(path)
    assert path.read_bytes() == content


def test_a_foreign_database_is_refused(path):
    with closing(sqlite3.connect(path)) as con:
        con.execute("CREATE TABLE mine (x)")
        con.commit()
    content = path.read_bytes()
    with pytest.raises(CorruptStoreError):
        open_memory(path)
    assert path.read_bytes() == content


def test_a_damaged_store_is_an_error_and_never_a_wrong_answer(path):
    with open_memory(path) as memory:
        memory.add_many([Trace(f"number {i} " + "x" * 300) for i in range(100)])
    data = bytearray(path.read_bytes())
    data[8192 : len(data) // 2] = b"\xff" * (len(data) // 2 - 8192)
    path.write_bytes(data)

    def use():
        with open_memory(path) as memory:
            memory.retrieve("number 7", k=50)
            list(memory.export())

    with pytest.raises(CorruptStoreError, match="m.zm"):
        use()


def test_a_newer_schema_is_named(path):
    open_memory(path).close()
    with closing(sqlite3.connect(path)) as con:
        (ours,) = con.execute("PRAGMA user_version").fetchone()
        con.execute(f"PRAGMA user_version = {ours + 1}")
    with pytest.raises(SchemaTooNewError) as error:
        open_memory(path)
    assert str(ours + 1) in str(error.value)
    assert str(ours) in str(error.value)


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(StoreError, match="nowhere"):
        open_memory(tmp_path / "nowhere" / "m.zm")
    with pytest.raises(StoreError):
        open_memory(tmp_path / "m.zm", read_only=True)
    assert list(tmp_path.iterdir()) == []


def test_read_only_answers_and_writes_nothing(path):
    with open_memory(path) as memory:
        memory.add_many(STORY)
        wanted = answers(memory)
    for snapshot in path.parent.glob("*.zmi"):
        snapshot.unlink()
    path.chmod(0o444)
    path.parent.chmod(0o555)
    before = path.read_bytes()
    try:
        with open_memory(path, read_only=True) as memory:
            assert answers(memory) == wanted
            assert memory.stats()["traces"] == 9
            assert len(list(memory.export())) == 9
            for call in (lambda: memory.add("x"), lambda: memory.forget(session="s1")):
                with pytest.raises(StoreError, match="open read-only; open it without"):
                    call()
            assert answers(memory) == wanted
    finally:
        path.parent.chmod(0o755)
    assert path.read_bytes() == before
    assert not list(path.parent.glob("*.zmi"))


def test_read_only_finds_what_is_not_encoded_yet(path):
    with open_memory(path) as memory:
        # As if killed right after the commit.
        memory._indexer.featurize = lambda batches, *_: dict(enumerate(batches)) and {}
        memory.add_many(STORY)
    before = path.read_bytes()
    with open_memory(path, read_only=True) as memory:
        assert STORY[4].text in [e.text for e in memory.retrieve("chess").main]
        assert memory.stats()["pending"] == 9
    assert path.read_bytes() == before


# ---- others


def test_what_another_writes_is_seen_at_the_next_question(path):
    with open_memory(path) as one, open_memory(path) as two:
        for i in range(5):
            one.add(f"word{i}", id=str(i))
            assert ids(two.retrieve(f"word{i}", k=1))[0] == str(i)
            two.add(f"other{i}", id=f"x{i}")
            assert ids(one.retrieve(f"other{i}", k=1))[0] == f"x{i}"
        two.forget("3")
        assert "3" not in ids(one.retrieve("word3", k=99))
        assert answers(one) == answers(two)
        assert len(list(one.export())) == 9


def test_a_prefix_seen_by_one_is_forgotten_by_another(path):
    with open_memory(path) as one, open_memory(path) as two:
        one.add_many([Trace(f"word{i}", id=str(i)) for i in range(6)])
        assert "1" in ids(two.retrieve("word1", k=9, as_of=4))
        one.forget("1")
        assert sorted(ids(two.retrieve("word1", k=9, as_of=4))) == ["0", "2", "3"]
