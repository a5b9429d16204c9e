"""Traces: add, list, look at, forget, export, import."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from zeromem import importers
from zeromem.errors import ImportFormatError, InvalidInputError, ZeroMemError
from zeromem.importers.lines import read as read_lines
from zeromem.importers.records import Options
from zeromem.inputs import as_trace
from zeromem.memory import Memory
from zeromem.records import plain
from zeromem.server.access import Access
from zeromem.server.problems import Problem, as_json, check_values, problem_of
from zeromem.server.routes.common import (
    BodyRoute,
    Reading,
    Serving,
    Writing,
    check_size,
    replies,
    reply,
    trace,
)
from zeromem.server.schemas import (
    AddedManyOut,
    AddedOut,
    AroundOut,
    ForgetIn,
    ForgottenOut,
    ImportedOut,
    PageOut,
    Role,
    SessionsOut,
    TraceIn,
    TracesIn,
)
from zeromem.server.service import Service
from zeromem.server.streams import NDJSON, Stream, lines
from zeromem.store.codec import prepare_trace
from zeromem.types import StoredTrace, Trace

router = APIRouter(prefix="/v1", tags=["traces"])
bodies = APIRouter(prefix="/v1", tags=["traces"], route_class=BodyRoute)
_EXPORTED = 256
_LINES = 256
_NO_SOURCE = "\0none"
_BINARY = {"schema": {"type": "string", "format": "binary"}}
_LINE_BODY = {
    "requestBody": {
        "required": True,
        "content": {NDJSON: {"schema": {"type": "string"}, "example": '{"text": "I moved."}\n'}},
    }
}
_FILE_BODY = {"requestBody": {"required": True, "content": {"application/octet-stream": _BINARY}}}


@bodies.post("/traces", status_code=201, responses=replies(AddedOut, 201, 409, 413, 507))
async def add(body: TraceIn, access: Writing, service: Serving) -> Response:
    """Remember one trace; it is on disk when the reply comes."""
    try:
        (added,) = await service.add(access, [_given(service, body)])
    except InvalidInputError as error:
        raise InvalidInputError(str(error).removeprefix("trace 0: ")) from None
    return reply(plain(added), 201)


@bodies.post("/traces/batch", status_code=201, responses=replies(AddedManyOut, 201, 409, 413, 507))
async def add_many(body: TracesIn, access: Writing, service: Serving) -> Response:
    """Remember several traces: all of them, or none."""
    check_size(
        "traces", len(body.traces), service.settings.max_traces, "send JSON Lines to traces/stream"
    )
    added = await service.add(access, [_given(service, one) for one in body.traces])
    return reply({"added": plain(added)}, 201)


def _given(service: Service, body: TraceIn) -> Any:
    given = body.model_dump()
    _check_metadata(service, given["metadata"])
    return given


def _check_metadata(service: Service, metadata: Any) -> None:
    """Refuse what would take seconds to look through, and is no description of a trace."""
    if metadata:
        most = service.settings.max_metadata
        with suppress(RecursionError):  # which the memory tells better
            n_bytes = len(as_json(metadata))
            check_size("metadata (bytes)", n_bytes, most, "keep it elsewhere, and its id here")


@router.post(
    "/traces/stream",
    responses=replies(AddedOut, 200, 413, 507) | {200: {"content": {NDJSON: {}}}},
    openapi_extra=_LINE_BODY,
)
async def add_stream(request: Request, access: Writing, service: Serving) -> Response:
    """Remember JSON Lines as they come, with the fields of `zeromem export`.

    The reply has a line for each, written once it is on disk: if the connection breaks, what has
    its line is stored. A line that cannot be stored ends the reply with a problem that names it.
    """
    return Stream(_stored(request, access, service), NDJSON, watch=False)


async def _stored(request: Request, access: Access, service: Service) -> AsyncIterator[bytes]:
    place, said = 0, False
    zone = service.memories.zone
    try:
        async for found in lines(request, service.settings.max_body):
            for part in (found[i : i + _LINES] for i in range(0, len(found), _LINES)):
                traces = _parsed(service, part, place, Options(zone, None, False))
                place += len(part)
                if traces:
                    added = await service.add(access, traces)
                    said = True
                    yield b"".join(_line(plain(one)) for one in added)
    except (Problem, ZeroMemError) as error:
        if not said:
            raise  # the status can still say it
        yield _line(problem_of(error).body())


def _parsed(service: Service, part: Sequence[bytes], place: int, options: Options) -> list[Trace]:
    """Read lines; numbers in errors count from the first line of the body."""
    traces: list[Trace] = []
    for number, line in enumerate(part, place + 1):
        if not line.strip():
            continue
        check_values(line)
        try:
            record = f"line {number}", json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ImportFormatError(f"line {number}: no JSON: {error}") from None
        for found in read_lines([record], options):
            try:
                for one in found.traces:
                    _check_metadata(service, one.metadata)
                    checked = as_trace(one, number, options.zone)
                    prepare_trace(checked, b"line", number)  # as the store will, who knows no lines
                    traces.append(checked)
            except InvalidInputError as error:
                raise ImportFormatError(str(error).replace("trace", "line", 1)) from None
    return traces


def _line(value: Any) -> bytes:
    return json.dumps(value).encode() + b"\n"


@router.get("/traces", responses=replies(PageOut))
async def traces(
    access: Reading,
    service: Serving,
    sessions: Annotated[list[str] | None, Query()] = None,
    speakers: Annotated[list[str] | None, Query()] = None,
    sources: Annotated[list[str] | None, Query()] = None,
    roles: Annotated[list[Role] | None, Query()] = None,
    after: str | None = None,
    before: str | None = None,
    order: Literal["log", "time"] = "log",
    descending: bool = False,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    cursor: Annotated[str | None, Query(max_length=100)] = None,
) -> Response:
    """List traces page by page, as they were added or as they happened."""

    def read(memory: Memory) -> Any:
        return memory.traces(
            order=order, descending=descending, limit=limit, cursor=cursor, sessions=sessions,
            speakers=speakers, sources=sources, roles=roles, after=after, before=before,
        )  # fmt: skip

    page = await service.run(access, read)
    return reply({"traces": [trace(stored) for stored in page.items], "cursor": page.cursor})


@router.get("/trace", responses=replies(AroundOut, 200, 404))
async def around(
    access: Reading,
    service: Serving,
    id: Annotated[str, Query(min_length=1)],
    before: Annotated[int, Query(ge=0, le=1000)] = 0,
    after: Annotated[int, Query(ge=0, le=1000)] = 0,
) -> Response:
    """Look at one trace, with its neighbours in its session."""
    found = await service.run(access, lambda memory: memory.around(id, before=before, after=after))
    return reply({"traces": [trace(stored) for stored in found]})


@router.get("/sessions", responses=replies(SessionsOut))
async def sessions(access: Reading, service: Serving) -> Response:
    """List the scope's sessions in order of first appearance."""
    return reply({"sessions": plain(await service.run(access, Memory.sessions))})


@bodies.post("/forget", responses=replies(ForgottenOut, 200, 507))
async def forget(body: ForgetIn, access: Writing, service: Serving) -> Response:
    """Delete traces and all that was derived from them, for good."""
    conditions = body.model_dump(exclude={"everything"}, exclude_none=True)
    if body.everything == bool(conditions):
        raise InvalidInputError(
            f"everything must be true alone, or else there must be one or more of "
            f"{', '.join(name for name in ForgetIn.model_fields if name != 'everything')}; got "
            f"{'both' if conditions else 'neither'}"
        )
    return reply({"forgotten": await service.forget(access, body.model_dump())})


@router.get("/export", responses=replies(AddedOut) | {200: {"content": {NDJSON: {}}}})
async def export(access: Reading, service: Serving) -> Response:
    """Write the scope as JSON Lines, word for word; import and traces/stream read them back."""
    return Stream(_exported(access, service), NDJSON)


async def _exported(access: Access, service: Service) -> AsyncIterator[bytes]:
    async with service.memory(access.scope) as memory:
        stored = memory.export()
        while found := await run_in_threadpool(_next, stored):
            yield "".join(
                importers.to_json_line(s.trace, lsn=s.lsn, stored=s.ingested_at) + "\n"
                for s in found
            ).encode()


def _next(stored: Any) -> list[StoredTrace]:
    return list(islice(stored, _EXPORTED))


@router.post("/import", responses=replies(ImportedOut, 200, 413, 507), openapi_extra=_FILE_BODY)
async def import_(
    request: Request,
    access: Writing,
    service: Serving,
    format: importers.Format | None = None,
    conversation: Annotated[str | None, Query(min_length=1)] = None,
    source: Annotated[str | None, Query(min_length=1, max_length=4096)] = None,
) -> Response:
    """Remember a file: JSON Lines, LoCoMo, BEAM, LongMemEval or a chat export.

    `source` is that of traces whose file names none.
    """
    if request.headers.get("content-type", "").startswith("multipart/"):
        raise Problem(415, "unsupported-media-type", "send the file itself as the body, no form")
    with tempfile.TemporaryDirectory(prefix="zeromem-") as folder:
        path = Path(folder) / "the file"  # as errors name it
        with path.open("wb") as file:
            async for chunk in request.stream():
                await asyncio.to_thread(file.write, chunk)

        def read(memory: Memory) -> Any:
            zone = service.memories.zone
            found = importers.load(
                path, format, conversation=conversation, zone=zone, source=source or _NO_SOURCE
            )
            # Importers name a file where nothing else is known; this one is gone in a moment.
            traces = (replace(t, source=source) if t.source == _NO_SOURCE else t for t in found)
            return memory.add_many(traces, progress=False)

        try:
            added = await service.run_long(access, read)
        except InvalidInputError as error:
            # Where the file lies here is nothing that the client knows.
            raise Problem(422, "invalid-input", str(error).replace(str(path), path.name)) from None
    service.metrics.traces.labels("added").inc(sum(one.created for one in added))
    return reply({"traces": len(added), "created": sum(one.created for one in added)})
