"""The resources: a list of sessions, and each session as quoted, dated turns, page by page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC
from urllib.parse import quote, unquote

from mcp import types

from zeromem.answer.prompt import quoted
from zeromem.errors import InvalidInputError
from zeromem.mcp import results
from zeromem.memory import Memory
from zeromem.times import in_zone
from zeromem.types import SessionSummary

SESSIONS = "zeromem://sessions"
TEMPLATE = f"{SESSIONS}/{{session}}{{?cursor}}"
MIME_TYPE = "text/markdown"
_PAGE = 100  # sessions of one page
_TURNS = 50  # traces of one page of a session


class UnknownResourceError(InvalidInputError):
    """No resource has this URI."""


def address(session: str | None, cursor: str | None = None) -> str:
    """Return a session's URI.

    Parameters
    ----------
    session : str or None
        Any name. None is the unnamed session, whose URI ends with the slash.
    cursor : str, optional
        Of a page that is not the first.
    """
    name = quote(session or "", safe="", errors="surrogatepass")
    return f"{SESSIONS}/{name}" + _query(cursor)


def _query(cursor: str | None) -> str:
    return "" if cursor is None else f"?cursor={quote(cursor, safe='')}"


def listing(memory: Memory, cursor: str | None) -> types.ListResourcesResult:
    """List resources: on the first page the list of sessions itself, then each session.

    Raises
    ------
    InvalidInputError
        Of a cursor that no page gave.
    """
    sessions, following = _sessions(memory, cursor)
    listed = [
        types.Resource(
            uri=address(session.name), name=results.sendable(session.name or "(unnamed session)"),
            description=_counted(session, memory), mime_type=MIME_TYPE,
        )
        for session in sessions
    ]  # fmt: skip
    if cursor is None:
        index = types.Resource(
            uri=SESSIONS, name="sessions", title="Sessions", mime_type=MIME_TYPE,
            description="The sessions that memory holds, with how many traces and when.",
        )  # fmt: skip
        listed = [index, *listed]
    return types.ListResourcesResult(resources=listed, next_cursor=following)


def templates() -> types.ListResourceTemplatesResult:
    """Describe the URIs of sessions."""
    template = types.ResourceTemplate(
        uri_template=TEMPLATE, name="session", title="One session", mime_type=MIME_TYPE,
        description="The turns of one session, quoted, with who said them and when. The name is "
        "percent-encoded; an empty one is the session of traces that name none. A long session "
        "comes page by page: the end of each page has the URI of the next.",
    )  # fmt: skip
    return types.ListResourceTemplatesResult(resource_templates=[template])


def reading(uri: str) -> Callable[[Memory], types.ReadResourceResult]:
    """Return what reads a resource from a memory.

    Raises
    ------
    UnknownResourceError
        The URI has another form than those that are listed.
    """
    path, _, query = uri.partition("?")
    cursor = None
    if query:
        name, _, value = query.partition("=")
        if name != "cursor" or not value or "&" in value:
            raise UnknownResourceError(f"there is no resource {uri!r:.200}; {_FORMS}")
        cursor = _decoded(value, uri)
    if path == SESSIONS:
        return lambda memory: _read(uri, _index(memory, cursor))
    prefix = f"{SESSIONS}/"
    rest = path.removeprefix(prefix)
    if not path.startswith(prefix) or "/" in rest or "#" in rest:
        raise UnknownResourceError(f"there is no resource {uri!r:.200}; {_FORMS}")
    session = _decoded(rest, uri) or None
    return lambda memory: _read(uri, _session(memory, session, cursor))


_FORMS = f"resources are {SESSIONS} and {TEMPLATE}, with the session's name percent-encoded"


def _decoded(text: str, uri: str) -> str:
    try:
        return unquote(text, errors="surrogatepass")
    except UnicodeDecodeError:
        raise UnknownResourceError(
            f"resource {uri!r:.200} is not percent-encoded UTF-8; {_FORMS}"
        ) from None


def _read(uri: str, text: str) -> types.ReadResourceResult:
    content = types.TextResourceContents(uri=uri, mime_type=MIME_TYPE, text=results.sendable(text))
    return types.ReadResourceResult(contents=[content])


def _sessions(memory: Memory, cursor: str | None) -> tuple[Sequence[SessionSummary], str | None]:
    """Return one page of sessions, and the cursor of the next."""
    if cursor is not None and not (cursor.isascii() and cursor.isdigit() and len(cursor) < 10):
        raise InvalidInputError(
            f"cursor must be one that the page before gave, got {cursor!r:.80}; start without"
        )
    start = int(cursor or 0)
    every = memory.sessions()
    following = start + _PAGE
    return every[start:following], str(following) if following < len(every) else None


def _counted(session: SessionSummary, memory: Memory) -> str:
    """Say how many traces a session has, and the days on which the first and the last begin."""
    n = f"{session.n_traces} trace{'' if session.n_traces == 1 else 's'}"
    if session.first is None or session.last is None:
        return f"{n}, undated"
    # In the memory's own zone: the day that a trace was given with is that day here.
    zone = memory._zone or UTC
    first, last = (in_zone(moment, zone).date() for moment in (session.first, session.last))
    return f"{n}, {first}" if first == last else f"{n}, {first} to {last}"


def _index(memory: Memory, cursor: str | None) -> str:
    sessions, following = _sessions(memory, cursor)
    lines = [f"- <{address(session.name)}>: {_counted(session, memory)}" for session in sessions]
    rest = [] if following is None else [f"Next page: <{SESSIONS}{_query(following)}>"]
    return "\n\n".join(["# Sessions", "\n".join(lines) or "Memory is empty.", *rest])


def _session(memory: Memory, session: str | None, cursor: str | None) -> str:
    found = memory.traces(sessions=[session], limit=_TURNS, cursor=cursor)
    if not found.items and cursor is None:
        raise UnknownResourceError(
            f"there is no session {session!r:.200}; {SESSIONS} lists those there are"
        )
    title = "The unnamed session" if session is None else f"Session {quoted(session)}"
    rest = [] if found.cursor is None else [f"Next page: <{address(session, found.cursor)}>"]
    return "\n\n".join([f"# {title}", results.NOTE, *results.quotations(found.items), *rest])
