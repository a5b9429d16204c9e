"""Group commit: one transaction and one fsync for all who wait, each with its own outcome."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import zeromem.store
from zeromem.errors import DuplicateIdError, StoreError, StoreFullError
from zeromem.store import Store
from zeromem.types import Trace

ROOT = str(Path(zeromem.store.__file__).parents[2])


def add(log, *traces: Trace):
    return log.append(traces, keys=[b"key " + t.text.encode() for t in traces])


class Lock:
    """Another program's write lock on the store."""

    def __init__(self, path) -> None:
        self.con = sqlite3.connect(path, isolation_level=None, timeout=5, check_same_thread=False)

    def __enter__(self):
        self.con.execute("BEGIN IMMEDIATE")
        return self

    def __exit__(self, *_):
        self.con.execute("ROLLBACK")
        self.con.close()


def together(store, path, jobs):
    """Run jobs in threads that all wait for one write lock; return outcomes in order."""
    outcomes: list = [None] * len(jobs)

    def run(i):
        try:
            outcomes[i] = jobs[i]()
        except Exception as exc:
            outcomes[i] = exc

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(jobs))]
    with Lock(path):
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + 10
        while len(store._commit._queue) < len(jobs) and time.monotonic() < deadline:
            time.sleep(0.005)
        assert len(store._commit._queue) == len(jobs)
    for thread in threads:
        thread.join()
    return outcomes


@pytest.fixture
def path(tmp_path):
    return tmp_path / "c.zm"


@pytest.fixture
def store(path):
    with Store.open(path) as opened:
        opened.scope("x").append([Trace("first", id="taken")], keys=[b"k"])
        yield opened


@pytest.fixture
def commits(store, monkeypatch):
    """Counts transactions through the pool's writers."""
    seen: list[str] = []
    original = store._pool.connect

    def connect(*, write):
        con = original(write=write)
        if write:
            con.set_trace_callback(lambda sql: seen.append(sql) if sql == "COMMIT" else None)
        return con

    monkeypatch.setattr(store._pool, "connect", connect)
    store._pool._close_idle()
    return seen


def test_waiting_writers_share_one_commit(store, path, commits):
    log = store.scope("x")
    jobs = [lambda i=i: add(log, Trace(f"t{i}")) for i in range(20)]
    outcomes = together(store, path, jobs)
    assert len(commits) == 1
    assert sorted(o[0].lsn for o in outcomes) == list(range(2, 22))
    for i, (added,) in enumerate(outcomes):
        assert log.read([added.lsn])[0].trace.text == f"t{i}"


def test_a_failing_member_fails_alone(store, path, commits):
    log, other = store.scope("x"), store.scope("y")

    def crash(con):
        con.execute("DELETE FROM traces")
        raise RuntimeError("bug")

    def misuse(con):
        con.execute("DELETE FROM traces")
        con.execute("INSERT INTO traces (key) VALUES ('no')")

    outcomes = together(
        store,
        path,
        [
            lambda: add(log, Trace("a")),
            lambda: add(log, Trace("b"), Trace("other", id="taken")),
            lambda: store._commit.run(crash),
            lambda: store._commit.run(misuse),
            lambda: add(other, Trace("c")),
        ],
    )
    assert len(commits) == 1
    assert outcomes[0][0].created
    assert isinstance(outcomes[1], DuplicateIdError)
    assert isinstance(outcomes[2], RuntimeError)
    assert isinstance(outcomes[3], StoreError)
    assert outcomes[4][0].lsn == 1
    assert [s.trace.text for s in log.export()] == ["first", "a"]
    assert log.version().last_lsn == 2


def test_one_that_does_not_fit_the_disk_fails_alone(store, path, monkeypatch):
    log = store.scope("x")
    original = store._pool.connect

    def small(*, write):
        con = original(write=write)
        pages = con.execute("PRAGMA page_count").fetchone()[0]
        con.execute(f"PRAGMA max_page_count = {pages + 20}")
        return con

    store._pool._close_idle()
    monkeypatch.setattr(store._pool, "connect", small)
    outcomes = together(
        store,
        path,
        [
            lambda: add(log, Trace("a")),
            lambda: add(log, Trace("x" * 500_000)),
            lambda: add(log, Trace("b")),
        ],
    )
    assert outcomes[0][0].created
    assert outcomes[2][0].created
    assert isinstance(outcomes[1], StoreFullError)
    assert "full" in str(outcomes[1])
    assert str(path) in str(outcomes[1])
    assert sorted(s.trace.text for s in log.export()) == ["a", "b", "first"]


def test_a_commit_that_fails_as_a_whole_is_retried_one_by_one(store, path, monkeypatch):
    """A COMMIT can fail though every statement went well; then each job gets its own try."""
    log = store.scope("x")
    transaction = store._commit._transaction
    sizes = []

    def fail_groups(con, group):
        sizes.append(len(group))
        if len(group) > 1:
            group[0].work(con)
            con.execute("ROLLBACK")
            return sqlite3.OperationalError("disk I/O error")
        return transaction(con, group)

    monkeypatch.setattr(store._commit, "_transaction", fail_groups)
    outcomes = together(
        store,
        path,
        [
            lambda: add(log, Trace("a")),
            lambda: add(log, Trace("no", id="taken")),
            lambda: add(log, Trace("b")),
        ],
    )
    assert sizes == [3, 1, 1, 1]
    assert [type(o) for o in outcomes] == [list, DuplicateIdError, list]
    assert all(o[0].created for o in (outcomes[0], outcomes[2]))
    assert log.version() == (3, 0, 3)


def test_an_interrupted_leader_leaves_the_others_work(store, path):
    """Ctrl-C in the thread that leads, halfway through the group: the rest goes on without it."""
    log = store.scope("x")
    outcomes: dict = {}

    def interrupted(con):
        con.execute("DELETE FROM traces")
        raise KeyboardInterrupt

    def run(name, job):
        try:
            outcomes[name] = job()
        except BaseException as exc:
            outcomes[name] = exc

    def wait_for(n):
        deadline = time.monotonic() + 10
        while not (store._commit._leading and len(store._commit._queue) == n):
            assert time.monotonic() < deadline
            time.sleep(0.002)

    jobs = {"leader": lambda: store._commit.run(interrupted)}
    jobs |= {i: lambda i=i: add(log, Trace(f"{i}")) for i in range(4)}
    threads = [threading.Thread(target=run, args=j, daemon=True) for j in jobs.items()]
    with Lock(path):
        for n, thread in enumerate(threads, 1):
            thread.start()
            wait_for(n)  # the first one leads, since it came first
    for thread in threads:
        thread.join(timeout=20)
    assert not any(thread.is_alive() for thread in threads)
    assert isinstance(outcomes["leader"], KeyboardInterrupt)
    assert all(outcomes[i][0].created for i in range(4))
    assert sorted(s.trace.text for s in log.export()) == ["0", "1", "2", "3", "first"]


def test_a_lock_that_stays_is_a_clear_error_for_all(store, path, monkeypatch):
    log = store.scope("x")
    original = store._pool.connect

    def impatient(*, write):
        con = original(write=write)
        con.execute("PRAGMA busy_timeout = 100")
        return con

    store._pool._close_idle()
    monkeypatch.setattr(store._pool, "connect", impatient)
    errors = []

    def run(i):
        try:
            add(log, Trace(f"{i}"))
        except StoreError as exc:
            errors.append(exc)

    with Lock(path):
        threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len({id(e) for e in errors}) == 4
    assert all("write lock" in str(e) and str(path) in str(e) for e in errors)
    assert add(log, Trace("after"))[0].created


def test_many_threads_many_appends(store):
    log = store.scope("x")
    results: list = []

    def work(j):
        for i in range(15):
            results.extend(add(log, Trace(f"{j} {i}"), Trace(f"shared {i}")))

    threads = [threading.Thread(target=work, args=(j,)) for j in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(r.created for r in results) == 12 * 15 + 15
    assert log.version() == (196, 0, 196)
    assert [r.lsn for r in log.rows()] == list(range(1, 197))


SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <stdio.h>
#include <unistd.h>
static atomic_int count;
static void seen(int fd) {
    char link[64], file[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, file, sizeof file - 1);
    if (n > 4 && !memcmp(file + n - 4, "-wal", 4)) count++;
}
int fsync(int fd) {
    seen(fd);
    return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd);
}
int fdatasync(int fd) {
    seen(fd);
    return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(fd);
}
int wal_syncs(void) { return count; }
"""

COUNT = """
import ctypes, sys, threading
from zeromem.store import Store
from zeromem.types import Trace
from tests_helper import together
count = ctypes.CDLL(None).wal_syncs
with Store.open(sys.argv[1]) as store:
    log = store.scope("x")
    def add(text):
        log.append([Trace(text)], keys=[b"k"])
    add("first"), add("second")
    start = count(); add("alone"); alone = count() - start
    start = count(); add("alone"); again = count() - start
    start = count()
    log.append([Trace(f"b{i}") for i in range(3000)], keys=[b"k"] * 3000)
    batch = count() - start
    start = count()
    together(store, sys.argv[1], [lambda i=i: add(f"t{i}") for i in range(16)])
    print(alone, again, batch, count() - start)
"""


def test_fsyncs_are_counted(tmp_path):
    """One per commit, none for what was there already, one for 16 threads that wait together."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("needs a C compiler and LD_PRELOAD")
    (tmp_path / "shim.c").write_text(SHIM)
    shim = tmp_path / "shim.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-o", shim, tmp_path / "shim.c", "-ldl"], check=True
    )
    (tmp_path / "tests_helper.py").write_text(Path(__file__).read_text())
    env = {**os.environ, "LD_PRELOAD": str(shim), "PYTHONPATH": f"{ROOT}:{tmp_path}"}
    ran = subprocess.run(
        [sys.executable, "-c", COUNT, str(tmp_path / "s.zm")],
        env=env, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert ran.stdout.split() == ["1", "0", "1", "1"]
