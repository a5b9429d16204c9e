"""Answers from evidence, by the upstream's model where one is named, told as they come."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from zeromem.answer import Draft
from zeromem.answer.openai_reply import Said as Reply
from zeromem.answer.prompt import messages, parse_reply
from zeromem.server.access import Access
from zeromem.server.chat import Said
from zeromem.server.refusals import garbled
from zeromem.server.service import Service
from zeromem.server.upstream import Upstream
from zeromem.types import Answer, Evidence, QueryProfile, Retrieval, TokenUsage

# What a request can do without: reasoning models take no temperature and no bound that cannot count
# their thoughts.
_OPTIONS = {
    "temperature": 0.0,
    "max_tokens": 512,
    "stream_options": {"include_usage": True},
}


@dataclass(frozen=True, slots=True)
class _Drafted:
    """A reader that has read already."""

    draft: Draft

    def read(self, question: str, evidence: Sequence[Evidence], *, profile: QueryProfile) -> Draft:
        return self.draft


async def read(
    service: Service, access: Access, question: str, found: Retrieval
) -> AsyncGenerator[str | Answer, None]:
    """Yield what the model says, piece by piece, and then the answer.

    The extractive reader yields the answer alone. Where there is no evidence no model is asked.

    Raises
    ------
    Problem
        The upstream failed.
    """
    upstream = service.upstream
    model = upstream.settings.reader_model if upstream is not None else None
    if upstream is None or model is None or not found.items:
        yield await service.read(access, question, found)
        return
    said = Said()
    async with aclosing(_pieces(upstream, model, access, question, found, said)) as pieces:
        async for piece in pieces:
            yield piece
    text, usage = "".join(said.parts), said.usage or TokenUsage(calls=1)
    if said.finish == "length" and not Reply(text).answered():
        service.spent("answer", usage)
        raise garbled("its tokens were spent before an answer began")
    answer, cited = parse_reply(text, len(found.items))
    reader = _Drafted(Draft(answer, usage, cited))
    yield await service.read(access, question, found, reader)


async def _pieces(
    upstream: Upstream, model: str, access: Access, question: str, found: Retrieval, said: Said
) -> AsyncGenerator[str, None]:
    body = {"model": model, "messages": messages(question, found.items, found.profile)}
    parts = upstream.stream(access.tenant, body, extras=_OPTIONS)
    async with aclosing(parts):
        async for event in parts:
            n_before = len(said.parts)
            said.hear(event)
            for piece in said.parts[n_before:]:
                if piece:
                    yield piece
