"""Every table's command on tiny files: what it writes, what it asks a reader, what it admits."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import re
import socket
import sys
from pathlib import Path

import pytest
from chat_server import Server, failing, good, send
from support import HashEncoder

from zeromem.evaluation import methods
from zeromem.evaluation.metrics import bootstrap
from zeromem.evaluation.tables import answers, commands, meter, rows, setting
from zeromem.evaluation.tables.views import VIEWS
from zeromem.evaluation.types import Budget, Dataset, History, Query, Question
from zeromem.types import Trace

BENCH = Path(__file__).parents[1] / "bench"
DATA = Path(__file__).with_name("data")
TINY = [
    "--locomo", str(DATA / "locomo_tiny.json"),
    "--corrections", str(DATA / "locomo_tiny_corrections.json"),
    "--hotpotqa-questions", str(DATA / "hotpotqa_tiny_questions.jsonl"),
    "--hotpotqa-pool", str(DATA / "hotpotqa_tiny_pool.jsonl"),
    "--beam", str(DATA / "beam_tiny.jsonl"),
    "--longmemeval", str(DATA / "longmemeval_tiny.json"),
    "--musique", str(DATA / "musique_tiny.jsonl"),
    "--twowiki", str(DATA / "twowiki_tiny.json"),
    "--hotpotqa-documents", "8",
]  # fmt: skip
LOCOMO = TINY[:2]


def load(name):
    spec = importlib.util.spec_from_file_location(f"bench_{name}", BENCH / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


tables = load("tables")


@pytest.fixture(scope="module")
def encoder():
    with pytest.MonkeyPatch.context() as patch:
        made = HashEncoder()
        patch.setattr(setting, "load_encoder", lambda name, device: made)
        short = {"56K": 4, "224K": 6, "448K": 8}  # as many passages as the tiny pool has
        patch.setattr(commands, "LENGTHS", short)
        patch.setattr(commands, "KS", (1, 3))
        yield made


@pytest.fixture(scope="module")
def everything(encoder, tmp_path_factory):
    """All tables of all tiny sets, read without a model."""
    out = tmp_path_factory.mktemp("all")
    code = tables.main(["all", *TINY, "--methods", "zeromem,hybrid", "--out", str(out / "results")])
    assert code == 0
    return out


def result(out, name):
    return json.loads((out / "results" / f"{name}.json").read_text())


def run(tmp_path, command, *more, code=0):
    out = tmp_path / "results"
    assert tables.main([command, *more, "--out", str(out)]) == code
    return result(tmp_path, command)


# ---- what is written


def test_all_writes_every_table_and_says_what_made_it(everything):
    assert {p.stem for p in (everything / "results").iterdir()} == set(commands.COMMANDS)
    for name in commands.COMMANDS:
        made = result(everything, name)
        assert made["table"] == name
        assert made["command"].startswith("python bench/tables.py all --locomo locomo_tiny.json")
        assert {"commit", "versions", "hardware", "encoder", "seeds", "settings"} <= set(made)
        assert made["encoder"] == "hash-32"
        assert made["rows"]
        assert {data.split(",")[0] for data in made["data"]} <= set(commands.COMMANDS[name].sets)
        for files in made["data"].values():
            assert "sha256" in json.dumps(files)
        assert str(DATA) not in json.dumps(made)
        assert str(everything) not in json.dumps(made)


def test_every_result_fills_the_columns_of_its_views(everything):
    """A figure that a view asks for and no row has would be an empty column for ever."""
    not_here = {  # no judge, no prices, no paper, no relative date
        "accuracy", "accuracy.minus_hybrid", "cost", "judge_tokens", "note",
            "dates.relative.exact",
    }  # fmt: skip
    for view in VIEWS.values():
        made = [
            row
            for row in result(everything, view.table)["rows"]
            if all(row.get(k) == v for k, v in view.where.items())
        ]
        assert made, view.name
        if view.table in ("answers", "retrieval"):  # a set alone has not every kind of figure
            made = result(everything, view.table)["rows"]
        have = {key for row in made for key, value in row.items() if value is not None}
        wanted = {key for column in view.columns for key in column.keys}
        if view.name.endswith(("-types", "-abilities")):
            if view.table == "retrieval":  # the tiny files have not every kind of question
                assert len(wanted & have) >= 2, view.name
            continue
        assert wanted - have <= not_here, view.name


def test_rendered_from_a_real_run(everything):
    render = load("render")
    out = everything / "tables.md"
    assert render.main([str(everything / "results"), "--out", str(out)]) == 0
    text = out.read_text()
    block = re.search(r"begin:table1 -->\n(.*?)<!-- end", text, re.DOTALL)[1]
    [ours] = [line for line in block.splitlines() if line.startswith("| extractive | zeromem |")]
    row = result(everything, "table1")["rows"][0]
    shown = f"{100 * row['gam.f1.average']:.2f} / {100 * row['gam.bleu1.average']:.2f}"
    assert f"| {shown} |" in ours
    shown = (
        f"{100 * row['corrected.gam.f1.average']:.2f} / "
        f"{100 * row['corrected.gam.bleu1.average']:.2f}"
    )
    assert f"| {shown} |" in ours
    assert setting.NOT_MEMAGENTS in re.search(r"begin:table3 -->(.*?)<!-- end", text, re.DOTALL)[1]
    assert setting.NOT_MEMAGENTS not in block


def test_averages_weigh_questions(everything):
    for row in result(everything, "table1")["rows"]:
        for prefix in ("", "corrected."):
            assert row[f"{prefix}gam.f1.average"] is not None
        kinds = [k for k in row if re.fullmatch(r"gam\.f1\.(?!average)[a-z-]+", k)]
        assert len(kinds) > 1
        assert min(row[k] for k in kinds) <= row["gam.f1.average"] <= max(row[k] for k in kinds)
        assert row["n_corrected"] == 2


def test_corrected_labels_change_their_own_figures_alone(everything, tmp_path):
    plain = run(tmp_path, "table1", *LOCOMO, "--methods", "zeromem,hybrid")
    both = result(everything, "table1")["rows"]
    for without, beside in zip(plain["rows"], both, strict=True):
        assert not any(key.startswith("corrected.") for key in without)
        corrected = {k for k in beside if k.startswith("corrected.")} | {"n_corrected"}
        same = {k: v for k, v in beside.items() if k not in corrected and "second" not in k}
        assert same == {k: v for k, v in without.items() if "second" not in k}


def test_table3_has_each_length_with_its_passages(everything):
    assert len(result(everything, "table3")["data"]) == 3
    for row in result(everything, "table3")["rows"]:
        for length in ("56K", "224K", "448K"):
            assert 0 <= row[f"em.{length}"] <= row[f"f1.{length}"] <= 1
            assert 0 < row[f"recall@5.{length}"] <= row[f"recall@10.{length}"] == 1
            assert row[f"n_questions.{length}"] == 2


def test_figure4_sweeps_k(everything):
    made = result(everything, "figure4")["rows"]
    assert [(row["k"], row["method"]) for row in made] == [
        (k, name) for k in (1, 3) for name in ("zeromem", "hybrid")
    ]
    items = {row["k"]: row["evidence.items"] for row in made if row["method"] == "hybrid"}
    assert items == {1: 1.0, 3: 3.0}


def test_answers_by_type_add_up(everything):
    made = result(everything, "answers")["rows"]
    assert {row["set"] for row in made} == {view.where["set"] for view in VIEWS.values()
                                            if view.name.startswith("answers-")}  # fmt: skip
    for whole in (row for row in made if "shape" not in row):
        own = [r for r in made if "type" in r and all(
            r[key] == whole[key] for key in ("set", "reader", "method"))]  # fmt: skip
        answered = sum(r["n"] for r in own)
        assert 0 < answered <= whole["n_questions"]
        mean = sum(r["n"] * r["gam_f1"] for r in own if r["n"]) / answered
        assert mean == pytest.approx(whole["gam.f1.average"], abs=1e-5)
    ours = [row for row in made if row["method"] == "zeromem" and "shape" not in row]
    assert all(row["calibration.harmed"] == 0 for row in ours)


def test_without_a_judge_nothing_is_judged(everything):
    for name in ("judged", "channels", "backbones"):
        made = result(everything, name)
        assert all("accuracy" not in row for row in made["rows"])
        assert any("No judge was given" in note for note in made["notes"])


# ---- readers, judge, costs


def reply(handler, body):
    said = body["messages"][-1]["content"]
    right = "Verdict: correct" if body["model"] != "hard" else "Verdict: incorrect"
    good(handler, body, right if "reference answer" in said else "Answer: Petrel\nSources: 1")


def served(server, *more):
    return [
        *LOCOMO, "--methods", "zeromem", "--base-url", server.url, "--retries", "0", *more,
    ]  # fmt: skip


def test_readers_judge_and_prices(encoder, tmp_path):
    prices = tmp_path / "prices.json"
    prices.write_text('{"small": {"prompt": 2, "cached": 1, "completion": 10}}')
    with Server(reply) as server:
        arguments = served(
            server, "--reader", "openai:small", "--reader", "openai:large", "--jobs", "3",
            "--judge", "openai:gavel", "--prices", str(prices), "--cache", str(tmp_path / "c"),
        )  # fmt: skip
        made = run(tmp_path, "backbones", *arguments)
        asked = len(server.requests)
        again = run(tmp_path, "backbones", *arguments)
        assert len(server.requests) == asked  # never asks twice
    small, large = made["rows"]
    n = small["n_questions"]
    by_model = [body["model"] for body in server.requests]
    assert by_model.count("small") == by_model.count("large") == n
    assert small["accuracy"] == large["accuracy"] == 1.0
    assert small["prompt_tokens"] == 111
    assert small["completion_tokens"] == 7
    assert small["reader_tokens"] == small["judge_tokens"] == 118
    assert small["cost"] == pytest.approx((111 * 2 + 7 * 10) / 1e6)
    assert large["cost"] is None
    assert any(note.startswith("No cost for large") for note in made["notes"])
    assert small["median_seconds"] > 0
    assert made["reader"].keys() == {"small", "large"}
    assert "gavel" in made["judge"]
    assert again["rows"] == made["rows"]
    assert server.url not in json.dumps(made["settings"])


def test_tokens_that_nobody_reported_are_no_figure(encoder, tmp_path):
    def silent(handler, body):
        message = {"role": "assistant", "content": "Answer: Petrel"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        send(handler, 200, {"id": "c", "object": "chat.completion", "created": 1, "model": "m",
                            "choices": [choice]})  # fmt: skip

    prices = tmp_path / "prices.json"
    prices.write_text('{"m": {"prompt": 2, "cached": 1, "completion": 10}}')
    with Server(silent) as server:
        made = run(tmp_path, "backbones", *served(
            server, "--reader", "openai:m", "--prices", str(prices)))  # fmt: skip
    [row] = made["rows"]
    assert row["n_unmetered"] == row["n_questions"]
    assert row["cost"] is row["reader_tokens"] is row["prompt_tokens"] is None
    assert any("came without token usage" in note for note in made["notes"])
    assert not any(note.startswith("No cost for") for note in made["notes"])


def test_a_verdict_that_fails_is_told(encoder, tmp_path):
    def vague(handler, body):
        said = body["messages"][-1]["content"]
        good(handler, body, "Perhaps" if "reference answer" in said else "Answer: Petrel")

    with Server(vague) as server:
        made = run(tmp_path, "table1", *served(
            server, "--reader", "openai:m", "--judge", "openai:gavel"), code=1)  # fmt: skip
    [row] = made["rows"]
    assert (row["accuracy"], row["n_failed"]) == (0, 0)
    n = row["n_judge_failed"]
    assert made["notes"] == [f"{n} verdicts failed; each counts as incorrect in its row."]


def test_judged_by_type_of_question(encoder, tmp_path):
    with Server(reply) as server:
        made = run(tmp_path, "judged", *served(server), *TINY[10:12], "--methods", "bm25",
                   "--reader", "openai:m", "--judge", "openai:gavel")  # fmt: skip
    assert {row["set"] for row in made["rows"]} == {"locomo", "longmemeval"}
    for name in ("longmemeval", "locomo"):
        view = VIEWS[f"judged-{name}-types"]
        keys = {key for column in view.columns for key in column.keys}
        [row] = [row for row in made["rows"] if row["set"] == name]
        kinds = {key for key in row if re.fullmatch(r"accuracy\.(?!interval|minus)[\w-]+", key)}
        assert kinds
        assert kinds <= keys


def test_sessions_found_stand_in_the_retrieval_table(everything):
    rows_ = result(everything, "retrieval")["rows"]
    for name in ("longmemeval", "locomo"):
        assert all(0 <= row["session.recall@5"] <= 1 for row in rows_ if row["set"] == name)
    shown = {key for column in VIEWS["retrieval-longmemeval"].columns for key in column.keys}
    assert {"session.recall@5", "session.n_questions"} <= shown


def test_a_failed_sample_scores_0_and_is_counted(encoder, tmp_path):
    with Server(failing(500)) as server:
        made = run(tmp_path, "table1", *served(server, "--reader", "openai:m"), code=1)
    [row] = made["rows"]
    assert row["n_failed"] == row["n_questions"] > 0
    assert row["gam.f1.average"] == 0
    assert made["notes"] == [f"{row['n_failed']} samples failed; each scores 0 in its row."]


def test_an_interrupted_run_goes_on(encoder, tmp_path):
    cache = ["--cache", str(tmp_path / "c")]
    with Server(reply, reply, failing(500)) as server:
        run(tmp_path, "table1", *served(server, "--reader", "openai:m", *cache), code=1)
    with Server(reply) as server:
        [row] = run(tmp_path, "table1", *served(server, "--reader", "openai:m", *cache))["rows"]
        assert len(server.requests) == row["n_questions"] - 2
    assert row["n_failed"] == 0


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"prompt_tokens": 1000.0, "cached_tokens": 400.0, "completion_tokens": 10.0}, 1700e-6),
        ({"prompt_tokens": 0.0, "cached_tokens": 0.0, "completion_tokens": 0.0}, 0.0),
        ({"prompt_tokens": None, "cached_tokens": None, "completion_tokens": None}, None),
    ],
)
def test_cached_tokens_have_their_own_price(row, expected):
    prices = {"m": {"prompt": 2.0, "cached": 1.0, "completion": 10.0}}
    assert answers.cost({"reader": "m", **row}, prices) == pytest.approx(expected)
    assert answers.cost({"reader": "other", **row}, prices) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "prices.json is no JSON"),
        ("[]", "one object, model by model"),
        ('{"extractive": {"prompt": 1}}', "'extractive' needs prompt, cached, completion"),
    ],
)
def test_prices_that_cannot_be_read(encoder, tmp_path, capsys, text, message):
    path = tmp_path / "prices.json"
    path.write_text(text)
    arguments = ["backbones", *LOCOMO, "--prices", str(path), "--out", str(tmp_path)]
    assert tables.main(arguments) == 2
    assert message in capsys.readouterr().err


# ---- memory operations


class Fake:
    name = "fake"

    def __init__(self, port=None):
        self.port = port
        self.calls = []

    def share(self, history):
        self.calls.append("share")

    def index(self, history):
        self.calls.append("index")

    def find(self, queries, budget):
        self.calls.append(("find", len(queries)))
        if self.port is not None:
            socket.create_connection(("127.0.0.1", self.port)).close()


def small_set():
    history = History("h", (Trace("A boat.", id="a"),))
    asked = [Question(f"q{i}", Query("A boat?"), "all", frozenset("a")) for i in range(3)]
    return Dataset("fake", [(history, asked), (history, asked[:1])], {}, shared=history)


def test_the_meter_hears_connections():
    method = Fake()
    spent = meter.operate(small_set(), method, Budget())
    assert method.calls == ["share", "index", ("find", 3), "index", ("find", 1)]
    assert (spent.tokens, spent.connections, spent.n_queries) == (0, 0, 4)
    with socket.create_server(("127.0.0.1", 0)) as server:
        method = Fake(server.getsockname()[1])
        spent = meter.operate(small_set(), method, Budget())
        assert (spent.tokens, spent.connections) == (None, 2)  # nobody knows what it bought
        method.llm_tokens = 77
        assert meter.operate(small_set(), method, Budget()).tokens == 77


def test_counting_ends_with_its_context():
    with meter.connections() as outer, meter.connections() as inner:
        pass
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname()).close()
    assert outer.n == inner.n == 0


def test_table2_times_from_nothing(encoder, tmp_path):
    arguments = ["table2", *LOCOMO, "--methods", "zeromem,bm25", "--cache", str(tmp_path / "c")]
    run(tmp_path, *arguments)
    before = encoder.calls
    made = run(tmp_path, *arguments)
    assert encoder.calls > before + 1  # what the cache knows does not make building look faster
    for row in made["rows"]:
        assert row["memory_tokens"] == row["memory_tokens_per_query"] == row["connections"] == 0
        total = row["seconds.index"] + row["seconds.find"]
        assert row["memory_seconds"] == pytest.approx(total, abs=1e-5)
        n = row["n_questions"]
        assert row["memory_seconds_per_query"] == pytest.approx(total / n, abs=1e-5)
        assert row["seconds.find"] > 0


# ---- intervals


def test_intervals_are_the_bootstraps_and_paired():
    made = {name: {} for name in ("zeromem", "hybrid", "late")}
    ids = [f"q{i}" for i in range(40)]
    cluster = {id: f"c{i % 4}" for i, id in enumerate(ids)}
    ours = {id: float(i % 3 > 0) for i, id in enumerate(ids)}
    theirs = {id: float(i % 2) for i, id in enumerate(ids)}
    scores = {"zeromem": ours, "hybrid": theirs, "late": {"q0": 1.0, "q1": 0.0}}
    rows.with_intervals(made, "x", scores, cluster, seed=3)
    groups = list(cluster.values())
    alone = bootstrap.interval(list(ours.values()), groups, seed=3)
    assert made["zeromem"]["x.interval"] == [round(alone.low, 6), round(alone.high, 6)]
    paired = bootstrap.difference(list(ours.values()), list(theirs.values()), groups, seed=3)
    assert made["zeromem"]["x.minus_hybrid"] == round(paired.mean, 6)
    assert made["zeromem"]["x.minus_hybrid.interval"] == [
        round(paired.low, 6), round(paired.high, 6),
    ]  # fmt: skip
    assert not any("minus" in key for key in made["hybrid"])
    assert not any("minus" in key for key in made["late"])  # not the same questions


def test_one_conversation_has_no_interval():
    made = {"zeromem": {}}
    rows.with_intervals(made, "x", {"zeromem": {"a": 1.0, "b": 0.0}}, {"a": "c", "b": "c"}, 0)
    assert made == {"zeromem": {}}


def test_clusters_follow_the_data_set():
    data = small_set()
    assert rows.clusters(data) == {"q0": "q0", "q1": "q1", "q2": "q2"}
    whole = Dataset("fake", data.tasks, {}, cluster="history")
    assert set(rows.clusters(whole).values()) == {"h"}


# ---- the command line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["table1"], "table1 needs data: give --locomo"),
        (["table1", "--corrections", "x.json"], "table1 needs data: give --locomo"),
        (["table3"], "give --hotpotqa"),
        (["judged"], "give --longmemeval or --locomo"),
        (["all"], "all needs data: give --locomo or --hotpotqa or"),
        (["table1", "table3", *LOCOMO], "table3 needs data: give --hotpotqa"),
        (["table1", *LOCOMO, "--methods", "hybird"], "got 'hybird'"),
        (["table1", *LOCOMO, "--reader", "gpt"], "got 'gpt'"),
        (["table3", *TINY], "table3 needs at least 400 passages of HotpotQA, the pool has 8"),
        (["answers", *TINY, "--documents", "900"], "musique: --documents must be at least 1"),
        (["answers", *LOCOMO, "--categories", "9"], "--categories must be of 1, 2"),
        (["table2", *LOCOMO, "--judge", "openai:m"], "--judge is asked for table1, judged,"),
        (["table1", *LOCOMO, "--judge", "gavel"], "--judge must be openai:MODEL"),
        (["table1", *LOCOMO, "--methods", f"{__file__}:Fake"], "has no rank, close"),
        (["table1", *LOCOMO, "--rows", "/dev/null/rows.jsonl"], "/dev/null"),
        (["table1", "--locomo", "/no/such/file.json"], "file.json"),
    ],
)
def test_refusals(encoder, tmp_path, capsys, arguments, message, monkeypatch):
    monkeypatch.setattr(commands, "LENGTHS", {"56K": 400})
    assert tables.main([*arguments, "--out", str(tmp_path / "o")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "o").exists()


def test_a_table_that_fails_leaves_the_others(encoder, tmp_path, capsys, monkeypatch):
    def broken(_):
        raise KeyError("trigrams")

    figure4 = dataclasses.replace(commands.COMMANDS["figure4"], make=broken)
    monkeypatch.setitem(commands.COMMANDS, "figure4", figure4)
    monkeypatch.setattr(commands, "LENGTHS", {"56K": 400})
    out = tmp_path / "results"
    arguments = ["table3", "figure4", "table1", *TINY, "--methods", "bm25", "--out", str(out)]
    assert tables.main(arguments) == 1
    assert {path.name for path in out.iterdir()} == {"table1.json"}
    *_, third, fourth = capsys.readouterr().err.splitlines()
    assert third == (
        "error: table3 was not made: table3 needs at least 400 passages of HotpotQA, the pool has 8"
    )
    assert fourth == "error: figure4 was not made: KeyError('trigrams')"


def test_lengths_beyond_the_pool_are_left_out(encoder, tmp_path, monkeypatch):
    monkeypatch.setattr(commands, "LENGTHS", {"56K": 4, "224K": 1600})
    made = run(tmp_path, "table3", *TINY, "--methods", "bm25")
    [row] = made["rows"]
    assert "f1.56K" in row
    assert "f1.224K" not in row
    left_out = "Left out: 224K (1,600 passages); the pool of HotpotQA has 8 passages."
    assert left_out in made["notes"]


def test_an_ablation_without_enough_passages_is_locomos(encoder, tmp_path, monkeypatch):
    monkeypatch.setattr(commands, "LENGTHS", {"56K": 400})
    made = run(tmp_path, "figure3", *TINY, "--methods", "bm25")
    assert [row["set"] for row in made["rows"]] == ["locomo"]
    assert any(note.startswith("HotpotQA is left out: figure3 needs") for note in made["notes"])


def test_nothing_is_asked_before_all_options_were_tried(encoder, tmp_path):
    with Server(reply) as server:
        prices = tmp_path / "prices.json"
        prices.write_text("{")
        arguments = served(server, "--reader", "openai:m", "--prices", str(prices))
        code = tables.main(["table1", "backbones", *arguments, "--out", str(tmp_path / "o")])
        assert code == 2
        assert server.requests == []


OWN = """
import numpy as np
from zeromem.evaluation import RankedList

class Lengths(RankedList):
    name = "longest-first"
    n_made = 0

    def scores(self, queries):
        return np.array([[len(text) for text in self.turns.texts] for _ in queries])
"""


@pytest.mark.parametrize("command", ["table2", "table3", "figure3", "retrieval"])
def test_a_method_of_ones_own_stands_in_every_table(encoder, tmp_path, command):
    path = tmp_path / "mine.py"
    path.write_text(OWN)
    made = run(tmp_path, command, *TINY, "--methods", f"{path}:Lengths,bm25")
    assert {row["method"] for row in made["rows"]} == {"longest-first", "bm25"}
    assert str(tmp_path) not in json.dumps(made)
    if command == "table2":
        assert all(row["memory_seconds"] > 0 for row in made["rows"])


def test_each_questions_own_row(encoder, tmp_path):
    path = tmp_path / "deep" / "rows.jsonl"
    with Server(reply) as server:
        arguments = served(
            server, "--reader", "openai:small", "--judge", "openai:gavel", "--rows", str(path),
            *TINY[2:4],
        )  # fmt: skip
        made = run(tmp_path, "table1", *arguments)
    [whole] = made["rows"]
    assert whole["accuracy"] == 1.0  # table1 is judged where a judge is given
    kept = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(kept) == len({row["id"] for row in kept}) == whole["n_questions"]
    mean = sum(row["gam_f1"] for row in kept) / len(kept)
    assert mean == pytest.approx(whole["gam.f1.average"], abs=1e-5)
    for row in kept:
        assert (row["table"], row["set"], row["reader"]) == ("table1", "locomo", "small")
        assert (row["method"], row["judged"], row["judge_error"]) == ("zeromem", True, None)
        assert (row["draft"], row["error"], row["k"]) == ("Petrel", None, 5)
        assert row["answer"]
        assert row["gold"]
        assert row["category"]
        assert row["tokens"]["prompt"] == 111
        assert isinstance(row["evidence"], list)
    assert sum("gold_corrected" in row for row in kept) == 2
    assert {row["id"]: row for row in kept}.keys() == {row["id"] for row in kept}


def test_rows_of_retrieval_have_no_reader(encoder, tmp_path):
    path = tmp_path / "rows.jsonl"
    made = run(tmp_path, "retrieval", *TINY[4:8], "--documents", "6", "--methods", "bm25,hybrid",
               "--rows", str(path))  # fmt: skip
    kept = [json.loads(line) for line in path.read_text().splitlines()]
    assert {(row["table"], row["set"], row["documents"]) for row in kept} == {
        ("retrieval", "hotpotqa", 6)
    }
    for row in made["rows"]:
        mine = [r["recall@5"] for r in kept if r["method"] == row["method"]]
        assert sum(mine) / len(mine) == pytest.approx(row["recall@5"], abs=1e-5)
    assert not any("reader" in row for row in kept)
    assert made["reader"] == {}


def test_one_option_sets_the_contexts_of_all_sets_that_have_them(encoder, tmp_path):
    methods_ = ["--methods", "bm25"]
    made = run(tmp_path, "retrieval", *TINY[:-2], "--documents", "4", *methods_)
    with_contexts = {name for name, files in made["data"].items() if "contexts" in files}
    assert with_contexts == {f"{s}, 4 documents" for s in ("hotpotqa", "musique", "twowiki")}
    made = run(tmp_path, "retrieval", *TINY, "--documents", "4", *methods_)
    assert {"hotpotqa, 8 documents", "musique, 4 documents"} <= made["data"].keys()
    made = run(tmp_path, "retrieval", *TINY[:-2], *methods_)  # of a pool as many as it has
    assert {"hotpotqa, 8 documents", "musique"} <= made["data"].keys()


def test_options_of_one_set_reach_its_loader(encoder, tmp_path):
    def asked(*more):
        made = run(tmp_path, "answers", *TINY, "--methods", "bm25", *more)
        return {row["set"]: row["n_questions"] for row in made["rows"] if "shape" not in row}

    usual = asked()
    assert asked("--with-unanswerable") == {**usual, "musique": usual["musique"] + 1}
    fewer = asked("--categories", "1")
    assert 0 < fewer["locomo"] < usual["locomo"]
    assert {**fewer, "locomo": usual["locomo"]} == usual


def test_clocks_start_when_methods_are_warm(encoder, tmp_path, monkeypatch):
    order = []
    real_warm, real_operate = setting.warm, commands.operate
    monkeypatch.setattr(
        setting, "warm", lambda names, **k: (order.append(tuple(names)), real_warm(names, **k))
    )
    monkeypatch.setattr(
        commands, "operate", lambda d, m, b: (order.append(m.name), real_operate(d, m, b))[1]
    )
    run(tmp_path, "table2", *LOCOMO, "--methods", "bm25,zeromem")
    assert order == [("bm25", "zeromem"), "bm25", "zeromem"]


@pytest.mark.parametrize(
    "option", ["--k", "--limit", "--token-budget", "--jobs", "--documents", "--hotpotqa-documents"]
)
def test_numbers_below_1(capsys, option):
    with pytest.raises(SystemExit):
        tables.main(["table1", *LOCOMO, option, "0"])
    assert f"{option} must be at least 1, got 0" in capsys.readouterr().err


def test_a_limit_is_told(encoder, tmp_path):
    made = run(tmp_path, "table1", *LOCOMO, "--methods", "bm25", "--limit", "2")
    assert made["notes"] == ["The first 2 questions only."]
    assert made["rows"][0]["n_questions"] == 2


def test_defaults_are_methods():
    for names in (commands.MAIN, commands.ABLATION, commands.SWEPT, commands.CHANNELS):
        methods.check(names)
        assert rows.REFERENCE in names
    assert set(commands.RANKING) == set(methods.NAMES) - {"long-llm"}
