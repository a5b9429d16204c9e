"""Event time: what it accepts, cuts off, and where its periods end."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from zeromem.errors import InvalidInputError
from zeromem.times import PRECISIONS, EventTime

BERLIN = ZoneInfo("Europe/Berlin")
NEW_YORK = ZoneInfo("America/New_York")


@pytest.mark.parametrize(
    ("start", "precision", "message"),
    [
        (datetime(2026, 5, 3), "second", "start must be a datetime with a zone"),
        (date(2026, 5, 3), "day", "start must be a datetime with a zone"),
        ("2026-05-03", "day", "start must be a datetime with a zone"),
        (datetime(2026, 5, 3, tzinfo=UTC), "hour", "precision must be one of year.*'hour'"),
        (datetime(2026, 5, 3, tzinfo=UTC), None, "precision must be one of"),
    ],
)
def test_what_is_no_event_time_is_refused(start, precision, message):
    with pytest.raises(InvalidInputError, match=message):
        EventTime(start, precision)


def test_what_is_finer_than_the_precision_is_cut_off():
    moment = datetime(2024, 2, 29, 10, 24, 35, 99, tzinfo=BERLIN, fold=1)
    assert [EventTime(moment, p).start.isoformat() for p in PRECISIONS] == [
        "2024-01-01T00:00:00+01:00",
        "2024-02-01T00:00:00+01:00",
        "2024-02-29T00:00:00+01:00",
        "2024-02-29T10:24:00+01:00",
        "2024-02-29T10:24:35+01:00",
    ]
    # 29 February has no counterpart a year later; its year ends all the same
    assert EventTime(moment, "year").end.isoformat() == "2025-01-01T00:00:00+01:00"
    assert EventTime(moment.replace(month=1, day=31), "month").end.month == 2


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("zone", [UTC, BERLIN, NEW_YORK, timezone(timedelta(hours=14))])
def test_no_end_lies_beyond_the_calendar(precision, zone):
    last = datetime.max.replace(tzinfo=zone)
    time = EventTime(last, precision)
    assert time.start < time.end <= last
    first = EventTime(datetime.min.replace(tzinfo=zone), precision)
    assert first.start < first.end < time.start


@pytest.mark.parametrize("fold", [0, 1])
@pytest.mark.parametrize("clock", ["02:00", "02:30", "02:59", "01:59", "03:00"])
def test_a_minute_lasts_a_minute_when_clocks_go_back(clock, fold):
    start = datetime.fromisoformat(f"2026-10-25T{clock}").replace(tzinfo=BERLIN, fold=fold)
    time = EventTime(start, "minute")
    assert time.end.astimezone(UTC) - time.start.astimezone(UTC) == timedelta(minutes=1)


@pytest.mark.parametrize(
    ("text", "start", "precision"),
    [
        ("20260503", "2026-05-03T00:00:00+00:00", "day"),
        ("2026-W18-7", "2026-05-03T00:00:00+00:00", "day"),
        ("2026W187", "2026-05-03T00:00:00+00:00", "day"),
        ("20260503+02:00", "2026-05-03T00:00:00+02:00", "day"),
        ("2026-05-03+02:00", "2026-05-03T00:00:00+02:00", "day"),
        ("2026-05-03Z", "2026-05-03T00:00:00+00:00", "day"),
        ("2026-05-11:30", "2026-05-01T00:00:00-11:30", "month"),
        ("2026+02:00", "2026-01-01T00:00:00+02:00", "year"),
        ("1880-01-01+00:53:28", "1880-01-01T00:00:00+00:53:28", "day"),
        ("1880-01-01T10:00+00:53:28", "1880-01-01T10:00:00+00:53:28", "minute"),
        ("1880-01-01T10:00:07+00:53:28", "1880-01-01T10:00:07+00:53:28", "second"),
        ("2026-05-03T10:00+02", "2026-05-03T10:00:00+02:00", "minute"),
        ("20260503T1000Z", "2026-05-03T10:00:00+00:00", "minute"),
        ("20260503T100000Z", "2026-05-03T10:00:00+00:00", "second"),
    ],
)
def test_forms_of_iso_8601(text, start, precision):
    time = EventTime.parse(text)
    assert (time.start.isoformat(), time.precision) == (start, precision)


@pytest.mark.parametrize(
    "text",
    [
        "20260532",
        "2026-W18",
        "2026-W54-1",
        "2026-00",
        "2026-05-00",
        "2026-0503",
        "2026-05-03+25:00",
    ],
)
def test_what_is_no_date_is_refused(text):
    with pytest.raises(InvalidInputError, match="time"):
        EventTime.parse(text, zone=UTC)


def test_an_offset_in_a_date_goes_before_the_memorys_zone():
    assert EventTime.parse("2026-05-03+02:00", zone=NEW_YORK).start.utcoffset() == timedelta(
        hours=2
    )
    assert EventTime.parse("20260503", zone=NEW_YORK).start.tzinfo is NEW_YORK
