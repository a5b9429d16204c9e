"""Turns that only repeat the question: found when they are looked for, never an answer to it."""

from __future__ import annotations

import pytest
from support import open_memory, shown

QUESTION = "What is my kitten called?"


@pytest.fixture
def memory():
    with open_memory() as opened:
        opened.add("Miso is my new kitten!", speaker="Ana")
        for i in range(12):
            opened.add(QUESTION, speaker="Ana", session=f"s{i}")
        yield opened


def test_an_answer_does_not_come_from_its_own_question(memory):
    assert memory.answer(QUESTION).text == "Miso"
    assert memory.answer("what is my Kitten called").text == "Miso"


def test_who_looks_for_the_question_finds_it(memory):
    assert memory.retrieve(QUESTION, k=1)[0].text == QUESTION
    assert {e.text for e in memory.retrieve(QUESTION, k=10, echoes=False)} == {
        "Miso is my new kitten!"
    }


def test_only_the_very_same_question_is_an_echo(memory):
    others = ["What is my cat called?", "What is my kitten called, and where is it?",
              "My kitten is called what it is.", "Is my kitten called what?"]  # fmt: skip
    for other in others:
        memory.add(other, speaker="Ben")
    found = {e.text for e in memory.retrieve(QUESTION, k=30, echoes=False)}
    assert found == {"Miso is my new kitten!", *others}


def test_a_statement_is_no_echo(memory):
    text = "Miso is my new kitten!"
    assert memory.retrieve(text, k=1, echoes=False)[0].text == text


def test_without_echoes_it_is_as_if_they_were_outside_the_boundary():
    with open_memory() as with_echoes:
        for i in range(6):
            with_echoes.add(f"Fact {i} is about Ana.", speaker="Ana", session=f"s{i % 2}")
        with_echoes.add("Which fact is about Ana?", speaker="Ben", session="asked")
        asked = "Which fact is about Ana?"
        found = with_echoes.retrieve(asked, echoes=False)
        bounded = with_echoes.retrieve(asked, sessions=["s0", "s1"])
        assert [e.id for e in found] == [e.id for e in bounded]
        assert [e.score for e in found] == [e.score for e in bounded]
        batch = with_echoes.retrieve_batch([asked, "Where is Ana?"], echoes=False)
        assert shown(batch[0]) == shown(found)
