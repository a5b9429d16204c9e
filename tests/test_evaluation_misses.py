"""Misses: each rule on a case of its own, their order, the ranks, and the command's form."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from evaluation_support import talk
from support import HashEncoder

from zeromem.evaluation import Dataset, History, Query, Question
from zeromem.evaluation.methods.zero_mem import OpenMemories
from zeromem.evaluation.misses import Found, Miss, collect, summary, table
from zeromem.evaluation.needs import RULES, Case, Reading, kinds
from zeromem.ingest.annotate import RuleAnnotator
from zeromem.query.profile import profile
from zeromem.times import EventTime
from zeromem.types import Trace

HERE = Path(__file__).resolve().parent


@pytest.fixture
def memories(tmp_path):
    opened = OpenMemories(tmp_path / "m.zm", HashEncoder(), "cpu", RuleAnnotator())
    yield opened
    opened.close()


def reading(memories, traces):
    history = History("h", tuple(traces))
    return Reading(history, *memories.index(history))


def held(memories, traces, question, gold, *, top=(), n_gold=1, found=()):
    read = reading(memories, traces)
    known = {*read.speakers, *memories.index(memories._history)[0].arrays.names}
    asked = profile(question, known_names=known)
    return kinds(Case(read, asked, gold, n_gold, frozenset(found), frozenset((*found, *top))))


FRIENDS = talk(
    ("Ines", "Which harbour did your cousin sail to last winter?"),
    ("Omar", "Lisbon."),
    ("Ines", "Look. [picture: a heron beside a lighthouse]"),
    ("Omar", "My boss wants to buy the old bakery."),
    ("Ines", "He even likes it."),
    ("Omar", "Brilliant news."),
)


@pytest.mark.parametrize(
    ("question", "gold", "kind"),
    [
        ("Where is the heron?", "s2", "picture caption"),
        ("What does Ines hate?", "s3", "other speaker"),
        ("Which harbour did the cousin sail to?", "s1", "reply"),
        ("What does the boss want to buy?", "s4", "coreference"),
        ("When was the wedding?", "s5", "date arithmetic"),
        ("Who plays chess?", "s5", "paraphrase"),
        ("Who sold the bakery, the mill and the barn?", "s3", "partial paraphrase"),
        ("Who sold the old bakery?", "s3", "crowded out"),
        ("What is it?", "s5", "other"),
    ],
)
def test_each_rule_has_its_case(memories, question, gold, kind):
    assert held(memories, FRIENDS, question, gold)[0] == kind


def test_a_caption_counts_only_where_nothing_said_has_the_words(memories):
    lines = talk(("Ines", "A heron! [picture: a heron beside a lighthouse]"))
    assert held(memories, lines, "Where is the heron?", "s0") == ("crowded out",)


def test_the_asked_speaker_is_no_other_speaker_and_two_named_are_nobody(memories):
    for question in ("What does Omar hate?", "What do Omar and Ines hate?"):
        assert "other speaker" not in held(memories, FRIENDS, question, "s3")


def test_a_date_in_the_gold_needs_no_arithmetic(memories):
    lines = talk(("Ines", "We married on 5 May 2023."), ("Omar", "We married last week."))
    assert held(memories, lines, "When was the feast?", "s0")[0] == "paraphrase"
    assert held(memories, lines, "When was the feast?", "s1")[0] == "date arithmetic"


def test_coreference_looks_no_further_than_two_turns(memories):
    lines = FRIENDS[3:4] + talk(*[("Ines", "Right.")] * 2, ("Omar", "He likes it."), session="t")
    lines = [Trace(t.text, id=t.id, speaker=t.speaker, session="one") for t in lines]
    question = "What does the boss want to buy?"
    assert held(memories, lines, question, "t2")[0] == "paraphrase"
    assert held(memories, lines[:2] + lines[3:], question, "t2")[0] == "coreference"


def test_a_list_needs_several_gold_items_and_one_that_was_found(memories):
    question = "Who plays chess?"
    assert held(memories, FRIENDS, question, "s5", n_gold=2)[0] == "paraphrase"
    assert held(memories, FRIENDS, question, "s5", n_gold=2, found=["s1"]) == (
        "list completeness",
        "paraphrase",
    )


def test_standing_instructions_are_a_users_to_an_assistant(memories):
    said = "Always answer in metric units."
    chat = [
        Trace(said, id="a", role="user", session="s"),
        Trace("Noted.", id="b", role="assistant", session="s"),
        Trace(said, id="c", role="assistant", session="s"),
        Trace("I prefer trains.", id="d", role="user", session="s"),
    ]
    question = "How far is Graz?"
    assert held(memories, chat, question, "a")[0] == "standing instruction"
    assert held(memories, chat, question, "c")[0] != "standing instruction"
    assert held(memories, chat[:1], question, "a")[0] != "standing instruction"
    help_ = "How should I travel?"
    assert held(memories, chat, help_, "d")[0] == "standing instruction"
    assert held(memories, chat, "How did I travel?", "d")[0] != "standing instruction"


def test_what_calibration_takes_for_superseded_is_a_miss_of_its_own(memories):
    old, new = (
        Trace(f"My office is in {town} now.", id=town, speaker="Ines", session=town,
              time=EventTime.parse(f"{year}-05-01"))
        for town, year in (("Graz", 2022), ("Linz", 2023))
    )  # fmt: skip
    history = History("h", (old, new))
    question = asked("q", "Where is the office of Ines currently?", "Graz")
    (miss,) = collect(Dataset("d", [(history, [question])], {}), memories, k=2).misses
    assert (miss.kind, miss.gold) == ("calibrated away", "Graz")
    assert miss.fused in (1, 2)


def document(title, text):
    return Trace(text, id=title, title=title, role="document")


PASSAGES = [
    document("Blue Harbour", "A film directed by Greta Olsen in the north."),
    document("Greta Olsen", "She was born in Bergen in the film year."),
    document("Bergen Tram", "It climbs from Bergen."),
]


def test_a_bridge_is_named_by_what_was_retrieved_and_not_by_the_question(memories):
    question = "Where was the director of the film Blue Harbour born?"
    assert held(memories, PASSAGES, question, "Greta Olsen", top=["Blue Harbour"])[0] == (
        "bridge entity"
    )
    # Nothing retrieved names it; or the question does.
    assert held(memories, PASSAGES, question, "Greta Olsen", top=["Bergen Tram"])[0] != (
        "bridge entity"
    )
    named = "Where was Greta Olsen of the film born?"
    assert held(memories, PASSAGES, named, "Greta Olsen", top=["Blue Harbour"])[0] != (
        "bridge entity"
    )


def test_without_titles_a_bridge_is_a_shared_entity_and_no_shared_word(memories):
    lines = talk(("Ines", "We flew to Kuala Lumpur."), ("Omar", "In Kuala Lumpur my mother sings."))
    assert held(memories, lines, "Who plays chess?", "s1", top=["s0"])[0] == "bridge entity"
    assert held(memories, lines, "Who plays chess?", "s1")[0] == "paraphrase"
    assert held(memories, lines, "Whose mother jumps?", "s1", top=["s0"])[0] != "bridge entity"


def asked(id, text, *gold, category="c"):
    return Question(id, Query(text), category, frozenset(gold))


def test_ranks_are_those_of_the_lists(memories):
    lines = tuple(talk(*[("Ines", f"The kayak number {i} is green.") for i in range(30)]))
    questions = [
        asked("q", "What about the kayak number 3?", "s3", "s20"),
        asked("none", "What about the kayak?"),
    ]
    dataset = Dataset("set", [(History("h", lines), questions)], {})
    found = collect(dataset, memories, k=2)
    handle = memories.get(dataset.tasks[0][0])
    text = questions[0].query.text
    main = [item.id for item in handle.retrieve(text, k=200, closure=False).main]
    expected = {gold: main.index(gold) + 1 for gold in ("s3", "s20") if gold not in main[:2]}
    assert expected
    assert {miss.gold: miss.fused for miss in found.misses} == expected
    for view in ("graph", "hierarchy"):
        ids = [item.id for item in handle.retrieve(text, k=200, closure=False, view=view).main]
        for miss in found.misses:
            assert getattr(miss, view) == ids.index(miss.gold) + 1
    assert (found.n_questions, found.n_gold) == (1, 2)
    assert found.recall == 1 - len(expected) / 2
    assert collect(dataset, memories, k=30).misses == []


def test_a_missed_title_is_named_by_its_digest(memories):
    history = History("h", tuple(PASSAGES))
    dataset = Dataset("set", [(history, [asked("q", "Blue Harbour?", "Bergen Tram")])], {})
    (miss,) = collect(dataset, memories, k=1).misses
    assert miss.gold.startswith("sha256:")
    assert "Bergen" not in json.dumps(summary(collect(dataset, memories, k=1)))


def made(kind, fused, graph, hierarchy, holds=()):
    return Miss("h", "q", "c", "g", kind, (kind, *holds), fused, graph, hierarchy)


def test_the_summary_counts_and_the_table_shows_it():
    found = Found(10, 200, n_questions=4, n_gold=8, recall=2.0)
    found.misses = [
        made("paraphrase", 12, 3, None),
        made("paraphrase", 50, 60, 70),
        made("paraphrase", None, None, None),
        made("list completeness", None, None, 9, holds=("paraphrase",)),
    ]
    result = json.loads(json.dumps(summary(found)))
    first, second = result["kinds"]
    assert (first["kind"], first["count"], first["share"]) == ("paraphrase", 3, 0.75)
    assert (first["holds"], second["holds"]) == (4, 1)
    assert (first["median_rank"], second["median_rank"]) == (50, None)
    assert first["ranks"] == {"1-10": 0, "11-20": 1, "21-50": 1, "51-200": 0, "beyond": 1}
    assert first["seen"] == {"both": 1, "graph": 1, "hierarchy": 0, "neither": 1}
    assert result["all"]["seen"] == {"both": 1, "graph": 1, "hierarchy": 1, "neither": 1}
    assert result["recall"] == 0.5
    assert result["by_category"] == {"c": {"paraphrase": 3, "list completeness": 1}}
    rows = table(result).splitlines()
    assert rows[2] == "| paraphrase | 3 | 75.0% | 4 | 50 | 1 | 1 | 0 | 1 | 1 | 1 | 0 | 1 |"
    assert rows[-1].startswith("| **all** | 4 | 100.0% |  | 50 |")
    assert len({row.count("|") for row in rows}) == 1
    found.misses.append(made("calibrated away", 2, 1, 1))
    rows = table(summary(found)).splitlines()
    assert "| 1-10 | 11-20 |" in rows[0]
    assert rows[-1].startswith("| **all** | 5 | 100.0% |  | 50 | 1 | 1 |")
    assert len({row.count("|") for row in rows}) == 1


def test_classes_of_rank_have_a_border_at_k():
    assert list(summary(Found(25, 200))["all"]["ranks"]) == ["1-25", "26-50", "51-200", "beyond"]
    assert table(summary(Found(10, 200))).splitlines()[-1].startswith("| **all** | 0 |")


@pytest.fixture
def cli(monkeypatch):
    path = HERE.parent / "bench" / "misses.py"
    spec = importlib.util.spec_from_file_location("bench_misses", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "load_encoder", lambda name, device: HashEncoder())
    return module.main


def test_the_command_writes_ids_and_no_text(cli, tmp_path, capsys):
    out = tmp_path / "deep" / "out.json"
    path = HERE / "data" / "locomo_tiny.json"
    again = [cli(["locomo", "--data", str(path), "--k", "1", "--json", str(out),
                  "--store", str(tmp_path / "kept.zm")]) for _ in range(2)]  # fmt: skip
    assert again == [0, 0]
    result = json.loads(out.read_text())
    assert result["settings"]["set"] == "locomo"
    assert result["data"]["name"] == "locomo_tiny.json"
    assert result["n_missed"] == len(result["misses"]) > 0
    assert {part["kind"] for part in result["kinds"]} <= {rule.kind for rule in RULES}
    text = out.read_text()
    assert "telescope" not in text
    assert str(tmp_path) not in text
    shown = capsys.readouterr().out
    assert shown.startswith("| kind |")
    assert f"{result['n_missed']} of {result['n_gold']} gold items of 7 questions" in shown


def test_k_is_held_to_the_candidates(cli, capsys):
    for k in ("0", "200"):
        with pytest.raises(SystemExit):
            cli(["locomo", "--data", "x", "--k", k])
        assert f"--k must be from 1 to 199, got {k}" in capsys.readouterr().err
