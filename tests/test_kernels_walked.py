"""The graph view's ranking: the compiled form against the oracle."""

from functools import cache

import kernel_support as ks
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from zeromem.index.chunks import Chunks
from zeromem.index.lists import Lists
from zeromem.kernels import walked_ref
from zeromem.kernels._walked import Hops

NAMES = ("pi", "refine", "by_dense", "dots", "inverse_norm", "masks", "mask_of", "queries")
OPTIONS = {"log_span": 6.0, "hop_weight": 0.4, "hop_from": 3, "candidates": 60}
CHANGED = (
    {},
    {"log_span": 0.0, "hop_weight": 0.0},  # the paper
    {"candidates": 4, "hop_from": 9},
    {"candidates": 1000, "hop_weight": 3.0, "hop_from": 1},
    {"log_span": 1.0, "hop_from": 0},
)


def walk(rng, n_nodes, b):
    """Masses over many orders of magnitude; in some columns there are many zeros, or no mass."""
    pi = np.exp(rng.normal(0, 3, (n_nodes, b)))
    pi[:, ::3] *= rng.random((n_nodes, len(range(0, b, 3)))) < 0.5
    pi /= pi.sum(axis=0).clip(1e-9)
    if b > 4:
        pi[:, 4] = 0
    return np.ascontiguousarray(pi, np.float32)


def arguments(rng, memory, b):
    n = memory.n
    queries = ks.unit_rows(rng, b)
    vectors = memory.vectors.array()[:n].astype(np.float64)
    masks, mask_of = ks.masks(rng, n, b)
    return [
        walk(rng, n + memory.n_entities, b),
        rng.uniform(0, 1, (b, n)).astype(np.float32),
        np.arange(b) % 5 == 2,
        (queries.astype(np.float64) @ vectors.T).astype(np.float32),
        memory.units.turn_inverse_norm,
        masks,
        mask_of,
        queries,
        memory.hops,
    ]


@cache
def cases():
    """A memory, arguments and options, and what the oracle says."""
    rng = np.random.default_rng(8)
    found = []
    for n in ks.SIZES:
        for n_sealed in (0, n // 2, n):
            memory = ks.memory(rng, n, n_sealed=n_sealed)
            for changed in CHANGED:
                given, options = arguments(rng, memory, 7), {**OPTIONS, **changed}
                found.append((memory, given, options, walked_ref.walked(*given, **options)))
    return found


def check_parity(run, perturb=lambda given, options: (given, options)):
    rankings = ks.Rankings()
    for _, given, options, wanted in cases():
        given, options = perturb(list(given), dict(options))
        found = run("walked", *given, **options)
        assert [a.dtype for a in found] == ["i4", "f4"]
        for line in zip(*found, *wanted, strict=True):
            rankings.check(*line)
    rankings.finish()


def test_parity(compiled):
    check_parity(compiled)
    assert min((rows >= 0).sum(axis=1).min() for *_, (rows, _) in cases()) == 0


@pytest.mark.parametrize("name", [*NAMES, *OPTIONS])
def test_parity_fails_when_an_argument_is_perturbed(compiled, name):
    def perturb(given, options):
        if name in OPTIONS:
            less = max(1, options[name] - 1) if name == "candidates" else None
            options[name] = less or ks.perturbed(options[name])
        else:
            at = NAMES.index(name)
            given[at] = ks.perturbed(given[at])
        return given, options

    with pytest.raises(AssertionError):
        check_parity(compiled, perturb)


@pytest.mark.parametrize("field", Hops._fields)
def test_parity_fails_when_the_memory_is_perturbed(compiled, field):
    def perturb(given, options):
        value = getattr(given[-1], field)
        if field == "sentence_addresses":
            value = value + 2 * ks.DIM
        elif field.endswith("indptr"):
            value = ks.spread_evenly(value)
        elif field == "titled":  # of each entity its neighbour's turns
            value = (*value[:3], np.roll(value[3], 1), *value[4:])
        else:
            value = ks.perturbed(value)
        given[-1] = given[-1]._replace(**{field: value})
        return given, options

    with pytest.raises(AssertionError):
        check_parity(compiled, perturb)


def by_hand(titles):
    """Four turns: 0 names entity 0 in its second sentence; ``titles`` are turn by turn.

    Sentences' cosines with the question are their only element.
    """
    cosines = np.array([[0.1], [0.5], [0.25], [0.75]], np.float16)
    sentences = Chunks.of(cosines)
    keys = max((t[0] + 1 for t in titles if t), default=0)
    titled = ks.lists(titles, keys, n_sealed=2).kernel_args
    hops = Hops(
        *ks.csr([[0], [], [], [0]]), titled, np.array([0, 2, 3, 4, 4]), *ks.csr([[], [0], [], []]),
        sentences.addresses, np.ones(4, np.float32),
    )  # fmt: skip
    ones = np.ones((1, 4), np.float32)
    pi = np.array([[1.0], [0.5], [0.25], [0.0], [9.0]], np.float32)
    given = [
        pi, 0 * ones, np.zeros(1, bool), ones, ones[0], ones > 0, np.zeros(1, np.int32),
        np.ones((1, 1), np.float32), hops,
    ]  # fmt: skip
    return given, sentences


def test_the_second_hop_by_hand(compiled, oracle):
    """Turn 0 lends the turn of entity 0's title its score, times 0.5 / 0.75."""
    given, _sentences = by_hand([[], [], [], [0]])
    options = {**OPTIONS, "log_span": 0.0, "hop_weight": 1.0}
    for run in (compiled, oracle):
        rows, scores = run("walked", *given, **options)
        assert rows.tolist() == [[0, 3, 1, 2]]
        assert scores[0].tolist() == pytest.approx([1.0, 0.5 / 0.75, 0.5, 0.25])


def test_a_title_is_not_lent_to_by_its_own_turn(compiled, oracle):
    given, _sentences = by_hand([[0], [], [], [0]])
    for run in (compiled, oracle):
        _, scores = run("walked", *given, **{**OPTIONS, "log_span": 0.0, "hop_weight": 1.0})
        assert scores[0].tolist() == pytest.approx([1.0, 0.5, 0.25, 0.0])


def test_entities_behind_the_last_title_are_nobodys(compiled, oracle):
    """Lists of titles end with the last entity that is one."""
    given, _sentences = by_hand([[], [], [], []])
    assert len(given[-1].titled[3]) == 0
    for run in (compiled, oracle):
        _, scores = run("walked", *given, **{**OPTIONS, "log_span": 0.0})
        assert scores[0].tolist() == pytest.approx([1.0, 0.5, 0.25, 0.0])


def test_a_question_alone_has_the_bits_it_has_in_a_batch(compiled, rng):
    memory = ks.memory(rng, 90)
    given = arguments(rng, memory, 33)
    together = compiled("walked", *given, **OPTIONS)
    for j in reversed(range(33)):
        row = slice(j, j + 1)
        pi, refine, by_dense, dots, inverse_norm, masks, mask_of, queries, hops = given
        alone = compiled(
            "walked", np.ascontiguousarray(pi[:, row]), refine[row], by_dense[row], dots[row],
            inverse_norm, masks, mask_of[row], queries[row], hops, **OPTIONS,
        )  # fmt: skip
        for one, whole in zip(alone, together, strict=True):
            assert_array_equal(one[0], whole[j])


def test_ties_go_to_the_lower_row(compiled, oracle, rng):
    memory = ks.memory(rng, 20)
    nobody = Lists.empty(counted=False).kernel_args
    given = arguments(rng, memory, 2)
    given[0] = np.repeat(given[0][:10], 2, axis=0)
    given[1] = np.repeat(given[1][:, :10], 2, axis=1)
    given[2], given[6] = np.zeros(2, bool), np.zeros(2, np.int32)
    given[-1] = memory.hops._replace(titled=nobody)
    for run in (compiled, oracle):
        for line in run("walked", *given, **OPTIONS)[0]:
            assert (line[::2] % 2 == 0).all()
            assert_array_equal(line[1::2], line[::2] + 1)
