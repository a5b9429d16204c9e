"""Questions: retrieve, explain, answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from zeromem import records
from zeromem.query.evidence import explanation
from zeromem.server.access import Access
from zeromem.server.problems import as_json, problem_of
from zeromem.server.reading import read
from zeromem.server.routes.common import (
    BodyRoute,
    Reading,
    Serving,
    check_question,
    check_size,
    options_of,
    replies,
    reply,
)
from zeromem.server.schemas import (
    AnswerIn,
    AnswerOut,
    QuestionIn,
    QuestionsIn,
    RetrievalOut,
    RetrievalsOut,
)
from zeromem.server.service import Service
from zeromem.server.streams import EVENTS, Stream, event
from zeromem.types import Answer

router = APIRouter(prefix="/v1", tags=["questions"], route_class=BodyRoute)
_ANSWER_K = 10
_ANSWERED: dict[int | str, Any] = {200: {"model": AnswerOut, "content": {EVENTS: {}}}}


@router.post("/retrieve", responses=replies(RetrievalOut))
async def retrieve(body: QuestionIn, access: Reading, service: Serving) -> Response:
    """Find the evidence for a question, best first."""
    question = check_question(service, body.question)
    found = await service.retrieve(access, question, options_of(service, body))
    return reply(records.retrieval(found))


@router.post("/retrieve/batch", responses=replies(RetrievalsOut))
async def retrieve_batch(body: QuestionsIn, access: Reading, service: Serving) -> Response:
    """Find the evidence for several questions; each gets what it would get alone."""
    most = service.settings.max_questions
    check_size("questions", len(body.questions), most, "ask in several requests")
    questions = [check_question(service, question) for question in body.questions]
    found = await service.ask(access, questions, options_of(service, body))
    return reply({"retrievals": [records.retrieval(one.retrieval) for one in found]})


@router.post("/explain", responses=replies(RetrievalOut))
async def explain(body: QuestionIn, access: Reading, service: Serving) -> Response:
    """Say how the evidence for a question came about, and what was left out, and why."""
    question = check_question(service, body.question)
    (found,) = await service.ask(access, [question], options_of(service, body), filtered=True)
    told = explanation(found.ranked, found.retrieval, found.state.index.arrays, found.stored)
    return reply(records.explanation(told))


@router.post("/answer", responses=replies(AnswerOut, 200, 502) | _ANSWERED)
async def answer(body: AnswerIn, access: Reading, service: Serving) -> Response:
    """Answer a question from its evidence, with citations."""
    question = check_question(service, body.question)
    options = options_of(service, body)
    if body.token_budget is None and body.k is None:
        options["k"] = _ANSWER_K
    parts = (_events if body.stream else _answer)(access, service, question, options)
    kind = EVENTS if body.stream else "application/json"
    return Stream(parts, kind, patience=service.settings.read_timeout)


async def _answer(
    access: Access, service: Service, question: str, options: dict[str, Any]
) -> AsyncIterator[bytes]:
    """The answer as one object; a stream only so that it ends when the client leaves."""
    found = await service.retrieve(access, question, options)
    async with aclosing(read(service, access, question, found)) as parts:
        async for part in parts:
            if isinstance(part, Answer):
                yield as_json(records.answer(part))


async def _events(
    access: Access, service: Service, question: str, options: dict[str, Any]
) -> AsyncIterator[bytes]:
    """Evidence first, which is there in milliseconds; then what the reader says."""
    found = await service.retrieve(access, question, options)
    yield event("evidence", records.retrieval(found))
    try:
        async with aclosing(read(service, access, question, found)) as parts:
            async for part in parts:
                if isinstance(part, Answer):
                    told = records.answer(part)
                    yield event("answer", {k: v for k, v in told.items() if k != "evidence"})
                else:
                    yield event("delta", {"text": part})
    except Exception as error:
        yield event("problem", problem_of(error).body())
