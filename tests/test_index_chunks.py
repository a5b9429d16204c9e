"""Vectors that grow by sharing: any history of additions reads as the rows one after another."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from zeromem.errors import InvalidInputError
from zeromem.index.chunks import CHUNK, Chunks
from zeromem.kernels._half import PART_ROWS

DIM = 3


def rows_from(first, count, dim=DIM):
    """Rows that differ from one another: row i holds i split in two and its place in the row."""
    number = np.arange(first, first + count)
    rows = np.stack([number % 2048, number // 2048] + [number * 0 + c for c in range(dim - 2)], 1)
    return rows.astype(np.float16)


def check_form(chunks, expected):
    """The layout that compiled kernels rely on."""
    assert len(chunks) == len(expected)
    assert chunks.dim == expected.shape[1]
    assert_array_equal(chunks.array(), expected)
    assert [len(part) for part in chunks.parts[:-1]] == [CHUNK] * (len(chunks.parts) - 1)
    assert all(1 <= len(part) <= CHUNK for part in chunks.parts)
    for part, address in zip(chunks.parts, chunks.addresses.tolist(), strict=True):
        assert part.flags.c_contiguous
        assert not part.flags.writeable
        assert part.ctypes.data == address


def test_kernels_count_parts_alike():
    assert CHUNK == PART_ROWS


sizes = st.one_of(
    st.integers(0, 5), st.sampled_from([63, 64, 65, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 7])
)


@given(
    start=sizes,
    steps=st.lists(st.tuples(st.integers(0, 30), sizes), max_size=8),
    mapped=st.booleans(),
)
def test_any_history_reads_as_concatenation(start, steps, mapped):
    first = rows_from(0, start)
    if mapped:
        first.flags.writeable = False
    values, contents = [Chunks.of(first)], [first]
    used = start
    for which, count in steps:
        which %= len(values)
        more = rows_from(used, count)
        used += count
        contents.append(np.concatenate([contents[which], more]))
        values.append(values[which].extended(more))
        more[:] = -1  # the rows were copied
    for value, content in zip(values, contents, strict=True):
        check_form(value, content)


def test_full_parts_and_the_newest_open_part_are_shared():
    old = Chunks.of(rows_from(0, CHUNK)).extended(rows_from(CHUNK, 10))
    new = old.extended(rows_from(CHUNK + 10, 5))
    assert new.parts[0] is old.parts[0]
    assert new.addresses.tolist() == old.addresses.tolist()
    other = old.extended(rows_from(CHUNK + 15, 5))  # old is no longer the newest
    assert other.parts[0] is old.parts[0]
    assert other.addresses[1] != old.addresses[1]
    assert_array_equal(old.array(), rows_from(0, CHUNK + 10))
    assert_array_equal(new.array(), rows_from(0, CHUNK + 15))
    assert_array_equal(other.array()[-5:], rows_from(CHUNK + 15, 5))


def test_rows_added_one_by_one_are_seldom_copied():
    chunks = Chunks.of(np.empty((0, DIM), np.float16))
    places = set()
    for i in range(2000):
        chunks = chunks.extended(rows_from(i, 1))
        places.add(int(chunks.addresses[0]))
    assert len(places) <= 6  # 64, 128, ... 2048
    check_form(chunks, rows_from(0, 2000))


def test_read_only_arrays_are_views_and_others_copies(tmp_path):
    rows = rows_from(0, CHUNK + 3)
    copied = Chunks.of(rows)
    expected = rows.copy()
    rows[:] = 0
    assert_array_equal(copied.array(), expected)
    np.save(tmp_path / "v.npy", expected)
    mapped = np.load(tmp_path / "v.npy", mmap_mode="r")
    chunks = Chunks.of(mapped)
    assert all(np.may_share_memory(part, mapped) for part in chunks.parts)
    longer = chunks.extended(rows_from(CHUNK + 3, 2))
    assert np.may_share_memory(longer.parts[0], mapped)
    check_form(chunks, expected)
    check_form(longer, rows_from(0, CHUNK + 5))
    at_odd_byte = np.frombuffer(b"x" + expected.tobytes(), np.uint8)[1:].view(np.float16)
    assert not at_odd_byte.flags.aligned
    check_form(Chunks.of(at_odd_byte.reshape(expected.shape)), expected)
    check_form(Chunks.of(np.asfortranarray(expected)), expected)


def test_threads_that_extend_one_value_do_not_meet():
    base = Chunks.of(rows_from(0, 100)).extended(rows_from(100, 1))
    added = [rows_from(1000 * i, 40) for i in range(1, 65)]
    with ThreadPoolExecutor(8) as pool:
        values = list(pool.map(lambda more: base.extended(more).extended(more), added))
    for value, more in zip(values, added, strict=True):
        assert_array_equal(value.array(), np.concatenate([rows_from(0, 101), more, more]))
    assert_array_equal(base.array(), rows_from(0, 101))


@pytest.mark.parametrize("dim", [1, 3, 16, 20, 384])
def test_take_is_exact(rng, dim):
    array = rng.integers(0, 1 << 16, (300, dim)).astype(np.uint16).view(np.float16)
    rows = rng.integers(0, 300, 500)
    assert_array_equal(Chunks.of(array).take(rows), array.astype(np.float32)[rows])


def test_take():
    chunks = Chunks.of(rows_from(0, CHUNK)).extended(rows_from(CHUNK, CHUNK + 50))
    rows = np.array([2 * CHUNK + 49, 0, CHUNK, CHUNK - 1, 0, 5])
    found = chunks.take(rows)
    assert found.dtype == np.float32
    assert_array_equal(found, chunks.array()[rows])
    assert chunks.take(np.empty(0, int)).shape == (0, DIM)
    for outside in (-1, 2 * CHUNK + 50):
        with pytest.raises(InvalidInputError, match=rf"rows must be in \[0, .*\), got {outside}"):
            chunks.take([3, outside])


def test_bad_arguments_are_named():
    chunks = Chunks.of(rows_from(0, 4))
    with pytest.raises(InvalidInputError, match="rows must be float16, got float32; cast it"):
        chunks.extended(np.zeros((1, DIM), np.float32))
    with pytest.raises(InvalidInputError, match=r"rows must have shape \(2, 3\), got \(2, 4\)"):
        chunks.extended(np.zeros((2, 4), np.float16))
    with pytest.raises(InvalidInputError, match="array must have 2 dimension"):
        Chunks.of(np.zeros(4, np.float16))
    with pytest.raises(InvalidInputError, match="rows must be int64, got float64"):
        chunks.take([0.5])
