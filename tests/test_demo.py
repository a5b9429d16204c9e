"""The demonstration: what ships, how answers are judged, and that all ten are right."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import zeromem
from zeromem import demo
from zeromem.cli import main
from zeromem.importers import load

ROOT = Path(__file__).parents[1]
DATA = Path(__file__).parent / "data"


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch, tmp_path):
    for name in ("STORE", "SCOPE", "ENCODER", "ANNOTATOR", "DEVICE", "ZONE"):
        monkeypatch.delenv(f"ZEROMEM_{name}", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("answer", "accepted", "right"),
    [
        ("Lake Orta", ["Lake Orta"], True),
        ("the lake orta.", ["Lake Orta"], True),
        ("Lake Como", ["Lake Orta"], False),
        ("Orta", ["Lake Orta"], False),
        ("", ["Lake Orta"], False),
        ("...", ["Lake Orta"], False),
        ("Friday 20 February 2026", ["Friday, 20 February 2026"], True),
        ("21 February 2026", ["20 February 2026"], False),
        ("Antwerp and Rotterdam", ["Rotterdam, Antwerp"], True),
        ("Antwerp, Rotterdam, and Gothenburg", ["Rotterdam, Antwerp, Gothenburg"], True),
        ("Antwerp", ["Rotterdam, Antwerp"], False),
        ("Antwerp, Rotterdam, Oslo", ["Rotterdam, Antwerp"], False),
        ("Antwerp, Antwerp", ["Rotterdam, Antwerp"], False),
        ("No", ["no"], True),
        ("No, he had a cramp.", ["no"], True),
        ("Not at all", ["no"], False),
        ("Nobody", ["no"], False),
        ("Yes, no doubt", ["no"], False),
        ("", ["no"], False),
    ],
)
def test_answers_are_compared_form_aside(answer, accepted, right):
    assert demo.is_right(answer, accepted) is right


@pytest.mark.parametrize(
    ("traces", "asked"),
    [
        (demo.conversation, demo.questions),
        (
            lambda: list(load(DATA / "second_conversation.jsonl")),
            lambda: demo.questions(DATA / "second_questions.json"),
        ),
    ],
    ids=["ships with the package", "kept in the tests"],
)
def test_the_conversations_hold_what_is_asked(traces, asked):
    told = traces()
    by_id = {t.id: t for t in told}
    assert len(by_id) == len(told) >= 80
    assert len({t.speaker for t in told if t.role == "user"}) == 2
    assert len({t.session for t in told}) >= 4
    times = sorted(t.time for t in told)
    assert (times[-1].start - times[0].start).days > 60
    assert any(t.role == "tool" or "result" in t.text.lower() for t in told)
    assert any("[picture: " in t.text for t in told)
    questions = asked()
    assert len(questions) == 10
    assert len({q.kind for q in questions}) == 10
    for question in questions:
        assert question.accepted
        assert set(question.evidence) <= set(by_id)


@pytest.mark.model
def test_all_ten_are_right_and_nothing_was_spent(capsys):
    code = main(["demo", "--json", "--store", "demo.zm"])
    given = json.loads(capsys.readouterr().out)
    wrong = [(q["question"], q["answer"]) for q in given["questions"] if not q["right"]]
    assert wrong == []
    assert (code, given["right"], given["of"]) == (0, 10, 10)
    assert set(given["usage"]) == {"ingest", "retrieval", "answer"}
    assert all(spent["calls"] == spent["prompt"] == 0 for spent in given["usage"].values())
    text = {t.id: t.text for t in demo.conversation()}
    for question in given["questions"]:
        # Each answer cites a trace that says so, to the character.
        assert {c["id"] for c in question["citations"]} & set(question["gold"])
        for c in question["citations"]:
            assert text[c["id"]][c["start"] : c["end"]] == c["text"]
        assert set(question["seconds"]) >= {"profile", "encode", "read and calibrate"}


@pytest.mark.model
def test_what_it_prints(monkeypatch, capsys):
    birthday, city = demo.questions()[3:5]
    wrong = demo.Question(city.text, ("never",), city.kind, ())
    monkeypatch.setattr(demo, "questions", lambda: [birthday, wrong])
    assert main(["demo", "--evidence", "2"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("A conversation of Ana and Ben: 108 turns in 6 sessions")
    assert "Remembered: 108 new" in out
    assert "1. Where did Ben spend his birthday?\n   = Lake Orta   [place: right]\n" in out
    assert "from s4-07  2026-05-31T16:30+02:00  Ben  session s4  characters 53-62" in out
    assert "WRONG, expected 'never'" in out
    assert out.count("why: ") >= 4
    assert out.count("read and calibrate") == 2
    assert out.endswith("LLM tokens by stage: ingest 0, retrieval 0, answer 0\n1 of 2 right\n")
    assert not list(Path().iterdir())  # the store was a temporary one


@pytest.mark.model
def test_a_store_that_was_named_keeps_the_conversation(monkeypatch, capsys):
    monkeypatch.setattr(demo, "questions", list)
    for remembered in ("Remembered: 108 new", "Remembered: 0 new"):
        assert main(["demo", "--store", "demo.zm"]) == 0
        assert remembered in capsys.readouterr().out
    assert main(["scopes", "--store", "demo.zm", "--json"]) == 0
    assert [s["scope"] for s in json.loads(capsys.readouterr().out)] == ["demo"]


@pytest.mark.model
def test_eight_of_ten_on_a_conversation_that_was_written_without_the_code():
    with zeromem.open() as mem:
        mem.add_many(load(DATA / "second_conversation.jsonl"))
        outcomes = list(demo.ask(mem, demo.questions(DATA / "second_questions.json")))
    wrong = [(o.question.text, o.answer.text) for o in outcomes if not o.right]
    assert len(wrong) <= 2, wrong


def test_the_data_is_part_of_what_is_installed(tmp_path):
    pytest.importorskip("setuptools", reason="building needs setuptools")
    pytest.importorskip("pybind11", reason="building needs pybind11")
    subprocess.run(
        [sys.executable, "setup.py", "-q", "build_py", "--build-lib", tmp_path],
        cwd=ROOT, check=True, capture_output=True,
    )  # fmt: skip
    for name in ("demo_conversation.jsonl", "demo_questions.json"):
        assert (tmp_path / "zeromem" / "data" / name).read_bytes() == (
            ROOT / "zeromem" / "data" / name
        ).read_bytes()
    assert (tmp_path / "zeromem" / "cli" / "__init__.py").is_file()
    assert (tmp_path / "zeromem" / "py.typed").is_file()
