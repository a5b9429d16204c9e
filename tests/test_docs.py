"""What the pages under docs/ show is run: every Python sample prints what it says it prints."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))
NEEDS = {
    "frameworks.md": ("langchain_core", "langgraph", "llama_index.core"),
    "proxy.md": ("fastapi", "uvicorn", "httpx", "openai"),
    "server.md": ("fastapi", "uvicorn", "httpx"),
}
"""Libraries without which the samples of a page are skipped."""

PRINTED = re.compile(r"^(?:\s*#|.*\bprint\(.*  #) (.+)$", re.MULTILINE)
"""What is printed: a comment beside a print, or on a line of its own."""


def blocks(page, language):
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


SAMPLES = [
    pytest.param(page, sample, id=f"{page.stem}-{i}")
    for page in PAGES
    for i, sample in enumerate(blocks(page, "python"), 1)
]


def code_lines(sample):
    return [line for line in sample.splitlines() if line.strip()]


@pytest.mark.model
@pytest.mark.parametrize(("page", "sample"), SAMPLES)
def test_python_samples(page, sample, tmp_path):
    for library in NEEDS.get(page.name, ()):
        pytest.importorskip(library)
    done = subprocess.run(
        [sys.executable, "-c", sample],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    expected = PRINTED.findall(sample)
    assert expected
    assert done.stdout.splitlines()[-len(expected) :] == expected


def shell_blocks(page):
    """Also those that belong to a list's item."""
    text = page.read_text(encoding="utf-8")
    return re.findall(r"^( *)```bash\n(.*?)^\1```$", text, re.MULTILINE | re.DOTALL)


@pytest.mark.model
@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_servers_commands_in_their_order(tmp_path):
    """All of the page in one shell, as somebody would type it who reads it from top to bottom."""
    pytest.importorskip("fastapi")
    page = ROOT / "docs" / "server.md"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    zeromem = tmp_path / "zeromem"
    zeromem.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m zeromem "$@"\n')
    zeromem.chmod(0o755)
    script = "\n".join(
        [
            "set -e -o pipefail",
            "trap 'kill $(jobs -p); wait' EXIT",
            'zeromem add "It is from before the first key." --scope ana',
            *(block for _, block in shell_blocks(page)),
            "zeromem scopes",
        ]
    )
    done = subprocess.run(
        ["bash", "-c", script.replace("8080", port)],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300,
        env={**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    shown = done.stdout
    assert f"zeromem: serving http://127.0.0.1:{port}\n" in shown
    assert shown.count('"created": true}') == 2
    assert '{"traces":2,"created":2}' in shown
    assert re.findall(r"event: (\w+)\ndata: ", shown) == ["evidence", "answer"]
    assert 'data: {"answer":"Miso"' in shown
    assert shown.splitlines()[-1].split() == ["6", "acme/ana"]  # and no other scope is left


def test_each_framework_has_a_sample_of_ten_lines():
    page = ROOT / "docs" / "frameworks.md"
    shown = blocks(page, "python")
    assert len(shown) == 3
    assert all(len(code_lines(sample)) <= 10 for sample in shown)


def test_extras_that_are_named_exist():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for page in PAGES:
        for extras in re.findall(r"pip install '\S*?\[([\w,-]+)\]'", page.read_text("utf-8")):
            assert set(extras.split(",")) <= set(project["optional-dependencies"]), page.name


def test_links_and_paths_lead_somewhere():
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for target in re.findall(r"\]\((?!http)([^)#]+)\)", text):
            assert (page.parent / target).exists(), target
        for path in re.findall(r"`((?:zeromem|tests|bench|kernels|csrc)/[\w/.]+)`", text):
            assert (ROOT / path).exists(), path
