"""One question gets the same answer alone, in any batch, in any order, of any size."""

from __future__ import annotations

import random
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import NAMES, STORY, WORDS, logs, open_memory, shown

import zeromem
from zeromem.config import Config
from zeromem.errors import InvalidInputError
from zeromem.query.piece import Timer
from zeromem.query.profile import profile
from zeromem.query.ranked import Options
from zeromem.query.retrieve import BATCH, retrieve
from zeromem.types import Boundary, Trace

QUESTIONS = [
    "Where does Ana live now?",
    "Who founded Acme?",
    "What flows through Lisbon?",
    "When did Ben visit Porto Nova?",  # a name that the graph does not know
    "tuna",
    "of the and",
    "What do Ana and Ben share?",
    "Where does Ana live now?",
]


@pytest.fixture(scope="module", params=["default", "paper"])
def memory(request):
    config = Config.paper() if request.param == "paper" else Config()
    with open_memory(config=config) as found:
        found.add_many(STORY)
        for i in range(150):
            found.add(f"{NAMES[i % 5]} {WORDS[i % 9]} {WORDS[i % 7]} number {i}.",
                      speaker=["Ana", "Ben"][i % 2], session=f"s{i % 5}")  # fmt: skip
        yield found


def test_alone_as_in_any_batch_and_any_order(memory):
    alone = {q: shown(memory.retrieve(q, k=20)) for q in QUESTIONS}
    rng = random.Random(1)
    for size in (2, 3, 5, 8, BATCH, BATCH + 1, 2 * BATCH + 5):
        batch = [rng.choice(QUESTIONS) for _ in range(size)]
        found = memory.retrieve_batch(batch, k=20)
        assert [shown(r) for r in found] == [alone[q] for q in batch]


def test_no_question_is_no_work(memory):
    assert memory.retrieve_batch([]) == []
    with open_memory() as empty:
        assert empty.retrieve_batch([]) == []
        assert [len(r) for r in empty.retrieve_batch(QUESTIONS)] == [0] * len(QUESTIONS)


@settings(max_examples=15)
@given(logs, st.data())
def test_boundaries_mixed_in_one_batch_do_not_touch_each_other(log, data):
    """At the level where each question has its own boundary."""
    from support import HashEncoder, build, difference, rows_of

    index = build(rows_of(log))
    if not len(index):
        return
    boundaries = st.builds(
        Boundary,
        sessions=st.sampled_from([None, ("s1",), ("s2", "s3"), ("none such",)]),
        speakers=st.sampled_from([None, ("ANA",), ("Ben",)]),
        roles=st.sampled_from([None, ("user",), ("document", "assistant")]),
    )
    questions = [*QUESTIONS[:4], "Carla Reis loves tea in Lisbon", "Reis Works"]
    profiles = [
        profile(q, boundary=data.draw(boundaries), known_names=index.arrays.names,
                query_entities=["Reis Works"])
        for q in questions
    ]  # fmt: skip
    run = HashEncoder().encode
    together = retrieve(index, profiles, run, Options(k=9), Timer())
    apart = [retrieve(index, [p], run, Options(k=9), Timer())[0] for p in profiles]
    backwards = retrieve(index, profiles[::-1], run, Options(k=9), Timer())[::-1]
    assert difference(together, apart) is None
    assert difference(together, backwards) is None


def test_many_memories_are_asked_in_one_call(memory):
    with open_memory() as other, open_memory() as empty:
        other.add_many([Trace("Lisbon is rainy.", speaker="Zoe"), Trace("Acme is closed.")])
        asked = [
            (m, q)
            for q in QUESTIONS
            for m in (memory, other, empty)
        ]  # fmt: skip
        random.Random(2).shuffle(asked)
        found = zeromem.retrieve_batch(asked, k=4, speakers=["Ana", "Zoe"])
        wanted = [m.retrieve(q, k=4, speakers=["Ana", "Zoe"]) for m, q in asked]
        assert [shown(r) for r in found] == [shown(r) for r in wanted]
        assert zeromem.retrieve_batch([]) == []


def test_a_batch_shows_one_state_of_the_log(memory):
    found = memory.retrieve_batch(QUESTIONS)
    assert len({id(r.seconds) for r in found}) >= 1
    assert set(found[0].seconds) >= {"profile", "encode", "graph view", "fusion"}
    assert all(s >= 0 for s in found[0].seconds.values())


def test_answers_do_not_hang_on_the_thread(memory):
    wanted = [shown(r) for r in memory.retrieve_batch(QUESTIONS)]
    found, errors = {}, []

    def ask(n):
        try:
            found[n] = [shown(memory.retrieve(q)) for q in QUESTIONS]
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors
    assert all(found[n] == wanted for n in range(4))


def test_one_question_is_no_batch(memory):
    with pytest.raises(InvalidInputError, match="questions must be several.*retrieve takes one"):
        memory.retrieve_batch("Where?")
    with pytest.raises(InvalidInputError, match="question must be a non-empty str, got 5"):
        memory.retrieve_batch(["Where?", 5])


@pytest.mark.model
def test_a_real_encoder_keeps_the_best_in_any_batch():
    """It pads a batch to its longest text, which moves the last bits of a vector, and no more."""
    with zeromem.open(annotator="rules", device="cpu") as memory:
        memory.add_many(STORY)
        questions = [*QUESTIONS, "What did I tell you about " + "the very long river " * 30 + "?"]
        together = memory.retrieve_batch(questions, k=9)
        encoder = memory._featurizer.encoder
        vectors = encoder.encode(questions)
        for question, found, vector in zip(questions, together, vectors, strict=True):
            assert float(encoder.encode([question])[0] @ vector) > 0.999
            alone = memory.retrieve(question, k=9)
            assert alone.route is found.route
            assert alone.main[0].id == found.main[0].id
