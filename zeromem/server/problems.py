"""Errors as RFC 9457 problem details: what is wrong, with which value, and how to mend it."""

from __future__ import annotations

import errno
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from zeromem import errors
from zeromem.server import openai_form

_log = logging.getLogger(__name__)
MEDIA_TYPE = "application/problem+json"
_SHOWN = 200
_UNKNOWN = "remove it, or check its spelling"
# The engine's messages name an argument, what it must be, its value and the fix.
_NAMED = re.compile(
    r"(?:(?:trace|line) \d+: )?(?:field )?'?(?P<field>[a-z_]+)'?(?:: | must | needs )"
    r"(?P<rest>.*)", re.DOTALL,
)  # fmt: skip
_GOT = re.compile(r",? got (?P<value>.+?)(?:; |$)", re.DOTALL)
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NO_FILES = (errno.EMFILE, errno.ENFILE)
# What a second's half reads; and mistakes that are named one by one.
_MOST_LISTS, _MOST_VALUES = 300_000, 1_000_000
MOST_MISTAKES = 100
_PLACES = ("body", "query", "header")


class Problem(HTTPException):
    """A request that cannot be served, as it is told to the client.

    Parameters
    ----------
    status : int
    kind : str
        Last part of the problem's ``type``, which is ``urn:zeromem:problem:KIND``.
    detail : str
        What is wrong and how to mend it.
    errors : sequence of mapping
        ``field``, ``value`` and ``fix`` of each part of the request that is wrong.
    retry_after : float, optional
        Seconds after which it is worth another try.
    upstream : mapping, optional
        Where a language model's server refused: its ``status`` and ``message``, and of OpenAI's
        form ``type``, ``code`` and ``param``.
    """

    def __init__(
        self,
        status: int,
        kind: str,
        detail: str,
        *,
        errors: Sequence[Mapping[str, Any]] = (),
        retry_after: float | None = None,
        upstream: Mapping[str, Any] | None = None,
    ) -> None:
        headers = {}
        if retry_after is not None:
            headers["Retry-After"] = str(whole_seconds(retry_after))
        if status == 401:
            headers["WWW-Authenticate"] = 'Bearer realm="zeromem"'
        super().__init__(status, detail, headers)
        self.kind = kind
        self.errors = list(errors)
        self.upstream = upstream

    def body(self) -> dict[str, Any]:
        """Return the members of the problem."""
        told: dict[str, Any] = {
            "type": f"urn:zeromem:problem:{self.kind}",
            "title": TITLES[self.kind],
            "status": self.status_code,
            "detail": self.detail,
        }
        if self.errors:
            told["errors"] = self.errors
        if self.upstream:
            told["upstream"] = dict(self.upstream)
        return told

    def response(self, path: str = "") -> Response:
        """Return it as a response to a request for ``path``: in the form of its protocol."""
        if openai_form.has(path):
            told, status = openai_form.error(self), openai_form.status_of(self)
            return Response(as_json(told), status, self.headers, "application/json")
        return Response(as_json(self.body()), self.status_code, self.headers, MEDIA_TYPE)


TITLES = {
    "bad-request": "The request cannot be read",
    "invalid-input": "A value cannot be used",
    "unauthorized": "An API key is needed",
    "forbidden": "This is not allowed here",
    "not-found": "There is no such thing",
    "method-not-allowed": "The path does not know this method",
    "duplicate-id": "The id is taken by a trace with other content",
    "encoder-mismatch": "The scope was encoded by another model",
    "too-large": "The request is too large",
    "unsupported-media-type": "The body's type is not known here",
    "request-timeout": "The client was silent for too long",
    "rate-limited": "The API key has used up its rate",
    "overloaded": "Too many requests are waiting",
    "internal": "The server failed",
    "upstream": "The language model gave no answer",
    "not-configured": "The server was started without this",
    "store-unavailable": "The store cannot be used now",
    "model-unavailable": "A model is missing or failed",
    "not-ready": "The server is not ready",
    "stopping": "The server is stopping",
    "misdirected": "The request was meant for another server",
    "timeout": "The request took too long",
    "store-full": "The disk is full",
}
# Of a request that is no single transaction a part may be done: sending it again completes it.
_AGAIN = "what was acknowledged is safe, and what is sent again is stored once"
_FULL = f"free disk space and send it again; {_AGAIN}"
_READ_ONLY = "the store is read-only here; send writes to a server that may write"
# (error, status, kind, what is told in place of the message, which may name paths)
_KNOWN: tuple[tuple[type[errors.ZeroMemError], int, str, str | None], ...] = (
    (errors.DuplicateIdError, 409, "duplicate-id", None),
    (errors.TraceNotFoundError, 404, "not-found", None),
    (errors.ImportFormatError, 422, "invalid-input", None),
    (errors.InvalidInputError, 422, "invalid-input", None),
    (errors.FingerprintMismatchError, 409, "encoder-mismatch",
     "the scope was encoded by another model than this server's; the operator can encode it anew "
     "with `zeromem reencode`"),
    (errors.StoreFullError, 507, "store-full", _FULL),
    (errors.ReadOnlyStoreError, 503, "store-unavailable", _READ_ONLY),
    (errors.StoreError, 503, "store-unavailable",
     f"the store could not be read or written; try again: {_AGAIN}"),
    (errors.ReaderError, 502, "upstream", None),
    (errors.ModelNotFoundError, 503, "model-unavailable", "the server lacks a model"),
    (errors.EncoderError, 503, "model-unavailable", "the encoder failed; try again"),
)  # fmt: skip


def as_json(value: Any) -> bytes:
    """Write JSON; a lone surrogate, which UTF-8 has no bytes for, is written as an escape."""
    try:
        return orjson.dumps(value)
    except TypeError:
        import json

        return json.dumps(value, separators=(",", ":")).encode("ascii")


def problem_of(error: BaseException) -> Problem:
    """Turn an error into what a client may know of it; the rest goes to the log."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, ClientDisconnect):
        return Problem(400, "bad-request", "the body broke off; send it again")
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        return Problem(507, "store-full", _FULL)
    if isinstance(error, OSError) and error.errno in _NO_FILES:
        return Problem(
            503, "store-unavailable", "the server has too many files open; try again",
            retry_after=1,
        )  # fmt: skip
    if isinstance(error, TimeoutError):
        return Problem(
            504, "timeout", "the request took too long: the models may have much to encode just "
            "now; send less at once, or try again",
        )  # fmt: skip
    for kind, status, name, told in _KNOWN:
        if isinstance(error, kind):
            if status >= 500:
                _log.warning("%s: %s", type(error).__name__, error)
            wait = 1 if status == 503 else None
            detail = told or str(error)
            parts = _parts(detail) if name == "invalid-input" else ()
            return Problem(status, name, detail, errors=parts, retry_after=wait)
    _log.error("%s in a request\n%s", type(error).__name__, errors.where(error))
    return Problem(500, "internal", "the server failed; its log says more, by the X-Request-Id")


def _parts(detail: str) -> list[dict[str, Any]]:
    """Part a message of the engine into field, value and fix, where it has that form."""
    named = _NAMED.match(detail)
    if named is None:
        return []
    got = _GOT.search(named["rest"])
    value = "" if got is None else got["value"]
    return [{"field": named["field"], "value": value[:_SHOWN], "fix": detail[:_SHOWN]}]


def whole_seconds(wait: float) -> int:
    """Round a time to wait as Retry-After tells it."""
    return max(1, round(wait))


def too_many(n: int) -> Problem:
    """Tell of so many mistakes that nobody would read them."""
    return Problem(
        422, "invalid-input", f"the body has {n} mistakes; /openapi.json says what it may be, and "
        "a part of it at a time shows which they are",
    )  # fmt: skip


def of_validation(error: RequestValidationError) -> Problem:
    """Name every field that is wrong, with its value and what it must be."""
    found = []
    for one in error.errors():
        where = ".".join(map(str, one["loc"][1:]))  # the first says where: body, query, header
        if one["type"] == "json_invalid":
            cause = one.get("ctx", {}).get("error", "it cannot be read")
            return Problem(
                400, "bad-request", f"the body is no JSON: {cause}; send a JSON object in UTF-8"
            )
        value = one.get("input")
        if isinstance(value, bytes):
            return Problem(
                415, "unsupported-media-type", "send the body as JSON, with the header "
                "'Content-Type: application/json'",
            )  # fmt: skip
        fix = one["msg"][0].lower() + one["msg"][1:]
        if one["type"] == "extra_forbidden":
            fix = _UNKNOWN
        elif one["type"] == "missing":
            fix, value = "this field is required", None
        found.append({"field": where or "body", "value": _shown(value), "fix": fix})
    found.sort(key=lambda one: one["fix"] != _UNKNOWN)  # what is misspelt is missed elsewhere
    first = found[0]
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    detail = f"{first['field']}: {first['fix']}, got {first['value']}{more}"
    return Problem(422, "invalid-input", detail, errors=found)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def of_http(error: HTTPException, path: str) -> Problem:
    """Tell what the router refuses."""
    match error.status_code:
        case 404:
            others = openai_form.has(path)
            told = openai_form.NO_PATH if others else "no such path; /openapi.json lists them"
            return Problem(404, "not-found", told)
        case 405:
            problem = Problem(405, "method-not-allowed", "see /openapi.json for the path's methods")
            problem.headers = error.headers
            return problem
        case 413:
            return Problem(413, "too-large", str(error.detail))
        case 400:
            return Problem(
                400, "bad-request", "the body cannot be read as JSON: its bytes are not UTF-8, or "
                "it is nested too deeply, or a number is too long; send a JSON object",
            )  # fmt: skip
        case status:
            kind = "bad-request" if status < 500 else "internal"
            return Problem(status, kind, str(error.detail))


def check_values(data: bytes) -> None:
    """Refuse JSON of so many values that reading it would hold up all others.

    Marks within strings count as well: prose of the largest body has a quarter of what is allowed.

    Raises
    ------
    Problem
        413.
    """
    n_lists = data.count(b"[") + data.count(b"{")
    for n, most, what in (
        (n_lists, _MOST_LISTS, "lists and objects"), (data.count(b","), _MOST_VALUES, "values")
    ):  # fmt: skip
        if n > most:
            raise Problem(413, "too-large", f"JSON may have {most} {what}; send less at once")


async def told(request: Request, error: Exception) -> Response:
    """Handle any exception of a route."""
    match error:
        case Problem():
            problem = error
        case RequestValidationError():
            problem = of_validation(error)
        case HTTPException():
            problem = of_http(error, request.scope["path"])
            if problem.status_code == 405:
                # The router names the methods of one of the path's routes alone.
                known = request.app.openapi()["paths"].get(request.scope["path"])
                methods = {"Allow": ", ".join(map(str.upper, known))} if known else {}
                problem.headers = {**dict(problem.headers or {}), **methods}
        case _:
            problem = problem_of(error)
    return problem.response(request.scope["path"])
