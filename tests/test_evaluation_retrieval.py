"""The retrieval figures and bench/retrieval.py: no leak of labels, failures counted, the form."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import math
from pathlib import Path

import numpy as np
import pytest
from evaluation_support import CHAT, bank
from support import HashEncoder

from zeromem.evaluation import Budget, Dataset, Found, History, Query, Question, report
from zeromem.evaluation.datasets import locomo
from zeromem.evaluation.methods.base import RankedList
from zeromem.evaluation.methods.plain import Baseline
from zeromem.evaluation.run import retrieval
from zeromem.types import QueryProfile

HERE = Path(__file__).resolve().parent
DATA = HERE / "data"
SHARES = ("recall@1", "recall@5", "recall@10", "recall@20", "hit@5", "mrr", "ndcg@10", "all_gold@5")


@pytest.fixture(scope="module")
def script():
    path = HERE.parent / "bench" / "retrieval.py"
    spec = importlib.util.spec_from_file_location("bench_retrieval", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def cli(script, monkeypatch):
    """The command line with the weightless encoder."""
    monkeypatch.setattr(script, "load_encoder", lambda name, device: HashEncoder())
    return script.main


def locomo_arguments(path, folder, *more):
    return ["locomo", "--data", str(path), "--methods", "hybrid,bm25,dense",
            "--json", str(folder / "out.json"), "--rankings", str(folder / "rank.jsonl"),
            "--rows", str(folder / "rows.jsonl"), *more]  # fmt: skip


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_labels_change_no_ranked_item(cli, tmp_path):
    """Another answer, category and evidence: the same rankings, other figures."""
    original = DATA / "locomo_tiny.json"
    assert cli(locomo_arguments(original, tmp_path)) == 0
    rankings = (tmp_path / "rank.jsonl").read_text()
    figures = json.loads((tmp_path / "out.json").read_text())["methods"]
    samples = json.loads(original.read_text())
    for sample in samples:
        for item in sample["qa"]:
            if item["category"] != 5:
                item["category"] = item["category"] % 4 + 1
                item["answer"] = "meteors and a telescope on the island"
                item["evidence"] = ["D1:2"]
    changed = tmp_path / "locomo_tiny.json"
    changed.write_text(json.dumps(samples))
    assert cli(locomo_arguments(changed, tmp_path)) == 0
    assert (tmp_path / "rank.jsonl").read_text() == rankings
    assert json.loads((tmp_path / "out.json").read_text())["methods"] != figures


def check_form(result, methods, budgets=()):
    assert set(result) >= {"commit", "versions", "hardware", "data", "encoder", "config"}
    assert set(result["seconds"]) == {"ingest", "per_query"}
    assert list(result["methods"]) == methods
    for figures in result["methods"].values():
        for part in (figures, *figures["by_category"].values()):
            assert all(0 <= part[key] <= 1 for key in SHARES)
            for name in ("evidence", *(f"evidence@{tokens}" for tokens in budgets)):
                assert set(part[name]) == {"recall", "turns", "tokens"}
        assert figures["n_questions"] == sum(
            part["n_questions"] for part in figures["by_category"].values()
        )
        assert set(figures["seconds"]) == {"ingest", "per_query"}


def test_the_locomo_report_has_the_fixed_form(cli, tmp_path, capsys):
    path = DATA / "locomo_tiny.json"
    assert cli(locomo_arguments(path, tmp_path, "--budgets", "20,9")) == 0
    result = json.loads((tmp_path / "out.json").read_text())
    check_form(result, ["hybrid", "bm25", "dense"], (20, 9))
    assert result["data"]["name"] == "locomo_tiny.json"
    assert result["data"]["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert result["encoder"] == HashEncoder().fingerprint
    config = result["config"]
    assert (config["set"], config["token_budget"], config["budgets"]) == ("locomo", 1200, [20, 9])
    assert not [value for value in config.values() if str(tmp_path) in str(value)]
    hybrid = result["methods"]["hybrid"]
    assert (hybrid["n_questions"], hybrid["n_unresolved"]) == (7, 1)
    assert hybrid["n_unresolved_citations"] == 2
    assert hybrid["session"]["recall@20"] == 1
    assert hybrid["evidence@9"]["tokens"] <= 9 < hybrid["evidence@20"]["tokens"] <= 20
    assert hybrid["evidence@9"]["recall"] < hybrid["evidence"]["recall"] == 1
    shown = capsys.readouterr()
    assert "multi-hop (1)" in shown.out
    assert "R(q) in 20" in shown.out
    assert "none failed" in shown.out
    assert not shown.err  # no progress bar where nobody watches


def test_rows_hold_what_the_averages_are_made_of(cli, tmp_path):
    assert cli(locomo_arguments(DATA / "locomo_tiny.json", tmp_path, "--budgets", "20")) == 0
    figures = json.loads((tmp_path / "out.json").read_text())["methods"]
    rows = lines(tmp_path / "rows.jsonl")
    assert len(rows) == 3 * 7
    for method in ("hybrid", "bm25", "dense"):
        mine = [row for row in rows if row["method"] == method]
        assert len({row["id"] for row in mine}) == 7
        assert {row["history"] for row in mine} == {"tiny-1", "tiny-2"}
        for key in SHARES:
            assert sum(row[key] for row in mine) / 7 == pytest.approx(figures[method][key])
        for name in ("evidence", "evidence@20"):
            recall = sum(row[name]["recall"] for row in mine) / 7
            assert recall == pytest.approx(figures[method][name]["recall"])
    ranked = lines(tmp_path / "rank.jsonl")
    assert len(ranked) == 3 * 8  # the question without evidence is asked too
    assert set(ranked[0]) == {"method", "history", "id", "question", "main", "evidence"}


def test_the_other_sets_report_too(cli, tmp_path):
    out = tmp_path / "out.json"
    common = ["--methods", "bm25+dense,bm25+dense+user", "--json", str(out)]
    assert cli(["beam", "--data", str(DATA / "beam_tiny.jsonl"), *common]) == 0
    beam = json.loads(out.read_text())
    check_form(beam, ["bm25+dense", "bm25+dense+user"])
    assert beam["methods"]["bm25+dense"]["n_unresolved"] == 1
    tiny = [str(DATA / f"hotpotqa_tiny_{name}.jsonl") for name in ("questions", "pool")]
    documents = ["--questions", tiny[0], "--pool", tiny[1], "--documents", "7"]
    assert cli(["hotpotqa", *documents, "--limit", "1", *common]) == 0
    hotpotqa = json.loads(out.read_text())
    check_form(hotpotqa, ["bm25+dense", "bm25+dense+user"])
    assert hotpotqa["methods"]["bm25+dense"]["n_questions"] == 1
    assert hotpotqa["config"]["documents"] == 7


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--data", "x", "--methods", "magic"], "'magic'"),
        (["--data", "x", "--token-budget", "0"], "--token-budget must be at least 1, got 0"),
        (["--data", "x", "--k", "0"], "--k must be at least 1, got 0"),
        (["--data", "x", "--budgets", "600,few"], "such as 600,1200, got '600,few'"),
        (["--data", "x", "--budgets", "0"], "got '0'"),
        ([], "--data"),
    ],
)
def test_unusable_options_are_named(script, arguments, complaint, capsys):
    with pytest.raises(SystemExit):
        script.main(["locomo", *arguments])
    assert complaint in capsys.readouterr().err


def test_a_missing_file_is_an_error_not_a_trace(cli, capsys):
    assert cli(["locomo", "--data", "absent.json", "--methods", "bm25"]) == 2
    assert "absent.json" in capsys.readouterr().err


def test_a_store_spares_the_second_run_the_encoder(script, monkeypatch, tmp_path):
    encoders = []

    class Counting(HashEncoder):
        n_texts = 0  # but for the warm-up's

        def encode_spans(self, texts, spans):
            self.n_texts += sum(not text.startswith(("Ada:", "Boris:")) for text in texts)
            return super().encode_spans(texts, spans)

    monkeypatch.setattr(
        script, "load_encoder", lambda name, device: encoders.append(Counting()) or encoders[-1]
    )
    arguments = locomo_arguments(DATA / "locomo_tiny.json", tmp_path,
                                 "--store", str(tmp_path / "s.zm"))  # fmt: skip
    rankings = []
    for _ in range(2):
        assert script.main(arguments) == 0
        rankings.append((tmp_path / "rank.jsonl").read_text())
    assert rankings[0] == rankings[1]
    assert encoders[0].n_texts > 0 == encoders[1].n_texts


class Fixed:
    """Finds what it is told; fails where it is told to."""

    calibrates, budgeted = False, True

    def __init__(self, main=None, *, fails_in=(), on="tiny-2", name="fixed"):
        self.name = name
        self.main, self.fails_in, self.on = main, fails_in, on
        self.closed = 0

    def index(self, history):
        self.history = history
        self._maybe_fail("index")

    def rank(self, queries, depth=20):
        self._maybe_fail("rank")
        return [self.main or tuple(t.id for t in self.history.traces)] * len(queries)

    def find(self, queries, budget):
        self._maybe_fail("find")
        return [Found(((),), QueryProfile(q.text)) for q in queries]

    def share(self, history):
        pass

    def close(self):
        self.closed += 1

    def _maybe_fail(self, step):
        if step in self.fails_in and self.history.name == self.on:
            raise RuntimeError(f"no {step}")


@pytest.mark.parametrize("step", ["index", "rank", "find"])
def test_a_failed_sample_scores_zero_and_is_counted(step, capsys):
    dataset = locomo.load(DATA / "locomo_tiny.json")
    failing, sound = Fixed(fails_in=[step], name="failing"), Fixed(name="sound")
    ranked = []
    figures = retrieval(dataset, [failing, sound], Budget(), ranked.append)
    assert (figures["failing"]["n_failed"], figures["failing"]["n_questions"]) == (2, 7)
    assert figures["failing"]["recall@20"] == pytest.approx(5 / 7)
    assert (figures["sound"]["n_failed"], figures["sound"]["recall@20"]) == (0, 1)
    assert f"RuntimeError: no {step}" in capsys.readouterr().err
    assert [r["main"] for r in ranked if r["method"] == "failing"][-2:] == [[], []]
    assert failing.closed == sound.closed == 1


def test_a_method_that_answers_too_few_queries_has_failed(capsys):
    class Short(Fixed):
        def rank(self, queries, depth=20):
            return super().rank(queries)[:-1]

    figures = retrieval(locomo.load(DATA / "locomo_tiny.json"), [Short()], Budget())["fixed"]
    assert figures["n_failed"] == 8
    assert figures["recall@20"] == 0


def test_one_question_that_fails_spoils_no_other(capsys):
    class Picky(Fixed):
        asked = 0

        def rank(self, queries, depth=20):
            if any(q.text.startswith("Who is the poet") for q in queries):
                raise RuntimeError("no poetry")
            self.asked += len(queries)
            return super().rank(queries)

    traces = CHAT.traces[:2]
    history = History("two", traces)
    texts = ("Who is the poet?", "Which kayak?", "What price?")
    questions = [
        Question(f"q{i}", Query(t), "c", frozenset({traces[0].id})) for i, t in enumerate(texts)
    ]
    method = Picky()
    figures = retrieval(Dataset("d", [(history, questions)], {}), [method], Budget())["fixed"]
    assert figures["n_failed"] == 1
    assert figures["recall@20"] == pytest.approx(2 / 3)
    assert method.asked == 2
    assert (
        "fixed failed on question q0 of two: RuntimeError('no poetry')" in capsys.readouterr().err
    )


def test_the_command_line_says_that_something_failed(script, cli, monkeypatch, capsys):
    broken = Fixed(fails_in=["rank"])
    monkeypatch.setattr(script.methods, "make", lambda *a, **k: [broken])
    path = DATA / "locomo_tiny.json"
    assert script.main(["locomo", "--data", str(path), "--methods", "bm25"]) == 1
    assert "2 questions failed (fixed 2)" in capsys.readouterr().out


def test_methods_are_warm_before_any_clock_starts(script, cli, monkeypatch, tmp_path):
    seen = []
    index = Baseline.index
    monkeypatch.setattr(
        Baseline, "index", lambda self, history: (seen.append(history.name), index(self, history))
    )
    arguments = ["locomo", "--data", str(DATA / "locomo_tiny.json"), "--methods", "bm25"]
    assert cli([*arguments, "--rankings", str(tmp_path / "r.jsonl")]) == 0
    assert seen == ["warm", "tiny-1", "tiny-2"]
    assert {row["history"] for row in lines(tmp_path / "r.jsonl")} == {"tiny-1", "tiny-2"}


def test_the_summary_counts_in_words(script):
    figures = {
        "n_questions": 1, "n_unresolved": 2, "n_unresolved_citations": 1, "n_failed": 0,
        "by_category": {}, "seconds": {"ingest": 0, "per_query": 0},
        "evidence": {"recall": 1, "turns": 1, "tokens": 9},
        **dict.fromkeys(script.SHOWN, 1.0),
        "evidence@10": {"recall": 0.5}, "session": {"recall@1": 0.25, "recall@5": 1.0,
        "recall@10": 1.0, "recall@20": 1.0, "n_questions": 3},
    }  # fmt: skip
    shown = script.table(
        {"methods": {"m": figures}, "config": {"set": "longmemeval", "budgets": [10]}}
    )
    assert (
        "1 question scored, 2 without resolvable evidence left out; 1 citation names nothing; "
        "none failed"
    ) in shown
    assert "R(q) in 10" in shown
    assert "sessions, recall@" in shown
    assert "25.0" in shown.splitlines()[-3]


def test_ndcg_of_the_session_level_counts_each_session_once():
    question = Question("q1", Query("q"), "c", frozenset({"z0"}))
    dataset = Dataset("d", [(CHAT, [question])], {})
    figures = retrieval(dataset, [Fixed(("s0", "s1", "z1"))], Budget())["fixed"]
    assert figures["recall@20"] == 0
    assert figures["session"]["mrr"] == 0.5
    assert figures["session"]["ndcg@10"] == pytest.approx(1 / math.log2(3))


def test_sessions_that_the_set_labels_itself_count_without_any_labelled_trace():
    """LongMemEval labels sessions everywhere and turns in part."""
    session = next(iter(CHAT.session_of.values()))
    first = next(trace for trace, its in CHAT.session_of.items() if its == session)
    both = Question("q1", Query("q"), "c", frozenset({first}), gold_sessions=frozenset({session}))
    only = Question("q2", Query("q"), "d", frozenset(), gold_sessions=frozenset({session}))
    dataset = Dataset("d", [(CHAT, [both, only])], {})
    kept = []
    figures = retrieval(dataset, [Fixed((first,))], Budget(), rows=kept.append)["fixed"]
    assert (figures["n_questions"], figures["n_unresolved"]) == (1, 1)
    assert figures["session"]["n_questions"] == 2
    assert figures["session"]["recall@1"] == figures["recall@1"] == 1
    assert figures["by_category"]["d"]["n_questions"] == 0
    assert [row["id"] for row in kept] == ["q1"]


def test_statistics_are_each_contexts_own():
    """Passages that contexts share are encoded once, and ranked as if they were not shared."""
    shared = History("pool", CHAT.traces)
    context = History("context", CHAT.traces[:3], ephemeral=True)
    question = Question("q1", Query("the tent or the kayak"), "c", frozenset({"s2"}))
    dataset = Dataset("d", [(context, [question])], {}, shared=shared)
    calls = []

    class Counting(HashEncoder):
        def encode_spans(self, texts, spans):
            calls.append(len(texts))
            return super().encode_spans(texts, spans)

    alone, pooled = [], []
    retrieval(Dataset("d", dataset.tasks, {}), [Baseline("hybrid", bank())], Budget(), alone.append)
    method = Baseline("hybrid", bank(encoder=Counting()))
    retrieval(dataset, [method], Budget(), pooled.append)
    assert pooled == alone
    assert calls == [6]


def test_a_commit_is_the_repositorys_own(monkeypatch, tmp_path):
    """An installed package may lie inside somebody else's repository."""
    monkeypatch.setattr(report, "ROOT", tmp_path)
    assert report.commit() is None
    assert report.versions()["numpy"]
    assert report.hardware("cpu")["device"] == "cpu"


@pytest.mark.parametrize("ranked", [("s0", "s0"), ("s0", "nosuch")])
def test_a_main_list_that_is_none_has_failed(ranked, capsys):
    """A trace that is listed again would count again in NDCG."""
    question = Question("q1", Query("q"), "c", frozenset({"s0"}))
    figures = retrieval(Dataset("d", [(CHAT, [question])], {}), [Fixed(ranked)], Budget())["fixed"]
    assert figures["n_failed"] == 1
    assert figures["ndcg@10"] == 0
    assert repr(ranked[-1]) in capsys.readouterr().err


def test_evidence_beyond_the_budget_has_failed_unless_the_method_says_so(capsys):
    class Over(RankedList):
        name = "over"

        def scores(self, queries):
            return np.ones((len(queries), len(self.turns)))

        def find(self, queries, budget):
            return super().find(queries, Budget(None, None))

    question = Question("q1", Query("q"), "c", frozenset({"s0"}))
    dataset = Dataset("d", [(CHAT, [question])], {})
    method = Over(bank())
    assert retrieval(dataset, [method], Budget(None, 1))["over"]["n_failed"] == 1
    assert "budgeted = False" in capsys.readouterr().err
    method.budgeted = False
    assert retrieval(dataset, [method], Budget(None, 1))["over"]["n_failed"] == 0


def test_a_method_that_cannot_be_closed_costs_nothing_but_a_word(capsys):
    class Stuck(Fixed):
        def close(self):
            raise OSError("busy")

    question = Question("q1", Query("q"), "c", frozenset({"s0"}))
    figures = retrieval(Dataset("d", [(CHAT, [question])], {}), [Stuck(("s0",))], Budget())
    assert figures["fixed"]["recall@1"] == 1
    assert "busy" in capsys.readouterr().err
