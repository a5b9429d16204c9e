"""Inner products: every form against the oracle."""

import os
import platform
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numba import njit, types
from numpy.testing import assert_allclose, assert_array_equal

from zeromem.errors import InvalidInputError
from zeromem.index.chunks import CHUNK, Chunks
from zeromem.kernels import dense_cpu
from zeromem.kernels._half import _widen_by_parts, row_dot
from zeromem.kernels._vector import HALF, instruction, load, store, vector


def unit(rng, n, dim):
    rows = rng.normal(size=(n, dim))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def halves(rng, n, dim):
    return Chunks.of(unit(rng, n, dim).astype(np.float16))


def dense_cases(rng):
    shapes = ((1, 1, 1), (33, 1, 384), (100, 5, 100), (65, 3, 7), (31, 40, 384), (8200, 2, 16))
    for n, b, dim in shapes:
        yield halves(rng, n, dim), unit(rng, b, dim)


def check_dense(run, oracle, rng):
    for vectors, queries in dense_cases(rng):
        found = run("dense", vectors, queries)
        assert found.dtype == np.float32
        assert_allclose(found, oracle("dense", vectors, queries), rtol=0, atol=1e-6)


def test_dense_parity(kernel, oracle, rng):
    check_dense(kernel, oracle, rng)


@pytest.mark.parametrize("what", ["scale", "last element", "order of queries", "half queries"])
def test_dense_parity_fails_when_the_kernel_is_perturbed(kernel, oracle, rng, what):
    def perturbed(operation, vectors, queries):
        if what == "scale":
            queries = queries * np.float32(1.0001)
        elif what == "last element":
            queries = queries.copy()
            queries[:, -1] = 0
        elif what == "half queries":
            queries = queries.astype(np.float16).astype(np.float32)
        else:
            queries = queries[::-1]
        return kernel(operation, vectors, queries)

    with pytest.raises(AssertionError):
        check_dense(perturbed, oracle, rng)


@njit
def dots(addresses, rows, query):
    return [row_dot(addresses, row, query) for row in rows]


def extended(array, cuts):
    """The rows of ``array`` as one value extended at ``cuts``."""
    chunks = Chunks.of(array[:0])
    for first, last in zip([0, *cuts], [*cuts, len(array)], strict=True):
        chunks = chunks.extended(array[first:last])
    return chunks


@pytest.mark.parametrize("dim", [1, 15, 16, 100, 384, 1000, 1024])
def test_dense_cell_depends_on_its_vector_and_query_alone(rng, dim):
    vectors, queries = unit(rng, 301, dim).astype(np.float16), unit(rng, 37, dim)
    together = dense_cpu.scores(Chunks.of(vectors), queries)
    for b in (1, 2, 3, 4, 5, 6, 7, 9):
        for j in (0, 37 - b):
            few = dense_cpu.scores(Chunks.of(vectors), queries[j : j + b])
            assert_array_equal(few, together[j : j + b])
    # At another place, in other parts, shuffled.
    for cut in (1, 2, 3, 150, 297):
        assert_array_equal(dense_cpu.scores(Chunks.of(vectors[cut:]), queries), together[:, cut:])
    assert_array_equal(dense_cpu.scores(extended(vectors, [7, 8, 200]), queries), together)
    order = rng.permutation(301)
    assert_array_equal(dense_cpu.scores(Chunks.of(vectors[order]), queries), together[:, order])
    chunks = Chunks.of(vectors)
    for j in (0, 36):
        assert_array_equal(dots(chunks.addresses, order, queries[j]), together[j, order])


def test_dense_over_several_parts_and_threads(rng):
    vectors, queries = unit(rng, 2 * CHUNK + 77, 48).astype(np.float16), unit(rng, 300, 48)
    chunks = extended(vectors, [CHUNK + 9])  # the parts lie in memory each by itself
    together = dense_cpu.scores(chunks, queries)
    assert_allclose(together, queries @ vectors.astype(np.float32).T, rtol=0, atol=1e-6)
    for start in (0, CHUNK - 100, 2 * CHUNK - 1):  # rows of one part in place of two
        few = Chunks.of(vectors[start : start + 200])
        assert_array_equal(dense_cpu.scores(few, queries[:5]), together[:5, start : start + 200])
    rows = np.array([0, CHUNK - 1, CHUNK, 2 * CHUNK + 76])
    assert_array_equal(dots(chunks.addresses, rows, queries[1]), together[1, rows])
    for n_threads in (1, 2, 8):
        with ThreadPoolExecutor(n_threads) as pool:
            for b in (1, 5, 300):
                assert_array_equal(dense_cpu.scores(chunks, queries[:b], pool), together[:b])


def test_every_half_widens_exactly():
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    for dim in (1, 16):  # on its own, and in a vector of 16
        chunks = Chunks.of(np.repeat(every[:, None], dim, axis=1))
        query = np.zeros((1, dim), np.float32)
        query[0, dim - 1] = 1
        with np.errstate(invalid="ignore"):
            wanted = every.astype(np.float32) + (0 * every.astype(np.float32) if dim > 1 else 0)
        assert_array_equal(dense_cpu.scores(chunks, query)[0], wanted)


@instruction(types.void, types.int64, types.int64)
def widened_by_parts(context, builder, address, out):
    store(builder, _widen_by_parts(builder, load(builder, address, vector(HALF), 2)), out, 4)


@njit
def widen_all(halves, out):
    for i in range(0, len(out), 16):
        widened_by_parts(halves.ctypes.data + 2 * i, out.ctypes.data + 4 * i)


def test_every_half_widens_exactly_without_the_instruction():
    every = np.arange(1 << 16, dtype=np.uint16)
    found = np.zeros(1 << 16, np.float32)
    widen_all(every, found)
    wanted = every.view(np.float16).astype(np.float32)
    assert_array_equal(found, wanted)
    assert_array_equal(np.signbit(found), np.signbit(wanted))


def sample_scores():
    """Scores of all finite halves, with and without lanes to spare."""
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    every = np.where(np.isfinite(every), every, 1).astype(np.float16).reshape(-1, 64)
    queries = np.random.default_rng(1).normal(size=(7, 64)).astype(np.float32)
    few = Chunks.of(np.ascontiguousarray(every[:, :27]))
    found = dense_cpu.scores(Chunks.of(every), queries), dense_cpu.scores(few, queries[:, :27])
    return b"".join(part.tobytes() for part in found)


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="names of x86 machines")
@pytest.mark.parametrize("machine", ["haswell", "nehalem"])
def test_narrower_machines_give_the_same_bits(tmp_path, machine):
    # haswell: 8 lanes. nehalem: 4, and neither fused products nor halves in hardware.
    paths = [os.path.dirname(__file__), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "NUMBA_CACHE_DIR": str(tmp_path),
        "NUMBA_CPU_NAME": machine,
        "NUMBA_CPU_FEATURES": "",
        "PYTHONPATH": os.pathsep.join(paths),
    }
    script = (
        "import sys, test_kernels_dense as here\n"
        "assert not here.dense_cpu._WIDE\n"
        "sys.stdout.buffer.write(here.sample_scores())"
    )
    command = [sys.executable, "-c", script]
    there = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout
    assert there == sample_scores()


@pytest.mark.parametrize(("n", "b", "dim"), [(0, 3, 8), (4, 0, 8), (4, 3, 0), (0, 0, 0)])
def test_dense_of_nothing(kernel, n, b, dim):
    found = kernel("dense", Chunks.of(np.ones((n, dim), np.float16)), np.ones((b, dim), "f4"))
    assert found.shape == (b, n)
    assert not found.any()


def test_dense_reads_memory_maps(kernel, rng, tmp_path):
    vectors, queries = unit(rng, 20, 16).astype(np.float16), unit(rng, 2, 16)
    expected = kernel("dense", Chunks.of(vectors), queries)
    np.save(tmp_path / "v.npy", vectors)
    mapped = np.load(tmp_path / "v.npy", mmap_mode="r")
    assert_array_equal(kernel("dense", Chunks.of(mapped), queries), expected)
    queries.flags.writeable = False
    assert_array_equal(kernel("dense", Chunks.of(vectors), queries), expected)


def test_dense_refuses_what_does_not_fit(kernel):
    vectors, ones = Chunks.of(np.ones((2, 4), np.float16)), np.ones((2, 4), np.float32)
    with pytest.raises(InvalidInputError, match=r"queries must have shape \(2, 4\), got \(2, 3\)"):
        kernel("dense", vectors, ones[:, :3])
    with pytest.raises(InvalidInputError, match="queries must have 2 dimension"):
        kernel("dense", vectors, ones[0])
    with pytest.raises(InvalidInputError, match="queries must be float32, got complex128"):
        kernel("dense", vectors, ones.astype(complex))
