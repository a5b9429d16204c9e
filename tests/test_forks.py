"""A forked child, while another thread of its parent holds one of our locks."""

import os
import signal
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest
from support import HashEncoder, open_memory
from test_encoder_http import Server

import zeromem.english
from zeromem.forks import FairLock, Lock
from zeromem.index.chunks import Chunks
from zeromem.ingest import ahead, annotate, encode
from zeromem.ingest.annotate import RuleAnnotator
from zeromem.ingest.apart import Worker, WorkerError
from zeromem.ingest.encode import HTTPEncoder, load_encoder
from zeromem.ingest.featurize import Featurizer
from zeromem.packing import Kept, Pack
from zeromem.types import Trace

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here"),
    # Python 3.12 warns of what is tested here.
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning"),
]
SECONDS = 20


def in_child(work):
    """Return the exit code of ``work`` in a forked child: 0 where it returns something true."""
    child = os.fork()
    if not child:
        try:
            os._exit(0 if work() else 1)
        finally:
            os._exit(2)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "did not end"


@contextmanager
def held(lock):
    """Have another thread hold a lock."""
    inside, release = threading.Event(), threading.Event()

    def hold():
        with lock:
            inside.set()
            release.wait(3 * SECONDS)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert inside.wait(SECONDS)
        yield
    finally:
        release.set()
        thread.join()


def parses():
    english = zeromem.english.english()
    english.warm()
    return zeromem.english._turn, lambda: len(english.parse(["Ana met Ben."])) == 1


def finds_a_pipeline():
    return zeromem.english._instances_lock, zeromem.english.english


def finds_an_annotator():
    return annotate._instances_lock, lambda: annotate.load_annotator(None)


def finds_an_encoder():
    return encode._lock, lambda: load_encoder(None)


def featurizes():
    featurizer = Featurizer(RuleAnnotator(), HashEncoder())
    return featurizer._names_lock, lambda: featurizer.featurize([Trace("We met Zoe.")])


def extends():
    chunks = Chunks.of(np.zeros((0, 4), np.float16)).extended(np.ones((3, 4), np.float16))
    more = np.zeros((2, 4), np.float16)
    return chunks._room.lock, lambda: len(chunks.extended(more)) == 5


def annotates_ahead():
    def count():
        with ahead._one_core():
            return ahead.busy_cores() == 1

    return ahead._lock, count


def keeps():
    kept, key = Kept(), HashEncoder()
    return kept._lock, lambda: kept.get([key], lambda: 5) == 5


def solves_a_pack():
    pack = Pack(None, None)

    def solve():
        with pack.lock:
            return True

    return pack.lock, solve


def encodes():
    encoder = load_encoder(None)
    encoder.warm()
    return encoder._lock, lambda: len(encoder._tokenize(["Ana met Ben."], 0)) == 1


def asks_a_memory():
    memory = open_memory()
    memory.add("Ana lives in Porto.")
    memory.retrieve("Where does Ana live?")
    return memory._indexer._lock, lambda: len(memory.retrieve("Where does Ana live?")) == 1


@pytest.mark.parametrize(
    "make",
    [parses, finds_a_pipeline, finds_an_annotator, finds_an_encoder, featurizes, extends,
     annotates_ahead, keeps, solves_a_pack, encodes, asks_a_memory],
)  # fmt: skip
def test_what_another_thread_held_is_free(make):
    lock, work = make()
    with held(lock):
        assert in_child(work) == 0
    assert work()


def test_a_remote_encoder():
    server = Server()
    try:
        encoder = HTTPEncoder("m", base_url=server.url, timeout=10)
        with held(encoder._lock):
            assert in_child(lambda: encoder.encode(["Ana"]).shape == (1, 6)) == 0
    finally:
        server.httpd.shutdown()
        server.httpd.server_close()


def test_a_process_of_the_parents():
    worker = Worker(zeromem.english.english().package)

    def refuses():
        with pytest.raises(WorkerError):
            worker.annotate(["Ana"])
        return True

    try:
        with held(worker._lock):
            assert in_child(refuses) == 0
    finally:
        worker.close()


def test_a_pipeline_in_the_midst_of_a_text():
    english = zeromem.english.english()
    inside, release = threading.Event(), threading.Event()

    def names(doc):
        return [entity.text for entity in doc.ents]

    def slow(doc):
        inside.set()
        release.wait(3 * SECONDS)
        return names(doc)

    texts = ["Maria met John Reed in Lisbon.", "Ana moved to Porto."]
    wanted = english.each(texts, names)
    before = english._nlp

    def as_ever():
        return english.each(texts, names) == wanted and english._nlp is not before

    thread = threading.Thread(target=english.each, args=(texts, slow))
    thread.start()
    try:
        assert inside.wait(SECONDS)
        assert in_child(as_ever) == 0
    finally:
        release.set()
        thread.join()
    assert english.each(texts, names) == wanted
    assert english._nlp is before  # in the parent its use ended well


@pytest.mark.parametrize("kind", [Lock, FairLock])
def test_what_the_forking_thread_held_is_its_own(kind):
    lock = kind()
    entered = threading.Event()

    def enter():
        with lock:
            entered.set()

    def own():
        other = threading.Thread(target=enter)
        with lock:  # a second time
            other.start()
        shut_out = not entered.wait(0.2)
        lock.__exit__()
        other.join(SECONDS)
        return shut_out and entered.is_set()

    with lock:
        assert in_child(own) == 0


@pytest.mark.parametrize("kind", [Lock, FairLock])
def test_threads_take_turns(kind):
    lock = kind()
    entered = []
    with held(lock):
        waiting = [threading.Thread(target=lambda: lock.__enter__() or entered.append(1) or
                                    lock.__exit__()) for _ in range(3)]  # fmt: skip
        for thread in waiting:
            thread.start()
        time.sleep(0.1)
        assert not entered
    for thread in waiting:
        thread.join(SECONDS)
    assert len(entered) == 3


def test_who_waited_the_longest_comes_first():
    lock, order, begun = FairLock(), [], threading.Event()

    def hog():
        for i in range(40):
            with lock, lock:
                begun.set()
                time.sleep(0.01)
                order.append(("hog", i))

    def others(name):
        with lock:
            order.append((name, 0))

    threads = [threading.Thread(target=hog)]
    threads[0].start()
    assert begun.wait(SECONDS)
    for name in "abc":
        threads.append(threading.Thread(target=others, args=(name,)))
        threads[-1].start()
        time.sleep(0.002)
    for thread in threads:
        thread.join(SECONDS)
    places = [order.index((name, 0)) for name in "abc"]
    assert places == sorted(places)
    assert places[-1] < 30
    assert len(order) == 43
    with lock:
        assert lock._owner == threading.get_ident()
    assert lock._owner is None


def test_a_child_has_a_fair_lock_that_a_thread_held_and_others_waited_for():
    lock = FairLock()

    def enters():
        with lock, lock:
            return not lock._waiting

    with held(lock):
        waiting = threading.Thread(target=lambda: lock.__enter__() or lock.__exit__())
        waiting.start()
        time.sleep(0.1)
        assert in_child(enters) == 0
    waiting.join(SECONDS)
    assert not waiting.is_alive()
