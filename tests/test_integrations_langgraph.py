"""The store beside LangGraph's own: the same results, on disk, and found by meaning."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import threading
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import Any, TypedDict

import pytest
from support import HashEncoder

import zeromem
from zeromem.errors import InvalidInputError, StoreError

pytest.importorskip("langgraph", reason="needs the extra langgraph")

from langgraph.graph import END, START, StateGraph
from langgraph.store.base import (
    BaseStore,
    GetOp,
    InvalidNamespaceError,
    Item,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchItem,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore

from zeromem.integrations.langgraph import ZeroMemStore

ANA = ("users", "ana")


def open_memories(path=None, **options):
    return zeromem.Memories(path, encoder=HashEncoder(), annotator="rules", device="cpu", **options)


@pytest.fixture
def memories(tmp_path):
    with open_memories(tmp_path / "store.zm") as memories:
        yield memories


@pytest.fixture
def store(memories):
    return ZeroMemStore(memories)


# ---- beside the library's own store

LABELS = ["users", "ana", "a/b", "ß", "*", " ", "a:b", "日本"]
KEYS = ["k", "K", "0:k", "1:k", "", "a/../b", "\u2028é", "langgraph"]
TAGS = ["red", "blue", None, 1, True, [1, {"a": 2}], {"deep": {"er": "x"}}]


def plain(item):
    return item and (item.namespace, item.key, item.value)


class Beside:
    """Both stores, given the same operations; what the library's store says is expected."""

    def __init__(self, store, seed):
        self.store, self.oracle, self.random = store, InMemoryStore(), random.Random(seed)

    def namespace(self, least=1):
        return tuple(self.random.choices(LABELS, k=self.random.randint(least, 3)))

    def value(self):
        value = {"n": self.random.randint(0, 9) / 2, "text": f"fact {self.random.random()}"}
        if self.random.random() < 0.7:
            value["tag"] = self.random.choice(TAGS)
        return value

    def filter(self):
        tag, number = self.random.choice(TAGS), self.random.randint(0, 9) / 2
        order = self.random.choice(["$gt", "$gte", "$lt", "$lte", "$eq", "$ne"])
        return self.random.choice(
            [None, {}, {"tag": tag}, {"tag": {"$ne": tag}}, {"tag": {"$eq": tag}},
             {"n": {order: number}}, {"n": {"$gte": 1, "$lt": number}, "tag": tag},
             {"tag": {"deep": {"er": "x"}}}, {"tag": [1, {"a": {"$gt": 1}}]}]
        )  # fmt: skip

    def write(self):
        namespace, key = self.namespace(), self.random.choice(KEYS)
        value = None if self.random.random() < 0.25 else self.value()
        return PutOp(namespace, key, value)

    def read(self):
        conditions = tuple(
            MatchCondition(self.random.choice(["prefix", "suffix"]), self.namespace(0))
            for _ in range(self.random.randint(0, 2))
        )
        return self.random.choice(
            [
                GetOp(self.namespace(), self.random.choice(KEYS)),
                SearchOp(self.namespace(0), self.filter(), self.random.choice([0, 1, 3, 50]),
                         self.random.choice([0, 0, 1, 4])),
                ListNamespacesOp(conditions, self.random.choice([None, None, 1, 2]),
                                 self.random.choice([0, 2, 100]), self.random.choice([0, 0, 2])),
            ]
        )  # fmt: skip

    def expected(self, op):
        """Ask the library's store, which lists namespaces that have lost their items, or never
        had any, and orders them by first touch: here none is empty, and the order is their names'.
        """
        for namespace in [n for n, items in self.oracle._data.items() if not items]:
            del self.oracle._data[namespace]
        if isinstance(op, SearchOp):
            (every,) = self.oracle.batch([op._replace(limit=10_000, offset=0)])
            every.sort(key=lambda item: item.namespace)
            return [plain(item) for item in every[op.offset : op.offset + op.limit]]
        (found,) = self.oracle.batch([op])
        return plain(found) if isinstance(op, GetOp) else found

    def step(self):
        writes = [self.write() for _ in range(self.random.choice([0, 1, 1, 1, 6]))]
        reads = [self.read() for _ in range(3)]
        ops = self.random.sample([*writes, *reads], len(writes) + 3)
        expected = [None if isinstance(op, PutOp) else self.expected(op) for op in ops]
        for op, result, wanted in zip(ops, self.store.batch(ops), expected, strict=True):
            self.same(op, result, wanted)
        self.oracle.batch([op for op in ops if isinstance(op, PutOp)])

    def same(self, op, result, wanted):
        if isinstance(op, SearchOp):
            assert [plain(item) for item in result] == wanted, op
            assert all(type(item) is SearchItem and item.score is None for item in result)
        else:
            assert (plain(result) if isinstance(op, GetOp) else result) == wanted, op
            assert not isinstance(result, SearchItem)


@pytest.mark.parametrize("seed", range(4))
def test_random_operations_have_the_librarys_results(tmp_path, seed):
    path = tmp_path / "store.zm"
    with open_memories(path, max_open=3) as memories:
        both = Beside(ZeroMemStore(memories), seed)
        for _ in range(60):
            both.step()
    with open_memories(path) as memories:  # it is all on disk
        both.store = ZeroMemStore(memories)
        for _ in range(20):
            both.step()
        every = SearchOp((), None, 10_000)
        both.same(every, both.store.batch([every])[0], both.expected(every))


def test_times_are_kept_over_updates(store):
    start = datetime.now(UTC)
    store.put(ANA, "pet", {"name": "Miso"})
    first = store.get(ANA, "pet")
    store.put(ANA, "pet", {"name": "Tofu"})
    second = store.get(ANA, "pet")
    assert type(second) is Item
    assert start <= first.created_at == first.updated_at < second.updated_at <= datetime.now(UTC)
    assert second.created_at == first.created_at
    assert second.value == {"name": "Tofu"}
    store.delete(ANA, "pet")
    assert store.get(ANA, "pet") is None
    assert store.list_namespaces() == []
    store.put(ANA, "pet", {})
    assert store.get(ANA, "pet").created_at > second.updated_at


def test_values_are_of_the_store_alone(store):
    value = {"list": [1, {"a": None}], "text": "\x00 \udc80 \u2028", "big": 2**70, "float": 0.1}
    store.put(ANA, "k", value)
    store.get(ANA, "k").value["list"].append("theirs")
    value["list"].append("mine")
    assert store.get(ANA, "k").value == {**value, "list": [1, {"a": None}]}


def test_namespaces_meet_nobody_elses_scope(memories):
    with memories.use("users.ana") as theirs, memories.use("langgraph:users.ana") as inside:
        theirs.add("Tofu is a dog", id="0:pet")
        inside.add("Nori is a bird")
    store = ZeroMemStore(memories)
    assert store.get(ANA, "pet") is None
    assert store.search((), query="Who is a dog or a bird?") == []
    assert store.search(()) == []
    store.put(ANA, "pet", {"name": "Miso"})
    store.put(("users/ana",), "pet", {"name": "Udon"})
    assert store.get(ANA, "pet").value == {"name": "Miso"}
    assert store.list_namespaces() == [ANA, ("users/ana",)]
    with memories.use("users.ana") as theirs:
        assert [s.trace.text for s in theirs.traces().items] == ["Tofu is a dog"]


# ---- found by meaning

FACTS = {
    (("users", "ana"), "food"): {"memory": "Ana eats tuna and rice", "kind": "food", "n": 1},
    (("users", "ana"), "pet"): {"memory": "Miso is the kitten of Ana", "kind": "pet", "n": 2},
    (("users", "ben"), "work"): {"memory": "Ben paints boats in Porto", "kind": "work", "n": 3},
    (("users", "ben"), "pet"): {"memory": "Tofu is the dog of Ben", "kind": "pet", "n": 4},
    (("docs",), "porto"): {"memory": "Porto lies on the Douro", "kind": "place", "n": 5},
}


@pytest.fixture
def filled(store):
    store.batch([PutOp(n, key, value) for (n, key), value in FACTS.items()])
    return store


def keys(items):
    return [(item.namespace, item.key) for item in items]


def test_a_query_ranks_all_namespaces_under_the_prefix(filled):
    found = filled.search((), query="Who paints boats?")
    assert keys(found)[0] == (("users", "ben"), "work")
    assert [i.score for i in found] == sorted((i.score for i in found), reverse=True)
    assert found[0].score > found[1].score
    assert found[0].value == FACTS[("users", "ben"), "work"]
    for prefix in [("users",), ("users", "ana"), ("docs",)]:
        inside = filled.search(prefix, query="What is in Porto?")
        assert inside
        assert all(i.namespace[: len(prefix)] == prefix for i in inside)
    assert filled.search(("nobody",), query="Who?") == []


def test_pages_of_a_ranking_are_the_ranking(store):
    random_ = random.Random(5)
    words = ["Ana", "Ben", "Porto", "kitten", "boat", "paints", "eats", "tuna", "river", "tea"]
    for name in ("ana", "ben", "eve"):
        texts = [" ".join(random_.choices(words, k=6)) for _ in range(40)]
        store.batch([PutOp(("users", name), str(i), {"t": t}) for i, t in enumerate(texts)])
    ask = {"query": "Who paints a boat in Porto?"}
    whole = keys(store.search((), limit=120, **ask))
    assert len(whole) > 60
    for size in (1, 7, 25):
        pages = [store.search((), limit=size, offset=o, **ask) for o in range(0, 50, size)]
        assert [key for page in pages for key in keys(page)] == whole[: len(pages) * size]
    assert store.search((), limit=0, **ask) == []


def test_a_filter_narrows_a_ranking(filled):
    found = filled.search((), query="Who paints boats?", filter={"kind": "pet"}, limit=2)
    assert {i.key for i in found} == {"pet"}
    assert len(found) == 2
    found = filled.search((), query="Who?", filter={"n": {"$gt": 2, "$lte": 4}})
    assert {i.value["n"] for i in found} <= {3, 4}
    assert filled.search((), query="pets", filter={"kind": "car"}) == []


def test_a_filter_looks_past_the_first_hits(store):
    store.batch([PutOp(ANA, f"k{i}", {"text": f"boat {i}", "n": i}) for i in range(60)])
    found = store.search(ANA, query="boat", filter={"n": 47}, limit=1)
    assert [i.key for i in found] == ["k47"]


def test_a_long_value_is_one_item(store):
    store.put(ANA, "long", {"text": " ".join(f"Boat {i} is red. It floats." for i in range(300))})
    store.put(ANA, "short", {"text": "A boat"})
    assert sorted(i.key for i in store.search(ANA, query="boats", limit=2)) == ["long", "short"]


def test_what_is_replaced_or_deleted_is_not_found(filled):
    filled.put(("users", "ben"), "work", {"memory": "Ben drives trains"})
    found = filled.search(("users", "ben"), query="Who paints boats?")
    assert not any("boats" in i.value["memory"] for i in found)
    assert (
        "trains" in filled.search(("users", "ben"), query="Who drives trains?")[0].value["memory"]
    )
    filled.delete(("users", "ben"), "work")
    assert keys(filled.search(("users", "ben"), query="trains")) == [(("users", "ben"), "pet")]


def test_the_index_says_what_is_found(memories):
    store = ZeroMemStore(memories, index={"fields": ["memory", "tags[*].name"]})
    value = {"memory": "Ana sails", "secret": "umbrella", "tags": [{"name": "harbour"}, {"x": 1}]}
    store.put(ANA, "all", value)
    store.put(ANA, "own", value, index=["secret"])
    store.put(ANA, "none", value, index=False)
    store.put(ANA, "empty", {"secret": "umbrella"})
    with memories.use("langgraph:users.ana") as memory:
        texts = {s.trace.id: s.trace.text for s in memory.traces().items}
    assert texts == {"0:all": "Ana sails\nharbour", "0:own": "umbrella",
                     "0:none": "[not indexed]", "0:empty": "[not indexed]"}  # fmt: skip
    assert {i.key for i in store.search(ANA, query="umbrella indexed")} == {"all", "own"}
    assert store.search(ANA, query="umbrella")[0].key == "own"
    assert {i.key for i in store.search(ANA)} == {"all", "own", "none", "empty"}
    assert store.get(ANA, "none").value == value
    store.put(ANA, "none", value)  # is found from now on
    assert "none" in {i.key for i in store.search(ANA, query="umbrella")}

    plain = ZeroMemStore(memories, index=False)
    plain.put(("plain",), "k", value)
    assert plain.search(("plain",), query="Ana sails") == []
    assert plain.search(("plain",), query="  ")[0].key == "k"
    plain.put(("plain",), "k", value, index=["memory"])
    assert plain.search(("plain",), query="Ana sails")[0].key == "k"


# ---- refusals


@pytest.mark.parametrize(
    ("op", "message"),
    [
        (PutOp(ANA, "k", {"a": {1}}), "JSON"),
        (PutOp(ANA, "k", {"a": {1: 2}}), "JSON keys are strings"),
        (PutOp(ANA, "k", {"a": float("nan")}), "finite"),
        (PutOp(ANA, "k", ["a"]), "value of 'k' must be a mapping"),
        (PutOp(ANA, "k", {}, index="a"), "index must be a list"),
        (PutOp(ANA, "k", {}, index=True), "index must be a list"),
        (PutOp(ANA, 7, {}), "key must be a str, got 7"),
        (PutOp("ana", "k", {}), "namespace must be a tuple"),
        (SearchOp("ana"), "namespace must be a tuple"),
        (SearchOp(ANA, limit=-1), "limit must be"),
        (SearchOp(ANA, offset=1.5), "offset must be"),
        (ListNamespacesOp(limit=-1), "limit must be"),
        (SearchOp(ANA, {"a": {"$in": [1]}}), r"\$in"),
        (SearchOp(ANA, {"a": {"$gt": "x"}}), r"\$gt compares numbers"),
        (("get", ANA, "k"), "ops must be"),
    ],
)
def test_what_cannot_be_done_is_refused_and_nothing_is_written(store, op, message):
    store.put(ANA, "there", {"a": 1})
    with pytest.raises(InvalidInputError, match=message):
        store.batch([PutOp(("a",), "other", {"fine": 1}), op, PutOp(ANA, "other", {"fine": 1})])
    assert [i.key for i in store.search(())] == ["there"]


def test_a_value_that_is_nested_too_deeply_is_refused_before_anything_is_written(memories):
    def nested(levels):
        return reduce(lambda inner, _: {"a": inner}, range(levels), "x")

    store = ZeroMemStore(memories)
    store.put(("deep",), "k", nested(98))
    assert store.get(("deep",), "k").value == nested(98)
    ops = [PutOp(("first",), "k", {"a": 1}), PutOp(("second",), "k", nested(99))]
    with pytest.raises(
        InvalidInputError, match=r"value of 'k' cannot be stored: value\['a'\]\['a'"
    ):
        store.batch(ops)
    assert store.list_namespaces() == [("deep",)]


def test_labels_keep_the_librarys_rules(store):
    for namespace in [(), ("",), ("a", ""), ("a.b",), ("a", 1), ("langgraph",), ("a\x00",)]:
        with pytest.raises(InvalidNamespaceError):
            store.put(namespace, "k", {"a": 1})
    for namespace in [("a.b",), ("a", "")]:
        for op in [PutOp(namespace, "k", {}), GetOp(namespace, "k"), SearchOp(namespace)]:
            with pytest.raises(InvalidNamespaceError):
                store.batch([op])
    assert store.list_namespaces() == []


def test_nothing_expires(store):
    assert not store.supports_ttl
    with pytest.raises(NotImplementedError, match="TTL"):
        store.put(ANA, "k", {"a": 1}, ttl=5)
    with pytest.raises(NotImplementedError, match="ttl must be None, got 5"):
        store.batch([PutOp(ANA, "k", {"a": 1}, ttl=5)])


@pytest.mark.parametrize(
    "index", [{"dims": 8, "embed": len}, {"fields": "text"}, {"fields": [1]}, ["text"], True]
)
def test_a_store_is_made_of_memories_and_fields(memories, index):
    with pytest.raises(InvalidInputError, match="index"):
        ZeroMemStore(memories, index=index)
    with pytest.raises(InvalidInputError, match=r"memories must be a zeromem\.Memories"):
        ZeroMemStore("store.zm")


def test_an_order_leaves_out_what_is_no_number(store):
    for key, n in {"none": None, "word": "x", "digits": "4", "list": [5], "five": 5}.items():
        store.put(ANA, key, {"n": n})
    store.put(ANA, "missing", {})
    assert [i.key for i in store.search(ANA, filter={"n": {"$gt": 3}})] == ["digits", "five"]


def test_a_closed_file_and_a_read_only_one_say_so(tmp_path):
    memories = open_memories(tmp_path / "store.zm")
    ZeroMemStore(memories).put(ANA, "k", {"a": 1})
    memories.close()
    with pytest.raises(StoreError, match="closed"):
        ZeroMemStore(memories).get(ANA, "k")
    with open_memories(tmp_path / "store.zm", read_only=True) as memories:
        assert ZeroMemStore(memories).get(ANA, "k").value == {"a": 1}
        with pytest.raises(StoreError):
            ZeroMemStore(memories).put(ANA, "k", {"a": 2})


# ---- crashes and company

KILLED = """
import os, sys
sys.path.insert(0, {tests!r})
from test_integrations_langgraph import ANA, PutOp, ZeroMemStore, open_memories
import zeromem
store = ZeroMemStore(open_memories({path!r}))
store.put(ANA, "pet", {{"memory": "Miso is a kitten"}})
store.put(ANA, "job", {{"memory": "Ana paints boats"}})
zeromem.Memory.forget = lambda *given, **named: os._exit(9)
store.batch([PutOp(ANA, "pet", {{"memory": "Tofu is a dog"}}), PutOp(ANA, "job", None)])
"""


def test_a_crash_between_the_new_and_the_old_loses_neither(tmp_path):
    path = tmp_path / "store.zm"
    code = KILLED.format(tests=str(Path(__file__).parent), path=str(path))
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 9
    with open_memories(path) as memories:
        with memories.use("langgraph:users.ana") as memory:
            assert len(memory.traces().items) == 3
        store = ZeroMemStore(memories)
        assert store.get(ANA, "pet").value == {"memory": "Tofu is a dog"}
        assert [i.key for i in store.search(ANA)] == ["pet", "job"]
        found = store.search(ANA, query="Who is a kitten?")
        assert all("kitten" not in i.value["memory"] for i in found)
        store.put(ANA, "pet", {"memory": "Udon is a bird"})
        with memories.use("langgraph:users.ana") as memory:
            assert len(memory.traces().items) == 2
        assert store.get(ANA, "pet").value == {"memory": "Udon is a bird"}


def test_a_deletion_takes_what_a_crash_left(tmp_path):
    path = tmp_path / "store.zm"
    code = KILLED.format(tests=str(Path(__file__).parent), path=str(path))
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 9
    with open_memories(path) as memories:
        store = ZeroMemStore(memories)
        store.delete(ANA, "pet")
        assert store.get(ANA, "pet") is None
        assert [i.key for i in store.search(ANA)] == ["job"]


def test_who_forgets_late_forgets_no_later_version(memories, monkeypatch):
    store, forget = ZeroMemStore(memories), zeromem.Memory.forget
    store.put(ANA, "k", {"n": 1})

    def late(memory, ids, **conditions):
        monkeypatch.undo()
        store.put(ANA, "k", {"n": 3})  # takes the id that is about to be forgotten
        return forget(memory, ids, **conditions)

    monkeypatch.setattr(zeromem.Memory, "forget", late)
    store.put(ANA, "k", {"n": 2})
    assert store.get(ANA, "k").value == {"n": 3}


def test_a_key_that_many_write_is_always_there(memories):
    store, seen, errors = ZeroMemStore(memories), [], []
    store.put(ANA, "k", {"writer": -1, "n": 0})
    done = threading.Event()

    def write(writer):
        try:
            own = ZeroMemStore(memories)
            for n in range(15):
                own.put(ANA, "k", {"writer": writer, "n": n})
        except Exception as error:
            errors.append(error)

    def read():
        try:
            while not done.is_set():
                seen.append(store.get(ANA, "k"))
                seen.extend(store.search(ANA) or [None])
        except Exception as error:
            errors.append(error)

    writers = [threading.Thread(target=write, args=(i,)) for i in range(4)]
    reader = threading.Thread(target=read)
    for thread in [reader, *writers]:
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    reader.join()
    assert not errors
    assert None not in seen
    assert store.get(ANA, "k").value["n"] == 14
    assert len(store.search(ANA)) == 1
    with memories.use("langgraph:users.ana") as memory:
        assert len(memory.traces().items) == 1


def test_asynchronous_calls_do_the_same(filled):
    async def tour():
        await filled.aput(ANA, "tea", {"memory": "Ana drinks green tea"})
        got, listed, found, names = await asyncio.gather(
            filled.aget(ANA, "tea"),
            filled.asearch(ANA, filter={"kind": "pet"}),
            filled.asearch(("users",), query="Who drinks tea?", limit=1),
            filled.alist_namespaces(prefix=("users",)),
        )
        await filled.adelete(ANA, "tea")
        return got, listed, found, names, await filled.aget(ANA, "tea")

    got, listed, found, names, gone = asyncio.run(tour())
    assert got.value == {"memory": "Ana drinks green tea"}
    assert [i.key for i in listed] == ["pet"]
    assert [i.key for i in found] == ["tea"]
    assert names == [("users", "ana"), ("users", "ben")]
    assert gone is None


class State(TypedDict, total=False):
    said: str
    known: list[Any]


def test_a_compiled_graph_keeps_and_finds_memories(memories):
    def remember(state: State, *, store: BaseStore) -> State:
        store.put(ANA, str(len(store.search(ANA))), {"memory": state["said"]})
        return {}

    async def recall(state: State, *, store: BaseStore) -> State:
        found = await store.asearch(("users",), query=state["said"], limit=2)
        return {"known": [i.value["memory"] for i in found]}

    graph = StateGraph(State)
    graph.add_node("remember", remember)
    graph.add_node("recall", recall)
    graph.add_edge(START, "remember")
    graph.add_edge("remember", "recall")
    graph.add_edge("recall", END)
    compiled = graph.compile(store=ZeroMemStore(memories))
    asyncio.run(compiled.ainvoke({"said": "Miso is my kitten"}))
    last = asyncio.run(compiled.ainvoke({"said": "Who is my kitten?"}))
    assert last["known"] == ["Who is my kitten?", "Miso is my kitten"]
