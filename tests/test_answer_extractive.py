"""The reader without a language model: one question per kind over small talks of our own."""

from __future__ import annotations

import pytest

from zeromem.answer import answer_from, readers
from zeromem.query.profile import profile
from zeromem.times import EventTime
from zeromem.types import Evidence, Retrieval, Route, TokenUsage, Trace

TALK = [
    ("a", "2025-03-02T18:00+00:00", "Mara", "I finally handed in my notice at the bank on Friday."),
    ("a", "2025-03-02T18:04+00:00", "Mara",
     "I'm going to train as a gardener. The course begins next month and takes two years."),
    ("a", "2025-03-02T18:06+00:00", "Oskar",
     "We adopted a greyhound from the rescue centre yesterday. His name is Turbo."),
    ("a", "2025-03-02T18:08+00:00", "Mara", "I owe you 45 pounds for the concert tickets."),
    ("b", "2025-05-20T20:03+00:00", "Mara",
     "Our head teacher is Mr Adeyemi. We are twelve students in the group."),
    ("b", "2025-05-20T20:05+00:00", "Oskar", "I broke my wrist two weeks ago on a ladder."),
    ("b", "2025-05-20T20:10+00:00", "Mara",
     "Here's my first flower bed. [picture: a round bed with orange tulips]"),
    ("b", "2025-05-20T20:15+00:00", "Mara", "I don't eat meat any more."),
    ("c", "2025-08-11T19:00+00:00", "Mara",
     "Priya and I left the flat in Leeds and moved to a cottage in Haworth on 2 August."),
    ("c", "2025-08-11T19:03+00:00", "Mara", "I planted beans, courgettes and three apple trees."),
    ("c", "2025-08-11T19:06+00:00", "Oskar", "Ines saw a bear from the bus."),
    ("c", "2025-08-11T19:07+00:00", "Mara", "A bear! Was she scared?"),
    ("c", "2025-08-11T19:08+00:00", "Oskar", "Not at all, she waved. She wants to be ranger."),
    ("c", "2025-08-11T19:10+00:00", "Mara",
     "My brother Felix is a ranger. He works in the Cairngorms, counting eagles."),
    ("c", "2025-08-11T19:13+00:00", "weather_tool",
     "Forecast for Haworth, Saturday 16 August 2025: light rain, high 19 °C, wind 24 km/h."),
    ("d", "2025-11-30T17:00+00:00", "Mara", "My boss Wanda taught me grafting in one afternoon."),
    ("d", "2025-11-30T17:06+00:00", "Oskar",
     "We're The Loose Valves now. Our first concert is on 20 December at the Half Moon pub."),
    ("d", "2025-11-30T17:12+00:00", "Mara",
     "I read The Salt Path, Wilding and The Overstory this year."),
    ("d", "2025-11-30T17:14+00:00", "Oskar", "I prefer tea to coffee these days."),
]  # fmt: skip


def evidence(talk=TALK):
    items = []
    for n, (session, when, who, text) in enumerate(talk):
        trace = Trace(text, id=f"t{n}", speaker=who, session=session, time=EventTime.parse(when))
        items.append(Evidence(text, trace, n + 1, 0, len(text), "main", 1 / (n + 1), 0, n + 1, None,
                              None, (), (), "", len(text.split())))  # fmt: skip
    return tuple(items)


def ask(question, items=None, reader=None):
    items = evidence() if items is None else items
    known = {"mara", "oskar", "ines", "priya", "haworth"}
    retrieval = Retrieval(items, profile(question, known_names=known), Route.LOCAL, "")
    return answer_from(question, retrieval, reader or readers.extractive())


@pytest.mark.parametrize(
    ("question", "answer", "source"),
    [
        ("When did Oskar adopt his greyhound?", "1 March 2025", "t2"),
        ("When did Oskar break his wrist?", "two weeks before 20 May 2025", "t5"),
        ("In which month does the course begin?", "April 2025", "t1"),
        ("When is the first concert?", "20 December 2025", "t16"),
        ("How long does the course take?", "two years", "t1"),
        ("How much does Mara owe Oskar?", "45 pounds", "t3"),
        ("How many students are in Mara's group?", "twelve", "t4"),
        ("Who taught Mara grafting?", "Wanda", "t15"),
        ("Where did Mara live before Haworth?", "Leeds", "t8"),
        ("Where does Mara's brother work?", "Cairngorms", "t13"),
        ("What is the name of Oskar's greyhound?", "Turbo", "t2"),
        ("What has Mara planted?", "beans, courgettes and three apple trees", "t9"),
        ("Which animal did Ines see from the bus?", "bear", "t10"),
        ("What does Ines want to be?", "ranger", "t12"),
        ("Does Mara eat meat?", "No", "t7"),
        ("Was Ines scared of the bear?", "No", "t12"),
        ("Did Oskar break his wrist?", "Yes", "t5"),
        ("Does Oskar prefer tea or coffee?", "tea", "t18"),
        ("Which books did Mara read?", "The Salt Path, Wilding, The Overstory", "t17"),
        ("What color are the tulips in Mara's picture?", "orange", "t6"),
        ("How warm will it get in Haworth on Saturday?", "19 °C", "t14"),
    ],
)
def test_one_question_of_each_kind(question, answer, source):
    found = ask(question)
    assert found.text == answer
    assert source in {c.id for c in found.citations}
    assert found.usage == TokenUsage()


@pytest.mark.parametrize(
    "question", ["What is the capital of Mongolia?", "When did Mara sell the submarine?"]
)
def test_it_abstains_where_nothing_speaks_of_the_matter(question):
    found = ask(question)
    assert (found.text, found.citations) == ("", ())


def test_the_newest_value_of_a_changed_fact_wins_whatever_the_rank():
    old = ("a", "2024-01-05T10:00+00:00", "Tess", "I work at Corvin Mills as a weaver.")
    new = ("b", "2025-01-05T10:00+00:00", "Tess", "I work at Lunar Press as a printer.")
    for talk in ([old, new], [new, old]):
        assert ask_tess("Where does Tess work now?", talk) == "Lunar Press"


def ask_tess(question, talk):
    items = evidence(talk)
    retrieval = Retrieval(items, profile(question, known_names={"tess", "jon"}), Route.LOCAL, "")
    return answer_from(question, retrieval, readers.extractive()).text


def test_first_person_is_the_speaker():
    talk = [("a", "2025-01-05T10:00+00:00", "Jon", "I was born in Oslo."),
            ("a", "2025-01-05T10:01+00:00", "Tess", "I was born in Turin.")]  # fmt: skip
    assert ask_tess("Where was Tess born?", talk) == "Turin"
    assert ask_tess("Where was Jon born?", talk) == "Oslo"


def test_a_description_of_a_person_is_resolved_first():
    talk = [("a", "2025-01-05T10:00+00:00", "Tess", "My neighbour Ruth gave me a banjo."),
            ("b", "2025-02-05T10:00+00:00", "Tess", "Ruth lives in Ostend near the harbour."),
            ("b", "2025-02-05T10:01+00:00", "Jon", "I live in Namur.")]  # fmt: skip
    assert ask_tess("Where does the woman who gave Tess a banjo live?", talk) == "Ostend"


def test_similarity_finds_an_answer_in_other_words():
    import numpy as np

    talk = [("a", "2025-01-05T10:00+00:00", "Tess", "The weather was awful."),
            ("a", "2025-01-05T10:01+00:00", "Tess", "Pavel mended my squeezebox.")]  # fmt: skip
    items = evidence(talk)
    question = "Who restored the accordion of Tess?"

    def encode(texts):
        close = [1.0 if "Pavel" in t or "accordion" in t else 0.0 for t in texts]
        return np.array([[c, 1.0 - c] for c in close], np.float32)

    p = profile(question, known_names={"tess"})
    without = readers.extractive().read(question, items, profile=p)
    found = readers.extractive(encode=encode).read(question, items, profile=p)
    assert without.text == ""
    assert found.text == "Pavel"
    assert found.cited == (1,)


def test_it_says_the_same_twice_and_its_spans_quote_the_evidence():
    reader = readers.extractive()
    items = evidence()
    p = profile("Who taught Mara grafting?", known_names={"mara"})
    first = reader.read(p.text, items, profile=p)
    assert first == reader.read(p.text, items, profile=p)
    ((item, start, end),) = first.spans
    assert items[item].text[start:end] == "Wanda"


@pytest.mark.parametrize(
    "text", ["\ud800 lone", "a\0b", "猫がいます。", "שלום עולם", "😀" * 40, " ", "word " * 3000]
)
def test_odd_evidence_does_not_raise(text):
    talk = [("a", "2025-01-05T10:00+00:00", "Tess", text)]
    for question in ("What is it?", "When?", "How many cats?", "Is it raining?", "猫はどこ?"):
        ask(question, evidence(talk))


def test_without_evidence_it_abstains():
    draft = readers.extractive().read("Who?", (), profile=profile("Who?"))
    assert draft.text == ""


def both(question, talk, known=("tess", "jon"), encode=None):
    items = evidence(talk)
    p = profile(question, known_names=set(known))
    found = readers.extractive(encode=encode)
    return answer_from(question, Retrieval(items, p, Route.LOCAL, ""), found).text


def said(*turns):
    """Turns of one speaker each: (day, speaker, text)."""
    return [(day, f"{day}T10:0{n % 10}+00:00", who, text)
            for n, (day, who, text) in enumerate(turns)]  # fmt: skip


def test_a_birth_in_other_words_is_dated_by_its_own_sentence():
    talk = said(("2025-03-10", "Tess", "My course begins on 2 May."),
                ("2025-03-10", "Tess", "I'm an aunt! My sister had a little boy yesterday."),
                ("2025-03-11", "Jon", "My nephew starts school on 1 September."))  # fmt: skip
    assert both("When was Tess's nephew born?", talk) == "9 March 2025"


def test_a_place_is_no_part_of_a_thing_and_he_is_no_woman():
    talk = said(("2025-01-05", "Tess", "My neighbour Ruth gave me a sourdough, it is called Hugo."),
                ("2025-01-05", "Tess", "He lives at the back of the fridge."),
                ("2025-06-05", "Tess", "Ruth sold her house and moved to Namur."))  # fmt: skip
    question = "Where does the woman who gave Tess a sourdough live now?"
    assert both(question, talk) == "Namur"


@pytest.mark.parametrize(
    ("told", "answer"),
    [
        ("I gave up after the second lake.", "No"),
        ("I only got to the second lake, my knee was gone.", "No"),
        ("I got as far as the second lake and took the bus home.", "No"),
        ("I made it, in four hours!", "Yes"),
    ],
)
def test_what_was_begun_is_carried_through_or_not(told, answer):
    talk = said(("2025-05-01", "Tess", "I signed up for the lake run in June."),
                ("2025-06-20", "Jon", "How was the lake run?"),
                ("2025-06-20", "Tess", told))  # fmt: skip
    assert both("Did Tess make it to the end of the lake run?", talk, encode=_alike) == answer
    assert both("Did Tess make it to the end of the lake run?", talk[:1], encode=_alike) == ""


def _alike(texts):
    import numpy as np

    rows = np.ones((len(texts), 2), np.float32)
    rows[:, 1] = [0.1 * (len(t) % 3) for t in texts]
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize(
    "now",
    ["From May on I'm a piano tuner.", "Three weeks a piano tuner and I love it.",
     "I work as a piano tuner."],
)  # fmt: skip
def test_an_occupation_is_the_newest_one_and_no_state_of_mind(now):
    talk = said(("2025-01-05", "Tess", "I work as a bus driver."),
                ("2025-05-05", "Tess", now),
                ("2025-05-05", "Tess", "I'm a happy woman. I was a wreck in winter."))  # fmt: skip
    assert both("What does Tess do for a living now?", talk) == "piano tuner"


def test_a_gift_comes_from_the_giver_asked_for():
    talk = said(
        ("2025-05-05", "Tess", "Dad sent a clock, and my colleagues chipped in for a tent.")
    )
    question = "What birthday present did Tess get from the people she works with?"
    assert both(question, talk, encode=_alike) == "tent"


def test_a_price_is_the_amount_under_its_label():
    talk = said(("2025-05-05", "Tess", "We guessed 150 for the boat."),
                ("2025-05-06", "booking", "Boat hire: Total 184.20 EUR, deposit 40.00 EUR."),
                )  # fmt: skip
    assert both("What is the full price of the boat hire?", talk) == "184.20 EUR"


def test_hours_and_minutes_are_one_length():
    talk = said(("2025-05-05", "Tess", "I ran the marathon in 3 hours and 48 minutes."))
    assert both("How long did Tess take for the marathon?", talk) == "3 hours and 48 minutes"


def test_the_newest_amount_of_a_thing_wins_where_the_verb_differs():
    talk = said(("2025-01-05", "Tess", "I pay 500 euros rent."),
                ("2025-06-05", "Tess", "The rent went up again, it is 560 euros now."))  # fmt: skip
    assert both("How much rent does Tess pay now?", talk) == "560 euros"


def test_having_needs_the_thing_itself():
    talk = said(("2025-01-05", "Tess", "I have two goats and a piano."))
    assert both("Does Tess have a car?", talk) == ""
    assert both("Does Tess have a piano?", talk) == "Yes"


def test_a_number_after_a_noun_counts_nothing_after_it():
    talk = said(("2025-05-05", "Tess", "On plot 31 the beans have come up."),
                ("2025-05-06", "Tess", "I planted eighteen beans."))  # fmt: skip
    assert both("How many bean plants did Tess plant?", talk) == "eighteen"


def test_a_relative_is_named_beside_the_relation():
    talk = said(("2025-05-05", "Tess", "I will hike with my sister Ilse."),
                ("2025-05-06", "Tess", "Yes, every Monday with Mr Otto."))  # fmt: skip
    assert both("Who is Tess's sister?", talk) == "Ilse"


def test_a_list_of_a_kind_takes_hyponyms_from_several_items():
    import numpy as np

    talk = said(("2025-01-05", "Tess", "I had a parrot here all week, it ate my phone."),
                ("2025-02-05", "Tess", "I took in a tortoise for my aunt."),
                ("2025-02-06", "Jon", "I saw a badger."))  # fmt: skip
    animals = {"kinds of animals", "parrot", "tortoise", "badger"}

    def encode(texts):
        return np.array([[1, 0] if t in animals else [0, 1] for t in texts], np.float32)

    assert both("Which animals has Tess looked after?", talk, encode=encode) == "parrot, tortoise"


@pytest.mark.parametrize(
    ("told", "answer"),
    [
        ("I'm building a canoe in the shed.", "May 2025"),
        ("I've built a canoe in the shed.", "May 2025"),
        ("I've just built a canoe in the shed.", "5 May 2025"),
        ("I built a canoe in the shed.", "5 May 2025"),
        ("I've been building a canoe since 3 March 2025.", "3 March 2025"),
    ],
)
def test_what_goes_on_is_dated_to_the_month_and_news_to_the_day(told, answer):
    assert both("When did Tess build a canoe?", said(("2025-05-05", "Tess", told))) == answer


def test_an_event_without_a_date_is_dated_by_its_first_report():
    talk = said(("2025-07-05", "Tess", "I opened a bakery and I love it."),
                ("2025-05-05", "Tess", "I opened a bakery!"))  # fmt: skip
    assert both("When did Tess open a bakery?", talk) == "5 May 2025"


def test_the_copula_is_no_part_of_the_answer():
    talk = said(("2025-05-05", "Tess", "After the race I was tired but proud."))
    assert both("How did Tess feel after the race?", talk) == "tired but proud"


def test_it_is_surer_of_what_the_evidence_states():
    reader = readers.extractive()
    items = evidence()
    sure = profile("Who taught Mara grafting?", known_names={"mara"})
    vague = profile("Who helped Mara with her homework?", known_names={"mara"})
    known, unknown = (reader.read(p.text, items, profile=p) for p in (sure, vague))
    assert known.confidence is not None
    assert unknown.confidence is None or unknown.confidence < known.confidence
    assert reader.read("Who?", (), profile=profile("Who?")).confidence is None
