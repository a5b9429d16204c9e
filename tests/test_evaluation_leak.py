"""No label reaches retrieval, a prompt or calibration: change them all, and nothing else moves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from answering_support import Whole, options
from chat_server import Server, good
from support import HashEncoder

from zeromem.evaluation import methods
from zeromem.evaluation.answering import readers
from zeromem.evaluation.answering import run as answering
from zeromem.evaluation.datasets import locomo
from zeromem.evaluation.run import retrieval
from zeromem.evaluation.types import Budget, Found, Query, Question
from zeromem.types import QueryProfile

TINY = Path(__file__).parent / "data" / "locomo_tiny.json"
BUDGET = Budget(tokens=60)  # so small that what is found matters


@pytest.fixture(scope="module")
def two_sets(tmp_path_factory):
    """A set, and the same with every answer, category and citation changed."""
    samples = json.loads(TINY.read_text("utf-8"))
    for sample in samples:
        turns = [t["dia_id"] for k, v in sample["conversation"].items() if isinstance(v, list)
                 for t in v]  # fmt: skip
        for i, item in enumerate(sample["qa"]):
            if item["category"] == 5:  # asked of no method
                continue
            item["answer"] = f"secret {i}"
            item["category"] = item["category"] % 4 + 1
            cited = set("; ".join(item["evidence"]).replace(";", " ").split())
            item["evidence"] = [t for t in turns if t not in cited][i % 3 : i % 3 + 1 + i % 2]
    path = tmp_path_factory.mktemp("leak") / TINY.name  # a trace names its file
    path.write_text(json.dumps(samples), "utf-8")
    before, after = locomo.load(TINY), locomo.load(path)
    pairs = zip(_questions(before), _questions(after), strict=True)
    for a, b in pairs:  # else the test would compare a thing with itself
        assert a.query == b.query
        assert (a.category != b.category, a.answers != b.answers, a.gold != b.gold) == (True,) * 3
    return before, after


def _questions(dataset):
    return [q for _, questions in dataset.tasks for q in questions]


def observed(dataset, make):
    """All that a method finds and a reader is sent, in order, to the byte."""
    seen = []
    retrieval(dataset, make(), BUDGET, sink=seen.append)

    class Watched:
        """Records what is found on the way to the reader."""

        def __init__(self, method):
            self._method = method

        def __getattr__(self, name):
            return getattr(self._method, name)

        def find(self, queries, budget):
            assert [type(q) for q in queries] == [Query] * len(queries)
            found = self._method.find(queries, budget)
            seen.append((self._method.name, [repr(f) for f in found]))
            return found

    with Server(good) as server:
        reader = readers.from_options(
            options("--reader", "openai:m", "--base-url", server.url, "--retries", "0")
        )
        answers = answering.answer(dataset, [Watched(m) for m in make()], reader, BUDGET)
    # Two methods may find the same; each prompt is then asked once.
    prompts = [json.dumps(body, sort_keys=True) for body in server.requests]
    rows = {
        name: [(r.question_id, r.draft, r.answer, r.actions, r.evidence, r.error) for r in a.rows]
        for name, a in answers.items()
    }
    return seen, prompts, rows


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "k")


def check(two_sets, make):
    before, after = (observed(dataset, make) for dataset in two_sets)
    for a, b in zip(before, after, strict=True):
        assert a == b
    return before


@pytest.mark.model
@pytest.mark.slow
def test_no_registered_method_reader_or_calibration_sees_a_label(two_sets):
    def make():
        return methods.make(methods.NAMES, encoder=HashEncoder())

    seen, prompts, rows = check(two_sets, make)
    n = len(_questions(two_sets[0]))
    assert set(rows) == set(methods.NAMES)
    assert all(len(r) == n and all(x[-1] is None for x in r) for r in rows.values())
    assert len(prompts) > 2 * n
    assert {row["method"] for row in seen if isinstance(row, dict)} == set(methods.NAMES)
    assert "secret" not in "".join(prompts)


class Peeks(Whole):
    """Knows the labels, and uses them as it is told."""

    def __init__(self, dataset, use):
        super().__init__("peeks")
        self.known = {q.query.text: q for q in _questions(dataset)}
        self.use = use

    def rank(self, queries, depth=20):
        ids = [t.id for t in self.history.traces]
        if self.use != "rank":
            return [tuple(ids)] * len(queries)
        return [tuple(sorted(ids, key=lambda t: t not in self.known[q.text].gold)) for q in queries]

    def find(self, queries, budget):
        found = super().find(queries, budget)
        return [self._changed(f, self.known[q.text]) for f, q in zip(found, queries, strict=True)]

    def _changed(self, found: Found, question: Question) -> Found:
        (items,) = found.blocks
        if self.use == "evidence":
            items = tuple(e for e in items if e.id in question.gold) or items[:1]
        profile = found.profile
        if self.use == "category":
            profile = QueryProfile(profile.text, keywords=(question.category,))
        return Found((items,), profile)


@pytest.mark.parametrize("use", ["rank", "evidence", "category"])
def test_a_method_that_peeks_is_caught(two_sets, use):
    datasets = iter([two_sets[0], two_sets[0], two_sets[1], two_sets[1]])
    with pytest.raises(AssertionError):
        check(two_sets, lambda: [Peeks(next(datasets), use)])


def test_the_same_method_is_not_caught_where_it_does_not_look(two_sets):
    check(two_sets, lambda: [Peeks(two_sets[0], None)])
