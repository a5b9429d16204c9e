"""One question from its text to its evidence, stage by stage and as a whole."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import stored
from synthetic import Synthetic

ROUNDS = 60
MODEL_ROUNDS = 40


def stages() -> list[str]:
    """Name the stages that a retrieval reports, as the smallest memory has them."""
    tiny = Synthetic(400, dim=16)
    with stored.opened(None, tiny) as memory:
        memory.add_many(tiny.traces(), progress=False)
        return list(memory.retrieve("Who went to the lake?").seconds)


class StageClock:
    """A clock that runs only while one stage does.

    ``pytest-benchmark`` takes the difference of two readings for a round's time.
    """

    def __init__(self, stage: str) -> None:
        self._stage = stage
        self._seconds = 0.0

    def __call__(self) -> float:
        return self._seconds

    def add(self, seconds: Any) -> None:
        """Count what a retrieval says that the stage took."""
        self._seconds += seconds.get(self._stage, 0.0)


def _in_turn(world: Any) -> Iterator[str]:
    return itertools.cycle(world.texts)


@pytest.mark.parametrize("stage", stages())
def test_stage(benchmark: Any, world: Any, stage: str) -> None:
    """A stage of a single question."""
    clock = StageClock(stage)
    memory, texts = world.memory, _in_turn(world)
    benchmark.group = f"stage: {stage}"
    benchmark._timer = clock
    benchmark.pedantic(
        lambda: clock.add(memory.retrieve(next(texts)).seconds), rounds=ROUNDS, iterations=1
    )


def test_question(benchmark: Any, world: Any) -> None:
    """A question whose vector is known: everything but encoding."""
    memory, texts = world.memory, _in_turn(world)
    benchmark.group = "question, without encoding"
    benchmark.pedantic(
        lambda: memory.retrieve(next(texts)), rounds=ROUNDS, iterations=1, warmup_rounds=3
    )


@pytest.mark.parametrize("b", [8, 64])
def test_batch(benchmark: Any, world: Any, b: int) -> None:
    """Questions at once; the time is the batch's."""
    memory = world.memory
    benchmark.group = f"{b} questions at once, without encoding"
    benchmark.extra_info["questions"] = b
    benchmark.pedantic(
        lambda: memory.retrieve_batch(world.texts[:b]), rounds=20, iterations=1, warmup_rounds=1
    )


@pytest.mark.model
def test_question_with_models(benchmark: Any, world: Any) -> None:
    """A new question each time: MiniLM encodes it and spaCy looks for names in it."""
    memory, texts = world.with_models, iter(world.texts)
    benchmark.group = "question, with MiniLM and spaCy"
    benchmark.pedantic(
        lambda: memory.retrieve(next(texts)), rounds=MODEL_ROUNDS, iterations=1, warmup_rounds=2
    )
