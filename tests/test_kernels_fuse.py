"""Fusion (eq. 12-13) against the oracle, and by hand."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from zeromem.errors import InvalidInputError


def view(rng, sizes, n, *, distinct):
    rows = [rng.permutation(n)[:size] for size in sizes]
    flat = np.concatenate(rows).astype(np.int32) if sizes else np.empty(0, np.int32)
    scores = rng.normal(size=len(flat)) if distinct else rng.integers(0, 3, len(flat))
    return np.cumsum([0, *sizes]).astype(np.int64), flat, scores.astype(np.float32)


def cases(rng):
    for distinct in (True, False):
        for graph, hier in (
            ((5, 0, 20, 1), (5, 3, 30, 0)),
            ((0, 0), (0, 0)),
            ((), ()),
            ((1,), (1,)),
            ((40,), (40,)),
        ):
            weight = rng.choice([0.6, 0.4, 0.0, 1.0, 0.5], len(graph)).astype(np.float32)
            views = (view(rng, sizes, 40, distinct=distinct) for sizes in (graph, hier))
            yield *next(views), *next(views), weight


def check_parity(run, oracle, rng):
    for arguments in cases(rng):
        found, wanted = run("fuse", *arguments), oracle("fuse", *arguments)
        assert_array_equal(found.indptr, wanted.indptr)
        assert_array_equal(found.rows, wanted.rows)
        for name in ("fused", "graph_normalized", "hier_normalized"):
            assert getattr(found, name).dtype == np.float32
            assert_allclose(getattr(found, name), getattr(wanted, name), rtol=1e-5, atol=1e-7)


def test_parity(compiled, oracle, rng):
    check_parity(compiled, oracle, rng)


@pytest.mark.parametrize("what", ["weight", "views", "ties", "scale"])
def test_parity_fails_when_the_kernel_is_perturbed(compiled, oracle, rng, what):
    def perturbed(operation, *arguments):
        graph, hier, weight = arguments[:3], arguments[3:6], arguments[6]
        if what == "weight":
            weight = weight * np.float32(0.999)
        elif what == "views":
            graph, hier = hier, graph
        elif what == "scale":
            return compiled(operation, *graph, *hier, weight)._replace(
                fused=compiled(operation, *graph, *hier, weight).fused * np.float32(1.0001)
            )
        else:  # the later row of a tie
            graph = (graph[0], 39 - graph[1], graph[2])
            hier = (hier[0], 39 - hier[1], hier[2])
            found = compiled(operation, *graph, *hier, weight)
            return found._replace(rows=39 - found.rows)
        return compiled(operation, *graph, *hier, weight)

    with pytest.raises(AssertionError):
        check_parity(perturbed, oracle, rng)


def test_by_hand(compiled):
    graph = (np.array([0, 3]), np.array([9, 4, 7], np.int32), np.array([2, 1, 1.5], np.float32))
    hier = (np.array([0, 2]), np.array([4, 1], np.int32), np.array([-3, -3], np.float32))
    found = compiled("fuse", *graph, *hier, np.array([0.6], np.float32))
    # eq. 12: graph gives 9 -> 1, 7 -> 0.5, 4 -> 0 (its least is present, but 0); hier is flat -> 1.
    assert found.indptr.tolist() == [0, 4]
    assert found.rows.tolist() == [9, 1, 4, 7]  # 1 and 4 tie at 0.4: the lower row first
    assert_allclose(found.fused, [0.6, 0.4, 0.4, 0.3], rtol=1e-6)
    assert_allclose(found.graph_normalized, [1, 0, 0, 0.5])
    assert_allclose(found.hier_normalized, [0, 1, 1, 0])


@pytest.mark.parametrize(
    ("position", "value", "message"),
    [
        (0, np.array([0, 1]), "graph_indptr must .*, got 0 to 1"),
        (1, np.array([3, 3], np.int32), "must name a row once, question 0 repeats one"),
        (2, np.array([1, np.nan], np.float32), "graph_scores must be finite, got nan for row 4"),
        (5, np.ones(1, np.float32), r"hier_scores must have shape \(2,\), got \(1,\)"),
        (6, np.array([1.5], np.float32), r"graph_weight must be in \[0, 1\], got \[1.5\]"),
        (6, np.array([0.5, 0.5], np.float32), r"graph_indptr must have shape \(3,\), got \(2,\)"),
    ],
)
def test_bad_arguments_are_named(compiled, position, value, message):
    one = (np.array([0, 2]), np.array([3, 4], np.int32), np.array([1, 2], np.float32))
    arguments = [*one, *one, np.array([0.5], np.float32)]
    arguments[position] = value
    with pytest.raises(InvalidInputError, match=message):
        compiled("fuse", *arguments)


def test_what_differs_by_rounding_alone_counts_as_equal(compiled, oracle):
    """Two turns, each ahead in one of two signals: their sums are equal but for rounding."""
    rows, indptr = np.array([4, 7], np.int32), np.array([0, 2])
    equal = np.array([np.nextafter(np.float32(1), np.float32(0)), 1], np.float32)
    apart = np.array([0.2, 0.3], np.float32)
    for run in (compiled, oracle):
        found = run("fuse", indptr, rows, equal, indptr, rows, apart, np.array([0.6], np.float32))
        assert found.rows.tolist() == [7, 4]
        assert found.graph_normalized.tolist() == [1, 1]
        assert found.hier_normalized.tolist() == [1, 0]
