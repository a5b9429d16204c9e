"""Retrieval methods by their definitions; every one within its budget and with provenance."""

from __future__ import annotations

import os

import bm25s
import numpy as np
import pytest
from evaluation_support import CHAT, bank, found, queries, rank, talk
from support import HashEncoder

from zeromem.errors import InvalidInputError
from zeromem.evaluation import Budget, History, Query, RankedList, methods
from zeromem.evaluation.methods import plain
from zeromem.evaluation.methods.base import first_distinct
from zeromem.evaluation.methods.plain import Baseline
from zeromem.evaluation.methods.turns import Lexical, Turns
from zeromem.evaluation.types import Method
from zeromem.text import terms
from zeromem.times import EventTime
from zeromem.types import Trace


def made(*names, store=None):
    return methods.make(names, encoder=HashEncoder(), store=store, annotator="rules")


@pytest.fixture
def all_methods(tmp_path):
    some = made(*methods.NAMES, store=tmp_path / "m.zm")
    yield some
    for method in some:
        method.close()


def test_bm25_is_lucenes():
    rng = np.random.default_rng(3)
    documents = [[f"w{w}" for w in rng.zipf(1.6, size=rng.integers(0, 30)) if w < 40]
                 for _ in range(60)]  # fmt: skip
    oracle = bm25s.BM25(method="lucene", k1=1.5, b=0.75)
    oracle.index(documents, show_progress=False)
    ours = Lexical(documents)
    for query in (["w1", "w2", "w7"], ["w3"], ["absent", "w5"]):
        known = [w for w in query if w != "absent"]
        np.testing.assert_allclose(ours.scores(query), oracle.get_scores(known), rtol=1e-5)
    assert not ours.scores([]).any()
    np.testing.assert_array_equal(ours.scores(["w1", "w1"]), ours.scores(["w1"]))


def test_hybrid_is_four_normalised_scores_and_the_named_speaker():
    encoder = HashEncoder()
    question = "What did Ines do with the kayak?"
    (query,) = terms([question])
    turns = Turns(CHAT, bank())
    texts = [f"{t.speaker}: {t.text}" for t in CHAT.traces]
    spans = [(0, 2), (0, 3), (1, 4), (2, 4), (4, 6), (4, 6)]  # no window crosses a session

    def scaled(x):
        return (x - x.min()) / (x.max() - x.min())

    raw = np.array([encoder._mean(t) for t in texts]).astype(np.float16).astype(float)
    n_words = np.array([len(t.text.split()) for t in CHAT.traces])
    pooled = np.array([(raw[a:z] * n_words[a:z, None]).sum(0) for a, z in spans])
    words = terms([f"{t.speaker} {t.text}" for t in CHAT.traces])
    windows = [[t for row in words[a:z] for t in row] for a, z in spans]
    vector = encoder.encode([question])[0].astype(float)

    def cosine(rows):
        return rows @ vector / np.linalg.norm(rows, axis=1)

    expected = (
        scaled(Lexical(words).scores(query))
        + scaled(Lexical(windows).scores(query))
        + scaled(cosine(raw))
        + scaled(cosine(pooled))
        + 0.4 * np.array([t.speaker == "Ines" for t in CHAT.traces])
    )
    got = plain.hybrid(turns, question, query, vector.astype(np.float32))
    np.testing.assert_allclose(got, expected, atol=1e-3)


def test_the_speaker_counts_only_where_one_is_named():
    turns = Turns(CHAT, bank())
    vector = np.zeros(HashEncoder.dim, np.float32)

    def bonus(question):
        both = [f(turns, question, [], vector) for f in (plain.hybrid, plain.with_windows)]
        return both[0] - both[1]

    assert bonus("What did INES sell?").tolist() == [0.4, 0, 0.4, 0, 0, 0.4]
    assert not bonus("What did Ines and Omar sell?").any()
    assert not bonus("What did Inessa sell?").any()


def test_ties_break_by_row():
    words = ["tent" if i % 3 else "kayak" for i in range(60)]
    history = History("m", tuple(Trace(f"{w} x", id=str(i)) for i, w in enumerate(words)))
    assert rank(Baseline("bm25", bank()), history, "kayak") == [
        tuple(str(i) for i in range(0, 60, 3))
    ]


@pytest.mark.parametrize(("tokens", "n_turns"), [(9, 1), (10, 2), (11, 2), (4, 0), (None, 6)])
def test_the_budget_counts_whole_turns(tokens, n_turns):
    assert found(Baseline("bm25", bank()), CHAT, "zebra", tokens=tokens) == [
        tuple(t.id for t in CHAT.traces)[:n_turns]
    ]


def test_the_budget_counts_items_too():
    assert found(Baseline("bm25", bank()), CHAT, "tent", k=2) == [("s2", "z0")]


def test_a_message_ranks_by_its_best_piece():
    long = " ".join(f"Filler sentence number {i} says nothing." for i in range(60))
    history = History("m", (Trace("Short note.", id="a"), Trace(f"{long} The okapi.", id="b")))
    assert rank(Baseline("bm25", bank()), history, "okapi") == [("b", "a")]
    assert first_distinct(["b", "b", "a", "b", "c"], 2) == ("b", "a")


def test_evidence_names_its_place_and_its_reason():
    long = " ".join(f"Filler sentence number {i} says nothing." for i in range(60))
    history = History("m", (Trace("A note.", id="a"), Trace(f"{long} The okapi.", id="b")))
    method = Baseline("bm25", bank())
    method.index(history)
    asked_at = EventTime.parse("2024-05-20")
    (got,) = method.find([Query("Which okapi, last week?", asked_at)], Budget(k=2))
    best, second = got.evidence
    assert best.text == best.trace.text[best.start : best.end]
    assert best.text.endswith("The okapi.")
    assert best.start > 0
    assert (best.id, best.lsn, best.kind, best.main_rank) == ("b", 2, "main", 1)
    assert best.n_tokens == len(best.text.split())
    assert best.matched == ("okapi",)
    assert best.why == "bm25 #1; matches okapi"
    assert (second.main_rank, second.matched) == (2, ())
    assert best.score > second.score
    assert got.profile.reference_time == asked_at.start  # "last week" resolves against it
    assert got.profile.temporal.start is not None


def test_features_are_made_once_and_kept():
    kept, appended, calls = {}, [], []

    class Scope:
        def append(self, traces, *, keys):
            appended.append(len(traces))

        def features(self, keys, fingerprint):
            return {key: kept[fingerprint, key] for key in keys if (fingerprint, key) in kept}

        def put_features(self, found, fingerprint):
            kept.update({(fingerprint, key): data for key, data in found.items()})

    class Counting(HashEncoder):
        def encode_spans(self, texts, spans):
            calls.append(len(texts))
            return super().encode_spans(texts, spans)

    names = []

    def fresh():
        return bank(lambda name: names.append(name) or Scope(), Counting())

    first = rank(Baseline("hybrid", fresh()), CHAT, "kayak", "tent")
    assert (calls, appended, len(kept)) == ([6], [6], 6)
    assert rank(Baseline("hybrid", fresh()), CHAT, "kayak", "tent") == first
    assert calls == [6]
    # Another version of a history may keep ids and change texts: it gets a log of its own.
    other = History("chat", (*CHAT.traces[:-1], Trace("I sold it.", id=CHAT.traces[-1].id)))
    rank(Baseline("hybrid", fresh()), other, "kayak")
    assert calls == [6, 1]
    assert len(set(names)) == 2


OWN = '''
import numpy as np
from zeromem.evaluation import RankedList

class Trigrams(RankedList):
    """Turns that share most letter trigrams with the question."""

    name = "trigrams"

    def prepare(self):
        self.known = [self.cut(text) for text in self.turns.texts]

    def scores(self, queries):
        asked = [self.cut(query.text) for query in queries]
        return np.array([[len(q & t) / len(q | t) for t in self.known] for q in asked])

    @staticmethod
    def cut(text):
        text = f"  {text.casefold()}  "
        return {text[i : i + 3] for i in range(len(text) - 2)}
'''


def test_a_method_of_ones_own_takes_twenty_lines(tmp_path):
    assert len(OWN.strip().splitlines()) <= 20
    path = tmp_path / "mine.py"
    path.write_text(OWN)
    (method,) = made(f"{path}:Trigrams")
    assert isinstance(method, RankedList)
    assert rank(method, CHAT, "kayaks", "a tent with holes", depth=2) == [
        ("s0", "s1"),
        ("z0", "s2"),
    ]
    assert found(method, CHAT, "kayaks", tokens=10) == [("s0", "s1")]


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("magic", "'magic'"),
        ("absent.py:Method", "absent.py"),
        ("zeromem.evaluation:Absent", "Absent"),
        ("no.such.module:Method", "no.such.module"),
    ],
)
def test_an_unknown_method_is_named(name, complaint):
    with pytest.raises(InvalidInputError, match=complaint):
        made(name)


HEAD = "from zeromem.evaluation import RankedList\n"


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("class Mine: pass", "has no index, rank, find, share, close: a method derives from"),
        ("Mine = 3", "is no class: a method derives from zeromem.evaluation.RankedList"),
        (f"{HEAD}class Mine(RankedList): pass", "a name that is not empty, got ''"),
        (f"{HEAD}class Mine(RankedList): name = None", "a name that is not empty, got None"),
        (f"{HEAD}class Mine(RankedList): name = 'bm25'", "are both named 'bm25'"),
        (
            f"{HEAD}class Mine(RankedList):\n    name = 'm'\n    def __init__(self): pass",
            "cannot be made: TypeError: .* called with the run's FeatureBank",
        ),
        ("class Mine(", "cannot be loaded: SyntaxError"),
    ],
)
def test_a_method_that_could_not_be_run_is_refused(tmp_path, source, complaint):
    path = tmp_path / "mine.py"
    path.write_text(source)
    with pytest.raises(InvalidInputError, match=complaint):
        made(f"{path}:Mine")


def test_two_methods_of_one_name_are_refused(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(f"{OWN}\n\nclass Other(Trigrams):\n    pass\n")
    with pytest.raises(
        InvalidInputError, match=r"Trigrams' and .*Other' are both named 'trigrams'"
    ):
        made(f"{path}:Trigrams", f"{path}:Other")
    with pytest.raises(InvalidInputError, match="Absent"):
        methods.check([f"{path}:Absent"])


def test_a_file_of_ones_own_may_hold_dataclasses_and_change(tmp_path):
    path = tmp_path / "mine.py"
    head = "from __future__ import annotations\nfrom dataclasses import dataclass\n"
    path.write_text(f"{head}{OWN}\n\n@dataclass\nclass Note:\n    text: str\n")
    assert made(f"{path}:Trigrams")[0].name == "trigrams"
    path.write_text(OWN.replace('"trigrams"', '"threes"'))
    os.utime(path, ns=(1, 1))
    assert made(f"{path}:Trigrams")[0].name == "threes"


class Wrong(RankedList):
    name = "wrong"
    answer = np.zeros((1, 2))

    def scores(self, queries):
        return self.answer


def test_scores_of_a_wrong_shape_or_nan_are_refused():
    method = Wrong(bank())
    method.index(CHAT)
    with pytest.raises(ValueError, match=r"\(1, 6\), got \(1, 2\)"):
        method.rank(queries("x"))
    method.answer = np.full((1, 6), np.nan)
    with pytest.raises(ValueError, match="NaN"):
        method.rank(queries("x"))


def test_what_is_minus_infinite_is_not_found():
    method = Wrong(bank())
    method.answer = np.array([[0, -np.inf, 2, -np.inf, -np.inf, 1]])
    assert rank(method, CHAT, "x") == [("s2", "z1", "s0")]


def test_every_method_keeps_the_protocol(all_methods):
    """Within the budget, distinct, only the history's own, deterministic; empty histories too."""
    history = History("two", (*CHAT.traces, *talk(("Omar", "Kayaks! " * 150), session="y")))
    asked = [Query("Who sold the kayak?"), Query("tent"), Query("?"), Query("Ines"),
             Query("When was that?", EventTime.parse("2024-01-01"))]  # fmt: skip
    ids = {trace.id for trace in history.traces}
    for method in all_methods:
        checked: Method = method
        checked.index(history)
        mains = checked.rank(asked, 3)
        assert [len(m) <= 3 and len(set(m)) == len(m) and set(m) <= ids for m in mains] == [
            True
        ] * 5
        for budget in (Budget(), Budget(2, 15), Budget(None, None), Budget(k=1, tokens=3)):
            got = checked.find(asked, budget)
            assert [f.profile.text for f in got] == [q.text for q in asked]
            for one in got:
                for item in one.evidence:
                    assert item.text == item.trace.text[item.start : item.end] != ""
                    assert item.id in ids
                    assert item.why
                if checked.budgeted and budget.tokens is not None:
                    assert sum(e.n_tokens for e in one.evidence) <= budget.tokens
                if checked.budgeted and budget.k is not None:
                    assert sum(e.kind == "main" for e in one.evidence) <= budget.k
        assert checked.rank(asked, 3) == mains
        assert checked.calibrates == (method.name in CALIBRATED)
        checked.index(History("nothing", ()))
        assert checked.rank(asked) == [()] * 5
        assert [f.evidence for f in checked.find(asked, Budget())] == [()] * 5
        checked.index(history)
        assert checked.rank(asked, 3) == mains


CALIBRATED = {
    "zeromem", "zeromem-paper", "graph", "hierarchy", "no-closure", "embedding+lexical",
    "embedding", "lexical",
}  # fmt: skip


def test_every_name_is_described():
    assert tuple(methods.describe()) == methods.NAMES
    assert all(methods.describe().values())
