"""Problems as clients of OpenAI's protocol expect them, so that each raises its own error class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zeromem.server.problems import Problem

_OWN = frozenset(
    ("answer", "explain", "export", "forget", "import", "retrieve", "scopes", "sessions", "stats",
     "trace", "traces")
)  # fmt: skip
NO_PATH = (
    "of OpenAI's protocol this server speaks Chat Completions only: POST /v1/chat/completions, and "
    "GET /v1/models; /openapi.json lists its own paths"
)
_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_CODES = {"unauthorized": "invalid_api_key", "rate-limited": "rate_limit_exceeded"}


def has(path: str) -> bool:
    """Whether a path is of OpenAI's protocol: below /v1 all is that is not our own."""
    return path.startswith("/v1/") and path.split("/")[2] not in _OWN


def status_of(problem: Problem) -> int:
    """Return the status for such a client.

    What it sent is refused with 400, as OpenAI does, and not with 422. A refusal by the upstream
    that is about the request passes through. One that is about the operator's key does not: the
    client cannot mend it, and its own key is good.
    """
    told = (problem.upstream or {}).get("status")
    if isinstance(told, int) and 400 <= told < 500 and told not in (401, 403, 407, 408):
        return told
    return 400 if problem.status_code == 422 else problem.status_code


def error(problem: Problem) -> dict[str, Any]:
    """Return the body of an error, which also stands in a stream that cannot go on."""
    status, upstream = status_of(problem), problem.upstream or {}
    kind = _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    field = problem.errors[0]["field"] if problem.errors else None
    return {
        "error": {
            "message": problem.detail,
            "type": upstream.get("type") or kind,
            "code": upstream.get("code") or _CODES.get(problem.kind, problem.kind),
            "param": upstream.get("param") or field,
        }
    }
