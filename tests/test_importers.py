"""Importers: every format's fields arrive, and a malformed record is named."""

import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from support import open_memory

from zeromem.errors import ImportFormatError, InvalidInputError
from zeromem.importers import conversations, detect, load, to_json_line
from zeromem.times import PRECISIONS, EventTime
from zeromem.types import Trace

DATA = Path(__file__).parent / "data"
BERLIN = ZoneInfo("Europe/Berlin")
VIENNA_SUMMER = timezone(timedelta(hours=2))


def write(tmp_path: Path, content: object, name: str = "file") -> Path:
    path = tmp_path / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif isinstance(content, str):
        path.write_text(content, encoding="utf-8")
    else:
        path.write_text(json.dumps(content), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("traces.jsonl", "jsonl"),
        ("locomo_tiny.json", "locomo"),
        ("beam_tiny.jsonl", "beam"),
        ("chat_tiny.json", "chat"),
    ],
)
def test_each_format_is_told_from_its_first_record(name, expected):
    assert detect(DATA / name) == expected


def test_jsonl_carries_every_field():
    first, second, third, last = load(DATA / "traces.jsonl")
    assert first == Trace(
        "The greenhouse door sticks when it rains.",
        id="t1",
        speaker="Ines",
        session="garden",
        time=EventTime.parse("2026-03-04T08:15+01:00"),
    )
    assert second.metadata == {"mood": "brisk", "tags": [1, None, "é"]}
    assert second.time is not None
    assert second.time.precision == "day"
    assert (third.role, third.title, third.source) == ("document", "Door hinges", "handbook.txt")
    assert third.time is not None
    assert third.time.precision == "year"
    assert last == Trace("Bolts counted: 14", role="tool")


def test_jsonl_line_by_line_reads_no_further_than_asked(tmp_path):
    path = write(tmp_path, '{"text": "one"}\n{"text": "two"}\nbroken\n')
    traces = load(path)
    assert [next(traces).text, next(traces).text] == ["one", "two"]
    with pytest.raises(ImportFormatError, match="line 3"):
        next(traces)


def test_jsonl_also_as_an_array_and_with_a_byte_order_mark(tmp_path):
    array = write(tmp_path, [{"text": "one"}, {"text": "two"}])
    assert [t.text for t in load(array)] == ["one", "two"]
    marked = write(tmp_path, b'\xef\xbb\xbf{"text": "one"}\r\n', "marked")
    assert [t.text for t in load(marked)] == ["one"]


@pytest.mark.parametrize(
    ("record", "field"),
    [
        ({"text": 5}, "text"),
        ({"id": "x", "text": None}, "text"),
        ({"text": "a", "role": "robot"}, "role"),
        ({"text": "a", "speaker": ["Ana"]}, "speaker"),
        ({"text": "a", "id": True}, "id"),
        ({"text": "a", "time": "yesterday"}, "time"),
        ({"text": "a", "time": "2026-05-03T10:00"}, "time"),
        ({"text": "a", "metadata": [1]}, "metadata"),
        ({"text": "a", "speeker": "Ana"}, "speeker"),
    ],
)
def test_jsonl_names_the_record_and_the_field(tmp_path, record, field):
    path = write(tmp_path, json.dumps({"text": "fine"}) + "\n\n" + json.dumps(record))
    with pytest.raises(ImportFormatError, match=f"line 3.*{field}"):
        list(load(path, "jsonl"))


def test_jsonl_metadata_with_an_infinite_number_is_refused(tmp_path):
    for value in ("1e999", "NaN", "-Infinity"):
        path = write(tmp_path, '{"text": "a", "metadata": {"x": ' + value + "}}")
        with pytest.raises(ImportFormatError):
            list(load(path, "jsonl"))


def test_zone_reads_clock_times_that_carry_none(tmp_path):
    path = write(tmp_path, {"text": "a", "time": "2026-05-03T10:00"})
    (trace,) = load(path, zone=VIENNA_SUMMER)
    assert trace.time is not None
    assert trace.time.isoformat() == "2026-05-03T10:00+02:00"


@pytest.mark.parametrize(
    "trace",
    [
        Trace(""),
        Trace("a\nb\u2028c\x00d 🦜 \ud83d", metadata={"k": [1.5, None, {"é": True}]}),
        Trace(
            "x",
            id="7",
            role="document",
            speaker="A",
            session="s",
            time=EventTime(datetime(2020, 1, 2, 3, 4, tzinfo=UTC), "minute"),
            title="T",
            source="f",
        ),
    ],
)
def test_what_is_written_reads_back_unchanged(tmp_path, trace):
    line = to_json_line(trace, lsn=9, stored=datetime(2026, 1, 1, tzinfo=UTC))
    assert "\n" not in line
    assert list(load(write(tmp_path, line), "jsonl")) == [trace]


TIMES = [
    (datetime(1880, 1, 1, 10, 30, tzinfo=BERLIN), "Europe/Berlin"),
    (datetime(1880, 1, 1, tzinfo=timezone(timedelta(seconds=3208))), "+00:53:28"),
    (datetime(2026, 5, 3, 10, tzinfo=BERLIN), "Europe/Berlin"),
    (datetime(2026, 3, 1, tzinfo=BERLIN), "Europe/Berlin"),
    (datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=1), "Europe/Berlin"),
    (datetime(2026, 5, 3, 10, tzinfo=VIENNA_SUMMER), "+02:00"),
    (datetime(9999, 12, 31, 23, 59, tzinfo=ZoneInfo("America/New_York")), "America/New_York"),
    (datetime(1, 1, 1, tzinfo=ZoneInfo("Asia/Tokyo")), "Asia/Tokyo"),
    (datetime(2026, 5, 3, 10, tzinfo=UTC), "UTC"),
]


@pytest.mark.parametrize("zone", [None, ZoneInfo("Asia/Tokyo")])
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(("start", "written"), TIMES, ids=str)
def test_times_read_back_with_precision_and_zone(tmp_path, start, written, precision, zone):
    time = EventTime(start, precision)
    line = to_json_line(Trace("x", time=time))
    (back,) = load(write(tmp_path, line), "jsonl", zone=zone)
    assert back.time.precision == precision
    assert back.time.start.isoformat() == time.start.isoformat()
    assert back.time.end - time.end == timedelta(0)
    assert str(back.time.start.tzinfo) == str(time.start.tzinfo)
    known = precision in ("year", "month", "day") or "/" in written
    assert json.loads(line).get("zone") == (written if known else None)
    assert to_json_line(back) == line


@pytest.mark.parametrize(
    ("time", "zone", "start"),
    [
        ("2026-05-03+02:00", None, "2026-05-03T00:00:00+02:00"),
        ("2026-05-03+02:00", "Europe/Berlin", "2026-05-03T00:00:00+02:00"),
        ("20260503", "Europe/Berlin", "2026-05-03T00:00:00+02:00"),
        ("2026-05-03T10:00", "Europe/Berlin", "2026-05-03T10:00:00+02:00"),
        ("2026-05-03T10:00Z", "Europe/Berlin", "2026-05-03T12:00:00+02:00"),
        ("2026-05-03T10:00", "-03:30", "2026-05-03T10:00:00-03:30"),
    ],
)
def test_a_line_may_name_its_zone(tmp_path, time, zone, start):
    line = json.dumps({"text": "a", "time": time, "zone": zone})
    (trace,) = load(write(tmp_path, line), "jsonl")
    assert trace.time.start.isoformat() == start


@pytest.mark.parametrize(
    ("time", "zone"),
    [
        ("2026-05-03", "Mars/Olympus"),
        ("2026-05-03", "../etc/passwd"),
        ("2026-05-03", "\ud800"),
        ("2026-05-03", ""),
        ("2026-05-03", 2),
        ("2026-05-03", "+25:00"),
        ("2026-05-03Z", "Europe/Berlin"),
        (None, "Mars/Olympus"),
    ],
)
def test_a_zone_that_cannot_be_is_named(tmp_path, time, zone):
    path = write(tmp_path, json.dumps({"text": "a", "time": time, "zone": zone}))
    with pytest.raises(ImportFormatError, match="line 1: field 'zone'"):
        list(load(path, "jsonl"))


def test_locomo_sessions_in_numeric_order_with_times_and_pictures():
    traces = list(load(DATA / "locomo_tiny.json", conversation="tiny-1"))
    assert [t.id for t in traces] == [
        "D1:1", "D1:2", "D1:3", "D1:4", "D2:1", "D2:2", "D2:3", "D10:1", "D10:2",
    ]  # fmt: skip
    assert traces[2].text == (
        "Here is the first thing I saw with it. [picture: the rings of Saturn through an eyepiece]"
    )
    assert {(t.role, t.source) for t in traces} == {("user", "locomo_tiny.json")}
    assert traces[0].speaker == "Ines"
    times = {t.session: t.time for t in traces}
    assert times["session_1"] == EventTime(datetime(2023, 5, 8, 13, 56, tzinfo=UTC), "minute")
    # Five past midnight, not past noon.
    assert times["session_2"] == EventTime(datetime(2023, 6, 2, 0, 5, tzinfo=UTC), "minute")


def test_locomo_labels_never_reach_a_trace():
    text = repr(list(conversations(DATA / "locomo_tiny.json")))
    assert "adversarial" not in text
    assert "music class" not in text


def test_several_samples_need_a_choice():
    with pytest.raises(InvalidInputError, match="'tiny-1', 'tiny-2'"):
        list(load(DATA / "locomo_tiny.json"))
    with pytest.raises(InvalidInputError, match="tiny-3"):
        list(load(DATA / "beam_tiny.jsonl", conversation="tiny-3"))
    names = [c.name for c in conversations(DATA / "beam_tiny.jsonl")]
    assert names == ["tiny-a", "tiny-b"]


@pytest.mark.parametrize(
    ("talk", "complaint"),
    [
        ([], "record 2.*conversation"),
        ({"session_3": "x"}, "session_3"),
        ({"session_3": [{"speaker": "A"}]}, "session_3, turn 1.*text"),
        ({"session_3": [{"text": "a", "dia_id": 1.5}]}, "dia_id"),
        ({"session_3": [], "session_3_date_time": "31 feb"}, "session_3_date_time"),
        ({"session_3": [], "session_3_date_time": "1:56 pm on 31 February, 2023"}, "day"),
        ({"session_3": [], "session_3_date_time": "13:56 pm on 1 May, 2023"}, "hour 13"),
    ],
)
def test_locomo_names_what_is_malformed(tmp_path, talk, complaint):
    good = {"conversation": {"session_1": [{"text": "a"}]}}
    path = write(tmp_path, [good, {"sample_id": "s", "conversation": talk}])
    with pytest.raises(ImportFormatError, match=complaint):
        [list(c.traces) for c in conversations(path, "locomo")]


def test_beam_messages_have_day_precision_and_roles():
    first, second, *_ = load(DATA / "beam_tiny.jsonl", conversation="tiny-a")
    assert (first.id, first.role, first.session) == ("0", "user", "1")
    assert first.time == EventTime(datetime(2024, 3, 15, tzinfo=UTC), "day")
    assert second.role == "assistant"
    assert "\n\n```python\nsource.backup(target)" in second.text


@pytest.mark.parametrize("anchor", ["2024-03-15", "Mai-15-2024", "March-32-2024", 5])
def test_beam_names_a_malformed_anchor(tmp_path, anchor):
    path = write(tmp_path, {"messages": [{"text": "a", "time_anchor": anchor}]})
    with pytest.raises(ImportFormatError, match=r"message 1.*time_anchor"):
        list(load(path))


def test_chat_roles_parts_calls_and_times():
    user, call, tool, answer = load(DATA / "chat_tiny.json")
    assert (user.speaker, user.session, user.role) == ("Mara", "kitchen", "user")
    assert user.time == EventTime(datetime(2024, 5, 1, 10, tzinfo=UTC), "second")
    assert call.text == '[calls weather({"city": "Oslo"})]'
    assert (tool.role, tool.speaker, tool.text) == ("tool", "weather", "11 degrees")
    assert answer.text == "Eleven degrees.\n[picture]"
    assert answer.id == "5"
    assert answer.time == user.time or answer.time.start == user.time.start


def test_chat_system_messages_are_kept_on_request():
    kept = list(load(DATA / "chat_tiny.json", keep_system=True))
    assert (kept[0].text, kept[0].role) == ("You are terse.", "document")
    assert len(kept) == 5


def test_chat_as_list_lines_and_list_of_chats(tmp_path):
    messages = [{"role": "user", "content": "a", "id": 0}, {"role": "ai", "content": "b", "id": 1}]
    as_list = write(tmp_path, messages)
    by_line = write(tmp_path, "\n".join(map(json.dumps, messages)), "lines")
    assert list(load(as_list, source="f")) == list(load(by_line, source="f"))
    chats = write(tmp_path, [{"messages": messages}, {"messages": messages}], "chats")
    traces = list(load(chats))
    assert [t.session for t in traces] == ["chat-1", "chat-1", "chat-2", "chat-2"]
    assert len({t.id for t in traces}) == 4
    assert {t.role for t in traces} == {"user", "assistant"}


def test_chat_milliseconds_are_told_from_seconds(tmp_path):
    messages = [
        {"role": "user", "content": "a", "timestamp": t} for t in (1714557600, 1714557600123)
    ]
    first, second = load(write(tmp_path, messages))
    assert first.time == second.time


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        ({"role": "alien", "content": "a"}, "role"),
        ({"content": "a"}, "role"),
        ({"role": "user", "content": 7}, "content"),
        ({"role": "user", "content": [7]}, "part 1"),
        ({"role": "user", "content": [{"type": "text"}]}, "text"),
        ({"role": "user", "content": "a", "timestamp": 1e300}, "timestamp"),
        ({"role": "user", "content": "a", "time": "noon"}, "time"),
        ({"role": "assistant", "tool_calls": [{"function": 1}]}, "tool call 1"),
        ("text", "object"),
    ],
)
def test_chat_names_what_is_malformed(tmp_path, message, complaint):
    path = write(tmp_path, [{"role": "user", "content": "fine"}, message])
    with pytest.raises(ImportFormatError, match=f"record 2.*{complaint}"):
        list(load(path))


def test_empty_files_hold_nothing(tmp_path):
    for content in (b"", b"\n \n", b"[]"):
        assert list(load(write(tmp_path, content))) == []


def test_foreign_files_are_refused_and_unknown_formats_too(tmp_path):
    for content in (b"\x00\xff\xfe", b"SQLite format 3\x00", b'{"a": 1}', b"[[]]", b"3"):
        with pytest.raises(ImportFormatError):
            list(load(write(tmp_path, content)))
    with pytest.raises(InvalidInputError, match="format"):
        list(load(DATA / "traces.jsonl", "csv"))
    with pytest.raises(FileNotFoundError):
        list(load(tmp_path / "absent"))


def test_what_is_said_twice_in_a_chat_is_there_twice(tmp_path):
    chat = [
        {"role": "user", "content": "yes"}, {"role": "assistant", "content": "Sure?"},
        {"role": "user", "content": "yes"}, {"role": "assistant", "content": "Really?"},
        {"role": "user", "content": "yes"},
    ]  # fmt: skip
    file = tmp_path / "chat.json"
    file.write_text(json.dumps([{"id": "a", "messages": chat}, {"id": "b", "messages": chat}]))
    with open_memory() as memory:
        for created in (True, False):
            assert [one.created for one in memory.import_(file)] == [created] * 10
        said = [one.trace.text for one in memory.export()]
        assert said == [message["content"] for message in chat] * 2
