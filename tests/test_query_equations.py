"""Eq. 8-15 through the whole pipeline, by hand where a hand suffices."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support import STORY, HashEncoder, ids, open_memory, shown

from zeromem.config import (
    ClosureConfig,
    Config,
    FusionConfig,
    GraphConfig,
    HierarchyConfig,
    SignalWeights,
)
from zeromem.types import Route, Trace

PAPER = Config.paper()
RELATIONAL = "Who founded Acme?"
LOCAL = "When did she sleep?"
QUESTIONS = [RELATIONAL, LOCAL, "Where does Ana live now?", "tuna", "Who plays chess in Lisbon?"]


@pytest.fixture(scope="module")
def memory():
    with open_memory() as found:
        found.add_many(STORY)
        yield found


@pytest.fixture(scope="module")
def paper():
    with open_memory(config=PAPER) as found:
        found.add_many(STORY)
        yield found


def similarity(a: str, b: str) -> float:
    one, two = HashEncoder().encode([a, b])
    return float(one @ two)


# ---- eq. 7: the route


@pytest.mark.parametrize(
    ("question", "route", "reason"),
    [
        (RELATIONAL, Route.RELATIONAL, "the graph knows acme"),
        ("When did Acme move?", Route.RELATIONAL, "the graph knows acme"),
        ("When was tuna bought?", Route.LOCAL, "asks for a time"),
        ("Where do I live now?", Route.LOCAL, "asks for the present state"),
        ("What do Ana and Ben share?", Route.RELATIONAL, "relates ana and ben"),
        ("How many cats are there?", Route.RELATIONAL, "gathers items"),
        ("tuna", Route.LOCAL, "no entity of the question is in the graph"),
    ],
)
def test_the_route_says_why(memory, question, route, reason):
    found = memory.retrieve(question)
    assert found.route is route
    assert reason in found.route_reason


# ---- eq. 8-9: alignment and propagation


def test_eq_8_a_known_name_aligns_to_itself(memory):
    assert memory.explain("Who founded ACME's rival?").seeds == (("acme", 1.0),)


def test_eq_8_an_unknown_name_aligns_to_the_likest(paper):
    ((name, value),) = paper.explain("Who founded Reis Works?").seeds
    assert name == "carla reis"
    assert value == pytest.approx(similarity("reis works", "carla reis"), abs=1e-3)


def test_eq_8_alignment_has_a_threshold():
    wanted = similarity("reis works", "carla reis")
    for least, n in ((wanted - 0.02, 1), (wanted + 0.02, 0)):
        with open_memory(config=Config(graph=GraphConfig(min_alignment=least))) as memory:
            memory.add_many(STORY)
            assert len(memory.explain("Who founded Reis Works?").seeds) == n


def test_eq_9_spreads_through_shared_sentences_by_their_similarity(paper):
    """Acme and Carla Reis share one sentence, Acme and Lisbon another."""
    activated = dict(paper.explain(RELATIONAL).activated)
    shared = {
        "carla reis": "Acme was founded by Carla Reis, who plays chess.",
        "lisbon": "I moved from Porto to Lisbon for the job at Acme.",
    }
    for name, sentence in shared.items():
        wanted = max(0.0, similarity(RELATIONAL, sentence))
        assert activated[name] == pytest.approx(wanted, abs=2e-3)
    # eta_0 + eta_1: from itself, through each of its sentences.
    wanted = 1 + sum(max(0.0, similarity(RELATIONAL, z)) for z in shared.values())
    assert activated["acme"] == pytest.approx(wanted, abs=4e-3)


def test_no_entity_means_the_dense_ranking():
    """The paper's rule; refinement is switched off to see it alone."""
    config = replace(PAPER, graph=replace(PAPER.graph, refine=SignalWeights()))
    with open_memory(config=config) as memory:
        memory.add_many(STORY)
        found = memory.retrieve("tuna on a river", k=9, view="graph", closure=False)
        assert not memory.explain("tuna on a river").seeds
    texts = {t.text: (f"{t.title}\n" if t.title else "") + t.text for t in STORY}
    scores = {text: similarity("tuna on a river", read) for text, read in texts.items()}
    assert [e.text for e in found.main] == sorted(scores, key=lambda t: -scores[t])


def test_the_walk_reaches_what_shares_no_word_with_the_question(memory):
    """Acme leads from the question to who founded it, and from her to her game."""
    found = memory.retrieve("Where is the founder of Acme?", k=4, view="graph")
    assert any("Carla" in e.text for e in found.main)


# ---- eq. 12-13: normalise and fuse


@pytest.mark.parametrize("rho", [0.6, 0.9, 0.5])
@pytest.mark.parametrize("question", QUESTIONS)
def test_eq_12_and_13(question, rho):
    config = Config(fusion=FusionConfig(primary_weight=rho))
    with open_memory(config=config) as memory:
        memory.add_many(STORY)
        shown_ = memory.explain(question, k=9, closure=False, calibration=False)
    items = shown_.items
    assert len(items) == len(STORY)  # so few turns are all candidates of both views
    for scores in ([i.graph_score for i in items], [i.hierarchy_score for i in items]):
        assert min(scores) == 0
        assert max(scores) == 1
    weight = rho if shown_.retrieval.route is Route.RELATIONAL else 1 - rho
    for item in items:
        fused = weight * item.graph_score + (1 - weight) * item.hierarchy_score
        assert item.evidence.fused == pytest.approx(fused, abs=1e-6)
    order = [(-i.evidence.fused, i.evidence.lsn) for i in items]
    assert order == sorted(order)
    assert [i.evidence.main_rank for i in items] == list(range(1, 10))
    by_graph = sorted(items, key=lambda i: i.evidence.graph_rank)
    assert [i.graph_score for i in by_graph] == sorted((i.graph_score for i in items), reverse=True)


@pytest.mark.parametrize("view", ["graph", "hierarchy"])
@pytest.mark.parametrize("question", QUESTIONS)
def test_one_view_alone_ranks_by_that_view(memory, view, question):
    shown_ = memory.explain(question, k=9, view=view, closure=False, calibration=False)
    for rank, item in enumerate(shown_.items, 1):
        own, other = item.graph_score, item.hierarchy_score
        if view == "hierarchy":
            own, other = other, own
        assert item.evidence.fused == pytest.approx(own)
        assert other == 0
        assert getattr(item.evidence, f"{view}_rank") == rank


@pytest.mark.parametrize(("view", "other"), [("graph", "hierarchy"), ("hierarchy", "graph")])
def test_one_view_alone_does_not_hear_the_other(view, other):
    """Whatever the other view's configuration, the main list stays."""
    strange = {
        "hierarchy": Config(hierarchy=HierarchyConfig(score=SignalWeights(turn_dense=-1.0))),
        "graph": Config(graph=GraphConfig(damping=0.0, refine=SignalWeights(subject=-9))),
    }[other]
    found = []
    for config in (Config(), strange):
        with open_memory(config=config) as memory:
            memory.add_many(STORY)
            options = {"k": 9, "closure": False, "calibration": False}
            both = [ids(r) for r in memory.retrieve_batch(QUESTIONS, **options)]
            alone = [ids(r) for r in memory.retrieve_batch(QUESTIONS, view=view, **options)]
            found.append((both, alone))
    assert found[0][1] == found[1][1]
    assert found[0][0] != found[1][0]  # together they do hear it


# ---- eq. 14: closure

PEOPLE = ["Dora", "Emil", "Fay", "Gus", "Hal"]
LONG = [
    Trace(f"{PEOPLE[i % 5]} bought {thing} and then talked for a long while about it.",
          session=f"s{i % 4}", speaker="xyz"[i % 3], id=str(i))
    for i, thing in enumerate(f"thing{n} part{n * 7 % 40}" for n in range(60))
]  # fmt: skip


@pytest.fixture(scope="module")
def long_memory():
    with open_memory() as memory:
        memory.add_many(LONG)
        yield memory


@pytest.mark.parametrize("question", ["What did Dora buy?", "part21", "Who talked about thing3?"])
def test_closure_is_bounded_and_holds_each_row_once(question):
    for bridges, neighbors, tokens in ((3, 8, 1200), (0, 2, 1200), (2, 0, 1200), (9, 9, 25)):
        bounds = ClosureConfig(bridges=bridges, neighbors=neighbors, tokens=tokens)
        with open_memory(config=Config(closure=bounds)) as memory:
            memory.add_many(LONG)
            found = memory.retrieve(question, k=3)
            plain = memory.retrieve(question, k=3, closure=False)
        assert len({(e.id, e.start) for e in found}) == len(found)
        kinds = [e.kind for e in found]
        assert kinds.count("main") == 3
        assert kinds.count("bridge") <= bridges
        assert kinds.count("neighbor") <= neighbors
        assert sum(e.n_tokens for e in found if e.kind != "main") <= tokens
        assert [e.id for e in found.main] == [e.id for e in plain.main]
        assert {e.kind for e in plain} == {"main"}
        if tokens > 100 and neighbors > bridges:
            assert "neighbor" in kinds


def test_neighbours_lie_beside_main_evidence_in_its_session(long_memory):
    radius = Config().hierarchy.local
    found = long_memory.retrieve("What did Dora buy?", k=3)
    places = {}
    for trace in LONG:
        places[trace.id] = len([t for t in LONG[: int(trace.id)] if t.session == trace.session])
    main = [(e.session, places[e.id]) for e in found.main]
    near = [e for e in found if e.kind == "neighbor"]
    assert near
    for e in near:
        assert any(e.session == s and abs(places[e.id] - p) <= radius for s, p in main)


def test_bridges_share_an_entity_with_main_evidence(long_memory):
    found = long_memory.retrieve("What did Dora buy?", k=2)
    names = {name for e in found.main for name in PEOPLE if name in e.text}
    bridges = [e for e in found if e.kind == "bridge"]
    assert bridges
    assert all(any(name in e.text for name in names) for e in bridges)


def test_closure_stays_within_the_boundary(long_memory):
    for options in ({"sessions": ["s1"]}, {"speakers": ["x"]}):
        found = long_memory.retrieve("What did Dora buy?", k=2, **options)
        assert len(found) > 2
        for e in found:
            assert e.session == "s1" if "sessions" in options else e.speaker == "x"


# ---- eq. 15: calibration

MOVES = [
    Trace("I live in Porto with my cat.", speaker="Ana", session="a", time="2024-02-01T10:00Z"),
    Trace("I live in Lisbon with my cat.", speaker="Ana", session="b", time="2025-02-01T10:00Z"),
    Trace("I live in Oslo with my cat.", speaker="Ben", session="b", time="2023-02-01T10:05Z"),
    Trace("Trains are slow.", speaker="Ben", session="c", time="2025-03-01T10:00Z"),
]


@pytest.fixture(scope="module")
def moves():
    with open_memory() as memory:
        memory.add_many(MOVES)
        yield memory


def test_a_superseded_value_leaves_and_explain_lists_it(moves):
    found = moves.explain("Where does Ana live now?", k=4)
    texts = [e.text for e in found.retrieval]
    assert MOVES[1].text in texts
    assert MOVES[0].text not in texts
    assert MOVES[2].text in texts  # another speaker's is another subject's
    (left,) = found.left_out
    assert left.text == MOVES[0].text
    assert "superseded by a newer statement" in left.reason
    assert moves.get([left.id])[left.id].text == left.text  # the log never changes


@pytest.mark.parametrize(
    "question", ["Where did Ana live?", "Where did Ana live first?", "Where did Ana live in 2024?"]
)
def test_only_the_present_state_supersedes(moves, question):
    found = moves.explain(question, k=4)
    assert {MOVES[0].text, MOVES[1].text} <= {e.text for e in found.retrieval}
    assert not found.left_out


def test_without_calibration_nothing_is_left_out_or_reordered(moves):
    found = moves.explain("Where does Ana live now?", k=4, calibration=False)
    assert not found.left_out
    assert [e.main_rank for e in found.retrieval] == [1, 2, 3, 4]
    assert all(e.score == e.fused for e in found.retrieval)


def test_untimed_values_supersede_nothing():
    with open_memory() as memory:
        memory.add_many([replace(t, time=None) for t in MOVES])
        assert not memory.explain("Where does Ana live now?", k=4).left_out


def test_rank_prefers_whom_when_and_what_is_asked_for():
    """Three turns alike but for the speaker, the time, and a number."""
    log = [
        Trace("the boat was red", speaker="Ana", time="2024-05-01T10:00Z", session="1"),
        Trace("the boat was red", speaker="Ben", time="2024-05-01T10:00Z", session="2"),
        Trace("the boat was red", speaker="Ben", time="2025-05-01T10:00Z", session="3"),
        Trace("the boat had 7 sails", speaker="Cem", time="2025-05-01T10:00Z", session="4"),
    ]
    with open_memory() as memory:
        memory.add_many(log)
        assert memory.retrieve("What did Ana call red?", k=4)[0].speaker == "Ana"
        assert str(memory.retrieve("What was red in 2025?", k=4)[0].time).startswith("2025")
        calibrated = memory.retrieve("How many sails had the boat?", k=4)
        assert "7" in calibrated[0].text
        with_type = {e.id: e.score - e.fused for e in calibrated}
        assert max(with_type, key=with_type.get) == calibrated[0].id


@pytest.mark.parametrize(
    ("weight", "question", "fits"),
    [
        ("subject", "Where did Ana live?", lambda t: t.speaker == "Ana"),
        ("temporal", "Who was there in 2025?", lambda t: str(t.time).startswith("2025")),
        ("answer_type", "How many boats are there?", lambda t: "7" in t.text),
    ],
)
def test_each_compatibility_adds_its_weight_and_no_more(weight, question, fits):
    log = [*MOVES, Trace("They own 7 boats.", speaker="Cem", session="d")]
    scores = {}
    for value in (0.0, 0.5):
        config = Config(calibration=replace(Config().calibration, **{weight: value}))
        with open_memory(config=config) as memory:
            memory.add_many(log)
            found = memory.retrieve(question, k=9)
            assert len(found) == len(log)
            assert [e.score for e in found] == sorted((e.score for e in found), reverse=True)
            scores[value] = {e.text: e.score for e in found}
    for trace in log:
        gain = scores[0.5][trace.text] - scores[0.0][trace.text]
        assert gain == pytest.approx(0.5 if fits(trace) else 0.0)


# ---- bounds


@pytest.mark.parametrize("budget", [1, 8, 20, 60, 10_000])
def test_a_token_budget_is_kept(memory, budget):
    for question in QUESTIONS:
        found = memory.retrieve(question, token_budget=budget)
        assert found.n_tokens == sum(e.n_tokens for e in found) <= budget
        full = memory.explain(question, token_budget=budget)
        dropped = [x for x in full.left_out if "do not fit the budget" in x.reason]
        room = budget - found.n_tokens
        assert all(HashEncoder()._count(x.text) > room for x in dropped)


@pytest.mark.parametrize("k", [1, 2, 5, 9, 50, 2**31 - 1])
def test_k_bounds_the_main_list(memory, k):
    for found in memory.retrieve_batch(QUESTIONS, k=k):
        assert len(found.main) == min(k, len(STORY))
        assert [e.main_rank for e in found.main] == list(range(1, len(found.main) + 1))
    smaller = [e.id for e in memory.retrieve(RELATIONAL, k=1).main]
    assert smaller == [e.id for e in memory.retrieve(RELATIONAL, k=k).main][:1]


def test_ties_go_to_the_earlier_turn():
    with open_memory() as memory:
        memory.add_many([Trace("red boat", id=str(i), session=str(i)) for i in range(8)])
        found = memory.retrieve("red boat", k=8, closure=False)
        assert ids(found) == [str(i) for i in range(8)]


# ---- what evidence says of itself


def test_evidence_is_verbatim_with_its_place_and_reasons(memory):
    for question in QUESTIONS:
        for e in memory.retrieve(question, k=9):
            assert e.text == e.trace.text[e.start : e.end]
            assert memory.get([e.id])[e.id] == e.trace
            assert e.why.startswith(("main #", "bridge:", "neighbour"))
    found = memory.retrieve(RELATIONAL, k=3)
    best = next(e for e in found if "Carla" in e.text and e.graph_rank)
    assert best.matched
    assert "acme" in best.entities
    assert f"graph #{best.graph_rank}" in best.why
    assert "via acme" in best.why


def test_the_papers_configuration_answers_all_kinds(paper):
    for found in paper.retrieve_batch([*QUESTIONS, "Lisbon", "zzz", "of the and"], k=9):
        assert len(found.main) == 9
        assert all(np.isfinite(e.score) for e in found)
    assert "Carla" in paper.retrieve(RELATIONAL)[0].text


@pytest.mark.parametrize("config", [Config(), PAPER], ids=["default", "paper"])
@pytest.mark.parametrize("log", [["Hello Bob"], ["a"], ["?!"], ["Bob", "Bob"], ["x y"] * 3])
def test_tiny_memories(config, log):
    with open_memory(config=config) as memory:
        memory.add_many([Trace(text, session=str(i)) for i, text in enumerate(log)])
        for question in ("Bob?", "Where is Bob now?", "a", "?", "When did Bob meet Rob Smith?"):
            found = memory.retrieve(question)
            assert len(found) == len(log)
            assert shown(found) == shown(memory.retrieve(question))


def test_explain_shows_the_sentences_that_carried_an_item():
    text = "It rained all day. Carla Reis founded Acme. We had tea."
    with open_memory() as memory:
        memory.add(text)
        (item,) = memory.explain("Who founded Acme?").items
    assert item.sentences[0][0] == "Carla Reis founded Acme."
    assert [s for _, s in item.sentences] == sorted((s for _, s in item.sentences), reverse=True)
    assert all(sentence in text for sentence, _ in item.sentences)
