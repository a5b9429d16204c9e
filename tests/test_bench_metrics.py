"""The metrics of bench/ against hand-worked values and slow definitions."""

import math
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))

from harness import answers, metrics

RANKED = ("a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k")


def test_ranking_metrics_by_hand():
    gold = frozenset({"b", "e", "k", "zz"})
    scores = metrics.score_ranking(RANKED, gold)
    assert scores["recall@1"] == 0
    assert scores["recall@5"] == 0.5
    assert scores["recall@10"] == 0.5
    assert scores["recall@20"] == 0.75
    assert (scores["hit@1"], scores["hit@5"]) == (0, 1)
    assert scores["all_gold@5"] == 0
    assert scores["mrr"] == 0.5
    found = 1 / math.log2(3) + 1 / math.log2(6)
    ideal = 1 + 1 / math.log2(3) + 0.5 + 1 / math.log2(5)
    assert scores["ndcg@10"] == pytest.approx(found / ideal)


def test_a_perfect_and_an_empty_ranking():
    gold = frozenset(RANKED[:3])
    perfect = metrics.score_ranking(RANKED, gold)
    assert perfect["recall@1"] == pytest.approx(1 / 3)
    assert all(perfect[key] == 1 for key in ("recall@5", "mrr", "ndcg@10", "all_gold@5"))
    assert set(metrics.score_ranking((), gold).values()) == {0}


@given(
    ranked=st.lists(st.integers(0, 30), unique=True, max_size=25),
    gold=st.frozensets(st.integers(0, 30), min_size=1, max_size=6),
    k=st.sampled_from((1, 5, 10, 20)),
)
def test_recall_hit_and_all_gold_agree_with_counting(ranked, gold, k):
    scores = metrics.score_ranking([str(r) for r in ranked], frozenset(map(str, gold)))
    found = sum(1 for r in ranked[:k] if r in gold)
    assert scores[f"recall@{k}"] == found / len(gold)
    assert scores[f"hit@{k}"] == (found > 0)
    if k in metrics.ALL_GOLD_KS:
        assert scores[f"all_gold@{k}"] == (found == len(gold))
    assert all(0 <= value <= 1 + 1e-12 for value in scores.values())


def test_summary_weights_questions_not_categories():
    def scored(category, recall):
        return metrics.Scored(category, {"recall@5": recall}, {"recall@5": 1.0}, {"turns": 4.0})

    rows = [scored("x", 1.0), scored("x", 1.0), scored("y", 0.25)]
    summary = metrics.summarize(rows, sessions=True)
    assert summary["recall@5"] == 0.75
    assert summary["n_questions"] == 3
    assert summary["by_category"]["x"]["recall@5"] == 1
    assert summary["by_category"]["y"]["n_questions"] == 1
    assert summary["session"] == {"recall@5": 1.0}
    assert "session" not in metrics.summarize(rows, sessions=False)


@pytest.mark.parametrize(
    ("prediction", "gold", "f1", "bleu"),
    [
        ("The cat's mat!", "a cat s mat", 1, 1),
        ("", "the", 1, 0),  # both empty once the article is gone
        ("", "cat", 0, 0),
        ("red red red", "red blue", 2 * (1 / 3) * 0.5 / (1 / 3 + 0.5), 1 / 3),
        ("red", "red blue", 2 / 3, math.exp(-1)),
        ("état", "ETAT", 0, 0),
    ],
)
def test_gam(prediction, gold, f1, bleu):
    assert answers.gam_f1(prediction, gold) == pytest.approx(f1)
    assert answers.gam_bleu1(prediction, gold) == pytest.approx(bleu)


def test_amem_counts_kinds_and_keeps_articles():
    assert answers.amem_f1("Red, red!", "red") == 1
    assert answers.amem_f1("the red", "red") == pytest.approx(2 / 3)
    assert answers.amem_f1("red-hot", "red hot") == 0  # only .,!? separate
    assert answers.amem_f1("", "") == 0
    # do n't stop . / stop .
    assert answers.amem_bleu1("don't stop.", "stop.") == pytest.approx(0.5)
    assert answers.amem_bleu1("stop", "don't stop") == pytest.approx(math.exp(-2))
    assert answers.amem_bleu1("go", "stop") == 0


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("It's John's car, isn't it?", "it 's john 's car , is n't it ?"),
        ("at 3:30 on 7 May, 1,200 left.", "at 3:30 on 7 may , 1,200 left ."),
        ("well-known (twice)...", "well-known ( twice ) ..."),
        ("we'll see, they've gone", "we 'll see , they 've gone"),
    ],
)
def test_words_as_treebank_splits_them(text, tokens):
    assert answers.word_tokens(text) == tokens.split()


def test_locomo_official():
    assert answers.locomo_f1("She was running and jumping", "she runs", 4) == pytest.approx(
        2 * (2 / 4) * 1 / (2 / 4 + 1)
    )
    assert answers.locomo_f1("1,000", "1000", 2) == 1
    # The gold before the semicolon alone.
    assert answers.locomo_f1("yes", "yes; she said so", 3) == 1
    assert answers.locomo_f1("yes", "yes; she said so", 4) < 1
    # Over the golds, the best of the predictions.
    assert answers.locomo_f1("cat, dog", "dog, bird", 1) == 0.5
    assert answers.locomo_f1("dog", "dog, bird", 1) == 0.5
    assert answers.locomo_f1("It is not mentioned.", "x", 5) == 1
    assert answers.locomo_f1("Petrel", "Petrel", 5) == 0


def test_hotpotqa():
    assert answers.hotpot_em("The Old Mill!", "old mill") == 1
    assert answers.hotpot_f1("the old red mill", "old mill") == pytest.approx(0.8)
    assert answers.hotpot_f1("yes", "yes it is") == 0
    assert answers.hotpot_f1("no", "No.") == 1
