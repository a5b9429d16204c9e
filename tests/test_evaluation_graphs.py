"""LinearRAG's stages on a graph worked out by hand; igraph's PageRank beside the engine's."""

from __future__ import annotations

import math
from importlib import resources

import numpy as np
import pytest
import scipy.sparse as sp
from evaluation_support import CHAT, bank, queries, rank, talk
from support import HashEncoder

from zeromem import importers
from zeromem.config import Config
from zeromem.errors import InvalidInputError, ZeroMemError
from zeromem.evaluation import History
from zeromem.evaluation.methods import pagerank
from zeromem.evaluation.methods.linear_rag import (
    LinearRag,
    LinearRagSettings,
    activate,
    passage_seeds,
    walk,
)
from zeromem.evaluation.methods.pagerank import IgraphPageRank
from zeromem.evaluation.methods.plain import Baseline
from zeromem.evaluation.methods.tri_graph import TraceEntities, TriGraph, build
from zeromem.evaluation.methods.zero_mem import OpenMemories
from zeromem.ingest.annotate import RuleAnnotator
from zeromem.kernels import ppr_ref

A, B, C, D = range(4)


def tri_graph():
    """Sentences AB, AC, BD, D; the first passage is the first two, then one each, then none."""
    mentions = np.array([[1, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 0, 1]], float)
    counts = np.array([[2, 1, 1, 0], [0, 1, 0, 1], [0, 0, 0, 1], [0, 0, 0, 0]], float)
    return TriGraph(sp.csr_array(mentions), sp.csr_array(counts))


SIGMA = np.array([0.9, 0.5, 0.8, 0.1])
SEEDS = np.array([1.0, 0, 0, 0])


@pytest.mark.parametrize(
    ("settings", "scores", "levels"),
    [
        # A spreads through AB (0.9) and AC (0.5); then B through BD (0.9 x 0.8).
        ({"top_sentences": 2}, [1, 0.9, 0.5, 0.72], [1, 2, 2, 3]),
        ({"top_sentences": 2, "n_steps": 1}, [1, 0.9, 0.5, 0], [1, 2, 2, 0]),
        # The best sentence alone: A's is AB, and so is B's, which leads back.
        ({"top_sentences": 1}, [1, 0.9, 0, 0], [1, 2, 0, 0]),
        # C arrives with 0.5 and D with 0.72.
        ({"top_sentences": 2, "threshold": 0.6}, [1, 0.9, 0, 0.72], [1, 2, 0, 3]),
        ({"top_sentences": 2, "threshold": 0.75}, [1, 0.9, 0, 0], [1, 2, 0, 0]),
    ],
)
def test_activation_by_hand(settings, scores, levels):
    got = activate(tri_graph(), SEEDS, SIGMA, LinearRagSettings(**settings))
    np.testing.assert_allclose(got.scores, scores, atol=1e-12)
    assert got.levels.tolist() == levels


def test_two_ways_to_an_entity_count_once_and_the_better_one():
    """Both seeds reach C, through AC with 0.5 and through BC with 0.54: the most, not the sum."""
    mentions = sp.csr_array(np.array([[1, 0, 1], [0, 1, 1]], float))
    graph = TriGraph(mentions, mentions)
    got = activate(graph, np.array([1.0, 0.6, 0]), np.array([0.5, 0.9]), LinearRagSettings())
    np.testing.assert_allclose(got.scores, [1, 0.6, 0.54])


def test_passage_seeds_by_hand():
    settings = LinearRagSettings(top_sentences=2, passage_ratio=2.0, passage_weight=0.05)
    graph = tri_graph()
    activation = activate(graph, SEEDS, SIGMA, settings)
    got = passage_seeds(graph, activation, np.array([0.2, 0.6, 0.4, 0.2]), settings)
    two, three = math.log(2), math.log(3)
    expected = [
        0.05 * (2 * 0.0 + math.log(1 + three / 1 + 0.9 * two / 2 + 0.5 * two / 2)),
        0.05 * (2 * 1.0 + math.log(1 + 0.9 * two / 2 + 0.72 * two / 3)),
        0.05 * (2 * 0.5 + math.log(1 + 0.72 * two / 3)),
        0.0,
    ]
    np.testing.assert_allclose(got, expected)


def test_the_walk_by_hand():
    """One entity joins two passages, a third stands alone; the first and third are reset to.

    With d = 1/2: x2 = 1/4 + x2/4, so 1/3, half of which returns to r; e = (2/3 - e)/2, so 2/9;
    x1 = e/4; the rest of 1 is x0's.
    """
    graph = TriGraph(sp.csr_array((0, 1)), sp.csr_array(np.array([[3.0], [1.0], [0.0]])))
    got = walk(graph, np.array([2.0, 0, 2.0]), np.zeros(1), LinearRagSettings(damping=0.5))
    np.testing.assert_allclose(got, [7 / 18, 1 / 18, 1 / 3], atol=1e-8)
    assert not walk(graph, np.zeros(3), np.zeros(1), LinearRagSettings()).any()


@pytest.mark.parametrize("damping", [-0.1, 1.0])
def test_a_walk_that_never_restarts_is_refused(damping):
    with pytest.raises(InvalidInputError, match=rf"damping must be in \[0, 1\), got {damping}"):
        LinearRagSettings(damping=damping)


TRIP = History(
    "trip",
    (
        *talk(
            ("Ines", "We met Karol. He was tired."),
            ("Omar", "Karol lives in Gdynia now."),
            ("Ines", "nothing much happened after that."),
            ("Omar", "Gdynia has a long pier, and Gdynia is windy."),
            ("Ines", "the soup was cold."),
        ),
    ),
)


def test_nodes_of_a_history():
    nodes = build(TRIP, bank(), RuleAnnotator())
    assert set(nodes.names) >= {"ines", "omar", "karol", "gdynia"}
    at = {name: i for i, name in enumerate(nodes.names)}
    counts = nodes.graph.counts.toarray()
    assert counts.shape == (5, len(at))
    assert counts[:, at["karol"]].tolist() == [1, 1, 0, 0, 0]
    assert counts[:, at["gdynia"]].tolist() == [0, 1, 0, 2, 0]
    assert counts[:, at["ines"]].tolist() == [1, 0, 1, 0, 1]  # as in "Ines: We met"
    mentions = nodes.graph.mentions.toarray()
    assert mentions.max() == 1
    assert mentions[:, at["karol"]].sum() == 2
    assert len(mentions) == len(nodes.sentence_vectors) == 6
    expected = HashEncoder().encode(list(nodes.names))
    np.testing.assert_allclose(nodes.entity_vectors, expected, atol=1e-3)


def test_entity_features_survive_storing():
    (one, *_) = bank().derived(TRIP, _kind())
    again = TraceEntities.from_bytes(one.to_bytes())
    assert (again.n_passages, again.names) == (one.n_passages, one.names)
    for name in ("mentions", "sentence_vectors", "name_vectors"):
        np.testing.assert_array_equal(getattr(again, name), getattr(one, name))


def _kind():
    from zeromem.evaluation.methods.tri_graph import kind

    return kind(bank(), RuleAnnotator())


def test_a_bridge_brings_what_no_word_would():
    """Karol leads to Gdynia, and Gdynia to the pier, which shares no word with the question."""
    question = "Karol?"
    settings = LinearRagSettings(passage_ratio=0.0, threshold=0.05)
    method = LinearRag(bank(), settings, RuleAnnotator())
    (ids,) = rank(method, TRIP, question)
    assert set(ids[:3]) == {"s0", "s1", "s3"}


def test_without_a_name_the_dense_ranking_stands():
    method = LinearRag(bank(), annotator=RuleAnnotator())
    asked = ("was the soup cold?", "who was tired")
    assert rank(method, TRIP, *asked) == rank(Baseline("dense", bank()), TRIP, *asked)


@pytest.fixture(scope="module")
def walked(tmp_path_factory):
    """igraph's method over the conversation that ships with the package."""
    path = tmp_path_factory.mktemp("graph") / "m.zm"
    with resources.as_file(resources.files("zeromem") / "data/demo_conversation.jsonl") as file:
        history = History("demo", tuple(importers.load(file)))
    method = IgraphPageRank(bank(), OpenMemories(path, HashEncoder(), "cpu", RuleAnnotator()))
    method.index(history)
    yield method
    method.close()


ASKED = queries(
    "When did Ana sell her first notebook?", "Who gave Ben his sourdough starter?",
    "What is the kitten called?", "Where did Ben spend his birthday?", "book press",
)  # fmt: skip


def exact(index, resets, damping):
    """The walk by the oracle, of the graph as the kernels read it."""
    arrays, graph = index.arrays, index.arrays.graph
    return ppr_ref.ppr(
        arrays.previous, graph.mention_indptr, graph.mention_entity, graph.mention_weight,
        graph.inverse_degree, resets.T, index.config.graph.adjacency_weight, damping, 1e-12,
    ).scores  # fmt: skip


def test_igraph_walks_as_the_engine_does(walked):
    """Two libraries and two algorithms: PRPACK's solution, and power iteration to its limit."""
    data = walked.data
    config = data.config.graph
    assert config.damping == Config().graph.damping == 0.6
    resets = walked.resets(ASKED)
    np.testing.assert_allclose(resets.sum(axis=1), 1, atol=1e-5)
    wanted = exact(data, resets, config.damping)
    n = len(data)
    scores = walked.scores(ASKED)
    np.testing.assert_allclose(scores, wanted[:n].T / wanted.sum(0)[:, None], atol=1e-7)
    arrays = data.arrays
    engine = data.backend.ppr(
        arrays.graph, arrays.previous, np.ascontiguousarray(resets.T),
        config.adjacency_weight, config.damping, config.tol,
    )  # fmt: skip
    for mine, theirs in zip(scores, engine[:n].T, strict=True):
        first = np.argsort(-mine, kind="stable")[:20]
        assert np.argsort(-theirs, kind="stable")[:20].tolist() == first.tolist()


def test_the_oracle_would_notice_another_walk(walked):
    other = exact(walked.data, walked.resets(ASKED), 0.5)
    assert np.abs(walked.scores(ASKED) - other[: len(walked.data)].T).max() > 1e-3


def test_without_igraph_the_remedy_is_named(monkeypatch):
    def absent(name):
        raise ImportError(name)

    monkeypatch.setattr(pagerank.importlib, "import_module", absent)
    method = IgraphPageRank(bank(), OpenMemories(None, HashEncoder(), "cpu", RuleAnnotator()))
    with pytest.raises(ZeroMemError, match=r"pip install 'zeromem\[eval\]'"):
        method.index(CHAT)
    method.close()
