"""LongMemEval, MuSiQue, 2WikiMultihopQA and public HotpotQA: irregular files read as meant."""

import argparse
import json
from pathlib import Path

import pytest

from zeromem.errors import ImportFormatError, InvalidInputError
from zeromem.evaluation import datasets
from zeromem.evaluation.datasets import hotpotqa, longmemeval, musique, twowiki
from zeromem.importers import conversations, detect, load
from zeromem.times import EventTime

DATA = Path(__file__).parent / "data"
LONGMEMEVAL = DATA / "longmemeval_tiny.json"
MUSIQUE = DATA / "musique_tiny.jsonl"
TWOWIKI = DATA / "twowiki_tiny.json"
HOTPOTQA = DATA / "hotpotqa_tiny.json"


def ids(dataset):
    return [[trace.id for trace in memory.traces] for memory, _ in dataset.tasks]


def asked(dataset):
    return [question for _, questions in dataset.tasks for question in questions]


def rewritten(tmp_path, path, change, name="changed.json"):
    """Write a fixture's records after a change to their list."""
    data = path.read_text()
    records = (
        json.loads(data) if data.startswith("[") else list(map(json.loads, data.split("\n\n")))
    )
    change(records)
    out = tmp_path / name
    out.write_text(json.dumps(records))
    return out


# --- LongMemEval


def test_longmemeval_haystacks_are_histories_in_the_order_of_their_dates():
    (first, _), (second, _), (third, _) = longmemeval.load(LONGMEMEVAL).tasks
    assert [(t.session, t.text.split()[0], t.role) for t in first.traces] == [
        ("session_1", "I", "user"),
        ("session_1", "Let", "assistant"),
        ("session_2", "How", "user"),
        ("session_2", "Turn", "assistant"),
        ("session_3", "The", "user"),  # the assistant's empty turn is none
        ("session_4", "How", "user"),  # one session id, two sessions
        ("session_4", "Turn", "assistant"),
    ]
    times = [t.time for t in first.traces]
    assert times[0] == EventTime.parse("2023-05-20T02:21Z")
    assert times[2] != times[5]
    assert len({t.id for t in first.traces}) == 7
    assert first.ephemeral
    assert len(second.traces) == 4
    assert [t.session for t in third.traces] == ["session_1", "session_1"]


def test_longmemeval_questions_and_labels():
    count, tea, lathe = asked(longmemeval.load(LONGMEMEVAL))
    assert (count.id, count.category, count.answers) == ("lm_count", "multi-session", ("3",))
    assert count.query.asked_at == EventTime.parse("2023-05-30T23:40Z")
    assert count.gold == {"session_1_1", "session_3_1"}
    assert count.gold_sessions == {"session_1", "session_3"}
    assert count.n_bad_citations == 0
    assert (tea.category, tea.gold, tea.gold_sessions) == ("abstention", set(), set())
    assert tea.answers == ("You never mentioned buying tea in Lisbon.",)
    # No turn is labelled, so sessions alone are; one that is cited is not in the haystack.
    assert (lathe.gold, lathe.gold_sessions) == (set(), {"session_1"})
    assert lathe.n_bad_citations == 1


def test_longmemeval_shows_no_method_which_sessions_hold_the_answer():
    dataset = longmemeval.load(LONGMEMEVAL)
    shown = [*(memory for memory, _ in dataset.tasks), dataset.shared]
    for memory in shown:
        assert "_abs" not in memory.name
        for trace in memory.traces:
            assert "answer" not in repr((trace.id, trace.session, trace.metadata))


def test_longmemeval_shares_what_haystacks_have_in_common():
    dataset = longmemeval.load(LONGMEMEVAL)
    texts = [(t.role, t.text) for t in dataset.shared.traces]
    assert len(texts) == len(set(texts)) == 9
    assert set(texts) == {(t.role, t.text) for memory, _ in dataset.tasks for t in memory.traces}
    only = longmemeval.load(LONGMEMEVAL, limit=1)
    assert (len(only.tasks), len(only.shared.traces)) == (1, 5)
    assert only.tasks[0] == dataset.tasks[0]


def test_longmemeval_shares_a_turn_of_two_sessions_once(tmp_path):
    def repeat(records):
        records[0]["haystack_sessions"][3].pop()  # half of the session that stands before it

    path = rewritten(tmp_path, LONGMEMEVAL, repeat)
    assert len(longmemeval.load(path).shared.traces) == 9


def test_longmemeval_sessions_that_say_nothing_cannot_be_gold(tmp_path):
    path = rewritten(
        tmp_path, LONGMEMEVAL, lambda r: r[2]["answer_session_ids"].append("chatter_10")
    )
    *_, lathe = asked(longmemeval.load(path))
    assert (lathe.gold_sessions, lathe.n_bad_citations) == ({"session_1"}, 2)


def test_longmemeval_reads_json_lines_and_does_without_what_labels_nothing(tmp_path):
    path = tmp_path / "lines.jsonl"
    records = json.loads(LONGMEMEVAL.read_text())
    for record in records:
        del record["haystack_session_ids"], record["question_date"], record["answer_session_ids"]
        del record["haystack_dates"]
    path.write_bytes(b"\xef\xbb\xbf" + b"\n\n".join(json.dumps(r).encode() for r in records))
    dataset = longmemeval.load(path)
    first = asked(dataset)[0]
    assert first.query.asked_at is None
    assert first.gold == {"session_1_1", "session_2_1"}  # undated sessions stay in the file's order
    assert dataset.tasks[0][0].traces[0].time is None


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda r: r[1].pop("question_id"), r"record 2: field 'question_id'.*got None"),
        (lambda r: r[1].pop("question"), r"record 2 \('lm_tea_abs'\): field 'question'"),
        (lambda r: r[0].update(haystack_sessions={}), r"'lm_count'.*'haystack_sessions'.*array"),
        (lambda r: r[0]["haystack_dates"].pop(), r"'haystack_dates'.*each of the 4.*got 3"),
        (lambda r: r[0]["haystack_dates"].__setitem__(2, "May"), r"session 3.*got 'May'"),
        (lambda r: r[0].update(question_date="2023/13/01"), r"'question_date'.*2023/13/01"),
        (lambda r: r[2]["haystack_sessions"][0][1].pop("content"),
         r"changed.json: record 3 \('lm_lathe'\), session 1, turn 2: field 'content'"),
        (lambda r: r[2]["haystack_sessions"][0][1].update(role="narrator"), r"turn 2.*'role'"),
        (lambda r: r[0].update(answer={"text": "3"}), r"'answer'"),
        (lambda r: r[2].update(haystack_sessions=[[], []]), r"record 3.*says something"),
        (lambda r: r.append("x"), r"record 4: must be a JSON object, got str"),
        (lambda r: r.clear(), r"changed.json: holds no record"),
    ],
)  # fmt: skip
def test_longmemeval_names_what_is_malformed(tmp_path, change, complaint):
    path = rewritten(tmp_path, LONGMEMEVAL, change)
    with pytest.raises(ImportFormatError, match=complaint):
        longmemeval.load(path)


def test_longmemeval_files_can_be_imported_too():
    assert detect(LONGMEMEVAL) == "longmemeval"
    assert [c.name for c in conversations(LONGMEMEVAL)] == ["lm_count", "lm_tea_abs", "lm_lathe"]
    traces = list(load(LONGMEMEVAL, conversation="lm_count"))
    assert [t.session for t in traces][:5:2] == ["answer_kayak_1", "chatter_9", "answer_kayak_2"]
    assert {t.session for t in traces} >= {"chatter_9", "chatter_9#2"}
    assert traces[0].id == "answer_kayak_1_1"
    assert traces[0].source == "longmemeval_tiny.json"


# --- MuSiQue


def test_musique_paragraphs_of_one_title_are_told_apart():
    dataset = musique.load(MUSIQUE)
    assert ids(dataset)[0] == ["Pell Lighthouse", "Pell Lighthouse#2", "Oda Ruis"]
    first, second = asked(dataset)
    assert (first.id, first.category) == ("2hop__11_12", "2hop")
    assert first.gold == {"Pell Lighthouse", "Oda Ruis"}
    assert first.answers == ("Tarn", "the town of Tarn")
    # Without is_supporting the steps say what supports; an empty paragraph is none.
    assert (second.category, second.gold) == ("3hop", {"Tarn", "Oda Ruis", "Pell Lighthouse"})
    assert ids(dataset)[1] == ["Tarn", "Oda Ruis", "Pell Lighthouse"]


def test_musique_unanswerable_twins_are_counted_or_asked():
    assert musique.load(MUSIQUE).files["n_unanswerable_left_out"] == 1
    dataset = musique.load(MUSIQUE, with_unanswerable=True)
    assert "n_unanswerable_left_out" not in dataset.files
    _, twin, _ = asked(dataset)
    assert twin.id == "2hop__11_12/unanswerable"
    assert (twin.category, twin.gold, twin.answers) == ("unanswerable", set(), ())


def test_musique_long_contexts_never_make_a_twin_answerable():
    for seed in range(20):
        dataset = musique.load(MUSIQUE, with_unanswerable=True, documents=4, seed=seed)
        assert "Oda Ruis" not in ids(dataset)[1]  # the supporting paragraph that the twin lacks
        assert set(ids(dataset)[2]) >= {"Tarn", "Oda Ruis", "Pell Lighthouse"}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda r: r[0].pop("paragraphs"), r"record 1 \('2hop__11_12'\): field 'paragraphs'"),
        (lambda r: r[0]["paragraphs"][1].pop("paragraph_text"), r"paragraph 1.*'paragraph_text'"),
        (lambda r: r[0]["paragraphs"][1].update(is_supporting=1), r"'is_supporting'.*got 1"),
        (lambda r: r[0].update(answerable="yes"), r"'answerable' must be true or false"),
        (lambda r: r[0].update(question=" "), r"'question'"),
        (lambda r: r[0].update(question_decomposition=[3]), r"step 0: must be a JSON object"),
    ],
)
def test_musique_names_what_is_malformed(tmp_path, change, complaint):
    record = json.loads(MUSIQUE.read_text().splitlines()[0])
    change(records := [record])
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(records))
    with pytest.raises(ImportFormatError, match=complaint):
        musique.load(path)


# --- 2WikiMultihopQA and HotpotQA


@pytest.mark.parametrize("name", ["twowiki_tiny.json", "twowiki_tiny_columns.jsonl"])
def test_twowiki_in_rows_and_in_columns(name):
    dataset = twowiki.load(DATA / name)
    first, second = asked(dataset)
    assert (first.id, first.category, first.answers) == ("w1", "compositional", ("Ada Brenn",))
    assert first.gold == {"Salt Waltz", "Jon Brenn"}
    assert dataset.tasks[0][0].traces[0].text == (
        "Jon Brenn wrote dances for small bands. His mother Ada Brenn kept an inn."
    )
    assert (second.answers, second.gold, second.n_bad_citations) == (("1874",), {"Rye Polka#2"}, 1)


def test_public_hotpotqa_without_documents_is_each_questions_own_paragraphs():
    dataset = hotpotqa.load(HOTPOTQA)
    assert ids(dataset) == [
        ["Velm", "Aster Bridge", "Ruta Kalm"],
        ["Orn", "Aster Bridge", "Velm#2"],
        ["Velm#2", "Velm", "Tinder Mill"],
    ]
    first, second, third = asked(dataset)
    assert first.gold == {
        "Aster Bridge",
        "Ruta Kalm",
    }  # of a sentence that is not there the title counts
    assert (second.gold, second.n_bad_citations) == ({"Aster Bridge", "Orn"}, 1)
    assert (third.id, third.category, third.gold, third.answers) == ("h3", "all", set(), ())
    assert dataset.tasks[0][0].traces[0].text == "Velm lies on the river Orn. It has two mills."


def test_public_hotpotqa_draws_from_all_contexts_of_the_file():
    dataset = hotpotqa.load(HOTPOTQA, documents=5, seed=3, limit=1)
    ((memory, (question,)),) = dataset.tasks
    chosen = {t.id for t in memory.traces}
    assert len(memory.traces) == len(chosen) == 5
    assert {"Velm", "Aster Bridge", "Ruta Kalm"} < chosen
    assert chosen - {"Velm", "Aster Bridge", "Ruta Kalm"} <= {"Orn", "Velm#2", "Tinder Mill"}
    order = ("Velm", "Aster Bridge", "Ruta Kalm", "Orn", "Velm#2", "Tinder Mill")
    assert [t.id for t in dataset.shared.traces] == [id for id in order if id in chosen]
    assert dataset.files["contexts"] == {"documents": 5, "seed": 3}
    assert question.gold <= chosen
    with pytest.raises(InvalidInputError, match="6 passages, got 7"):
        hotpotqa.load(HOTPOTQA, documents=7)


def test_a_fact_means_the_paragraph_that_has_its_sentence(tmp_path):
    def cite(records):
        records[2]["supporting_facts"] = [["Velm", 1]]

    *_, third = asked(hotpotqa.load(rewritten(tmp_path, HOTPOTQA, cite)))
    assert third.gold == {"Velm"}  # "Velm#2", which stands first, has one sentence


@pytest.mark.parametrize("module", [hotpotqa, twowiki])
@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"context": None}, r"changed.json: record 1 \('h1'\): field 'context'"),
        ({"context": []}, r"'context'"),
        ({"context": [["Velm"]]}, r"paragraph 0: field 'context' must be \[title, \[sentences\]\]"),
        ({"context": [["Velm", [1]]]}, r"paragraph 0"),
        ({"context": [["Velm", [" "]]]}, r"paragraph that has text"),
        ({"context": {"title": ["Velm"], "sentences": []}}, r"as many titles as texts"),
        ({"context": "[[["}, r"'context' must be JSON"),
        ({"supporting_facts": [["Velm"]]}, r"'supporting_facts'.*\['Velm'\]"),
        ({"supporting_facts": [["Velm", "0"]]}, r"'supporting_facts'"),
        ({"supporting_facts": {"title": ["Velm"]}}, r"'supporting_facts'"),
        ({"answer": True}, r"'answer'"),
        ({"_id": []}, r"'_id'"),
    ],
)
def test_hotpotqa_and_twowiki_name_what_is_malformed(tmp_path, module, change, complaint):
    path = rewritten(tmp_path, HOTPOTQA, lambda records: records[0].update(change))
    with pytest.raises(ImportFormatError, match=complaint):
        module.load(path)


# --- the command line


def options(name, *arguments):
    command = argparse.ArgumentParser()
    datasets.add_arguments(command, name)
    parsed = command.parse_args([str(argument) for argument in arguments])
    parsed.set = name
    return parsed


@pytest.mark.parametrize(
    ("name", "arguments", "n"),
    [
        ("locomo", ["--data", DATA / "locomo_tiny.json", "--categories", "4,5"], 6),
        ("hotpotqa", ["--data", HOTPOTQA], 3),
        ("beam", ["--data", DATA / "beam_tiny.jsonl", "--history", "tiny-a"], 4),
        ("longmemeval", ["--data", LONGMEMEVAL], 3),
        ("musique", ["--data", MUSIQUE, "--with-unanswerable", "--documents", "3"], 3),
        ("twowiki", ["--data", TWOWIKI, "--seed", "4"], 2),
    ],
)
def test_every_set_loads_by_name(name, arguments, n):
    dataset = datasets.load(options(name, *arguments))
    questions = asked(dataset)
    assert (dataset.name, len(questions)) == (name, n)
    assert len({question.id for question in questions}) == n
    assert len(dataset.files["sha256"]) == 64
    limited = datasets.load(options(name, *arguments, "--limit", "2"))
    assert asked(limited) == questions[:2]
    with pytest.raises(InvalidInputError, match="--limit must be at least 1, got 0"):
        datasets.load(options(name, *arguments, "--limit", "0"))


def test_every_set_has_a_name_and_a_line_of_help():
    assert set(datasets.HELP) == set(datasets.NAMES)
    with pytest.raises(InvalidInputError, match="one of locomo, .*got 'squad'"):
        datasets.add_arguments(argparse.ArgumentParser(), "squad")


@pytest.mark.parametrize(
    ("name", "arguments", "complaint"),
    [
        ("hotpotqa", [], "either --data, or --questions and --pool"),
        ("hotpotqa", ["--data", HOTPOTQA, "--pool", HOTPOTQA], "either"),
        ("locomo", ["--data", DATA / "locomo_tiny.json", "--categories", "6"], "got 6"),
        ("locomo", ["--data", DATA / "locomo_tiny.json", "--categories", "all"], "got 'all'"),
        ("locomo", ["--data", DATA / "locomo_tiny.json", "--history", "x"], "tiny-2.*got 'x'"),
        ("twowiki", ["--data", TWOWIKI, "--documents", "0"], "at least 1.*got 0"),
    ],
)
def test_unusable_options_are_named(name, arguments, complaint):
    with pytest.raises(InvalidInputError, match=complaint):
        datasets.load(options(name, *arguments))
