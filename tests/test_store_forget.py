"""Forgetting reaches the bytes on disk, and says so when something keeps it from that."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
import threading
from hashlib import blake2b

import pytest

from zeromem.errors import StoreError
from zeromem.store import Store
from zeromem.times import EventTime
from zeromem.types import Trace


def key_of(name: str) -> bytes:
    """A hash, as feature keys are: those may stay in unused parts of index pages."""
    return blake2b(name.encode(), digest_size=32).digest()


def add(log, *traces: Trace):
    return log.append(traces, keys=[key_of(t.id or t.text) for t in traces])


def bytes_on_disk(path) -> bytes:
    """Every byte in the folder, read by another process.

    Opening and closing the file here would drop this process's locks on it.
    """
    code = "import sys,pathlib;[sys.stdout.buffer.write(p.read_bytes()) for p in " \
           "sorted(pathlib.Path(sys.argv[1]).iterdir())]"  # fmt: skip
    return subprocess.run(
        [sys.executable, "-c", code, str(path.parent)], check=True, capture_output=True
    ).stdout


@pytest.fixture
def path(tmp_path):
    return tmp_path / "f.zm"


def secret(marker: str) -> Trace:
    return Trace(
        f"text {marker} " * 3,
        id=f"id {marker}",
        speaker=f"speaker {marker}",
        session=f"session {marker}",
        title=f"title {marker}",
        source=f"source {marker}",
        time=EventTime.parse("2026-05-03"),
        metadata={f"key {marker}": f"value {marker}"},
    )


def test_no_byte_of_a_forgotten_trace_stays(path):
    with Store.open(path) as store:
        log = store.scope("x")
        add(log, secret("STAYS"), secret("FORGOTTEN"))
        log.set_fingerprint("f")
        log.put_features(
            {
                key_of("id STAYS"): b"vector STAYS",
                key_of("id FORGOTTEN"): b"vector FORGOTTEN" * 999,
            },
            "f",
        )
        assert b"text FORGOTTEN" in bytes_on_disk(path)
        assert log.forget(log.select(ids=["id FORGOTTEN"])) == 1
        raw = bytes_on_disk(path)
        for part in ("text", "id", "speaker", "session", "title", "source", "key", "value"):
            assert f"{part} FORGOTTEN".encode() not in raw
            assert f"{part} STAYS".encode() in raw
        assert b"FORGOTTEN" not in raw
        assert b"vector STAYS" in raw
        assert log.read([1])[0].trace == secret("STAYS")
        assert add(log, secret("FORGOTTEN"))[0].lsn == 3
        store.check()


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("longest", [20, 200])
def test_no_stale_copy_survives_page_splits(path, seed, longest):
    """Interleaved scopes, sizes and deletions; plain DELETE with secure_delete fails this."""
    rng = random.Random(seed * 1000 + longest)
    live: dict[str, dict[int, str]] = {f"scope {i}": {} for i in range(5)}
    dead: list[str] = []
    with Store.open(path) as store:
        for step in range(60):
            name = rng.choice(list(live))
            log = store.scope(name)
            markers = [f"<{rng.getrandbits(64):016x}>" for _ in range(rng.randint(1, 15))]
            batch = [
                Trace(m * rng.randint(1, longest), id=f"i{m}", speaker=f"s{m}") for m in markers
            ]
            for added, marker in zip(add(log, *batch), markers, strict=True):
                live[name][added.lsn] = marker
            log.put_features(
                {key_of(f"i{m}"): m.encode() * rng.randint(1, longest) for m in markers}, "f"
            )
            if step % 4 == 3:
                name = rng.choice(list(live))
                lsns = sorted(live[name])
                gone = rng.sample(lsns, rng.randint(0, len(lsns)))
                store.scope(name).forget(gone)
                dead += [live[name].pop(lsn) for lsn in gone]
        raw = bytes_on_disk(path)
        assert len(dead) > 50
        assert [m for m in dead if m.encode() in raw] == []
        kept = [m for traces in live.values() for m in traces.values()]
        assert all(m.encode() in raw for m in kept)
        store.check()


@pytest.mark.parametrize("seed", [0, 4, 7])
def test_no_stale_copy_survives_page_merges(path, seed):
    """Pages that run empty merge, and keep copies of the rows that moved.

    With these seeds a store that deletes the rows instead of zeroing them leaves 1 to 4 texts.
    """
    rng = random.Random(seed)
    with Store.open(path) as store:
        log = store.scope("x")
        alive: dict[int, str] = {}
        dead: list[str] = []
        for _ in range(60):
            markers = [f"<{rng.getrandbits(64):016x}>" for _ in range(rng.randint(1, 60))]
            batch = [Trace(m * rng.randint(1, 60)) for m in markers]
            alive |= {a.lsn: m for a, m in zip(add(log, *batch), markers, strict=True)}
            gone = rng.sample(sorted(alive), len(alive) // 20)
            log.forget(gone)
            dead += [alive.pop(lsn) for lsn in gone]
        raw = bytes_on_disk(path)
        assert len(dead) > 500
        assert [m for m in dead if m.encode() in raw] == []
        assert all(m.encode() in raw for m in alive.values())


def test_an_emptied_scope_leaves_no_name(path):
    with Store.open(path) as store:
        log, other = store.scope("scope of ANA"), store.scope("scope of BO")
        add(log, Trace("a"))
        add(other, Trace("a"))
        log.set_fingerprint("f")
        log.forget(log.select(everything=True))
        raw = bytes_on_disk(path)
        assert b"ANA" not in raw
        assert b"scope of BO" in raw
        assert store.scopes() == ["scope of BO"]
        add(log, Trace("back"))
        assert store.scopes() == ["scope of ANA", "scope of BO"]
        assert [s.trace.text for s in log.export()] == ["back"]


def test_space_comes_back(path, monkeypatch):
    monkeypatch.setattr("zeromem.store.schema.COMPACT_BYTES", 1 << 16)
    with Store.open(path) as store:
        x, y = store.scope("x"), store.scope("y")
        add(x, *(Trace(f"{i} " + "x" * 5000) for i in range(300)))
        add(y, *(Trace(f"{i} " + "y" * 500) for i in range(50)))
        y.put_features({key_of("3 " + "y" * 500): b"v"}, "f")
        before = store.n_bytes()
        x.forget(x.select(everything=True))
        assert store.n_bytes() < before / 5
        assert [s.trace.text for s in y.export()] == [f"{i} " + "y" * 500 for i in range(50)]
        assert y.features([key_of("3 " + "y" * 500)], "f") == {key_of("3 " + "y" * 500): b"v"}
        assert add(x, Trace("again"))[0].lsn == 301
        store.check()


def test_forget_counts_and_is_idempotent(path):
    with Store.open(path) as store:
        log = store.scope("x")
        add(log, *(Trace(str(i)) for i in range(5)))
        assert log.forget(x for x in (1, 1, 3, 77)) == 2
        assert log.version() == (5, 1, 3)
        assert log.forget([1, 3]) == 0
        assert log.version() == (5, 1, 3)
        assert [r.lsn for r in log.rows()] == [2, 4, 5]
        assert [a.created for a in add(log, Trace("0"), Trace("1"))] == [True, False]
        with pytest.raises(ValueError, match="lsns must be integers"):
            log.forget(["1"])


def test_snapshots_of_the_scope_go_and_no_others(tmp_path):
    path = tmp_path / "we[i]rd*.zm"
    with Store.open(path) as store:
        x, y = store.scope("x"), store.scope("y")
        add(x, Trace("a"))
        assert x.snapshot_path.parent == tmp_path
        assert x.snapshot_path.name.startswith("we[i]rd*.zm.")
        assert x.snapshot_path.suffix == ".zmi"
        mine = [
            x.snapshot_path,
            x.snapshot_path.with_suffix(".encoder.zmi"),
            x.snapshot_path.with_suffix(".zmi.tmp"),
        ]
        for file in (*mine, y.snapshot_path):
            file.write_bytes(b"arrays")
        x.forget([1])
        assert not any(f.exists() for f in mine)
        assert y.snapshot_path.exists()
        mine[0].write_bytes(b"written by somebody late")
        assert x.forget([]) == 0
        assert not mine[0].exists()
    with Store.open(None) as store:
        assert store.scope("x").snapshot_path is None


def test_a_forget_that_fails_has_removed_the_snapshots_first(path, monkeypatch):
    """Killed between its steps, it must not leave a snapshot of what the log has lost."""
    with Store.open(path) as store:
        log = store.scope("x")
        add(log, Trace("a"))
        log.snapshot_path.write_bytes(b"arrays")

        def fail(work):
            assert not log.snapshot_path.exists()
            raise StoreError("disk full")

        monkeypatch.setattr(store._commit, "run", fail)
        with pytest.raises(StoreError, match="disk full"):
            log.forget([1])


def test_a_reader_that_stays_is_named_and_a_second_call_completes(path, monkeypatch):
    monkeypatch.setattr("zeromem.store.store.TRUNCATE_SECONDS", 0.3)
    with Store.open(path) as store:
        log = store.scope("x")
        add(log, secret("FORGOTTEN"), secret("STAYS"))
        reader = sqlite3.connect(path, isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM traces").fetchone()
        with pytest.raises(StoreError, match=r"could not be emptied.*call forget again"):
            log.forget([1])
        assert log.version() == (2, 1, 1)  # it is deleted for every reader to come
        assert b"FORGOTTEN" in bytes_on_disk(path)
        reader.close()
        assert log.forget([]) == 0
        assert b"FORGOTTEN" not in bytes_on_disk(path)


def test_a_reader_that_ends_in_time_is_waited_for(path):
    with Store.open(path) as store:
        log = store.scope("x")
        add(log, secret("FORGOTTEN"), secret("STAYS"))
        reader = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM traces").fetchone()
        threading.Timer(0.3, reader.close).start()
        assert log.forget([1]) == 1
        assert b"FORGOTTEN" not in bytes_on_disk(path)


def test_forgetting_while_others_append_and_read(path):
    with Store.open(path) as store:
        log = store.scope("x")
        add(log, *(secret(f"F{i}F") for i in range(30)))
        stop = threading.Event()
        errors: list[BaseException] = []

        def work(job):
            i = 0
            try:
                while not stop.is_set():
                    i += 1
                    job(i)
            except BaseException as exc:
                errors.append(exc)

        other = store.scope("y")
        jobs = (lambda i: add(other, Trace(f"t{i}")), lambda i: list(other.rows()))
        threads = [threading.Thread(target=work, args=(job,)) for job in jobs]
        for thread in threads:
            thread.start()
        for lsn in range(1, 31, 3):
            assert log.forget([lsn, lsn + 1]) == 2
        stop.set()
        for thread in threads:
            thread.join()
        assert errors == []
        raw = bytes_on_disk(path)
        forgotten = [i for i in range(30) if i % 3 != 2]
        assert [i for i in forgotten if f"F{i}F".encode() in raw] == []
        assert log.version().n_traces == 10
