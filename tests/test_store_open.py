"""Opening: what is no store of ours is refused by name, and what is ours opens, old or new."""

from __future__ import annotations

import gc
import os
import random
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
from pathlib import Path, PurePath

import pytest

from zeromem.errors import (
    CorruptStoreError,
    InvalidInputError,
    ReadOnlyStoreError,
    SchemaTooNewError,
    StoreError,
)
from zeromem.store import Store, schema
from zeromem.types import Trace


def add(log, *texts: str):
    return log.append([Trace(t) for t in texts], keys=[b"k"] * len(texts))


def make(path, n: int = 3) -> None:
    with Store.open(path) as store:
        add(store.scope("x"), *(f"text {i} " + "." * 3000 for i in range(n)))


def texts(path, **options) -> list[str]:
    with Store.open(path, **options) as store:
        return [s.trace.text[:6] for s in store.scope("x").export()]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "o.zm"


def test_reopening_finds_everything_and_leaves_one_file(path, tmp_path):
    make(path)
    assert texts(path) == ["text 0", "text 1", "text 2"]
    assert [f.name for f in tmp_path.iterdir()] == ["o.zm"]
    assert texts(str(path)) == texts(os.fsencode(path)) == texts(path)


@pytest.mark.parametrize("name", ["a b?c#d%41.zm", "日本.zm", "\udcff.zm", "file:x.zm", "-"])
def test_any_file_name(tmp_path, name):
    make(tmp_path / name)
    assert [f.name for f in tmp_path.iterdir()] == [name]
    assert len(texts(tmp_path / name)) == 3


def test_relative_paths_survive_a_change_of_folder(tmp_path, monkeypatch):
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path)
    with Store.open("r.zm") as store:
        assert store.path == tmp_path / "r.zm"
        os.chdir("sub")
        add(store.scope("x"), "a")
        assert store.scope("x").snapshot_path.parent == tmp_path
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("bad", ["", "a\0b", 3, "\ud800.zm", PurePath("a/\ud800"), [10**5000]])
def test_impossible_paths(bad):
    with pytest.raises(InvalidInputError, match="path must be"):
        Store.open(bad)


def test_missing_things_are_named(path, tmp_path):
    for options in ({"create": False}, {"read_only": True}):
        with pytest.raises(StoreError, match=r"there is no store .*o\.zm"):
            Store.open(path, **options)
    with pytest.raises(StoreError, match=r"folder .*nowhere.* does not exist"):
        Store.open(tmp_path / "nowhere" / "o.zm")
    with pytest.raises(StoreError, match="is a folder"):
        Store.open(tmp_path)
    make(path)
    with pytest.raises(StoreError):
        Store.open(path / "below a file.zm")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StoreError, match="no regular file"):
        Store.open(tmp_path / "pipe")
    assert sorted(f.name for f in tmp_path.iterdir()) == ["o.zm", "pipe"]


@pytest.mark.parametrize(
    "content",
    [b"hello", b"\0" * 5000, bytes(range(256)) * 64, b"SQLite format 3\0" + b"\xff" * 9000],
    ids=["text", "zeros", "bytes", "header"],
)
def test_a_foreign_file_is_refused_and_left_alone(path, content):
    path.write_bytes(content)
    for read_only in (False, True):
        with pytest.raises(CorruptStoreError, match=r"o\.zm"):
            Store.open(path, read_only=read_only)
    assert path.read_bytes() == content


def test_another_programs_database_is_refused_and_left_alone(path):
    con = sqlite3.connect(path)
    con.execute("CREATE TABLE mine (x)")
    con.close()
    before = path.read_bytes()
    with pytest.raises(CorruptStoreError, match="not a zeromem store"):
        Store.open(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("fraction", [0.02, 0.3, 0.7, 0.99])
def test_a_truncated_store_is_refused(path, fraction):
    make(path, 60)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * fraction)])
    with pytest.raises(CorruptStoreError, match=r"o\.zm"):
        Store.open(path)
    path.write_bytes(whole)
    assert len(texts(path)) == 60


def test_random_damage_is_an_error_and_never_other_text(path):
    """Flip bytes all over; every read is right or a StoreError, and check() finds changed text."""
    make(path, 40)
    whole = path.read_bytes()
    want = {f"text {i} " + "." * 3000 for i in range(40)}
    rng = random.Random(1)
    found = []
    for _ in range(40):
        damaged = bytearray(whole)
        start = rng.randrange(100, len(whole) - 64)
        damaged[start : start + 64] = rng.randbytes(64)
        path.write_bytes(damaged)
        try:
            with Store.open(path) as store:
                store.check()
                log = store.scope("x")
                assert {s.trace.text for s in log.export()} == want
        except StoreError as exc:
            found.append(str(exc))
    assert len(found) > 20
    assert all("o.zm" in message for message in found)


def test_an_empty_file_becomes_a_store(path):
    path.touch()
    with pytest.raises(StoreError, match="is empty"):
        Store.open(path, read_only=True)
    make(path)
    assert len(texts(path)) == 3


def test_a_newer_schema_is_named(path):
    make(path)
    con = sqlite3.connect(path)
    con.execute("PRAGMA user_version = 99")
    con.close()
    with pytest.raises(SchemaTooNewError, match=r"version 99.*up to 1.*install a newer"):
        Store.open(path)


def _second(con):
    con.execute("ALTER TABLE texts ADD COLUMN mood BLOB")
    con.execute("UPDATE texts SET mood = CAST('calm' AS BLOB)")


def _third(con):
    con.execute("CREATE TABLE extra (n INTEGER)")
    con.execute("INSERT INTO extra SELECT count(*) FROM texts WHERE mood IS NOT NULL")


def read_sql(path, sql):
    con = sqlite3.connect(path)
    try:
        return con.execute(sql).fetchone()[0]
    finally:
        con.close()


def test_migrations_run_forward_once_and_in_order(path, monkeypatch):
    make(path)
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, _second, _third))
    with pytest.raises(StoreError, match=r"version 1 .*reads version 3; open it once without"):
        Store.open(path, read_only=True)
    for _ in range(2):
        assert len(texts(path)) == 3
        assert read_sql(path, "PRAGMA user_version") == 3
        assert read_sql(path, "SELECT n FROM extra") == 3
    assert len(texts(path, read_only=True)) == 3
    with Store.open(path) as store:
        add(store.scope("x"), "more")
        store.check()
        store.scope("x").forget(store.scope("x").select(everything=True))


def test_a_new_store_runs_all_migrations(path, monkeypatch):
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, _second, _third))
    make(path)
    assert read_sql(path, "PRAGMA user_version") == 3
    assert read_sql(path, "SELECT n FROM extra") == 0


def test_a_failing_migration_leaves_the_old_store(path, monkeypatch):
    make(path)

    def fails(con):
        con.execute("DROP TABLE traces")
        con.execute("no sql")

    with monkeypatch.context() as patch:
        patch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, _second, fails))
        with pytest.raises(StoreError, match=r"o\.zm"):
            Store.open(path)
    assert read_sql(path, "PRAGMA user_version") == 1
    assert len(texts(path)) == 3


def test_many_open_and_migrate_at_once(path, monkeypatch):
    make(path)
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, _second, _third))
    errors = []

    def work():
        try:
            assert len(texts(path)) == 3
        except BaseException as exc:
            errors.append(exc)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert read_sql(path, "SELECT count(*) FROM extra") == 1


def test_an_open_store_stops_writing_when_a_newer_program_migrated_it(path):
    make(path)
    with Store.open(path) as store:
        con = sqlite3.connect(path)
        con.execute("PRAGMA user_version = 2")
        con.close()
        with pytest.raises(SchemaTooNewError):
            add(store.scope("x"), "a")
        assert store.scope("x").version().n_traces == 3


def test_read_only(path):
    make(path)
    with Store.open(path) as writer, Store.open(path, read_only=True) as store:
        log = store.scope("x")
        add(writer.scope("x"), "text 3")
        assert log.version().n_traces == 4
        for change in (
            lambda: add(log, "no"),
            lambda: log.forget([1]),
            lambda: log.put_features({b"k": b"x"}, "f"),
            lambda: log.set_fingerprint("f"),
            log.drop_features,
        ):
            with pytest.raises(
                ReadOnlyStoreError, match=r"open read-only; open it without read_only=True"
            ):
                change()
        assert log.version().n_traces == 4


class ReadOnlyFolder:
    """A file system that is really read-only, since root ignores permissions."""

    def __init__(self, source, target) -> None:
        self.target = target
        self.commands = [
            ["mount", "--bind", str(source), str(target)],
            ["mount", "-o", "remount,bind,ro", str(target)],
        ]

    def __enter__(self):
        self.target.mkdir()
        if shutil.which("mount") is None:
            pytest.skip("needs mount")
        for i, command in enumerate(self.commands):
            if subprocess.run(command, capture_output=True).returncode:
                if i:
                    self.__exit__()
                pytest.skip("needs the right to mount")
        return self.target

    def __exit__(self, *_):
        subprocess.run(["umount", str(self.target)], check=False, capture_output=True)


def test_a_read_only_file_system(path, tmp_path):
    make(path)
    with ReadOnlyFolder(tmp_path, tmp_path / "ro") as folder:
        with pytest.raises(
            ReadOnlyStoreError, match="read-only; make both writable, or open it with"
        ):
            Store.open(folder / "o.zm")
        with pytest.raises(ReadOnlyStoreError, match="is read-only; make it writable"):
            Store.open(folder / "new.zm")
        assert len(texts(folder / "o.zm", read_only=True)) == 3
        with Store.open(folder / "o.zm", read_only=True) as store:
            with Store.open(path) as writer:  # the same file by its writable path
                add(writer.scope("x"), "text 3")
            with pytest.raises(StoreError, match="changed while it was open"):
                store.scope("x").version()
        assert len(texts(folder / "o.zm", read_only=True)) == 4


def test_a_folder_without_write_permission(path, tmp_path, monkeypatch):
    """The same as seen by a user whom permissions bind (root passes os.access on all of them)."""
    make(path)
    monkeypatch.setattr("zeromem.store.opening._writable", lambda p: p != tmp_path)
    with pytest.raises(ReadOnlyStoreError, match="read-only; make both writable"):
        Store.open(path)
    with pytest.raises(ReadOnlyStoreError, match="is read-only; make it writable"):
        Store.open(tmp_path / "new.zm")


def test_a_store_that_turns_read_only_while_open(path):
    make(path)
    with Store.open(path) as store:
        original = store._pool.connect

        def connect(*, write):
            con = original(write=write)
            con.execute("PRAGMA query_only=ON")
            return con

        store._pool._close_idle()
        store._pool.connect = connect
        with pytest.raises(
            ReadOnlyStoreError, match=r"cannot write store .*o\.zm.*readonly.*writable"
        ):
            add(store.scope("x"), "a")
        assert store.scope("x").version().n_traces == 3


def _replace(path):
    make(path.with_name("other.zm"))
    path.with_name("other.zm").replace(path)


def _recreate(path):
    path.unlink()
    make(path)


@pytest.mark.parametrize(
    "change", [Path.unlink, _replace, _recreate, lambda path: path.rename(path.parent / "moved")]
)
def test_nothing_is_acknowledged_into_a_file_that_is_gone(path, change):
    make(path)
    with Store.open(path) as store:
        log = store.scope("x")
        add(log, "text 3")  # a connection that writes is open
        change(path)
        for call in (
            lambda: add(log, "lost"),
            lambda: log.forget([1]),
            lambda: log.put_features({b"k": b"x"}, "f"),
            lambda: log.set_fingerprint("f"),
        ):
            with pytest.raises(StoreError, match=r"o\.zm.*was removed or replaced while"):
                call()
        store._pool._close_idle()  # a new connection would find the other file
        with pytest.raises(StoreError, match=r"o\.zm"):
            add(log, "lost")
    if path.exists():
        assert "lost" not in texts(path)


def test_a_file_that_is_put_back_takes_writes_again(path):
    make(path)
    with Store.open(path) as store:
        path.rename(path.parent / "aside")
        with pytest.raises(StoreError, match="put the file back"):
            add(store.scope("x"), "a")
        (path.parent / "aside").rename(path)
        add(store.scope("x"), "text 3")
    assert len(texts(path)) == 4


def test_closed_is_closed(path):
    store = Store.open(path)
    log = store.scope("x")
    add(log, "a")
    store.close()
    store.close()
    for use in (lambda: add(log, "b"), log.version, lambda: list(log.rows()), store.scopes):
        with pytest.raises(StoreError, match="is closed; open it again"):
            use()


def test_memory_stores_are_private_and_leave_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with Store.open(None) as a, Store.open(":memory:") as b:
        assert a.path is None
        add(a.scope("x"), "only a")
        assert b.scopes() == []
        folders = list(tmp_path.iterdir())
        assert len(folders) == 2
        assert all(stat.S_IMODE(f.stat().st_mode) == 0o700 for f in folders)
    assert list(tmp_path.iterdir()) == []
    dropped = Store.open(None)
    add(dropped.scope("x"), "a")
    del dropped
    gc.collect()
    assert list(tmp_path.iterdir()) == []


def test_nothing_stays_open(path):
    def n_open():
        return sum(
            os.path.realpath(f"/proc/self/fd/{fd}").startswith(str(path))
            for fd in os.listdir("/proc/self/fd")
        )

    if not sys.platform.startswith("linux"):
        pytest.skip("needs /proc")
    with Store.open(path) as store:
        log = store.scope("x")
        threads = [threading.Thread(target=lambda: list(log.rows())) for _ in range(30)]
        add(log, "a")
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert 0 < n_open() < 40
        for bad in (lambda: log.read([99]), lambda: log.append(["x"], keys=[b"k"])):
            with pytest.raises((StoreError, InvalidInputError)):
                bad()
    assert n_open() == 0


def test_a_copy_made_by_sqlites_backup_is_a_store(path, tmp_path):
    with Store.open(path) as store:
        add(store.scope("x"), "text 0")
        source = sqlite3.connect(path)
        target = sqlite3.connect(tmp_path / "copy.zm")
        source.backup(target)
        source.execute("VACUUM INTO ?", (str(tmp_path / "vacuumed.zm"),))
        source.close()
        target.close()
    assert texts(tmp_path / "copy.zm") == texts(tmp_path / "vacuumed.zm") == ["text 0"]


@pytest.mark.skipif(os.name != "posix", reason="needs permissions")
def test_a_new_store_and_its_snapshots_are_their_owners_alone(tmp_path):
    from support import STORY, open_memory

    before = os.umask(0o022)
    try:
        with open_memory(tmp_path / "own.zm") as memory:
            memory.add_many(STORY)
            memory.retrieve("Miso")
            modes = {p.name: p.stat().st_mode & 0o777 for p in tmp_path.iterdir()}
            assert set(modes.values()) == {0o600}, modes
        modes = {p.suffix: p.stat().st_mode & 0o777 for p in tmp_path.iterdir()}
        assert modes == {".zm": 0o600, ".zmi": 0o600}
        (tmp_path / "own.zm").chmod(0o640)
        with open_memory(tmp_path / "own.zm") as memory:
            memory.add_many(f"More about Miso, part {i}." for i in range(20))
            memory.retrieve("Miso")
        modes = {p.suffix: p.stat().st_mode & 0o777 for p in tmp_path.iterdir()}
        assert modes == {".zm": 0o640, ".zmi": 0o640}
    finally:
        os.umask(before)
