"""Annotating ahead: the same features, in order, whatever fails or is interrupted; and workers."""

import os
import subprocess
import sys
import threading
import time
import tracemalloc

import numpy as np
import pytest
from support import HashEncoder, difference, open_memory

from zeromem.config import Config, IngestConfig
from zeromem.english import English, english
from zeromem.ingest import ahead
from zeromem.ingest.ahead import Ahead, busy_cores
from zeromem.ingest.annotate import RuleAnnotator, SpacyAnnotator
from zeromem.ingest.apart import Worker, WorkerError
from zeromem.ingest.featurize import Featurizer
from zeromem.types import Trace

TEXT = "Barack Obama visited Berlin. He met Angela Merkel on Monday. It rained."


def traces(n):
    return [Trace(f"We met Leo{i} in Porto. Then Ana{i % 7} left, and it rained. " * 3,
                  speaker=f"s{i % 3}") for i in range(n)]  # fmt: skip


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(ahead, "SLAB", 4)
    monkeypatch.setattr(ahead, "WORTH", 0)


class Slow(RuleAnnotator):
    """Notes in which thread it runs, and how many cores count as taken."""

    def __init__(self):
        self.seen = []

    def annotate(self, texts):
        self.seen.append((threading.current_thread().name, busy_cores(), len(texts)))
        time.sleep(0.002)
        return super().annotate(texts)


def test_features_are_those_of_one_thread(small):
    some = traces(30)
    with Ahead(Slow()) as line:
        begun = Featurizer(Slow(), HashEncoder()).begin(some, line)
        found = Featurizer(Slow(), HashEncoder()).finish(begun)
    for trace, features in zip(some, found, strict=True):
        (alone,) = Featurizer(RuleAnnotator(), HashEncoder()).featurize([trace])
        assert difference(features, alone) is None


def test_long_batches_are_annotated_in_another_thread_and_short_ones_here():
    annotator = Slow()
    featurizer = Featurizer(annotator, HashEncoder())
    featurizer.featurize(traces(2))
    assert annotator.seen == [(threading.main_thread().name, 0, 2)]
    annotator.seen.clear()
    featurizer.featurize(traces(300))
    assert annotator.seen == [("zeromem-annotate", 1, n) for n in (128, 128, 44)]
    assert busy_cores() == 0


def test_an_annotators_error_reaches_the_caller_and_nothing_runs_on(small):
    class Broken(Slow):
        def annotate(self, texts):
            super().annotate(texts)
            raise RuntimeError("no grammar")

    annotator = Broken()
    with pytest.raises(RuntimeError, match="no grammar"):
        Featurizer(annotator, HashEncoder()).featurize(traces(100))
    n_seen = len(annotator.seen)
    assert n_seen < 25
    time.sleep(0.02)
    assert len(annotator.seen) == n_seen
    assert not [t for t in threading.enumerate() if t.name == "zeromem-annotate"]


def test_an_interrupt_leaves_the_rest_undone(small):
    class Interrupting(HashEncoder):
        def encode_spans(self, texts, spans):
            raise KeyboardInterrupt

    annotator = Slow()
    with pytest.raises(KeyboardInterrupt):
        Featurizer(annotator, Interrupting()).featurize(traces(400))
    assert len(annotator.seen) < 50
    assert not [t for t in threading.enumerate() if t.name == "zeromem-annotate"]


def test_equal_turns_of_two_groups_are_encoded_once(small):
    class Counting(HashEncoder):
        texts = ()

        def encode_spans(self, texts, spans):
            self.texts = (*self.texts, *texts)
            return super().encode_spans(texts, spans)

    encoder = Counting()
    text = "We met Leo."
    some = [Trace(" " * i + text) for i in range(40)]  # other traces, one turn
    found = Featurizer(Slow(), encoder).featurize(some)
    assert encoder.texts == (text,)
    assert all(np.array_equal(f.turn_vectors, found[0].turn_vectors) for f in found)


def test_a_name_is_encoded_once_and_kept_within_a_bound(monkeypatch):
    from zeromem.ingest import featurize

    class Counting(HashEncoder):
        def __init__(self):
            super().__init__()
            self.names = []

        def encode(self, texts):
            self.names += texts
            return super().encode(texts)

    encoder = Counting()
    featurizer = Featurizer(RuleAnnotator(), encoder)
    first = featurizer.featurize([Trace("I met Leo.", speaker="Ana")])[0]
    second = featurizer.featurize([Trace("You met Leo.", speaker="Ana")])[0]
    assert sorted(encoder.names) == ["ana", "leo"]
    assert np.array_equal(first.entity_vectors, second.entity_vectors)
    featurizer.forget_names()
    featurizer.featurize([Trace("We met Leo.", speaker="Ana")])
    assert sorted(encoder.names) == ["ana", "ana", "leo", "leo"]
    monkeypatch.setattr(featurize, "_KEPT_NAMES", 3)
    featurizer.featurize([Trace(f"We met Bob{i}.", speaker="Ana") for i in range(9)])
    assert list(featurizer._names) == ["bob6", "bob7", "bob8"]


def test_what_was_forgotten_is_not_kept_by_its_name():
    with open_memory() as memory:
        memory.add("We saw Xylo.", speaker="Ana", session="s")
        assert "xylo" in memory._featurizer._names
        memory.forget(session="s")
        assert not memory._featurizer._names


def test_memory_in_ingest_is_bounded_by_the_batch():
    def peak(n_batches):
        source = (
            Trace(f"We met Leo{i % 5} in Porto and it rained {i} hours. " * 30, id=str(i))
            for i in range(16 * n_batches)
        )
        with open_memory(config=Config(ingest=IngestConfig(batch_traces=16))) as memory:
            memory.add("warm")
            tracemalloc.start()
            memory.add_many(source, progress=False)
            found = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        return found

    few, many = peak(3), peak(15)
    assert many < 1.5 * few  # what is acknowledged for each trace does grow, by some 200 bytes


# ---- processes


@pytest.mark.model
class TestWorkers:
    def test_a_process_annotates_the_same(self):
        texts = [TEXT, "", "\ud800\U0001f431 e\u0301. Ana is in Berlin.", TEXT * 3]
        annotator = SpacyAnnotator()
        expected = annotator.annotate(texts)
        worker = Worker(annotator.package)
        try:
            for _ in range(2):
                for a, b in zip(annotator.annotate_by(worker, texts), expected, strict=True):
                    assert np.array_equal(a.sentences, b.sentences)
                    assert a.mentions == b.mentions
        finally:
            worker.close()
        with pytest.raises(WorkerError):
            worker.annotate(["x"])

    def test_processes_join_where_there_is_much_text(self, small, monkeypatch):
        monkeypatch.setattr(ahead, "n_processes", lambda: 1)
        monkeypatch.setattr(ahead, "WORTH_PROCESSES", 10)
        some = [Trace(f"{TEXT} {i}") for i in range(400)]
        annotator = SpacyAnnotator()
        asked = []
        by = annotator.annotate_by
        monkeypatch.setattr(annotator, "annotate_by", lambda *a: asked.append(1) or by(*a))
        with Ahead(annotator) as line:
            groups = list(line.begin(some).groups())
            processes = [w._process for w in line._workers]
        assert asked
        assert [t for ts, _ in groups for t in ts] == some
        made = [a for _, annotations in groups for a in annotations]
        for trace, found in zip(some, made, strict=True):
            assert [trace.text[a:z] for a, z, _ in found.mentions] == [
                "Barack Obama", "Berlin", "Angela Merkel",
            ]  # fmt: skip
        assert [p.poll() is not None for p in processes] == [True]

    def test_a_process_that_dies_is_made_up_for(self, small, monkeypatch, caplog):
        monkeypatch.setattr(ahead, "n_processes", lambda: 1)
        monkeypatch.setattr(ahead, "WORTH_PROCESSES", 10)
        some = [Trace(f"{TEXT} {i}") for i in range(60)]
        with Ahead(SpacyAnnotator()) as line:
            begun = line.begin(some)
            line._workers[0]._process.kill()
            found = [a for _, part in begun.groups() for a in part]
        assert [len(a.mentions) for a in found] == [3] * 60
        assert "a process less annotates" in caplog.text

    def test_one_text_may_be_annotated_before_the_pipeline_is_loaded_here(self, monkeypatch):
        real = english()
        annotator = SpacyAnnotator()
        monkeypatch.setattr(annotator, "_english", English(real.package, real.version))
        annotator.start_apart()
        assert annotator.entities([TEXT]) == [["barack obama", "berlin", "angela merkel"]]
        assert not annotator._english.loaded
        annotator._worker.close()
        assert annotator.entities([TEXT]) == [["barack obama", "berlin", "angela merkel"]]
        assert annotator._english.loaded

    def test_no_process_outlives_its_caller(self):
        code = (
            "import os; from zeromem.ingest.annotate import SpacyAnnotator as S; a = S(); "
            "a.start_apart(); print(a._worker._process.pid, flush=True); os._exit(3)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 3
        deadline = time.monotonic() + 60
        while _runs(int(done.stdout)):
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def test_a_script_without_a_main_guard_is_not_run_again(self, tmp_path):
        script = tmp_path / "script.py"
        script.write_text(
            "print('once')\n"
            "from zeromem.ingest.annotate import SpacyAnnotator\n"
            "a = SpacyAnnotator()\na.start_apart()\nprint(a.entities(['Ana is in Berlin.']))\n"
        )
        done = subprocess.run(
            [sys.executable, script], capture_output=True, text=True, check=True, cwd=tmp_path
        )
        assert done.stdout.splitlines()[0] == "once"
        assert "berlin" in done.stdout.splitlines()[1]
        assert len(done.stdout.splitlines()) == 2


def _runs(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = f"/proc/{pid}/stat"
    if not os.path.exists(stat):
        return False
    with open(stat) as file:
        return file.read().rpartition(")")[2].split()[0] != "Z"


def test_a_frozen_program_starts_no_process(monkeypatch):
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    with pytest.raises(WorkerError, match="no Python"):
        Worker("en_core_web_sm")
