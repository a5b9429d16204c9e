"""Calls from many threads, answered together.

A batch answers a question in a fraction of the time that it takes alone. Who asks while others are
being answered waits for the next round and shares it, so that threads which ask one question each
get a batch's throughput; who asks alone waits for nobody.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

Q = TypeVar("Q")
A = TypeVar("A")

# Calls that one round answers: more would only make the first of them wait.
_MOST = 64
# Seconds for which a round waits to grow as large as the one before: those who were answered just
# now ask again. After a call that was alone no call waits.
_WINDOW = 0.001
_LOOKS = 5
# Seconds after which who waits looks whether there is still somebody to wait for.
_PATIENCE = 0.1


class _Call(Generic[Q, A]):
    """One call: what is asked, and once it is over what came of it."""

    def __init__(self, asked: Q) -> None:
        self.asked = asked
        self.thread = threading.get_ident()
        self.answer: A | None = None
        self.error: BaseException | None = None
        self.over = False
        # Locked while nothing has happened. (An Event is Python code, and an interrupt inside of it
        # would leave it locked for all who touch it later; this is one instruction.)
        self._still = threading.Lock()
        self._still.acquire()

    def wait(self) -> None:
        """Return when woken, or after a while."""
        self._still.acquire(timeout=_PATIENCE)

    def wake(self) -> None:
        """Let it look again."""
        with suppress(RuntimeError):  # it was woken already
            self._still.release()


class Combiner(Generic[Q, A]):
    """Answers calls in rounds.

    Nothing here outlives the call it belongs to: an interrupt may end a call at any instruction,
    and the others must notice. So calls are held by their callers' frames alone, and who waits
    looks up from time to time.

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
        self._lock = threading.Lock()
        self._waiting: list[weakref.ref[_Call[Q, A]]] = []
        self._leading: list[weakref.ref[_Call[Q, A]]] = []
        self._answering = threading.local()
        self._last_size = 1

    def __call__(self, asked: Q) -> A:
        """Answer one call, with those that are waiting.

        A call from within an answer (an annotator that asks a memory, say) is answered at once.
        """
        if getattr(self._answering, "now", False):
            return self._together([asked])[0]
        call = _Call[Q, A](asked)
        try:
            with self._lock:
                # A thread has one call at a time: another one of its own was interrupted.
                self._forget(lambda other: other.thread == call.thread)
                self._waiting.append(weakref.ref(call))
            while not call.over:
                if self._leads(call):
                    self._lead(call)
                else:
                    call.wait()
        finally:
            self._leave(call)
        if call.error is not None:
            raise call.error
        return call.answer  # type: ignore[return-value] # an answer where there is no error

    def _leads(self, call: _Call[Q, A]) -> bool:
        with self._lock:
            leading = _alive(self._leading)
            if call not in leading and len(leading) < self._n_rounds:
                self._leading = [*map(weakref.ref, leading), weakref.ref(call)]
                leading.append(call)
            return call in leading and not call.over

    def _forget(self, gone: Callable[[_Call[Q, A]], bool]) -> None:
        self._waiting = [weakref.ref(c) for c in _alive(self._waiting) if not gone(c)]
        self._leading = [weakref.ref(c) for c in _alive(self._leading) if not gone(c)]

    def _lead(self, own: _Call[Q, A]) -> None:
        """Run one round, of all that wait by now; ``own`` is among them."""
        for _ in range(_LOOKS):
            if len(self._waiting) >= min(self._last_size, _MOST):
                break
            time.sleep(_WINDOW / _LOOKS)
        with self._lock:
            # Who leads has a round of its own.
            leading, waiting = _alive(self._leading), _alive(self._waiting)
            others = [call for call in waiting if call not in leading][: _MOST - 1]
            left = [call for call in waiting if call is not own and call not in others]
            self._waiting = [*map(weakref.ref, left)]
            self._last_size = 1 + len(others)
        self._answering.now = True
        try:
            self._answer([own, *others])
        finally:
            self._answering.now = False
            left = [call for call in others if not call.over]
            if left:  # an interrupt of this thread, which is not theirs
                with self._lock:
                    self._waiting = [*map(weakref.ref, left), *self._waiting]
            for call in others:
                call.wake()

    def _answer(self, calls: Sequence[_Call[Q, A]]) -> None:
        try:
            answers = self._together([call.asked for call in calls])
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            if len(calls) == 1:
                calls[0].error, calls[0].over = error, True
                return
            for call in calls:
                self._answer([call])
            return
        for call, answer in zip(calls, answers, strict=True):
            call.answer, call.over = answer, True

    def _leave(self, call: _Call[Q, A]) -> None:
        """Hand the lead on."""
        with self._lock:
            self._forget(lambda other: other is call)
            leading, waiting = _alive(self._leading), _alive(self._waiting)
        following = next((c for c in waiting if c not in leading), None)
        if following is not None:
            following.wake()


def _alive(refs: Sequence[weakref.ref[_Call[Q, A]]]) -> list[_Call[Q, A]]:
    """Calls whose callers have not gone."""
    return [call for ref in refs if (call := ref()) is not None]


_combiners: weakref.WeakSet[Combiner[Any, Any]] = weakref.WeakSet()


def _renew_all() -> None:
    for combiner in list(_combiners):
        combiner._renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
