"""bench/synthetic.py: the distributions it promises, and features that its texts would give."""

from __future__ import annotations

import invented
import numpy as np
import pytest
import stored
import synthetic
from support import difference

import zeromem
from zeromem.backend import resolve
from zeromem.config import Config
from zeromem.index import Index
from zeromem.ingest.annotate import RuleAnnotator, entity_names
from zeromem.ingest.featurize import Featurizer
from zeromem.text import canonical, terms

DIM = 32


@pytest.fixture(scope="module")
def memory() -> synthetic.Synthetic:
    return synthetic.Synthetic(40_000, dim=DIM, seed=3)


@pytest.fixture(scope="module")
def large() -> synthetic.Synthetic:
    """As large as the memories whose figures are reported."""
    return synthetic.Synthetic(448_000, dim=8)


def test_counts_at_448k(large: synthetic.Synthetic) -> None:
    assert large.n_tokens == pytest.approx(448_000, rel=0.03)
    assert large.n_turns == pytest.approx(13_000, rel=0.05)
    assert large.n_tokens / large.n_turns == pytest.approx(34, rel=0.03)
    assert large.n_sentences / large.n_turns == pytest.approx(2.3, rel=0.05)
    assert len(large.names) == pytest.approx(14_000, rel=0.07)
    assert len(large.mention_pairs) == pytest.approx(67_000, rel=0.05)
    sessions = np.bincount([int(row.session[1:]) for row in large.rows()])
    assert sessions.mean() == pytest.approx(25, rel=0.1)
    assert sessions[:-1].min() >= 4


def test_turn_lengths_are_log_normal(large: synthetic.Synthetic) -> None:
    tokens = np.array([int(f.turn_tokens[0]) for f in large.features(0, 4096)])
    logs = np.log(tokens)
    assert logs.std() == pytest.approx(0.65, abs=0.12)
    skew = (((logs - logs.mean()) / logs.std()) ** 3).mean()
    assert abs(skew) < 0.35 < ((tokens - tokens.mean()) ** 3).mean() / tokens.std() ** 3


@pytest.mark.parametrize("what", ["entities", "words"])
def test_zipf_and_heaps(what: str) -> None:
    counts, sizes = [], []
    for n_tokens in (50_000, 200_000, 800_000):
        made = synthetic.Synthetic(n_tokens, dim=8)
        stream = made._stream
        found = stream.word[stream.kind == (2 if what == "entities" else 1)]
        counts.append(np.sort(np.bincount(found))[::-1])
        sizes.append(len(found))
    growth = np.polyfit(np.log(sizes), np.log([len(c) for c in counts]), 1)[0]
    assert growth == pytest.approx(0.85 if what == "entities" else 0.65, abs=0.05)
    ranks = np.arange(20, 2000)
    slope = np.polyfit(np.log(ranks), np.log(counts[-1][ranks - 1]), 1)[0]
    assert -1.4 < slope < -0.7
    assert counts[-1][-1] >= 1  # each number up to the last is in use


def test_same_seed_same_memory_and_parts_are_parts(memory: synthetic.Synthetic) -> None:
    again = synthetic.Synthetic(40_000, dim=DIM, seed=3)
    assert [t.text for t in again.traces()] == [t.text for t in memory.traces()]
    assert difference(again.features(100, 140), memory.features()[100:140]) is None
    assert again.rows(7, 9) == memory.rows()[7:9]
    assert synthetic.Synthetic(40_000, dim=DIM, seed=4).traces()[0] != memory.traces()[0]


def test_parts_cross_blocks(large: synthetic.Synthetic) -> None:
    first = synthetic.BLOCK - 3
    whole = large.features(0, synthetic.BLOCK + 5)
    assert difference(large.features(first, first + 8), whole[first:]) is None


def test_features_are_those_of_the_text(memory: synthetic.Synthetic) -> None:
    """Reading the texts finds what the generator says stands in them: all but the vectors."""
    given = memory.features()
    read = Featurizer(RuleAnnotator(), memory.encoder()).featurize(memory.traces())
    for ours, theirs in zip(given, read, strict=True):
        for name in ("turns", "sentences", "sentence_turn", "mentions", "turn_flags"):
            assert getattr(ours, name).tolist() == getattr(theirs, name).tolist(), name
        for name in ("turn_terms", "entities", "entity_labels"):
            assert getattr(ours, name) == getattr(theirs, name), name
        ours.to_bytes()  # shapes and dtypes are right
    assert (given[0].entity_vectors[1:] == read[0].entity_vectors[1:]).all()  # of known names


def test_words_are_their_own_terms() -> None:
    words = invented.content_words(20_000)
    assert len(set(words)) == len(words)
    assert terms([" ".join(words)])[0] == words
    assert terms([" ".join((*invented.FUNCTION, *invented.OPENERS))]) == [[]]
    names = invented.names(20_000)
    assert len(set(names)) == len(names)
    assert [canonical(name) for name in names] == [name.lower() for name in names]


def test_neighbours_of_a_session_are_alike(memory: synthetic.Synthetic) -> None:
    vectors = memory.turn_vectors().astype(np.float32)
    norms = np.linalg.norm(vectors, axis=1)
    assert 0.75 < norms.min() < norms.max() < 1.05
    vectors /= norms[:, None]
    sessions = np.array([row.session for row in memory.rows()])
    inside = sessions[1:] == sessions[:-1]
    near = (vectors[1:] * vectors[:-1]).sum(axis=1)
    far = (vectors[300:] * vectors[:-300]).sum(axis=1)
    assert near[inside].mean() > far.mean() + 0.2


def test_questions_name_what_their_turn_says(memory: synthetic.Synthetic) -> None:
    questions = memory.questions(200)
    assert questions[:5] != memory.questions(5, seed=1)
    texts = [q.text for q in questions]
    named = entity_names(texts, RuleAnnotator().annotate(texts))
    known = {name.lower() for name in (*memory.names, *memory.speakers)}
    assert all(names and known.issuperset(names) for names in named)
    counts = [len(line) for line in terms(texts)]
    assert min(counts) >= 4
    assert max(counts) <= 12
    features = memory.features()
    for question, names in zip(questions, named, strict=True):
        assert set(names) <= set(features[question.row].entities)
    vectors = np.stack([q.vector for q in questions])
    turns = memory.turn_vectors().astype(np.float32)
    turns /= np.linalg.norm(turns, axis=1)[:, None]
    best = (vectors @ turns.T).argmax(axis=1)
    assert (best == [q.row for q in questions]).mean() > 0.8


def unasked(*_: object) -> None:
    raise AssertionError("asked to encode")


def test_index_and_store_answer_alike(memory: synthetic.Synthetic, tmp_path) -> None:
    """A filled store is opened without encoding anything, and its index is the direct one."""
    questions = memory.questions(20)
    path = stored.make(tmp_path / "made.zm", memory)
    encoder = memory.encoder(questions)
    encoder.encode_spans = unasked  # every feature comes from the cache
    with zeromem.open(path, encoder=encoder, annotator="rules", device="cpu") as opened:
        found = opened.retrieve_batch([q.text for q in questions])
        assert opened.stats()["turns"] == memory.n_turns
        assert opened.stats()["pending"] == 0
    hits = [
        any(e.id == f"t{q.row}" for e in retrieval)
        for q, retrieval in zip(questions, found, strict=True)
    ]
    assert np.mean(hits) > 0.8
    index = Index.empty(memory.dim, Config(), resolve("cpu"))
    for rows, features in memory.batches(500):
        index = index.extend(rows, features)
    assert len(index) == memory.n_turns


def test_too_small_a_memory_is_refused() -> None:
    with pytest.raises(ValueError, match="n_tokens must be at least 200, got 10"):
        synthetic.Synthetic(10)
