"""A device's path gives what the host's gives, moves things once, and keeps nothing for ever."""

import functools
import gc
import inspect
import random
import threading

import numpy as np
import pytest
from device_support import with_cupy, with_driver
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from support import DIM, NAMES, STORY, WORDS, HashEncoder, features, open_memory, rows_of

import zeromem
from zeromem import backend, packing
from zeromem import device as device_module
from zeromem.backend import Backend
from zeromem.config import Config
from zeromem.device import DeviceBackend, TorchBackend, on_cupy
from zeromem.errors import InvalidInputError
from zeromem.index import Index
from zeromem.index.chunks import CHUNK, Chunks
from zeromem.query.piece import Timer
from zeromem.query.plan import plan_of
from zeromem.query.profile import profile
from zeromem.query.ranked import Options
from zeromem.query.retrieve import Work, retrieve_many
from zeromem.types import Trace

HOST = Backend()
ON_DEVICE = ("bm25", "dense", "ppr", "propagate", "topk")
ON_HOST = ("evidence", "fuse", "map", "reach", "restart", "views", "walked")
WALK = (0.3, 0.6, 1e-6)


def on_numpy(**options):
    """A device's backend whose device is NumPy, and the arrays that went there."""
    moved = []

    def to_device(array):
        moved.append(array)
        return np.array(array)

    return DeviceBackend(to_device, np.asarray, **options), moved


def on_torch():
    problem = backend.driver_problem() or backend.torch_problem()
    if problem:
        pytest.skip(problem)
    return TorchBackend("cuda")


@pytest.fixture(
    params=[
        pytest.param(lambda: on_numpy()[0], id="NumPy"),
        pytest.param(functools.partial(TorchBackend, "cpu"), id="torch on the host"),
        pytest.param(on_cupy, id="CuPy", marks=pytest.mark.gpu),
        pytest.param(on_torch, id="torch", marks=pytest.mark.gpu),
    ]
)
def device(request):
    """Each backend of a device."""
    return request.param()


def log(n, seed=0):
    rng = random.Random(seed)
    names, words = [*NAMES, "Oslo", "Vienna"], [*WORDS, "chess", "house", "blue"]
    return STORY + [
        Trace(
            " ".join(rng.sample(names, 2) + rng.sample(words, 4)) + f" {i % 13}.",
            speaker=rng.choice(["Ana", "Ben", None]), session=f"s{rng.randint(0, 5)}",
        )
        for i in range(n)
    ]  # fmt: skip


@functools.cache
def known(n, seed=0):
    rows = rows_of(log(n, seed))
    return rows, features(rows)


def index_of(n, on=HOST, seed=0, config=None):
    return Index.empty(DIM, config or Config(), on).extend(*known(n, seed))


def queries(rng, b):
    rows = rng.normal(size=(b, DIM))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def resets(rng, graph, b):
    reset = rng.random((len(graph.inverse_degree), b)).astype(np.float32)
    return reset / reset.sum(axis=0)


def calls(index, rng):
    """Arguments of each method that runs on a device."""
    a = index.arrays
    query = np.array([0, 2, 2, 5]), np.array([1, 5, 0, 7, 3], np.int32), np.ones(5, np.float32)
    asked = queries(rng, 3)
    seeds = np.array([0, 2, 2, 3]), np.array([1, 4, 0], np.int32), np.array([1, 0.5, 1], "f4")
    masks = rng.random((3, len(a))) < 0.5
    return {
        "dense": (a.turn_vectors, asked),
        "bm25": (a.postings, plan_of(index).levels, *query, 1.5, 0.75),
        "propagate": (
            a.graph, a.sentence_vectors, a.sentence_inverse_norm, asked,
            HOST.dense(a.sentence_vectors, asked), *seeds, 2, 0.01, 3,
        ),
        "ppr": (a.graph, a.previous, resets(rng, a.graph, 3), *WALK),
        "topk": (rng.random((3, len(a)), "f4"), masks, 4),
    }  # fmt: skip


# --- the same results ----------------------------------------------------------------------------


def test_every_method_runs_where_it_should():
    methods = {
        name
        for name, _ in inspect.getmembers(Backend, inspect.isfunction)
        if not name.startswith("_")
    }
    assert methods == {*ON_DEVICE, *ON_HOST, "around_walk"}
    for name in ON_HOST:
        assert getattr(DeviceBackend, name) is getattr(Backend, name), name
    for name in (*ON_DEVICE, "around_walk"):
        own = getattr(DeviceBackend, name)
        assert own is not getattr(Backend, name), name
        assert inspect.signature(own).parameters.keys() == (
            inspect.signature(getattr(Backend, name)).parameters.keys()
        )


def check(on, index, rng):
    """Compare all methods with the host's."""
    for name, arguments in calls(index, rng).items():
        wanted, found = (getattr(one, name)(*arguments) for one in (HOST, on))
        if not isinstance(wanted, tuple):
            wanted, found = (wanted,), (found,)
        for one, other in zip(found, wanted, strict=True):
            assert isinstance(one, np.ndarray), name
            assert one.dtype == other.dtype, name
            assert other.any(), name
            assert_allclose(one, other, rtol=2e-5, atol=2e-6, err_msg=name)


def test_every_method_agrees(device, rng):
    check(device, index_of(150), rng)


@pytest.mark.parametrize("name", ON_DEVICE)
def test_agreement_fails_where_a_device_computes_something_else(monkeypatch, name):
    right, _ = on_numpy()
    wrong = DeviceBackend(
        lambda a: a * a.dtype.type(1.0005) if a.dtype.kind == "f" else np.array(a), np.asarray
    )
    monkeypatch.setattr(right, name, getattr(wrong, name))
    with pytest.raises(AssertionError, match=name):
        check(right, index_of(150), np.random.default_rng(1))


def test_other_parameters_weigh_terms_otherwise(device, rng):
    arguments = calls(index_of(80), rng)["bm25"][:-2]
    for k1, b in ((1.5, 0.75), (0.5, 0.75), (0.5, 0.1)):
        for found, wanted in zip(
            device.bm25(*arguments, k1, b), HOST.bm25(*arguments, k1, b), strict=True
        ):
            assert_allclose(found, wanted, rtol=2e-5, atol=2e-6)


def test_inner_products_may_be_left_out(device, rng):
    arguments = calls(index_of(80), rng)["propagate"]
    without = (*arguments[:4], np.zeros((1, 0), np.float32), *arguments[5:])
    assert_allclose(device.propagate(*without), HOST.propagate(*arguments), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("b", [0, 1, 2, 3, 31, 32, 33, 70])
def test_any_number_of_columns_is_walked(device, rng, b):
    a = index_of(40).arrays
    reset = resets(rng, a.graph, b)
    found = device.ppr(a.graph, a.previous, reset, *WALK)
    assert found.shape == reset.shape
    assert_allclose(found, HOST.ppr(a.graph, a.previous, reset, *WALK), rtol=1e-4, atol=1e-7)


def test_a_bad_reset_is_named(device, rng):
    a = index_of(20).arrays
    reset = resets(rng, a.graph, 2)
    reset[:, 1] *= 2
    with pytest.raises(InvalidInputError, match="reset must be non-negative .* in column 1"):
        device.ppr(a.graph, a.previous, reset, *WALK)


# --- what moves, and what is kept ----------------------------------------------------------------


def moved_by(moved, call):
    moved.clear()
    call()
    return len(moved)


def test_what_stays_is_moved_once(rng):
    on, moved = on_numpy()
    index = index_of(60)
    again = {"dense": 1, "bm25": 0, "propagate": 2, "ppr": 1, "topk": 2}
    for name, arguments in calls(index, rng).items():
        first = moved_by(moved, lambda: getattr(on, name)(*arguments))  # noqa: B023
        second = moved_by(moved, lambda: getattr(on, name)(*arguments))  # noqa: B023
        assert second == again[name], name
        assert first > second or name == "topk"


def test_of_vectors_only_the_open_part_moves_again(rng):
    on, moved = on_numpy()
    chunks = Chunks.of(rng.normal(size=(2 * CHUNK + 5, 4)).astype(np.float16))
    longer = chunks.extended(np.ones((3, 4), np.float16))
    query = np.ones((1, 4), np.float32)
    assert moved_by(moved, lambda: on.dense(chunks, query)) == 3 + 1
    assert moved_by(moved, lambda: on.dense(longer, query)) == 1 + 1
    assert moved[0].shape == (8, 4)
    assert_allclose(on.dense(longer, query)[0, -3:], 4)


def test_a_longer_index_is_not_taken_for_the_shorter_one(device, rng):
    rows, made = known(90)
    short = Index.empty(DIM, Config(), HOST).extend(rows[:60], made[:60])
    long = short.extend(rows[60:], made[60:])
    for index in (short, long, short):
        check(device, index, rng)


def test_nothing_is_kept_of_an_index_that_is_gone(rng):
    on, moved = on_numpy()
    index = index_of(60)
    for name, arguments in calls(index, rng).items():
        getattr(on, name)(*arguments)
    others = index_of(20, seed=1)
    ask(on, [index, others], rng)
    assert len(on._packs) == 2  # one alone, two together
    assert len(on._kept) > 10
    moved.clear()  # the test's own hold on them
    del index, arguments
    gc.collect()
    assert len(on._packs) == 0
    assert len(on._kept) == 0


def test_packs_that_were_not_used_for_longest_go_first(rng):
    indexes = [index_of(30, seed=seed) for seed in range(4)]
    on, moved = on_numpy(free=lambda: 0)
    for index in indexes:
        ask(on, [index], rng)
    assert len(on._packs) == 2  # the newest, and the one before, which was that when it was made
    assert moved_by(moved, lambda: ask(on, [indexes[3]], rng)) == 1
    assert moved_by(moved, lambda: ask(on, [indexes[0]], rng)) == 1 + 5


def test_memories_that_do_not_fit_the_device_take_turns(rng, monkeypatch):
    monkeypatch.setattr(device_module, "_RESERVE", 0)
    indexes = [index_of(100, seed=seed) for seed in range(3)]
    arguments = [calls(index, rng) for index in indexes]
    whole, _ = on_numpy()
    for name in ("dense", "bm25", "propagate"):
        getattr(whole, name)(*arguments[0][name])

    def held(on):
        return sum(device_module._n_bytes(value) for _, value in on._kept._entries())

    capacity = held(whole) * 3 // 2  # room for one memory, not for two
    on, _ = on_numpy(free=lambda: capacity - held(on))
    for index in [*arguments, *arguments]:
        for name in ("dense", "bm25", "propagate"):
            found, wanted = getattr(on, name)(*index[name]), getattr(HOST, name)(*index[name])
            for one, other in zip(np.atleast_3d(found), np.atleast_3d(wanted), strict=True):
                assert_allclose(one, other, rtol=2e-5, atol=2e-6)
            assert held(on) <= 1.3 * capacity  # what is made of arrays comes on top
    assert held(on) > capacity / 3


def test_kept_values_go_with_what_they_were_made_of():
    kept = packing.Kept()
    first, second = np.ones(2), np.ones(2)
    assert kept.get([first, second], lambda: "a", 1) == "a"
    assert kept.get([first, second], lambda: "b", 1) == "a"
    assert kept.get([first, second], lambda: "b", 2) == "b"
    assert kept.get([second, first], lambda: "c", 1) == "c"
    assert kept.get([first, second], lambda: "new", 1) == "a"  # the last one used, of three
    kept.shrink(2, lambda value: 1)
    assert kept.get([first, second], lambda: "new", 2) == "new"
    assert kept.get([first, second], lambda: "new", 1) == "a"
    assert len(kept) == 3
    del first
    gc.collect()
    assert len(kept) == 0
    kept.get([second], lambda: "whole")
    kept.shrink(0, lambda value: 1)
    assert kept.get([second], lambda: "other") == "whole"  # the newest stays


# --- walks together ------------------------------------------------------------------------------


class Asked:
    """What ``around_walk`` knows of an item: the arguments of its walk."""

    def __init__(self, *arguments):
        self.arguments = arguments


def walk_of(index, rng, b=2, options=WALK):
    a = index.arrays
    return Asked(a.graph, a.previous, resets(rng, a.graph, b), *options)


def ask(on, indexes, rng):
    return on.around_walk(
        [walk_of(index, rng) for index in indexes], lambda walk: walk, lambda walk, pi: pi
    )


def test_walks_together_are_walks_alone(device, rng):
    sizes = ((0, 3), (120, 2), (30, 9), (1, 1), (120, 4), (7, 40))
    indexes = {n: index_of(n) for n, _ in sizes}
    walks = [walk_of(indexes[n], rng, b) for n, b in sizes]  # one memory in two pieces
    walks.append(walk_of(indexes[30], rng, 3, (0.3, 0.8, 1e-6)))  # another configuration
    found = device.around_walk(
        list(enumerate(walks)), lambda item: item[1], lambda walk, pi: (walk, pi)
    )
    assert [walk for walk, _ in found] == walks
    for walk, pi in found:
        assert pi.flags.c_contiguous
        assert_allclose(pi, HOST.ppr(*walk.arguments), rtol=1e-4, atol=1e-7)


def test_walks_of_many_memories_are_one_walk(rng):
    on, moved = on_numpy(n_threads=8)
    indexes = [index_of(20, seed=seed) for seed in range(5)]
    nodes = sum(len(index.arrays.graph.inverse_degree) for index in indexes)
    ask(on, [*indexes, indexes[2]], rng)
    assert moved[-1].shape == (nodes, 4)  # columns: the two pieces of one memory
    assert len(on._packs) == 1
    assert moved_by(moved, lambda: ask(on, indexes[::-1], rng)) == 1  # in any order


def test_memory_bounds_what_walks_together(rng):
    indexes = [index_of(20, seed=seed) for seed in range(6)]
    walks = [walk_of(index, rng, 64) for index in indexes for _ in range(12)]
    nodes = max(len(index.arrays.graph.inverse_degree) for index in indexes)
    most = nodes * 64
    on, moved = on_numpy(n_threads=3, free=lambda: 2 * packing._CELL_BYTES * most)
    small = packing._SMALL
    try:
        packing._SMALL = 0
        live, highest = [], []

        def before(walk):
            live.append(walk)
            highest.append(len(live))
            return walk

        def after(walk, pi):
            live.remove(walk)
            return pi

        found = on.around_walk(walks, before, after)
    finally:
        packing._SMALL = small
    assert max(array.size for array in moved if array.ndim == 2) <= most
    assert max(highest) <= 3  # a group of threads fills the device
    for walk, pi in zip(walks, found, strict=True):
        assert_allclose(pi, HOST.ppr(*walk.arguments), rtol=1e-4, atol=1e-7)


class Sized:
    """A graph of a number of nodes."""

    def __init__(self, nodes):
        self.inverse_degree = np.zeros(nodes, np.float32)


@given(
    st.lists(st.integers(1, 50), min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 70)), max_size=12),
    st.integers(1, 4000),
    st.sampled_from([0, 500, 1 << 21]),
)
def test_groups_hold_each_walk_once_and_are_worth_it(sizes, asked, most, small):
    graphs = [Sized(nodes) for nodes in sizes]
    walks = [
        (graph, None, np.zeros((len(graph.inverse_degree), b), np.float32), *WALK)
        for graph, b in ((graphs[g % len(graphs)], b) for g, b in asked)
    ]
    before, packing._SMALL = packing._SMALL, small
    try:
        groups = list(packing._groups(packing._tasks(walks, WALK, most), most))
    finally:
        packing._SMALL = before
    places = [place for group in groups for task in group for place in task.places]
    assert sorted(places) == list(range(len(walks)))
    for group in groups:
        assert len({id(task.graph) for task in group}) == len(group)
        width = packing._padded(max(task.columns for task in group))
        cells = width * sum(task.nodes for task in group)
        if len(group) > 1:
            assert cells <= most
            assert cells <= small or all(2 * task.columns >= width for task in group)
        for task in group:
            assert len(task.places) == 1 or task.columns * task.nodes <= most
            assert [r is walks[p][2] for p, r, _ in task.walks()] == [True] * len(task.places)


def test_a_memory_of_few_questions_does_not_pay_for_many(monkeypatch):
    monkeypatch.setattr(packing, "_SMALL", 1200)
    walks = [(Sized(100), None, np.zeros((100, b), np.float32), *WALK) for b in (1, 8, 5, 4, 3, 2)]
    tasks = packing._tasks(walks, WALK, 1 << 20)
    groups = packing._groups(tasks, 1 << 20)
    assert [[task.columns for task in group] for group in groups] == [[8, 5, 4], [3, 2, 1]]
    monkeypatch.setattr(packing, "_SMALL", 0)
    groups = packing._groups(tasks, 1 << 20)
    assert [[task.columns for task in group] for group in groups] == [[8, 5, 4], [3, 2], [1]]


def test_pieces_of_a_memory_fill_up_its_tasks():
    graph = Sized(100)
    walks = [(graph, None, np.zeros((100, b), np.float32), *WALK) for b in (3, 8, 3, 12, 2)]
    tasks = packing._tasks(walks, WALK, 1000)
    assert [task.places for task in tasks] == [[3], [0, 2, 4], [1]]  # 12, then 8 columns each
    assert len(list(packing._groups(tasks, 1000))) == 3


def test_what_fails_before_or_after_a_walk_reaches_the_caller(device, rng):
    def fails(*_):
        raise ZeroDivisionError("here")

    walks = [walk_of(index_of(20), rng) for _ in range(3)]
    for before, after in ((fails, lambda walk, pi: pi), (lambda walk: walk, fails)):
        with pytest.raises(ZeroDivisionError, match="here"):
            device.around_walk(walks, before, after)


def test_threads_share_a_backend(device, rng):
    indexes = [index_of(n) for n in (20, 60)]
    walks = [walk_of(indexes[i % 2], rng, 1 + i) for i in range(8)]
    found, errors = {}, []

    def run(i):
        try:
            found[i] = device.ppr(*walks[i].arguments)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    for i, walk in enumerate(walks):
        assert_allclose(found[i], HOST.ppr(*walk.arguments), rtol=1e-4, atol=1e-7)


# --- the whole flow ------------------------------------------------------------------------------

QUESTIONS = [
    "Where does Ana live now?",
    "Who founded Acme, and what does Carla Reis love?",
    "What flows through Lisbon?",
    "When did Ben visit Porto Nova?",  # a name that the graph does not know
    "tuna",
    "of the and",
    "What do Ana and Ben share?",
    "Did Ana play the piano in Vienna?",
    "chess in Oslo",
]


def same_ranking(found, wanted):
    """The same ids in the same order, but where scores hardly differ; return how many moved."""
    assert found.route is wanted.route
    assert len(found.items) == len(wanted.items)
    moved = 0
    for one, other in zip(found.items, wanted.items, strict=True):
        assert abs(one.score - other.score) <= 1e-4 * max(1.0, abs(other.score))
        moved += one.row != other.row
    return moved


@pytest.mark.parametrize("config", [Config(), Config.paper()], ids=["default", "paper"])
def test_many_memories_are_answered_alike(device, config):
    sizes = (0, 150, 3, 40)
    encode = HashEncoder().encode
    found = {}
    for on in (HOST, device):
        works = [
            Work(index, [profile(q, known_names=index.arrays.names) for q in QUESTIONS], encode)
            for index in (index_of(n, on, seed=n, config=config) for n in sizes)
        ]
        found[on] = retrieve_many(works, Options(k=8), Timer())
    pairs = [
        pair for work in zip(found[device], found[HOST], strict=True)
        for pair in zip(*work, strict=True)
    ]  # fmt: skip
    assert len(pairs) == len(sizes) * len(QUESTIONS)
    moved = sum(same_ranking(*pair) for pair in pairs)
    total = sum(len(wanted.items) for _, wanted in pairs)
    assert total > 150
    assert moved <= 0.05 * total


def answers(found):
    return [[(e.id, e.kind) for e in one] for one in found]


@pytest.mark.parametrize("place", ["NumPy", pytest.param("CuPy", marks=pytest.mark.gpu)])
def test_memories_on_a_device(monkeypatch, place):
    """Adding, forgetting and asking many memories at once, as a user does it."""
    backend._resolved.cache_clear()
    if place == "NumPy":
        with_driver(monkeypatch)
        with_cupy(monkeypatch)
    try:
        pairs = [
            tuple(open_memory(device=where, scope=f"m{i}") for where in ("cuda", "cpu"))
            for i in range(3)
        ]
        for round_ in range(2):
            for i, pair in enumerate(pairs):
                for memory in pair:
                    memory.add_many(log(20 + 30 * i, seed=10 * round_ + i))
            asked = [(i, q) for q in QUESTIONS for i in range(3)]
            random.Random(2).shuffle(asked)
            on, off = (
                zeromem.retrieve_batch([(pairs[i][side], q) for i, q in asked], k=6)
                for side in (0, 1)
            )
            assert answers(on) == answers(off)
            alone = [pairs[i][0].retrieve(q, k=6) for i, q in asked]
            assert answers(alone) == answers(on)
        for memory in pairs[1]:
            memory.forget(session="s2")
        on, off = (memory.retrieve_batch(QUESTIONS, k=6) for memory in pairs[1])
        assert answers(on) == answers(off)
        device = backend.resolve("cuda")
        assert isinstance(device, DeviceBackend)
        assert len(device._packs) > 0
        for pair in pairs:
            for memory in pair:
                memory.close()
        del pairs, pair, memory, on, off, alone
        gc.collect()
        assert len(device._packs) == 0
        assert len(device._kept) == 0
    finally:
        backend._resolved.cache_clear()
