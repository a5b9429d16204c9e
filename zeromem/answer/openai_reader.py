"""A reader behind any endpoint that speaks the OpenAI chat-completions protocol."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from zeromem.answer.openai_reply import ProtocolError, Said, collect, complete, confidence
from zeromem.answer.prompt import messages, parse_reply
from zeromem.answer.reader import Draft
from zeromem.errors import InvalidInputError, ReaderError
from zeromem.types import Evidence, QueryProfile, TokenUsage

_log = logging.getLogger(__name__)
_RETRIED = frozenset({408, 409, 425, 429})
_LONGEST_WAIT = 30.0
# What a request can do without, or under another name: reasoning models count hidden tokens too
# and take no temperature; older servers do not meter streams.
_DISPENSABLE: dict[str, str | None] = {
    "stream_options": None,
    "max_tokens": "max_completion_tokens",
    "temperature": None,
}
_UNSUPPORTED = re.compile(
    r"(?i)unsupported|not supported|not support|unknown|unrecogni[sz]ed|unexpected|not permitted|"
    r"not allowed|deprecated|max_completion_tokens"
)


class EndpointError(ReaderError):
    """An endpoint refused a request, could not be reached, or sent nothing that is an answer.

    Attributes
    ----------
    status : int, optional
        HTTP's, where there was a response that says one.
    unreachable : bool
        Whether no response came at all: a lost connection or a timeout.
    usage : TokenUsage
        What was spent all the same.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        unreachable: bool = False,
        usage: TokenUsage | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.unreachable = unreachable
        self.usage = usage or TokenUsage()


@dataclass(frozen=True, slots=True)
class Reply:
    """What a chat model said.

    Attributes
    ----------
    text : str
        Word for word.
    usage : TokenUsage
        Its tokens are 0 where the endpoint reports none.
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
        Left out from then on where the endpoint refuses it (reasoning models do).
    max_tokens : int
        Sent as ``max_completion_tokens`` from then on where the endpoint wants that; it then
        counts the tokens that a model thinks with too.
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
        # Replaced as a whole and never changed: other threads may be sending it.
        self._options: dict[str, Any] = {"temperature": temperature, "max_tokens": max_tokens}
        if seed is not None:
            self._options["seed"] = seed
        if logprobs:
            self._options["logprobs"] = True
        if stream:
            self._options |= {"stream": True, "stream_options": {"include_usage": True}}
        self._before = before
        self._openai = openai
        # Retries are ours, as the client's own do not cover a broken stream or a garbled body.
        self._client = openai.OpenAI(
            api_key=key or "none", base_url=base_url, timeout=timeout, max_retries=0
        )

    def read(self, question: str, evidence: Sequence[Evidence], *, profile: QueryProfile) -> Draft:
        """Ask the model once, and again where that failed for a passing reason.

        Raises
        ------
        EndpointError
            When the endpoint refuses the request, after the last retry, or where the reply's
            length was spent before the answer began.
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
        EndpointError
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
                kind = type(error).__name__  # its message may quote what was sent
                _log.info("reader %s: %s; retry %d in %.1f s", self.model, kind, calls, wait)
                time.sleep(wait)
        usage = TokenUsage(said.prompt, said.completion, calls, said.cached)
        if said.finish == "length" and not said.answered():
            raise EndpointError(
                f"{self._where()} spent its {said.completion or 'whole'} tokens of reply "
                "(finish_reason length) before an answer began; raise max_tokens",
                usage=usage,
            )
        return Reply(said.text, usage, confidence(said))

    def _ask(self, chat: Sequence[dict[str, str]]) -> Said:
        while True:
            sent = self._options
            deadline = time.monotonic() + self.timeout
            try:
                response = self._client.chat.completions.create(
                    model=self.model, messages=chat, **sent
                )
            except self._openai.BadRequestError as error:
                # At most once per option: what was refused is not sent again.
                if not self._do_without(sent, str(error)):
                    raise
                continue
            if not self.stream:
                return complete(response)
            with response:
                return collect(response, deadline, self.timeout)

    def _do_without(self, sent: dict[str, Any], refusal: str) -> bool:
        """Drop or rename, from now on, the options that an endpoint says it does not know."""
        refused = [
            name
            for name in _DISPENSABLE
            if name in sent and re.search(rf"\b{name}\b", refusal)
            # A max_tokens that is too large is refused by name too, and is the user's to change.
            and (name == "stream_options" or _UNSUPPORTED.search(refusal))
        ]  # fmt: skip
        for name in refused:
            other = _DISPENSABLE[name]
            options = {k: v for k, v in self._options.items() if k != name}
            if other is not None:
                options[other] = sent[name]
            if options.keys() != self._options.keys():  # else another thread was first
                how = "it is asked without" if other is None else f"{other} takes its place"
                _log.warning("%s refuses %s: %s", self.model, name, how)
                self._options = options
        return bool(refused)

    def _wait(self, error: Exception, calls: int) -> float | None:
        """Seconds until the next try; None where there is none to make."""
        api = self._openai
        if calls > self.max_retries or not isinstance(
            error, (api.OpenAIError, ProtocolError, OSError, ValueError)
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

    def _where(self) -> str:
        return f"model {self.model!r} at {self._client.base_url}"

    def _failure(self, error: Exception, calls: int) -> EndpointError:
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
        return EndpointError(
            f"{self._where()} gave no answer after {tries} ({what}); {hint}",
            status=status,
            unreachable=isinstance(error, self._openai.APIConnectionError),
        )


def _import_openai() -> Any:
    try:
        import openai
    except ImportError as error:
        raise ReaderError(
            "readers.openai needs the official client: pip install 'zeromem[llm]'"
        ) from error
    return openai
