"""The second hop: a context whose title a better one names in a sentence like the question."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support import BlindEncoder, ids, open_memory

from zeromem.config import Config
from zeromem.types import Trace

PAGES = [
    Trace(
        "The Silver Kettle is a novel by Orla Venn. It was filmed near Port Abel.",
        id="novel", role="document", title="The Silver Kettle",
    ),
    Trace("Orla Venn was born in 1931 and kept bees.", id="orla", role="document",
          title="Orla Venn"),
    Trace("Port Abel has a lighthouse and two ferries.", id="port", role="document",
          title="Port Abel"),
    *(
        Trace(f"The person who wrote the novel The Copper Kettle {n} was born in {1900 + n}.",
              id=f"other{n}", role="document", title=f"Copper Kettle {n}")
        for n in range(8)
    ),
]  # fmt: skip
QUESTION = "When was the person who wrote the novel The Silver Kettle born?"


def rank(config, question=QUESTION, **options):
    with open_memory(config=config, **options) as memory:
        memory.add_many(PAGES)
        found = memory.retrieve(question, k=11, view="graph", closure=False, calibration=False)
        return {e.id: (i, e.fused) for i, e in enumerate(found, 1)}


def without_hop():
    return replace(Config(), graph=replace(Config().graph, hop_weight=0.0))


def test_the_page_that_the_best_one_names_comes_up():
    before, after = rank(without_hop()), rank(Config())
    assert after["novel"][0] == 1
    assert after["orla"][0] == 2
    assert after["orla"][1] > before["orla"][1] + 0.1


def test_of_two_named_pages_the_one_in_the_sentence_like_the_question():
    lent = {k: rank(Config())[k][1] - rank(without_hop())[k][1] for k in ("orla", "port")}
    assert lent["orla"] > lent["port"]


def test_a_page_lends_itself_nothing():
    alone = [PAGES[0], *PAGES[3:]]
    scores = []
    for config in (Config(), without_hop()):
        with open_memory(config=config, encoder=BlindEncoder()) as memory:
            memory.add_many(alone)
            scores.append([(e.id, e.fused) for e in memory.retrieve(QUESTION, k=9, view="graph")])
    assert scores[0] == scores[1]


def test_no_sentence_like_the_question_no_hop():
    """A negative similarity counts as none (eq. 9)."""
    with open_memory(config=Config()) as memory:
        memory.add_many(PAGES)
        assert memory.retrieve("zzz", k=3)  # nothing is like it; nothing breaks
        assert (
            ids(memory.retrieve("Who wrote The Silver Kettle?", k=2, closure=False))[0] == "novel"
        )


@pytest.mark.parametrize("n_sources", [0, 1])
def test_it_starts_from_the_best_only(n_sources):
    config = replace(Config(), graph=replace(Config().graph, hop_from=n_sources))
    found = rank(config)
    if n_sources == 0:
        assert found == rank(without_hop())
    else:
        assert found["orla"][0] == 2
