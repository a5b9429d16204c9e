"""Calls from many threads, answered together.

A batch answers a question in a fraction of the time that it takes alone. Who asks while others are
being answered waits for the next round and shares it, so that threads which ask one question each
get a batch's throughput; who asks alone waits for nobody.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

Q = TypeVar("Q")
A = TypeVar("A")

# Calls that one round answers: more would only make the first of them wait.
_MOST = 64
# Seconds for which a round waits to grow as large as the one before: those who were answered just
# now ask again. After a call that was alone no call waits.
_WINDOW = 0.001


class _Call(Generic[Q, A]):
    """One call: what is asked, and once it is over what came of it."""

    __slots__ = ("answer", "asked", "error", "leads", "over", "woken")

    def __init__(self, asked: Q) -> None:
        self.asked = asked
        self.answer: A | None = None
        self.error: BaseException | None = None
        self.over = False
        self.leads = False
        self.woken = threading.Event()


class Combiner(Generic[Q, A]):
    """Answers calls in rounds.

    Parameters
    ----------
    together : callable
        Answers several calls. Where it fails each is answered by itself, so that nobody gets the
        error of another.
    n_rounds : int
        Rounds that may run at once. What a round does in Python two rounds would only take from
        each other; what it does in kernels goes on all cores anyhow.
    """

    def __init__(self, together: Callable[[Sequence[Q]], Sequence[A]], n_rounds: int = 1) -> None:
        self._together = together
        self._n_rounds = n_rounds
        self._renew()
        _combiners.add(self)

    def _renew(self) -> None:
        """Start with no call, as a fork does, which leaves the threads of all calls behind."""
        self._lock = threading.Condition()
        self._waiting: deque[_Call[Q, A]] = deque()
        self._n_running = 0
        self._last_size = 1

    def __call__(self, asked: Q) -> A:
        """Answer one call, with those that are waiting."""
        call = _Call[Q, A](asked)
        with self._lock:
            self._waiting.append(call)
            self._lock.notify()
            if self._n_running < self._n_rounds:
                self._n_running += 1
                call.leads = True
        try:
            while not call.over:
                if call.leads:
                    self._lead(call)
                else:
                    call.woken.wait()
                    call.woken.clear()
        finally:
            self._leave(call)
        if call.error is not None:
            raise call.error
        return call.answer  # type: ignore[return-value] # an answer where there is no error

    def _lead(self, own: _Call[Q, A]) -> None:
        """Run one round, of all that wait by now; ``own`` is among them."""
        with self._lock:
            enough = min(self._last_size, _MOST)
            self._lock.wait_for(lambda: len(self._waiting) >= enough, _WINDOW)
            # Who was handed a lead has a round of its own.
            others = [call for call in self._waiting if not call.leads][: _MOST - 1]
            round_ = [own, *others]
            for call in round_:
                self._waiting.remove(call)
            self._last_size = len(round_)
        try:
            self._answer(round_)
        except BaseException:  # an interrupt of this thread, which is not the others'
            with self._lock:
                self._waiting.extendleft(call for call in others if not call.over)
            own.over = True
            raise
        finally:
            for call in others:
                if call.over:
                    call.woken.set()

    def _answer(self, calls: Sequence[_Call[Q, A]]) -> None:
        try:
            answers = self._together([call.asked for call in calls])
        except Exception as error:
            if len(calls) == 1:
                calls[0].error, calls[0].over = error, True
                return
            for call in calls:
                self._answer([call])
            return
        for call, answer in zip(calls, answers, strict=True):
            call.answer, call.over = answer, True

    def _leave(self, call: _Call[Q, A]) -> None:
        """Hand the lead on, or take back a call that an interrupt ended while it waited."""
        with self._lock:
            if call in self._waiting:
                self._waiting.remove(call)
            if not call.leads:
                return
            following = next((c for c in self._waiting if not c.leads), None)
            if following is None:
                self._n_running -= 1
                return
            following.leads = True
        following.woken.set()


_combiners: weakref.WeakSet[Combiner[Any, Any]] = weakref.WeakSet()


def _renew_all() -> None:
    for combiner in list(_combiners):
        combiner._renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
