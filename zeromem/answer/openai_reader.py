"""A reader behind any endpoint that speaks the OpenAI chat-completions protocol."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from zeromem.answer.prompt import answer_span, messages, parse_reply
from zeromem.answer.reader import Draft
from zeromem.errors import InvalidInputError, ReaderError
from zeromem.types import Evidence, QueryProfile, TokenUsage

_log = logging.getLogger(__name__)
_RETRIED = frozenset({408, 409, 425, 429})
_LONGEST_WAIT = 30.0


@dataclass(frozen=True, slots=True)
class Reply:
    """What a chat model said.

    Attributes
    ----------
    text : str
        Word for word.
    usage : TokenUsage
    confidence : float, optional
        Mean log-probability of the answer's tokens, where the endpoint gave log-probabilities.
    """

    text: str
    usage: TokenUsage
    confidence: float | None = None


class OpenAIReader:
    """Chat completions with retries, timeouts and metered tokens.

    Parameters
    ----------
    model : str
    base_url : str, optional
        Of a compatible server ("http://localhost:8000/v1"); OpenAI's own without it.
    api_key : str, optional
        Else the environment's ``OPENAI_API_KEY``. Local servers need none.
    stream : bool
        Read the answer as server-sent events; the usage is asked for with them.
    timeout : float
        Seconds that one request may take, a stream as a whole.
    max_retries : int
        Further requests after a failure that may pass: 408, 409, 425, 429, 5xx, a lost
        connection, a timeout, a reply that is not in the protocol.
    backoff : float
        Seconds before the first retry, doubled for each further one; a ``Retry-After`` header
        overrides it (up to 30 s).
    temperature : float
    max_tokens : int
    seed : int, optional
        Sent along where it is given; endpoints promise no more than to try.
    logprobs : bool
        Ask for log-probabilities, which become the draft's confidence. Not every model has them.
    before : callable, optional
        Called with the messages before each request, retries included; it may wait (rate limits).
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        stream: bool = False,
        timeout: float = 60.0,
        max_retries: int = 3,
        backoff: float = 0.5,
        temperature: float = 0.0,
        max_tokens: int = 512,
        seed: int | None = None,
        logprobs: bool = False,
        before: Callable[[Sequence[dict[str, str]]], object] | None = None,
    ) -> None:
        if not model:
            raise InvalidInputError(f"model must name a chat model, got {model!r}")
        if timeout <= 0 or max_retries < 0 or backoff < 0:
            raise InvalidInputError(
                f"timeout must be > 0, max_retries and backoff >= 0, got timeout={timeout!r}, "
                f"max_retries={max_retries!r}, backoff={backoff!r}"
            )
        key = api_key or os.environ.get("OPENAI_API_KEY")
        if not key and base_url is None and not os.environ.get("OPENAI_BASE_URL"):
            raise ReaderError(
                "no API key: pass api_key=…, set OPENAI_API_KEY, or name a server that needs none "
                "with base_url='http://localhost:8000/v1'"
            )
        openai = _import_openai()
        self.model = model
        self.stream = stream
        self.timeout = timeout
        self.max_retries = max_retries
        self.backoff = backoff
        self._sampling: dict[str, Any] = {"temperature": temperature, "max_tokens": max_tokens}
        if seed is not None:
            self._sampling["seed"] = seed
        if logprobs:
            self._sampling["logprobs"] = True
        self._before = before
        self._openai = openai
        self._ask_usage = True
        # Retries are ours, as the client's own do not cover a broken stream or a garbled body.
        self._client = openai.OpenAI(
            api_key=key or "none", base_url=base_url, timeout=timeout, max_retries=0
        )

    def read(self, question: str, evidence: Sequence[Evidence], *, profile: QueryProfile) -> Draft:
        """Ask the model once, and again where that failed for a passing reason.

        Raises
        ------
        ReaderError
            When the endpoint refuses the request, or after the last retry.
        """
        reply = self.chat(messages(question, evidence, profile))
        answer, cited = parse_reply(reply.text, len(evidence))
        return Draft(answer, reply.usage, cited, confidence=reply.confidence)

    def chat(self, chat: Sequence[dict[str, str]]) -> Reply:
        """Send messages and return the reply, with the retries of :meth:`read`.

        Parameters
        ----------
        chat : sequence of dict
            With ``role`` and ``content``.

        Raises
        ------
        ReaderError
        """
        calls = 0
        while True:
            calls += 1
            try:
                if self._before is not None:
                    self._before(chat)
                said = self._ask(chat)
                break
            except Exception as error:
                wait = self._wait(error, calls)
                if wait is None:
                    raise self._failure(error, calls) from error
                _log.info("reader %s: %s; retry %d in %.1f s", self.model, error, calls, wait)
                time.sleep(wait)
        usage = TokenUsage(said.prompt, said.completion, calls, said.cached)
        return Reply(said.text, usage, _confidence(said))

    def _ask(self, chat: Sequence[dict[str, str]]) -> _Said:
        options: dict[str, Any] = dict(self._sampling)
        if not self.stream:
            response = self._client.chat.completions.create(
                model=self.model, messages=chat, **options
            )
            return _complete(response)
        if self._ask_usage:
            options["stream_options"] = {"include_usage": True}
        deadline = time.monotonic() + self.timeout
        try:
            events = self._client.chat.completions.create(
                model=self.model, messages=chat, stream=True, **options
            )
        except self._openai.BadRequestError as error:
            if not self._ask_usage or "stream_options" not in str(error):
                raise
            self._ask_usage = False  # an older server: better an unmetered answer than none
            _log.warning("%s does not report usage when streaming; tokens count as 0", self.model)
            return self._ask(chat)
        with events:
            return _collect(events, deadline, self.timeout)

    def _wait(self, error: Exception, calls: int) -> float | None:
        """Seconds until the next try; None where there is none to make."""
        api = self._openai
        if calls > self.max_retries or not isinstance(
            error, (api.OpenAIError, _ProtocolError, OSError, ValueError)
        ):
            return None
        status = getattr(error, "status_code", None)
        if isinstance(error, api.APIStatusError) and not (
            status in _RETRIED or (status or 0) >= 500
        ):
            return None
        wait: float = self.backoff * 2 ** (calls - 1)
        headers = getattr(getattr(error, "response", None), "headers", {})
        with suppress(TypeError, ValueError):
            wait = max(0.0, float(headers.get("retry-after", wait)))
        return min(wait, _LONGEST_WAIT)

    def _failure(self, error: Exception, calls: int) -> ReaderError:
        where = f"model {self.model!r} at {self._client.base_url}"
        status = getattr(error, "status_code", None)
        hint = {
            400: "the server does not accept the request; see its message",
            401: "check api_key",
            403: "the key has no access to this model",
            404: "check the model's name and base_url (it mostly ends in /v1)",
            429: "the rate limit did not pass; raise max_retries or backoff",
        }.get(status or 0, "check that the server runs, or raise timeout or max_retries")
        what = f"HTTP {status}: {error}" if status else f"{type(error).__name__}: {error}"
        tries = f"{calls} request{'s' if calls > 1 else ''}"
        return ReaderError(f"{where} gave no answer after {tries} ({what}); {hint}")


class _ProtocolError(Exception):
    """The endpoint answered, but not in the chat-completions protocol."""


def _import_openai() -> Any:
    try:
        import openai
    except ImportError as error:
        raise ReaderError(
            "readers.openai needs the official client: pip install 'zeromem[llm]'"
        ) from error
    return openai


@dataclass(slots=True)
class _Said:
    """One reply as it comes in: its text, its tokens, and their log-probabilities."""

    text: str = ""
    prompt: int = 0
    completion: int = 0
    cached: int = 0
    tokens: list[tuple[str, float]] | None = None

    def meter(self, usage: Any) -> None:
        self.prompt = int(getattr(usage, "prompt_tokens", 0) or 0)
        self.completion = int(getattr(usage, "completion_tokens", 0) or 0)
        details = getattr(usage, "prompt_tokens_details", None)
        self.cached = int(getattr(details, "cached_tokens", 0) or 0)

    def weigh(self, logprobs: Any) -> None:
        for token in getattr(logprobs, "content", None) or ():
            self.tokens = self.tokens or []
            self.tokens.append((token.token, float(token.logprob)))


def _confidence(said: _Said) -> float | None:
    """Mean log-probability of the tokens that make the answer, without those of its frame."""
    if not said.tokens:
        return None
    start, end = answer_span(said.text)
    at, inside = 0, []
    for token, logprob in said.tokens:
        if at < end and at + len(token) > start:
            inside.append(logprob)
        at += len(token)
    return sum(inside) / len(inside) if inside else None


def _complete(response: Any) -> _Said:
    # A body that is no JSON comes back as a string, and one of another shape without choices.
    choices = getattr(response, "choices", None)
    if not choices:
        raise _ProtocolError(f"a reply without choices: {str(response)[:200]!r}")
    content = getattr(getattr(choices[0], "message", None), "content", None)
    if not isinstance(content, str):
        raise _ProtocolError(f"a reply without text: {str(response)[:200]!r}")
    said = _Said(content)
    said.meter(getattr(response, "usage", None))
    said.weigh(getattr(choices[0], "logprobs", None))
    return said


def _collect(events: Any, deadline: float, timeout: float) -> _Said:
    said = _Said()
    finished = False
    for event in events:
        if time.monotonic() > deadline:
            raise _ProtocolError(f"the stream took longer than timeout={timeout:g} s")
        if getattr(event, "usage", None) is not None:
            said.meter(event.usage)
        for choice in getattr(event, "choices", None) or ():
            finished = finished or choice.finish_reason is not None
            said.weigh(getattr(choice, "logprobs", None))
            if getattr(choice.delta, "content", None):
                said.text += choice.delta.content
    if not finished:
        raise _ProtocolError("the stream ended before the answer did")
    return said
