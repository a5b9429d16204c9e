"""The query profile: answer types, cues and subjects by the form of a question."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zeromem.query.profile import profile
from zeromem.types import Boundary

NOW = datetime(2023, 7, 15, 12, tzinfo=UTC)
NAMES = frozenset({"ana", "tom", "mount rainier", "will", "it", "田中"})


def ask(question, **options):
    return profile(question, known_names=NAMES, reference_time=NOW, **options)


@pytest.mark.parametrize(
    ("question", "kind"),
    [
        ("Who gave Ana the red bicycle?", "person"),
        ("With whom did Tom travel?", "person"),
        ("Whose idea was it?", "person"),
        ("Which friend did Tom visit?", "person"),
        ("Where did Tom move from?", "place"),
        ("Which country is Ana from?", "place"),
        ("The river Ana swam in flows through which city?", "place"),
        ("When did Ana start?", "date"),
        ("In which month did Tom run the race?", "date"),
        ("What day did Tom arrive?", "date"),
        ("What time does the train leave?", "date"),
        ("How long has Tom been learning Italian?", "duration"),
        ("How many weeks did the trip take?", "duration"),
        ("How many plants does Ana have?", "number"),
        ("How many hours a day does Tom sleep?", "number"),
        ("How old is Tom's son?", "number"),
        ("How much did the bike cost?", "number"),
        ("What was the total price?", "number"),
        ("Is Tom allergic to nuts?", "yes_no"),
        ("Didn't Ana like the film?", "yes_no"),
        ("Does Ana prefer tea or coffee?", "choice"),
        ("Which does Tom like more, jazz, rock or opera?", "choice"),
        ("What books has Ana read?", "list"),
        ("Which cities did Tom visit in 2023?", "list"),
        ("What activities does Ana do with her family?", "list"),
        ("What are Ana's hobbies?", "list"),
        ("List the instruments that Tom plays.", "list"),
        ("Can you list Tom's instruments?", "list"),
        ("What kinds of music does Tom like?", "list"),
        ("What kind of music does Tom like?", "text"),
        ("What is Ana's cat called?", "text"),
        ("What does Ana do?", "text"),
        ("Why did Tom leave?", "text"),
        ("How did Tom fix the roof?", "text"),
        ("Which lens did Ana buy?", "text"),
        ("Can you tell me where Ana lives now?", "place"),
        ("Could you remind me how many eggs I need?", "number"),
        ("After moving to Porto, where did Tom work?", "place"),
        ("", "text"),
        ("猫はどこ", "text"),
    ],
)
def test_answer_type_follows_the_form(question, kind):
    assert ask(question).answer_type == kind


@pytest.mark.parametrize(
    ("question", "choices"),
    [
        ("Does Ana prefer tea or coffee?", ("tea", "coffee")),
        ("Which does Tom like more, jazz, rock or opera?", ("jazz", "rock", "opera")),
        ("Did Tom buy the blue or the green car?", ("blue", "green car")),
        ("Is the office in the city or in the country?", ("in the city", "in the country")),
        ("Did Ana take the train or the bus on Monday?", ("train", "bus")),
    ],
)
def test_choices_are_the_alternatives(question, choices):
    assert ask(question).choices == choices


@pytest.mark.parametrize(
    ("question", "kind", "start", "end"),
    [
        ("When did Ana arrive?", "when", None, None),
        ("When did Ana ski in 2022?", "when", "2022-01-01", "2023-01-01"),
        ("What did Ana do last week?", "at", "2023-07-03", "2023-07-10"),
        ("What did Ana do before May 2023?", "before", None, "2023-05-01"),
        ("What did Ana do after 3 May 2023?", "after", "2023-05-04", None),
        ("What did Ana do since May 2023?", "after", "2023-05-01", None),
        ("What happened between May 2023 and July 2023?", "between", "2023-05-01", "2023-08-01"),
        ("What happened from 3 May 2023 to 5 May 2023?", "between", "2023-05-03", "2023-05-06"),
        ("Where does Ana work now?", "current", None, None),
        ("What is Ana's current job?", "current", None, None),
        ("What was Ana's first job?", "first", None, None),
        ("What is Ana's first name?", "none", None, None),
        ("Where did Ana last see him?", "last", None, None),
        ("How long did it take?", "duration", None, None),
        ("What is it?", "none", None, None),
    ],
)
def test_temporal_cue(question, kind, start, end):
    cue = ask(question).temporal
    shown = tuple(t and str(t.date()) for t in (cue.start, cue.end))
    assert (cue.kind, *shown) == (kind, start, end)


def test_relative_words_without_a_reference_time_are_never_read_off_the_clock():
    found = profile("What did Ana do last week?")
    assert found.temporal.start is None
    assert found.reference_time is None


def test_subjects_are_the_longest_known_names_in_order_then_the_annotators():
    found = ask("Did Tom's sister see Mount Rainier with Ana?", query_entities=["The Alps", "Tom"])
    assert found.subjects == ("tom", "mount rainier", "ana", "alps")


def test_a_function_word_is_no_subject_where_it_is_also_a_name():
    assert ask("will it rain in May?").subjects == ()
    assert ask("Does Will like it?").subjects == ("will",)
    assert ask("田中さんの猫は?").subjects == ("田中",)


def test_phrases_are_quotations_and_capitalised_runs():
    found = ask('What did "the old mill" mean to Tom Harper at Kings Cross Station on 3 May 2023?')
    assert found.phrases == ("the old mill", "Tom Harper", "Kings Cross Station")


@pytest.mark.parametrize(
    ("question", "expected"),
    [("What books has Ana read?", True), ("How many books has Ana read?", True),
     ("What do Ana and Tom have in common?", True), ("Where does Ana live?", False)],
)  # fmt: skip
def test_aggregation(question, expected):
    assert ask(question).aggregation is expected


def test_boundary_and_reference_time_are_carried():
    boundary = Boundary(speakers=("Ana",))
    found = ask("Where?", boundary=boundary)
    assert found.boundary is boundary
    assert found.reference_time == NOW


def test_keywords_are_unique_lexical_terms_in_order():
    from zeromem.text import terms

    question = "What kittens did the kitten's kittens chase?"
    assert ask(question).keywords == tuple(dict.fromkeys(terms([question])[0]))


def test_ten_thousand_words_are_no_trouble():
    found = ask("where is Ana " * 3400)
    assert found.subjects == ("ana",)


@given(st.text(max_size=200))
@settings(deadline=None, max_examples=200)
def test_any_text_has_a_profile_and_the_same_one_twice(text):
    assert ask(text) == ask(text)
