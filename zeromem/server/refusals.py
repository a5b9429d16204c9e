"""What went wrong between this server and the upstream, as problems."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from zeromem.server.problems import Problem

_SHOWN = 500
_FORM = ("type", "code", "param")


def unreachable(error: Exception) -> Problem:
    """Say that no reply began."""
    return Problem(
        502, "upstream", f"the upstream could not be reached ({type(error).__name__}); try again, "
        "or see that it runs where --upstream says",
    )  # fmt: skip


def late(seconds: float) -> Problem:
    """Say that nothing came in time."""
    return Problem(
        504, "upstream", f"nothing came from the upstream for {seconds:g} s; try again, ask for "
        "less, or raise --upstream-timeout or --upstream-gap",
    )  # fmt: skip


def garbled(what: str) -> Problem:
    """Say that what came is no reply."""
    return Problem(
        502, "upstream", f"the upstream's reply cannot be used: {what}; try again, or check that "
        "--upstream names a server of OpenAI's protocol (it mostly ends in /v1)",
    )  # fmt: skip


def refusal(
    status: int, body: bytes | Mapping[str, Any], key: str | None, wait: float | None
) -> Problem:
    """Tell what the upstream said, in what it said it.

    Parameters
    ----------
    status : int
        200 for an error within a reply.
    body : bytes or mapping
    key : str, optional
        The operator's, which must not be told.
    wait : float, optional
        Seconds after which it may be tried again.
    """
    message, form = _said(body)
    if status in (401, 403, 407):
        # Such messages quote a part of the key.
        message, form = "it refuses the operator's key; see ZEROMEM_UPSTREAM_API_KEY", {}
    if key:
        message = message.replace(key, "…")
    told = {"status": status, "message": message[:_SHOWN], **form}
    kind = 504 if status in (408, 504) else 503 if status in (429, 503) else 502
    return Problem(
        kind, "upstream", f"the upstream refused with {status}: {told['message']}"
        if status != 200 else f"the upstream failed in its reply: {told['message']}",
        retry_after=wait, upstream=told,
    )  # fmt: skip


def _said(body: bytes | Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    """The message of an error, and what else OpenAI's form says."""
    value: Any = body
    if isinstance(body, bytes):
        try:
            value = json.loads(body)
        except (ValueError, RecursionError):
            return "it gave no reason that can be read", {}
    error = value.get("error", value) if isinstance(value, Mapping) else value
    if not isinstance(error, Mapping):
        return str(error), {}
    form = {name: text for name in _FORM if isinstance(text := error.get(name), str)}
    # "detail" is FastAPI's, which many local servers are written in.
    return str(error.get("message") or error.get("detail") or "it gave no reason"), form


def named(problem: Problem, members: Iterable[str]) -> frozenset[str]:
    """Which members of a request a refusal names."""
    told = problem.upstream or {}
    if told.get("status") not in (400, 422):
        return frozenset()
    text = f"{told['message']} {told.get('param', '')}"
    return frozenset(m for m in members if re.search(rf"\b{re.escape(m)}\b", text))
