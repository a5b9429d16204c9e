"""Many memories in one process: within a budget, right whatever is closed, opened and reopened."""

from __future__ import annotations

import random
import threading
from contextlib import ExitStack

import pytest
from server_support import open_memories
from support import STORY, HashEncoder, ids, open_memory, shown

from zeromem.errors import FingerprintMismatchError, InvalidInputError, StoreError
from zeromem.types import Trace


def together(work, n):
    """Call ``work(i)`` in n threads, and raise what any of them raised."""
    failed = []

    def run(i):
        try:
            work(i)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
    if failed:
        raise failed[0]


def test_scopes_are_apart_and_listed(tmp_path):
    with open_memories(tmp_path / "m.zm") as memories:
        for name in ("b", "a", "../a", "a/b", "日本", "\0"):
            with memories.use(name) as memory:
                memory.add(f"The name is {name!r}.", id="1")
        assert memories.scopes() == sorted(["b", "a", "../a", "a/b", "日本", "\0"])
        with memories.use("nobody") as memory:
            assert ids(memory.retrieve("name")) == []
        assert "nobody" not in memories.scopes()
        with memories.use("a") as memory:
            assert memory.get(["1"])["1"].text == "The name is 'a'."


def test_the_least_recently_used_are_closed_first():
    with open_memories(max_open=3) as memories:

        def uses(name):
            before = memories.stats()["misses"]
            with memories.use(name) as memory:
                memory.add(f"x of {name}")
            return memories.stats()["misses"] > before

        assert [uses(name) for name in "abc"] == [True] * 3
        assert not uses("a")  # now b is the oldest
        assert uses("d")
        assert memories.stats()["open"] == 3
        assert memories.stats()["evictions"] == 1
        assert [uses(name) for name in "acd"] == [False] * 3
        assert uses("b")


def test_bytes_are_bounded_too(tmp_path):
    with open_memories(tmp_path / "m.zm") as memories:
        with memories.use("a") as memory:
            memory.add_many(STORY)
            memory.retrieve("x")
        one = memories.stats()["bytes"]
    assert one > 0
    with open_memories(tmp_path / "n.zm", max_bytes=int(2.5 * one)) as memories:
        for name in "abcdef":
            with memories.use(name) as memory:
                memory.add_many(STORY)
                memory.retrieve("x")
            assert memories.stats()["bytes"] <= 2.5 * one
        assert memories.stats()["open"] == 2
        assert memories.stats()["evictions"] == 4


def test_a_memory_in_use_is_never_closed():
    with open_memories(max_open=1) as memories, ExitStack() as stack:
        held = {}
        for name in "abcd":
            held[name] = stack.enter_context(memories.use(name))
            held[name].add(f"Ana met {name}.")
        assert memories.stats()["open"] == 4
        assert memories.stats()["evictions"] == 0
        for name, memory in held.items():
            with memories.use(name) as again:
                assert again is memory
            assert [e.text for e in memory.retrieve("Ana")] == [f"Ana met {name}."]
        stack.close()
        assert memories.stats()["open"] == 1


def test_closing_for_room_saves_a_snapshot_and_reopening_is_equal_to_the_bit(tmp_path):
    question = "What is Ana's kitten called?"
    with open_memories(tmp_path / "m.zm", max_open=1) as memories:
        with memories.use("a") as memory:
            memory.add_many(STORY)
            before = shown(memory.retrieve(question))
        with memories.use("b") as memory:
            memory.add("else")
        assert memories.stats()["evictions"] == 1
        assert any(p.is_file() for p in tmp_path.rglob("*") if p.name != "m.zm")
        with memories.use("a") as memory:
            assert shown(memory.retrieve(question)) == before
            assert memory._featurizer.encoder.calls  # shared, and asked for questions alone
    with open_memory() as alone:
        alone.add_many(STORY)
        assert shown(alone.retrieve(question)) == before


@pytest.mark.parametrize("scope", ["", None, 1, b"a", ["a"]])
def test_what_is_no_scope_is_refused(scope):
    with open_memories() as memories:
        with pytest.raises(InvalidInputError, match="scope must be a non-empty str"):
            with memories.use(scope):
                pass
        assert memories.stats()["open"] == 0


@pytest.mark.parametrize(("name", "value"), [("max_open", 0), ("max_open", True), ("max_bytes", -1),
                                             ("max_open", 1.5), ("max_bytes", "1")])  # fmt: skip
def test_a_budget_that_is_none_is_refused(name, value):
    with pytest.raises(InvalidInputError, match=name):
        open_memories(**{name: value})


def test_what_is_closed_says_so(tmp_path):
    memories = open_memories(tmp_path / "m.zm")
    with memories.use("a") as memory:
        memory.add_many(STORY)
        memory.retrieve("x")
    memories.close()
    memories.close()
    with pytest.raises(StoreError, match="closed"), memories.use("a"):
        pass
    with pytest.raises(StoreError, match="closed"):
        memories.scopes()
    with open_memory(tmp_path / "m.zm", scope="a") as memory:
        assert memory.stats()["traces"] == len(STORY)


def test_a_scope_of_another_encoder_harms_no_other(tmp_path):
    with open_memories(tmp_path / "m.zm", encoder=HashEncoder("old")) as memories:
        with memories.use("old") as memory:
            memory.add_many(STORY)
    with open_memories(tmp_path / "m.zm") as memories:
        for _ in range(3):
            with pytest.raises(FingerprintMismatchError), memories.use("old"):
                pass
            assert memories.stats()["open"] <= 1
            with memories.use("new") as memory:
                memory.add("Ana is here.")
                assert memory.retrieve("Ana")
        assert memories.scopes() == ["new", "old"]


def test_an_error_inside_gives_the_memory_back():
    with open_memories(max_open=1) as memories:
        with pytest.raises(ZeroDivisionError), memories.use("a"):
            raise ZeroDivisionError
        with memories.use("b"):
            pass
        assert memories.stats()["open"] == 1


def test_many_who_open_one_scope_at_once_share_it():
    with open_memories() as memories:
        barrier, found = threading.Barrier(12), []

        def work(i):
            barrier.wait()
            with memories.use("a") as memory:
                memory.add(f"x {i}")
                found.append(memory)

        together(work, 12)
        assert len(set(map(id, found))) == 1
        assert memories.stats()["misses"] == 1


@pytest.mark.slow
def test_two_thousand_scopes_with_fifty_open(tmp_path):
    """Random access from eight threads: right results, and a bounded number of open ones."""
    n, most = 2000, []
    with open_memories(tmp_path / "m.zm", max_open=50) as memories:

        def work(i):
            rng = random.Random(i)
            for scope in range(i, n, 8):
                with memories.use(f"s{scope}") as memory:
                    memory.add(f"Ana keeps number {scope}.", id=f"id{scope}")
            for _ in range(120):
                scope = rng.randrange(i, n, 8) if rng.random() < 0.7 else i
                with memories.use(f"s{scope}") as memory:
                    found = memory.retrieve("Which number does Ana keep?")
                    assert [e.text for e in found] == [f"Ana keeps number {scope}."]
                    assert list(memory.get([f"id{scope}"])) == [f"id{scope}"]
                most.append(memories.stats()["open"])

        together(work, 8)
        assert max(most) <= 50 + 8
        assert memories.stats()["open"] <= 50
        assert len(memories.scopes()) == n
        assert memories.stats()["evictions"] > 1900


def test_opening_closing_and_forgetting_race(tmp_path):
    """Few places, many threads on few scopes: what each sees is a state that was."""
    with open_memories(tmp_path / "m.zm", max_open=1) as memories:
        locks = [threading.Lock() for _ in range(4)]
        held = [set() for _ in range(4)]

        def work(i):
            rng = random.Random(i)
            for n in range(30):
                scope = rng.randrange(4)
                with locks[scope], memories.use(f"s{scope}") as memory:
                    if rng.random() < 0.3 and held[scope]:
                        gone = held[scope].pop()
                        assert memory.forget([gone]) == 1
                    else:
                        name = f"{i}-{n}"
                        memory.add(f"Ana saw {name} in s{scope}.", id=name)
                        held[scope].add(name)
                    assert {e.id for e in memory.retrieve("Ana saw", k=500)} == held[scope]
                    assert memory.stats()["traces"] == len(held[scope])

        together(work, 6)
        for scope in range(4):
            with memories.use(f"s{scope}") as memory:
                assert {s.trace.id for s in memory.export()} == held[scope]


def test_closing_all_while_others_ask(tmp_path):
    """Each call is answered, or told that all is closed; what was acknowledged is there."""
    memories = open_memories(tmp_path / "m.zm", max_open=2)
    acknowledged = [set() for _ in range(4)]
    started = threading.Barrier(5)

    def work(i):
        if i == 4:
            started.wait()
            memories.close()
            return
        started.wait()
        try:
            for n in range(500):
                with memories.use(f"s{i}") as memory:
                    memory.add(f"number {n}", id=str(n))
                    acknowledged[i].add(str(n))
        except StoreError:
            return

    together(work, 5)
    with open_memories(tmp_path / "m.zm") as again:
        for i in range(4):
            with again.use(f"s{i}") as memory:
                assert {s.trace.id for s in memory.export()} >= acknowledged[i]


def test_a_taken_memory_stays_until_it_is_given_back():
    with open_memories(max_open=1) as memories:
        taken = memories.take("a")
        assert memories.taken_at_once("a") is taken
        assert memories.taken_at_once("b") is None
        with memories.use("b"):
            pass
        assert not memories.give_back(taken)
        memories.trim()
        assert memories.taken_at_once("a") is taken  # its second user is still there
        memories.give_back(taken)
        memories.give_back(taken)
        with memories.use("b") as memory:
            memory.add_many([Trace("x")])
        assert memories.taken_at_once("a") is None
