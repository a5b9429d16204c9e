"""One turn of a chat: evidence before it, the upstream's reply, and both turns stored after it."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from zeromem.errors import DuplicateIdError
from zeromem.memory import Memory
from zeromem.server import openai_form
from zeromem.server.access import Access
from zeromem.server.chat import (
    Chat,
    Said,
    citations,
    evidence_told,
    said_in,
    turn_ids,
    usage_of,
    with_evidence,
)
from zeromem.server.problems import Problem, as_json, problem_of
from zeromem.server.service import Service
from zeromem.server.sse import DONE, Event, written
from zeromem.times import EventTime
from zeromem.types import Evidence, TokenUsage, Trace

_SOURCE = "chat"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What the headers of a request ask for.

    Attributes
    ----------
    session : str, optional
        Where its turns are stored.
    k, token_budget : int, optional
        Of the evidence.
    speaker, assistant : str, optional
        Names of who speaks.
    store : bool
    key : str, optional
        Of a request that may come again and is stored once.
    """

    session: str | None = None
    k: int | None = None
    token_budget: int | None = None
    speaker: str | None = None
    assistant: str | None = None
    store: bool = True
    key: str | None = None


class Exchange:
    """One request and its reply.

    Parameters
    ----------
    service : Service
    access : Access
    chat : Chat
    wishes : Wishes
    """

    def __init__(self, service: Service, access: Access, chat: Chat, wishes: Wishes) -> None:
        self._service = service
        self._upstream = service.models
        self._access = access
        self._chat = chat
        self._wishes = wishes
        self._asked_at = datetime.now(UTC)
        self._evidence: tuple[Evidence, ...] = ()
        self._seconds: dict[str, float] = {}
        self._since = time.perf_counter()

    async def whole(self) -> AsyncIterator[bytes]:
        """Yield the reply as one JSON object.

        Raises
        ------
        Problem
        """
        body = await self._with_evidence()
        reply = await self._upstream.chat(self._access.tenant, body)
        self._ended("upstream")
        self._spent(usage_of(reply))
        yield as_json({**reply, "zeromem": await self._extension(said_in(reply))})

    async def streamed(self) -> AsyncIterator[bytes]:
        """Yield the reply as server-sent events.

        Raises
        ------
        Problem
            Before the first event; later ones are an event.
        """
        said, begun = Said(), False
        body = await self._with_evidence()
        try:
            async with aclosing(self._heard(body, said)) as events:
                async for event in events:
                    begun = True
                    yield event.raw
        except Problem as problem:
            if not begun:
                raise
            yield written(openai_form.error(problem))
            return
        self._ended("upstream")
        self._spent(said.usage)
        last = {"object": "chat.completion.chunk", **said.head, "choices": []}
        yield written({**last, "zeromem": await self._extension(said.text)}) + DONE

    async def _heard(self, body: dict[str, Any], said: Said) -> AsyncGenerator[Event, None]:
        """Yield what the client is told of a stream, and hear all of it."""
        options = {**(body.get("stream_options") or {}), "include_usage": True}
        parts = self._upstream.stream(self._access.tenant, body, extras={"stream_options": options})
        async with aclosing(parts):
            async for event in parts:
                said.hear(event)
                # The client gets no event that it has not asked for.
                ours = event.data.get("usage") and not event.choices
                if not ours or self._chat.wants_usage:
                    yield event

    async def _with_evidence(self) -> dict[str, Any]:
        settings, wishes = self._service.settings, self._wishes
        if self._chat.user:
            options = {
                "k": wishes.k, "token_budget": wishes.token_budget,
                "reference_time": self._asked_at, "echoes": False,
            }  # fmt: skip
            # Of a text too long for a question, the end: what is asked mostly stands there.
            question = self._chat.user[-settings.max_text :]
            found = await self._service.retrieve(self._access, question, options)
            said = self._chat.said
            self._evidence = tuple(e for e in found if e.trace.text.strip() not in said)
        self._ended("retrieval")
        return with_evidence(self._chat, self._evidence)

    async def _extension(self, text: str) -> dict[str, Any]:
        """Store the turns, and say what was done."""
        stored: list[str] = []
        told: dict[str, Any] = {}
        try:
            stored = await self._stored(text)
        except Exception as error:  # whatever it is, the reply is there and is told
            told["problem"] = problem_of(error).body()
        self._ended("store")
        return {
            "scope": self._access.name,
            "session": self._wishes.session,
            "evidence": evidence_told(self._evidence),
            "citations": citations(text, self._evidence),
            "stored": stored,
            "seconds": self._seconds,
            **told,
        }

    async def _stored(self, text: str) -> list[str]:
        if not self._wishes.store or not self._access.may_write:
            return []
        turns = self._turns(text)
        known = await self._known(turns)
        try:
            if new := [turn for turn in turns if turn.id not in known]:
                await self._service.add(self._access, new)
        except DuplicateIdError:  # the same request came twice, and the other was faster
            known = await self._known(turns)
            return [turn.id for turn in turns if turn.id in known]
        return [turn.id for turn in turns if turn.id]

    async def _known(self, turns: list[Trace]) -> dict[str, Trace]:
        """Which turns an earlier request of the same key has stored."""
        if self._wishes.key is None or not turns:
            return {}
        return await self._service.run(self._access, Memory.get, [t.id for t in turns if t.id])

    def _turns(self, text: str) -> list[Trace]:
        """What is remembered of the exchange: what was said, and never the evidence."""
        wishes, chat = self._wishes, self._chat
        asked, replied = turn_ids(chat, wishes.key)
        turns = []
        if chat.answers and chat.user:
            time = EventTime(self._asked_at)
            speaker = wishes.speaker or chat.speaker
            turns.append(
                Trace(chat.user, asked, "user", speaker, wishes.session, time, source=_SOURCE)
            )
        if text.strip():
            time = EventTime(datetime.now(UTC))
            turns.append(
                Trace(text, replied, "assistant", wishes.assistant, wishes.session, time,
                      source=_SOURCE)
            )  # fmt: skip
        return turns

    def _spent(self, usage: TokenUsage | None) -> None:
        if usage is not None:
            self._service.spent("proxy", usage)

    def _ended(self, stage: str) -> None:
        now = time.perf_counter()
        self._seconds[stage] = now - self._since
        self._since = now
