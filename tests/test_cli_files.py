"""Files in and out of the command line: every format, lossless exports, nothing half written."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import HashEncoder

import zeromem.memory
from zeromem.cli import main
from zeromem.keys import Keys
from zeromem.records import dumps
from zeromem.store import Store
from zeromem.times import EventTime
from zeromem.types import ROLES, Trace

DATA = Path(__file__).parent / "data"


@pytest.fixture(autouse=True)
def _fast_and_alone(monkeypatch, tmp_path):
    encoder = HashEncoder()
    monkeypatch.setattr(zeromem.memory, "load_encoder", lambda source, device: encoder)
    for name in ("STORE", "SCOPE", "ENCODER", "ZONE"):
        monkeypatch.delenv(f"ZEROMEM_{name}", raising=False)
    monkeypatch.setenv("ZEROMEM_ANNOTATOR", "rules")
    monkeypatch.setenv("ZEROMEM_DEVICE", "cpu")
    monkeypatch.chdir(tmp_path)


def run(*argv):
    return main([str(a) for a in argv])


def traces(store="memory.zm", scope="default"):
    with Store.open(store, create=False) as opened:
        return [s.trace for s in opened.scope(scope).export()]


def sizes(store="memory.zm"):
    with Store.open(store, create=False) as opened:
        return {name: opened.scope(name).stats()["traces"] for name in opened.scopes()}


def feed(monkeypatch, content: bytes):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


# ---- import


def test_json_lines(capsys):
    assert run("import", DATA / "traces.jsonl", "--json") == 0
    assert json.loads(capsys.readouterr().out) == [{"scope": "default", "traces": 4, "added": 4}]
    assert [t.id for t in traces()[:3]] == ["t1", "t2", "t3"]
    assert run("import", DATA / "traces.jsonl") == 0
    assert capsys.readouterr().out == "default: 4 traces, 0 new\n"
    assert sizes() == {"default": 4}


def test_chat(capsys):
    assert run("import", DATA / "chat_tiny.json", "--scope", "mara") == 0
    assert [t.role for t in traces(scope="mara")] == ["user", "assistant", "tool", "assistant"]
    assert {t.source for t in traces(scope="mara")} == {"chat_tiny.json"}
    assert run("import", DATA / "chat_tiny.json", "--scope", "k", "--keep-system",
               "--source", "log") == 0  # fmt: skip
    kept = traces(scope="k")
    assert (kept[0].role, kept[0].text) == ("document", "You are terse.")
    assert {t.source for t in kept} == {"log"}


@pytest.mark.parametrize(
    ("options", "expected"),
    [((), {"tiny-1", "tiny-2"}), (("--scope", "lab"), {"lab/tiny-1", "lab/tiny-2"})],
)
def test_each_conversation_of_a_file_gets_a_scope(options, expected):
    assert run("import", DATA / "locomo_tiny.json", *options) == 0
    assert set(sizes()) == expected
    assert all(sizes().values())


def test_one_sample_goes_into_the_scope():
    assert run("import", DATA / "locomo_tiny.json", "--sample", "tiny-2", "--scope", "x") == 0
    alone = traces(scope="x")
    assert run("import", DATA / "locomo_tiny.json") == 0
    assert alone == traces(scope="tiny-2") != traces(scope="tiny-1")


def test_the_only_conversation_of_a_file_goes_into_the_scope():
    samples = json.loads((DATA / "locomo_tiny.json").read_text(encoding="utf-8"))
    Path("one.json").write_text(json.dumps(samples[:1]), encoding="utf-8")
    assert run("import", "one.json") == 0
    assert set(sizes()) == {"default"}


def test_beam_and_a_forced_format():
    assert run("import", DATA / "beam_tiny.jsonl", "--format", "beam") == 0
    assert sizes() == {"tiny-a": 4, "tiny-b": 2}


def test_stdin(monkeypatch, capsys):
    feed(monkeypatch, (DATA / "traces.jsonl").read_bytes())
    assert run("import", "-") == 0
    assert sizes() == {"default": 4}


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("nowhere.json",), "nowhere.json: No such file"),
        ((DATA / "traces.jsonl", "--sample", "x"), "--sample goes with files of several"),
        ((DATA / "locomo_tiny.json", "--sample", "x"), "'tiny-1', 'tiny-2', got 'x'"),
        ((DATA / "traces.jsonl", "--format", "locomo"), "traces.jsonl: line 1: field"),
        (("bad.jsonl",), "bad.jsonl: line 2: field 'text'"),
        (("naive.jsonl",), "naive.jsonl: line 1: field 'time': time"),
        (("blank.jsonl",), "trace 0: text must hold something"),
    ],
)  # fmt: skip
def test_what_cannot_be_imported(capsys, argv, message):
    Path("bad.jsonl").write_text('{"text": "one"}\n{"text": 2}\n', encoding="utf-8")
    Path("naive.jsonl").write_text('{"text": "a", "time": "2026-01-01T10:00"}', encoding="utf-8")
    Path("blank.jsonl").write_text('{"text": " "}', encoding="utf-8")
    assert run("import", *argv) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.count("\n") == 1
    assert "Traceback" not in err


def test_zone_of_imported_times():
    Path("naive.jsonl").write_text('{"text": "a", "time": "2026-01-01T10:00"}', encoding="utf-8")
    assert run("import", "naive.jsonl", "--zone", "Asia/Tokyo") == 0
    assert traces()[0].time == EventTime.parse("2026-01-01T10:00+09:00")


def test_an_import_that_broke_off_is_simply_run_again(monkeypatch, capsys):
    lines = [json.dumps({"text": f"note {i}"}) for i in range(1200)]
    Path("notes.jsonl").write_text("\n".join([*lines[:1100], "{", *lines[1100:]]))
    assert run("import", "notes.jsonl") == 1
    n_before = sizes()["default"]
    assert 0 < n_before <= 1100
    Path("notes.jsonl").write_text("\n".join(lines))
    capsys.readouterr()
    assert run("import", "notes.jsonl", "--json") == 0
    (done,) = json.loads(capsys.readouterr().out)
    assert done == {"scope": "default", "traces": 1200, "added": 1200 - n_before}
    assert [t.text for t in traces()] == [f"note {i}" for i in range(1200)]


# ---- export

TEXT = st.text(
    st.characters(codec=None, exclude_categories=()) | st.sampled_from("\0\ud800\udfff\u2028\r\n"),
    min_size=1,
)
NAME = st.none() | TEXT
SCALAR = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
)
JSON = st.recursive(
    SCALAR, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3)
)
TIMES = st.none() | st.sampled_from(
    ["2019", "2026-05", "2026-05-03", "2026-05-03T10:00+02:00", "2026-05-03T10:00:07Z",
     "0001-01-01T00:00Z", "2026-05-03T10:00:07-11:30"]
).map(EventTime.parse)  # fmt: skip
TRACES = st.builds(
    Trace,
    text=TEXT.filter(str.strip),
    id=NAME,
    role=st.sampled_from(ROLES),
    speaker=NAME,
    session=NAME,
    time=TIMES,
    title=NAME,
    source=NAME,
    metadata=st.dictionaries(TEXT, JSON, max_size=3),
)


@settings(max_examples=25)
@given(st.lists(TRACES, max_size=6, unique_by=lambda t: t.id or id(t)))
def test_export_and_import_are_lossless(tmp_path_factory, given_traces):
    folder = tmp_path_factory.mktemp("lossless")
    a, b, file = (folder / name for name in ("a.zm", "b.zm", "a.jsonl"))
    with Store.open(a) as store:
        store.scope("default").append(given_traces, keys=[b"k"] * len(given_traces))
    stored = traces(a)
    assert run("export", file, "--store", a) == 0
    assert run("import", file, "--store", b) == 0
    if stored:
        assert traces(b) == stored
        assert [t.time and t.time.precision for t in traces(b)] == [
            t.time and t.time.precision for t in stored
        ]


def test_export_goes_to_stdout_as_utf_8(capfdbinary):
    assert run("add", "größer 猫 \udcff", "--id", "x") == 0
    capfdbinary.readouterr()
    assert run("export") == 0
    out = capfdbinary.readouterr().out
    assert out.endswith(b"\n")
    record = json.loads(out)
    assert record["text"] == "größer 猫 \udcff"
    assert "猫".encode() not in out  # with a lone surrogate the whole line is escaped
    assert run("add", "größer 猫") == 0
    capfdbinary.readouterr()
    assert run("export") == 0
    assert "größer 猫".encode() in capfdbinary.readouterr().out


def test_export_into_import_copies_a_scope(monkeypatch, capfdbinary):
    assert run("import", DATA / "traces.jsonl", "--scope", "a") == 0
    capfdbinary.readouterr()
    assert run("export", "--scope", "a") == 0
    feed(monkeypatch, capfdbinary.readouterr().out)
    assert run("import", "-", "--scope", "b") == 0
    assert traces(scope="a") == traces(scope="b")


def test_a_file_is_replaced_whole_or_not_at_all(monkeypatch, capsys):
    assert run("import", DATA / "traces.jsonl") == 0
    Path("out.jsonl").write_text("the old one", encoding="utf-8")
    import zeromem.cli.transfer as module

    real, n = module.to_json_line, iter(range(9))

    def full_disk(trace, **options):
        if next(n) == 2:
            raise OSError(28, "No space left on device", "out.jsonl")
        return real(trace, **options)

    monkeypatch.setattr(module, "to_json_line", full_disk)
    assert run("export", "out.jsonl") == 1
    assert "out.jsonl: No space left" in capsys.readouterr().err
    assert Path("out.jsonl").read_text(encoding="utf-8") == "the old one"
    assert {p.name for p in Path().iterdir() if "out" in p.name} == {"out.jsonl"}
    monkeypatch.setattr(module, "to_json_line", real)
    assert run("export", "out.jsonl", "--json") == 0
    assert json.loads(capsys.readouterr().out)["traces"] == 4
    assert len(Path("out.jsonl").read_bytes().splitlines()) == 4


@pytest.mark.parametrize("target", ["memory.zm", "./memory.zm", "."])
def test_export_never_overwrites_the_store(capsys, target):
    assert run("import", DATA / "traces.jsonl") == 0
    assert run("export", target) == 1
    assert "name another" in capsys.readouterr().err
    assert sizes() == {"default": 4}


def test_export_of_an_unknown_scope_says_so(capsys):
    assert run("import", DATA / "traces.jsonl") == 0
    capsys.readouterr()
    assert run("export", "--scope", "typo") == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert "'typo' holds nothing; scopes: default" in err


@pytest.mark.parametrize("encoding", ["utf-8", "UTF8", "latin-1", "ascii", None])
def test_json_fits_the_stream(encoding):
    value = {"text": "größer 猫 😀 \udcff"}
    text = dumps(value, encoding)
    data = text.encode(encoding or "ascii", "backslashreplace")
    assert json.loads(data.decode(encoding or "ascii")) == value


def test_a_backup_is_made_and_put_back(capsys):
    assert run("import", DATA / "traces.jsonl") == 0
    before = traces()
    capsys.readouterr()
    assert run("backup", "b.zm") == 0
    n_bytes = Path("b.zm").stat().st_size
    assert (
        capsys.readouterr().out
        == f"4 traces, {n_bytes:,} bytes written to {Path('b.zm').resolve()}\n"
    )
    assert run("forget", "--everything") == 0
    assert run("backup", "b.zm") == 1  # a backup is not lost by a slip
    assert "--force" in capsys.readouterr().err
    assert run("restore", "b.zm") == 1
    assert sizes() == {}
    assert run("restore", "b.zm", "--force", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {"file": str(Path("memory.zm").resolve()), "traces": 4, "bytes": n_bytes}
    assert traces() == before
    assert run("restore", "b.zm", "--store", "new.zm") == 0
    assert traces("new.zm") == before
    assert run("backup", "b.zm", "--force", "--read-only") == 0
    assert traces("b.zm") == before


def test_keys_are_made_listed_and_revoked(capsys):
    assert (
        run("keys", "create", "--tenant", "ana", "--name", "laptop", "--read-only", "--rate", "2")
        == 0
    )
    text, note = capsys.readouterr()
    text = text.removesuffix("\n")
    key_id, secret = text.split("_")[1:]
    assert "only time" in note
    assert secret not in note
    with Keys("memory.zm") as keys:
        key = keys.find(text)
        assert (key.tenant, key.name, key.read_only, key.rate) == ("ana", "laptop", True, 2.0)
        assert run("--json", "keys", "create", "--all-tenants") == 0
        made = json.loads(capsys.readouterr().out)
        assert keys.find(made["key"]).tenant is made["tenant"] is None
        assert run("keys", "list") == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line.split()[0] for line in lines] == [key_id, made["id"]]
        assert lines[0].endswith("  'ana'  read-only  2/s  laptop")
        assert lines[1].endswith("  all tenants")
        assert run("keys", "revoke", key_id) == 0
        assert capsys.readouterr().out == f"{key_id}: revoked\n"
        assert keys.find(text) is None
        assert run("keys", "revoke", key_id) == 1
        assert run("keys", "list", "--json", "--read-only") == 0
    out = capsys.readouterr().out
    assert [k["id"] for k in json.loads(out)] == [key_id, made["id"]]
    assert [k["revoked_at"] is None for k in json.loads(out)] == [False, True]
    assert secret not in out
    assert not Path("memory.zm").exists()  # keys may come first


def test_no_keys_are_told(capsys):
    assert run("keys", "list") == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert "there are no keys in" in err
    assert not list(Path().iterdir())
