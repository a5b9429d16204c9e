"""What the memory refuses at its border, and readers that do not wait for writers."""

from __future__ import annotations

import threading

import pytest
from support import HashEncoder, ids, open_memory

import zeromem
from zeromem.config import (
    CalibrationConfig,
    Config,
    FusionConfig,
    GraphConfig,
    HierarchyConfig,
    IngestConfig,
)
from zeromem.errors import InvalidInputError


@pytest.fixture
def memory():
    with open_memory() as opened:
        opened.add("Ana feeds the cat", id="a", speaker="Ana")
        opened.add("ANA again", id="b", speaker="ANA ")
        opened.add("Ben rows", id="c", speaker="Ben")
        yield opened


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: HierarchyConfig(min_turns=50, max_turns=2), "min_turns"),
        (lambda: HierarchyConfig(window=3.0), "window"),
        (lambda: HierarchyConfig(window="3"), "window"),
        (lambda: GraphConfig(prior_top=1.5), "prior_top"),
        (lambda: GraphConfig(damping=None), "damping"),
        (lambda: GraphConfig(title_links=1), "title_links"),
        (lambda: GraphConfig(refine=None), "refine"),
        (lambda: IngestConfig(batch_traces=True), "batch_traces"),
        (lambda: FusionConfig(candidates="many"), "candidates"),
        (lambda: CalibrationConfig(support="x"), "support"),
        (lambda: Config(graph=None), "graph"),
        (lambda: Config(graph=HierarchyConfig()), "graph"),
    ],
)
def test_a_configuration_of_wrong_types_names_the_field(make, named):
    with pytest.raises(InvalidInputError, match=named):
        make()


@pytest.mark.parametrize(
    "call",
    [
        lambda m: m.forget(5),
        lambda m: m.get(None),
        lambda m: m.get("a"),
        lambda m: m.import_(5),
        lambda m: m.answer("who?", reader=5),
        lambda m: m.add("x", metadata=5),
        lambda m: m.retrieve("x", closure="yes"),
        lambda m: m.retrieve("x", calibration=[]),
        lambda m: m.forget(speaker=5),
        lambda m: zeromem.retrieve_batch(None),
        lambda m: zeromem.retrieve_batch([m]),
        lambda m: zeromem.retrieve_batch([(m,)]),
        lambda m: zeromem.retrieve_batch([(1, "x")]),
    ],
)
def test_a_wrong_argument_is_refused_and_nothing_is_lost(memory, call):
    with pytest.raises(InvalidInputError):
        call(memory)
    assert memory.stats()["traces"] == 3


def test_a_speaker_is_forgotten_in_every_spelling(memory):
    assert memory.forget(speaker="ana") == 2
    assert ids(memory.retrieve("Who rows?")) == ["c"]


def test_questions_are_answered_while_others_keep_adding():
    with open_memory() as memory:
        stop = threading.Event()

        def write(who: int) -> None:
            n = 0
            while not stop.is_set():
                memory.add(f"writer {who} says {n}")
                n += 1

        writers = [threading.Thread(target=write, args=(i,)) for i in range(4)]
        for writer in writers:
            writer.start()
        try:
            memory.add("Ana feeds the cat", id="a")
            for i in range(15):
                assert "a" in ids(memory.retrieve(f"Who feeds the cat? {i}"))
        finally:
            stop.set()
            for writer in writers:
                writer.join()


class LostAnnotator:
    """Works on traces and fails on questions."""

    fingerprint = "lost"

    def __init__(self):
        from zeromem.ingest.annotate import RuleAnnotator

        self.rules = RuleAnnotator()

    def annotate(self, texts):
        if any(text.endswith("?") for text in texts):
            raise RuntimeError("lost")
        return self.rules.annotate(texts)


def test_an_annotator_that_fails_on_a_question_is_done_without():
    with zeromem.open(encoder=HashEncoder(), annotator=LostAnnotator(), device="cpu") as memory:
        memory.add("Ana feeds the cat", id="a")
        assert ids(memory.retrieve("Who feeds the cat?")) == ["a"]
