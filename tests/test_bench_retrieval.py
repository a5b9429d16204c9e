"""bench/retrieval.py: baselines by their definitions, no leak of labels, the report's form."""

import hashlib
import json
import math
import sys
from pathlib import Path

import bm25s
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))

import retrieval
from harness import baselines, data, features, zeromem_methods
from harness.methods import DEPTH, Outcome, Ranking, first_distinct
from harness.run import run

from zeromem.ingest.encoders.base import SpanVectors
from zeromem.text import terms
from zeromem.types import Trace

DATA = Path(__file__).parent / "data"
DIM = 48


class BagOfWords:
    """An encoder without weights: every word is a fixed random direction."""

    fingerprint = "bag-of-words"
    dim = DIM

    def _vector(self, text):
        total = np.zeros(DIM)
        for word in text.lower().split():
            seed = hashlib.blake2b(word.encode(), digest_size=8).digest()
            total += np.random.default_rng(int.from_bytes(seed)).normal(size=DIM)
        return total / max(len(text.split()), 1)

    def encode(self, texts):
        rows = np.array([self._vector(text) for text in texts]).reshape(-1, DIM)
        norms = np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
        return (rows / norms).astype(np.float32)

    def encode_spans(self, texts, spans):
        pieces = [t[a:z] for t, s in zip(texts, spans, strict=True) for a, z in s.tolist()]
        return SpanVectors(
            np.array([self._vector(t) for t in texts], np.float32).reshape(-1, DIM),
            self.encode(pieces),
            np.array([len(t.split()) for t in texts], np.int32),
            np.array([len(t.split()) for t in pieces], np.int32),
        )


def make_bank(scope=None):
    return features.FeatureBank(BagOfWords(), scope)


@pytest.fixture
def cli(monkeypatch):
    """The command line with the weightless encoder."""
    monkeypatch.setattr(retrieval, "load_encoder", lambda name, device: BagOfWords())
    monkeypatch.setattr(retrieval.features, "open_bank", lambda encoder, store: make_bank())
    return retrieval.main


def talk(*lines, session="s"):
    return [
        Trace(text, id=f"{session}{i}", speaker=speaker, session=session)
        for i, (speaker, text) in enumerate(lines)
    ]


CHAT = data.Memory(
    "chat",
    tuple(
        talk(
            ("Ines", "I sold the green kayak."),
            ("Omar", "Good price for the kayak?"),
            ("Ines", "Enough for a tent."),
            ("Omar", "Then camping it is."),
        )
        + talk(("Omar", "The tent has a hole."), ("Ines", "I will patch it."), session="z")
    ),
)


def rank(name, memory, *questions, budget=1200, bank=None):
    return baselines.Baseline(name, bank or make_bank(), budget).rank(memory, questions).rankings


def test_bm25_is_lucenes():
    rng = np.random.default_rng(3)
    documents = [[f"w{w}" for w in rng.zipf(1.6, size=rng.integers(0, 30)) if w < 40]
                 for _ in range(60)]  # fmt: skip
    oracle = bm25s.BM25(method="lucene", k1=1.5, b=0.75)
    oracle.index(documents, show_progress=False)
    ours = baselines.Lexical(documents)
    for query in (["w1", "w2", "w7"], ["w3"], ["absent", "w5"]):
        known = [w for w in query if w != "absent"]
        np.testing.assert_allclose(ours.scores(query), oracle.get_scores(known), rtol=1e-5)
    assert not ours.scores([]).any()
    np.testing.assert_array_equal(ours.scores(["w1", "w1"]), ours.scores(["w1"]))


def test_hybrid_is_four_normalised_scores_and_the_named_speaker():
    encoder = BagOfWords()
    question = "What did Ines do with the kayak?"
    (query,) = terms([question])
    turns = baselines.Turns(CHAT, make_bank())
    texts = [f"{t.speaker}: {t.text}" for t in CHAT.traces]
    spans = [(0, 2), (0, 3), (1, 4), (2, 4), (4, 6), (4, 6)]  # no window crosses a session

    def scaled(x):
        return (x - x.min()) / (x.max() - x.min())

    raw = np.array([encoder._vector(t) for t in texts]).astype(np.float16).astype(float)
    n_words = np.array([len(t.text.split()) for t in CHAT.traces])
    pooled = np.array([(raw[a:z] * n_words[a:z, None]).sum(0) for a, z in spans])
    words = terms([f"{t.speaker} {t.text}" for t in CHAT.traces])
    windows = [[t for row in words[a:z] for t in row] for a, z in spans]
    vector = encoder.encode([question])[0].astype(float)

    def cosine(rows):
        return rows @ vector / np.linalg.norm(rows, axis=1)

    expected = (
        scaled(baselines.Lexical(words).scores(query))
        + scaled(baselines.Lexical(windows).scores(query))
        + scaled(cosine(raw))
        + scaled(cosine(pooled))
        + 0.4 * np.array([t.speaker == "Ines" for t in CHAT.traces])
    )
    got = baselines.hybrid(turns, question, query, vector.astype(np.float32))
    np.testing.assert_allclose(got, expected, atol=1e-3)


def test_the_speaker_counts_only_where_one_is_named():
    turns = baselines.Turns(CHAT, make_bank())
    vector = np.zeros(DIM, np.float32)

    def bonus(question):
        both = [f(turns, question, [], vector) for f in (baselines.hybrid, baselines.with_windows)]
        return both[0] - both[1]

    assert bonus("What did INES sell?").tolist() == [0.4, 0, 0.4, 0, 0, 0.4]
    assert not bonus("What did Ines and Omar sell?").any()
    assert not bonus("What did Inessa sell?").any()


def test_ties_break_by_row():
    words = ["tent" if i % 3 else "kayak" for i in range(60)]
    memory = data.Memory("m", tuple(Trace(f"{w} x", id=str(i)) for i, w in enumerate(words)))
    (ranking,) = rank("bm25", memory, "kayak")
    assert ranking.main == tuple(str(i) for i in range(0, 60, 3))


@pytest.mark.parametrize(("budget", "n_turns"), [(9, 1), (10, 2), (11, 2), (4, 0)])
def test_the_budget_counts_whole_turns(budget, n_turns):
    (ranking,) = rank("bm25", CHAT, "zebra", budget=budget)
    assert ranking.main == tuple(t.id for t in CHAT.traces)
    assert ranking.evidence == (("s0", 5), ("s1", 5), ("s2", 4))[:n_turns]


def test_a_message_ranks_by_its_best_piece():
    long = " ".join(f"Filler sentence number {i} says nothing." for i in range(60))
    memory = data.Memory("m", (Trace("Short note.", id="a"), Trace(f"{long} The okapi.", id="b")))
    (ranking,) = rank("bm25", memory, "okapi")
    assert ranking.main == ("b", "a")
    assert first_distinct(["b", "b", "a", "b", "c"], 2) == ("b", "a")


def test_hotpotqa_statistics_are_the_contexts_own():
    dataset = data.load_hotpotqa(
        DATA / "hotpotqa_tiny_questions.jsonl", DATA / "hotpotqa_tiny_pool.jsonl", documents=5
    )
    memory, (question,) = dataset.tasks[0]
    bank = make_bank()
    bank.features(dataset.shared)
    shared = rank("bm25", memory, question.text, bank=bank)
    assert shared == rank("bm25", memory, question.text)


def test_features_are_made_once_and_kept():
    kept, appended, calls = {}, [], []

    class Scope:
        def append(self, traces, *, keys):
            appended.append(len(traces))

        def features(self, keys, fingerprint):
            return {key: kept[key] for key in keys if key in kept}

        def put_features(self, found, fingerprint):
            kept.update(found)

    class Counting(BagOfWords):
        def encode_spans(self, texts, spans):
            calls.append(len(texts))
            return super().encode_spans(texts, spans)

    def bank():
        return features.FeatureBank(Counting(), lambda name: Scope())

    first = rank("hybrid", CHAT, "kayak", "tent", bank=bank())
    assert (calls, appended, len(kept)) == ([6], [6], 6)
    assert rank("hybrid", CHAT, "kayak", "tent", bank=bank()) == first
    assert calls == [6]


def locomo_arguments(path, tmp_path, *more):
    return ["locomo", "--data", str(path), "--methods", "hybrid,bm25,dense",
            "--json", str(tmp_path / "out.json"), "--rankings", str(tmp_path / "rank.jsonl"),
            *more]  # fmt: skip


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


SHARES = ("recall@1", "recall@5", "recall@10", "recall@20", "hit@5", "mrr", "ndcg@10", "all_gold@5")


def check_form(report, methods):
    assert set(report) >= {"commit", "versions", "hardware", "data", "encoder", "config"}
    assert set(report["seconds"]) == {"ingest", "per_query"}
    assert list(report["methods"]) == methods
    for figures in report["methods"].values():
        for part in (figures, *figures["by_category"].values()):
            assert all(0 <= part[key] <= 1 for key in SHARES)
            assert set(part["evidence"]) == {"recall", "turns", "tokens"}
        assert figures["n_questions"] == sum(
            part["n_questions"] for part in figures["by_category"].values()
        )
        assert set(figures["seconds"]) == {"ingest", "per_query"}


def test_the_locomo_report_has_the_fixed_form(cli, tmp_path, capsys):
    path = DATA / "locomo_tiny.json"
    assert cli(locomo_arguments(path, tmp_path)) == 0
    report = json.loads((tmp_path / "out.json").read_text())
    check_form(report, ["hybrid", "bm25", "dense"])
    assert report["data"]["name"] == "locomo_tiny.json"
    assert report["data"]["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    hybrid = report["methods"]["hybrid"]
    assert (hybrid["n_questions"], hybrid["n_unresolved"]) == (7, 1)
    assert hybrid["n_unresolved_citations"] == 2
    assert hybrid["session"]["recall@20"] == 1
    shown = capsys.readouterr()
    assert "multi-hop (1)" in shown.out
    assert not shown.err  # no progress bar where nobody watches


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
        (["locomo", "--data", "x", "--methods", "magic"], "'magic'"),
        (["locomo", "--data", "x", "--limit", "0"], "--limit must be at least 1, got 0"),
        (["locomo"], "--data"),
    ],
)
def test_unusable_options_are_named(arguments, complaint, capsys):
    with pytest.raises(SystemExit):
        retrieval.main(arguments)
    assert complaint in capsys.readouterr().err


def test_a_missing_file_is_an_error_not_a_trace(cli, capsys):
    assert cli(["locomo", "--data", "absent.json", "--methods", "bm25"]) == 2
    assert "absent.json" in capsys.readouterr().err


class Failing:
    name = "failing"

    def rank(self, memory, questions):
        if memory.name == "tiny-2":
            raise RuntimeError("no")
        main = tuple(t.id for t in memory.traces)
        return Outcome((Ranking(main),) * len(questions), 1.0, 2.0)

    def close(self):
        pass


def test_a_failed_sample_scores_zero_and_is_counted(capsys):
    dataset = data.load_locomo(DATA / "locomo_tiny.json")
    figures = run(dataset, [Failing()])["failing"]
    assert (figures["n_failed"], figures["n_questions"]) == (2, 7)
    assert figures["recall@20"] == pytest.approx(5 / 7)
    assert figures["seconds"] == {"ingest": 1.0, "per_query": round(2 / 6, 6)}
    assert "RuntimeError: no" in capsys.readouterr().err


class Item:
    def __init__(self, id):
        self.id, self.n_tokens = id, 7


class Found(list):
    @property
    def main(self):
        return self


class Handle:
    """A memory that returns each trace's pieces in turn, and notes what it is asked."""

    def __init__(self, log, pieces):
        self.log, self.pieces = log, pieces

    def add_many(self, traces):
        self.traces = traces
        self.log.append(("add", len(traces)))

    def stats(self):
        self.log.append(("stats",))

    def retrieve_batch(self, questions, *, k, **options):
        self.log.append((len(questions), k, options))
        ids = [t.id for t in self.traces for _ in range(self.pieces)]
        return [Found(Item(i) for i in ids[:k]) for _ in questions]

    def forget(self, **options):
        self.log.append(("forget", options))

    def close(self):
        self.log.append(("close",))


def zeromem_method(monkeypatch, name, pieces=1):
    import zeromem

    log = []
    opened = []

    def open_(path, **options):
        opened.append(options)
        return Handle(log, pieces)

    class Config:
        paper = staticmethod(lambda: "paper")
        __new__ = lambda cls: "default"  # noqa: E731

    monkeypatch.setattr(zeromem, "open", open_, raising=False)
    monkeypatch.setattr(zeromem, "Config", Config, raising=False)
    memories = zeromem_methods.OpenMemories(Path("x"), BagOfWords(), "cpu")
    return zeromem_methods.ZeroMem(name, memories, 900), log, opened


@pytest.mark.parametrize(
    ("name", "config", "options"),
    [
        ("zeromem", "default", {}),
        ("zeromem-paper", "paper", {}),
        ("graph", "default", {"view": "graph"}),
        ("hierarchy", "default", {"view": "hierarchy"}),
        ("no-closure", "default", {"closure": False}),
        ("no-calibration", "default", {"calibration": False}),
    ],
)
def test_each_variant_asks_for_what_it_says(monkeypatch, name, config, options):
    method, log, opened = zeromem_method(monkeypatch, name)
    (ranking,) = method.rank(CHAT, ["q"]).rankings
    assert opened[0]["config"] == config
    assert log[:3] == [("add", 6), ("stats",), (1, DEPTH, options)]
    assert log[3][2] == {"token_budget": 900, **options}
    assert log[3][1] is None  # as many as fit the budget, whatever the variant
    assert ranking.main == tuple(t.id for t in CHAT.traces)
    assert ranking.evidence[0] == ("s0", 7)


def test_the_main_list_is_read_on_where_pieces_repeat(monkeypatch):
    method, log, _ = zeromem_method(monkeypatch, "zeromem", pieces=3)
    many = data.Memory("many", tuple(Trace("x", id=str(i)) for i in range(50)))
    (ranking,) = method.rank(many, ["q"]).rankings
    assert ranking.main == tuple(map(str, range(DEPTH)))
    assert [entry[1] for entry in log[2:]] == [20, 40, 80, None]


def test_a_context_is_forgotten_and_a_conversation_is_not(monkeypatch):
    method, log, _ = zeromem_method(monkeypatch, "zeromem")
    context = data.Memory("context", CHAT.traces, ephemeral=True)
    for memory in (context, CHAT):
        method.rank(memory, ["q"])
    method.close()
    ends = [entry for entry in log if entry[0] in ("forget", "close", "add")]
    assert ends == [
        ("add", 6), ("forget", {"everything": True}), ("close",), ("add", 6), ("close",),
    ]  # fmt: skip


def test_ndcg_of_the_session_level_counts_each_session_once():
    memory = data.Memory("m", CHAT.traces)
    question = data.Question("q", "c", frozenset({"z0"}))

    class Fixed:
        name = "fixed"
        rank = staticmethod(lambda m, q: Outcome((Ranking(("s0", "s1", "z1")),), 0, 0))
        close = staticmethod(lambda: None)

    figures = run(data.Dataset("d", [(memory, [question])], {}), [Fixed()])["fixed"]
    assert figures["recall@20"] == 0
    assert figures["session"]["mrr"] == 0.5
    assert figures["session"]["ndcg@10"] == pytest.approx(1 / math.log2(3))
