"""Arrays are read element by element exactly as json.loads reads them, whatever the chunks."""

import io
import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from zeromem.errors import ImportFormatError
from zeromem.importers import detect
from zeromem.importers.arrays import elements
from zeromem.importers.records import records

leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=30)
)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4)
    ),
    max_leaves=20,
)


PATCHES = [b"", b",", b"]", b"[", b"{", b'"', b"\\", b"1", b" ", b"\xff", b"NaN", b"\n"]


def read(data, chunk=1 << 20):
    return [value for _, value in elements(io.BytesIO(data), chunk)]


def oracle(data):
    def refuse(name):
        raise ValueError(name)

    whole = json.loads(data.decode(), parse_constant=refuse)
    if not isinstance(whole, list):
        raise ValueError("no array")
    return whole


@settings(deadline=None, max_examples=300)
@given(
    value=st.lists(values, max_size=5),
    chunk=st.integers(1, 40),
    indent=st.sampled_from([None, 0, 3, 40]),
    ascii=st.booleans(),
)
@example(value=[1.5e10, -3, {"a": 12}], chunk=1, indent=None, ascii=True)
@example(value=[{"a": {"b": 1}, "c": 2}], chunk=7, indent=40, ascii=True)
def test_any_array_in_any_chunks(value, chunk, indent, ascii):
    data = json.dumps(value, indent=indent, ensure_ascii=ascii).encode("utf-8", "surrogatepass")
    try:
        data.decode()
    except UnicodeDecodeError:
        return
    assert read(data, chunk) == value


@settings(deadline=None, max_examples=300)
@given(
    value=st.lists(values, max_size=3),
    chunk=st.integers(1, 40),
    where=st.floats(0, 1),
    patch=st.sampled_from(
        [b"", b",", b"]", b"[", b"{", b'"', b"\\", b"1", b" ", b"\xff", b"NaN", b"\n"]
    ),
    cut=st.integers(0, 3),
)
def test_damaged_arrays_fail_where_json_loads_fails(value, chunk, where, patch, cut):
    data = json.dumps(value).encode()
    at = int(where * len(data))
    data = data[:at] + patch + data[at + cut :]
    try:
        expected = oracle(data)
    except ValueError:
        with pytest.raises(ImportFormatError, match=r"record \d+: not JSON: "):
            read(data, chunk)
    else:
        assert read(data, chunk) == expected


def test_elements_before_a_malformed_one_are_read_and_it_is_named():
    found = elements(io.BytesIO(b'[{"a": 1}, {"b" 2}]'))
    assert next(found) == ("record 1", {"a": 1})
    with pytest.raises(
        ImportFormatError, match=r"record 2: not JSON: .*\(character 16 of the file"
    ):
        next(found)


def test_no_more_is_held_than_an_element_and_a_chunk():
    class Counting(io.BytesIO):
        done = 0

        def read(self, n=-1):
            data = super().read(n)
            self.done += len(data)
            return data

    element = json.dumps({"text": "x" * 1000})
    file = Counting(f"[{','.join([element] * 1000)}]".encode())
    next(elements(file, chunk=4096))
    assert file.done <= 2 * 4096


def test_an_array_is_told_by_its_first_byte(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b'\xef\xbb\xbf \n\n [{"text": "a"},\n{"text": "b"}, {]')
    assert detect(path) == "jsonl"  # the first record suffices
    found = records(path)
    assert [next(found), next(found)] == [("record 1", {"text": "a"}), ("record 2", {"text": "b"})]
    with pytest.raises(ImportFormatError, match="record 3"):
        next(found)
