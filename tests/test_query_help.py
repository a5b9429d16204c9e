"""Standing instructions and preferences: found by their form, and used where help is asked for."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support import ids, open_memory

from zeromem.config import Config, SignalWeights
from zeromem.index.features import INSTRUCTS, PREFERS
from zeromem.ingest.standing import instructs_reader, states_preference
from zeromem.query.help import asks_help
from zeromem.types import Trace


@pytest.mark.parametrize(
    "text",
    [
        "Always answer in metric units.",
        "Thanks! From now on, use British spelling please.",
        "Please never show me spoilers.",
        "Fine. And whenever I ask for a recipe, leave out nuts.",
        "You should always cite the page.",
        "I want you to never use tables.",
        "- By default, write short replies",
        "Every time I mention a deadline, add it to the list",
    ],
)
def test_a_standing_instruction_is_told_by_its_form(text):
    assert instructs_reader(text)


@pytest.mark.parametrize(
    "text",
    [
        "I always answer in metric units.",
        "Whenever it rains, the cellar floods.",
        "She never shows me anything.",
        "He has always been there, from now on or not.",
        "We always leave at nine.",
        "Whenever we cook, leave the window open.",
        "",
    ],
)
def test_a_habit_is_no_instruction(text):
    assert not instructs_reader(text)


@pytest.mark.parametrize(
    ("text", "prefers"),
    [
        ("I'd rather keep it simple.", True),
        ("I really prefer window seats", True),
        ("I don't eat meat.", True),
        ("My preference is trains.", True),
        ("She prefers window seats.", False),
        ("Would you rather fly?", False),
    ],
)
def test_a_preference_is_the_speakers_own(text, prefers):
    assert states_preference(text) is prefers


@pytest.mark.parametrize(
    ("question", "help_"),
    [
        ("How should I cite this source?", True),
        ("How did I cite this source?", False),
        ("Can you plan a weekend in Ghent?", True),
        ("Which tools are there for pruning?", True),
        ("What is my budget?", False),
        ("What have I told you about my budget?", False),
        ("I'm planning a trip. Where can I stay?", True),
        ("What did you recommend for the trip?", False),
        ("How many plants are in my greenhouse?", False),
        ("Explain how a heat pump works", True),
        ("Where does the colleague whom we met in May live?", False),
    ],
)
def test_help_or_recollection(question, help_):
    assert asks_help(question) is help_


TALK = [
    Trace("I grew up near the harbour and the soup there was good.", id="harbour", role="user"),
    Trace("Always give soup amounts in grams.", id="grams", role="user"),
    Trace("Always give soup amounts in grams, I was told.", id="echo", role="assistant"),
    Trace("I prefer thick soup.", id="thick", role="user"),
    Trace("The soup was cold when the train came.", id="cold", role="user"),
    Trace("Soup is a dish of water and vegetables.", id="dish", role="assistant"),
]


NEUTRAL = replace(
    Config(),
    graph=replace(Config().graph, refine=replace(Config().graph.refine, standing=0.0)),
    hierarchy=replace(Config().hierarchy, score=replace(Config().hierarchy.score, standing=0.0)),
)


@pytest.fixture(scope="module")
def memory():
    with open_memory() as found:
        found.add_many(TALK)
        yield found


def test_a_standing_instruction_comes_up_where_help_is_asked_for(memory):
    question = "How do I make good soup near the harbour?"
    at = ids(memory.retrieve(question, k=6, closure=False)).index("grams")
    with open_memory(config=NEUTRAL) as without:
        without.add_many(TALK)
        assert at < ids(without.retrieve(question, k=6, closure=False)).index("grams")


def test_it_does_not_where_the_past_is_asked_for(memory):
    with_it = memory.retrieve("Was the soup cold when the train came?", k=6, closure=False)
    assert ids(with_it)[0] == "cold"
    with open_memory(config=NEUTRAL) as without:
        without.add_many(TALK)
        other = without.retrieve("Was the soup cold when the train came?", k=6, closure=False)
    assert [(e.id, e.fused) for e in with_it] == [(e.id, e.fused) for e in other]


def test_only_what_the_user_says_counts_and_a_preference_counts_less():
    only = SignalWeights(standing=1.0)
    config = Config()
    config = replace(config, hierarchy=replace(config.hierarchy, score=only, contrast=1.0))
    with open_memory(config=config) as memory:
        memory.add_many(TALK)
        found = memory.retrieve("How do I make soup?", k=6, view="hierarchy", closure=False)
        score = {e.id: e.fused for e in found}
    assert score == {
        "grams": 1.0, "thick": pytest.approx(0.25), "harbour": 0, "echo": 0, "cold": 0, "dish": 0,
    }  # fmt: skip


def test_flags_are_bits_of_their_own():
    assert INSTRUCTS & PREFERS == 0


def test_between_people_nobody_is_asked_for_help():
    """Where there is no assistant, or a speaker is asked about, a preference is no instruction."""
    friends = [
        Trace("Always water the fern.", id="fern", role="user", speaker="Ana"),
        Trace("The fern died when the heating failed.", id="died", role="user", speaker="Ben"),
    ]
    helped = [*friends, Trace("Ferns like shade.", id="shade", role="assistant")]
    for traces, question in ((friends, "Which plants like shade?"), (helped, "What does Ana do?")):
        with open_memory() as with_it, open_memory(config=NEUTRAL) as without:
            found = []
            for memory in (with_it, without):
                memory.add_many(traces)
                found.append([(e.id, e.fused) for e in memory.retrieve(question, k=3)])
        assert found[0] == found[1]
