"""Evaluation sets: labels are read with care, contexts are drawn as promised."""

import json
from pathlib import Path

import pytest

from zeromem.errors import ImportFormatError, InvalidInputError
from zeromem.evaluation.datasets import base, beam, hotpotqa, locomo, with_labels
from zeromem.importers.records import unique
from zeromem.types import Trace

DATA = Path(__file__).parent / "data"
QUESTIONS = DATA / "hotpotqa_tiny_questions.jsonl"
CORRECTIONS = DATA / "locomo_tiny_corrections.json"
POOL = DATA / "hotpotqa_tiny_pool.jsonl"


@pytest.mark.parametrize(
    ("labels", "found", "n_bad"),
    [
        (["D8:6; D9:17"], {"D8:6", "D9:17"}, 0),
        (["D9:1 D4:4 D4:6"], {"D9:1", "D4:4", "D4:6"}, 0),
        (["D"], set(), 1),
        (["D:11:26"], {"D11:26"}, 0),
        (["D30:05"], {"D30:5"}, 0),
        (["D9:1", "D9:1"], {"D9:1"}, 0),
        (["D9:1", "D9:99"], {"D9:1"}, 1),
        ([], set(), 0),
        ([None, 7], set(), 2),
    ],
)
def test_citations(labels, found, n_bad):
    known = {"D8:6", "D9:17", "D9:1", "D4:4", "D4:6", "D11:26", "D30:5"}
    assert locomo.citations(labels, known) == (frozenset(found), n_bad)


def test_locomo_questions_and_labels():
    dataset = locomo.load(DATA / "locomo_tiny.json")
    (memory, questions), (_, others) = dataset.tasks
    assert memory.name == "tiny-1"
    assert [q.category for q in questions] == [
        "single-hop", "single-hop", "multi-hop", "temporal", "open-domain", "single-hop",
    ]  # fmt: skip
    assert [sorted(q.gold) for q in questions] == [
        ["D2:1"], ["D10:1"], ["D1:1", "D1:3"], ["D1:1"], [], ["D2:3"],
    ]  # fmt: skip
    assert [q.n_bad_citations for q in questions] == [0, 0, 0, 2, 0, 0]
    assert questions[1].answers == ("40",)
    assert len(others) == 2
    assert len(dataset.files["sha256"]) == 64


def test_locomo_limit_and_adversarial_questions():
    dataset = locomo.load(DATA / "locomo_tiny.json", limit=7)
    assert [len(questions) for _, questions in dataset.tasks] == [6, 1]
    (_, questions), *rest = locomo.load(DATA / "locomo_tiny.json", categories=(5,)).tasks
    assert [q.answers for q in questions] == [()]
    assert not rest


def test_locomo_corrections_stand_beside_the_files_labels():
    plain = locomo.load(DATA / "locomo_tiny.json")
    dataset = locomo.load(DATA / "locomo_tiny.json", corrections=CORRECTIONS)
    assert dataset.tasks == plain.tasks
    assert dataset.files["corrections"]["n_applied"] == 2
    assert not plain.corrected
    fixed = dataset.corrected
    assert set(fixed) == {"tiny-1/0", "tiny-1/3"}
    assert fixed["tiny-1/0"].gold == {"D2:1", "D10:2"}
    assert fixed["tiny-1/3"].answers == ("the Sunday before 8 May 2023",)
    assert (fixed["tiny-1/3"].n_bad_citations, fixed["tiny-1/3"].category) == (0, "temporal")
    (_, questions), (_, others) = with_labels(dataset, fixed).tasks
    assert [q for q in questions if q.id in fixed] == list(fixed.values())
    assert [q for q in questions if q.id not in fixed] == [
        q for q in plain.tasks[0][1] if q.id not in fixed
    ]
    assert others == plain.tasks[1][1]
    assert locomo.load(
        DATA / "locomo_tiny.json", corrections=CORRECTIONS, limit=2
    ).corrected.keys() == {"tiny-1/0"}


def test_locomo_corrections_of_another_question_are_refused(tmp_path):
    fixes = json.loads(CORRECTIONS.read_text())
    path = tmp_path / "fixes.json"
    path.write_text(json.dumps([fixes[2], fixes[1] | {"qa_index": 1}]))
    with pytest.raises(
        ImportFormatError, match=r"fixes.json: record 2: field 'question'.*tiny-1/1"
    ):
        locomo.load(DATA / "locomo_tiny.json", corrections=path)
    path.write_text(json.dumps([{"sample_id": "tiny-1", "qa_index": 1, "correct_answer": 41}]))
    (only,) = locomo.load(DATA / "locomo_tiny.json", corrections=path).corrected.values()
    assert (only.answers, only.gold) == (("41",), {"D10:1"})  # the evidence stays


def test_repeated_and_missing_ids_are_told_apart(tmp_path):
    samples = json.loads((DATA / "locomo_tiny.json").read_text())
    turns = samples[0]["conversation"]["session_1"]
    turns[1]["dia_id"] = "D1:1"
    del turns[3]["dia_id"]
    samples[1]["sample_id"] = "tiny-1"
    path = tmp_path / "file.json"
    path.write_text(json.dumps(samples))
    dataset = locomo.load(path)
    (first, questions), (second, others) = dataset.tasks
    assert [t.id for t in first.traces][:4] == ["D1:1", "D1:1#2", "D1:3", "session_1/4"]
    assert dataset.files["n_repeated_ids"] == 1
    assert second.name == "tiny-1#2"
    assert len({q.id for q in [*questions, *others]}) == 8


def test_beam_messages_are_gold_and_abilities_are_categories():
    (memory, questions), (_, others) = beam.load(DATA / "beam_tiny.jsonl").tasks
    assert [t.id for t in memory.traces] == ["0", "1", "2", "3"]
    assert questions[0].gold == frozenset({"2"})
    assert questions[2].category == "summarization"
    assert questions[3].gold == frozenset()
    assert (others[0].gold, others[0].n_bad_citations) == (frozenset({"0"}), 1)


def hotpot(documents=6, seed=0, limit=None):
    return hotpotqa.load_pool(QUESTIONS, POOL, documents=documents, seed=seed, limit=limit)


def test_hotpotqa_contexts_hold_their_own_passages_and_random_others():
    dataset = hotpot()
    for item, (memory, (question,)) in zip(map(json.loads, QUESTIONS.open()), dataset.tasks,
                                           strict=True):  # fmt: skip
        ids = [t.id for t in memory.traces]
        assert len(ids) == len(set(ids)) == 6
        assert set(item["context_titles"]) <= set(ids)
        assert ids[: len(item["context_titles"])] != item["context_titles"]
        assert question.gold == frozenset(item["gold_titles"])
        assert memory.ephemeral
        assert all((t.role, t.title) == ("document", t.id) for t in memory.traces)


def test_hotpotqa_contexts_depend_on_seed_and_question_alone():
    titles = [[t.id for t in memory.traces] for memory, _ in hotpot().tasks]
    assert [[t.id for t in memory.traces] for memory, _ in hotpot(limit=1).tasks] == titles[:1]
    assert [[t.id for t in memory.traces] for memory, _ in hotpot(seed=1).tasks] != titles
    assert [t.id for t in hotpot().tasks[1][0].traces] == titles[1]


def test_hotpotqa_draws_anew_for_each_question(tmp_path):
    twice = tmp_path / "questions.jsonl"
    line = QUESTIONS.read_text().splitlines()[0]
    twice.write_text(f"{line}\n{line}\n")
    dataset = hotpotqa.load_pool(twice, POOL, documents=6)
    first, second = ([t.id for t in memory.traces] for memory, _ in dataset.tasks)
    assert first != second


def test_hotpotqa_refuses_what_the_pool_cannot_give(tmp_path):
    with pytest.raises(InvalidInputError, match=r"8 passages, got 9"):
        hotpot(documents=9)
    small = tmp_path / "pool.jsonl"
    small.write_text('{"title": "Orn", "text": "x"}\n')
    with pytest.raises(ImportFormatError, match=r"questions.jsonl: line 1.*context_titles"):
        hotpotqa.load_pool(QUESTIONS, small, documents=1)


def test_blank_turns_are_left_out_and_their_labels_name_nothing():
    talk = [Trace(" \n", id="a"), Trace("x", id="b"), Trace("y", id="b"), Trace("z", id="b")]
    made, n_repeated = base.history("h", talk)
    assert [trace.id for trace in made.traces] == ["b", "b#2", "b#3"]
    assert n_repeated == 2


def test_many_of_one_name_take_no_square_of_time():
    taken = {"x#3": 1}
    names = [unique("x", taken) for _ in range(50_000)]
    assert names[:4] == ["x", "x#2", "x#4", "x#5"]
    assert len(set(names)) == len(names)
