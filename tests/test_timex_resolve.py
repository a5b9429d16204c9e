"""Temporal expressions: what is found, and what it means at an anchor."""

from __future__ import annotations

import re
import string
from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zeromem import timex
from zeromem.times import EventTime
from zeromem.timex import Duration, duration, find_times, resolve
from zeromem.timex_calendar import nth_weekday

SATURDAY = EventTime.parse("2023-07-15T13:51+02:00")


def one(text, anchor=SATURDAY):
    (mention,) = find_times(text)
    return resolve(mention, anchor)


@pytest.mark.parametrize(
    ("text", "phrase", "start", "end"),
    [
        ("yesterday", "14 July 2023", "2023-07-14", "2023-07-15"),
        ("We met last night.", "14 July 2023", "2023-07-14", "2023-07-15"),
        ("the day before yesterday", "13 July 2023", "2023-07-13", "2023-07-14"),
        ("see you tomorrow", "16 July 2023", "2023-07-16", "2023-07-17"),
        ("I left last Friday", "Friday 14 July 2023", "2023-07-14", "2023-07-15"),
        ("last Fri", "Friday 14 July 2023", "2023-07-14", "2023-07-15"),
        ("last Saturday", "Saturday 8 July 2023", "2023-07-08", "2023-07-09"),
        ("next Saturday", "Saturday 22 July 2023", "2023-07-22", "2023-07-23"),
        ("this Friday", "Friday 21 July 2023", "2023-07-21", "2023-07-22"),
        ("It was on Tuesday", "Tuesday 11 July 2023", "2023-07-11", "2023-07-12"),
        ("I will go on Tuesday", "Tuesday 18 July 2023", "2023-07-18", "2023-07-19"),
        ("three Sundays ago", "Sunday 25 June 2023", "2023-06-25", "2023-06-26"),
        ("last week", "the week before 15 July 2023", "2023-07-03", "2023-07-10"),
        ("two weeks ago", "two weeks before 15 July 2023", "2023-06-26", "2023-07-03"),
        ("the week before last", "two weeks before 15 July 2023", "2023-06-26", "2023-07-03"),
        ("this weekend", "the weekend of 15 July 2023", "2023-07-15", "2023-07-17"),
        ("last weekend", "the weekend before 15 July 2023", "2023-07-08", "2023-07-10"),
        ("two weekends ago", "two weekends before 15 July 2023", "2023-07-01", "2023-07-03"),
        ("last month", "June 2023", "2023-06-01", "2023-07-01"),
        ("next month", "August 2023", "2023-08-01", "2023-09-01"),
        ("last year", "2022", "2022-01-01", "2023-01-01"),
        ("ten years ago", "2013", "2013-01-01", "2014-01-01"),
        ("four months ago", "March 2023", "2023-03-01", "2023-04-01"),
        ("we met in May", "May 2023", "2023-05-01", "2023-06-01"),
        ("we will meet in May", "May 2024", "2024-05-01", "2024-06-01"),
        ("we met in September", "September 2022", "2022-09-01", "2022-10-01"),
        ("last August", "August 2022", "2022-08-01", "2022-09-01"),
        ("last summer", "summer 2022", "2022-06-01", "2022-09-01"),
        ("last Christmas", "25 December 2022", "2022-12-25", "2022-12-26"),
        ("a year and a half ago", "January 2022", "2022-01-01", "2022-02-01"),
    ],
)
def test_relative_expressions_resolve_against_the_anchor(text, phrase, start, end):
    period = one(text)
    assert period.phrase == phrase
    assert (str(period.start.date()), str(period.end.date())) == (start, end)
    assert period.start.utcoffset() == SATURDAY.start.utcoffset()
    assert period.exact


@pytest.mark.parametrize(
    ("text", "phrase", "precision"),
    [
        ("on 3 June 2023", "3 June 2023", "day"),
        ("on June 3rd, 2023", "3 June 2023", "day"),
        ("on the 3rd of June, 2023", "3 June 2023", "day"),
        ("Friday, 14 July 2023", "14 July 2023", "day"),
        ("2023-05-03T10:00Z", "3 May 2023", "day"),
        ("13/5/2023", "13 May 2023", "day"),
        ("3.5.2023", "3 May 2023", "day"),
        ("in May 2023", "May 2023", "month"),
        ("since 2016", "2016", "year"),
        ("in the 1990s", "the 1990s", "decade"),
        ("1990s music", "the 1990s", "decade"),
        ("summer of 2019", "summer 2019", "season"),
        ("the week before 9 June 2023", "the week before 9 June 2023", "week"),
        ("the Friday before 15 July 2023", "Friday 14 July 2023", "day"),
        ("the weekend of 24 June 2022", "the weekend of 24 June 2022", "weekend"),
        ("two days after 3 May 2023", "5 May 2023", "day"),
    ],
)
def test_absolute_expressions_need_no_anchor(text, phrase, precision):
    period = one(text, anchor=None)
    assert (period.phrase, period.precision) == (phrase, precision)
    assert period.start < period.end


@pytest.mark.parametrize(
    ("text", "precision"),
    [("a few years ago", "year"), ("the other day", "day"), ("several weeks ago", "week"),
     ("about a year ago", "year"), ("early May 2023", "month"), ("5/3/2023", "day"),
     ("over the past few months", "month")],
)  # fmt: skip
def test_vague_expressions_are_not_exact_and_keep_their_granularity(text, precision):
    period = one(text)
    assert not period.exact
    assert period.precision == precision


def test_a_few_years_ago_is_a_range_and_no_single_year():
    period = one("I moved here a few years ago.")
    assert (period.start.year, period.end.year) == (2018, 2022)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("for three weeks", Duration(3, 3, "week")),
        ("a couple of months", Duration(2, 2, "month")),
        ("two and a half years", Duration(2.5, 2.5, "year")),
        ("a three-week trip", Duration(3, 3, "week")),
        ("a year and a half", Duration(1.5, 1.5, "year")),
        ("a few days", Duration(2, 5, "day")),
        ("half an hour", Duration(0.5, 0.5, "hour")),
    ],
)
def test_durations_have_a_length_and_no_place(text, expected):
    found = [m for m in find_times(text) if m.kind == "duration"]
    assert duration(found[0]) == expected
    assert resolve(found[0], SATURDAY) is None


@pytest.mark.parametrize(
    "text",
    ["It may rain and we march on", "the sun sat down", "she paid 2023 dollars", "$2023",
     "a second thought about nothing", "we spring forward", ""],
)  # fmt: skip
def test_look_alikes_are_not_found(text):
    assert find_times(text) == []


def test_a_recurring_time_is_no_date():
    (mention,) = find_times("I swim every Friday")
    assert mention.kind == "set"
    assert resolve(mention, SATURDAY) is None


@pytest.mark.parametrize("text", ["31 June 2023", "30 February 2023", "2023-13-45"])
def test_impossible_dates_resolve_to_nothing(text):
    assert all(resolve(m, SATURDAY) is None or m.rule == "year" for m in find_times(text))


def test_relative_words_without_an_anchor_stay_unresolved():
    for text in ("yesterday", "last Friday", "in May", "two weeks ago", "on 3 June"):
        assert one(text, anchor=None) is None


@pytest.mark.parametrize(("anchor", "phrase"), [("2023", "2023"), ("2023-07", "July 2023")])
def test_a_coarse_anchor_never_gains_precision(anchor, phrase):
    period = one("yesterday", EventTime.parse(anchor))
    assert (period.phrase, period.exact) == (phrase, False)
    assert one("last year", EventTime.parse("2023")).phrase == "2022"


dates = st.datetimes(
    min_value=datetime(1600, 1, 1),
    max_value=datetime(2150, 1, 1),
)
RELATIVE = st.sampled_from(
    ["yesterday", "last week", "two weeks ago", "last weekend", "next weekend", "this week",
     "last month", "next year", "last Friday", "next Monday", "last May", "three days ago",
     "in two weeks", "this weekend", "four months ago", "last winter"]
)  # fmt: skip


@given(dates, RELATIVE)
@settings(max_examples=300, deadline=None)
def test_a_phrase_names_its_period_without_the_anchor(moment, text):
    # The phrase is what an answer says: read back on its own it must mean the same period.
    anchor = EventTime.parse(moment.replace(microsecond=0).isoformat() + "+00:00")
    period = one(text, anchor)
    again = one(period.phrase, None)
    assert (again.start, again.end, again.precision) == (
        period.start, period.end, period.precision,
    )  # fmt: skip


@given(dates, st.integers(0, 6), st.integers(1, 4))
def test_weekdays_count_strictly_from_the_anchor_by_an_oracle(moment, weekday, n):
    from datetime import timedelta

    days = [moment.date() - timedelta(days=i) for i in range(1, 40)]
    assert (
        nth_weekday(moment, weekday, -n).date()
        == [d for d in days if d.weekday() == weekday][n - 1]
    )
    days = [moment.date() + timedelta(days=i) for i in range(1, 40)]
    assert (
        nth_weekday(moment, weekday, n).date() == [d for d in days if d.weekday() == weekday][n - 1]
    )


@given(st.text(max_size=300) | st.text(string.digits + " /:.-ofMayJune", max_size=80))
@settings(deadline=None)
def test_any_text_gives_ordered_disjoint_ranges_that_quote_it(text):
    mentions = find_times(text)
    last = 0
    for m in mentions:
        assert last <= m.start < m.end <= len(text)
        assert text[m.start : m.end] == m.text
        last = m.end
        period = resolve(m, SATURDAY)
        assert period is None or period.start < period.end


_WORDS = st.sampled_from(
    re.findall(
        r"\S+",
        """the a an in on at of for last next this every each other single early mid late before
        after May june sat Sun monday weekday season spring fall week weeks night day year years
        decade now just right today tonight morning afternoon evening noon midnight ago back later
        from daily annually twice once times christmas eve new year's new year’s halloween second
        minute two few couple half and 3 12 2024 2023-05-01 10:30 5pm 90s cat some sunny Mars""",
    )
)


@settings(max_examples=300)
@given(st.lists(_WORDS, max_size=8).map(" ".join))
def test_no_expression_is_missed_by_the_first_look(text):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(timex, "ANY", re.compile(""))
        thorough = timex.find_times(text)
    assert timex.find_times(text) == thorough


@pytest.mark.parametrize("rule", timex.RULES, ids=lambda rule: rule.name)
def test_each_rule_is_met_by_a_text_that_the_first_look_admits(rule):
    """Texts made from the rules themselves: what a pattern can match has one of the words."""
    # Without what only looks around itself, which texts cannot be made from.
    pattern = rule.pattern.pattern.replace("(?<![\\w$€£])", "").replace("(?!\\w)", "")
    pattern = re.sub(r"\(\?<=\\b(?:\(\?:[^)]*\))?[^()]*\)", "", pattern)
    made = st.from_regex(re.compile(pattern, re.IGNORECASE), fullmatch=True)

    @settings(max_examples=30)
    @given(made)
    def admits(text):
        assert timex.ANY.search(text)

    admits()


def test_thousands_of_dates_in_one_text_are_all_found():
    assert len(find_times("we met on 3 June 2023, " * 5000)) == 5000


@pytest.mark.parametrize("anchor", ["0001-01-02", "9998-12-30"])
def test_the_ends_of_the_calendar_do_not_raise(anchor):
    for text in ("ten years ago", "in ten years", "last weekend", "next month", "last year"):
        period = one(text, EventTime.parse(anchor))
        assert period is None or period.start < period.end


def test_wide_gaps_part_expressions_and_keep_places():
    text = "on 3 May 2023" + " " * 40 + "and last" + "\n" * 30 + "week, on 4 May 2023"
    found = [text[t.start : t.end] for t in find_times(text)]
    assert found == ["3 May 2023", "4 May 2023"]
