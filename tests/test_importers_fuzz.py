"""Any bytes give traces or an ImportFormatError, in every format."""

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zeromem.errors import ImportFormatError
from zeromem.importers import FORMATS, conversations, load, to_json_line
from zeromem.types import ROLES, Trace

leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=True)
    | st.text(max_size=8)
    | st.sampled_from(["user", "tool", "March-15-2024", "1:56 pm on 8 May, 2023", "2026-05"])
)
NAMES = (
    "text id role speaker session time zone title source metadata conversation session_1 sample_id "
    "session_1_date_time dia_id blip_caption messages chat_id time_anchor content name type "
    "timestamp created_at tool_calls function arguments input"
)
keys = st.sampled_from(NAMES.split())
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=5),
    max_leaves=25,
)
mutated = values.map(lambda value: json.dumps(value).encode())


def attempt(data: bytes, format: str | None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        path.write_bytes(data)
        try:
            for conversation in conversations(path, format):
                for trace in conversation.traces:
                    assert isinstance(trace, Trace)
                    assert isinstance(trace.text, str)
                    assert trace.role in ROLES
        except ImportFormatError:
            pass


@settings(deadline=None, max_examples=150)
@given(data=st.binary(max_size=200) | mutated, format=st.sampled_from([None, *FORMATS]))
def test_any_bytes(data, format):
    attempt(data, format)


@settings(deadline=None, max_examples=150)
@given(records=st.lists(st.dictionaries(keys, values, max_size=6), max_size=3),
       format=st.sampled_from([None, *FORMATS]))  # fmt: skip
def test_records_with_the_right_names_and_wrong_values(records, format):
    attempt("\n".join(map(json.dumps, records)).encode(), format)


@pytest.mark.parametrize("format", [None, *FORMATS])
def test_deep_nesting(format):
    deep = "[" * 900 + "]" * 900
    for data in (
        "[" * 100_000,
        '{"text": "a", "metadata": {"x": ' + deep + "}}",
        '{"role": "user", "content": '
        + '[{"type": "tool_result", "content": ' * 400
        + '"a"'
        + "}]" * 400
        + "}",
        '{"role": "user", "content": [{"type": "tool_use", "input": ' + deep + "}]}",
        '{"text": "a", "id": ' + "9" * 5000 + "}",
    ):
        attempt(data.encode(), format)


@settings(deadline=None, max_examples=50)
@given(text=st.text(st.characters()), name=st.none() | st.text(st.characters(), max_size=5))
def test_round_trip_of_any_text(text, name):
    trace = Trace(text, id=name, speaker=name, session=name, title=name, source=name or None)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        path.write_text(to_json_line(trace) + "\n", encoding="utf-8", newline="")
        assert list(load(path, "jsonl")) == [trace]
