"""Memories of three sizes, each made once per session."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import floors
import pytest
import stored
from kernel_cases import Cases
from subjects import Inputs
from synthetic import Synthetic

SIZES = {"locomo": 20_000, "448k": 448_000, "4.5m": 4_500_000}
"""Encoder tokens: one conversation of LoCoMo; the paper's longest context; ten of those."""
N_QUESTIONS = 256


class World:
    """A memory of one size: its arrays, its store file, and the open memory over it."""

    def __init__(self, size: str, folder: Path) -> None:
        self.size = size
        self._folder = folder
        self._open: list[Any] = []

    @cached_property
    def synthetic(self) -> Synthetic:
        return Synthetic(SIZES[self.size])

    @cached_property
    def inputs(self) -> Inputs:
        return Inputs(self.synthetic, self.synthetic.questions(N_QUESTIONS))

    @cached_property
    def cases(self) -> Cases:
        return Cases(self.inputs)

    @cached_property
    def texts(self) -> list[str]:
        return [question.text for question in self.inputs.questions]

    @cached_property
    def path(self) -> Path:
        return stored.make(self._folder / f"{self.size}.zm", self.synthetic)

    @cached_property
    def memory(self) -> Any:
        """Open, with every question's vector at hand: what follows is retrieval alone."""
        memory = self._keep(stored.opened(self.path, self.synthetic, self.inputs.questions))
        memory.retrieve_batch(self.texts)
        return memory

    @cached_property
    def with_models(self) -> Any:
        """Open, with MiniLM and spaCy loaded and no question encoded yet."""
        memory = self._keep(stored.opened(self.path, self.synthetic, models=True))
        memory.retrieve("Is anything there?")
        return memory

    def _keep(self, memory: Any) -> Any:
        self._open.append(memory)
        return memory

    def close(self) -> None:
        """Close what was opened."""
        for memory in self._open:
            memory.close()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--sizes``."""
    parser.addoption(
        "--sizes", default=",".join(SIZES), help=f"of {', '.join(SIZES)}, with commas between"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each benchmark that takes a world at every chosen size."""
    if "world" in metafunc.fixturenames:
        sizes = metafunc.config.getoption("sizes").split(",")
        unknown = sorted(set(sizes) - set(SIZES))
        if unknown:
            raise pytest.UsageError(f"--sizes takes {', '.join(SIZES)}, got {unknown[0]!r}")
        metafunc.parametrize("world", sizes, indirect=True, scope="session")


@pytest.fixture(scope="session")
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator:
    """Give the memory of one size; the one before it is let go first."""
    made = World(request.param, tmp_path_factory.mktemp("worlds"))
    yield made
    made.close()


@pytest.fixture(scope="session")
def rates() -> floors.Rates:
    """What one thread gets from this machine: kernels are timed on the thread that calls them."""
    return floors.measured(1)
