"""What an OpenAI-compatible endpoint sends back: its text, tokens and log-probabilities."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from zeromem.answer.prompt import answer_span


class ProtocolError(Exception):
    """The endpoint answered, but not in the chat-completions protocol."""


@dataclass(slots=True)
class Said:
    """One reply as it comes in: its text, its tokens, and their log-probabilities."""

    text: str = ""
    prompt: int = 0
    completion: int = 0
    cached: int = 0
    tokens: list[tuple[str, float]] | None = None
    finish: str | None = None

    def answered(self) -> bool:
        """Whether anything stands where the answer does, after whatever was thought aloud."""
        start, end = answer_span(self.text)
        return bool(self.text[start:end].strip(" \n\t*_`\"'"))

    def meter(self, usage: Any) -> None:
        """Take in the tokens that the endpoint counted; absent ones stay 0."""
        self.prompt = int(getattr(usage, "prompt_tokens", 0) or 0)
        self.completion = int(getattr(usage, "completion_tokens", 0) or 0)
        details = getattr(usage, "prompt_tokens_details", None)
        self.cached = int(getattr(details, "cached_tokens", 0) or 0)

    def weigh(self, logprobs: Any) -> None:
        """Take in tokens with their log-probabilities."""
        for token in getattr(logprobs, "content", None) or ():
            self.tokens = self.tokens or []
            self.tokens.append((token.token, float(token.logprob)))


def confidence(said: Said) -> float | None:
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


def complete(response: Any) -> Said:
    """Read a reply that came as a whole.

    Raises
    ------
    ProtocolError
    """
    # A body that is no JSON comes back as a string, and one of another shape without choices.
    choices = getattr(response, "choices", None)
    if not choices:
        raise ProtocolError(f"a reply without choices: {str(response)[:200]!r}")
    finish = getattr(choices[0], "finish_reason", None)
    content = getattr(getattr(choices[0], "message", None), "content", None)
    if content is None and finish == "length":  # all of it was thought
        content = ""
    if not isinstance(content, str):
        raise ProtocolError(f"a reply without text: {str(response)[:200]!r}")
    said = Said(content, finish=finish)
    said.meter(getattr(response, "usage", None))
    said.weigh(getattr(choices[0], "logprobs", None))
    return said


def collect(events: Any, deadline: float, timeout: float) -> Said:
    """Read a stream, until ``deadline`` on the monotonic clock.

    Raises
    ------
    ProtocolError
        Also where it takes longer, or ends before the answer does.
    """
    said = Said()
    for event in events:
        if time.monotonic() > deadline:
            raise ProtocolError(f"the stream took longer than timeout={timeout:g} s")
        if getattr(event, "usage", None) is not None:
            said.meter(event.usage)
        for choice in getattr(event, "choices", None) or ():
            said.finish = said.finish or choice.finish_reason
            said.weigh(getattr(choice, "logprobs", None))
            if getattr(choice.delta, "content", None):
                said.text += choice.delta.content
    if said.finish is None:
        raise ProtocolError("the stream ended before the answer did")
    return said
