"""bench/learned.py on sets made here: what is learned, what is held out, and the table."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from evaluation_support import talk
from support import HashEncoder

from zeromem.config import Config
from zeromem.errors import ZeroMemError
from zeromem.evaluation import Dataset, History, Query, Question
from zeromem.evaluation.methods.zero_mem import OpenMemories
from zeromem.ingest.annotate import RuleAnnotator

HERE = Path(__file__).resolve().parent
DATA = HERE / "data"


@pytest.fixture(scope="module")
def learned():
    path = HERE.parent / "bench" / "learned.py"
    spec = importlib.util.spec_from_file_location("bench_learned", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def made(learned, tells, n=12, seed=0, histories=3, sign=1.0):
    """Questions whose gold is told by one feature alone, the others being noise."""
    draw = np.random.default_rng(seed)
    found = []
    for i in range(n):
        features = draw.random((20, len(learned.FEATURES)), np.float32)
        value = features[:, tells] * sign
        ids = [f"t{j}" for j in range(20)]
        gold = frozenset(ids[j] for j in np.argsort(-value)[:2])
        found.append(learned.Example(f"h{i % histories}", gold, ids, features, tuple(ids[:10])))
    return found


def test_what_tells_gold_in_one_set_fails_where_the_opposite_does(learned):
    sets = {"a": made(learned, 3), "b": made(learned, 3, seed=1), "c": made(learned, 3, sign=-1.0)}
    result = learned.compare(sets)
    scores = {row["trained_on"]: row["scores"] for row in result["rows"]}
    assert scores["a"]["a"]["recall@5"] > 0.9
    assert scores["a"]["b"]["recall@5"] > 0.9
    assert scores["a"]["c"]["recall@10"] < 0.3
    assert scores["c"]["a"]["recall@10"] < 0.3
    assert max(result["weights"]["a"], key=result["weights"]["a"].get) == learned.FEATURES[3]
    assert result["weights"]["c"][learned.FEATURES[3]] < 0
    assert learned.compare(sets) == result


def test_within_a_set_the_history_asked_about_is_left_out(learned):
    """One history is the opposite of the other two, so that only its own gold could teach it."""
    found = [e for i in range(2) for e in made(learned, 3, seed=i, histories=1)]
    found = [
        learned.Example(f"h{i // 12}", e.gold, e.ids, e.features, e.engine)
        for i, e in enumerate(found)
    ]
    odd = [
        learned.Example("odd", e.gold, e.ids, e.features, e.engine)
        for e in made(learned, 3, n=40, seed=5, sign=-1.0)
    ]
    ranked = learned.held_out([*found, *odd])[len(found) :]
    assert learned.shares(odd, ranked)["recall@10"] < 0.3
    with pytest.raises(ZeroMemError, match="two histories or more, got 1"):
        learned.held_out(odd)


def test_more_than_ten_histories_are_left_out_by_fifths(learned, monkeypatch):
    sizes = []
    fit = learned.fit
    monkeypatch.setattr(learned, "fit", lambda some: sizes.append(len(some)) or fit(some))
    learned.held_out(made(learned, 3, n=20, histories=20))
    assert sizes == [16] * 5


def test_gold_that_no_view_has_stays_missed(learned):
    (example,) = made(learned, 3, n=1)
    lost = learned.Example("h", example.gold | {"lost", "gone"}, example.ids, example.features, ())
    ranked = lost.ranked(lost.features[:, 3])
    assert lost.recall(ranked, 10) == 0.5
    with pytest.raises(ZeroMemError, match="candidates that are gold"):
        learned.fit([learned.Example("h", frozenset(["lost"]), lost.ids, lost.features, ())])


def test_ties_go_to_the_earlier_row_and_traces_count_once(learned):
    features = np.zeros((3, len(learned.FEATURES)), np.float32)
    example = learned.Example("h", frozenset("a"), ["b", "a", "b"], features, ())
    assert example.ranked(np.array([0.5, 0.5, 0.5])) == ("b", "a")
    assert example.ranked(np.array([0.1, 0.5, 0.9])) == ("b", "a")
    assert example.ranked(np.array([0.1, 0.5, 0.2])) == ("a", "b")


def test_the_walk_is_spread_by_its_logarithm(learned):
    pi = np.float32([1e-1, 1e-2, 1e-1 * np.exp(-3.0), 1e-9, 0.5])
    mask = np.array([True, True, True, True, False])
    spread = learned.walk(pi, mask)
    span = Config().graph.log_span
    assert spread[0] == 1
    assert spread[2] == pytest.approx(1 - 3 / span, abs=1e-6)
    assert spread[1] == pytest.approx(1 - np.log(10) / span, abs=1e-6)
    assert spread[3] == 0
    assert not learned.walk(np.zeros(3, np.float32), np.ones(3, bool)).any()


def test_candidates_are_the_union_of_both_views_and_features_lie_between_0_and_1(
    learned, tmp_path, monkeypatch
):
    monkeypatch.setattr(learned, "CANDIDATES", 4)
    lines = tuple(talk(*[("Ines", f"The kayak {'of Omar ' * i}is green.") for i in range(30)]))
    history = History("h", lines)
    asked = [
        Question("q", Query("What about the kayak of Omar?"), "c", frozenset(["s3"])),
        Question("none", Query("What is green?"), "c", frozenset()),
    ]
    memories = OpenMemories(tmp_path / "m.zm", HashEncoder(), "cpu", RuleAnnotator())
    (example,) = learned.examples(Dataset("d", [(history, asked)], {}), memories, HashEncoder())
    handle = memories.get(history)
    union = {
        item.id
        for view in ("graph", "hierarchy")
        for item in handle.retrieve(asked[0].query.text, k=4, closure=False, view=view).main
    }
    assert set(example.ids) == union
    assert example.features.shape == (len(union), len(learned.FEATURES))
    assert 0 <= example.features.min() <= example.features.max() == 1
    main = handle.retrieve(asked[0].query.text, k=10, closure=False, calibration=False).main
    assert example.engine == tuple(item.id for item in main)
    memories.close()


def test_the_command_compares_sets_and_writes_no_text(learned, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(learned, "load_encoder", lambda name, device: HashEncoder())
    out = tmp_path / "deep" / "learned.json"
    sets = [
        "--set", f"locomo --data {DATA / 'locomo_tiny.json'} --store {tmp_path / 'kept.zm'}",
        "--set", f"hotpotqa --data {DATA / 'hotpotqa_tiny.json'}",
    ]  # fmt: skip
    assert learned.main([*sets, "--json", str(out)]) == 0
    result = json.loads(out.read_text())
    names = ["locomo", "hotpotqa", learned.HAND_SET]
    assert [row["trained_on"] for row in result["rows"]] == names
    for row in result["rows"]:
        for name in names[:2]:
            scores = row["scores"][name]
            assert 0 <= scores["recall@5"] <= scores["recall@10"] <= 1
            if row["trained_on"] != learned.HAND_SET:
                assert scores["recall@10"] <= result["sets"][name]["ceiling"]
    assert set(result["weights"]["locomo"]) == set(learned.FEATURES)
    assert result["data"]["locomo"]["name"] == "locomo_tiny.json"
    assert str(tmp_path) not in out.read_text()
    assert "telescope" not in out.read_text()
    rows = capsys.readouterr().out.splitlines()
    assert rows[0] == "| trained on | locomo @5 / @10 | hotpotqa @5 / @10 |"
    assert rows[2].startswith("| locomo | *")
    assert rows[-1].startswith("| (all candidates) |")
    assert learned.main([*sets[:2], *sets[:2]]) == 2
    assert "--set locomo is given twice" in capsys.readouterr().err
