"""Closure and calibration: the compiled form against the oracle."""

from functools import cache

import kernel_support as ks
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from zeromem.config import Config
from zeromem.index.chunks import Chunks
from zeromem.kernels import _evidence, evidence_ref
from zeromem.kernels._evidence import Bounds, Ranked, Turns

WEIGHTS = ("support", "subject", "temporal", "answer_type", "superseded_similarity")
BOUNDS = Bounds(
    main=5, anchors=5, near=5, short=48, bridges=5, neighbors=8, tokens=1200, local=2, budget=-1,
    closure=True, calibration=True,
)  # fmt: skip
CHANGED = (
    {},
    {"main": 40, "budget": 120},
    {"main": 2, "anchors": 1, "near": 1, "tokens": 60, "short": 10},
    {"bridges": 0, "neighbors": 2, "local": 4},  # the hierarchy view alone
    {"near": 0, "budget": 30},  # the graph view alone
    {"closure": False},
    {"calibration": False, "budget": 90},
    {"closure": False, "calibration": False},
    {"main": 1000, "budget": 0},
)
# Little enough that some vectors of a random memory are alike.
CALIBRATION = np.array([0.2, 0.05, 0.1, 0.05, 0.1])


def ranked(rng, memory, b):
    """What the views might say; the graph's candidates overlap those of eq. 13."""
    n = memory.n
    masks, mask_of = ks.masks(rng, n, b)
    rows, fused, graph = [], [], np.full((b, min(n, 30)), -1, np.int32)
    for j in range(b):
        # Some candidates lie outside the boundary, which eq. 15 checks again.
        own = rng.choice(n, rng.integers(0, min(n, 30) + 1), replace=False)
        rows.append(own)
        # Few values, so that scores tie.
        fused.append(np.sort(rng.choice([0.0, 0.2, 0.4, 0.5, 0.9], len(own)))[::-1])
        others = rng.choice(n, rng.integers(0, graph.shape[1] + 1), replace=False)
        graph[j, : len(others)] = others
    low = rng.integers(0, 800, b)
    indptr, flat = ks.csr(rows)
    terms = [rng.choice(8, rng.integers(0, 6), replace=False) for _ in range(b)]
    return Ranked(
        indptr, flat, np.concatenate([np.zeros(0), *fused]).astype(np.float32), graph, masks,
        mask_of, rng.random((b, n)) < 0.3,
        np.stack([low, low + rng.choice([0, 300], b)], axis=1).astype(np.int64),
        *ks.csr(terms), rng.choice([0, 2, 4, 6], b).astype(np.int32), rng.random(b) < 0.5,
        rng.random(b) < 0.6,
    )  # fmt: skip


@cache
def cases():
    """A memory, its turns, what is ranked and the bounds, and what the oracle says."""
    rng = np.random.default_rng(12)
    found = []
    for n in ks.SIZES:
        for twins in (False, True):
            memory = ks.memory(rng, n, twins=twins, n_terms=8)
            for changed in CHANGED:
                given = memory.turns, ranked(rng, memory, 12), BOUNDS._replace(**changed)
                rest = CALIBRATION, memory.vectors
                found.append((memory, *given, *rest, evidence_ref.evidence(*given, *rest)))
    return found


def check_parity(run, perturb=lambda *given: given):
    for _, *given, wanted in cases():
        found = run("evidence", *perturb(*given))
        assert [a.dtype for a in found] == [a.dtype for a in wanted]
        for name, one, other in zip(found._fields, found, wanted, strict=True):
            if one.dtype.kind == "f":
                assert_allclose(one, other, rtol=ks.RTOL, atol=1e-12, err_msg=name)
            else:
                # The scores are sums in one order, so that even ties are alike.
                assert_array_equal(one, other, err_msg=name)


def test_parity(compiled):
    check_parity(compiled)
    reasons = np.concatenate([wanted.reason for *_, wanted in cases()])
    kinds = np.concatenate([wanted.kind for *_, wanted in cases()])
    assert (np.bincount(reasons) > 20).all()
    assert len(np.bincount(reasons)) == 4
    assert (np.bincount(kinds) > 100).all()


@pytest.mark.parametrize("field", Turns._fields)
def test_parity_fails_when_a_column_is_perturbed(compiled, field):
    def perturb(turns, asked, bounds, weights, vectors):
        value = getattr(turns, field)
        if field == "addresses":
            value = value + 2 * ks.DIM
        elif field.endswith("indptr"):
            value = ks.spread_evenly(value)
        elif field == "inverse_norm":  # by much: it only has to reach a threshold
            value = np.roll(value, 1)
        else:
            value = ks.perturbed(value)
        return turns._replace(**{field: value}), asked, bounds, weights, vectors

    with pytest.raises(AssertionError):
        check_parity(compiled, perturb)


@pytest.mark.parametrize("field", Ranked._fields)
def test_parity_fails_when_what_is_ranked_is_perturbed(compiled, field):
    def perturb(turns, asked, bounds, weights, vectors):
        value = getattr(asked, field)
        if field == "term":  # distinct still
            value = (value + 1) % 8
        elif field == "rows":  # distinct still
            value = asked.mask_of[:0] if not len(value) else (value + 1) % len(turns.n_tokens)
        elif field == "indptr":  # a candidate less each
            value = np.minimum(value, np.maximum.accumulate(np.append(0, value[1:] - 1)))
        elif field.endswith("indptr"):
            value = ks.spread_evenly(value)
        else:
            value = ks.perturbed(value)
        return turns, asked._replace(**{field: value}), bounds, weights, vectors

    with pytest.raises(AssertionError):
        check_parity(compiled, perturb)


@pytest.mark.parametrize("field", Bounds._fields)
def test_parity_fails_when_a_bound_is_perturbed(compiled, field):
    def perturb(turns, asked, bounds, weights, vectors):
        value = ks.perturbed(getattr(bounds, field))
        return turns, asked, bounds._replace(**{field: value}), weights, vectors

    with pytest.raises(AssertionError):
        check_parity(compiled, perturb)


@pytest.mark.parametrize("place", range(len(WEIGHTS)), ids=WEIGHTS)
def test_parity_fails_when_a_weight_is_perturbed(compiled, place):
    def perturb(turns, asked, bounds, weights, vectors):
        weights = weights.copy()
        weights[place] += 0.05
        return turns, asked, bounds, weights, vectors

    with pytest.raises(AssertionError):
        check_parity(compiled, perturb)


def test_weights_are_the_configurations_in_order():
    from dataclasses import fields

    assert tuple(f.name for f in fields(Config().calibration)) == WEIGHTS


def test_a_question_alone_has_the_bits_it_has_in_a_batch(compiled, rng):
    memory = ks.memory(rng, 90, n_terms=8)
    asked = ranked(rng, memory, 33)
    rest = BOUNDS._replace(budget=200), CALIBRATION, memory.vectors
    together = compiled("evidence", memory.turns, asked, *rest)
    assert len(together.row) == together.indptr[-1]
    for j in range(33):
        alone = compiled("evidence", memory.turns, one_of(asked, j), *rest)
        part = slice(together.indptr[j], together.indptr[j + 1])
        assert alone.n_kept[0] == together.n_kept[j]
        for one, whole in zip(alone[2:], together[2:], strict=True):
            assert_array_equal(one, whole[part])


def one_of(asked, j):
    """One question of a batch."""
    row = slice(j, j + 1)
    part = slice(asked.indptr[j], asked.indptr[j + 1])
    terms = asked.term[asked.term_indptr[j] : asked.term_indptr[j + 1]]
    return Ranked(
        np.array([0, part.stop - part.start]), asked.rows[part], asked.fused[part],
        asked.graph_rows[row], asked.masks, asked.mask_of[row], asked.subject[row],
        asked.period[row], np.array([0, len(terms)]), terms, asked.wanted[row], asked.newest[row],
        asked.supersede[row],
    )  # fmt: skip


# ---- by hand: five turns of one session, of which 2 is the best evidence


def by_hand(**changed):
    n = 5
    same = np.zeros(n, np.int32)
    ordered = np.arange(n, dtype=np.int32)
    vectors = Chunks.of(np.ones((n, 2), np.float16))
    turns = Turns(
        n_tokens=np.full(n, 10, np.int32), flags=same, speaker=same, role=same,
        time=np.stack([ordered, ordered + 1], axis=1).astype(np.int64),
        previous=ordered - np.int32(1), following=np.array([1, 2, 3, 4, -1], np.int32),
        mention_indptr=np.zeros(n + 1, np.int64), mention_entity=same[:0],
        term_indptr=np.arange(n + 1), term=same, addresses=vectors.addresses,
        inverse_norm=np.full(n, 0.5**0.5, np.float32),
    )  # fmt: skip
    asked = Ranked(
        indptr=np.array([0, 1]), rows=np.array([2], np.int32), fused=np.array([0.5], np.float32),
        graph_rows=np.array([[2]], np.int32), masks=np.ones((1, n), bool),
        mask_of=np.zeros(1, np.int32), subject=np.zeros((1, n), bool),
        period=np.zeros((1, 2), np.int64), term_indptr=np.array([0, 1]),
        term=np.zeros(1, np.int32), wanted=np.zeros(1, np.int32), newest=np.zeros(1, bool),
        supersede=np.zeros(1, bool),
    )  # fmt: skip
    turns = turns._replace(**{k: v for k, v in changed.items() if k in Turns._fields})
    asked = asked._replace(**{k: v for k, v in changed.items() if k in Ranked._fields})
    bounds = BOUNDS._replace(**{k: v for k, v in changed.items() if k in Bounds._fields})
    return turns, asked, bounds, np.array([0.5, 0.1, 0.2, 0.3, 0.9]), vectors


@pytest.fixture(params=["compiled", "oracle"])
def form(request):
    return request.getfixturevalue(request.param)


def test_support_halves_with_each_turn(form):
    found = form("evidence", *by_hand())
    assert found.row.tolist() == [2, 1, 3, 0, 4]
    assert found.support.tolist() == [0.0, 0.5, 0.5, 0.25, 0.25]
    assert found.score.tolist() == [0.5, 0.25, 0.25, 0.125, 0.125]
    assert (found.kind == _evidence.NEIGHBOR).tolist() == [False] + [True] * 4
    assert found.n_kept.tolist() == [5]


def test_a_long_neighbour_is_lent_less(form):
    n_tokens = np.array([10, 96, 10, 10, 10], np.int32)
    found = form("evidence", *by_hand(n_tokens=n_tokens))
    assert dict(zip(found.row.tolist(), found.support.tolist(), strict=True))[1] == 0.25


def test_a_newer_statement_supersedes(form):
    found = form("evidence", *by_hand(supersede=np.ones(1, bool)))
    assert found.n_kept.tolist() == [1]
    assert found.row.tolist() == [4, 2, 1, 3, 0]
    # Of several newer ones it is the first of C(q), in the order in which that came about.
    assert found.newer.tolist() == [-1, 3, 2, 4, 2]
    alone = form("evidence", *by_hand(supersede=np.ones(1, bool), closure=False))
    assert alone.newer.tolist() == [-1]


def test_the_newest_comes_first_of_equals(form):
    found = form("evidence", *by_hand(newest=np.ones(1, bool)))
    assert found.row.tolist() == [2, 3, 1, 4, 0]


def test_bridges_share_an_entity_and_do_not_stand_twice(form):
    mentions = {
        "mention_indptr": np.array([0, 1, 1, 2, 2, 3]),
        "mention_entity": np.full(3, 7, "i4"),
    }
    graph = np.array([[3, 2, 4, 0, -1]], np.int32)
    found = form("evidence", *by_hand(**mentions, graph_rows=graph, bridges=1, local=1))
    kinds = dict(zip(found.row.tolist(), found.kind.tolist(), strict=True))
    assert kinds == {2: 0, 4: _evidence.BRIDGE, 1: 2, 3: 2}


@pytest.mark.parametrize("budget", [0, 9, 10, 35, 50])
def test_a_budget_keeps_the_best_that_fit(form, budget):
    found = form("evidence", *by_hand(budget=budget))
    assert found.n_kept.tolist() == [budget // 10]
    assert found.row.tolist() == [2, 1, 3, 0, 4]
    assert found.reason.tolist() == [0] * (budget // 10) + [3] * (5 - budget // 10)


def test_what_lies_outside_the_boundary_is_left_out(form):
    masks = np.array([[True, False, False, True, True]])
    found = form("evidence", *by_hand(masks=masks))
    reasons = dict(zip(found.row.tolist(), found.reason.tolist(), strict=True))
    assert reasons == {2: _evidence.OUTSIDE, 3: 0, 0: 0, 4: 0}


def test_no_candidates_are_no_evidence(form):
    nothing = {
        "indptr": np.zeros(2, np.int64),
        "rows": np.zeros(0, "i4"),
        "fused": np.zeros(0, "f4"),
    }
    found = form("evidence", *by_hand(**nothing))
    assert found.indptr.tolist() == [0, 0]
    assert len(found.row) == 0
