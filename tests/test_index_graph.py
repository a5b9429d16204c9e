"""The entity-context graph against eq. 3-4 and 10 by hand, and its promises as properties."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from numpy.testing import assert_allclose
from support import STORY, build, logs, open_memory, rows_of

from zeromem.config import Config, GraphConfig
from zeromem.types import Trace

PAPER = Config.paper()


def graph_of(log, config=PAPER, **changes):
    config = replace(config, graph=replace(config.graph, **changes))
    return build(rows_of(log), config).arrays


def weights(arrays) -> dict[tuple[int, str], float]:
    """B by (turn, entity)."""
    g, names = arrays.graph, list(arrays.turns.entities)
    rows = np.repeat(np.arange(len(arrays)), np.diff(g.mention_indptr))
    return {
        (int(d), names[e]): float(w)
        for d, e, w in zip(rows, g.mention_entity, g.mention_weight, strict=True)
    }


def transition(arrays, adjacency_weight=PAPER.graph.adjacency_weight):
    """P, row by row: each edge's weight times the inverse of its row's degree."""
    g, n = arrays.graph, len(arrays)
    A = np.zeros((len(g.inverse_degree),) * 2)
    for (turn, _), entity, weight in zip(
        weights(arrays), g.mention_entity, g.mention_weight, strict=True
    ):
        A[turn, n + entity] = A[n + entity, turn] = weight
    for turn, before in enumerate(arrays.previous.tolist()):
        if before >= 0:
            A[turn, before] = A[before, turn] = adjacency_weight
    return A * g.inverse_degree[:, None]


def test_eq_4_shares_a_turn_among_its_mentions():
    """w(d, e) is e's share of all entity mentions in d."""
    log = [Trace("Carla met Dora. Then Carla saw Emil and Carla."), Trace("and no name here.")]
    assert weights(graph_of(log)) == pytest.approx(
        {(0, "carla"): 3 / 5, (0, "dora"): 1 / 5, (0, "emil"): 1 / 5}
    )


def test_eq_10_walks_by_the_row_normalised_adjacency():
    """Two neighbouring turns, one shared entity: P by hand."""
    log = [
        Trace("carla met Dora and Emil.", session="s"),
        Trace("then Dora left.", session="s"),
        Trace("then Dora came.", session="t"),
    ]
    # Degrees: turn 0 has 1 (adjacent) + 1/2 + 1/2; turn 1 has 1 + 1; turn 2 has 1.
    # Dora has 1/2 + 1 + 1, Emil 1/2. Nodes: three turns, Dora, Emil.
    wanted = [
        [0, 1 / 2, 0, 1 / 4, 1 / 4],
        [1 / 2, 0, 0, 1 / 2, 0],
        [0, 0, 0, 1, 0],
        [1 / 5, 2 / 5, 2 / 5, 0, 0],
        [1, 0, 0, 0, 0],
    ]
    arrays = graph_of(log)
    assert list(arrays.turns.entities) == ["dora", "emil"]
    assert_allclose(transition(arrays), wanted, rtol=1e-6)


def test_adjacency_joins_neighbours_in_a_session_only():
    log = [
        Trace("a b", session="s"), Trace("c d", session="t"), Trace("e f", session="s"),
        Trace("g h", role="document"), Trace("i j", role="document"), Trace("k l"), Trace("m n"),
    ]  # fmt: skip
    P = transition(graph_of(log))
    assert {(i, j) for i, j in zip(*np.nonzero(P), strict=True)} == {(0, 2), (2, 0), (5, 6), (6, 5)}
    dangling = graph_of(log).graph.inverse_degree == 0
    assert dangling.tolist() == [False, True, False, True, True, False, False]


def test_adjacency_weight_is_an_edges_weight():
    log = [Trace("carla met Dora.", session="s"), Trace("she left.", session="s")]
    P = transition(graph_of(log, adjacency_weight=0.25), 0.25)
    assert_allclose(P[0], [0, 0.25 / 1.25, 1 / 1.25], rtol=1e-6)
    assert not graph_of(log, adjacency_weight=0.0).graph.inverse_degree[1]


@settings(max_examples=25)
@given(logs)
def test_every_configurations_transition_is_row_stochastic(log):
    for config in (PAPER.graph, GraphConfig(), GraphConfig(speaker_weight=0.5, idf_weighting=True)):
        arrays = build(rows_of(log), replace(PAPER, graph=config)).arrays
        graph = arrays.graph
        sums = transition(arrays, config.adjacency_weight).sum(axis=1)
        assert_allclose(sums, graph.inverse_degree > 0, atol=1e-6)
        assert (graph.mention_weight > 0).all()
        assert len(graph.inverse_degree) == len(arrays) + len(arrays.turns.entities)


@settings(max_examples=25)
@given(logs)
def test_eq_4_shares_sum_to_one_or_nothing(log):
    arrays = build(rows_of(log), PAPER).arrays
    sums = np.zeros(len(arrays))
    for (turn, _), weight in weights(arrays).items():
        sums[turn] += weight
    assert np.all(np.isclose(sums, 1) | (sums == 0))


def test_a_document_is_linked_to_its_title_and_to_who_names_it():
    log = [
        Trace("it lies on the river.", role="document", title="Old Harbour"),
        Trace("we walked along the old harbour at night.", speaker="Ana"),
        Trace("an old man in the harbour.", speaker="Ana"),
    ]
    default = weights(graph_of(log, Config()))
    assert (0, "old harbour") in default
    assert (1, "old harbour") in default
    assert (2, "old harbour") not in default  # not word for word
    assert not weights(graph_of(log, Config(), title_links=False, title_weight=0.0))


def test_a_speaker_is_a_node_only_where_asked_for():
    log = [Trace("hello Ben", speaker="Ana"), Trace("I am Ben", speaker="Ben")]
    # Ben speaks in this memory: neither his name in a text nor his turns are links by default.
    assert weights(graph_of(log, Config())) == {}
    spoken = weights(graph_of(log, Config(), speaker_weight=2.0))
    assert spoken == {(0, "ana"): 2.0, (1, "ben"): 2.0}


def test_rarer_entities_weigh_more_where_idf_is_asked_for():
    log = [Trace("carla saw Dora and Emil."), Trace("then Dora left."), Trace("so Dora did.")]
    plain, idf = (weights(graph_of(log, idf_weighting=flag)) for flag in (False, True))
    assert plain[0, "dora"] == plain[0, "emil"]
    assert idf[0, "emil"] > idf[0, "dora"]
    assert idf[0, "emil"] + idf[0, "dora"] == pytest.approx(1)


@pytest.mark.parametrize("config", [PAPER, Config()], ids=["paper", "default"])
def test_every_pi_sums_to_one(config, monkeypatch):
    """Dangling mass returns to the reset vector, so that none is lost."""
    seen = []
    with open_memory(config=config) as memory:
        memory.add_many([*STORY, Trace("zzz", role="document"), Trace("qqq", role="document")])
        backend = memory._backend
        inner = type(backend).ppr
        monkeypatch.setattr(
            type(backend), "ppr",
            lambda self, *a: seen.append((a[2], inner(self, *a))) or seen[-1][1],
        )  # fmt: skip
        memory.retrieve_batch(["Who founded Acme in Lisbon?", "tuna", "zzz", "What is Nowhere?"])
        memory.retrieve_batch(["Acme?"], sessions="no such session")
    for reset, result in seen:
        assert_allclose(reset.sum(axis=0), 1, atol=1e-5)
        assert_allclose(result.sum(axis=0), 1, atol=1e-4)
        assert (result >= 0).all()
