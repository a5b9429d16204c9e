"""The metrics against hand-worked values, slow definitions and the libraries that define them."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from zeromem.errors import InvalidInputError
from zeromem.evaluation.metrics import answers, bootstrap
from zeromem.evaluation.metrics import retrieval as metrics

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
        return metrics.Scored(
            category, {"recall@5": recall}, {"recall@5": 1.0}, {"evidence": {"turns": 4.0}}
        )

    rows = [scored("x", 1.0), scored("x", 1.0), scored("y", 0.25)]
    summary = metrics.summarize(rows, sessions=True)
    assert summary["recall@5"] == 0.75
    assert summary["n_questions"] == 3
    assert summary["by_category"]["x"]["recall@5"] == 1
    assert summary["by_category"]["y"]["n_questions"] == 1
    assert summary["evidence"] == {"turns": 4}
    assert summary["session"] == {"recall@5": 1.0, "n_questions": 3}
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


# Texts with what the tokenizer's rules are about, so that a generated one meets them.
_PIECES = """The red-hot tea, isn't ready! She'll go... at 3:30 p.m. (twice) for $1,200.50 "now"
cannot gonna Ana's dogs' Dr. Who? 7 May, 2023. it it it stop stop. état 猫 -- & % 's"""
TEXTS = st.lists(st.sampled_from(_PIECES.split()) | st.text(max_size=4), max_size=9).map(" ".join)


@given(prediction=TEXTS, gold=TEXTS)
@example("", "stop")
@example("stop", "")
@example("it it it", "it")
@example("it", "it stop now")
def test_amems_bleu_is_nltks_own_from_the_tokens_up(prediction, gold):
    bleu = pytest.importorskip("nltk.translate.bleu_score")
    smooth = bleu.SmoothingFunction().method1
    said, wanted = answers.word_tokens(prediction), answers.word_tokens(gold)
    theirs = bleu.sentence_bleu([wanted], said, weights=(1, 0, 0, 0), smoothing_function=smooth)
    assert answers.amem_bleu1(prediction, gold) == pytest.approx(theirs, abs=1e-12)


@given(sentences=st.lists(TEXTS, max_size=3))
def test_words_are_nltks_sentence_by_sentence(sentences):
    tokenize = pytest.importorskip("nltk.tokenize").NLTKWordTokenizer().tokenize
    whole = [part for s in sentences for part in (s + " end.").split("\0")]
    expected = []
    for text in whole:
        start = 0
        low = text.lower().strip()
        for i in range(len(low) - 1):
            if low[i] in ".!?" and low[i + 1].isspace():
                expected += tokenize(low[start : i + 1].strip())
                start = i + 1
        expected += tokenize(low[start:].strip())
    assert answers.word_tokens(" ".join(whole)) == expected


@pytest.mark.parametrize(
    ("word", "stem"),
    # Where NLTK's stemmer departs from Porter's paper: "dying" would be "dy", "sky" "ski".
    [("dying", "die"), ("sky", "sky"), ("running", "run"), ("happily", "happili")],
)
def test_locomos_stems_are_nltks(word, stem):
    assert answers.locomo_tokens(f"The {word}!") == [stem]


def test_several_golds_count_by_the_best():
    assert answers.best(answers.gam_f1, "NYC", ("New York City", "nyc")) == 1
    assert answers.best(answers.gam_f1, "NYC", ("New York City",)) == 0
    assert answers.best(answers.gam_f1, "", ()) == 0


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


# ---- bootstrap


def test_an_interval_is_the_normal_one_where_questions_are_many():
    rng = np.random.default_rng(3)
    scores = rng.random(800) < 0.3
    found = bootstrap.interval(scores.tolist(), range(800))
    p = scores.mean()
    half = 1.959964 * math.sqrt(p * (1 - p) / 800)
    assert (found.mean, found.n, found.n_clusters) == (pytest.approx(p), 800, 800)
    assert found.low == pytest.approx(p - half, abs=0.1 * half)
    assert found.high == pytest.approx(p + half, abs=0.1 * half)


def test_few_clusters_give_the_quantiles_of_all_their_draws():
    scores = [1, 1, 0, 0.5, 0.25, 0.75, 0.2, 0.9, 0.4, 0.1]
    clusters = [*"aabbbcdddd"]
    by = {c: [s for s, k in zip(scores, clusters, strict=True) if k == c] for c in "abcd"}
    draws = [
        sum(map(sum, drawn)) / sum(map(len, drawn))
        for drawn in itertools.product(by.values(), repeat=4)
    ]
    low, high = np.quantile(draws, [0.1, 0.9])
    found = bootstrap.interval(scores, clusters, level=0.8, resamples=200_000)
    assert (found.low, found.high) == (pytest.approx(low, abs=0.02), pytest.approx(high, abs=0.02))
    assert found.n_clusters == 4


def test_questions_that_share_a_cluster_widen_the_interval():
    rng = np.random.default_rng(5)
    hardness = np.repeat(rng.random(5), 60)
    scores = (rng.random(300) < hardness).astype(float).tolist()
    alone = bootstrap.interval(scores, range(300))
    together = bootstrap.interval(scores, np.repeat(np.arange(5), 60).tolist())
    assert together.high - together.low > 2 * (alone.high - alone.low)


def test_five_clusters_cover_less_than_they_claim():
    # What the docstring warns of, so that it stays true.
    rng = np.random.default_rng(11)
    inside = 0
    for _ in range(400):
        found = bootstrap.interval(rng.normal(size=5).tolist(), range(5), resamples=2000)
        inside += found.low <= 0 <= found.high
    assert 0.76 < inside / 400 < 0.90


def test_what_is_hard_for_both_drops_out_of_a_paired_difference():
    rng = np.random.default_rng(7)
    hard = rng.random(300)
    better = np.minimum(1, hard + 0.02)
    paired = bootstrap.difference(better.tolist(), hard.tolist(), range(300))
    assert paired.low > 0
    spread = bootstrap.interval(better.tolist(), range(300))
    assert paired.high - paired.low < (spread.high - spread.low) / 5
    assert bootstrap.difference(hard.tolist(), hard.tolist(), range(300)).high == 0


def test_intervals_repeat_and_follow_the_seed(monkeypatch):
    scores = np.random.default_rng(1).random(50).tolist()
    first = bootstrap.interval(scores, range(50))
    assert bootstrap.interval(scores, range(50)) == first
    assert bootstrap.interval(scores, range(50), seed=1) != first
    monkeypatch.setattr(bootstrap, "_BLOCK", 50 * 7)  # many blocks draw the same numbers
    assert bootstrap.interval(scores, range(50)) == first


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: bootstrap.interval([], []), "above 0"),
        (lambda: bootstrap.interval([1.0], ["a", "b"]), "one length"),
        (lambda: bootstrap.interval([1.0, 0.0], ["a", "a"]), "must differ"),
        (lambda: bootstrap.interval([1.0], ["a"], level=1.0), "level"),
        (lambda: bootstrap.difference([1.0], [1.0, 2.0], ["a"]), "same questions"),
    ],
)
def test_bad_scores_are_named(call, named):
    with pytest.raises(InvalidInputError, match=named):
        call()
