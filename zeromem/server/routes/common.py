"""What routes share: who asks, the service, and replies."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Annotated, Any, get_type_hints

from fastapi import Depends, Header, Request, Security
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from pydantic import BaseModel, ValidationError
from starlette.responses import Response

from zeromem.records import plain
from zeromem.server.access import SCOPE_HEADER, SCOPE_PATTERN, Access
from zeromem.server.problems import (
    MEDIA_TYPE,
    MOST_MISTAKES,
    Problem,
    as_json,
    check_values,
    too_many,
)
from zeromem.server.schemas import Options, ProblemOut
from zeromem.server.service import Service
from zeromem.types import StoredTrace

# Dependencies are coroutines: FastAPI would run each plain function in a thread.
_BEARER = HTTPBearer(auto_error=False, description="A key that `zeromem keys create` made.")
# What the guard, the parser or an accident may say of any request.
_ALWAYS = (400, 401, 403, 408, 413, 415, 421, 422, 429, 500, 503, 504)
_TOLD = {"content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemOut"}}}}


async def _access(
    request: Request,
    _scope: Annotated[
        str | None,
        Header(
            alias=SCOPE_HEADER,
            description="The scope, percent-encoded UTF-8; `default` without it.",
            json_schema_extra={"minLength": 1, "pattern": SCOPE_PATTERN},
        ),
    ] = None,
    _key: Annotated[Any, Security(_BEARER)] = None,
) -> Access:
    check_query(request)
    access: Access = request.scope["state"]["access"]
    return access


async def _writing(access: Annotated[Access, Depends(_access)]) -> Access:
    if not access.may_write:
        raise Problem(403, "forbidden", "this key may only read; make one without --read-only")
    return access


async def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


Reading = Annotated[Access, Depends(_access)]
Writing = Annotated[Access, Depends(_writing)]
Serving = Annotated[Service, Depends(_service)]


def check_query(request: Request) -> None:
    """Refuse a parameter that the route does not have: a filter's misspelt name would lift it.

    Raises
    ------
    Problem
    """
    if not request.scope["query_string"]:
        return
    known = [field.alias for field in request.scope["route"].dependant.query_params]
    if unknown := sorted(set(request.query_params) - set(known)):
        fix = f"this path knows {', '.join(known)}" if known else "this path knows none"
        raise Problem(
            422, "invalid-input", f"unknown query parameter {unknown[0]!r:.80}; {fix}",
            errors=[{"field": unknown[0][:80], "value": request.query_params[unknown[0]][:80],
                     "fix": fix}],
        )  # fmt: skip


def check_json(request: Request) -> None:
    """Refuse a body of another type; a web page could send one here without anybody's leave.

    Raises
    ------
    Problem
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        raise Problem(415, "unsupported-media-type", f"send application/json, got {kind[:80]!r}")


class BodyRoute(APIRoute):
    """A route of one JSON body.

    FastAPI documents it by its signature as any other. To serve it, its general way of parsing and
    solving dependencies takes longer than all else that a request costs here; this one reads the
    body straight into its model.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return what serves a request."""
        endpoint = self.endpoint
        named = get_type_hints(endpoint, include_extras=True)
        model: type[BaseModel] = named["body"]
        writes = named["access"] == Writing

        async def handle(request: Request) -> Response:
            access: Access = request.scope["state"]["access"]
            check_query(request)
            if writes:
                await _writing(access)
            check_json(request)
            data = await request.body()
            check_values(data)
            try:
                body = model.model_validate_json(data)
            except ValidationError as error:
                if error.error_count() > MOST_MISTAKES:
                    raise too_many(error.error_count()) from None
                wrong = error.errors(include_url=False)
                raise RequestValidationError(
                    [{**one, "loc": ("body", *one["loc"])} for one in wrong]
                ) from None
            reply_: Response = await endpoint(body, access, request.app.state.service)
            return reply_

        return handle


def replies(model: type[BaseModel], status: int = 200, *others: int) -> dict[int | str, Any]:
    """Document a route's replies; all may end in a problem."""
    problem: dict[str, Any] = {"model": ProblemOut, "description": "Problem", **_TOLD}
    told: dict[int | str, Any] = {status: {"model": model}}
    return told | dict.fromkeys((*_ALWAYS, *others), problem)


def reply(value: Any, status: int = 200) -> Response:
    """Write a reply as JSON."""
    return Response(as_json(value), status, media_type="application/json")


def check_size(name: str, n: int, most: int, fix: str) -> None:
    """Refuse more than the server takes at once.

    Raises
    ------
    Problem
    """
    if n > most:
        raise Problem(
            422, "invalid-input", f"{name} may have {most} here, got {n}; {fix}",
            errors=[{"field": name, "value": n, "fix": fix}],
        )  # fmt: skip


def options_of(service: Service, given: Options, *others: str) -> dict[str, Any]:
    """Return the options of a retrieval, without the fields named."""
    options = given.model_dump(exclude={"question", "questions", "stream", *others})
    if given.k is not None:
        check_size("k", given.k, service.settings.max_k, "ask for fewer")
    return options


def check_question(service: Service, question: str) -> str:
    """Return a question that is not too long.

    Raises
    ------
    Problem
    """
    most = service.settings.max_text
    check_size("question (characters)", len(question), most, "ask a shorter question")
    return question


def trace(stored: StoredTrace) -> dict[str, Any]:
    """Return a trace with its place in the log."""
    return {**plain(stored.trace), "lsn": stored.lsn, "ingested_at": stored.ingested_at.isoformat()}
