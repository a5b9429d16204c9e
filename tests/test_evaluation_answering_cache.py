"""Replies by content: asked once, kept at once, whatever interrupts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from chat_server import Server, good

from zeromem.errors import InvalidInputError
from zeromem.evaluation.answering.cache import ReplyCache, key_of
from zeromem.evaluation.answering.limits import RateLimit, estimate
from zeromem.types import TokenUsage

USAGE = TokenUsage(10, 2, 1, 4)


def test_a_reply_is_made_once_and_keeps_its_cost_and_its_first_time(tmp_path):
    path = tmp_path / "new" / "replies.db"
    calls = []

    def make():
        calls.append(1)
        time.sleep(0.02)
        return {"text": "é\ud800", "n": [1, None]}, USAGE

    cache = ReplyCache(path)
    first = cache.ask("read", "k", make)
    cache.close()
    again = ReplyCache(path).ask("read", "k", make)
    assert calls == [1]
    assert first.fresh
    assert not again.fresh
    assert first.seconds >= 0.02
    assert (again.value, again.usage, again.seconds) == (first.value, USAGE, first.seconds)
    assert again.value == {"text": "é\ud800", "n": [1, None]}


def test_threads_that_ask_the_same_at_once_make_one_request(tmp_path):
    cache = ReplyCache(tmp_path / "r.db")
    calls = Counter()
    gate = threading.Barrier(8)
    out = []

    def ask(key):
        def make():
            calls[key] += 1
            time.sleep(0.05)
            return key, USAGE

        gate.wait()
        out.append(cache.ask("read", key, make))

    threads = [threading.Thread(target=ask, args=(key,)) for key in "aaaabbbb"]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert calls == {"a": 1, "b": 1}
    assert Counter(r.value for r in out) == {"a": 4, "b": 4}
    assert sum(r.fresh for r in out) == 2


def test_failures_reach_all_who_wait_and_are_not_kept():
    cache = ReplyCache()
    gate = threading.Barrier(2)
    errors = []

    def fail():
        time.sleep(0.05)
        raise ValueError("no")

    def ask():
        gate.wait()
        try:
            cache.ask("read", "k", fail)
        except ValueError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert errors == ["no", "no"]
    assert cache.get("k") is None
    assert cache.ask("read", "k", lambda: ("yes", USAGE)).value == "yes"


def test_keys_do_not_run_together():
    assert len({key_of("ab", "c"), key_of("a", "bc"), key_of("abc"), key_of("abc", "")}) == 4
    assert key_of("\ud800") != key_of("?")


def test_what_is_no_cache_is_named(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("not a database, " * 100)
    with pytest.raises(InvalidInputError, match=r"notes\.txt"):
        ReplyCache(path)


# ---- a run that is interrupted

RUN = """
import signal, sys
# A background job inherits an ignored SIGINT, and the interpreter then leaves it ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.path.insert(0, sys.argv[1])
from answering_support import Whole, many, options
from zeromem.evaluation.answering import readers, run
from zeromem.evaluation.types import Budget
reader = readers.from_options(options(
    "--reader", "openai:m", "--base-url", sys.argv[2], "--replies", sys.argv[3],
    "--jobs", sys.argv[4], "--retries", "0"))
found = run.answer(many(40), [Whole()], reader, Budget(), jobs=int(sys.argv[4]))["whole"]
print(found.n_fresh, len(found.rows), sum(r.error is not None for r in found.rows))
"""


def start(url, replies, jobs):
    here = str(Path(__file__).parent)
    return subprocess.Popen(
        [sys.executable, "-c", RUN, here, url, str(replies), str(jobs)],
        env={**os.environ, "OPENAI_API_KEY": "k"}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("how", "jobs"), [(signal.SIGKILL, 1), (signal.SIGINT, 4)])
def test_an_interrupted_run_continues_and_asks_nothing_twice(tmp_path, how, jobs):
    answered = Counter()
    release = threading.Event()

    def step(handler, body):
        if len(server.requests) > 12 and not release.is_set():
            reached.set()
            if how == signal.SIGKILL:  # under way when it dies: the one that is asked again
                release.wait(30)
                return
            time.sleep(0.3)  # under way when interrupted: it arrives and is kept
        answered[json.dumps(body["messages"])] += 1
        good(handler, body)

    reached = threading.Event()
    with Server(step) as server:
        first = start(server.url, tmp_path / "r.db", jobs)
        assert reached.wait(60)
        first.send_signal(how)
        first.communicate(timeout=60)
        assert first.returncode != 0
        n_first = answered.total()
        assert 12 <= n_first < 40
        release.set()
        second = start(server.url, tmp_path / "r.db", jobs)
        out, err = second.communicate(timeout=60)
    assert out.split() == [str(40 - n_first), "40", "0"], err
    assert len(answered) == 40
    assert set(answered.values()) == {1}


# ---- rate limits


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


def chat(n_tokens):
    return [{"role": "user", "content": "x" * (4 * (n_tokens - 1))}]


def test_requests_are_spaced_evenly():
    clock = Clock()
    limit = RateLimit(requests=30, clock=clock, sleep=clock.sleep)
    at = []
    for _ in range(4):
        limit.wait(chat(5))
        at.append(clock.now - 100)
    assert at == pytest.approx([0, 2, 4, 6])


def test_tokens_are_spaced_by_what_was_used_not_by_what_was_guessed():
    clock = Clock()
    limit = RateLimit(tokens=600, clock=clock, sleep=clock.sleep)  # ten a second
    assert estimate(chat(50)) == 50
    limit.wait(chat(50))
    limit.settle(chat(50), 80)
    limit.wait(chat(50))
    assert clock.now - 100 == pytest.approx(8)
    limit.settle(chat(50), 10)
    limit.wait(chat(50))
    assert clock.now - 100 == pytest.approx(9)


def test_all_threads_share_one_limit():
    limit = RateLimit(requests=600)  # every tenth of a second
    times = []

    def work():
        for _ in range(2):
            limit.wait(chat(1))
            times.append(time.monotonic())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert max(times) - min(times) >= 0.69


@pytest.mark.parametrize("given", [{"requests": 0}, {"tokens": -1}])
def test_a_limit_that_lets_nothing_through_is_named(given):
    with pytest.raises(InvalidInputError, match=f"--{next(iter(given))}-per-minute"):
        RateLimit(**given)
