"""Backup and restore: one moment of a store in use, whole or not at all, and back again."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from support import STORY, open_memory, shown
from test_store_open import ReadOnlyFolder

import zeromem.store
from zeromem.errors import (
    CorruptStoreError,
    InvalidInputError,
    ReadOnlyStoreError,
    SchemaTooNewError,
    StoreError,
    StoreFullError,
)
from zeromem.index.features import feature_key
from zeromem.store import Store, restore
from zeromem.types import Trace

ENV = {**os.environ, "PYTHONPATH": str(Path(zeromem.store.__file__).parents[2])}
SIZE = 7  # traces of a batch
TARGET = "t.zm"

WRITER = """
import sys, time
from zeromem.index.features import feature_key
from zeromem.store import Store
from zeromem.types import Trace
with Store.open(sys.argv[1]) as store:
    log = store.scope("x")
    for b in range(100_000):
        batch = [Trace(f"Carla wrote note {b} part {i}.", session=f"p{b}") for i in range(7)]
        print(log.append(batch, keys=[feature_key(t) for t in batch])[-1].lsn, flush=True)
        time.sleep(0.005)
"""

HOLDER = """
import sys
from zeromem.store import Store
store = Store.open(sys.argv[1], read_only=sys.argv[2] == "ro")
store.scope("x").version()
print("open", flush=True)
sys.stdin.read()
"""


def process(code, *argv):
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, argv)],
        env=ENV, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def add(store, *texts):
    traces = [Trace(t) for t in texts]
    store.scope("x").append(traces, keys=[feature_key(t) for t in traces])


def make(path, *texts):
    with Store.open(path) as store:
        add(store, *texts)


def texts(path):
    with Store.open(path) as store:
        store.check()
        return [s.trace.text for s in store.scope("x").export()]


def names(folder):
    return sorted(entry.name for entry in os.scandir(folder))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "m.zm"


@pytest.fixture
def target(tmp_path):
    (tmp_path / "away").mkdir()
    return tmp_path / "away" / TARGET


# ---- a backup is one moment of the log


class Writers:
    """Threads and a process that write batches of ``SIZE``, and what was acknowledged so far."""

    def __init__(self, memory, path):
        self.memory = memory
        self.acknowledged = 0
        self.done = threading.Event()
        self.lock = threading.Lock()
        self.process = process(WRITER, path)
        self.threads = [threading.Thread(target=self._add, args=(n,)) for n in "AB"]
        self.threads.append(threading.Thread(target=self._listen))

    def _told(self, lsn):
        with self.lock:
            self.acknowledged = max(self.acknowledged, lsn)

    def _add(self, name):
        b = 0
        while not self.done.is_set():
            batch = [Trace(f"{name} wrote note {b} part {i}.", session=name) for i in range(SIZE)]
            self._told(self.memory.add_many(batch, progress=False)[-1].lsn)
            b += 1
            time.sleep(0.002)

    def _listen(self):
        for line in self.process.stdout:
            if line.endswith("\n"):
                self._told(int(line))

    def past(self, lsn):
        """Wait until more than this is acknowledged, by a process that lives; give how much."""
        while self.acknowledged <= lsn:
            assert self.process.poll() is None
            time.sleep(0.005)
        return self.acknowledged

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.done.set()
        self.process.kill()
        for thread in self.threads:
            thread.join()
        self.process.communicate()


def test_backups_under_writes_are_prefixes_of_the_log(path, target):
    made = []
    with open_memory(path, scope="x") as memory:
        memory.add_many(STORY, progress=False)
        start = len(STORY)
        with Writers(memory, path) as writers:
            for n in range(6):
                before = writers.past(made[-1][0] + 30 if made else 100)
                done = memory._store.backup(target.with_suffix(f".{n}"))
                made.append((before, done))
            writers.past(before)
        log = list(memory.export())
    for before, done in made:
        with Store.open(done.path) as store:
            store.check()
            copied = list(store.scope("x").export())
            assert store.scope("x").version().n_traces == len(copied) == done.n_traces
        assert copied == log[: len(copied)]
        assert len(copied) >= before
        assert (len(copied) - start) % SIZE == 0
        assert done.n_bytes == done.path.stat().st_size
    for _, done in made[::5]:
        prefix = [s.trace for s in log[: done.n_traces]]
        with open_memory(done.path, scope="x") as copy, open_memory(scope="x") as fresh:
            fresh.add_many(prefix, progress=False)
            for question in ("Where does Ana live?", "What did Carla write in note 3?"):
                assert shown(copy.retrieve(question)) == shown(fresh.retrieve(question))


def test_writers_go_on_while_a_backup_is_copied(path, target):
    with Store.open(path) as store:
        add(store, *(f"{n} " + "." * 4000 for n in range(3000)))
        written = []

        def write(done, total):
            if not written:  # in the middle of the copy
                assert done < total
                written.append(done)
                add(store, "late")

        done = store.backup(target, progress=write)
        assert written
        assert done.n_traces == 3000
        assert store.scope("x").version().n_traces == 3001
    assert "late" not in texts(target)


def test_a_backup_is_one_plain_file(path, target):
    with Store.open(path) as store:
        add(store, "a", "b")
        path.chmod(0o640)
        seen = []
        done = store.backup(target, progress=lambda *pair: seen.append(pair))
    assert (done.path, done.n_traces) == (target, 2)
    assert seen[-1] == (done.n_bytes, done.n_bytes)
    assert names(target.parent) == [TARGET]
    assert target.stat().st_mode & 0o777 == 0o640
    with Store.open(target, read_only=True) as store:
        assert store.scope("x").version().n_traces == 2
        assert names(target.parent) == [TARGET]  # reading needs nothing beside it
    assert texts(target) == ["a", "b"]


def test_backups_of_stores_in_memory_and_read_only(path, target):
    with Store.open(None) as store:
        add(store, "a")
        store.backup(path)
    with Store.open(path, read_only=True) as store:
        store.backup(target)
    assert texts(target) == ["a"]


def test_what_was_forgotten_is_not_in_a_backup(path, target):
    with open_memory(path, scope="x") as memory:
        memory.add_many(STORY, progress=False)
        memory.add("The password is xylophone-jackdaw.", id="secret-name", speaker="Zebulon")
        memory.retrieve("What is the password?")
        vector = memory._log.features(
            [r.feature_key for r in memory._log.rows() if r.id == "secret-name"],
            memory._featurizer.fingerprint,
        )
        (data,) = vector.values()
        memory._store.backup(target)
        assert b"xylophone" in target.read_bytes()
        assert data[-64:] in target.read_bytes()
        memory.forget("secret-name")
        memory._store.backup(target, overwrite=True)
    copied = target.read_bytes()
    for trace in (b"xylophone", b"secret-name", b"Zebulon", data[-64:]):
        assert trace not in copied
    assert b"kitten" in copied


# ---- restore


def test_restore_then_open_then_retrieve(path, target):
    question = "What is Ana's kitten called?"
    with open_memory(path, scope="x") as memory:
        memory.add_many(STORY, progress=False)
        expected = shown(memory.retrieve(question))
        memory._store.backup(target)
        memory.add_many(["Miso moved out.", "The kitten is gone."], progress=False)
        assert shown(memory.retrieve(question)) != expected
    assert any(name.endswith(".zmi") for name in names(path.parent))
    path.with_name("m.zm.keys").write_bytes(b"another file")
    path.with_name("m.zm2").write_bytes(b"another file")
    done = restore(target, path, overwrite=True)
    assert (done.path, done.n_traces) == (path, len(STORY))
    assert names(path.parent) == ["away", "m.zm", "m.zm.keys", "m.zm2"]
    with open_memory(path, scope="x") as memory:
        assert shown(memory.retrieve(question)) == expected
        memory.add("It goes on.")
        assert len(memory.retrieve("What goes on?", k=1)) >= 1
    assert len(texts(target)) == len(STORY)


def crashed(path, *texts):
    """A store whose writer was killed: what it wrote last is in the log beside it."""
    with Store.open(path.with_name("alive")) as store:
        add(store, *texts)
        for suffix in ("", "-wal"):
            shutil.copy(f"{store.path}{suffix}", f"{path}{suffix}")
    path.with_name("alive").unlink()
    assert Path(f"{path}-wal").stat().st_size


def test_a_restored_store_never_meets_the_old_ones_log(path, target):
    make(target, "new")
    crashed(path, "old", "older")
    restore(target, path, overwrite=True)
    assert names(path.parent) == ["away", "m.zm"]
    assert texts(path) == ["new"]


def test_leftovers_of_a_removed_store_are_told(path, target):
    make(target, "new")
    crashed(path, "old")
    path.unlink()
    with pytest.raises(StoreError, match=r"m\.zm-wal.*--force"):
        restore(target, path)
    assert names(path.parent) == ["away", "m.zm-wal"]
    restore(target, path, overwrite=True)
    assert texts(path) == ["new"]


def test_a_backup_with_a_log_beside_it_is_read_with_it(path, target):
    crashed(target, "a", "b")
    restore(target, path)
    assert texts(path) == ["a", "b"]


@pytest.mark.parametrize("damage", ["header", "cut", "pages", "empty", "text"])
def test_a_damaged_store_can_be_replaced(path, target, damage):
    make(target, "new")
    make(path, *(f"{n} " + "." * 3000 for n in range(40)))
    whole = path.read_bytes()
    path.write_bytes({
        "header": b"\xff" * 100 + whole[100:], "cut": whole[: len(whole) // 2],
        "pages": whole[:4096] + b"\xff" * (len(whole) - 4096), "empty": b"", "text": b"notes\n",
    }[damage])  # fmt: skip
    Path(f"{path}-wal").write_bytes(b"\xff" * 5000)
    restore(target, path, overwrite=True)
    assert names(path.parent) == ["away", "m.zm"]
    assert texts(path) == ["new"]


def test_a_backup_that_is_damaged_replaces_nothing(path, target):
    make(path, "old")
    make(target, *(f"{n} " + "." * 3000 for n in range(40)))
    before, whole = path.read_bytes(), target.read_bytes()
    for damaged in (
        whole[: len(whole) // 2], b"\xff" * 100 + whole[100:], b"text", b"",
        whole.replace(b"7 ...", b"8 ...", 1), whole[:8192] + b"\xff" * 4096 + whole[12288:],
    ):  # fmt: skip
        target.write_bytes(damaged)
        with pytest.raises(CorruptStoreError, match=r"t\.zm"):
            restore(target, path, overwrite=True)
        assert path.read_bytes() == before
        assert names(path.parent) == ["away", "m.zm"]


def test_a_damaged_store_is_not_backed_up(path, target):
    make(path, *(f"{n} " + "." * 3000 for n in range(40)))
    path.write_bytes(path.read_bytes().replace(b"7 ...", b"8 ...", 1))
    make(target, "the last good one")
    with Store.open(path) as store, pytest.raises(CorruptStoreError, match=r"m\.zm.*damaged"):
        store.backup(target, overwrite=True)
    assert texts(target) == ["the last good one"]


def test_backups_of_other_versions(path, target):
    make(target, "a")
    with sqlite3.connect(target) as con:
        con.execute("PRAGMA user_version = 99")
    con.close()
    with pytest.raises(SchemaTooNewError, match=r"t\.zm"):
        restore(target, path)
    make(path, "b")
    restore(path, target, overwrite=True)  # going back is what a backup is for
    assert texts(target) == ["b"]


# ---- what is open is not replaced


@pytest.mark.parametrize("mode", ["rw", "ro"])
def test_a_store_that_another_process_has_open(path, target, mode):
    make(path, "old")
    make(target, "new")
    with process(HOLDER, path, mode) as holder:
        assert holder.stdout.readline() == "open\n"
        with pytest.raises(StoreError, match=r"m\.zm.* is open in this or another process"):
            restore(target, path, overwrite=True)
        with Store.open(target) as store, pytest.raises(StoreError, match="is open in"):
            store.backup(path, overwrite=True)
        holder.stdin.close()
        holder.wait()
    assert texts(path) == ["old"]
    restore(target, path, overwrite=True)
    assert texts(path) == ["new"]


@pytest.mark.parametrize("used", [True, False])
def test_a_store_that_this_process_has_open(path, target, used):
    make(path, "old")
    make(target, "new")
    with Store.open(path) as store:
        if used:
            add(store, "older")
        with pytest.raises(StoreError, match="is open in this"):
            restore(target, path, overwrite=True)
    restore(target, path, overwrite=True)
    assert texts(path) == ["new"]


def test_a_damaged_store_that_another_process_has_open(path, target):
    make(path, "old")
    make(target, "new")
    with process(HOLDER, path, "rw") as holder:
        assert holder.stdout.readline() == "open\n"
        with path.open("r+b") as file:
            file.write(b"\xff" * 100)
        with pytest.raises(StoreError, match="is open in"):
            restore(target, path, overwrite=True)
        holder.kill()
        holder.wait()
    restore(target, path, overwrite=True)
    assert texts(path) == ["new"]


def test_stores_opened_while_they_are_replaced(path, target):
    """Whoever comes in between finds a whole store or an error, and damages nothing."""
    opener = """
import sys
from zeromem.errors import StoreError
from zeromem.store import Store
from zeromem.types import Trace
n = 0
print("ready", flush=True)
while True:
    n += 1
    try:
        with Store.open(sys.argv[1]) as store:
            log = store.scope("x")
            log.append([Trace(f"{n} more")], keys=[b"k"])
            assert [s.trace.text for s in log.export()][0] == "first"
    except StoreError as exc:
        if "damaged" in str(exc) or "match" in str(exc):
            raise
"""
    make(path, "first", "old")
    make(target, "first", *(f"{n} " + "." * 3000 for n in range(20)))
    replaced = refused = 0
    with process(opener, path) as other:
        other.stdout.readline()
        end = time.monotonic() + 4
        while time.monotonic() < end:
            try:
                restore(target, path, overwrite=True)
                replaced += 1
            except StoreError as exc:
                assert "is open in" in str(exc)  # noqa: PT017 - others are failures
                refused += 1
        assert other.poll() is None
        other.kill()
    assert replaced >= 3
    found = texts(path)
    assert found[0] == "first"
    assert all(t.endswith((" more", ".", "first", "old")) for t in found)


# ---- killed, interrupted, full, refused


def killed_at(moment, work):
    """Run ``work(step)`` in a child that is killed at its n-th file operation or step of the copy.

    Returns
    -------
    bool
        Whether it was killed, and not done before.
    """
    child = os.fork()
    if child == 0:
        left = [moment]

        def step(*_):
            left[0] -= 1
            if left[0] <= 0:
                os.kill(os.getpid(), signal.SIGKILL)

        def heard(event, _):
            if event.split(".")[0] in ("os", "open", "fcntl", "sqlite3") and event != "os.kill":
                step()

        code = 1
        try:
            sys.addaudithook(heard)
            work(step)
            code = 0
        finally:
            os._exit(code)
    status = os.waitpid(child, 0)[1]
    assert status in (0, signal.SIGKILL)
    return status != 0


def kills(work, check):
    """Kill at each moment in turn until none is left; count them."""
    moment = 1
    while killed_at(moment, work):
        check()
        moment += 1
        assert moment < 400
    return moment - 1


def test_kill_nine_during_a_backup(path, target):
    wanted = [f"{n} " + "." * 3000 for n in range(3000)]
    make(path, *wanted)
    outcomes = set()

    def work(step):
        with Store.open(path, read_only=True) as store:
            store.backup(target, progress=step)

    def check():
        outcomes.add(target.exists())
        if target.exists():
            assert texts(target) == wanted
            target.unlink()

    assert kills(work, check) > 15
    assert outcomes == {False, True}
    assert texts(target) == wanted
    with Store.open(path) as store:
        store.backup(target, overwrite=True)
    assert names(target.parent) == [TARGET]  # the drafts of those that were killed are gone


@pytest.mark.parametrize("there", ["absent", "whole", "crashed"])
def test_kill_nine_during_a_restore(path, target, there):
    new = [f"{n} " + "." * 3000 for n in range(1500)]
    make(target, *new)
    outcomes = []

    def prepare():
        for name in names(path.parent):
            if name.startswith("m.zm"):
                (path.parent / name).unlink()
        if there == "whole":
            make(path, "old", "older")
        elif there == "crashed":
            crashed(path, "old", "older")
        if there != "absent":
            path.with_name(f"m.zm.{'a' * 32}.zmi").write_bytes(b"snapshot")

    def check():
        found = texts(path) if path.exists() else None
        outcomes.append(found if found != new else "new")
        assert outcomes[-1] in ("new", None if there == "absent" else ["old", "older"])
        prepare()

    prepare()
    n = kills(lambda step: restore(target, path, overwrite=True, progress=step), check)
    assert n > 15
    assert "new" in outcomes
    assert outcomes[0] != "new"
    assert outcomes == sorted(outcomes, key=lambda o: o == "new")  # old until it is new
    assert texts(path) == new
    assert names(path.parent) == ["away", "m.zm"]


def test_an_interrupt_leaves_nothing(path, target):
    make(path, *(f"{n} " + "." * 4000 for n in range(3000)))

    def interrupt(done, total):
        raise KeyboardInterrupt

    with Store.open(path) as store:
        with pytest.raises(KeyboardInterrupt):
            store.backup(target, progress=interrupt)
        assert names(target.parent) == []
        add(store, "goes on")
        assert store.backup(target).n_traces == 3001


def in_child(work):
    """The exception's class name that ``work`` ends with in a child, "" for none."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            work()
            told = ""
        except BaseException as exc:
            told = f"{type(exc).__name__}: {exc}"
        os.write(write, told.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    return told


def small_files(n_bytes):
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, n_bytes))


def test_no_room_for_a_backup_or_a_store(path, target):
    make(path, *(f"{n} " + "." * 4000 for n in range(1000)))

    def work(copy):
        small_files(1 << 20)
        copy()

    with Store.open(path, read_only=True) as store:
        told = in_child(lambda: work(lambda: store.backup(target)))
    assert told.startswith("StoreFullError: cannot write")
    assert TARGET in told
    assert names(target.parent) == []
    told = in_child(lambda: work(lambda: restore(path, target)))
    assert told.startswith("StoreFullError: cannot write")
    assert names(target.parent) == []


def test_a_log_without_room_to_grow_says_so(path):
    make(path, "a")

    def work():
        with Store.open(path) as store:
            small_files(1 << 20)
            add(store, "x" * (4 << 20))

    assert in_child(work).startswith("StoreFullError: cannot write store")
    assert texts(path) == ["a"]


def test_a_disk_without_room(path, tmp_path):
    make(path, *(f"{n} " + "." * 4000 for n in range(1000)))
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("needs the right to mount")
    try:
        with Store.open(path) as store, pytest.raises(StoreFullError, match="free disk space"):
            store.backup(disk / "b.zm")
        assert names(disk) == []
        with Store.open(disk / "s.zm") as small:
            add(small, "a")
            with pytest.raises(StoreFullError, match="free disk space"):
                add(small, "x" * (2 << 20))
            add(small, "b")
        assert texts(disk / "s.zm") == ["a", "b"]
    finally:
        subprocess.run(["umount", str(disk)], check=False, capture_output=True)


def test_a_disk_that_may_only_be_read(path, tmp_path):
    make(path, "a")
    make(tmp_path / "other.zm", "b")
    with (
        ReadOnlyFolder(tmp_path, tmp_path / "ro") as folder,
        Store.open(tmp_path / "other.zm") as store,
    ):
        for target in (folder / "new.zm", folder / "m.zm"):
            with pytest.raises(ReadOnlyStoreError, match="read-only"):
                store.backup(target, overwrite=True)
        store.backup(tmp_path / "b.zm")
        restore(folder / "b.zm", tmp_path / "c.zm")
    assert texts(tmp_path / "c.zm") == ["b"]


@pytest.mark.parametrize("bad", ["", "a\0b", 3, None, ":memory:", "\ud800"])
def test_what_is_no_file_name(path, bad):
    with Store.open(path) as store, pytest.raises(InvalidInputError, match="target must be"):
        store.backup(bad)
    with pytest.raises(InvalidInputError, match="target must be"):
        restore(path, bad)
    with pytest.raises(InvalidInputError, match="backup_file must be"):
        restore(bad, path)


def test_targets_that_are_refused(path, tmp_path):
    make(path, "a")
    make(tmp_path / "b.zm", "b")
    (tmp_path / "link").symlink_to(path)
    (tmp_path / "hard").hardlink_to(path)
    with sqlite3.connect(tmp_path / "foreign.db") as con:
        con.execute("CREATE TABLE mine (x)")
    con.close()
    before = {p: p.read_bytes() for p in tmp_path.iterdir()}
    with Store.open(path) as store:
        for name, error, message in (
            ("m.zm", InvalidInputError, "target must be another file"),
            ("link", InvalidInputError, "target must be another file"),
            ("hard", InvalidInputError, "target must be another file"),
            (".", StoreError, "is a folder"),
            ("no/folder.zm", StoreError, "does not exist"),
            ("foreign.db", CorruptStoreError, "not a zeromem store"),
            *(
                (name + end, InvalidInputError, f"must not end in '{end}'")
                for name in ("m.zm", "b.zm", "none.zm")
                for end in ("-wal", "-shm", "-journal")
            ),
            ("n" * 300, StoreError, "check the path"),
        ):
            with pytest.raises(error, match=message):
                store.backup(tmp_path / name, overwrite=True)
        for name in ("b.zm", "foreign.db"):
            with pytest.raises(StoreError, match="exists; give another path"):
                store.backup(tmp_path / name)
            with pytest.raises(StoreError, match="exists; give another path"):
                restore(path, tmp_path / name)
    for name, error, message in (
        ("none.zm", StoreError, "there is no backup"),
        (".", StoreError, "is a folder"),
        ("foreign.db", CorruptStoreError, "not a zeromem store"),
    ):
        with pytest.raises(error, match=message):
            restore(tmp_path / name, tmp_path / "new.zm")
    with pytest.raises(InvalidInputError, match="another file"):
        restore(path, tmp_path / "link", overwrite=True)
    with pytest.raises(InvalidInputError, match="must not end in '-wal'"):
        restore(path, tmp_path / "b.zm-wal", overwrite=True)
    assert {p: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_a_link_to_a_store_stays_a_link(path, target):
    make(path, "old")
    make(target, "new")
    link = path.with_name("link.zm")
    link.symlink_to(path)
    assert restore(target, link, overwrite=True).path == path
    assert link.is_symlink()
    assert texts(link) == texts(path) == ["new"]
