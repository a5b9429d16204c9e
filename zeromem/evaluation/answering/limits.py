"""Requests and tokens per minute, over all threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from zeromem.errors import InvalidInputError

_CHARACTERS_PER_TOKEN = 4.0


def estimate(messages: Sequence[dict[str, str]]) -> int:
    """Prompt tokens of a chat before anybody has counted them: a quarter of its characters."""
    return int(sum(len(m["content"]) for m in messages) / _CHARACTERS_PER_TOKEN) + 1


class RateLimit:
    """Spaces requests evenly: each waits for its turn, and its turn for the tokens before it.

    Even spacing never bursts, unlike a bucket that holds a minute's allowance and lets two
    minutes' worth pass in one. What a request really used corrects the estimate afterwards.

    Parameters
    ----------
    requests, tokens : float, optional
        Per minute; no limit without.
    clock, sleep : callable
        Seconds, monotonic; for tests.

    Raises
    ------
    InvalidInputError
        For a limit that is not positive.
    """

    def __init__(
        self,
        requests: float | None = None,
        tokens: float | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        for name, value in (("requests", requests), ("tokens", tokens)):
            if value is not None and value <= 0:
                raise InvalidInputError(
                    f"--{name}-per-minute must be positive, got {value!r}; leave it out for none"
                )
        self._request_seconds = 60.0 / requests if requests else 0.0
        self._token_seconds = 60.0 / tokens if tokens else 0.0
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._next_request = self._next_token = float("-inf")

    def wait(self, messages: Sequence[dict[str, str]]) -> None:
        """Wait until a chat may be sent."""
        with self._lock:
            now = self._clock()
            at = max(now, self._next_request, self._next_token)
            self._next_request = at + self._request_seconds
            self._next_token = at + estimate(messages) * self._token_seconds
        if at > now:
            self._sleep(at - now)

    def settle(self, messages: Sequence[dict[str, str]], used: int) -> None:
        """Correct a chat's estimate by the tokens that it used, prompt and completion."""
        with self._lock:
            self._next_token += (used - estimate(messages)) * self._token_seconds
