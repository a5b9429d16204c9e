"""Questions that ask for several things at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support import ids, open_memory

from zeromem.config import Config
from zeromem.ingest.standing import instructs_reader, states_preference
from zeromem.query.folding import fold
from zeromem.query.parts import parts_of
from zeromem.query.profile import profile
from zeromem.types import Boundary, Trace


def texts(question, **options):
    return [p.text for p in parts_of(profile(question, **options))]


@pytest.mark.parametrize(
    ("question", "parts"),
    [
        (
            "How many days passed between the boiler repair and my dentist visit?",
            ["the boiler repair", "my dentist visit"],
        ),
        (
            "How long was it from when I planted beans until I picked the first pod?",
            ["when I planted beans", "I picked the first pod"],
        ),
        (
            "Given my oven trouble, the flour shortage and new opening hours, and the rent rise, "
            "what next?",
            ["Given my oven trouble", "the flour shortage and new opening hours", "the rent rise"],
        ),
        ("Where is the boiler?", []),
        ("Who came, who left?", []),
        ("What did she get from Ana to eat?", []),  # one word is no part
        ("What did I learn from the cooking class to improve my pasta dish?", []),
        (
            "How long was it between the boiler repair\nand my dentist visit?",
            ["the boiler repair", "my dentist visit"],
        ),
        ("", []),
    ],
)
def test_two_ends_or_three_items(question, parts):
    assert texts(question) == parts


def test_a_part_keeps_boundary_and_subject():
    whole = profile(
        "How long was it between Ana's boiler repair and her dentist visit?",
        known_names={"ana", "ben"},
        boundary=Boundary(roles=("user",)),
    )
    one, two = parts_of(whole)
    assert one.subjects == two.subjects == ("ana",)
    assert one.boundary == two.boundary == whole.boundary


def test_each_part_keeps_its_own_subject():
    whole = profile(
        "How long was it between Ana's boiler repair and Ben's dentist visit?",
        known_names={"ana", "ben"},
    )
    assert [p.subjects for p in parts_of(whole)] == [("ana",), ("ben",)]


def test_folding_adds_the_best_part_to_the_whole():
    rows = np.array([[4, 2, -1], [2, 7, 9], [9, 7, -1], [1, 3, -1]], np.int32)
    scores = np.array([[5, 1, 0], [3, 2, 1], [8, 6, 0], [2, 1, 0]], np.float32)
    folded = fold(rows, scores, np.array([0, 3, 4]), 0.5)
    # whole: 4 -> 1, 2 -> 0; parts: 2 -> 1, 7 -> .5 and 0, 9 -> 0 and 1.
    assert folded[0].tolist() == [[4, 2, 9], [1, 3, -1]]
    assert folded[1].tolist() == [[1.0, 0.5, 0.5], [2.0, 1.0, 0.0]]


TALK = [
    Trace("The boiler was mended on Monday.", id="boiler"),
    Trace("My dentist pulled a tooth.", id="tooth"),
    *(Trace(f"Many days passed and nothing number {n} came.", id=f"n{n}") for n in range(30)),
]
QUESTION = "How many days passed between the boiler mended Monday and the dentist pulled tooth?"


def test_both_ends_are_found():
    with open_memory() as memory:
        memory.add_many(TALK)
        assert {"boiler", "tooth"} == set(ids(memory.retrieve(QUESTION, k=2, closure=False)))


def test_a_question_in_a_batch_gets_what_it_gets_alone():
    questions = [QUESTION, "What did the dentist do?", QUESTION, "Which number came?"]
    with open_memory() as memory:
        memory.add_many(TALK)
        together = memory.retrieve_batch(questions, k=7)
        alone = [memory.retrieve(q, k=7) for q in questions]
        assert [[(e.id, e.score) for e in r] for r in together] == [
            [(e.id, e.score) for e in r] for r in alone
        ]


def test_parts_can_be_left_out():
    config = replace(Config(), fusion=replace(Config().fusion, part_weight=0.0))
    single = "Was the boiler mended?"
    with open_memory() as memory, open_memory(config=config) as without:
        for m in (memory, without):
            m.add_many(TALK)
        same = [[(e.id, e.fused) for e in m.retrieve(single, k=9)] for m in (memory, without)]
        other = [[(e.id, e.fused) for e in m.retrieve(QUESTION, k=9)] for m in (memory, without)]
    assert same[0] == same[1]
    assert other[0] != other[1]


def test_a_pasted_page_is_not_taken_apart():
    assert len(parts_of(profile("green apples, " * 100))) == 0  # one thing, said a hundred times
    things = [f"green apple{n}" for n in range(100)]
    assert len(texts(", ".join(things))) == 8
    assert texts(", ".join(f"green apple number {n} of many" for n in range(1000))) == []


@pytest.mark.parametrize(
    "page",
    ["\n" * 50_000, " " * 50_000, "between " * 6_000, ". and" * 10_000, "I reallyly " * 4_000],
)
def test_forms_of_a_long_text_are_read_in_linear_time(page):
    """Against the square of the length: each would take minutes, and the suite would hang here."""
    text = f"Where {page} is it?"
    assert profile(text).text == text
    assert parts_of(profile(text)) == ()
    assert instructs_reader(page) is states_preference(page) is False
