"""The whole of retrieval, compiled, against the same equations in plain Python and float64."""

from __future__ import annotations

import random
from functools import cache

import kernel_support as ks
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from support import BACKEND, NAMES, STORY, WORDS, HashEncoder, build, difference, logs, rows_of

from zeromem.backend import Backend, ReferenceBackend
from zeromem.config import ClosureConfig, Config, GraphConfig, HierarchyConfig, SignalWeights
from zeromem.index import Index
from zeromem.query.piece import Timer
from zeromem.query.profile import profile
from zeromem.query.ranked import Options
from zeromem.query.retrieve import BATCH, retrieve
from zeromem.times import EventTime
from zeromem.types import Boundary, Trace

QUESTIONS = [
    "Where does Ana live now?",
    "Who founded Acme?",
    "What flows through Lisbon?",
    "When did Ben visit Porto Nova?",  # a name that the graph does not know
    "tuna",
    "of the and",
    "What do Ana and Ben share?",
    "How many cats did Carla Reis see in 2025?",
    "Can you help me with my piano?",
]
BOUNDARIES = [
    Boundary(),
    Boundary(sessions=("s1", "s2")),
    Boundary(speakers=("Ana",)),
    Boundary(roles=("document",)),
    Boundary(sessions=("none such",)),
]
OPTIONS = [
    Options(),
    Options(k=20),
    Options(k=3, token_budget=30),
    Options(token_budget=200),
    Options(view="graph"),
    Options(view="hierarchy"),
    Options(k=9, closure=False),
    Options(k=9, calibration=False),
    Options(k=9, closure=False, calibration=False),
]
CONFIGS = {
    "default": Config(),
    "paper": Config.paper(),
    "narrow": Config(
        graph=GraphConfig(
            prior_top=5, top_sentences=2, threshold=0.05, n_steps=3, hop_weight=1.5,
            speaker_weight=0.5, idf_weighting=True,
            refine=SignalWeights(sentence_dense=0.5, phrase=0.5, turn_lexical=0.25),
        ),
        hierarchy=HierarchyConfig(episode_beam=3, window_beam=12, window=5, local=4),
        closure=ClosureConfig(bridges=3, neighbors=4, tokens=60, anchors=2, short=6),
    ),
}  # fmt: skip


def long_log(n=150):
    """Traces of several sessions that take turns, some of them timed, titled or by an assistant."""
    rng = random.Random(7)
    return [
        *STORY,
        *(
            Trace(
                " ".join(rng.choices(NAMES + WORDS, k=rng.randint(3, 12))) + rng.choice(".?!")
                + f" That was number {i}.",
                speaker=rng.choice(["Ana", "Ben", None]),
                role=rng.choice(["user", "user", "assistant", "document"]),
                session=f"s{rng.randint(1, 6)}",
                time=EventTime.parse(f"2025-{i % 12 + 1:02}-01") if i % 3 else None,
                title=rng.choice(NAMES) if i % 10 == 0 else None,
            )
            for i in range(n)
        ),
    ]  # fmt: skip


@pytest.fixture
def rankings():
    """All of a test's comparisons; scores are of the size of eq. 12's."""
    found = ks.Rankings(scale=1.0)
    yield found
    found.finish()


@cache
def long_index(name):
    return build(rows_of(long_log()), CONFIGS[name])


def with_backend(index, backend):
    return Index(index.state, index.dim, index.config, backend)


def asked(index, boundaries=BOUNDARIES):
    return [
        profile(q, boundary=boundaries[i % len(boundaries)], known_names=index.arrays.names,
                query_entities=["Porto Nova"] if "Nova" in q else [])
        for i, q in enumerate(QUESTIONS)
    ]  # fmt: skip


def answers(index, backend, profiles, options):
    run = HashEncoder().encode
    return retrieve(with_backend(index, backend), profiles, run, options, Timer())


def by_row(rows, *values):
    return dict(zip(rows.tolist(), zip(*values, strict=True), strict=True))


def check(found, wanted, rankings):
    """One question's ``Ranked``."""
    assert (found.profile, found.route, found.reason, found.n_outside) == (
        wanted.profile, wanted.route, wanted.reason, wanted.n_outside
    )  # fmt: skip
    assert found.seeds.tolist() == wanted.seeds.tolist()
    assert_allclose(found.seed_values, wanted.seed_values, rtol=ks.RTOL)
    assert_allclose(found.activation, wanted.activation, rtol=ks.RTOL, atol=1e-7)
    # Eq. 12, view by view; eq. 13 in the order of the candidates.
    assert set(found.candidates.tolist()) == set(wanted.candidates.tolist())
    for name in ("graph", "hierarchy"):
        assert set(getattr(found, name).tolist()) == set(getattr(wanted, name).tolist())
        own, other = (
            by_row(r.candidates, getattr(r, f"{name}_normalized")) for r in (found, wanted)
        )
        assert_allclose([own[row] for row in other], list(other.values()), rtol=0, atol=ks.RTOL)
    # R(q) and what was left out of it.
    for name in ("items", "left_out"):
        own, other = getattr(found, name), getattr(wanted, name)
        rankings.check(
            np.array([item.row for item in own], np.int64),
            np.array([item.score for item in own]),
            np.array([item.row for item in other], np.int64),
            np.array([item.score for item in other]),
        )
        known = {item.row: item for item in other}
        for item in own:
            same = known[item.row]
            assert (item.kind, item.reason) == (same.kind, same.reason)
            assert_allclose([item.fused, item.support], [same.fused, same.support], atol=ks.RTOL)


def check_all(found, wanted, rankings):
    for one, other in zip(found, wanted, strict=True):
        check(one, other, rankings)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_long_memory(rankings, name, options):
    index = long_index(name)
    profiles = asked(index)
    found = answers(index, BACKEND, profiles, options)
    wanted = answers(index, ReferenceBackend(), profiles, options)
    check_all(found, wanted, rankings)


@pytest.mark.parametrize("name", CONFIGS)
@settings(max_examples=25)
@given(log=logs, data=st.data())
def test_random_memories(rankings, name, log, data):
    index = build(rows_of(log), CONFIGS[name])
    profiles = asked(index, data.draw(st.permutations(BOUNDARIES)))
    options = data.draw(st.sampled_from(OPTIONS))
    found = answers(index, BACKEND, profiles, options)
    wanted = answers(index, ReferenceBackend(), profiles, options)
    check_all(found, wanted, rankings)


# ---- equal bits alone, in a batch, and with any number of threads


def many(index, n):
    rng = random.Random(3)
    return [rng.choice(asked(index, rng.sample(BOUNDARIES, 5))) for _ in range(n)]


@pytest.mark.parametrize("name", CONFIGS)
def test_alone_and_in_a_batch_with_any_number_of_threads(name):
    index = long_index(name)
    profiles = many(index, BATCH + 1)
    options = Options(k=9)
    one = Backend(n_threads=1)
    alone = [answers(index, one, [p], options)[0] for p in profiles]
    for n_threads in (1, 2, 8):
        together = answers(index, Backend(n_threads=n_threads), profiles, options)
        assert difference(together, alone) is None


# ---- the comparison sees what a kernel does


@pytest.mark.parametrize(
    "operation",
    ["bm25", "dense", "evidence", "fuse", "ppr", "propagate", "restart", "views", "walked"],
)
def test_a_kernel_that_is_perturbed_is_seen(operation, monkeypatch):
    """Each kernel's arguments are perturbed on their way in."""

    class Perturbed(Backend):
        pass

    def perturbed(self, *arguments, **options):
        return getattr(Backend, operation)(self, *_perturbed(operation, arguments), **options)

    monkeypatch.setattr(Perturbed, operation, perturbed)
    index = long_index("default")
    profiles = asked(index)
    found = answers(index, Perturbed(), profiles, Options())
    wanted = answers(index, ReferenceBackend(), profiles, Options())
    with pytest.raises(AssertionError):
        check_all(found, wanted, ks.Rankings(scale=1.0))


def _perturbed(operation, arguments):
    place = {
        "bm25": 5, "dense": 1, "evidence": 3, "fuse": 6, "ppr": 4, "propagate": 2, "restart": 3,
        "views": 2, "walked": 1,
    }[operation]  # fmt: skip
    changed = list(arguments)
    if operation == "fuse":
        changed[place] = np.float32(0.9) * changed[place]
    else:
        changed[place] = ks.perturbed(changed[place])
    return changed
