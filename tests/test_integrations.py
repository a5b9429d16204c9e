"""What all adapters have in common."""

from __future__ import annotations

import subprocess
import sys

import pytest


def run(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("module", "library", "extra"),
    [
        ("langchain", "langchain_core.callbacks", "langchain"),
        ("langgraph", "langgraph.store.base", "langgraph"),
        ("llama_index", "llama_index.core.schema", "llama-index"),
    ],
)
def test_a_missing_library_is_named_with_its_extra(module, library, extra):
    told = run(
        f"import sys; sys.modules[{library!r}] = None\n"
        "import zeromem.errors\n"
        f"try:\n    import zeromem.integrations.{module}\n"
        "except zeromem.errors.MissingExtraError as error:\n    print(error)\n"
    )
    assert f"pip install 'zeromem[{extra}]'" in told


def test_importing_zeromem_imports_no_framework():
    loaded = run("import sys, zeromem.memories, zeromem.integrations; print(sorted(sys.modules))")
    assert not any(name in loaded for name in ("'langchain_core", "'langgraph", "'llama_index"))
