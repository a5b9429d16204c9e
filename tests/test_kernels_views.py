"""Signals, the hierarchy view and context priors: the compiled form against the oracle."""

from dataclasses import fields
from functools import cache

import kernel_support as ks
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from zeromem.config import Config, SignalWeights
from zeromem.index import features
from zeromem.kernels import _views, dense_cpu, views_cpu, views_ref
from zeromem.kernels._views import Asked, Units
from zeromem.query import plan

USES = 6
SENTENCE = _views.SENTENCE_DENSE
OPTIONS = {
    "half_informative": ks.HALF_INFORMATIVE,
    "radius": 1,
    "n_episodes": 0,
    "episode_beam": 128,
    "window_beam": 1024,
    "sharpness": 15.0,
    "contrast": 4.0,
    "user": 0,
    "prior_top": 50,
    "candidates": 60,
}
PAPER = {"sharpness": 0.0, "contrast": 1.0, "prior_top": 0}
NARROW = {"episode_beam": 5, "window_beam": 9, "prior_top": 7, "candidates": 6}


def asked(rng, memory, b, *, phrases=True, dots=False):
    """Questions of all kinds to a memory."""
    n = memory.n
    queries = ks.unit_rows(rng, b)
    vectors = memory.vectors.array()[:n].astype(np.float64)
    # Every third question has no word in common with any turn.
    lexical = rng.gamma(1.0, 1.0, (3, b, n)) * (rng.random((3, b, n)) < 0.4)
    lexical[:, 2::3] = 0
    low = rng.integers(0, 800, b)
    period = np.stack([low, low + rng.choice([0, 300], b)], axis=1).astype(np.int64)
    masks, mask_of = ks.masks(rng, n, b)
    return Asked(
        queries,
        (queries.astype(np.float64) @ vectors.T).astype(np.float32),
        *lexical.astype(np.float32),
        masks,
        mask_of,
        *ks.csr([rng.choice(4, rng.integers(0, 3), replace=False) for _ in range(b)]),
        *ks.csr([rng.choice(n, min(n, rng.integers(0, 3)), replace=False) for _ in range(b)]),
        rng.integers(-1, 2, b).astype(np.int32),
        period,
        (np.arange(b) % 2).astype(np.int8),
        (rng.choice([0.0, 0.5, 1.0], (b, n)) if phrases else np.zeros((0, 0))).astype(np.float32),
        # Left out, or all of them.
        dense_cpu.scores(memory.sentences, queries) if dots else np.zeros((1, 0), np.float32),
    )


def random_weights(rng, *, refine_sentences):
    """Some of the signals in each use, some against."""
    weights = rng.uniform(-0.5, 1.0, (USES, _views.N_SIGNALS))
    weights *= rng.random(weights.shape) < 0.6
    # Sentences and the best of an episode come after what these uses are for.
    weights[:, SENTENCE] = 0
    weights[_views.REGION, _views.EPISODE_BEST] = 0
    weights[_views.REGION] = np.abs(weights[_views.REGION])
    weights[_views.SCORE, SENTENCE] = 0.5
    weights[_views.REFINE, SENTENCE] = 0.4 if refine_sentences else 0.0
    weights[_views.PRIOR] = np.abs(weights[_views.PRIOR])
    return weights.astype(np.float32)


def run(form, memory, questions, weights, options):
    return form("views", memory.units, questions, weights, **options)


@cache
def cases():
    """A memory, questions, weights and options, and what the oracle says."""
    rng = np.random.default_rng(11)
    found = []
    for n in ks.SIZES:
        for radius in (0, 1, 3):
            memory = ks.memory(rng, n, radius=radius)
            tuned, letter = plan._weights(Config()), plan._weights(Config.paper())
            for weights, changed in (
                (tuned, {}),
                (tuned, NARROW),
                (letter, PAPER),
                (letter, {**PAPER, **NARROW}),
                (random_weights(rng, refine_sentences=False), NARROW),
                (random_weights(rng, refine_sentences=True), {"candidates": 1000}),
                (random_weights(rng, refine_sentences=True), NARROW),
            ):
                questions = asked(rng, memory, 6, phrases=changed is not NARROW, dots=radius == 1)
                own = {"radius": radius, "n_episodes": memory.n_episodes}
                options = {**OPTIONS, **own, **changed}
                wanted = views_ref.views(memory.units, questions, weights, **options)
                found.append((memory, questions, weights, options, wanted))
    return found


def check_case(found, wanted, questions, contrast, rankings):
    assert [a.dtype for a in found] == ["i4", "f8", "f4", "i4", "f4", "?"]
    assert_array_equal(found.subject, wanted.subject)
    for j in range(len(questions.queries)):
        mask = questions.masks[questions.mask_of[j]]
        most = np.abs(wanted.refine[j, mask]).max(initial=0)
        assert_allclose(
            found.refine[j, mask], wanted.refine[j, mask], rtol=0, atol=ks.RTOL * max(most, 0.1)
        )
        rankings.check(found.prior_rows[j], found.priors[j], wanted.prior_rows[j], wanted.priors[j])
        # What was raised to a power is compared before that: a power multiplies the error.
        shares = (view.scores[j].astype(np.float64) ** (1 / contrast) for view in (found, wanted))
        rankings.check(found.rows[j], next(shares), wanted.rows[j], next(shares))


def check_parity(form, perturb=lambda *given: given):
    rankings = ks.Rankings()
    for memory, questions, weights, options, wanted in cases():
        units, *rest = perturb(memory.units, questions, weights, options)
        found = form("views", units, *rest[:-1], **rest[-1])
        check_case(found, wanted, questions, options["contrast"], rankings)
    rankings.finish()
    return rankings


def test_parity(compiled):
    check_parity(compiled)
    kept = [np.count_nonzero(wanted.rows >= 0, axis=1) for *_, wanted in cases()]
    assert max(map(max, kept)) == max(ks.SIZES)
    assert min(map(min, kept)) == 0


def one_row_off(addresses):
    return addresses + 2 * ks.DIM


@pytest.mark.parametrize("field", Units._fields)
def test_parity_fails_when_a_column_is_perturbed(compiled, field):
    def perturb(units, *rest):
        value = getattr(units, field)
        if field == "sentence_addresses":
            value = one_row_off(value)
        elif field == "sentence_indptr":
            value = ks.spread_evenly(value)
        else:
            value = ks.perturbed(value)
        return units._replace(**{field: value}), *rest

    with pytest.raises(AssertionError):
        check_parity(compiled, perturb)


@pytest.mark.parametrize("field", Asked._fields)
def test_parity_fails_when_what_is_asked_is_perturbed(compiled, field):
    def perturb(units, questions, *rest):
        value = getattr(questions, field)
        if field.endswith("indptr"):
            value = ks.spread_evenly(value)
        elif field == "sentence_dots":
            value = np.roll(value, 1, axis=1) if value.size else value
        elif field in ("standing", "period"):
            value = value + np.array([1], value.dtype)
        elif len(value):
            value = ks.perturbed(value)
        return units, questions._replace(**{field: value}), *rest

    with pytest.raises(AssertionError):
        check_parity(compiled, perturb)


@pytest.mark.parametrize("use", range(USES))
@pytest.mark.parametrize("signal", range(_views.N_SIGNALS))
def test_parity_fails_when_a_weight_is_perturbed(compiled, use, signal):
    if signal == SENTENCE and use not in (_views.REFINE, _views.SCORE):
        return  # sentences are looked at for those alone
    if signal == _views.EPISODE_BEST and use == _views.REGION:
        return  # which it is made of

    def perturb(units, questions, weights, options):
        weights = weights.copy()
        weights[use, signal] += np.float32(0.7)
        return units, questions, weights, options

    with pytest.raises(AssertionError):
        check_parity(compiled, perturb)


@pytest.mark.parametrize("name", [name for name in OPTIONS if name != "n_episodes"])
def test_parity_fails_when_an_option_is_perturbed(compiled, name):
    def perturb(units, questions, weights, options):
        value = options[name]
        # More candidates are more columns, which no comparison is needed to see.
        value = max(1, value - 1) if name == "candidates" else ks.perturbed(value)
        return units, questions, weights, {**options, name: value}

    with pytest.raises(AssertionError):
        check_parity(compiled, perturb)


# ---- what the kernel takes from elsewhere


def test_signals_are_the_configurations_weights_in_order():
    assert tuple(f.name for f in fields(SignalWeights)) == _views.SIGNALS
    assert len(_views.SIGNALS) == _views.N_SIGNALS
    for place, name in enumerate(_views.SIGNALS):
        assert getattr(_views, name.upper()) == place


def test_flags_are_the_features():
    for module in (views_cpu, views_ref):
        assert module._ASKS == features.ASKS
        assert module._INSTRUCTS == features.INSTRUCTS
        assert module._PREFERS == features.PREFERS


# ---- ties, batches, bounds


def tied(rng, n):
    """A memory whose turns come in pairs that say the same, and questions that see no more."""
    memory = ks.memory(rng, n, twins=True)
    questions = asked(rng, memory, 6)
    first = np.arange(n) // 2 * 2
    return memory, questions._replace(
        **{
            name: np.ascontiguousarray(getattr(questions, name)[:, first])
            for name in (*Asked._fields[1:5], "phrase")
        },
        masks=np.ones((1, n), bool),
        mask_of=np.zeros(6, np.int32),
        row_indptr=np.zeros(7, np.int64),
        row=np.zeros(0, np.int32),
        period=np.zeros((6, 2), np.int64),
    )


def test_ties_go_to_the_lower_row(compiled, oracle):
    rng = np.random.default_rng(4)
    memory, questions = tied(rng, 60)
    # Vectors of twins were made equal, so what is derived from them is, too.
    options = {**OPTIONS, "n_episodes": memory.n_episodes, **NARROW, "window_beam": 11}
    for form in (compiled, oracle):
        found = run(form, memory, questions, plan._weights(Config()), options)
        for rows in (*found.rows, *found.prior_rows):
            pairs = rows[rows >= 0].tolist()
            for even in [row for row in pairs if row % 2 == 0 and row + 1 in pairs]:
                assert pairs.index(even + 1) == pairs.index(even) + 1
            assert all(row - 1 in pairs for row in pairs if row % 2)


@pytest.mark.parametrize("refine_sentences", [False, True])
def test_a_question_alone_has_the_bits_it_has_in_a_batch(compiled, rng, refine_sentences):
    memory = ks.memory(rng, 90)
    questions = asked(rng, memory, 33, dots=True)
    weights = random_weights(rng, refine_sentences=refine_sentences)
    options = {**OPTIONS, "n_episodes": memory.n_episodes, **NARROW}
    together = run(compiled, memory, questions, weights, options)
    for j in reversed(range(33)):
        alone = run(compiled, memory, one_of(questions, j), weights, options)
        mask = questions.masks[questions.mask_of[j]]
        for name, value in alone._asdict().items():
            wanted = getattr(together, name)[j]
            own = (value[0], wanted) if name != "refine" else (value[0, mask], wanted[mask])
            assert_array_equal(*own)


def one_of(q, j):
    """One question of a batch, its sentences' inner products left out."""

    def part(indptr, values):
        own = values[indptr[j] : indptr[j + 1]]
        return np.array([0, len(own)], np.int64), own

    row = slice(j, j + 1)
    return Asked(
        *(a[row] for a in q[:5]), q.masks, q.mask_of[row], *part(q.speaker_indptr, q.speaker),
        *part(q.row_indptr, q.row), q.by_role[row], q.period[row], q.standing[row],
        q.phrase[row] if len(q.phrase) else q.phrase, np.zeros((1, 0), np.float32),
    )  # fmt: skip


def test_what_differs_by_rounding_alone_tells_nothing_apart(compiled, oracle, rng):
    """A session that says one thing again and again: all its windows are alike."""
    n = 30
    memory = ks.memory(rng, n)
    vector = rng.normal(size=ks.DIM).astype(np.float16)
    norm = np.linalg.norm(vector.astype(np.float64))
    n_tokens = rng.integers(1, 40, n).astype(np.int32)
    previous, following = ks.links(np.zeros(n, int))
    around = [[j for j in (i - 1, i, i + 1) if 0 <= j < n] for i in range(n)]
    units = memory.units._replace(
        n_tokens=n_tokens,
        previous=previous,
        following=following,
        turn_inverse_norm=np.full(n, 1 / norm, np.float32),
        window_inverse_norm=np.array(
            [1 / (norm * n_tokens[near].sum()) for near in around], np.float32
        ),
    )
    questions = asked(rng, memory, 6)
    dots = np.tile(questions.queries @ vector.astype(np.float32), (n, 1)).T
    questions = questions._replace(
        dots=np.ascontiguousarray(dots), masks=np.ones((1, n), bool), mask_of=np.zeros(6, np.int32)
    )
    weights = np.zeros((USES, _views.N_SIGNALS), np.float32)
    weights[:, _views.WINDOW_DENSE] = 1
    options = {**OPTIONS, "n_episodes": memory.n_episodes}
    for form in (compiled, oracle):
        found = form("views", units, questions, weights, **options)
        assert_array_equal(found.rows, np.tile(np.arange(n), (6, 1)))
        assert not found.refine.any()
