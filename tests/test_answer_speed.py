"""What keeps answers quick: each text parsed and encoded once, work linear in the evidence."""

from __future__ import annotations

import numpy as np
import pytest

from zeromem.answer import answer_from, readers
from zeromem.answer.language import load_nlp
from zeromem.answer.parsed import parse
from zeromem.answer.passages import read_passages
from zeromem.answer.recent import Recent
from zeromem.query.profile import profile
from zeromem.times import EventTime
from zeromem.types import Evidence, Retrieval, Route, Trace


def item(n, text):
    trace = Trace(text, id=f"t{n}", speaker=("Tess", "Jon")[n % 2], session="s",
                  time=EventTime.parse("2025-05-05T10:00+00:00"))  # fmt: skip
    return Evidence(text, trace, n + 1, 0, len(text), "main", 1.0, 0.0, n + 1, None, None, (), (),
                    "", len(text.split()))  # fmt: skip


def test_the_least_recently_used_goes_first_and_what_is_too_large_is_not_kept():
    kept = Recent(limit=5)
    kept.put("a", 1, 2)
    kept.put("b", 2, 2)
    assert kept.get("a") == 1
    kept.put("c", 3, 2)
    assert (kept.get("a"), kept.get("b"), kept.get("c")) == (1, None, 3)
    assert kept.put("d", 4, 6) == 4
    assert kept.get("d") is None
    kept.put("c", 5, 4)
    assert (kept.get("a"), kept.get("c"), len(kept)) == (None, 5, 1)


def test_a_text_is_parsed_once_and_belongs_to_each_item_that_holds_it():
    seen = []

    def nlp(text):
        seen.append(text)
        return load_nlp()(text)

    texts = ["I fed the hens. Then it rained.", "A kite got stuck in the birch."]
    first = parse(texts, nlp)
    assert parse([texts[1], texts[0]], nlp) == [first[1], first[0]]
    assert seen == texts
    passages = read_passages([item(0, texts[0]), item(1, texts[0])], nlp)
    assert [(s.item, s.index, s.speaker) for s in passages.sentences] == [
        (0, 0, "tess"), (0, 1, "tess"), (1, 0, "jon"), (1, 1, "jon"),
    ]  # fmt: skip
    assert seen == texts


def test_parses_in_a_batch_are_those_of_one_text_at_a_time():
    texts = [f"Tess sold {n} jars of plum jam at the market in Namur last Friday." for n in "29"]
    nlp = load_nlp()
    together = [[(t.lemma_, t.dep_, t.ent_type_) for t in d] for d in nlp.many(texts)]
    alone = [[(t.lemma_, t.dep_, t.ent_type_) for t in nlp._english.parse([t_])[0]] for t_ in texts]
    assert together == alone


@pytest.mark.parametrize("question", ["What did Tess sell?", "When did Tess sell 7 jars?"])
def test_each_text_is_encoded_once_and_the_question_once(question):
    asked = []

    def encode(texts):
        asked.extend(texts)
        return np.full((len(texts), 4), 0.5, np.float32)

    items = [item(n, f"I sold {n} jars of jam. It was sunny.") for n in range(8)]
    retrieval = Retrieval(tuple(items), profile(question, known_names={"tess"}), Route.LOCAL, "")
    reader = readers.extractive(encode=encode)
    answer_from(question, retrieval, reader)
    assert len(asked) <= 2 + 3 * 8 * 2
