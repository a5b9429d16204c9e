"""Memory operations spend no LLM token, reach no network, and load no model before its time."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from support import STORY, open_memory, shown

import zeromem
from zeromem.answer.reader import Draft
from zeromem.types import TokenUsage

HEAVY = {"torch", "cupy", "numba", "spacy", "transformers", "openai", "llama_cpp", "FlagEmbedding"}
ENV = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent),
                                   str(Path(zeromem.__file__).parents[1])]),
    "HF_HUB_OFFLINE": "1",
}  # fmt: skip


class Unplugged(Exception):
    """Raised by every attempt to reach a network."""


@pytest.fixture
def no_network(monkeypatch):
    def refuse(*_, **__):
        raise Unplugged("something reached for the network")

    for name in ("socket", "create_connection", "getaddrinfo", "socketpair", "gethostbyname"):
        monkeypatch.setattr(socket, name, refuse)
    with pytest.raises(Unplugged):
        socket.socket()


def use(memory):
    """Every operation there is but answering."""
    memory.add_many(STORY)
    memory.add("More tuna.", time="2026-05-03T10:00Z")
    assert len(memory.retrieve("Who founded Acme?", view=None, k=3)) >= 3
    memory.retrieve_batch(["tuna", "Where does Ana live now?"], as_of=5, speakers=["Ana"])
    memory.explain("Who founded Acme?")
    list(memory.export())
    memory.stats()
    memory.forget(session="s2")
    return memory.retrieve("tuna")


def test_memory_operations_reach_no_network(no_network, tmp_path):
    with open_memory(tmp_path / "m.zm") as memory:
        use(memory)
    with open_memory(tmp_path / "m.zm") as memory:
        assert memory.retrieve("tuna")


@pytest.mark.model
def test_the_default_models_reach_no_network(tmp_path):
    """In a process of its own, before anything is loaded."""
    code = """
import socket, sys
def refuse(*_, **__):
    raise SystemExit("something reached for the network")
for name in ("create_connection", "getaddrinfo", "gethostbyname"):
    setattr(socket, name, refuse)
socket.socket.connect = refuse
import zeromem
from support import STORY
with zeromem.open(sys.argv[1], device="cpu") as memory:
    memory.add_many(STORY)
    found = memory.retrieve("Who founded Acme?")
    assert any("Carla" in e.text for e in found)
    answer = memory.answer("Who founded Acme?")
    assert answer.usage == type(answer.usage)(), answer.usage
    print(answer.text)
"""
    command = [sys.executable, "-c", code, str(tmp_path / "m.zm")]
    done = subprocess.run(command, env=ENV, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Carla" in done.stdout


class Metered:
    """A reader that claims to have spent tokens."""

    def __init__(self):
        self.seen = []

    def read(self, question, evidence, *, profile):
        self.seen.append((question, [e.text for e in evidence], profile))
        return Draft(evidence[0].text, TokenUsage(100, 7, 1), (0,))


def test_only_the_readers_meter_moves():
    nothing = TokenUsage()
    reader = Metered()
    with open_memory() as memory:
        use(memory)
        assert memory.usage == {"ingest": nothing, "retrieval": nothing, "answer": nothing}
        found = memory.retrieve("What does Miso eat?", k=2)
        answer = memory.answer("What does Miso eat?", reader=reader, k=2)
        assert answer.usage == TokenUsage(100, 7, 1)
        assert shown(answer.retrieval) == shown(found)  # the reader changes no evidence
        memory.answer("tuna?", reader=reader)
        assert memory.usage["answer"] == TokenUsage(200, 14, 2)
        assert memory.usage["ingest"] == memory.usage["retrieval"] == nothing
        assert memory.stats()["llm_usage"] == memory.usage
    question, texts, _ = reader.seen[0]
    assert question == "What does Miso eat?"
    assert texts == [e.text for e in found]  # the evidence, and nothing else


def test_a_reader_is_not_asked_where_there_is_no_evidence():
    reader = Metered()
    with open_memory() as memory:
        assert memory.answer("Where?", reader=reader).text == ""
        memory.add("tuna")
        memory.answer("Where?", reader=reader, sessions="none such")
    assert reader.seen == []


def loaded(code: str) -> set[str]:
    """Names of top-level packages that a fresh process has loaded after running code."""
    code += "\nimport json, sys\nprint(json.dumps(sorted({m.split('.')[0] for m in sys.modules})))"
    done = subprocess.run(
        [sys.executable, "-c", code], env=ENV, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_importing_loads_nothing_heavy():
    assert not loaded("import zeromem") & (HEAVY | {"numpy", "scipy", "sqlite3"})


def test_naming_all_there_is_loads_no_model_library():
    code = "import zeromem\nfor name in zeromem.__all__: getattr(zeromem, name)"
    assert not loaded(code) & (HEAVY - {"numba"})  # the host's kernels are Numba's


def test_using_a_memory_loads_no_model_library_that_it_does_not_use():
    code = """
from support import STORY, open_memory
with open_memory() as memory:
    memory.add_many(STORY)
    memory.retrieve("tuna")
"""
    assert not loaded(code) & (HEAVY - {"numba"})
