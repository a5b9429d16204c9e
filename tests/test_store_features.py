"""The feature cache: shared by content, released when nobody needs it, scoped all the same."""

from __future__ import annotations

import sqlite3

import pytest

from zeromem.errors import InvalidInputError
from zeromem.store import Store
from zeromem.types import Trace


@pytest.fixture
def path(tmp_path):
    return tmp_path / "f.zm"


@pytest.fixture
def store(path):
    with Store.open(path) as opened:
        yield opened


def add(log, *texts: str):
    return log.append([Trace(t) for t in texts], keys=[b"key " + t.encode() for t in texts])


def n_cached(path) -> int:
    con = sqlite3.connect(path)
    try:
        return con.execute("SELECT count(*) FROM features").fetchone()[0]
    finally:
        con.close()


A, B, C = b"key a", b"key b", b"key c"


def test_put_get_and_missing(store):
    log = store.scope("x")
    add(log, "a", "b", "c")
    assert log.missing_features("f") == [(1, A), (2, B), (3, C)]
    assert log.put_features({A: b"1", C: b"", b"no such": b"x"}, "f") == 2
    assert log.features([A, B, C, b"no such", A], "f") == {A: b"1", C: b""}
    assert log.features([A], "other") == {}
    assert log.missing_features("f") == [(2, B)]
    assert log.missing_features("other") == [(1, A), (2, B), (3, C)]


def test_a_stored_feature_is_authoritative(store):
    log = store.scope("x")
    add(log, "a")
    log.put_features({A: b"first"}, "f")
    assert log.put_features({A: b"second"}, "f") == 0
    assert log.features([A], "f") == {A: b"first"}


def test_scopes_share_by_content_but_reach_only_their_own(store):
    x, y = store.scope("x"), store.scope("y")
    add(x, "a")
    add(y, "c")
    x.put_features({A: b"1"}, "f")
    assert y.features([A], "f") == {}
    assert y.put_features({A: b"forged", B: b"2"}, "f") == 0
    add(y, "a")
    assert y.features([A], "f") == {A: b"1"}
    assert y.missing_features("f") == [(1, C)]


def test_forget_releases_only_what_nobody_needs(store, path):
    x, y = store.scope("x"), store.scope("y")
    add(x, "a", "b")
    x.append([Trace("a again")], keys=[A])
    add(y, "b")
    for log in (x, y):
        log.set_fingerprint("f")
        log.put_features({A: b"1", B: b"2"}, "f")
    x.forget([1, 2])
    assert x.features([A], "f") == {A: b"1"}  # the third trace still refers to it
    assert y.features([B], "f") == {B: b"2"}
    x.forget([3])
    assert n_cached(path) == 1
    y.forget([1])
    assert n_cached(path) == 0


def test_a_model_that_no_remaining_scope_uses_goes_too(store, path):
    x, y = store.scope("x"), store.scope("y")
    for log, model in ((x, "f"), (y, "g")):
        add(log, "a")
        log.set_fingerprint(model)
        log.put_features({A: model.encode()}, model)
    assert n_cached(path) == 2
    x.forget([1])
    assert y.features([A], "g") == {A: b"g"}
    assert n_cached(path) == 1


def test_features_of_a_trace_forgotten_meanwhile_are_not_stored(store, path):
    log = store.scope("x")
    add(log, "a")
    log.forget([1])
    assert log.put_features({A: b"late"}, "f") == 0
    assert n_cached(path) == 0


def test_fingerprint_and_drop(store, path):
    x, y = store.scope("x"), store.scope("y")
    assert x.fingerprint() is None
    add(x, "a", "b")
    add(y, "a")
    x.set_fingerprint("f\ud800")
    assert (x.fingerprint(), y.fingerprint()) == ("f\ud800", None)
    y.set_fingerprint("f")
    x.set_fingerprint("f")
    x.put_features({A: b"1", B: b"2"}, "f")
    assert x.drop_features() == 1
    assert y.features([A], "f") == {A: b"1"}
    assert n_cached(path) == 1
    assert y.drop_features() == 0
    x.set_fingerprint("g")
    assert y.drop_features() == 1
    assert n_cached(path) == 0


def test_an_emptied_scope_forgets_its_fingerprint(store):
    log = store.scope("x")
    add(log, "a")
    log.set_fingerprint("f")
    log.forget([1])
    assert log.fingerprint() is None
    assert store.scopes() == []


def test_many_and_large(store):
    log = store.scope("x")
    texts = [str(i) for i in range(3000)]
    add(log, *texts)
    data = {b"key " + t.encode(): bytes([i % 256]) * 300 for i, t in enumerate(texts)}
    data[b"key 7"] = b"\0\1" * 5_000_000
    assert log.put_features(data, "f") == 3000
    assert log.features(list(data), "f") == data


@pytest.mark.parametrize("bad", [{"k": b"x"}, {b"k": "x"}])
def test_only_bytes(store, bad):
    with pytest.raises(InvalidInputError, match="features must map bytes to bytes"):
        store.scope("x").put_features(bad, "f")
