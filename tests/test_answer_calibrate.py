"""Calibration of eq. 16: repairs what evidence can repair, never harms a supported draft."""

from __future__ import annotations

import random

import pytest

from zeromem.answer import Draft, answer_from
from zeromem.query.profile import profile
from zeromem.times import EventTime
from zeromem.types import Evidence, Retrieval, Route, TokenUsage, Trace

TALK = [
    ("Ida", "2025-03-03T10:00+01:00", "I adopted a rabbit last Friday. His name is Pickle."),
    ("Bram", "2025-03-03T10:02+01:00", "A rabbit! I paid 40 euros for my hamster cage."),
    ("Ida", "2025-04-07T18:00+02:00", "My aunt Greta gave me a red kayak yesterday."),
    ("Ida", "2025-04-07T18:03+02:00", "I play the cello, the harp and the banjo."),
    ("Bram", "2025-05-01T09:00+02:00", "I moved from Utrecht to Ghent in April."),
]


def evidence(talk=TALK):
    items = []
    for n, (who, when, text) in enumerate(talk):
        trace = Trace(text, id=f"t{n}", speaker=who, session="s", time=EventTime.parse(when))
        items.append(Evidence(text, trace, n + 1, 0, len(text), "main", 1 / (n + 1), 0, n + 1, None,
                              None, (), (), "", len(text.split())))  # fmt: skip
    return tuple(items)


class Says:
    """A reader that says what it is told to."""

    def __init__(self, text, cited=()):
        self.draft = Draft(text, TokenUsage(9, 3, 1), cited)

    def read(self, question, evidence, *, profile):
        return self.draft


def calibrated(question, draft, items=None, cited=()):
    items = evidence() if items is None else items
    p = profile(question, known_names={"ida", "bram"})
    return answer_from(question, Retrieval(items, p, Route.LOCAL, ""), Says(draft, cited))


SUPPORTED = [
    ("What is Ida's rabbit called?", "Pickle"),
    ("When did Ida adopt a rabbit?", "28 February 2025"),
    ("When did Ida adopt a rabbit?", "February 2025"),
    ("How much did Bram pay for the cage?", "40 euros"),
    ("How much did Bram pay for the cage?", "40"),
    ("Who gave Ida a kayak?", "Greta"),
    ("Who gave Ida a kayak?", "her aunt Greta"),
    ("Where did Bram move from?", "Utrecht"),
    ("Which instruments does Ida play?", "cello, harp, banjo"),
    ("Which instruments does Ida play?", "the cello, the harp and the banjo"),
    ("Does Ida play the cello?", "Yes"),
    ("Does Ida play the tuba?", "No, the records name other instruments"),
    ("What did Greta give Ida?", "a red kayak"),
]


@pytest.mark.parametrize(("question", "draft"), SUPPORTED)
def test_a_supported_well_formed_draft_is_kept_as_it_is(question, draft):
    answer = calibrated(question, draft)
    assert answer.text == draft
    assert [s.action for s in answer.steps] == ["keep"]
    assert answer.draft == draft


@pytest.mark.parametrize(
    ("question", "draft", "reason"),
    [
        ("What did Greta give Ida?", "a red kayak", "its words stand in the evidence"),
        ("How much did Bram pay for the cage?", "40 euros", "the evidence has this value"),
        ("Does Ida play the tuba?", "Yes", "it says yes or no, which is not checked any further"),
    ],
)
def test_what_is_said_of_a_kept_draft_is_what_was_checked(question, draft, reason):
    (step,) = calibrated(question, draft).steps
    assert (step.action, step.reason) == ("keep", reason)


@pytest.mark.parametrize("seed", range(5))
def test_a_supported_draft_survives_whatever_else_is_in_the_evidence(seed):
    rng = random.Random(seed)
    talk = [*TALK, ("Bram", "2025-06-01T09:00+02:00", "My sister Noor paid 75 euros in Bruges."),
            ("Ida", "2025-06-02T09:00+02:00", "I met Hugo in Lisbon last month.")]  # fmt: skip
    rng.shuffle(talk)
    for question, draft in SUPPORTED:
        assert calibrated(question, draft, evidence(talk)).text == draft


def test_a_relative_date_counts_from_the_record_that_says_it():
    answer = calibrated("When did Ida adopt a rabbit?", "last Friday")
    assert answer.text == "Friday 28 February 2025"
    (step,) = answer.steps
    assert step.action == "normalize"
    assert (step.source.id, step.source.text) == ("t0", "last Friday")
    assert answer.citations[0].id == "t0"


def test_a_relative_date_that_two_records_use_differently_is_left_alone():
    talk = [("Ida", "2025-03-03T10:00+01:00", "I ran yesterday."),
            ("Ida", "2025-05-03T10:00+01:00", "I swam yesterday.")]  # fmt: skip
    assert calibrated("When did Ida run?", "yesterday", evidence(talk)).text == "yesterday"


def test_a_sentence_around_one_value_is_shortened_to_it():
    answer = calibrated("Where did Bram move from?", "Bram says that he moved away from Utrecht")
    assert answer.text == "Utrecht"
    assert answer.steps[-1].action == "shorten"
    assert TALK[4][2][answer.steps[-1].source.start :].startswith("Utrecht")


def test_framing_is_no_part_of_an_answer():
    answer = calibrated("Who gave Ida a kayak?", "According to the records, Greta.")
    assert answer.text == "Greta"
    assert answer.steps[0].action == "normalize"


def test_unsupported_and_repeated_items_are_pruned_and_named():
    answer = calibrated("Which instruments does Ida play?", "cello, tuba, harp, cello")
    assert answer.text == "cello, harp"
    assert answer.steps[0].action == "prune"
    assert answer.steps[0].reason == "the evidence has no word of 'tuba'"
    repeated = calibrated("Which instruments does Ida play?", "cello, harp, cello")
    assert repeated.steps[0].reason == "an item was repeated"


def test_a_list_without_any_supported_item_is_kept():
    answer = calibrated("Which instruments does Ida play?", "tuba, oboe")
    assert answer.text == "tuba, oboe"
    assert answer.steps[0].action == "keep"


def test_an_unsupported_scalar_gives_way_to_the_only_candidate():
    talk = [TALK[1], TALK[3]]
    answer = calibrated("How much did Bram pay for the cage?", "55 euros", evidence(talk))
    assert answer.text == "40 euros"
    (step,) = answer.steps
    assert (step.action, step.before, step.after) == ("replace", "55 euros", "40 euros")
    assert step.source.text == "40 euros"


def test_an_unsupported_scalar_with_two_candidates_is_kept():
    talk = [("Bram", "2025-03-03T10:00+01:00", "I paid 40 euros for the cage and 9 euros for it.")]
    answer = calibrated("How much did Bram pay for the cage?", "55 euros", evidence(talk))
    assert answer.text == "55 euros"
    assert answer.steps[0].reason == "no deterministic correction is available"


def test_free_text_is_never_replaced():
    answer = calibrated("Why did Bram move?", "because of the canals")
    assert answer.text == "because of the canals"


def test_yeah_becomes_yes():
    answer = calibrated("Does Ida play the cello?", "yeah")
    assert answer.text == "Yes"
    assert answer.steps[0].action == "normalize"


def test_an_abstaining_reader_stays_silent():
    answer = calibrated("Who gave Ida a kayak?", "")
    assert (answer.text, answer.citations) == ("", ())
    assert answer.steps[0].reason == "the reader abstained"


def test_no_evidence_spends_nothing():
    class Fails:
        def read(self, question, evidence, *, profile):
            raise AssertionError("asked without evidence")

    retrieval = Retrieval((), profile("Who?"), Route.LOCAL, "")
    answer = answer_from("Who?", retrieval, Fails())
    assert (answer.text, answer.usage) == ("", TokenUsage())
    assert len(answer.steps) == 1


def test_usage_and_citations_are_carried():
    answer = calibrated("What is Ida's rabbit called?", "Pickle", cited=(0,))
    assert answer.usage == TokenUsage(9, 3, 1)
    (cited,) = answer.citations
    assert cited.id == "t0"
    assert cited.text == "His name is Pickle."
    assert TALK[0][2][cited.start : cited.end] == cited.text


def test_without_named_sources_the_holding_sentence_is_cited():
    (cited,) = calibrated("Where did Bram move from?", "Utrecht").citations
    assert cited.id == "t4"


def test_a_citation_counts_characters_in_the_trace_not_in_the_piece():
    trace = Trace("Skip this. My cat is Zora.", id="x", speaker="Ida")
    piece = Evidence("My cat is Zora.", trace, 1, 11, 26, "main", 1, 1, 1, 1, 1, (), (), "", 4)
    (cited,) = calibrated("What is Ida's cat called?", "Zora", (piece,)).citations
    assert trace.text[cited.start : cited.end] == cited.text
    assert "Zora" in cited.text


@pytest.mark.parametrize(
    "bad", ["\ud800", "a\0b", "💥" * 50, "猫" * 50, "x" * 5000, "-,;:.!?", "1,2,3"]
)
def test_odd_drafts_and_evidence_do_not_raise(bad):
    items = evidence([("Ida", "2025-03-03T10:00+01:00", f"I said {bad} yesterday.")])
    for question in ("When did Ida say it?", "Which things did Ida say?", "How many?", "Who?"):
        answer = calibrated(question, bad, items)
        assert answer.steps


def test_a_list_loses_only_what_nothing_told_has_a_word_of_and_keeps_its_form():
    assert calibrated("Which instruments does Ida play?", "cello, harp and tuba").text == (
        "cello, harp"
    )
    kept = calibrated("Which instruments does Ida play?", "tuba, cello and harp").text
    assert kept == "cello and harp"


def test_a_list_of_which_hardly_anything_was_told_stays():
    # What lacks is in the evidence, and the draft may know better.
    draft = "cello, tuba, drums"
    assert calibrated("Which instruments does Ida play?", draft).text == draft


def test_a_date_close_to_the_evidence_or_finer_than_it_is_left_to_the_reader():
    # "Last Friday" is read in more than one way; another day of that week is no mistake to mend.
    for draft in ("1 March 2025", "3 March 2025"):
        assert calibrated("When did Ida adopt a rabbit?", draft).text == draft
    assert (
        calibrated("When did Ida adopt a rabbit?", "9 May 2021").text == "Friday 28 February 2025"
    )


def test_a_vague_time_is_no_more_exact_for_being_counted_from_a_date():
    talk = [("Ida", "2025-03-03T10:00+01:00", "I learned to juggle a few years ago.")]
    draft = "a few years ago"
    assert calibrated("When did Ida learn to juggle?", draft, evidence(talk)).text == draft
