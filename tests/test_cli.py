"""The command line: every command, from arguments to what is printed and what is on disk."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import get_args

import pytest
from support import HashEncoder

import zeromem.memory
from zeromem.cli import main
from zeromem.importers import Format

DATA = Path(__file__).parent / "data"


@pytest.fixture(autouse=True)
def _fast_and_alone(monkeypatch, tmp_path):
    """Words in place of a model, an empty folder, no settings from outside."""
    made = {}

    def load(source, device):
        return made.setdefault(source, HashEncoder(source or "hash"))

    monkeypatch.setattr(zeromem.memory, "load_encoder", load)
    for name in ("STORE", "SCOPE", "ENCODER", "ANNOTATOR", "DEVICE", "ZONE"):
        monkeypatch.delenv(f"ZEROMEM_{name}", raising=False)
    monkeypatch.setenv("ZEROMEM_ANNOTATOR", "rules")
    monkeypatch.setenv("ZEROMEM_DEVICE", "cpu")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def run(capsys):
    """Run a command that works; give what it printed."""

    def call(*argv):
        code = main([str(a) for a in argv])
        out, err = capsys.readouterr()
        assert code == 0, err
        return out

    return call


@pytest.fixture
def data(run):
    """Run a command with ``--json``; give the value it printed."""
    return lambda *argv: json.loads(run(*argv, "--json"))


@pytest.fixture
def fail(capsys):
    """Run a command that fails; give the exit code and its one line on stderr."""

    def call(*argv):
        code = main([str(a) for a in argv])
        out, err = capsys.readouterr()
        assert code != 0
        assert out == ""
        assert err.startswith("zeromem: ")
        assert err.count("\n") == 1
        return code, err

    return call


@pytest.fixture
def story(run):
    """Three people, three sessions, from March to May."""
    said = [
        ("a1", "Ana", "s1", "2026-03-02T09:00Z", "Miso the kitten sleeps in my bicycle basket."),
        ("a2", "Ben", "s1", "2026-03-02T09:05Z", "My kitten is called Tofu and eats cables."),
        ("a3", "Ana", "s2", "2026-04-10", "The kitten learned to open the kitchen door."),
        ("a4", "Carla", "s3", "2026-05", "I play chess with the kitten on my knees."),
    ]
    lines = [
        json.dumps({"id": i, "speaker": who, "session": s, "time": t, "text": text})
        for i, who, s, t, text in said
    ]
    Path("story.jsonl").write_text("\n".join(lines), encoding="utf-8")
    run("import", "story.jsonl")


def ids(found):
    return {item["id"] for item in found["evidence"]}


# ---- add, search, ask


def test_what_was_added_is_found_with_its_provenance(data):
    added = data(
        "add", "Miso is my new kitten!", "--id", "m1", "--speaker", "Ana", "--session", "s1",
        "--time", "2026-05-03T10:00+02:00", "--source", "chat", "--title", "news",
        "--metadata", '{"mood": "glad"}',
    )  # fmt: skip
    assert added == {"id": "m1", "lsn": 1, "created": True}
    (item,) = data("search", "What is the kitten called?")["evidence"]
    assert item["text"] == "Miso is my new kitten!"
    assert (item["start"], item["end"]) == (0, 22)
    given = {k: item[k] for k in ("id", "role", "speaker", "session", "time", "source", "title")}
    assert given == {
        "id": "m1", "role": "user", "speaker": "Ana", "session": "s1",
        "time": "2026-05-03T10:00+02:00", "source": "chat", "title": "news",
    }  # fmt: skip
    assert item["metadata"] == {"mood": "glad"}
    assert item["why"].startswith("main #1")
    assert item["main_rank"] == 1


def test_adding_again_says_so(run, data):
    assert data("add", "The tide turns at noon.")["created"] is True
    assert data("add", "The tide turns at noon.")["created"] is False
    assert "was there already" in run("add", "The tide turns at noon.")
    assert data("stats")["traces"] == 1


def test_text_for_people_names_source_time_and_reason(run, story):
    out = run("search", "Where does Miso the kitten sleep?", "-k", "1", "--no-closure")
    assert "  1. a1  2026-03-02T09:00+00:00  Ana  session s1\n" in out
    assert "Miso the kitten sleeps in my bicycle basket." in out
    assert "why: main #1" in out
    assert "route: " in out
    assert "time: " in out


def test_add_reads_stdin(monkeypatch, data):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("two\nlínes\n".encode())))
    data("add", "-")
    (item,) = data("search", "línes")["evidence"]
    assert item["text"] == "two\nlínes"


def test_stdin_that_is_no_text_is_refused(monkeypatch, fail):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff\xfe")))
    assert "UTF-8" in fail("add", "-")[1]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), {"a1", "a2", "a3", "a4"}),
        (("--session", "s1"), {"a1", "a2"}),
        (("--session", "s1", "--session", "s3"), {"a1", "a2", "a4"}),
        (("--speaker", "ana"), {"a1", "a3"}),
        (("--source", "nowhere"), set()),
        (("--role", "assistant"), set()),
        (("--role", "assistant", "--role", "user"), {"a1", "a2", "a3", "a4"}),
        (("--after", "2026-04"), {"a3", "a4"}),
        (("--before", "2026-04-10"), {"a1", "a2"}),
        (("--after", "2026-03-03", "--before", "2026-05"), {"a3"}),
        (("--as-of", "lsn:2"), {"a1", "a2"}),
        (("--as-of", "2026-01-01T00:00Z"), set()),
        (("--speaker", "Ana", "--session", "s2"), {"a3"}),
    ],
)
@pytest.mark.parametrize("command", ["search", "explain"])
def test_boundaries(data, story, command, options, expected):
    assert ids(data(command, "the kitten", *options)) == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), {}),
        (("-k", "7"), {"k": 7}),
        (("--token-budget", "90"), {"token_budget": 90}),
        (("--view", "graph"), {"view": "graph"}),
        (("--no-closure",), {"closure": False}),
        (("--no-calibration",), {"calibration": False}),
        (("--asked-at", "2026-05-20"), {"reference_time": "2026-05-20"}),
        (("--session", "a", "--session", "b"), {"sessions": ["a", "b"]}),
        (("--speaker", "Ana"), {"speakers": ["Ana"]}),
        (("--source", "log"), {"sources": ["log"]}),
        (("--role", "tool"), {"roles": ["tool"]}),
        (("--after", "2026", "--before", "2027"), {"after": "2026", "before": "2027"}),
        (("--as-of", "2026-05-20"), {"as_of": "2026-05-20"}),
        (("--as-of", "lsn:3"), {"as_of": 3}),
    ],
)
@pytest.mark.parametrize(
    ("command", "method"), [("search", "retrieve"), ("explain", "explain"), ("ask", "answer")]
)
def test_every_option_reaches_the_engine(monkeypatch, story, command, method, options, expected):
    class Reached(Exception):
        pass

    def record(self, question, **given):
        raise Reached(question, given)

    monkeypatch.setattr(zeromem.memory.Memory, method, record)
    with pytest.raises(Reached) as reached:
        main(["--debug", command, "What did the kitten do?", *options])
    question, given = reached.value.args
    assert question == "What did the kitten do?"
    defaults = {"closure": True, "calibration": True, "reader": None}
    left = {k: v for k, v in given.items() if v is not None and (k, v) not in defaults.items()}
    assert left == expected


def test_explain_shows_both_views_and_the_path(run, data, story):
    given = data("explain", "Where does Miso sleep?", "-k", "2")
    first = given["evidence"][0]
    assert {"graph_score", "hierarchy_score", "graph_rank", "hierarchy_rank"} <= set(first)
    assert given["route"] in ("relational", "local")
    assert given["route_reason"]
    assert [s["entity"] for s in given["seeds"]] == ["miso"]
    out = run("explain", "Where does Miso sleep?", "-k", "2")
    assert "seeds: miso 1.000" in out
    assert f"score {first['score']:.3f}" in out


def test_explain_says_what_was_left_out(run, data, story):
    given = data("explain", "the kitten", "--token-budget", "9")
    assert given["left_out"]
    assert all("budget of 9" in gone["reason"] for gone in given["left_out"])
    assert "budget of 9" in run("explain", "the kitten", "--token-budget", "9")


def test_an_unknown_scope_is_named_on_stderr(capsys, story):
    assert main(["search", "kitten", "--scope", "defualt"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("nothing found")
    assert "'defualt' holds nothing; scopes: default" in err


def test_json_keeps_what_text_output_makes_harmless(run, data):
    data("add", "red \x1b[31m alert \u202e tfel\x07")
    out = run("search", "alert")
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert "\\x1b[31m" in out
    assert data("search", "alert")["evidence"][0]["text"] == "red \x1b[31m alert \u202e tfel\x07"


def test_lone_surrogates_print(run, data):
    data("add", "odd \udcff byte")
    assert "odd \\udcff byte" in run("search", "byte")
    assert data("search", "byte")["evidence"][0]["text"] == "odd \udcff byte"


# ---- settings


def test_options_stand_before_or_after_the_command(data):
    data("--store", "one.zm", "--scope", "x", "add", "here")
    data("add", "--store", "one.zm", "--scope", "y", "there")
    assert [s["scope"] for s in data("--store", "one.zm", "scopes")] == ["x", "y"]
    # The one nearer to the command wins.
    assert data("--scope", "x", "stats", "--store", "one.zm", "--scope", "z")["traces"] == 0


def test_settings_come_from_the_environment_and_options_win(monkeypatch, data):
    data("add", "in the default place")
    assert Path("memory.zm").is_file()
    monkeypatch.setenv("ZEROMEM_STORE", "env.zm")
    monkeypatch.setenv("ZEROMEM_SCOPE", "env")
    data("add", "elsewhere")
    assert Path("env.zm").is_file()
    assert [s["scope"] for s in data("scopes")] == ["env"]
    assert [s["scope"] for s in data("scopes", "--store", "memory.zm")] == ["default"]


def test_zone_reads_times_without_one(data, fail):
    assert "no zone" in fail("add", "x", "--time", "2026-05-03T10:00")[1]
    data("add", "x", "--time", "2026-05-03T10:00", "--zone", "Europe/Vienna")
    assert data("search", "x")["evidence"][0]["time"] == "2026-05-03T10:00+02:00"
    assert ids(data("search", "x", "--before", "2026-05-03T10:00", "--zone", "Asia/Tokyo")) == set()


def test_read_only_writes_nothing(data, fail, story):
    before = Path("memory.zm").read_bytes()
    assert data("search", "kitten", "--read-only")["evidence"]
    assert "read-only" in fail("add", "x", "--read-only")[1].replace("read_only", "read-only")
    assert "read" in fail("forget", "a1", "--read-only")[1]
    assert Path("memory.zm").read_bytes() == before
    assert data("stats")["traces"] == 4


# ---- stats, scopes, forget, reencode


def test_stats_count_log_and_index(run, data, story):
    counted = data("stats")
    assert (counted["traces"], counted["turns"], counted["sessions"]) == (4, 4, 3)
    assert counted["pending"] == 0
    assert counted["llm_tokens_ingest"] == counted["llm_tokens_retrieval"] == 0
    assert "traces" in run("stats")
    assert data("stats", "--scope", "other")["traces"] == 0


def test_stats_do_not_encode_what_is_pending(monkeypatch, capsys, data, story):
    def broken(self, texts, spans):
        raise zeromem.errors.EncoderError("down")

    monkeypatch.setattr(HashEncoder, "encode_spans", broken)
    assert main(["add", "one more"]) == 0
    capsys.readouterr()
    assert main(["stats", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["pending"] == 1
    assert "1 trace not encoded yet" in err


def test_scopes_are_listed_with_their_size(run, data, story):
    data("add", "one", "--scope", "b")
    assert [(s["scope"], s["traces"]) for s in data("scopes")] == [("b", 1), ("default", 4)]
    assert run("scopes").splitlines() == ["       1  b", "       4  default"]


@pytest.mark.parametrize(
    ("options", "left"),
    [
        (("a1",), {"a2", "a3", "a4"}),
        (("a1", "a4", "none"), {"a2", "a3"}),
        (("--session", "s1"), {"a3", "a4"}),
        (("--speaker", "Ana", "--before", "2026-04"), {"a2", "a3", "a4"}),
        (("--speaker", "ANA", "--before", "2026-04"), {"a2", "a3", "a4"}),  # as boundaries do
        (("--session", "S1"), {"a1", "a2", "a3", "a4"}),
        (("--after", "2026-04-10"), {"a1", "a2"}),
        (("--everything",), set()),
    ],
)
def test_forget(data, story, options, left):
    gone = 4 - len(left)
    assert data("forget", *options, "--dry-run") == {"forgotten": gone, "dry_run": True}
    assert data("stats")["traces"] == 4
    assert data("forget", *options) == {"forgotten": gone, "dry_run": False}
    assert ids(data("search", "the kitten")) == left


def test_what_was_forgotten_is_on_disk_no_more(run, story):
    assert any(b"eats cables" in f.read_bytes() for f in Path().glob("memory.zm*"))
    assert "1 trace forgotten" in run("forget", "a2")
    assert not any(b"eats cables" in f.read_bytes() for f in Path().glob("memory.zm*"))


def test_help_names_every_format_that_import_reads(capsys):
    with pytest.raises(SystemExit):
        main(["import", "--help"])
    _, told, *_ = capsys.readouterr().out.lower().split("\n\n")
    named = {"jsonl": "json lines"}
    assert all(named.get(kind, kind) in told for kind in get_args(Format))


@pytest.mark.parametrize(
    "options", [(), ("--everything", "a1"), ("--everything", "--session", "s1")]
)
def test_forget_asks_for_one_clear_condition(fail, data, story, options):
    assert "--everything alone" in fail("forget", *options)[1]
    assert data("stats")["traces"] == 4


def test_another_encoder_is_refused_until_reencode(data, fail, story):
    message = fail("search", "kitten", "--encoder", "other")[1]
    assert "hash-32" in message
    assert "other-32" in message
    assert "zeromem reencode" in message
    done = data("reencode", "--encoder", "other")
    assert done["encoded"] == 4
    assert "other-32" in done["fingerprint"]
    assert len(ids(data("search", "kitten", "--encoder", "other"))) == 4
    assert "hash-32" in fail("search", "kitten")[1]
    assert data("reencode", "--encoder", "other")["encoded"] == 0


def test_an_interrupted_reencode_goes_on(monkeypatch, fail, data):
    lines = [json.dumps({"text": f"note number {i}"}) for i in range(1100)]
    Path("many.jsonl").write_text("\n".join(lines), encoding="utf-8")
    data("import", "many.jsonl")
    real, calls = HashEncoder.encode_spans, []

    def stopped(self, texts, spans):
        calls.append(len(texts))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(self, texts, spans)

    monkeypatch.setattr(HashEncoder, "encode_spans", stopped)
    assert fail("reencode", "--encoder", "other")[0] == 130
    monkeypatch.setattr(HashEncoder, "encode_spans", real)
    left = data("reencode", "--encoder", "other")["encoded"]
    assert 0 < left < 1100
    assert data("stats", "--encoder", "other")["pending"] == 0


def test_reencode_says_when_the_encoder_fails(monkeypatch, fail, story):
    def broken(self, texts, spans):
        raise zeromem.errors.EncoderError("down")

    monkeypatch.setattr(HashEncoder, "encode_spans", broken)
    assert main(["reencode", "--encoder", "other", "--quiet"]) == 1


# ---- ask


def test_reader_options_of_another_reader_are_mistakes(fail, story):
    assert "--reader openai" in fail("ask", "who?", "--model", "gpt")[1]
    assert "--reader llama_cpp" in fail("ask", "who?", "--model-path", "x.gguf")[1]
    assert "--model" in fail("ask", "who?", "--reader", "openai")[1]
    assert "--reader openai" in fail(
        "ask", "who?", "--reader", "llama_cpp", "--base-url", "http://x"
    )[1]  # fmt: skip


@pytest.mark.model
def test_ask_answers_with_citations_and_no_tokens(run, data, story):
    given = data("ask", "Where does Miso sleep?")
    assert given["answer"] == "bicycle basket" or "basket" in given["answer"]
    cited = given["citations"][0]
    assert cited["id"] == "a1"
    text = "Miso the kitten sleeps in my bicycle basket."
    assert text[cited["start"] : cited["end"]] == cited["text"]
    assert given["seconds"]["read and calibrate"] > 0
    assert given["usage"] == {"prompt": 0, "completion": 0, "calls": 0, "cached": 0}
    assert given["steps"][0]["action"]
    out = run("ask", "Where does Miso sleep?", "--evidence", "2")
    assert out.startswith(given["answer"])
    assert "from a1  2026-03-02T09:00+00:00  Ana  session s1" in out
    assert "(cited)" in out
    assert "read and calibrate" in out
    assert "LLM tokens: 0" in out


@pytest.mark.model
def test_ask_says_when_there_is_no_answer(run, data):
    data("add", "The tide turns at noon.")
    out = run("ask", "What is Miso's favourite colour?", "--scope", "empty")
    assert out.startswith("(no answer")
