"""What goes wrong on the command line: one line on stderr, a non-zero code, nothing broken."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support import HashEncoder

import zeromem.memory
from zeromem.cli import main
from zeromem.cli.commands import RUN
from zeromem.cli.parser import build_parser


@pytest.fixture(autouse=True)
def _fast_and_alone(monkeypatch, tmp_path):
    encoder = HashEncoder()
    monkeypatch.setattr(zeromem.memory, "load_encoder", lambda source, device: encoder)
    for name in ("STORE", "SCOPE", "ENCODER", "ZONE"):
        monkeypatch.delenv(f"ZEROMEM_{name}", raising=False)
    monkeypatch.setenv("ZEROMEM_ANNOTATOR", "rules")
    monkeypatch.setenv("ZEROMEM_DEVICE", "cpu")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def store():
    assert main(["add", "The tide turns at noon.", "--id", "t"]) == 0
    return Path("memory.zm")


def process(*argv, **options):
    code = (
        "import signal, sys; from zeromem.cli import main\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell's job may ignore it
        "sys.exit(main(sys.argv[1:]))"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, argv)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("search", "x", "--store", "none.zm"), "there is no store 'none.zm'"),
        (("export", "--store", "none.zm"), "there is no store"),
        (("stats", "--store", "none.zm"), "ZEROMEM_STORE"),
        (("forget", "--everything", "--store", "none.zm"), "there is no store"),
        (("scopes", "--store", "none.zm"), "there is no store"),
        (("add", "x", "--store", "no/folder/m.zm"), "does not exist"),
        (("search", "x", "--store", "."), "is a folder"),
        (("search", "x", "--store", "foreign.zm"), "foreign.zm"),
        (("add", "   "), "text must hold something"),
        (("add", "other text", "--id", "t"), "'t'"),
        (("add", "x", "--time", "yesterday"), "ISO 8601"),
        (("add", "x", "--time", "2026-05-03T10:00"), "has no zone"),
        (("add", "x", "--zone", "Atlantis/Poseidonis"), "IANA name"),
        (("add", "x", "--metadata", "{"), "--metadata must be"),
        (("add", "x", "--metadata", "[1]"), "--metadata must be a JSON object"),
        (("search", " "), "question must be"),
        (("search", "x", "-k", "0"), "k must be an integer from 1 to 2147483647, got 0"),
        (("search", "x", "-k", "-3"), "got -3"),
        (("search", "x", "--token-budget", "0"), "token_budget must be"),
        (("search", "x", "--after", "soon"), "ISO 8601"),
        (("search", "x", "--as-of", "lsn:two"), "lsn:N takes a whole number"),
        (("search", "x", "--device", "abacus"), "device must be one of"),
        (("forget", "--before", "soon"), "ISO 8601"),
        (("backup", "b.zm", "--store", "none.zm"), "there is no store 'none.zm'"),
        (("backup", "memory.zm", "--force"), "target must be another file"),
        (("backup", "foreign.zm"), "exists; give another path"),
        (("backup", "."), "is a folder"),
        (("backup", "no/b.zm"), "does not exist"),
        (("restore", "none.zm"), "there is no backup"),
        (("restore", "foreign.zm", "--store", "new.zm"), "foreign.zm"),
        (("restore", "memory.zm", "--store", "foreign.zm"), "--force"),
        (("restore", "memory.zm", "--force"), "target must be another file"),
        (("restore", "memory.zm", "--store", "new.zm", "--read-only"), "leave --read-only out"),
        (("keys", "create", "--tenant", "a/b"), "no '/'"),
        (("keys", "create", "--tenant", ""), "must not be empty"),
        (("keys", "create", "--all-tenants", "--rate", "-1"), "rate must be above 0"),
        (("keys", "create", "--tenant", "a", "--store", "no/m.zm"), "check the folder"),
        (("--read-only", "keys", "create", "--tenant", "a"), "leave --read-only out"),
        (("keys", "revoke", "0000"), "there is no key '0000'"),
    ],
)
def test_every_mistake_is_one_line(capsys, store, argv, message):
    capsys.readouterr()
    Path("foreign.zm").write_bytes(b"not a store at all" * 400)
    before = {p.name: p.read_bytes() for p in Path().iterdir()}
    assert main(list(argv)) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("zeromem: ")
    assert err.count("\n") == 1
    assert message in err
    assert "unexpected" not in err
    assert set(before) >= {p.name for p in Path().glob("n*")}  # a typo makes no store
    assert Path("foreign.zm").read_bytes() == before["foreign.zm"]


@pytest.mark.parametrize(
    "argv",
    [(), ("frobnicate",), ("search",), ("search", "x", "--view", "both"), ("add", "x", "--bogus"),
     ("search", "x", "-k", "many"), ("import", "f", "--format", "xml"),
     ("ask", "x", "--reader", "oracle"), ("backup",), ("restore",), ("keys",), ("keys", "show"),
     ("keys", "create"), ("keys", "create", "--tenant", "a", "--all-tenants"), ("keys", "revoke"),
     ("keys", "create", "--tenant", "a", "--rate", "fast")],
)  # fmt: skip
def test_wrong_usage_exits_with_2(capsys, argv):
    with pytest.raises(SystemExit) as stopped:
        main(list(argv))
    assert stopped.value.code == 2
    assert "usage: zeromem" in capsys.readouterr().err


def test_debug_shows_the_traceback(store):
    with pytest.raises(zeromem.errors.InvalidInputError):
        main(["--debug", "search", " "])


def test_a_bug_is_told_in_one_line_too(monkeypatch, capsys, store):
    def broken(args):
        raise RuntimeError("first\nsecond")

    monkeypatch.setitem(RUN, "stats", broken)
    capsys.readouterr()
    assert main(["stats"]) == 1
    assert capsys.readouterr().err == (
        "zeromem: unexpected RuntimeError: first second (--debug shows where)\n"
    )


def test_every_command_has_help(capsys):
    choices = build_parser()._subparsers._group_actions[0].choices
    assert set(choices) == set(RUN)
    for name in RUN:
        with pytest.raises(SystemExit) as stopped:
            main([name, "--help"])
        assert stopped.value.code == 0
        assert "--store" in capsys.readouterr().out


@pytest.mark.parametrize("action", ["create", "list", "revoke"])
def test_every_action_on_keys_has_help(capsys, action):
    with pytest.raises(SystemExit) as stopped:
        main(["keys", action, "--help"])
    assert stopped.value.code == 0
    assert "--store" in capsys.readouterr().out


def test_help_is_light():
    code = (
        "import sys; from zeromem.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = ('torch', 'spacy', 'numba', 'transformers', 'scipy', 'numpy', 'bm25s', 'openai')\n"
        "print([m for m in heavy if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"
    assert "search" in done.stdout


@pytest.mark.parametrize(
    "argv", [("export",), ("scopes",), ("forget", "t"), ("backup", "b.zm"), ("keys", "list")]
)
def test_the_log_needs_no_model(store, argv):
    code = (
        "import sys; from zeromem.cli import main\n"
        "assert main(sys.argv[1:]) == 0\n"
        "heavy = ('torch', 'spacy', 'numba', 'transformers')\n"
        "print([m for m in heavy if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *argv], capture_output=True, text=True, check=True
    )
    assert done.stderr.splitlines()[-1] == "[]"


def test_a_reader_that_goes_away(store):
    lines = [json.dumps({"text": f"note {i}: {'x' * 200}"}) for i in range(3000)]
    Path("notes.jsonl").write_text("\n".join(lines), encoding="utf-8")
    assert main(["import", "notes.jsonl", "--quiet"]) == 0
    running = process("export")
    running.stdout.read(10)
    running.stdout.close()
    err = running.stderr.read().decode()
    running.stderr.close()
    assert running.wait() == 141
    assert err == "zeromem: the reader of the output closed it before the end\n"


@pytest.mark.parametrize("argv", [("scopes",), ("scopes", "--json"), ("export",)])
def test_a_reader_that_was_never_there(store, argv):
    running = process(*argv)
    running.stdout.close()
    err = running.stderr.read().decode()
    running.stderr.close()
    assert running.wait() == 141
    assert err == "zeromem: the reader of the output closed it before the end\n"


def test_an_interrupt_is_told_in_one_line():
    pipe = Path("pipe.jsonl")
    os.mkfifo(pipe)
    running = process("import", pipe, "--format", "jsonl")
    while True:  # until the command reads, and then waits for a line that never comes
        assert running.poll() is None
        try:
            writer = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
            break
        except OSError:
            time.sleep(0.02)
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=120)
    os.close(writer)
    assert running.returncode == 130
    assert err == (b"zeromem: interrupted; what was acknowledged is stored, and a rerun goes on\n")
    assert main(["stats"]) == 0
