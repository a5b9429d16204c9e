"""What fails for good ends a run, and what failed is said where somebody watches."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable

from zeromem.answer.openai_reader import EndpointError
from zeromem.errors import ReaderError
from zeromem.types import TokenUsage

_NEVER_PASS = frozenset({401, 403, 404})
_UNREACHABLE = 5  # in a row, each after its own retries, before anything ever came back


class Watch:
    """Decides whether asking on can help. Threads share it.

    A wrong key, model or address fails every question alike, and a server that never answered
    will hardly begin. Once replies have come, a 403 is about one question (gateways send it for
    what their filters dislike), and a lost server leaves failed samples.

    Parameters
    ----------
    what : str
        Whom is asked, for the message: "reader" or "judge".
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._lock = threading.Lock()
        self._n_replies = self._n_unreachable = 0
        self._stop: str | None = None

    def check(self) -> None:
        """Refuse to ask on where it cannot help.

        Raises
        ------
        ReaderError
        """
        if self._stop is not None:
            raise ReaderError(self._stop)

    def replied(self) -> None:
        """Note that a new reply came."""
        with self._lock:
            self._n_replies += 1

    def failed(self, error: Exception) -> None:
        """Note a failure.

        Raises
        ------
        ReaderError
            Where every further question would fail like it.
        """
        if isinstance(error, EndpointError):
            with self._lock:
                self._n_unreachable += error.unreachable
                dead = self._n_unreachable >= _UNREACHABLE and not self._n_replies
                refused = error.status in _NEVER_PASS and not (
                    error.status == 403 and self._n_replies
                )
                if (dead or refused) and self._stop is None:
                    why = f"{_UNREACHABLE} questions failed alike" if dead else "no other can pass"
                    self._stop = f"{error}; the {self._what} is asked no further, as {why}"
        self.check()


def metered(usage: TokenUsage) -> bool:
    """Whether a reply's tokens are known: no chat has a prompt without any."""
    return usage.calls == 0 or usage.prompt > 0


def tell(what: str, reasons: Iterable[str | None]) -> None:
    """Print how many failed, and why the first did, in one line on stderr.

    Parameters
    ----------
    what : str
        What there is one of per reason: "answers", "verdicts".
    reasons : iterable of str, optional
        None for what did not fail.
    """
    listed = list(reasons)
    failed = [reason for reason in listed if reason is not None]
    if failed:
        first = " ".join(failed[0].split())
        print(f"{len(failed)} of {len(listed)} {what} failed, the first: {first}", file=sys.stderr)


def tell_unmetered(what: str, n: int, of: int) -> None:
    """Print how many replies came without their tokens, where any did."""
    if n:
        print(
            f"no token usage was reported for {n} of {of} {what}: no token figure counts them",
            file=sys.stderr,
        )
