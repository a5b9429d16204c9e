"""A reader behind any endpoint that speaks the OpenAI chat-completions protocol."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from zeromem.answer.prompt import messages, parse_reply
from zeromem.answer.reader import Draft
from zeromem.errors import InvalidInputError, ReaderError
from zeromem.types import Evidence, QueryProfile, TokenUsage

_log = logging.getLogger(__name__)
_RETRIED = frozenset({408, 409, 425, 429})
_LONGEST_WAIT = 30.0


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
        self._sampling = {"temperature": temperature, "max_tokens": max_tokens}
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
        chat = messages(question, evidence, profile)
        calls = 0
        while True:
            calls += 1
            try:
                reply, prompt, completion = self._ask(chat)
                break
            except Exception as error:
                wait = self._wait(error, calls)
                if wait is None:
                    raise self._failure(error, calls) from error
                _log.info("reader %s: %s; retry %d in %.1f s", self.model, error, calls, wait)
                time.sleep(wait)
        answer, cited = parse_reply(reply, len(evidence))
        return Draft(answer, TokenUsage(prompt, completion, calls), cited)

    def _ask(self, chat: list[dict[str, str]]) -> tuple[str, int, int]:
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


def _tokens(usage: Any) -> tuple[int, int]:
    return int(getattr(usage, "prompt_tokens", 0) or 0), int(
        getattr(usage, "completion_tokens", 0) or 0
    )


def _complete(response: Any) -> tuple[str, int, int]:
    # A body that is no JSON comes back as a string, and one of another shape without choices.
    choices = getattr(response, "choices", None)
    if not choices:
        raise _ProtocolError(f"a reply without choices: {str(response)[:200]!r}")
    content = getattr(getattr(choices[0], "message", None), "content", None)
    if not isinstance(content, str):
        raise _ProtocolError(f"a reply without text: {str(response)[:200]!r}")
    return (content, *_tokens(getattr(response, "usage", None)))


def _collect(events: Any, deadline: float, timeout: float) -> tuple[str, int, int]:
    parts: list[str] = []
    tokens = (0, 0)
    finished = False
    for event in events:
        if time.monotonic() > deadline:
            raise _ProtocolError(f"the stream took longer than timeout={timeout:g} s")
        if getattr(event, "usage", None) is not None:
            tokens = _tokens(event.usage)
        for choice in getattr(event, "choices", None) or ():
            finished = finished or choice.finish_reason is not None
            if getattr(choice.delta, "content", None):
                parts.append(choice.delta.content)
    if not finished:
        raise _ProtocolError("the stream ended before the answer did")
    return ("".join(parts), *tokens)
