"""Processes that die or write at the same time, and threads that read meanwhile."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from support import STORY, difference, ids, open_memory, shown

import zeromem
from zeromem.config import Config, IngestConfig
from zeromem.types import Trace

HERE = Path(__file__).parent
ENV = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join([str(HERE), str(Path(zeromem.__file__).parents[1])]),
}
BATCH = 8
CONFIG = Config(ingest=IngestConfig(batch_traces=BATCH))

# Imports a log of n traces in batches, and says after each add_many what is acknowledged.
WRITER = """
import sys
from support import open_memory
from test_memory_crash import CONFIG, BATCH, trace
path, name, n = sys.argv[1], sys.argv[2], int(sys.argv[3])
print("ready", flush=True)
with open_memory(path, config=CONFIG) as memory:
    for start in range(0, n, BATCH):
        memory.add_many([trace(name, i) for i in range(start, start + BATCH)])
        print(start + BATCH, flush=True)
        if start % (4 * BATCH) == 0:
            memory.retrieve(f"{name} number {start}")
"""


def trace(name: str, i: int) -> Trace:
    return Trace(
        f"{name} number {i} saw Ana near Box{i % 7}.", id=f"{name}-{i}", session=f"s{i % 5}"
    )


def start(path, name: str, n: int) -> subprocess.Popen:
    command = [sys.executable, "-c", WRITER, str(path), name, str(n)]
    process = subprocess.Popen(command, env=ENV, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    return process


def assert_same_as_whole(memory, log):
    """Nothing lost, nothing twice, and the index of a memory that nothing happened to."""
    assert memory.stats()["pending"] == 0
    with open_memory() as whole:
        whole.add_many(log)
        assert difference(
            memory._indexer.current().index.arrays, whole._indexer.current().index.arrays
        ) is None  # fmt: skip


def test_kill_nine_in_a_loop_loses_nothing_and_the_import_resumes(tmp_path):
    path, n = tmp_path / "m.zm", 240
    rng = random.Random(7)
    acknowledged = 0
    for _ in range(3):
        process = start(path, "w", 100_000)
        for _ in range(rng.randint(0, 6)):
            acknowledged = max(acknowledged, int(process.stdout.readline()))
        time.sleep(rng.random() * 0.02)
        process.kill()
        rest = process.stdout.read().splitlines(keepends=True)
        process.wait()
        acknowledged = max([acknowledged, *(int(x) for x in rest if x.endswith("\n"))])
        with open_memory(path, config=CONFIG) as memory:
            held = [s.trace for s in memory.export()]
            assert held == [trace("w", i) for i in range(len(held))]
            assert len(held) >= acknowledged
            assert len(held) % BATCH == 0  # a batch is stored whole or not at all
            if held:
                last = len(held) - 1
                found = memory.retrieve(f"w number {last}", k=len(held))
                assert len(found) == len(held)
                assert memory.stats()["pending"] == 0
        n = max(n, len(held) + BATCH)
    with open_memory(path, config=CONFIG) as memory:
        added = memory.add_many(trace("w", i) for i in range(n))
        assert [a.created for a in added] == [False] * len(held) + [True] * (n - len(held))
        assert_same_as_whole(memory, [trace("w", i) for i in range(n)])
    assert not [f for f in tmp_path.iterdir() if f.suffix not in (".zm", ".zmi")]


def test_processes_write_at_once_and_another_reads(tmp_path):
    """Two of them run the same import: it is stored once."""
    path, n = tmp_path / "m.zm", 12 * BATCH
    with open_memory(path, config=CONFIG) as memory:
        writers = [start(path, name, n) for name in "aab"]
        seen = 0
        while any(w.poll() is None for w in writers):
            memory.add(f"own {seen}")
            found = memory.retrieve("saw Ana", k=1000)
            assert len(found) >= seen  # what was seen once stays
            seen = len(found)
            assert len({e.id for e in found}) == len(found)
        outputs = [w.communicate(timeout=60)[0].split() for w in writers]
        assert [w.returncode for w in writers] == [0, 0, 0]
        assert [int(o[-1]) for o in outputs] == [n, n, n]
        held = [s.trace for s in memory.export()]
        for name in "ab":
            assert [t for t in held if t.id.startswith(f"{name}-")] == [
                trace(name, i) for i in range(n)
            ]
        assert len(memory.retrieve("Ana", k=1000)) == len(held)
        assert_same_as_whole(memory, held)


def test_readers_in_threads_while_one_writes():
    errors, done = [], threading.Event()
    acknowledged = [0]
    with open_memory(config=CONFIG) as memory:
        memory.add_many([trace("w", i) for i in range(BATCH)])
        acknowledged[0] = BATCH

        def read(seed):
            rng = random.Random(seed)
            try:
                while not done.is_set():
                    least = acknowledged[0]
                    i = rng.randrange(least)
                    found = memory.retrieve(f"w number {i}", k=1000)
                    if len(found) < least or len({e.id for e in found}) != len(found):
                        errors.append((least, len(found)))
                    prefix = memory.retrieve("Ana", k=1000, as_of=least)
                    if len(prefix) != least:
                        errors.append(("as_of", least, len(prefix)))
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=read, args=(s,)) for s in range(3)]
        for t in threads:
            t.start()
        for start_ in range(BATCH, 20 * BATCH, BATCH):
            memory.add_many([trace("w", i) for i in range(start_, start_ + BATCH)])
            acknowledged[0] = start_ + BATCH
        done.set()
        for t in threads:
            t.join()
        assert errors == []
        assert_same_as_whole(memory, [trace("w", i) for i in range(20 * BATCH)])


def test_writers_in_threads_lose_nothing():
    errors = []
    with open_memory(config=CONFIG) as memory:

        def write(name):
            try:
                for i in range(0, 5 * BATCH, BATCH):
                    memory.add_many([trace(name, j) for j in range(i, i + BATCH)])
                    assert f"{name}-{i}" in ids(memory.retrieve(f"{name} number {i}", k=999))
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert errors == []
        held = [s.trace for s in memory.export()]
        assert len(held) == 4 * 5 * BATCH
        assert_same_as_whole(memory, held)


def test_a_memory_opened_by_a_thread_each(tmp_path, caplog):
    with open_memory(tmp_path / "m.zm") as memory:
        memory.add_many(STORY)
        wanted = shown(memory.retrieve("Who founded Acme?"))[3]
    found = []

    def ask():
        with open_memory(tmp_path / "m.zm") as own:
            own.add("tuna again")
            found.append(shown(own.retrieve("Who founded Acme?", as_of=len(STORY)))[3])

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == [wanted] * 4
    assert not caplog.records  # nor do their snapshots get into each other's way
    assert len(list(tmp_path.glob("*.zmi"))) == 1


def test_closing_while_others_ask_is_an_error_of_ours():
    memory = open_memory()
    memory.add_many(STORY)
    problems = []

    def ask():
        try:
            while True:
                memory.retrieve("tuna")
        except zeromem.errors.StoreError:
            return
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for t in threads:
        t.start()
    time.sleep(0.02)
    memory.close()
    for t in threads:
        t.join(20)
        assert not t.is_alive()
    assert problems == []


def test_a_full_disk_is_an_error_and_loses_nothing_acknowledged(tmp_path):
    """A limit on file sizes stands for the disk."""
    code = """
import resource, sys
from support import open_memory
from test_memory_crash import trace
import zeromem
unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
with open_memory(sys.argv[1]) as memory:
    memory.add_many([trace("w", i) for i in range(8)])
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, unlimited[1]))
    acknowledged = 8
    try:
        while acknowledged < 10_000:
            memory.add_many([trace("w", i) for i in range(acknowledged, acknowledged + 8)])
            acknowledged += 8
    except zeromem.errors.StoreError as error:
        assert sys.argv[1] in str(error), error
    assert 8 < acknowledged < 10_000, acknowledged
    assert len(memory.retrieve("saw Ana", k=10_000)) >= acknowledged
    resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    held = [s.trace for s in memory.export()]
    assert held == [trace("w", i) for i in range(len(held))]
    assert len(held) in (acknowledged, acknowledged + 8), (len(held), acknowledged)
    memory.add_many(trace("w", i) for i in range(acknowledged + 16))
    print(acknowledged + 16)
"""
    command = [sys.executable, "-c", code, str(tmp_path / "m.zm")]
    done = subprocess.run(command, env=ENV, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    with open_memory(tmp_path / "m.zm", config=CONFIG) as memory:
        assert_same_as_whole(memory, [trace("w", i) for i in range(int(done.stdout))])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_may_go_on_asking(tmp_path):
    code = """
import os, sys
from support import STORY, open_memory, shown
memory = open_memory(sys.argv[1])
memory.add_many(STORY)
wanted = shown(memory.retrieve("Who founded Acme?"))
child = os.fork()
if not child:
    ok = shown(memory.retrieve("Who founded Acme?")) == wanted
    memory.add("from the child")
    os._exit(0 if ok else 1)
assert os.waitpid(child, 0)[1] == 0
assert len(list(memory.export())) == len(STORY) + 1
memory.close()
"""
    command = [sys.executable, "-W", "ignore", "-c", code, str(tmp_path / "m.zm")]
    done = subprocess.run(command, env=ENV, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
