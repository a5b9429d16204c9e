"""What is forgotten is gone: from answers, from indexes, from every byte of the folder."""

from __future__ import annotations

import threading

import pytest
from support import STORY, HashEncoder, difference, ids, open_memory, shown

from zeromem.types import Trace

# Each in a field of its own; no stemmer changes the first letters.
WORDS = ["xylotext", "xylospeaker", "xylosession", "xylotitle", "xylosource", "xyloid", "xylometa"]
NAME = "Xylon Quarz"
SECRET = Trace(
    f"The xylotext is with {NAME} in Zyxwick.", speaker="Xylospeaker", session="xylosession",
    title="Xylotitle Report", source="xylosource", id="xyloid", metadata={"k": "xylometa"},
)  # fmt: skip
QUESTIONS = ["Where does Ana live now?", "Who founded Acme?", f"Who is {NAME}?", "xylotext",
             "What did Xylospeaker say?", "Xylotitle Report"]  # fmt: skip


@pytest.fixture
def path(tmp_path):
    return tmp_path / "m.zm"


def leaks(folder):
    """Words of the secret in any file's bytes."""
    found = []
    for file in folder.iterdir():
        data = file.read_bytes().lower()
        for word in [*WORDS, "xylon", "quarz", "zyxwick"]:
            for form in (word.encode(), word.encode("utf-16-le")):
                if form in data:
                    found.append((file.name, word))
    return found


def held(memory):
    """Every name that the index in memory holds."""
    state = memory._indexer._state
    names = set()
    for kind in state.index.state.names.values() if state else ():
        # Also what a value does not show of what it shares.
        names |= {*kind._names, *kind._ids}
    return " ".join(names).lower()


def assert_gone(memory, folder):
    assert leaks(folder) == []
    assert "xylo" not in held(memory)
    for found in memory.retrieve_batch(QUESTIONS, k=99):
        assert "xyloid" not in ids(found)
        assert not any("xylo" in e.text.lower() for e in found)
    assert "xylo" not in " ".join(memory._indexer.current().index.arrays.names)
    assert memory.get(["xyloid"]) == {}
    assert "xyloid" not in [s.trace.id for s in memory.export()]


@pytest.mark.parametrize(
    "condition",
    [
        {"ids": "xyloid"}, {"ids": ["xyloid"]}, {"session": "xylosession"},
        {"speaker": "Xylospeaker"}, {"source": "xylosource"},
        {"speaker": "Xylospeaker", "session": "xylosession", "ids": ["xyloid", "other"]},
    ],
    ids=str,
)  # fmt: skip
def test_forgetting_leaves_no_byte(path, condition):
    with open_memory(path) as memory:
        memory.add_many([*STORY[:5], SECRET, *STORY[5:]])
        memory.retrieve_batch(QUESTIONS)
    assert list(path.parent.glob("*.zmi"))
    assert {word for _, word in leaks(path.parent)} > set(WORDS)  # the search finds what is there
    with open_memory(path) as memory:
        assert "xyloid" in ids(memory.retrieve("xylotext"))
        memory.retrieve_batch(QUESTIONS, as_of=7)
        n_features = memory.stats()["features"]
        assert memory.forget(**condition) == 1
        assert leaks(path.parent) == []  # done when it returns
        assert "xylo" not in held(memory)
        assert_gone(memory, path.parent)
        assert memory.stats()["features"] == n_features - 1
        for found in memory.retrieve_batch(QUESTIONS, as_of=7):
            assert "xyloid" not in ids(found)
    with open_memory(path) as memory:
        assert_gone(memory, path.parent)
        with open_memory() as never:
            never.add_many(STORY)
            for q in QUESTIONS:
                assert shown(memory.retrieve(q)) == shown(never.retrieve(q))
            ours, theirs = (m._indexer.current().index.arrays for m in (memory, never))
            assert difference(ours.graph, theirs.graph) is None
            assert ours.turns.entities == theirs.turns.entities
            assert ours.turns.vocabulary == theirs.turns.vocabulary


def test_closing_right_after_forgetting_saves_nothing_of_it(path):
    with open_memory(path) as memory:
        memory.add_many([*STORY, SECRET])
        memory.retrieve("xylotext")
        memory.forget("xyloid")
    assert leaks(path.parent) == []


def test_another_open_memory_saves_nothing_of_it(path):
    """It still holds the old index when it closes."""
    with open_memory(path) as memory:
        memory.add_many([*STORY, SECRET])
        with open_memory(path) as other:
            assert "xyloid" in ids(other.retrieve("xylotext"))
            memory.forget("xyloid")
        assert leaks(path.parent) == []
        assert_gone(memory, path.parent)


def test_nothing_forgotten_is_ever_written_to_a_snapshot(path, monkeypatch):
    """Not even for a moment: a kill between writing and removing would leave it there."""
    from zeromem.index import snapshot

    written = []
    inner = snapshot.save
    monkeypatch.setattr(
        snapshot, "save", lambda p, state, *rest: written.append(state) or inner(p, state, *rest)
    )
    with open_memory(path) as memory, open_memory(path) as other:
        memory.add_many([*STORY, SECRET])
        memory.retrieve("xylotext")
        other.retrieve("xylotext")
        memory.forget("xyloid")
    assert not any("xylotext" in state.names["vocabulary"] for state in written)


def test_forgetting_everything_leaves_an_empty_memory_that_goes_on(path):
    with open_memory(path) as memory:
        memory.add_many([*STORY, SECRET])
        memory.retrieve("tuna")
        assert memory.forget(everything=True) == 10
        assert_gone(memory, path.parent)
        assert len(memory.retrieve("tuna")) == 0
        stats = memory.stats()
        assert (stats["traces"], stats["turns"], stats["entities"]) == (0, 0, 0)
        assert memory.add("tuna again").lsn == 11  # numbers are not used twice
        assert len(memory.retrieve("tuna")) == 1


def test_times_choose_what_to_forget(path):
    with open_memory(path) as memory:
        for year in range(2018, 2026):
            memory.add(f"in {year}", time=str(year), id=str(year))
        memory.add("some day", id="never")
        assert memory.forget(after="2019", before="2022") == 3
        assert memory.forget(after="2025") == 1
        assert sorted(ids(memory.retrieve("in", k=99))) == ["2018", "2022", "2023", "2024", "never"]


def test_what_another_trace_says_too_stays(path):
    """Features are shared by text; a name by all who mention it."""
    with open_memory(path) as memory:
        memory.add("Carla moved to Acme.", session="a", id="1")
        memory.add("Carla moved to Acme.", session="b", id="2")
        memory.add("Ben saw Carla.", session="c", id="3")
        memory.forget("1")
        assert sorted(ids(memory.retrieve("Carla", k=9))) == ["2", "3"]
        assert memory.stats()["features"] == 2
        memory.forget("2")
        assert memory.stats()["features"] == 1
        assert list(memory._indexer.current().index.arrays.names) == ["ben", "carla"]


def test_forgetting_again_and_adding_again(path):
    with open_memory(path) as memory:
        memory.add_many([*STORY, SECRET])
        assert memory.forget("xyloid") == 1
        assert memory.forget("xyloid") == 0
        again = memory.add_many([SECRET])[0]
        assert again.created
        assert again.lsn == 11
        assert "xyloid" in ids(memory.retrieve("xylotext"))


def test_a_question_asked_while_something_is_forgotten(path, monkeypatch):
    """Between the ranking and the reading of the text: the question is answered anew."""
    with open_memory(path) as memory, open_memory(path) as other:
        memory.add_many([*STORY, SECRET])
        memory.retrieve("xylotext")
        read = type(memory)._read
        left = [1]

        def forget_first(self, *args, **kwargs):
            if left and left.pop():
                other.forget("xyloid")
            return read(self, *args, **kwargs)

        monkeypatch.setattr(type(memory), "_read", forget_first)
        found = memory.explain("xylotext", k=99)
        assert "xyloid" not in ids(found.retrieval)
        assert len(found.retrieval) == len(STORY)


def test_readers_beside_forgetting_never_see_what_was_forgotten(path):
    errors, gone = [], set()
    lock = threading.Lock()
    done = threading.Event()
    log = [Trace(f"word{i} of Ana", id=str(i), session=f"s{i % 4}") for i in range(40)]
    with open_memory(path) as memory:
        memory.add_many(log)

        def read():
            try:
                while not done.is_set():
                    with lock:
                        before = set(gone)
                    found = set(ids(memory.retrieve("Ana word7", k=99)))
                    as_of = set(ids(memory.retrieve("Ana", k=99, as_of=30)))
                    if found & before or as_of & before:
                        errors.append((found & before, as_of & before))
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=read) for _ in range(2)]
        for t in threads:
            t.start()
        for i in range(0, 40, 4):
            memory.forget([str(i), str(i + 1)])
            with lock:
                gone.update((str(i), str(i + 1)))
        done.set()
        for t in threads:
            t.join()
        assert errors == []
        assert set(ids(memory.retrieve("Ana", k=99))) == {t.id for t in log} - gone


def test_forgetting_in_one_scope_leaves_the_others(path):
    for scope in ("a", "b"):
        with open_memory(path, scope=scope) as memory:
            memory.add_many([*STORY, SECRET])
            memory.retrieve("tuna")
    with open_memory(path, scope="a") as memory:
        memory.forget("xyloid")

    class Once(HashEncoder):
        def encode_spans(self, texts, spans):
            raise AssertionError("encoded again")

    with open_memory(path, scope="b", encoder=Once()) as memory:
        assert "xyloid" in ids(memory.retrieve("xylotext"))
        memory.forget("xyloid")
    assert leaks(path.parent) == []
