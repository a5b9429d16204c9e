"""What README and CONTRIBUTING show is run: every Python sample, every command."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import tomllib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from zeromem.cli import main
from zeromem.cli.commands import RUN

ROOT = Path(__file__).parents[1]
DATA = Path(__file__).parent / "data"
SERVER = "http://localhost:8000/v1"  # as the README writes it
SERVE = {"serve", "mcp"}  # run until they are told to stop; docs/ shows them, with tests of its own
FILES = {  # of the README, and what stands in for them
    "locomo.json": "locomo_tiny.json",
    "questions.jsonl": "hotpotqa_tiny_questions.jsonl",
    "pool.jsonl": "hotpotqa_tiny_pool.jsonl",
    "beam.jsonl": "beam_tiny.jsonl",
}


def blocks(file, language):
    text = (ROOT / file).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def commands(*programs):
    lines = [
        line
        for file in ("README.md", "CONTRIBUTING.md")
        for block in blocks(file, "bash")
        for line in block.splitlines()
        if line.split()[0] in programs
    ]
    assert lines
    return lines


def words(line):
    return shlex.split(line, comments=True)


def test_every_block_is_of_a_kind_that_is_run():
    for file in ("README.md", "CONTRIBUTING.md"):
        text = (ROOT / file).read_text(encoding="utf-8")
        kinds = re.findall(r"^```(\w*)\n.*?^```$", text, re.MULTILINE | re.DOTALL)
        assert set(kinds) <= {"python", "bash", "mermaid"}
        for block in blocks(file, "bash"):
            programs = {line.split()[0] for line in block.splitlines()}
            assert programs <= {"make", "pip", "zeromem", "python"}


@pytest.mark.model
@pytest.mark.parametrize("sample", blocks("README.md", "python"))
def test_python_samples(sample, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", sample], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    expected = re.findall(r"# (.+)$", sample, re.MULTILINE)
    assert expected
    assert done.stdout.splitlines()[-len(expected) :] == expected


def test_the_first_sample_is_short():
    lines = blocks("README.md", "python")[0].splitlines()
    assert len([line for line in lines if line.strip()]) <= 5


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
@pytest.mark.parametrize("line", commands("make"))
def test_make_targets_exist(line):
    done = subprocess.run(
        [words(line)[0], "-n", *words(line)[1:]], cwd=ROOT, capture_output=True, text=True,
        check=False, env={k: v for k, v in os.environ.items() if not k.startswith("MAKE")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("line", commands("pip"))
def test_extras_exist(line):
    assert words(line)[:2] == ["pip", "install"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for extra in re.findall(r"\[(\w+)\]", line):
        assert project["optional-dependencies"][extra]


@pytest.fixture
def server():
    """A chat endpoint that answers every question alike."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            message = {"role": "assistant", "content": "Answer: Lisbon\nSources: 1"}
            body = json.dumps({
                "id": "c", "object": "chat.completion", "created": 1, "model": "m",
                "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 90, "completion_tokens": 5, "total_tokens": 95},
            }).encode()  # fmt: skip
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{http.server_address[1]}/v1"
    http.shutdown()
    http.server_close()


@pytest.mark.model
def test_the_tour_of_the_command_line(server, tmp_path, monkeypatch, capsys):
    pytest.importorskip("openai", reason="the tour asks an OpenAI-compatible reader")
    monkeypatch.chdir(tmp_path)
    for name in ("STORE", "SCOPE", "ENCODER", "ANNOTATOR", "DEVICE", "ZONE"):
        monkeypatch.delenv(f"ZEROMEM_{name}", raising=False)
    told = {}
    for line in commands("zeromem"):
        if words(line)[1] in SERVE:
            continue
        argv = [server if word == SERVER else word for word in words(line)[1:]]
        code = main(argv)
        out, err = capsys.readouterr()
        assert code == 0, f"{line}\n{out}\n{err}"
        told.setdefault(argv[0], []).append(out)
    assert set(told) == set(RUN) - SERVE
    assert told["ask"][0].startswith("Miso\n")
    assert told["ask"][1].startswith("Lisbon\n")
    assert "LLM tokens: 95 (90 prompt, 5 completion)" in told["ask"][1]
    assert "LLM tokens: 0 " in told["ask"][0]
    assert [e["speaker"] for e in json.loads(told["search"][1])["evidence"]] == ["Ben"]
    assert told["import"] == ["copy: 2 traces, 2 new\n"]
    assert told["scopes"] == ["       2  copy\n       2  default\n"]
    assert told["forget"] == ["1 trace forgotten\n"]
    assert told["demo"][0].endswith("10 of 10 right\n")


MADE = {  # by each script: what shows that it did its work
    "bench/retrieval.py": lambda out, folder: "recall@5" in out,
    "bench/tables.py": lambda out, folder: (folder / "results" / "answers.json").exists(),
    "bench/render.py": lambda out, folder: "zeromem" in (folder / "results/tables.md").read_text(),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One for all measurements: some read what those before them wrote."""
    made = tmp_path_factory.mktemp("measurements")
    for name, stand_in in FILES.items():
        shutil.copy(DATA / stand_in, made / name)
    return made


@pytest.mark.model
@pytest.mark.slow
@pytest.mark.parametrize("line", commands("python"))
def test_measurements_run(line, folder):
    _, script, *arguments = words(line)
    if "--documents" in arguments:
        arguments[arguments.index("--documents") + 1] = "8"
    done = subprocess.run(
        [sys.executable, ROOT / script, *arguments], cwd=folder, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert MADE[script](done.stdout, folder)


def test_the_table_names_modules_that_exist():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(zeromem\.[a-z_.]+?)(?:_\*)?`", text))
    named -= {"zeromem.open", "zeromem.retrieve_batch"}
    assert set(RUN) >= SERVE
    assert len(named) >= 10
    for name in named:
        path = ROOT / name.replace("zeromem.kernels.", "kernels/").replace(".", "/")
        found = [
            path.with_suffix(".py"),
            path / "__init__.py",
            path.with_name(f"{path.name}_ref.py"),
        ]
        assert any(p.is_file() for p in found), name


def test_the_documents_name_files_that_exist():
    for file in ("README.md", "CONTRIBUTING.md"):
        text = (ROOT / file).read_text(encoding="utf-8")
        for target in re.findall(r"\]\((?!http)([^)#]+)\)", text):
            assert (ROOT / target).exists(), target
        for path in re.findall(r"`((?:zeromem|tests|bench|kernels|csrc)/[\w/.]+)`", text):
            assert (ROOT / path).exists(), path
