"""A small set of our own, methods over it, and options of a reader, for tests of answering."""

from __future__ import annotations

import argparse
from dataclasses import replace

from zeromem.evaluation.answering import judge, readers
from zeromem.evaluation.types import Dataset, Found, History, Query, Question
from zeromem.times import EventTime
from zeromem.types import Evidence, QueryProfile, Trace


def trace(name, text, speaker="Ana", time="2024-05-07T10:00Z"):
    return Trace(text, id=name, speaker=speaker, session="s1", time=EventTime.parse(time))


PETS = History(
    "pets",
    (
        trace("a1", "My dog is called Biscuit."),
        trace("a2", "It rained all day.", "Ben"),
        trace("a3", "I bought the boat in April 2021.", "Ben"),
    ),
)
WORK = History("work", (trace("b1", "I work as a baker now."), trace("b2", "The oven is new.")))


def question(name, text, answers, gold, category="single-hop"):
    return Question(name, Query(text), category, frozenset(gold), answers=tuple(answers))


PETS_ASKED = [
    question("q1", "What is the dog called?", ["Biscuit"], ["a1"]),
    question("q2", "When did Ben buy the boat?", ["April 2021"], ["a3"], "temporal"),
]
WORK_ASKED = [question("q3", "What is Ana's job?", ["baker", "a bread maker"], ["b1"], "multi-hop")]


def dataset(name="locomo", **changes):
    """Three questions about two histories; q1 has a corrected label."""
    fixed = {"q1": replace(PETS_ASKED[0], answers=("a dog named Rex",))}
    whole = Dataset(
        name, [(PETS, PETS_ASKED), (WORK, WORK_ASKED)], {}, cluster="history", corrected=fixed
    )
    return replace(whole, **changes)


def many(n):
    """One history with n questions, all different."""
    asked = [question(f"m{i}", f"What is number {i}?", [str(i)], ["a1"]) for i in range(n)]
    return Dataset("many", [(PETS, asked)], {})


def evidence(given, rank=1):
    return Evidence(
        given.text, given, rank, 0, len(given.text), "main", 1.0, 1.0, rank, rank, rank, (), (),
        "", len(given.text.split()),
    )  # fmt: skip


class Whole:
    """Gives the whole history, in one block or one block per trace."""

    budgeted = True

    def __init__(self, name="whole", *, calibrates=False, blocks=False):
        self.name = name
        self.calibrates = calibrates
        self.blocks = blocks
        self.closed = 0

    def index(self, history):
        self.history = history

    def find(self, queries, budget):
        items = tuple(evidence(t, i) for i, t in enumerate(self.history.traces, 1))
        blocks = tuple((item,) for item in items) if self.blocks else (items,)
        return [Found(blocks, QueryProfile(q.text)) for q in queries]

    def rank(self, queries, depth=20):
        return [tuple(t.id for t in self.history.traces)] * len(queries)

    def share(self, history):
        pass

    def close(self):
        self.closed += 1


def options(*arguments):
    """What a command line would give."""
    parser = argparse.ArgumentParser()
    readers.add_arguments(parser)
    judge.add_arguments(parser)
    return parser.parse_args(arguments)
