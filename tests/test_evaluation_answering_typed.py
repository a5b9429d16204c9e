"""Types of answers, dates as periods, and the report about them."""

from __future__ import annotations

import pytest
from answering_support import PETS, Whole, dataset, question

from zeromem.answer.reader import Draft
from zeromem.evaluation.answering import readers, run, typed
from zeromem.evaluation.types import Budget


@pytest.mark.parametrize(
    ("asked", "gold", "kind"),
    [
        ("When did Ana move?", "7 May 2023", "date"),
        ("When did Ana move?", "The week before 9 June, 2023", "date"),
        ("When did Ana move?", "2022", "date"),
        ("When did Ana move?", "after the fair", "other"),
        ("Which month was the fair in?", "June 2023", "date"),
        ("How many cups did she win?", "three", "number"),
        ("How long has she played?", "4 years", "number"),
        ("How old is Ben?", "41", "number"),
        ("Who baked the bread?", "Karim", "name"),
        ("Which book did she read?", "The Old Mill", "name"),
        ("Where does Ana live?", "Graz", "place"),
        ("Where does Ana live?", "Graz, Austria", "place"),
        ("Which places did she visit?", "Graz, Linz, Wels", "list"),
        ("What pets does Ben have?", "two cats and a hare", "list"),
        ("Would Ben like it?", "Likely yes, since he sings", "yes/no"),
        ("Is the oven new?", "No", "yes/no"),
        ("Why did she leave?", "to learn how to sail", "other"),
    ],
)
def test_an_answer_has_the_type_that_its_form_and_its_questions_say(asked, gold, kind):
    assert typed.answer_type(asked, gold) == kind


@pytest.mark.parametrize(
    ("answer", "gold", "exact"),
    [
        ("May 7th, 2023", "7 May 2023", True),
        ("2023-05-07", "7 May, 2023.", True),
        ("on 7 May 2023, I think", "7 May 2023", True),
        ("7 May 2022", "7 May 2023", False),
        ("May 2023", "7 May 2023", False),
        ("7 May 2023", "May 2023", False),
        ("7 May", "7 May 2023", False),
        # Another wording of the same days.
        ("4 June 2023", "the Sunday before 9 June 2023", True),
        ("11 June 2023", "the Sunday before 9 June 2023", False),
        ("the week before 9 June 2023", "The week before 9 June, 2023", True),
        ("the week before 16 June 2023", "The week before 9 June 2023", False),
        ("9 June 2023", "The week before 9 June 2023", False),
        ("", "7 May 2023", False),
        ("last week", "7 May 2023", False),
        ("3 May 2023 and 7 May 2023", "7 May 2023", False),
        ("7 May 2023 and 3 May 2023", "3 May 2023, 7 May 2023", True),
    ],
)
def test_a_date_is_exact_where_it_denotes_the_golds_period(answer, gold, exact):
    assert typed.is_exact(answer, (gold,)) is exact


class Scripted:
    def __init__(self, answers):
        self.answers = answers

    def read(self, question, evidence, *, profile):
        return Draft(self.answers[question])


def test_the_report_counts_dates_where_the_gold_turn_was_shown():
    asked = [
        question("1", "When was the fair?", ["7 May 2023"], ["a1"]),
        question("2", "When was the race?", ["the Sunday before 9 June 2023"], ["a2"]),
        question("3", "When was the feast?", ["8 May 2023"], ["elsewhere"]),
        question("4", "When was the vote?", ["13 August"], ["a1"]),
        question("5", "When was the walk?", ["9 May 2023"], ["a3", "elsewhere"]),
        question("6", "Who came?", ["Karim"], ["a1"]),
        question("7", "Who left?", [], ["a1"]),
    ]
    said = ["May 7, 2023", "4 June 2023", "8 May 2023", "13 August", "May 2023", "Karim", "?"]
    answers = {q.query.text: a for q, a in zip(asked, said, strict=True)}
    given = dataset(tasks=[(PETS, asked)], corrected={})
    reader = readers.local(Scripted(answers), "scripted")
    found = run.answer(given, [Whole()], reader, Budget())["whole"]
    report = typed.report(given, found)
    assert report["dates"] == {
        "n": 5, "n_gold_shown": 4, "n_gold_unresolved": 1, "n_compared": 3,
        "exact": pytest.approx(2 / 3), "relative": {"n": 1, "exact": 1},
    }  # fmt: skip
    assert report["by_type"]["name"] == {
        "n": 1, "gam_f1": 1, "n_gold_shown": 1, "gam_f1_gold_shown": 1,
    }  # fmt: skip
    assert [*report["by_type"]] == [*typed.TYPES]
    assert report["by_type"]["place"]["gam_f1"] is None
    assert report["calibration"]["changed"] == 0


def test_the_report_by_corrected_labels():
    reader = readers.local(Scripted(dict.fromkeys(
        ["What is the dog called?", "When did Ben buy the boat?", "What is Ana's job?"], "Biscuit"
    )), "scripted")  # fmt: skip
    found = run.answer(dataset(), [Whole()], reader, Budget())["whole"]
    assert typed.report(dataset(), found)["by_type"]["name"]["gam_f1"] == 1
    fixed = typed.report(dataset(), found, corrected=True)["by_type"]
    assert fixed["name"]["n"] == 0
    assert fixed["other"]["gam_f1"] == 0
