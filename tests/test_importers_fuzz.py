"""Any bytes give traces or an ImportFormatError, in every format."""

import json
import tempfile
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

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
    "timestamp created_at tool_calls function arguments input question_id haystack_sessions "
    "haystack_session_ids haystack_dates has_answer session_id"
)
keys = st.sampled_from(NAMES.split())
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=5),
    max_leaves=25,
)
mutated = values.map(lambda value: json.dumps(value).encode())
bodies = st.binary(max_size=200) | mutated

WELL_FORMED: dict[str, Any] = {
    "jsonl": {
        "id": "a", "text": "I moved.", "role": "user", "speaker": "Ana", "session": "s1",
        "time": "2026-05-03T10:00+02:00", "zone": "Europe/Berlin", "metadata": {"n": [1]},
    },
    "locomo": {
        "sample_id": "conv-1",
        "conversation": {
            "speaker_a": "Ana", "session_1_date_time": "1:56 pm on 8 May, 2023",
            "session_1": [
                {"speaker": "Ana", "dia_id": "D1:1", "text": "Hello!"},
                {"speaker": "Ben", "dia_id": "D1:2", "text": "Hi", "blip_caption": "a cat"},
            ],
        },
    },
    "beam": {
        "chat_id": "c1",
        "messages": [
            {"id": "1", "role": "user", "text": "I moved.", "time_anchor": "March-15-2024"},
            {"id": "2", "role": "assistant", "text": "Where to?", "session": "s1"},
        ],
    },
    "longmemeval": {
        "question_id": "q1",
        "haystack_sessions": [
            [{"role": "user", "content": "I moved.", "has_answer": True},
             {"role": "assistant", "content": "Where to?"}],
            [{"role": "user", "content": "To Lisbon."}],
        ],
        "haystack_session_ids": ["x", "x"],
        "haystack_dates": ["2023/05/30 (Tue) 23:40", "2023-06-01"],
    },
    "chat": {
        "session_id": "s1",
        "messages": [
            {"role": "user", "name": "Ana", "content": "I moved.", "timestamp": 1714730000},
            {"role": "assistant", "content": [
                {"type": "text", "text": "Where to?"},
                {"type": "tool_use", "name": "map", "input": {"near": "river"}},
            ], "tool_calls": [{"function": {"name": "map", "arguments": "{}"}}]},
        ],
    },
}  # fmt: skip
"""A record of each format."""


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) within a value, in depth first order."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if _is_list(value) else []
    return [place for k in keys for place in ((value, k), *places(value[k]))]


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


@st.composite
def damaged(draw: st.DrawFn, formats: Sequence[str] = FORMATS) -> tuple[str, bytes]:
    """Records of a format; values of the last are left out, doubled or replaced by others."""
    format = draw(st.sampled_from(formats))
    records = []
    for left in reversed(range(draw(st.integers(1, 3)))):
        record = deepcopy(WELL_FORMED[format])
        if format == "jsonl" and left:
            record |= {"id": f"before {left}"}
        for _ in range(0 if left else draw(st.integers(0, 3))):
            if not (known := places(record)):
                break
            container, key = known[draw(st.integers(0, len(known) - 1))]
            match draw(st.sampled_from(("replace", "replace", "replace", "drop", "double"))):
                case "replace":
                    container[key] = draw(values)
                case "drop":
                    del container[key]
                case _:
                    container[key] = [container[key], deepcopy(container[key])]
        records.append(record)
    if draw(st.booleans()):
        return format, json.dumps(records).encode()
    return format, "\n".join(map(json.dumps, records)).encode()


structured = damaged().map(lambda given: given[1])


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
@given(data=bodies, format=st.sampled_from([None, *FORMATS]))
def test_any_bytes(data, format):
    attempt(data, format)


@settings(deadline=None, max_examples=150)
@given(records=st.lists(st.dictionaries(keys, values, max_size=6), max_size=3),
       format=st.sampled_from([None, *FORMATS]))  # fmt: skip
def test_records_with_the_right_names_and_wrong_values(records, format):
    attempt("\n".join(map(json.dumps, records)).encode(), format)


@settings(deadline=None, max_examples=400)
@given(given=damaged(), told=st.booleans())
def test_records_of_each_format_with_some_damage(given, told):
    format, data = given
    attempt(data, format if told else None)


@pytest.mark.parametrize("format", FORMATS)
def test_what_is_damaged_was_well_formed(format, tmp_path):
    (tmp_path / "file").write_text(json.dumps(WELL_FORMED[format]))
    (found,) = conversations(tmp_path / "file")
    assert len(list(found.traces)) in (1, 2, 3)


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
