"""Encoders that fail, come back, differ, or were interrupted."""

from __future__ import annotations

import logging
import sqlite3
from dataclasses import replace

import numpy as np
import pytest
from support import STORY, BrittleEncoder, HashEncoder, difference, ids, open_memory, shown

from zeromem.config import Config, IngestConfig
from zeromem.errors import EncoderError, FingerprintMismatchError, InvalidInputError, StoreError
from zeromem.types import Trace

QUESTIONS = ["Where does Ana live now?", "Who founded Acme?", "tuna", "Tagus in Lisbon"]
WORDS = "founded, plays chess"  # those of one trace
SMALL = Config(ingest=IngestConfig(batch_traces=3))


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """Try again at once what failed."""
    monkeypatch.setattr("zeromem.indexer._RETRY_SECONDS", 0.0)


@pytest.fixture(scope="module")
def sound():
    """The same memory, whose encoder never failed."""
    with open_memory(config=SMALL) as memory:
        memory.add_many(STORY)
        yield memory


def arrays(memory):
    return memory._indexer.current().index.arrays


def assert_as_if_nothing_had_happened(memory, sound):
    assert memory.stats()["pending"] == 0
    assert difference(arrays(memory), arrays(sound)) is None
    for a, b in zip(memory.retrieve_batch(QUESTIONS), sound.retrieve_batch(QUESTIONS), strict=True):
        assert shown(a) == shown(b)


class Wrong(HashEncoder):
    """Returns what is no matrix of vectors, until told to behave."""

    def __init__(self, spoil):
        super().__init__()
        self.spoil = spoil

    def encode_spans(self, texts, spans):
        found = super().encode_spans(texts, spans)
        return found if self.spoil is None else self.spoil(found)


SPOILED = {
    "nan": lambda f: replace(f, span_vectors=f.span_vectors + np.nan),
    "huge": lambda f: replace(f, text_vectors=f.text_vectors * 1e9),
    "dim": lambda f: replace(f, text_vectors=f.text_vectors[:, :-1]),
    "rows": lambda f: replace(f, span_vectors=f.span_vectors[1:]),
    "tokens": lambda f: replace(f, span_tokens=f.span_tokens[1:]),
    "nothing": lambda f: None,
}


@pytest.mark.parametrize(
    "error",
    [
        EncoderError("down"), ValueError("bad"), RuntimeError("CUDA"), MemoryError(), KeyError("k"),
        OSError("net"), ZeroDivisionError(),
    ],
    ids=repr,
)  # fmt: skip
def test_whatever_an_encoder_raises_the_traces_are_kept_found_and_finished_later(
    error, sound, caplog
):
    encoder = BrittleEncoder(lambda text: "Acme" in text, error)
    with open_memory(encoder=encoder, config=SMALL) as memory:
        added = memory.add_many(STORY)
        assert [a.created for a in added] == [True] * len(STORY)
        assert memory.stats()["traces"] == len(STORY)
        assert memory.stats()["pending"] == 3  # the batch that holds "Acme"
        assert "found by their words alone" in caplog.text
        assert STORY[4].text in [e.text for e in memory.retrieve(WORDS, k=3).main]
        assert {t.text for t in STORY} == {e.text for e in memory.retrieve("Porto", k=99)}
        encoder.refuses = lambda text: False
        assert_as_if_nothing_had_happened(memory, sound)


@pytest.mark.parametrize("spoil", SPOILED)
def test_what_is_no_vector_is_not_taken_for_one(spoil, sound):
    encoder = Wrong(SPOILED[spoil])
    with open_memory(encoder=encoder, config=SMALL) as memory:
        memory.add_many(STORY)
        assert memory.stats()["pending"] == len(STORY)
        assert STORY[4].text in [e.text for e in memory.retrieve(WORDS, k=3).main]
        encoder.spoil = None
        assert_as_if_nothing_had_happened(memory, sound)


def test_a_failing_encoder_is_not_asked_at_every_question(monkeypatch):
    monkeypatch.setattr("zeromem.indexer._RETRY_SECONDS", 1000.0)
    encoder = BrittleEncoder(lambda text: "Acme" in text)
    with open_memory(encoder=encoder) as memory:
        memory.add_many(STORY)
        memory.retrieve("tuna")
        calls = encoder.calls
        for i in range(3):
            memory.retrieve(f"tuna {i}")
        assert encoder.calls == calls + 3  # the questions alone
        memory.add("More of Acme.")  # tries what is new, once
        memory.retrieve("more tuna")
        assert encoder.calls == calls + 5
        assert memory.stats()["pending"] == len(STORY) + 1


def test_pending_traces_survive_closing_and_are_finished_by_whoever_opens(tmp_path, sound):
    with open_memory(tmp_path / "m.zm", encoder=BrittleEncoder(None), config=SMALL) as memory:
        memory.add_many(STORY)
        memory.retrieve("tuna")
    assert not list(tmp_path.glob("*.zmi"))  # half an index is not worth keeping
    with open_memory(tmp_path / "m.zm", config=SMALL) as memory:
        assert memory.stats()["traces"] == len(STORY)
        assert_as_if_nothing_had_happened(memory, sound)
    with open_memory(tmp_path / "m.zm", config=SMALL) as memory:
        assert memory.stats()["pending"] == 0


def test_a_prefix_is_finished_too(sound):
    encoder = BrittleEncoder(lambda text: "Acme" in text)
    with open_memory(encoder=encoder, config=SMALL) as memory:
        memory.add_many(STORY)
        memory.retrieve_batch(QUESTIONS, as_of=6)  # kept for the next question
        encoder.refuses = lambda text: False
        found = memory.retrieve_batch(QUESTIONS, as_of=6)
        assert [shown(r) for r in found] == [
            shown(r) for r in sound.retrieve_batch(QUESTIONS, as_of=6)
        ]


def test_forgetting_a_pending_trace_leaves_no_trace_of_it():
    """Its names had no vectors; the names of others have."""
    log = [Trace("Carla fails here", id="bad"), Trace("Carla is in Acme."), Trace("Acme is old.")]
    encoder = BrittleEncoder(lambda text: "fails" in text)
    with open_memory(encoder=encoder) as memory, open_memory() as clean:
        for trace in log:
            memory.add_many([trace])
        memory.retrieve("Carla")
        memory.forget("bad")
        clean.add_many(log[1:])
        assert difference(arrays(memory).entity_vectors, arrays(clean).entity_vectors) is None
        assert shown(memory.retrieve("Who is in Acme?")) == shown(clean.retrieve("Who is in Acme?"))
        assert memory.stats()["pending"] == 0


def test_questions_are_answered_by_words_while_the_encoder_is_down(sound, caplog):
    encoder = BrittleEncoder()
    with open_memory(encoder=encoder, config=SMALL) as memory:
        memory.add_many(STORY)
        before = [shown(r) for r in memory.retrieve_batch(QUESTIONS)]
        encoder.refuses = None
        with caplog.at_level(logging.WARNING):
            # With a space more: the vectors of those just asked are kept.
            found = memory.retrieve_batch([f"{q} " for q in QUESTIONS])
        assert "the encoder is down" in caplog.text
        assert "Carla Reis" in " ".join(e.text for e in found[1])
        assert STORY[2].text in [e.text for e in found[2].main]
        assert all(np.isfinite(e.score) for r in found for e in r)
        encoder.refuses = lambda text: False
        assert [shown(r) for r in memory.retrieve_batch(QUESTIONS)] == before


def test_a_rebuild_encodes_nothing_again(tmp_path):
    with open_memory(tmp_path / "m.zm") as memory:
        memory.add_many(STORY)
        wanted = [shown(r) for r in memory.retrieve_batch(QUESTIONS)]
    for file in tmp_path.glob("*.zmi"):
        file.unlink()

    class Once(HashEncoder):
        def encode_spans(self, texts, spans):
            raise AssertionError("encoded again")

    with open_memory(tmp_path / "m.zm", encoder=Once()) as memory:
        assert [shown(r) for r in memory.retrieve_batch(QUESTIONS)] == wanted
        assert not any(a.created for a in memory.add_many(STORY))


def test_one_text_in_many_contexts_is_encoded_once(tmp_path):
    seen = []

    class Counting(HashEncoder):
        def encode_spans(self, texts, spans):
            seen.extend(texts)
            return super().encode_spans(texts, spans)

    for scope in ("a", "b"):
        with open_memory(tmp_path / "m.zm", encoder=Counting(), scope=scope) as memory:
            memory.add_many([Trace("Same words.", session=str(i)) for i in range(100)])
            memory.add("Same words.", session="later")
            assert len(memory.retrieve("same", k=200)) == 101
            assert memory.stats()["features"] == 1
    assert seen == ["Same words."]


def test_damaged_features_are_made_anew(tmp_path, sound, caplog):
    with open_memory(tmp_path / "m.zm", config=SMALL) as memory:
        memory.add_many(STORY)
    with sqlite3.connect(tmp_path / "m.zm") as con:
        con.execute("UPDATE blobs SET data = substr(data, 1, 50) WHERE blob_id % 2")
    con.close()
    with open_memory(tmp_path / "m.zm", config=SMALL) as memory:
        assert_as_if_nothing_had_happened(memory, sound)
    assert "cached features are made anew" in caplog.text


# ---- interrupts


class Interrupted(HashEncoder):
    """Raises KeyboardInterrupt at the n-th call."""

    def __init__(self, n):
        super().__init__()
        self.left = n

    def encode_spans(self, texts, spans):
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt
        return super().encode_spans(texts, spans)


def test_an_interrupted_retry_is_tried_again(sound):
    encoder = BrittleEncoder(None)
    with open_memory(encoder=encoder, config=SMALL) as memory:
        memory.add_many(STORY)
        memory.retrieve("tuna")
        encoder.error = KeyboardInterrupt()
        with pytest.raises(KeyboardInterrupt):
            memory.retrieve("tuna")
        encoder.refuses = lambda text: False
        assert_as_if_nothing_had_happened(memory, sound)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_an_interrupted_import_runs_again_without_duplicates(n, sound, tmp_path):
    with open_memory(tmp_path / "m.zm", encoder=Interrupted(n), config=SMALL) as memory:
        with pytest.raises(KeyboardInterrupt):
            memory.add_many(STORY)
        # Batches are acknowledged before they are encoded, and one ahead of it.
        n_stored = min(9, 3 * (n + 1))
        assert memory.stats()["traces"] == n_stored
        assert len(memory.retrieve("tuna", k=99)) == n_stored
        added = memory.add_many(STORY)
        assert [a.created for a in added] == [False] * n_stored + [True] * (9 - n_stored)
        assert_as_if_nothing_had_happened(memory, sound)


def test_an_interrupt_of_the_source_keeps_whole_batches(sound):
    def source():
        yield from STORY[:5]
        raise KeyboardInterrupt

    with open_memory(config=SMALL) as memory:
        with pytest.raises(KeyboardInterrupt):
            memory.add_many(source())
        assert memory.stats()["traces"] == 3
        memory.add_many(STORY)
        assert_as_if_nothing_had_happened(memory, sound)


# ---- another encoder


def test_another_encoder_is_refused_by_name_and_reencoding_serves(tmp_path, sound):
    path = tmp_path / "m.zm"
    with open_memory(path, encoder=HashEncoder("old"), config=SMALL) as memory:
        memory.add_many(STORY)
    with pytest.raises(FingerprintMismatchError) as error:
        open_memory(path, config=SMALL)
    for part in ("old-32", "hash-32", "reencode=True", "zeromem reencode"):
        assert part in str(error.value)
    with open_memory(path, encoder=HashEncoder("old"), config=SMALL) as memory:
        assert memory.stats()["pending"] == 0  # the refusal touched nothing
    with open_memory(path, config=SMALL, reencode=True) as memory:
        assert_as_if_nothing_had_happened(memory, sound)
    with open_memory(path, config=SMALL) as memory:
        assert_as_if_nothing_had_happened(memory, sound)
    with pytest.raises(FingerprintMismatchError, match="old-32"):
        open_memory(path, encoder=HashEncoder("old"), config=SMALL)


def test_reencoding_one_scope_leaves_the_others(tmp_path):
    path = tmp_path / "m.zm"
    for scope in ("a", "b"):
        with open_memory(path, encoder=HashEncoder("old"), scope=scope) as memory:
            memory.add_many(STORY)
    open_memory(path, scope="a", reencode=True).close()
    with open_memory(path, encoder=HashEncoder("old"), scope="b") as memory:
        assert memory.stats()["pending"] == 0
        assert len(memory.retrieve("tuna")) > 0


def test_an_interrupted_reencoding_goes_on(tmp_path, sound):
    path = tmp_path / "m.zm"
    with open_memory(path, encoder=HashEncoder("old"), config=SMALL) as memory:
        memory.add_many(STORY)

    class Tired(HashEncoder):
        def encode_spans(self, texts, spans):
            raise KeyboardInterrupt

    with open_memory(path, encoder=Tired(), config=SMALL, reencode=True) as memory:
        with pytest.raises(KeyboardInterrupt):
            memory.retrieve("tuna")
        memory._indexer.save = lambda: None
    with open_memory(path, config=SMALL) as memory:
        assert_as_if_nothing_had_happened(memory, sound)


def test_reencoding_with_the_same_encoder_does_nothing(tmp_path):
    with open_memory(tmp_path / "m.zm") as memory:
        memory.add_many(STORY)
    with open_memory(tmp_path / "m.zm", reencode=True) as memory:
        assert memory.stats()["pending"] == 0


def test_a_forgotten_memory_may_take_another_encoder(tmp_path):
    with open_memory(tmp_path / "m.zm", encoder=HashEncoder("old")) as memory:
        memory.add("tuna")
        memory.forget(everything=True)
    with open_memory(tmp_path / "m.zm") as memory:
        memory.add("tuna")
        assert ids(memory.retrieve("tuna"))


def test_reencode_needs_a_writable_store(tmp_path):
    with open_memory(tmp_path / "m.zm", encoder=HashEncoder("old")) as memory:
        memory.add("tuna")
    with pytest.raises(StoreError, match="read-only"):
        open_memory(tmp_path / "m.zm", read_only=True, reencode=True)


def test_an_encoder_needs_its_four_names():
    class Half:
        fingerprint, dim = "half", 3

    with pytest.raises(InvalidInputError, match="fingerprint, dim, encode and encode_spans"):
        open_memory(encoder=Half())


class MoodyEncoder(HashEncoder):
    """Gives a text other last bits in another batch, as low-precision models do."""

    def encode(self, texts):
        return super().encode(texts) * np.float32(1 + 1e-3 * len(texts))


def test_a_question_gets_the_same_evidence_alone_and_in_a_batch_of_a_moody_encoder():
    questions = ["who adopted the cat", "tuna", "where is the garden"]
    with open_memory(encoder=MoodyEncoder()) as memory:
        memory.add_many(
            ["Ana adopted a cat", "the cat eats tuna", "the garden is behind the house"]
        )
        alone = [memory.retrieve(q) for q in questions]
        together = memory.retrieve_batch(questions)
    for one, other in zip(alone, together, strict=True):
        assert [(e.id, e.score) for e in one] == [(e.id, e.score) for e in other]
