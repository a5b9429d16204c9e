"""Bad and strange input: a clear error or a right result, and nothing lost."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import BlindEncoder, BrittleEncoder, ids, open_memory

import zeromem
from zeromem.errors import DuplicateIdError, InvalidInputError, ZeroMemError
from zeromem.times import EventTime
from zeromem.types import Trace


@pytest.fixture
def memory():
    with open_memory() as found:
        yield found


# ---- what cannot be stored


@pytest.mark.parametrize(
    ("trace", "message"),
    [
        ("", "text must hold something to remember, got ''"),
        (" \n\t\u3000", "text must hold something to remember"),
        ({}, "text must hold something"),
        ({"text": None}, "text must be a str, got NoneType"),
        ({"text": b"bytes"}, "text must be a str, got bytes"),
        ({"text": "a", "txt": 1}, "unknown field 'txt'; a trace has text, id, role"),
        ({"text": "a", 5: 1}, "unknown field '5'"),
        ({"text": "a", "role": "robot"}, "role must be one of user, assistant, tool, document"),
        ({"text": "a", "role": None}, "role must be one of"),
        ({"text": "a", "id": ""}, "id must be a non-empty str or None, got ''"),
        ({"text": "a", "id": 5}, "id must be a non-empty str or None, got 5"),
        ({"text": "a", "speaker": ""}, "speaker must be a non-empty str or None, got ''"),
        ({"text": "a", "session": 3}, "session must be a non-empty str or None, got 3"),
        ({"text": "a", "title": ["x"]}, "title must be a non-empty str or None"),
        ({"text": "a", "source": b"x"}, "source must be a non-empty str or None"),
        ({"text": "a", "time": "2026-05-03T10:00"}, "has no zone; write an offset"),
        ({"text": "a", "time": datetime(2026, 5, 3)}, "or give the memory a zone: --zone"),
        ({"text": "a", "time": "yesterday"}, "time must be ISO 8601 such as"),
        ({"text": "a", "time": "2026-13"}, "time must be ISO 8601"),
        ({"text": "a", "time": 1717000000}, "time must be an ISO 8601 string, datetime or date"),
        ({"text": "a", "metadata": {"x": {1}}}, "metadata"),
        ({"text": "a", "metadata": {"x": float("nan")}}, "metadata"),
        (5, "must be a Trace, a mapping or a str, got int"),
        (None, "must be a Trace, a mapping or a str, got NoneType"),
    ],
    ids=repr,
)
def test_a_wrong_trace_is_named_and_its_batch_not_stored(memory, trace, message):
    with pytest.raises(InvalidInputError) as error:
        memory.add_many(["kept out", "too", trace])
    assert message in str(error.value)
    assert "2" in str(error.value).split(":")[0]  # its place
    assert memory.stats()["traces"] == 0


@pytest.mark.parametrize("given_", ["one text", b"x", Trace("a"), {"text": "a"}, 5, None], ids=repr)
def test_one_trace_is_not_several(memory, given_):
    with pytest.raises(InvalidInputError, match="traces must be several.*add takes one"):
        memory.add_many(given_)
    assert memory.stats()["traces"] == 0


def test_nothing_is_no_work(memory):
    assert memory.add_many([]) == []
    assert memory.add_many(iter(())) == []
    assert memory.stats()["traces"] == 0


def test_earlier_batches_stay_when_a_later_one_is_wrong():
    config = zeromem.Config(ingest=zeromem.config.IngestConfig(batch_traces=3))
    with open_memory(config=config) as memory:
        with pytest.raises(InvalidInputError, match="trace 7: text must hold"):
            memory.add_many([f"number {i}" for i in range(7)] + [""])
        assert [s.trace.text for s in memory.export()] == [f"number {i}" for i in range(6)]
        assert len(memory.retrieve("number", k=9)) == 6


# ---- questions


@pytest.mark.parametrize("question", ["", "  \n", None, 5, b"x", ["a"]], ids=repr)
def test_a_question_is_a_text(memory, question):
    memory.add("tuna")
    with pytest.raises(InvalidInputError, match="question must be a non-empty str"):
        memory.retrieve(question)


@pytest.mark.parametrize(
    "question",
    [
        "of the and who is",
        "?!",
        "\0",
        "\ud800",
        "\u200b\u200d",
        "🙂🙂",
        "من هي",
        "x" * 100_000,
        "Miso tuna " * 5_000,
        " ".join(f"word{i}" for i in range(10_000)),
        "Ana Ben " * 2_000,
    ],
    ids=lambda q: ascii(q[:12]),
)
def test_strange_questions_are_answered(memory, question):
    memory.add_many(["Miso eats tuna.", Trace("Why?", speaker="Ana"), Trace("No.", speaker="Ben")])
    found = memory.retrieve(question, k=3)
    assert len(found) == 3
    assert all(np.isfinite(e.score) for e in found)


def test_an_empty_memory_answers_nothing(memory):
    found = memory.retrieve("Where?")
    assert len(found) == 0
    assert not memory.explain("Where?").items
    assert memory.answer("Where?").text == ""
    assert memory.forget(everything=True) == 0
    assert list(memory.export()) == []
    assert memory.get(["x"]) == {}


# ---- texts


STRANGE = [
    "nul \0 inside", "\ud800 lone", "low \udfff lone", "🙂 smile 👩‍👩‍👧 family", "שלום עולם",
    "مرحبا بالعالم", "東京でミソを飼う", "我的猫叫味噌", "미소는 고양이", "e\u0301 combining",
    "\u202eright to left", "\ufeffbom", "tab\tand\x0bothers\x1c", "a" * 5000, "'); DROP TABLE--",
]  # fmt: skip


def test_strange_texts_come_back_word_for_word(tmp_path):
    with open_memory(tmp_path / "s.zm") as memory:
        memory.add_many([Trace(t, speaker=t, session=t, title=t, source=t) for t in STRANGE])
    with open_memory(tmp_path / "s.zm") as memory:
        assert [s.trace.text for s in memory.export()] == STRANGE
        for text in STRANGE:
            found = memory.retrieve(text, k=20, speakers=text if text.strip("\u202e") else None)
            assert text in [e.trace.text for e in found]
            only = memory.retrieve("a", k=20, sessions=text)
            assert {e.trace.text for e in only} == {text}
        assert memory.forget(source=STRANGE[1]) == 1


@pytest.mark.parametrize(
    ("question", "wanted"),
    [
        ("我的猫叫什么名字", "我的猫叫味噌"),
        ("東京で何を飼う", "東京でミソを飼う"),
        ("미소는 무엇입니까", "미소는 고양이"),
        ("שלום", "שלום עולם"),
        ("مرحبا", "مرحبا بالعالم"),
        ("ÉCLAIR", "une e\u0301clair au café"),
    ],
)
def test_a_question_of_any_script_finds_its_trace(question, wanted):
    with open_memory(encoder=BlindEncoder()) as memory:
        memory.add_many([Trace(t, session=str(i)) for i, t in enumerate(STRANGE)])
        memory.add("une e\u0301clair au café", session="fr")
        assert memory.retrieve(question, k=1)[0].text == wanted


texts = st.text(min_size=1, max_size=60).filter(str.strip)


@settings(max_examples=30)
@given(st.lists(texts, min_size=1, max_size=5, unique=True), texts)
def test_any_text_is_kept_and_any_question_answered(log, question):
    with open_memory() as memory:
        memory.add_many(log)
        assert [s.trace.text for s in memory.export()] == log
        found = memory.retrieve(question, k=9)
        assert {e.trace.text for e in found} <= set(log)
        for e in found:
            assert e.text == e.trace.text[e.start : e.end]
        covered = {e.trace.text for e in memory.retrieve(question, k=1000)}
        assert covered == set(log)


@pytest.mark.parametrize(
    "size", [300_000, pytest.param(10_000_000, marks=pytest.mark.slow)], ids=["300 kB", "10 MB"]
)
def test_a_book_in_one_trace(memory, size):
    needle = "The password of the north gate is heron-7."
    line = "Plain words without much meaning fill this line, number {}.\n"
    half = "".join(line.format(i) for i in range(1 + size // 120))
    text = half + needle + "\n" + half
    assert len(text) > size
    memory.add(text, id="book")
    (found,) = memory.retrieve("What is the password of the north gate?", k=1, closure=False)
    assert needle in found.text
    assert found.text == text[found.start : found.end]
    assert found.n_tokens < 500
    assert memory.get(["book"])["book"].text == text


@pytest.mark.parametrize(
    "size", [100_000, pytest.param(3_000_000, marks=pytest.mark.slow)], ids=["100 kB", "3 MB"]
)
def test_a_blob_in_one_trace(memory, size):
    memory.add("x" * size + "!" * size + "\n" * size + "界" * size, id="blob")
    assert len(memory.retrieve("xxx", k=1)) >= 1
    assert memory.stats()["turns"] > size / 4000


# ---- little to go by


def test_one_trace(memory):
    memory.add("tuna")
    assert memory.retrieve("anything at all", k=5)[0].text == "tuna"


def test_no_entities_and_no_times(memory):
    memory.add_many(["the cat sat", "a dog ran", "when it rained"])
    assert memory.stats()["entities"] == 0
    for question in ("what sat?", "When did it rain last?", "Where is Bob now?", "before 2020?"):
        assert len(memory.retrieve(question, k=3)) == 3
    assert memory.retrieve("what sat?", k=1)[0].text == "the cat sat"


# ---- times


def test_a_naive_time_needs_a_zone_and_a_default_serves():
    with open_memory(zone="Asia/Kolkata") as memory:
        memory.add("a", time="2026-05-03T10:00")
        memory.add("b", time=datetime(2026, 5, 3, 10, 0, 7))
        memory.add("c", time="2026-05")
        memory.add("d", time=date(2026, 5, 3))
        memory.add("e", time="2026-05-03T10:00Z")
        times = [str(s.trace.time) for s in memory.export()]
    assert times == [
        "2026-05-03T10:00+05:30", "2026-05-03T10:00:07+05:30", "2026-05", "2026-05-03",
        "2026-05-03T10:00+00:00",
    ]  # fmt: skip
    with pytest.raises(InvalidInputError, match="zone must be an IANA name"):
        open_memory(zone="Middle/Earth")


def test_precision_is_kept_and_a_year_is_no_first_of_january(memory):
    for time in ("2024", "2024-05", "2024-05-03", "2024-05-03T10:00Z", "2024-05-03T10:00:07Z"):
        memory.add(f"in {time}", time=time)
    assert [s.trace.time.precision for s in memory.export()] == [
        "year", "month", "day", "minute", "second"
    ]  # fmt: skip
    assert len(memory.retrieve("in", after="2024-02", k=9)) == 4  # the year began before


def test_times_out_of_order(memory):
    memory.add_many(
        Trace(f"visit {i}", time=EventTime.parse(t), session="s")
        for i, t in enumerate(["2025-03", "2020", "2030-01-01T00:00Z", "2021-07-01", "2025-03-02"])
    )
    memory.add("visit without a time", session="s")
    found = memory.retrieve("visit", after="2021", before="2026", k=9)
    assert sorted(e.text for e in found) == ["visit 0", "visit 3", "visit 4"]
    assert len(memory.retrieve("What was the last visit?", k=9)) == 6


@pytest.mark.parametrize(
    "time",
    [
        "9999", "9999-12", "9999-12-31", "9999-12-31T23:59:59Z", "9999-12-31T23:59-12:00", "0001",
        "0001-01-01T00:00+14:00", datetime.max.replace(tzinfo=UTC),
        datetime.min.replace(tzinfo=UTC),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=23, minutes=59))), date.max,
    ],
    ids=str,
)  # fmt: skip
def test_times_at_the_ends_of_the_calendar(time, tmp_path):
    """'9999-12-31' stands for 'for ever' in many sources; it must not spoil a memory."""
    with open_memory(tmp_path / "m.zm") as memory:
        memory.add("a pact was made", time=time)
        memory.add("a pact was broken", time="2020")
    with open_memory(tmp_path / "m.zm") as memory:
        assert len(memory.retrieve("When was the last pact?", k=5)) == 2
        early = "0001" in str(time)
        found = memory.retrieve("pact", **{"before" if early else "after": "2019"})
        assert "a pact was made" in [e.text for e in found]
        assert memory.forget(**{"before" if early else "after": "2021"}) == (2 if early else 1)


# ---- duplicates


def test_the_same_trace_again_is_a_no_op_that_says_so(memory):
    trace = {"text": "Miso", "speaker": "Ana", "session": "s", "time": "2026-05-03T10:00Z"}
    first, again, other = memory.add_many([trace, trace, {**trace, "session": "t"}])
    assert (first.created, again.created, other.created) == (True, False, True)
    assert first.id == again.id != other.id
    assert not memory.add(**trace).created
    assert memory.stats()["traces"] == 2
    assert len(memory.retrieve("Miso", k=9)) == 2


def test_an_id_with_other_content_is_refused_and_nothing_lost(memory):
    memory.add("tuna", id="x")
    with pytest.raises(DuplicateIdError, match="id 'x' is taken by a trace with other content"):
        memory.add_many(["fine", Trace("salmon", id="x")])
    with pytest.raises(DuplicateIdError, match="'y'"):
        memory.add_many([Trace("one", id="y"), Trace("two", id="y")])
    assert [s.trace.text for s in memory.export()] == ["tuna"]
    assert memory.add("tuna", id="x").created is False
    assert ids(memory.retrieve("tuna salmon", k=9)) == ["x"]


# ---- arguments of open and forget


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "tpu"}, "device must be one of auto, cpu, cuda, got 'tpu'"),
        ({"encoder": 5}, "encoder must be a model's name"),
        ({"annotator": 5}, "annotator must be a spaCy pipeline's name"),
        ({"zone": 5}, "zone must be an IANA name"),
        ({"scope": ""}, "scope must be a non-empty string"),
    ],
    ids=str,
)
def test_a_wrong_argument_of_open_is_named(options, message):
    with pytest.raises(InvalidInputError) as error:
        open_memory(**options)
    assert message in str(error.value)


@pytest.mark.parametrize("dim", [0, -1, 1.0, "384", True, None])
def test_an_encoder_says_how_wide_its_vectors_are(dim):
    encoder = BlindEncoder()
    encoder.dim = dim
    with pytest.raises(InvalidInputError) as error:
        open_memory(encoder=encoder)
    assert f"encoder.dim must be a positive integer, got {dim!r} of BlindEncoder" in str(
        error.value
    )


def test_a_numpy_integer_is_an_integer():
    encoder = BlindEncoder()
    encoder.dim = np.int64(encoder.dim)
    with open_memory(encoder=encoder) as memory:
        memory.add("tuna")
        assert len(memory.retrieve("tuna?")) == 1


def test_forget_wants_a_condition(memory):
    memory.add("tuna")
    with pytest.raises(InvalidInputError, match="needs a condition"):
        memory.forget()
    with pytest.raises(InvalidInputError, match="not both"):
        memory.forget(session="s", everything=True)
    with pytest.raises(InvalidInputError, match="no zone"):
        memory.forget(before="2026-05-03T10:00")
    assert memory.forget([]) == memory.forget("no such id") == memory.forget(session="x") == 0
    assert memory.stats()["traces"] == 1


def test_every_refusal_is_one_of_ours(memory):
    assert issubclass(InvalidInputError, ZeroMemError)
    assert issubclass(InvalidInputError, ValueError)
    broken = BrittleEncoder(refuses=None)
    with open_memory(encoder=broken) as other:
        assert other.add("tuna").created
