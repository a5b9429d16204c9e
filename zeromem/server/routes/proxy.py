"""OpenAI's protocol: chats that remember, passed on to another server."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Header, Request
from pydantic import BaseModel
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from zeromem.server import chat
from zeromem.server.access import decoded
from zeromem.server.exchange import Exchange, Wishes
from zeromem.server.problems import Problem
from zeromem.server.routes.common import Reading, Serving, check_json, check_size, reply
from zeromem.server.schemas import ChatIn, ChatOut, ModelsOut, OpenAIErrorOut
from zeromem.server.streams import EVENTS, Stream

router = APIRouter(prefix="/v1", tags=["chat"])
_K = 10
_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": ChatIn.model_json_schema()}},
    }
}


def _replies(model: type[BaseModel], *others: int) -> dict[int | str, Any]:
    refusal = {"model": OpenAIErrorOut, "description": "Error"}
    told: dict[int | str, Any] = {200: {"model": model}}
    return told | dict.fromkeys((400, 401, 422, 429, 501, 502, 503, 504, *others), refusal)


async def _wishes(
    service: Serving,
    session: Annotated[
        str | None,
        Header(
            alias="Zeromem-Session",
            description="Where the turns are stored, percent-encoded UTF-8; evidence is found in "
            "all of the scope.",
        ),
    ] = None,
    speaker: Annotated[
        str | None,
        Header(alias="Zeromem-Speaker", description="The user's name, percent-encoded UTF-8."),
    ] = None,
    assistant: Annotated[
        str | None,
        Header(alias="Zeromem-Assistant", description="The model's name, percent-encoded UTF-8."),
    ] = None,
    k: Annotated[
        int | None,
        Header(alias="Zeromem-K", ge=1, description="Main items of evidence; 10 by default."),
    ] = None,
    token_budget: Annotated[
        int | None,
        Header(
            alias="Zeromem-Token-Budget", ge=1, le=2**31 - 1,
            description="Most encoder tokens of all evidence.",
        ),
    ] = None,
    store: Annotated[
        Literal["on", "off"],
        Header(alias="Zeromem-Store", description="Whether the turns are stored."),
    ] = "on",
    key: Annotated[
        str | None,
        Header(
            alias="Idempotency-Key", min_length=1, max_length=255,
            description="A request that comes again with the same one is stored once.",
        ),
    ] = None,
) -> Wishes:  # fmt: skip
    if k is not None:
        check_size("Zeromem-K", k, service.settings.max_k, "ask for fewer")
    elif token_budget is None:
        k = _K
    return Wishes(
        session=None if session is None else decoded("Zeromem-Session", session),
        speaker=None if speaker is None else decoded("Zeromem-Speaker", speaker),
        assistant=None if assistant is None else decoded("Zeromem-Assistant", assistant),
        k=k,
        token_budget=token_budget,
        store=store == "on",
        key=key,
    )


@router.post(
    "/chat/completions", responses=_replies(ChatOut, 403, 404, 413, 415), openapi_extra=_BODY
)
async def chat_completions(
    request: Request,
    access: Reading,
    service: Serving,
    wishes: Annotated[Wishes, Depends(_wishes)],
) -> Response:
    """Chat with the upstream model, with evidence from the scope; then remember both turns.

    The body is passed on as it is, with one system message more. The reply has the member
    `zeromem`: evidence, citations, what was stored. In a stream it comes with a last event of no
    choices. A reply that breaks off stores nothing.
    """
    check_json(request)
    upstream = service.models
    try:
        body = await request.body()
    except ClientDisconnect:
        raise Problem(400, "bad-request", "the body broke off; send it again") from None
    asked = chat.read(body, upstream.settings.model)
    exchange = Exchange(service, access, asked, wishes)
    # As a stream either way: whoever makes it is cancelled when the client leaves.
    parts = exchange.streamed() if asked.stream else exchange.whole()
    kind = EVENTS if asked.stream else "application/json"
    return Stream(parts, kind, patience=service.settings.read_timeout)


@router.get("/models", responses=_replies(ModelsOut))
async def models(access: Reading, service: Serving) -> Response:
    """List the models that a chat may ask for, as the upstream does."""
    upstream = service.models
    told = await upstream.models(access.tenant)
    if (only := upstream.settings.model) is not None:
        told["data"] = [m for m in told["data"] if isinstance(m, dict) and m.get("id") == only]
    return reply(told)
