"""API keys: made once, found only by who has them, gone everywhere once revoked."""

from __future__ import annotations

import hmac
import os
import re
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_store_open import ReadOnlyFolder

import zeromem
from zeromem.errors import (
    CorruptStoreError,
    InvalidInputError,
    ReadOnlyStoreError,
    SchemaTooNewError,
    StoreError,
)
from zeromem.keys import MAX_NAME, Keys, check_tenant
from zeromem.store import Store, restore

ENV = {**os.environ, "PYTHONPATH": str(Path(zeromem.__file__).parents[1])}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "k.zm"


@pytest.fixture
def keys(path):
    with Keys(path) as keys:
        yield keys


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    """Keys that hold one, with its text."""
    with Keys(tmp_path_factory.mktemp("keys") / "k.zm") as keys:
        yield keys, *keys.create("ana")


def elsewhere(code, path, *argv):
    """Run code with ``keys`` in another process; give what it printed."""
    opened = f"import sys\nfrom zeromem.keys import Keys\nkeys = Keys(sys.argv[1])\n{code}"
    command = [sys.executable, "-c", opened, str(path), *argv]
    done = subprocess.run(command, env=ENV, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_key_is_found_by_its_text(keys):
    before = datetime.now(UTC)
    ana, text = keys.create("ana", name="laptop", read_only=True, rate=2)
    operator, other = keys.create(None)
    assert re.fullmatch(r"zm_[0-9a-f]{16}_[0-9a-f]{64}", text)
    assert text.split("_")[1] == ana.id
    assert (ana.tenant, ana.name, ana.read_only, ana.rate) == ("ana", "laptop", True, 2.0)
    assert (operator.tenant, operator.name, operator.read_only) == (None, "", False)
    assert operator.rate is None
    assert before <= ana.created_at <= operator.created_at <= datetime.now(UTC)
    assert keys.find(text) == ana
    assert keys.find(other) == operator
    assert keys.list() == (ana, operator)


def test_keys_survive_and_no_two_are_alike(path, keys):
    made = dict(keys.create("ana")[::-1] for _ in range(50))
    assert len(made) == 50
    assert len({key.id for key in made.values()}) == 50
    assert len({text.split("_")[2] for text in made}) == 50
    keys.close()
    with Keys(path) as again:
        assert {text: again.find(text) for text in made} == made


def test_a_revoked_key_is_gone_at_once_and_stays_listed(path, keys):
    key, text = keys.create("ana")
    _, other = keys.create("ben")
    with Keys(path) as second:
        assert second.find(text) == key
        assert keys.revoke(key.id) is True
        assert keys.find(text) is second.find(text) is None
        assert keys.revoke(key.id) is second.revoke(key.id) is False
        assert second.find(other).tenant == "ben"
    assert [k.revoked_at is None for k in keys.list()] == [False, True]
    assert keys.list()[0].revoked_at >= key.created_at
    for unknown in ("", "0" * 16, "x'; DROP TABLE keys; --"):
        assert keys.revoke(unknown) is False
    assert len(keys.list()) == 2


def test_other_processes_are_seen_at_the_next_call(path, keys):
    assert keys.list() == ()
    text = elsewhere("print(keys.create('ana')[1])", path)
    assert keys.find(text).tenant == "ana"
    elsewhere("assert keys.revoke(sys.argv[2])", path, text.split("_")[1])
    assert keys.find(text) is None
    own = keys.create("ben")[1]
    assert elsewhere("print(keys.find(sys.argv[2]).tenant)", path, own) == "ben"
    keys.revoke(own.split("_")[1])
    assert elsewhere("print(keys.find(sys.argv[2]))", path, own) == "None"


def test_processes_and_threads_create_at_once(path, keys):
    code = "for _ in range(40): print(keys.create('far')[1])"
    far = []
    threads = [
        threading.Thread(target=lambda: far.extend(elsewhere(code, path).splitlines()))
        for _ in range(2)
    ]
    near, wrong = [], []

    def work():
        for _ in range(30):
            key, text = keys.create("near")
            near.append(text)
            if keys.find(text) != key:
                wrong.append(text)

    threads += [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(near) == 90
    assert len(far) == 80
    assert {keys.find(t).tenant for t in near} == {"near"}
    assert {keys.find(t).tenant for t in far} == {"far"}


def test_a_killed_writer_leaves_what_can_be_read(path, keys):
    code = "print('up', flush=True)\nwhile True:\n    print(keys.create('ana')[1], flush=True)\n"
    opened = f"import sys\nfrom zeromem.keys import Keys\nkeys = Keys(sys.argv[1])\n{code}"
    texts = []
    for n in range(4):
        command = [sys.executable, "-c", opened, str(path)]
        with subprocess.Popen(command, env=ENV, stdout=subprocess.PIPE, text=True) as writer:
            writer.stdout.readline()
            time.sleep(0.02 * (n + 1))
            writer.kill()
            texts += [line.strip() for line in writer.stdout if line.endswith("\n")]
        assert all(keys.find(text).tenant == "ana" for text in texts)
    assert texts


# ---- what is on disk


def test_the_file_is_its_owners_and_holds_no_secret(path, keys):
    old = os.umask(0)
    try:
        key, text = keys.create("ana", name="laptop")
    finally:
        os.umask(old)
    assert [p.name for p in path.parent.iterdir()] == ["k.zm.keys"]
    assert keys.path == path.with_name("k.zm.keys")
    assert stat.S_IMODE(keys.path.stat().st_mode) == 0o600
    data = keys.path.read_bytes()
    secret = text.split("_")[2]
    for part in (text, secret, secret[:16], secret[-16:]):
        assert part.encode() not in data
    assert bytes.fromhex(secret) not in data
    assert key.id.encode() in data
    for shown in (repr(keys), repr(key), repr(keys.list())):
        assert secret not in shown


def test_asking_makes_no_file(path, keys):
    assert keys.find("zm_x") is None
    assert keys.list() == ()
    assert keys.revoke("x") is False
    assert list(path.parent.iterdir()) == []


def test_a_removed_or_replaced_file_is_noticed(path, keys):
    _, text = keys.create("ana")
    with Keys(path.with_name("other.zm")) as others:
        _, other = others.create("ben")
    aside = keys.path.with_name("aside")
    keys.path.rename(aside)
    assert keys.find(text) is None
    assert keys.list() == ()
    aside.with_name("other.zm.keys").rename(keys.path)
    assert keys.find(text) is None
    assert keys.find(other).tenant == "ben"
    aside.replace(keys.path)
    assert keys.find(text).tenant == "ana"
    assert keys.find(other) is None


def test_a_restored_backup_brings_no_revoked_key_back(path, keys, tmp_path):
    key, text = keys.create("ana")
    with Store.open(path) as store:
        store.backup(tmp_path / "b.zm")
    keys.revoke(key.id)
    restore(tmp_path / "b.zm", path, overwrite=True)
    assert keys.find(text) is None
    with Keys(tmp_path / "b.zm") as of_the_backup:
        assert of_the_backup.list() == ()


@pytest.mark.parametrize("content", [b"hello" * 50, b"\xff" * 9000])
def test_a_damaged_file_is_told_and_left_alone(keys, content):
    keys.path.write_bytes(content)
    for call in (lambda: keys.find("x"), keys.list, lambda: keys.create("ana")):
        with pytest.raises(CorruptStoreError, match=r"k\.zm\.keys.*make the keys anew"):
            call()
    assert keys.path.read_bytes() == content


def test_an_empty_file_has_no_keys_yet(keys):
    keys.path.touch()  # as a process leaves it that is killed while it makes one
    assert keys.find("x") is None
    _, text = keys.create("ana")
    assert keys.find(text)


def test_files_of_other_programs_and_versions(path, keys):
    keys.create("ana")
    with sqlite3.connect(keys.path) as con:
        con.execute("PRAGMA user_version = 9")
    con.close()
    with pytest.raises(SchemaTooNewError, match="version 9"):
        keys.list()
    keys.path.unlink()
    with sqlite3.connect(keys.path) as con:
        con.execute("CREATE TABLE mine (x)")
    con.close()
    for call in (keys.list, lambda: keys.create("ana")):
        with pytest.raises(CorruptStoreError, match="another program's database"):
            call()


def test_a_folder_that_may_only_be_read(path, keys, tmp_path):
    key, text = keys.create("ana")
    with ReadOnlyFolder(tmp_path, tmp_path / "ro") as folder:
        with Keys(folder / "k.zm") as still:
            assert still.find(text) == key
            for call in (lambda: still.create("ben"), lambda: still.revoke(key.id)):
                with pytest.raises(ReadOnlyStoreError, match=r"k\.zm\.keys"):
                    call()
            assert still.find(text) == key
        with Keys(folder / "new.zm") as none, pytest.raises(ReadOnlyStoreError, match="new.zm"):
            none.create("ben")


def test_a_folder_that_is_not_there(tmp_path):
    with Keys(tmp_path / "no" / "k.zm") as keys:
        assert keys.find("x") is None
        with pytest.raises(StoreError, match=r"k\.zm\.keys.*check the folder"):
            keys.create("ana")


# ---- finding


@given(
    st.one_of(
        st.text(), st.binary(), st.integers(), st.none(), st.lists(st.text()),
        st.from_regex(r"\Azm_[0-9a-f]{16}_[0-9a-f]{64}\Z"), st.text("zm_0af\0\ud800é", min_size=60),
    )
)  # fmt: skip
def test_garbage_finds_nothing(one, text):
    keys, _, _ = one
    assert keys.find(text) is None


@given(st.data())
def test_no_near_miss_is_found(one, data):
    keys, key, text = one
    at = data.draw(st.integers(0, len(text)))
    change = data.draw(st.sampled_from(["cut", "insert", "replace", "case", "space"]))
    other = {
        "cut": text[:at], "insert": text[:at] + data.draw(st.characters()) + text[at:],
        "replace": text[:at] + data.draw(st.characters()) + text[at + 1 :],
        "case": text.upper(), "space": f" {text}",
    }[change]  # fmt: skip
    assert keys.find(other) == (key if other == text else None)


def test_the_same_work_for_known_and_unknown(keys, monkeypatch):
    key, text = keys.create("ana")
    revoked, gone = keys.create("ana")
    keys.revoke(revoked.id)
    compared = []
    original = hmac.compare_digest

    def counted(a, b):
        compared.append((len(a), len(b)))
        return original(a, b)

    monkeypatch.setattr("zeromem.keys.hmac.compare_digest", counted)
    for asked in (
        text, gone, f"zm_{key.id}_{'0' * 64}", f"zm_{'0' * 16}_{'0' * 64}", f"{text}0",
        "", "nothing", "é", "x" * 10_000, None, 3,
    ):  # fmt: skip
        compared.clear()
        assert keys.find(asked) == (key if asked == text else None)
        assert compared == [(32, 32)]


def test_finding_is_cheap(keys):
    _, text = keys.create("ana")
    keys.find(text)
    rounds = []
    for _ in range(20):
        start = time.perf_counter()
        for _ in range(200):
            keys.find(text)
        rounds.append((time.perf_counter() - start) / 200)
    assert min(rounds) < 60e-6  # about 15 of them on the machine where it was written


# ---- what a key may be made of


@pytest.mark.parametrize(
    "tenant",
    ["a", "Ana", "ana@example.org", "日本", "a b", "..", "x" * MAX_NAME, "\u00e9", "a:b\\c"],
)
def test_names_of_tenants(keys, tenant):
    _, text = keys.create(tenant)
    assert keys.find(text).tenant == check_tenant(tenant) == tenant


@pytest.mark.parametrize(
    ("tenant", "message"),
    [
        ("", "must not be empty"), ("a/b", "no '/'"), ("/", "no '/'"),
        ("x" * (MAX_NAME + 1), "at most 128 characters, got 129"),
        (" a", r"white space.*give 'a'"), ("a\u00a0", "white space"), (" ", "white space"),
        ("a\0b", "control characters"), ("a\nb", "control characters"), ("\x7f", "control"),
        ("a\u2028b", "control characters"), ("a\ud800", r"remove '\\ud800'"),
        ("e\u0301", r"normal form C.*give '\\xe9'"), ("\u212b", "normal form C"),
        (3, "must be a str, got 3"), (b"ana", "must be a str"), (["ana"], "must be a str"),
    ],
)  # fmt: skip
def test_names_that_no_tenant_has(path, keys, tenant, message):
    with pytest.raises(InvalidInputError, match=message):
        keys.create(tenant)
    with pytest.raises(InvalidInputError, match=f"header X must|header X .*{message}"):
        check_tenant(tenant, "header X")
    assert not keys.path.exists()


_slashed = st.text("ab/", max_size=4)


@given(_slashed, _slashed, _slashed, _slashed)
def test_no_tenants_scope_is_anothers(a, x, b, y):
    """What "TENANT/SCOPE" stands on: equal scopes of tenants mean equal tenants."""
    try:
        check_tenant(a)
        check_tenant(b)
    except InvalidInputError:
        return
    assert (f"{a}/{x}" == f"{b}/{y}") == ((a, x) == (b, y))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": 3}, "name must be a str"), ({"name": "a\nb"}, "name must have no control"),
        ({"name": "x" * 129}, "name must have at most 128"), ({"read_only": 1}, "read_only must"),
        ({"rate": 0}, "rate must be above 0"), ({"rate": -1.5}, "got -1.5"),
        ({"rate": float("nan")}, "rate must be above 0"), ({"rate": float("inf")}, "at most 1e"),
        ({"rate": 10**400}, "rate must be above 0"), ({"rate": True}, "rate must be requests"),
        ({"rate": "5"}, "rate must be requests per second"),
    ],
)  # fmt: skip
def test_other_options_that_are_refused(keys, options, message):
    with pytest.raises(InvalidInputError, match=message):
        keys.create("ana", **options)
    assert not keys.path.exists()


@pytest.mark.parametrize("bad", [None, 3, b"x", ["x"]])
def test_ids_that_are_no_strings(keys, bad):
    with pytest.raises(InvalidInputError, match="id must be a str"):
        keys.revoke(bad)


@pytest.mark.parametrize("bad", ["", "a\0b", 3, None, ":memory:"])
def test_stores_that_are_no_file_names(bad):
    with pytest.raises(InvalidInputError, match="store must be the name of a file"):
        Keys(bad)
