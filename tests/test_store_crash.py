"""Processes that die, write at the same time, or fork; and disks that fill up."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

import zeromem.store
from zeromem.errors import StoreError
from zeromem.store import Store
from zeromem.types import Trace

ENV = {**os.environ, "PYTHONPATH": str(Path(zeromem.store.__file__).parents[2])}

WRITER = """
import sys
from zeromem.store import Store
from zeromem.types import Trace
path, name, n, size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
with Store.open(path) as store:
    log = store.scope("x")
    start = log.version().n_traces if name == "resume" else 0
    for b in range(start // size, n):
        batch = [Trace(f"{name} {b} {i} " + "." * 300) for i in range(size)]
        added = log.append(batch, keys=[b"k"] * size)
        log.put_features({b"k": b"v"}, "f")
        print(b, added[-1].lsn, flush=True)
"""


def writer(path, name: str, n: int, size: int) -> subprocess.Popen:
    command = [sys.executable, "-c", WRITER, str(path), name, str(n), str(size)]
    return subprocess.Popen(command, env=ENV, stdout=subprocess.PIPE, text=True)


def add(log, *texts: str):
    return log.append([Trace(t) for t in texts], keys=[b"k"] * len(texts))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "c.zm"


def test_kill_nine_loses_nothing_acknowledged_and_leaves_no_half_batch(path):
    """Kill a bulk add at random moments; it resumes from the log each time."""
    rng = random.Random(3)
    acknowledged = -1
    size = 40
    for round_ in range(8):
        process = writer(path, "resume", 10_000, size)
        for _ in range(rng.randint(1, 12)):
            acknowledged = max(acknowledged, int(process.stdout.readline().split()[0]))
        time.sleep(rng.random() * 0.01)
        process.kill()
        rest = process.stdout.read().splitlines(keepends=True)
        process.wait()
        for line in rest:
            if line.endswith("\n"):
                acknowledged = max(acknowledged, int(line.split()[0]))
        with Store.open(path) as store:
            log = store.scope("x")
            if round_ % 3 == 0:
                store.check()
            got = [s.trace.text.rstrip(".") for s in log.export()]
            assert len(got) % size == 0
            assert len(got) >= (acknowledged + 1) * size
            assert got == [f"resume {b} {i} " for b in range(len(got) // size) for i in range(size)]
            assert [r.lsn for r in log.rows()] == list(range(1, len(got) + 1))
            assert log.version().n_traces == len(got)


def test_a_kill_during_creation_leaves_something_that_opens(path):
    code = (
        "import sys\nfrom zeromem.store import Store\nprint(1, flush=True)\nStore.open(sys.argv[1])"
    )
    rng = random.Random(4)
    for _ in range(6):
        command = [sys.executable, "-c", code, str(path)]
        process = subprocess.Popen(command, env=ENV, stdout=subprocess.PIPE)
        process.stdout.readline()
        time.sleep(rng.random() * 0.012)
        process.kill()
        process.wait()
        with Store.open(path) as store:
            add(store.scope("x"), "a")
        for suffix in ("", "-wal", "-shm"):
            Path(f"{path}{suffix}").unlink(missing_ok=True)


def test_processes_write_at_once_while_readers_read(path):
    with Store.open(path) as store:
        log = store.scope("x")
        writers = [writer(path, name, 25, 7) for name in ("a", "b", "c")]
        seen, torn = [0], []
        done = threading.Event()

        def read():
            while not done.is_set():
                version = log.version()
                rows = list(log.rows(until_lsn=version.last_lsn))
                if len(rows) != version.n_traces or len(rows) % 7:
                    torn.append((version, len(rows)))
                seen.append(len(rows))

        reader = threading.Thread(target=read)
        reader.start()
        for i in range(20):
            add(log, *(f"own {i} {j}" for j in range(7)))
        outputs = [w.communicate(timeout=60)[0] for w in writers]
        done.set()
        reader.join()
        assert [w.returncode for w in writers] == [0, 0, 0]
        assert torn == []
        assert seen == sorted(seen)
        total = (3 * 25 + 20) * 7
        assert log.version() == (total, 0, total)
        last = [int(line.split()[1]) for out in outputs for line in out.splitlines()]
        stored = {s.lsn: s.trace.text for s in log.read(last)}
        assert len(stored) == 75
        times = [r.ingested_at for r in log.rows()]
        assert times == sorted(times)
        store.check()


def test_a_reader_never_waits_for_a_writer(path):
    with Store.open(path) as store:
        log = store.scope("x")
        add(log, "a")
        con = sqlite3.connect(path, isolation_level=None)
        con.execute("BEGIN IMMEDIATE")
        con.execute("DELETE FROM traces")
        assert log.version() == (1, 0, 1)
        assert [s.trace.text for s in log.export()] == ["a"]
        with Store.open(path) as second:
            assert second.scope("x").version() == (1, 0, 1)
        con.execute("ROLLBACK")
        con.close()


def test_another_store_sees_a_commit_at_once(path):
    with Store.open(path) as a, Store.open(path) as b, Store.open(path, read_only=True) as c:
        for i in range(20):
            lsn = add(a.scope("x"), f"{i}")[0].lsn
            for other in (b, c):
                assert other.scope("x").read([lsn])[0].trace.text == f"{i}"
        b.scope("x").forget([3])
        assert a.scope("x").version() == c.scope("x").version() == (20, 1, 19)


def n_open(path) -> int:
    if not os.path.isdir("/proc/self/fd"):
        return 0
    links = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
    return sum(link.startswith(os.path.realpath(path)) for link in links)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("temporary", [False, True])
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_an_open_store_survives_fork(path, temporary):
    with Store.open(None if temporary else path) as store:
        log = store.scope("x")
        stop = threading.Event()

        def work():
            i = 0
            while not stop.is_set():
                i += 1
                add(log, f"parent {i}")

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        children = []
        for c in range(4):
            time.sleep(0.01)
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    assert n_open(store._file) == 0  # none is inherited
                    for i in range(10):
                        add(log, f"child {c} {i}")
                    list(log.rows())
                    store.close()
                    status = 0
                finally:
                    os._exit(status)
            children.append(child)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        stop.set()
        for thread in threads:
            thread.join()
        assert codes == [0, 0, 0, 0]
        got = {s.trace.text for s in log.export()}
        assert {f"child {c} {i}" for c in range(4) for i in range(10)} <= got
        assert [r.lsn for r in log.rows()] == list(range(1, len(got) + 1))
        store.check()


FULL = """
import resource, signal, sys
from zeromem.errors import StoreError
from zeromem.store import Store
from zeromem.types import Trace
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with Store.open(sys.argv[1]) as store:
    log = store.scope("x")
    log.append([Trace("before")], keys=[b"k"])
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
    for i in range(3):
        try:
            log.append([Trace(f"{i} " + "x" * 2_000_000)], keys=[b"k"])
            print("stored?")
        except StoreError as exc:
            print("nothing of this call was stored" in str(exc) and sys.argv[1] in str(exc))
    print(log.append([Trace("small")], keys=[b"k"])[0].lsn)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    print(log.append([Trace("y" * 2_000_000)], keys=[b"k"])[0].lsn)
"""


def test_a_full_disk_is_a_clear_error_and_loses_nothing(path):
    ran = subprocess.run(
        [sys.executable, "-c", FULL, str(path)], env=ENV, capture_output=True, text=True, timeout=60
    )
    assert ran.stderr == ""
    assert ran.stdout.split() == ["True", "True", "True", "2", "3"]
    with Store.open(path) as store:
        store.check()
        assert [len(s.trace.text) for s in store.scope("x").export()] == [6, 5, 2_000_000]


def test_a_really_full_file_system(tmp_path):
    """A small tmpfs, filled to the brim by somebody else."""
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(small)]
    try:
        mounted = subprocess.run(mount, capture_output=True).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("needs the right to mount")
    try:
        with Store.open(small / "c.zm") as store:
            log = store.scope("x")
            add(log, "before")
            with (small / "other").open("wb", buffering=0) as other, suppress(OSError):
                while other.write(b"x" * 4096):
                    pass
            with pytest.raises(StoreError, match=r"c\.zm.*(full|I/O)"):
                add(log, "x" * 1_000_000)
            assert log.version() == (1, 0, 1)
            (small / "other").unlink()
            assert add(log, "after")[0].lsn == 2
        with Store.open(small / "c.zm") as store:
            store.check()
            assert [s.trace.text for s in store.scope("x").export()] == ["before", "after"]
    finally:
        subprocess.run(["umount", str(small)], check=False)
