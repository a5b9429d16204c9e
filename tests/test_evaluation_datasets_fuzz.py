"""A field missing or of another type gives a data set or an error that says where."""

import copy
import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zeromem.errors import ImportFormatError
from zeromem.evaluation.datasets import beam, hotpotqa, locomo, longmemeval, musique, twowiki

DATA = Path(__file__).parent / "data"
POOL = DATA / "hotpotqa_tiny_pool.jsonl"
QUESTIONS = DATA / "hotpotqa_tiny_questions.jsonl"
LOADERS = {
    "locomo_tiny.json": locomo.load,
    "locomo_tiny_corrections.json": lambda path: locomo.load(
        DATA / "locomo_tiny.json", corrections=path
    ),
    "beam_tiny.jsonl": beam.load,
    "longmemeval_tiny.json": longmemeval.load,
    "musique_tiny.jsonl": lambda path: musique.load(path, with_unanswerable=True),
    "twowiki_tiny.json": twowiki.load,
    "twowiki_tiny_columns.jsonl": twowiki.load,
    "hotpotqa_tiny.json": hotpotqa.load,
    "hotpotqa_tiny_questions.jsonl": lambda path: hotpotqa.load_pool(path, POOL, documents=4),
    "hotpotqa_tiny_pool.jsonl": lambda path: hotpotqa.load_pool(QUESTIONS, path, documents=2),
}
RETYPED = st.sampled_from(
    [None, True, 0, -7, 10**30, 2.5, "", " ", "x", "D1:1", [], [[]], [None], ["x"], {}, {"x": 1}]
)


def records_of(path):
    data = path.read_text(encoding="utf-8")
    if data.startswith("["):
        return json.loads(data)
    return [json.loads(line) for line in data.splitlines() if line.strip()]


def places(value, at=()):
    """List the paths of all fields and elements."""
    children = value.items() if isinstance(value, dict) else enumerate(value)
    for key, child in children:
        yield (*at, key)
        if isinstance(child, dict | list):
            yield from places(child, (*at, key))


def check(name, records):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_text(json.dumps(records), encoding="utf-8")
        try:
            dataset = LOADERS[name](path)
        except ImportFormatError as error:
            said = str(error)
        else:
            sound(dataset)
            return
    assert said.startswith(("hotpotqa_tiny_questions.jsonl: ", f"{name}: "))
    assert "record" in said or "line" in said
    assert "field" in said or "must be a JSON object" in said


def sound(dataset):
    for memory, questions in dataset.tasks:
        known = [trace.id for trace in memory.traces]
        assert known
        assert len(known) == len(set(known))
        for question in questions:
            assert question.query.text.strip()
            assert question.gold <= set(known)
            assert question.gold_sessions <= set(memory.session_of.values())
            assert all(isinstance(answer, str) for answer in question.answers)


@pytest.mark.parametrize("name", LOADERS)
@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_any_field_missing_or_retyped(name, data):
    records = copy.deepcopy(ORIGINAL[name])
    for _ in range(data.draw(st.integers(1, 2))):
        if not (found := list(places(records))):
            break
        *before, last = data.draw(st.sampled_from(found))
        holder = records
        for key in before:
            holder = holder[key]
        if data.draw(st.booleans()):
            del holder[last]
        else:
            holder[last] = data.draw(RETYPED)
    if records:
        check(name, records)


ORIGINAL = {name: records_of(DATA / name) for name in LOADERS}


@pytest.mark.parametrize("name", LOADERS)
def test_every_field_missing_one_by_one(name):
    for path in places(ORIGINAL[name]):
        records = copy.deepcopy(ORIGINAL[name])
        *before, last = path
        holder = records
        for key in before:
            holder = holder[key]
        del holder[last]
        check(name, records)


@pytest.mark.parametrize("name", LOADERS)
@pytest.mark.parametrize(
    "data", [b"", b"\n", b"[", b"{}", b"[1]", b"[{]", b"\xff", b"null", b"[NaN]"]
)
def test_files_that_are_something_else(name, data):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(data)
        with pytest.raises(ImportFormatError, match=name):
            LOADERS[name](path)
