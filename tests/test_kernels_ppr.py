"""PPR (eq. 10): every form against the oracle, and properties that need no oracle."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

from zeromem.errors import InvalidInputError
from zeromem.kernels import ppr_cpu, ppr_gpu, ppr_ref, ppr_torch
from zeromem.kernels._ppr import chebyshev, pack

WEIGHT, DAMPING, TOL = np.float32(0.3).item(), 0.6, 1e-6


def graph(rng, n, m, n_mentions, *, sessions=3, silent=0, hub=False):
    """``sessions`` interleaved chains of turns, the first ``silent`` turns alone and without names.

    The arguments of ``ppr`` before ``reset``. Some entities are mentioned once, some never, some
    twice by one turn.
    """
    turn = np.sort(rng.integers(silent, n, n_mentions)) if n > silent else np.empty(0, int)
    entity = (rng.zipf(1.6, len(turn)) - 1) % m if m else np.empty(0, int)
    if hub:
        entity[rng.random(len(turn)) < 0.5] = 0
    turn = turn[: len(entity)]
    weight = (rng.random(len(entity)) + 0.5).astype(np.float32)
    indptr = np.searchsorted(turn, np.arange(n + 1))
    previous, last = np.full(n, -1, np.int32), {}
    for t in range(silent, n):
        session = rng.integers(sessions)
        previous[t] = last.get(session, -1)
        last[session] = t
    return with_degrees(previous, indptr, entity.astype(np.int32), weight, m)


def with_degrees(previous, indptr, entity, weight, m):
    n = len(previous)
    degree = np.zeros(n + m)
    np.add.at(degree, np.repeat(np.arange(n), np.diff(indptr)), weight)
    np.add.at(degree, n + entity, weight)
    linked = previous[previous >= 0]
    degree[:n] += WEIGHT * (previous >= 0)
    degree[linked] += WEIGHT
    inverse = np.divide(1, degree, out=np.zeros(n + m), where=degree > 0).astype(np.float32)
    return previous, indptr.astype(np.int64), entity, weight, inverse


def resets(rng, n, b, n_seeds=5):
    reset = np.zeros((n, b), np.float32)
    for j in range(b):
        reset[rng.integers(0, n, n_seeds), j] = rng.random(n_seeds) + 0.1
    return reset / reset.sum(axis=0)


def int32(*values):
    return np.array(values, np.int32)


def nodes(matrix):
    return len(matrix[4])


def cases(rng):
    for n, m, n_mentions, b, options in (
        (1, 0, 0, 1, {}),
        (1, 1, 1, 2, {}),
        (0, 3, 0, 2, {}),
        (2, 1, 2, 3, {}),
        (2, 0, 0, 3, {"sessions": 1}),
        (40, 20, 100, 1, {"silent": 9}),
        (40, 20, 0, 5, {"silent": 40}),
        (90, 60, 300, 33, {"silent": 20}),
        (90, 60, 300, 17, {"sessions": 30}),
        (90, 3, 400, 4, {"sessions": 1}),
        (300, 100, 3000, 17, {"hub": True}),
    ):
        matrix = graph(rng, n, m, n_mentions, **options)
        yield matrix, resets(rng, nodes(matrix), b)
    matrix = graph(rng, 25, 15, 60, silent=3)
    empty = resets(rng, nodes(matrix), 3)
    empty[:, 1] = 0  # a question without any seed, between others
    yield matrix, empty


def check_parity(run, oracle, rng):
    for matrix, reset in cases(rng):
        for damping in (DAMPING, 0.0, 0.85):
            found = run("ppr", *matrix, reset, WEIGHT, damping, TOL)
            wanted = oracle("ppr", *matrix, reset, WEIGHT, damping, 1e-10).scores
            assert found.scores.dtype == np.float32
            error = np.abs(found.scores - wanted).sum(axis=0)
            assert (error <= 5e-6 * wanted.sum(axis=0)).all()
            assert 0 <= found.residual < 1e-5 if damping else True


def in_torch(operation, *arguments):
    return ppr_torch.ppr(*arguments, device="cpu")


def test_parity(kernel, oracle, rng):
    check_parity(kernel, oracle, rng)


def test_parity_of_torch(oracle, rng):
    check_parity(in_torch, oracle, rng)


@pytest.mark.parametrize("what", ["damping", "degrees", "weights", "chain", "chain weight", "tol"])
def test_parity_fails_when_the_kernel_is_perturbed(kernel, oracle, rng, what):
    def perturbed(
        operation, previous, indptr, entity, weight, inverse, reset, adjacency, damping, tol
    ):
        if what == "damping":
            damping += 1e-4
        elif what == "degrees":
            inverse = inverse * np.float32(1.0003)
        elif what == "weights":
            weight = weight * np.float32(1.0003)
        elif what == "chain":
            previous = np.where(np.arange(len(previous)) == len(previous) - 1, -1, previous)
        elif what == "chain weight":
            adjacency *= 1.0003
        else:
            tol = 1e-3
        matrix = previous.astype(np.int32), indptr, entity, weight, inverse
        return kernel(operation, *matrix, reset, adjacency, damping, tol)

    with pytest.raises(AssertionError):
        check_parity(perturbed, oracle, rng)


def sparse_oracle(matrix, reset, damping, n_iter):
    """Power iteration in float64 where a dense matrix would not fit."""
    previous, indptr, entity, weight, inverse = matrix
    n, m = len(previous), len(inverse) - len(previous)
    B = sp.csr_array((weight.astype(float), entity, indptr), shape=(n, m))
    later = np.flatnonzero(previous >= 0)
    C = sp.coo_array((np.full(len(later), WEIGHT), (later, previous[later])), shape=(n, n))
    A = sp.block_array([[C + C.T, B], [B.T, None]], format="csr")
    PT, pi = A @ sp.diags_array(inverse.astype(float)), reset.astype(float)
    for _ in range(n_iter):
        lost = pi[inverse == 0].sum(axis=0)
        pi = (1 - damping) * reset + damping * (PT @ pi + lost * reset)
    return pi


@pytest.mark.parametrize("form", [ppr_cpu, ppr_gpu])
@pytest.mark.parametrize("alike", [True, False])
def test_a_hub_of_thirty_thousand_edges_keeps_its_digits(form, rng, alike):
    n, m = 30_000, 500
    other = rng.integers(1, m, n)
    entity = np.stack([np.zeros(n, int), other], axis=1).ravel().astype(np.int32)
    weight = np.ones(2 * n, np.float32) if alike else rng.random(2 * n).astype(np.float32)
    previous = np.where(np.arange(n) % 50, np.arange(n) - 1, -1).astype(np.int32)
    matrix = with_degrees(previous, 2 * np.arange(n + 1), entity, weight, m)
    # Equal terms are the worst: float32 rounds each of their additions the same way.
    reset = resets(rng, n + m, 2)
    reset[:, 1] = 1 / (n + m)
    found = form.ppr(*matrix, reset, WEIGHT, DAMPING, TOL).scores
    wanted = sparse_oracle(matrix, reset, DAMPING, 45)
    assert (np.abs(found - wanted).sum(axis=0) < 3e-6).all()


@pytest.mark.parametrize("form", [ppr_cpu, ppr_gpu])
@pytest.mark.parametrize("damping", [0.3, 0.6, 0.85, 0.95])
def test_the_error_is_below_the_tolerance_also_from_one_seed(form, rng, damping):
    matrix = graph(rng, 2000, 1500, 9000, sessions=40)
    reset = np.zeros((nodes(matrix), 24), np.float32)
    # The mass of a node of few edges has the longest way to go.
    reset[np.argsort(-matrix[4])[:24], np.arange(24)] = 1
    wanted = sparse_oracle(matrix, reset, damping, int(np.log(1e-9) / np.log(damping)))
    before = 0
    for tol in (1e-2, 1e-3, 1e-4, 1e-5):
        found = form.ppr(*matrix, reset, WEIGHT, damping, tol)
        error = np.abs(found.scores - wanted).sum(axis=0)
        assert error.max() < tol
        assert error.max() > tol / 1e5  # not many more steps than it takes
        assert found.n_iter >= before
        before = found.n_iter


def test_the_number_of_steps_is_fixed_and_half_of_the_plain_one():
    assert len(chebyshev(0.6, 1e-5, halved=True)) == 8
    assert len(chebyshev(0.6, 1e-5, halved=False)) == 16
    assert len(chebyshev(0.0, 1e-5, halved=True)) == 1


def test_mass_is_kept_and_empty_resets_stay_empty(kernel, rng):
    matrix = graph(rng, 50, 30, 100, silent=20)
    reset = resets(rng, 80, 6)
    reset[:, 2] = 0
    scores = kernel("ppr", *matrix, reset, WEIGHT, 0.85, TOL).scores
    assert scores.sum(axis=0) == pytest.approx([1, 1, 0, 1, 1, 1], abs=1e-6)
    assert not scores[:, 2].any()
    assert (scores >= -1e-9).all()


def test_all_mass_on_dangling_nodes_stays_there(kernel, rng):
    matrix = graph(rng, 30, 20, 60, silent=5)
    reset = np.zeros((50, 2), np.float32)
    reset[[0, 3], 0] = 0.25, 0.75
    reset[[1, 20], 1] = 0.5
    scores = kernel("ppr", *matrix, reset, WEIGHT, DAMPING, TOL).scores
    assert_allclose(scores[:, 0], reset[:, 0], rtol=1e-6)
    # 0.4 of the mass outside stays where it starts or comes back; the dangling node keeps all.
    assert scores[1, 1] == pytest.approx(0.5 * 0.4 / (1 - 0.6 * 0.5), rel=1e-5)


def test_residual_reports_convergence(kernel, rng):
    matrix, reset = graph(rng, 80, 40, 400), resets(rng, 120, 3)
    early = kernel("ppr", *matrix, reset, WEIGHT, DAMPING, 0.5).residual
    late = kernel("ppr", *matrix, reset, WEIGHT, DAMPING, 1e-7).residual
    assert early > 1e-3
    assert late < 1e-6


@pytest.mark.parametrize("b", [2, 3, 4, 5, 15, 16, 17, 20, 32, 33, 64, 65, 100])
def test_a_column_alone_has_the_bits_it_has_in_a_batch(compiled, rng, b):
    matrix = graph(rng, 200, 90, 1900, silent=11, hub=True)
    reset = resets(rng, 290, b)
    together = compiled("ppr", *matrix, reset, WEIGHT, DAMPING, TOL).scores
    for j in {0, b // 2, b - 1}:
        alone = compiled("ppr", *matrix, reset[:, j : j + 1], WEIGHT, DAMPING, TOL).scores
        assert_array_equal(alone[:, 0], together[:, j])


@pytest.mark.parametrize("n_threads", [1, 2, 8])
def test_threads_change_no_bit(rng, n_threads):
    matrix, reset = graph(rng, 400, 150, 3000, hub=True), resets(rng, 550, 150)
    alone = ppr_cpu.ppr(*matrix, reset, WEIGHT, DAMPING, TOL)
    plan = ppr_cpu.prepare(*matrix, WEIGHT, DAMPING)
    with ThreadPoolExecutor(n_threads) as pool:
        found = ppr_cpu.ppr(*matrix, reset, WEIGHT, DAMPING, TOL, plan=plan, pool=pool)
        assert_array_equal(found.scores, alone.scores)
        assert found.residual == alone.residual
        reset[:, 140] = 0.5
        with pytest.raises(InvalidInputError, match="in column 140"):
            ppr_cpu.ppr(*matrix, reset, WEIGHT, DAMPING, TOL, pool=pool)


def test_scores_do_not_depend_on_the_order_of_rows(kernel, rng):
    """Sessions one after another, or turn by turn in turns; entities by any numbers."""
    matrix = graph(rng, 60, 30, 200, sessions=4)
    previous, indptr, entity, weight, _ = matrix
    following = {int(p): t for t, p in enumerate(previous) if p >= 0}
    order = []
    for t in np.flatnonzero(previous < 0).tolist():
        while t is not None:
            order.append(t)
            t = following.get(t)
    assert order != sorted(order)
    place, name = np.argsort(order), rng.permutation(30)
    B = sp.csr_matrix((weight, name[entity], indptr), shape=(60, 30))[order]
    moved = np.where(previous[order] >= 0, place[previous[order]], -1).astype(np.int32)
    other = with_degrees(moved, B.indptr, B.indices.astype(np.int32), B.data, 30)
    reset = resets(rng, 90, 3)
    rows = np.concatenate([order, 60 + np.argsort(name)])
    first = kernel("ppr", *matrix, reset, WEIGHT, DAMPING, TOL).scores
    second = kernel("ppr", *other, reset[rows], WEIGHT, DAMPING, TOL).scores
    assert_allclose(second, first[rows], rtol=1e-4, atol=1e-8)


def packed_case(rng):
    """Memories of several sizes: one is empty, one is a single turn, two have other questions."""
    sizes = ((30, 20, 90, 3), (0, 0, 0, 2), (1, 0, 0, 1), (300, 40, 3000, 5), (0, 2, 0, 1))
    graphs = [graph(rng, n, m, k, silent=n // 10, hub=True) for n, m, k, _ in sizes]
    asked = [resets(rng, n + m, b) if n + m else np.zeros((0, b), np.float32)
             for n, m, _, b in sizes]  # fmt: skip
    return graphs, asked


@pytest.mark.parametrize("form", [ppr_ref, ppr_cpu, ppr_gpu, ppr_torch])
def test_packed_memories_score_as_each_alone(form, rng):
    graphs, asked = packed_case(rng)
    packed = pack(graphs)
    reset = packed.place(asked)
    options = {"device": "cpu"} if form is ppr_torch else {}
    result = form.ppr(
        *packed[:5], reset, WEIGHT, DAMPING, TOL, offsets=packed.offsets, **options
    )  # fmt: skip
    for matrix, own, found in zip(graphs, asked, packed.split(result.scores), strict=True):
        alone = form.ppr(*matrix, own, WEIGHT, DAMPING, TOL, **options).scores
        if form is ppr_cpu:
            assert_array_equal(found[:, : own.shape[1]], alone)
        else:
            assert_allclose(found[:, : own.shape[1]], alone, rtol=1e-5, atol=1e-7)
        assert not found[:, own.shape[1] :].any()


def test_memories_are_added_up_in_parts(rng):
    """More nodes than a part has, and memories without any."""
    sizes = ((3, 0), (0, 0), (300, 200), (0, 129), (1, 0), (128, 256))
    offsets = np.cumsum([(0, 0), *sizes], axis=0)
    n, m = offsets[-1]
    memories = ppr_gpu.memories(np, sp, offsets)
    values = rng.random((n + m, 3), "f4")
    turns, entities = (np.repeat(np.arange(6), column) for column in np.array(sizes).T)
    assert_array_equal(memories.of, np.concatenate([turns, entities]))
    wanted = np.zeros((6, 3))
    np.add.at(wanted, memories.of, values)
    assert_allclose(memories.sums(values), wanted, rtol=1e-13)
    assert memories.sums(values)[1].tolist() == [0, 0, 0]
    assert len(memories.parts.indptr) == 1 + 1 + 3 + 2 + 2 + 1 + 1 + 2
    for whole in ([(0, 0), (5, 3)], [(0, 0)], [(0, 0), (0, 0), (0, 0)]):
        assert ppr_gpu.memories(np, sp, np.array(whole)) is None


def test_packed_memories_of_many_windows_have_the_bits_they_have_alone(rng):
    """Windows and slices of the host's plan go across the memories' bounds."""
    sizes = ((700, 300, 4000, 90), (900, 500, 9000, 2), (1300, 700, 6000, 400))
    graphs = [graph(rng, n, m, k, sessions=s, hub=s == 2) for n, m, k, s in sizes]
    for b in (1, 5):
        asked = [resets(rng, nodes(matrix), b, 40) for matrix in graphs]
        packed = pack(graphs)
        result = ppr_cpu.ppr(
            *packed[:5], packed.place(asked), WEIGHT, DAMPING, TOL, offsets=packed.offsets
        )
        for matrix, own, found in zip(graphs, asked, packed.split(result.scores), strict=True):
            assert_array_equal(found, ppr_cpu.ppr(*matrix, own, WEIGHT, DAMPING, TOL).scores)


@pytest.mark.parametrize("form", [ppr_cpu, ppr_gpu])
def test_one_session_of_a_hundred_thousand_turns_and_a_turn_of_many_names(form, rng):
    n, m = 100_000, 400
    indptr = np.concatenate([np.arange(n), [n + 299]])  # the last turn has 300 mentions
    entity = rng.integers(0, m, n + 299).astype(np.int32)
    previous = np.arange(-1, n - 1, dtype=np.int32)
    weight = (rng.random(n + 299) + 0.5).astype(np.float32)
    matrix = with_degrees(previous, indptr, entity, weight, m)
    reset = resets(rng, n + m, 2)
    reset[:, 1] = 0
    reset[n - 1, 1] = 1
    found = form.ppr(*matrix, reset, WEIGHT, DAMPING, TOL).scores
    wanted = sparse_oracle(matrix, reset, DAMPING, 45)
    assert (np.abs(found - wanted).sum(axis=0) < 3e-6).all()
    if form is ppr_cpu:
        alone = form.ppr(*matrix, reset[:, 1:], WEIGHT, DAMPING, TOL).scores
        assert_array_equal(alone[:, 0], found[:, 1])


def test_packing_nothing_and_offsets_that_do_not_fit(rng):
    assert pack([]).place([]).shape == (0, 0)
    matrix = graph(rng, 5, 3, 9)
    wrong = np.array([[0, 0], [4, 3]])
    for form in (ppr_cpu, ppr_gpu):
        with pytest.raises(InvalidInputError, match=r"offsets must have rows .* to \(5, 3\)"):
            form.ppr(*matrix, resets(rng, 8, 1), WEIGHT, DAMPING, TOL, offsets=wrong)


def test_a_plan_and_a_matrix_are_made_once_and_change_nothing(rng):
    matrix, reset = graph(rng, 90, 60, 300), resets(rng, 150, 3)
    arguments = (*matrix, reset, WEIGHT, DAMPING, TOL)
    plan = ppr_cpu.prepare(*matrix, WEIGHT, DAMPING)
    found = ppr_cpu.ppr(*arguments, plan=plan).scores
    assert_array_equal(found, ppr_cpu.ppr(*arguments).scores)
    kept = ppr_gpu.transition(*matrix, WEIGHT)
    assert_array_equal(ppr_gpu.ppr(*arguments, matrix=kept).scores, ppr_gpu.ppr(*arguments).scores)
    with pytest.raises(InvalidInputError, match=r"plan must be prepared for damping 0.5, got .* 0"):
        ppr_cpu.ppr(*matrix, reset, WEIGHT, 0.5, TOL, plan=plan)


@pytest.mark.parametrize(("n", "m", "b"), [(0, 0, 0), (0, 0, 3), (2, 2, 0)])
def test_empty_memory_or_no_question(kernel, n, m, b):
    matrix = with_degrees(
        np.full(n, -1, np.int32), np.zeros(n + 1, int), int32(), np.empty(0, np.float32), m
    )
    result = kernel("ppr", *matrix, np.zeros((n + m, b), np.float32), WEIGHT, DAMPING, TOL)
    assert result.scores.shape == (n + m, b)
    assert result.residual == 0


@pytest.mark.parametrize(
    ("position", "value", "message"),
    [
        (0, int32(-1, 1), "previous must be an earlier row or -1, got 1 for turn 1"),
        (0, int32(-2, 0), "previous must be an earlier row or -1, got -2 for turn 0"),
        (1, np.array([0, 5, 2]), "mention_indptr must .*not decrease|must not decrease"),
        (1, np.array([0, 1, 5]), r"mention_indptr must run from 0 to len\(mention"),
        (1, np.array([0, 2]), r"mention_indptr must have shape \(3,\), got \(2,\)"),
        (2, int32(0, 7), r"mention_(entity|indices) must be in \[0, 2\)"),
        (2, int32(0, -1), r"mention_(entity|indices) must be in \[0, 2\)"),
        (2, np.array([0.0, 1.0]), "mention_entity must be int32, got float64"),
        (3, np.ones(1, np.float32), r"mention_weight must have shape \(2,\), got \(1,\)"),
        (3, np.array([1, -1], np.float32), "mention_weight.* must be finite and not negative"),
        (4, np.array([1, 1, np.nan, 1], np.float32), "inverse_degree must be finite and not neg"),
        (4, np.ones(1, np.float32), "inverse_degree must have a row for each of the 2 turns"),
        (5, np.array([[0.5], [0.7], [0], [0]], np.float32), "got sum 1.2 in column 0"),
        (5, np.array([[1.5], [-0.5], [0], [0]], np.float32), "non-negative"),
        (5, np.array([[np.nan], [1], [0], [0]], np.float32), "got sum nan in column 0"),
        (5, np.ones((3, 1), np.float32), r"reset must have shape \(4, 1\), got \(3, 1\)"),
        (6, -1.0, r"adjacency_weight must be in \[0, 1e\+06\], got -1.0"),
        (7, 1.0, r"damping must be in \[0, 1\), got 1.0; 0.6 is the paper's value"),
        (8, 0.0, r"tol must be in \[1e-12, 1\], got 0.0"),
    ],
)
def test_bad_arguments_are_named(kernel, position, value, message):
    arguments = [
        int32(-1, 0), np.array([0, 1, 2]), int32(1, 0), np.ones(2, np.float32),
        np.full(4, 0.5, np.float32), np.array([[1], [0], [0], [0]], np.float32), 1.0, 0.6, 1e-5,
    ]  # fmt: skip
    arguments[position] = value
    with pytest.raises(InvalidInputError, match=message):
        kernel("ppr", *arguments)


def test_two_turns_cannot_follow_one(kernel):
    matrix = with_degrees(int32(-1, 0, 0), np.zeros(4, int), int32(), np.empty(0, np.float32), 0)
    reset = np.full((3, 1), 1 / 3, np.float32)
    with pytest.raises(InvalidInputError, match="previous must name each turn at most once"):
        kernel("ppr", *matrix, reset, WEIGHT, DAMPING, TOL)


SIMULATED = """
import sys
import numpy as np
from zeromem.kernels import _ppr_cuda, ppr_gpu

matrix = [part for _, part in sorted(np.load(sys.argv[1]).items())]
*graph, reset, other = matrix
if sys.argv[2] == "perturbed":
    _ppr_cuda.hubs = lambda xp, matrix, inner=_ppr_cuda.hubs: inner(xp, matrix)._replace(
        hub_row=np.empty(0, np.int32))
loops = _ppr_cuda.Loops(np, ppr_gpu.transition(*graph, 0.3))
found = [ppr_gpu.ppr(*graph, r, 0.3, 0.6, 1e-4, loops=loops) for r in (reset, other, reset)]
np.savez(sys.argv[1], *[result.scores for result in found])
"""


@pytest.mark.parametrize("what", ["sound", "perturbed"])
def test_the_device_kernel_in_numbas_simulator(rng, tmp_path, what):
    """Every line of the CUDA kernels, thread by thread, on a machine without a device."""
    matrix = graph(rng, 40, 12, 420, silent=2, hub=True)
    asked = [resets(rng, 52, 2), resets(rng, 52, 3)]
    counts = np.bincount(matrix[2])
    assert counts.max() > ppr_gpu.PART  # a hub with several parts is among the rows
    file = tmp_path / "case.npz"
    np.savez(file, *matrix, *asked)
    (package,) = find_spec("zeromem").submodule_search_locations
    path = os.pathsep.join([str(Path(package).parent), *filter(None, sys.path)])
    subprocess.run(
        [sys.executable, "-c", SIMULATED, str(file), what],
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1", "PYTHONPATH": path},
        check=True, timeout=300,
    )  # fmt: skip
    found = [part for _, part in sorted(np.load(file).items())]
    assert_array_equal(found[2], found[0])  # the buffers are used again
    errors = []
    for scores, reset in zip(found, asked, strict=False):
        wanted = ppr_ref.ppr(*matrix, reset, WEIGHT, DAMPING, 1e-10).scores
        errors.append(np.abs(scores - wanted).sum(axis=0).max())
    assert bool(max(errors) < 1e-4) is (what == "sound"), errors
