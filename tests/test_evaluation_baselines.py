"""The paper's baselines and the channels: chunks, the whole context, grep, one channel alone."""

from __future__ import annotations

import sqlite3
from itertools import pairwise

import numpy as np
import pytest
from evaluation_support import CHAT, bank, found, queries, rank, talk
from hypothesis import given
from hypothesis import strategies as st
from support import BrittleEncoder, HashEncoder

import zeromem
from zeromem.config import Config, SignalWeights
from zeromem.errors import CorruptStoreError, DuplicateIdError, EncoderError, StoreError
from zeromem.evaluation import Budget, History, Query, methods
from zeromem.evaluation.methods.asked import Asked, AskedEncoder
from zeromem.evaluation.methods.chunks import Chunks, packed
from zeromem.evaluation.methods.grep import Grep
from zeromem.evaluation.methods.long_context import LongContext
from zeromem.evaluation.methods.zero_mem import OpenMemories, ZeroMem, without_words
from zeromem.ingest.annotate import RuleAnnotator
from zeromem.times import EventTime
from zeromem.types import Trace


@pytest.mark.parametrize(
    ("tokens", "limit", "overlap", "runs"),
    [
        ([], 5, 0, []),
        ([3, 3, 3], 6, 0, [(0, 2), (2, 3)]),
        ([3, 3, 3], 5, 0, [(0, 1), (1, 2), (2, 3)]),
        ([3, 9, 3], 5, 0, [(0, 1), (1, 2), (2, 3)]),  # a long turn is a run of its own
        ([2, 2, 2, 2, 2], 6, 2, [(0, 3), (2, 5)]),
        ([2, 2, 2, 2, 2], 6, 3, [(0, 3), (2, 5)]),  # the overlap is of whole turns
        ([2, 2, 2, 2], 4, 1, [(0, 2), (2, 4)]),
        ([0, 0, 5, 0], 5, 0, [(0, 4)]),
    ],
)
def test_runs_of_whole_turns(tokens, limit, overlap, runs):
    assert packed(np.array(tokens, np.int32), limit, overlap) == runs


@given(st.lists(st.integers(0, 9), max_size=30), st.integers(1, 20), st.integers(0, 19))
def test_runs_cover_everything_and_end(tokens, limit, overlap):
    runs = packed(np.array(tokens, np.int32), limit, min(overlap, limit - 1))
    assert {row for a, z in runs for row in range(a, z)} == set(range(len(tokens)))
    for a, z in runs:
        assert sum(tokens[a:z]) <= limit or z == a + 1
    for (a, z), (b, y) in pairwise(runs):
        assert a < b <= z < y
        assert sum(tokens[b:z]) <= overlap
        if overlap == 0:
            assert sum(tokens[a:z]) + tokens[z] > limit  # no run could have been longer


def test_rag_reads_the_best_chunks_whole():
    """Three chunks of two turns; each is scored by the mean of its turns' token states."""
    method = Chunks(bank(), tokens=10, top=2)
    assert method.budgeted is False
    (ids,) = found(method, CHAT, "hole patch", tokens=1)
    assert ids[:2] == ("z0", "z1")
    assert ids[2:] in (("s0", "s1"), ("s2", "s3"))
    encoder = HashEncoder()
    texts = [f"{t.speaker}: {t.text}" for t in CHAT.traces]
    raw = np.array([encoder._mean(t) for t in texts]).astype(np.float16).astype(float)
    n_tokens = np.array([len(t.text.split()) for t in CHAT.traces])
    pooled = [(raw[a:z] * n_tokens[a:z, None]).sum(0) for a, z in ((0, 2), (2, 4), (4, 6))]
    vector = encoder.encode(["hole patch"])[0]
    cosine = [row @ vector / np.linalg.norm(row) for row in pooled]
    np.testing.assert_allclose(method.scores(queries("hole patch")), [np.repeat(cosine, 2)],
                               atol=1e-3)  # fmt: skip
    assert rank(method, CHAT, "hole patch", depth=2) == [("z0", "z1")]


def test_chunks_follow_time_not_the_file():
    late, early = talk(("A", "late one"), day="2024-05-02"), talk(("B", "early one"), session="t",
                                                                  day="2024-05-01")  # fmt: skip
    history = History("h", (*late, *early))
    assert found(Chunks(bank()), history, "x") == [("t0", "s0")]
    assert found(LongContext(bank()), history, "x") == [("t0", "s0")]
    without = History("h", (*late, Trace("B early", id="t0")))
    assert found(LongContext(bank()), without, "x") == [("s0", "t0")]


def test_long_llm_reads_everything_in_overlapping_windows():
    method = LongContext(bank(), tokens=14, overlap=5)
    assert (method.budgeted, method.calibrates) == (False, False)
    # Words per turn: 5, 5, 4, 4, 5, 4.
    assert found(method, CHAT, "?", tokens=1) == [("s0", "s1", "s2"), ("s2", "s3", "z0"),
                                                  ("z0", "z1")]  # fmt: skip
    assert rank(method, CHAT, "kayak") == [()]
    (got,) = method.find(queries("kayak"), Budget())
    assert [e.why for e in got.blocks[1]] == ["window 2 of 3"] * 3
    assert got.profile.keywords == ("kayak",)
    default = LongContext(bank())
    assert found(default, CHAT, "?") == [tuple(t.id for t in CHAT.traces)]


def test_grep_counts_distinct_words_then_prefers_the_latest():
    method = Grep(bank())
    assert rank(method, CHAT, "What is the TENT's price?", "tents", "is it the?") == [
        ("z0", "s2", "s1"),  # one word each, the latest first: "tent" twice, "price"
        (),  # no stem
        (),  # stop words alone
    ]
    assert rank(method, CHAT, "camping tent hole") == [("z0", "s3", "s2")]
    assert rank(method, CHAT, "Omar kayak")[0][0] == "s1"  # the speaker is part of the line


class Watched:
    """A memory that returns each trace's pieces in turn, and notes what it is asked."""

    def __init__(self, log, pieces):
        self.log, self.pieces = log, pieces

    def add_many(self, traces):
        self.traces = traces
        self.log.append(("add", len(traces)))
        return [type("Added", (), {"lsn": i}) for i in range(len(traces))]

    def stats(self):
        self.log.append(("stats",))

    def retrieve_batch(self, questions, *, k, **options):
        self.log.append((list(questions), k, options))
        ids = [t.id for t in self.traces for _ in range(self.pieces)][:k]
        items = [type("Item", (), {"id": i, "n_tokens": 7}) for i in ids]
        return [type("R", (), {"main": items, "items": tuple(items), "profile": q})
                for q in questions]  # fmt: skip

    def forget(self, **options):
        self.log.append(("forget", options))

    def close(self):
        self.log.append(("close",))


@pytest.fixture
def watch(monkeypatch):
    def start(name, pieces=1, **options):
        log, opened = [], []

        def open_(path, **given):
            opened.append(given)
            return Watched(log, pieces)

        monkeypatch.setattr(zeromem, "open", open_, raising=False)
        return ZeroMem(name, OpenMemories(None, HashEncoder(), "cpu"), **options), log, opened

    return start


@pytest.mark.parametrize(
    ("name", "config", "options", "calibrates"),
    [
        ("zeromem", Config(), {}, True),
        ("zeromem-paper", Config.paper(), {}, True),
        ("graph", Config(), {"view": "graph"}, True),
        ("hierarchy", Config(), {"view": "hierarchy"}, True),
        ("no-closure", Config(), {"closure": False}, True),
        ("no-calibration", Config(), {"calibration": False}, False),
        ("embedding+lexical", Config(), {}, True),
        ("embedding", without_words(Config()), {}, True),
    ],
)
def test_each_variant_asks_for_what_it_says(watch, name, config, options, calibrates):
    method, log, opened = watch(name)
    method.index(CHAT)
    assert method.rank(queries("q")) == [tuple(t.id for t in CHAT.traces)]
    (got,) = method.find(queries("q"), Budget(tokens=900))
    assert opened[0]["config"] == config
    assert log == [
        ("add", 6), ("stats",), (["q"], 20, options),
        (["q"], None, {"token_budget": 900, **options}),  # as many as fit, whatever the variant
    ]  # fmt: skip
    assert got.evidence[0].id == "s0"
    assert method.calibrates is calibrates


def test_the_papers_configuration_may_be_the_runs(watch):
    method, _, opened = watch("graph", paper=True)
    method.index(CHAT)
    assert opened[0]["config"] == Config.paper()


def test_queries_of_one_moment_go_together(watch):
    method, log, _ = watch("zeromem")
    method.index(CHAT)
    first, second = EventTime.parse("2024-01-01"), EventTime.parse("2024-01-02")
    asked = [Query("a", first), Query("b"), Query("c", second), Query("d", first)]
    got = method.find(asked, Budget(3, 50))
    assert [f.profile for f in got] == ["a", "b", "c", "d"]
    assert log[2:] == [
        (["a", "d"], 3, {"token_budget": 50, "reference_time": first}),
        (["b"], 3, {"token_budget": 50}),
        (["c"], 3, {"token_budget": 50, "reference_time": second}),
    ]


def test_the_main_list_is_read_on_where_pieces_repeat(watch):
    method, log, _ = watch("zeromem", pieces=3)
    many = History("many", tuple(Trace("x", id=str(i)) for i in range(50)))
    assert rank(method, many, "q") == [tuple(map(str, range(20)))]
    assert [entry[1] for entry in log[2:]] == [20, 40, 80]


def test_a_context_is_forgotten_and_a_conversation_is_not(watch):
    method, log, _ = watch("zeromem")
    for history in (History("context", CHAT.traces, ephemeral=True), CHAT):
        method.index(history)
        method.index(history)  # once is enough
    method.close()
    assert [entry for entry in log if entry[0] in ("forget", "close", "add")] == [
        ("add", 6), ("forget", {"everything": True}), ("close",), ("add", 6), ("close",),
    ]  # fmt: skip
    with pytest.raises(RuntimeError, match=r"index\(history\)"):
        method.rank(queries("q"))


def test_variants_share_one_log_and_other_content_has_its_own(watch):
    method, _, opened = watch("zeromem")
    method.index(CHAT)
    method.index(History("chat", CHAT.traces[:-1]))
    scopes = [given["scope"] for given in opened]
    assert len(set(scopes)) == 2
    assert all(scope.startswith("chat/") for scope in scopes)


def test_the_embedding_channel_has_no_lexical_weight():
    config = without_words(Config())
    assert config.graph.lexical_prior == 0
    words = {"turn_lexical", "window_lexical", "episode_lexical", "phrase", "episode_best"}
    for mine, full in (
        (config.graph.refine, Config().graph.refine),
        (config.hierarchy.score, Config().hierarchy.score),
    ):
        for name in SignalWeights.__dataclass_fields__:
            assert getattr(mine, name) == (0 if name in words else getattr(full, name))


class Moved(HashEncoder):
    """Another space: its vectors rank otherwise, its fingerprint is another."""

    def __init__(self):
        super().__init__("moved")

    def _mean(self, text):
        return super()._mean(text[::-1])


def test_the_lexical_channel_knows_no_vector(tmp_path):
    """Its rankings are the same whatever the encoder; the full method's are not."""
    words = ["kayak", "tent", "river", "lamp", "rope", "stove", "map", "boat"]
    rng = np.random.default_rng(7)
    texts = [" ".join(rng.choice(words, 4)) for _ in range(40)]
    history = History(
        "h", tuple(Trace(t, id=f"{i}", session=f"{i // 5}") for i, t in enumerate(texts))
    )
    asked = ("kayak rope", "the stove and the map", "lamp")

    def run(name, encoder, path):
        memories = OpenMemories(tmp_path / path, encoder, "cpu", RuleAnnotator())
        method = ZeroMem(name, memories)
        ranked = rank(method, history, *asked)
        memories.close()
        return ranked

    lexical = run("lexical", HashEncoder(), "a.zm")
    assert lexical == run("lexical", Moved(), "b.zm")
    assert run("zeromem", HashEncoder(), "a.zm") != lexical  # the store's features are whole
    assert run("embedding", HashEncoder(), "a.zm") != run("embedding", Moved(), "b.zm")


def test_questions_are_encoded_and_annotated_once_for_all_runs(tmp_path):
    """Rank and find of every method, and of a later run, share what is known of a question."""
    counted = {"encode": [], "annotate": []}

    class Encoder(HashEncoder):
        def encode(self, texts):
            counted["encode"].append(len(texts))
            return super().encode(texts)

    class Annotator(RuleAnnotator):
        def annotate(self, texts):
            counted["annotate"].append(len(texts))
            return super().annotate(texts)

    def run():
        some = methods.make(
            ["zeromem", "dense", "linear-rag"], encoder=Encoder(), store=tmp_path / "s.zm",
            annotator=Annotator(),
        )  # fmt: skip
        for calls in counted.values():
            calls.clear()
        asked = queries("Who sold the kayak?", "What did Ines patch?")
        got = []
        for method in some:
            method.index(CHAT)
            before = {name: len(calls) for name, calls in counted.items()}
            got.append((method.rank(asked), [f.evidence for f in method.find(asked, Budget())]))
            spent = {name: sum(calls[before[name] :]) for name, calls in counted.items()}
            yield spent, got[-1]
        for method in some:
            method.close()
            method.close()

    first, second = list(run()), list(run())
    assert first[0][0] == {"encode": 2, "annotate": 2}  # questions without the speakers' names
    assert first[1][0] == {"encode": 1, "annotate": 0}  # the one that holds a name
    assert first[2][0] == {"encode": 1, "annotate": 0}  # that name
    assert [spent for spent, _ in second] == [{"encode": 0, "annotate": 0}] * 3
    assert [found for _, found in second] == [found for _, found in first]


def test_a_store_serves_two_encoders(tmp_path):
    """The features of one are no hindrance to the other."""
    for encoder in (HashEncoder(), Moved(), HashEncoder()):
        (method,) = methods.make(
            ["zeromem"], encoder=encoder, store=tmp_path / "s.zm", annotator="rules"
        )
        assert len(rank(method, CHAT, "kayak")[0]) == 6
        method.close()


def test_an_encoder_that_fails_on_questions_fails_the_method(tmp_path):
    """The engine answers by words alone then; that is no figure of the method's."""
    encoder = BrittleEncoder(lambda text: text.startswith("kayak"))
    memories = OpenMemories(tmp_path / "m.zm", encoder, "cpu", RuleAnnotator())
    method = ZeroMem("zeromem", memories)
    method.index(History("h", (Trace("a rope", id="a"), Trace("a lamp", id="b"))))
    with pytest.raises(EncoderError):
        method.rank([Query("kayak?")])
    assert method.rank([Query("rope")])[0][0] == "a"


def test_a_history_that_fails_is_not_left_half_filled(tmp_path):
    memories = OpenMemories(tmp_path / "m.zm", HashEncoder(), "cpu", RuleAnnotator())
    bad = History("h", (Trace("a rope", id="a"), Trace("b", id="a")))
    for name in ("zeromem", "graph", "zeromem"):
        with pytest.raises(DuplicateIdError):
            ZeroMem(name, memories).index(bad)
    method = ZeroMem("zeromem", memories)
    method.index(History("i", (Trace("a rope", id="a"),)))
    assert method.rank([Query("rope")]) == [("a",)]


def test_damaged_kept_questions_are_refused(tmp_path):
    path = tmp_path / "s.asked"
    Asked(path).close()
    with sqlite3.connect(path) as file:
        file.execute("DROP TABLE asked")
        file.execute("CREATE TABLE asked (key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID")
    encoder = AskedEncoder(HashEncoder(), Asked(path))
    encoder.encode(["rope"])
    with sqlite3.connect(path) as file:
        file.execute("UPDATE asked SET value = x'00'")
    with pytest.raises(CorruptStoreError, match=r"\.asked"):
        AskedEncoder(HashEncoder(), Asked(path)).encode(["rope"])
    noise = tmp_path / "noise.asked"
    noise.write_bytes(b"noise" * 1000)
    with pytest.raises(StoreError, match="removed"):
        Asked(noise)
    with pytest.raises(StoreError, match="folder must exist"):
        Asked(tmp_path / "nowhere" / "s.asked")
