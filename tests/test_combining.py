"""Calls from many threads are answered together, each with its own answer or error."""

import gc
import os
import random
import signal
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import pytest
from support import HashEncoder, RuleAnnotator

import zeromem
from zeromem import combining
from zeromem.combining import Combiner


def squares(calls):
    return [call * call for call in calls]


def slow_squares(sizes):
    def together(calls):
        sizes.append(len(calls))
        time.sleep(0.005)
        return squares(calls)

    return together


def test_each_caller_gets_its_own_answer_and_rounds_are_shared():
    sizes = []
    combiner = Combiner(slow_squares(sizes))
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(combiner, range(400))) == squares(range(400))
    assert sum(sizes) == 400
    assert len(sizes) < 200  # at least two calls a round on the average
    assert max(sizes) <= 8


def test_who_asks_alone_waits_for_nobody(monkeypatch):
    monkeypatch.setattr(combining, "_WINDOW", 3600.0)  # who waited would wait for ever
    sizes = []
    combiner = Combiner(lambda calls: sizes.append(len(calls)) or squares(calls))
    assert [combiner(i) for i in range(100)] == squares(range(100))
    assert sizes == [1] * 100


def test_an_error_is_its_own_callers_alone():
    def together(calls):
        if any(call % 7 == 0 for call in calls):
            raise ValueError(f"sevens among {len(calls)}")
        time.sleep(0.002)
        return squares(calls)

    combiner = Combiner(together)

    def ask(i):
        try:
            return combiner(i)
        except ValueError as error:
            return str(error)

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(ask, range(140)))
    assert found == [("sevens among 1" if i % 7 == 0 else i * i) for i in range(140)]


def test_an_interrupt_of_the_leader_leaves_the_others_answered():
    started, interrupted = threading.Event(), []

    def together(calls):
        if "boss" in calls and not interrupted:
            interrupted.append(len(calls))
            started.set()
            time.sleep(0.05)  # others come meanwhile
            raise KeyboardInterrupt
        return [call.upper() for call in calls]

    combiner = Combiner(together)
    errors = []

    def boss():
        try:
            combiner("boss")
        except KeyboardInterrupt:
            errors.append("boss")

    leader = threading.Thread(target=boss)
    leader.start()
    started.wait()
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(combiner, "abcdefgh")) == list("ABCDEFGH")
    leader.join()
    assert errors == ["boss"]
    assert combiner("later") == "LATER"


def test_a_fork_starts_without_the_calls_of_its_parent():
    if not hasattr(os, "fork"):
        pytest.skip("no fork here")
    inside, release = threading.Event(), threading.Event()

    def together(calls):
        if "slow" in calls:
            inside.set()
            release.wait(10)
        return [call.upper() for call in calls]

    combiner = Combiner(together)
    parent = threading.Thread(target=combiner, args=("slow",))
    parent.start()
    inside.wait()
    child = os.fork()
    if child == 0:
        os._exit(0 if combiner("x") == "X" else 1)
    _, status = os.waitpid(child, 0)
    release.set()
    parent.join()
    assert os.waitstatus_to_exitcode(status) == 0


def test_several_rounds_may_run_at_once():
    running, most = [], []

    def together(calls):
        running.append(1)
        most.append(len(running))
        time.sleep(0.01)
        running.pop()
        return squares(calls)

    combiner = Combiner(together, 3)
    with ThreadPoolExecutor(12) as threads:
        assert list(threads.map(combiner, range(60))) == squares(range(60))
    assert 1 < max(most) <= 3


# --- memories -------------------------------------------------------------------------------------


@pytest.fixture
def memories(tmp_path):
    opened = []
    for name in ("ana", "ben"):
        memory = zeromem.open(
            tmp_path / "m.zm", scope=name, encoder=HashEncoder(), annotator=RuleAnnotator()
        )
        memory.add_many(
            [{"text": f"{name} put the kayak number {i} into shed {i % 7}."} for i in range(60)],
            progress=False,
        )
        opened.append(memory)
    yield opened
    for memory in opened:
        memory.close()


def shown(retrieval):
    return [(e.text, e.score, e.kind, e.main_rank) for e in retrieval]


def test_threads_get_what_they_would_get_alone(memories):
    asked = [
        (memory, f"Where is the kayak number {i}?", {"k": 1 + i % 3, "closure": i % 2 == 0})
        for i in range(40)
        for memory in memories
    ]
    alone = [shown(memory.retrieve(question, **options)) for memory, question, options in asked]
    with ThreadPoolExecutor(8) as threads:
        jobs = [threads.submit(m.retrieve, question, **options) for m, question, options in asked]
        assert [shown(job.result()) for job in jobs] == alone


def test_no_thread_gets_anothers_memory_while_traces_come_and_go(memories):
    def ask(i):
        memory, name = memories[i % 2], ("ana", "ben")[i % 2]
        if i % 5 == 0:
            memory.add(f"{name} saw boat {i}.")
        if i % 11 == 0:
            memory.forget(ids=[memory.retrieve(f"boat {i}", k=1)[0].trace.id])
        return all(e.text.startswith(name) for e in memory.retrieve(f"Where is number {i}?", k=5))

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(ask, range(160)))


def test_interrupts_at_any_instruction_leave_the_others_answered():
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("signals reach the main thread alone")
    combiner = Combiner(squares)

    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    draw = random.Random(0)
    try:
        for _ in range(1500):
            with suppress(KeyboardInterrupt):
                try:
                    signal.setitimer(signal.ITIMER_REAL, draw.uniform(1e-6, 6e-5))
                    for i in range(10):
                        combiner(i)
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            found = []
            other = threading.Thread(
                target=lambda found=found: found.append(combiner(3)), daemon=True
            )
            other.start()
            other.join(20)
            assert found == [9]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_what_a_library_raises_beside_exceptions_is_its_own_callers_too():
    class Panic(BaseException):
        pass

    def together(calls):
        if "bad" in calls:
            raise Panic
        time.sleep(0.002)
        return [call.upper() for call in calls]

    combiner = Combiner(together)

    def ask(word):
        try:
            return combiner(word)
        except Panic:
            return "panic"

    words = ["good", "bad", "fine", "bad", "well", "good"] * 10
    with ThreadPoolExecutor(6) as threads:
        found = list(threads.map(ask, words))
    assert found == ["panic" if word == "bad" else word.upper() for word in words]


def test_a_call_from_within_an_answer_is_answered():
    def together(calls):
        return [combiner("inner") if call == "outer" else call.upper() for call in calls]

    combiner = Combiner(together)
    assert combiner("outer") == "INNER"


# --- models ---------------------------------------------------------------------------------------


def opened(encoder, annotator):
    memory = zeromem.open(encoder=encoder, annotator=annotator)
    memory.add("The kayak is in shed four.")
    return memory


def test_who_asks_a_slow_model_keeps_nobody_else_waiting():
    inside, release = threading.Event(), threading.Event()

    class Slow(RuleAnnotator):
        fingerprint = "slow"

        def annotate(self, texts):
            if any("slow" in text for text in texts):
                inside.set()
                release.wait(30)
            return super().annotate(texts)

    encoder = HashEncoder()
    slow, fast = opened(encoder, Slow()), opened(encoder, RuleAnnotator())
    waiting = threading.Thread(target=slow.retrieve, args=("a slow question",))
    waiting.start()
    inside.wait(30)
    try:
        assert [e.text for e in fast.retrieve("Where is the kayak?")]  # it would wait for ever
    finally:
        release.set()
        waiting.join()
    slow.close()
    fast.close()


def test_encoders_go_with_their_memories_and_equal_ones_are_not_mixed_up():
    class Equal(HashEncoder):
        def __eq__(self, other):
            return True

        __hash__ = object.__hash__

    encoders = [Equal(8), Equal(16)]
    encoders[1].fingerprint = "other"
    memories = [opened(encoder, RuleAnnotator()) for encoder in encoders]
    assert all(len(memory.retrieve("Where is the kayak?")) for memory in memories)
    alive = [weakref.ref(encoder) for encoder in encoders]
    for memory in memories:
        memory.close()
    del memories, memory, encoders
    gc.collect()
    assert [ref() for ref in alive] == [None, None]


def test_an_encoder_that_changes_its_width_answers_by_words(caplog):
    encoder = HashEncoder()
    memory = opened(encoder, RuleAnnotator())
    assert len(memory.retrieve("Where is the kayak?"))
    encoder.dim = 48
    encoder.encode = lambda texts: np.ones((len(texts), 48), np.float32)
    assert memory.retrieve("Which shed has it?")[0].text == "The kayak is in shed four."
    assert "answered by words and links alone" in caplog.text
    memory.close()
