"""The server of language models behind this one: any that speaks OpenAI's protocol over HTTP.

Everything here waits for the network alone, so that a slow upstream costs others nothing. Whoever
cancels a request closes its connection.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from typing import Any

import httpx

from zeromem.server.problems import Problem, as_json
from zeromem.server.refusals import garbled, late, named, refusal, unreachable
from zeromem.server.settings import UpstreamSettings
from zeromem.server.sse import Event, events

_log = logging.getLogger(__name__)
# Longer waits are the client's.
_LONGEST_WAIT = 10.0
_BACKOFF = 0.2
# Seconds for a stream's last bytes, which come with its end.
_CLOSING = 0.02


class Upstream:
    """Requests to the upstream, with limits and retries.

    Belongs to one event loop.

    Parameters
    ----------
    settings : UpstreamSettings
    """

    def __init__(self, settings: UpstreamSettings) -> None:
        self.settings = settings
        self._running: Counter[str] = Counter()
        # Members of requests that are ours and that the upstream was found not to know.
        self._refused: frozenset[str] = frozenset()
        headers = {"Accept-Encoding": "identity", "User-Agent": "zeromem"}
        if settings.api_key:
            headers["Authorization"] = f"Bearer {settings.api_key}"
        self._client = httpx.AsyncClient(
            headers=headers,
            # How long a reply may take is counted here: httpx would count before its head too.
            timeout=httpx.Timeout(
                connect=settings.connect_timeout, read=None, write=settings.gap_timeout, pool=None
            ),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def models(self, tenant: str) -> dict[str, Any]:
        """Return the upstream's list of models.

        Raises
        ------
        Problem
        """
        request = self._client.build_request("GET", self._url("models"))
        return await self._whole(tenant, request, needed="data")

    async def chat(self, tenant: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return a chat's reply, as a whole.

        Parameters
        ----------
        tenant : str
            Who is served in turn.
        body : mapping
            Of the request, as it is sent.

        Raises
        ------
        Problem
            502, 503 or 504: no reply came, or nothing that is one. 429: too much is running.
        """
        return await self._whole(tenant, self._chat_request(body), needed="choices")

    async def stream(
        self, tenant: str, body: Mapping[str, Any], extras: Mapping[str, Any]
    ) -> AsyncGenerator[Event, None]:
        """Yield a chat's reply as it comes, up to its end.

        Parameters
        ----------
        tenant, body
            As for :meth:`chat`.
        extras : mapping
            Further members of the request, which are left out where the upstream knows them not.

        Raises
        ------
        Problem
            As :meth:`chat` does, and where the stream breaks off, stands still, or holds an error.
        """
        while True:
            known = {k: v for k, v in extras.items() if k not in self._refused}
            try:
                parts = self._streamed(tenant, {**body, **known, "stream": True})
                async with aclosing(parts):
                    async for part in parts:
                        yield part
                return
            except Problem as problem:  # a refusal comes before any part
                unknown = named(problem, known)
                if not unknown:
                    raise
                _log.warning("the upstream does not know %s: it is asked without", sorted(unknown))
                self._refused |= unknown

    async def _streamed(self, tenant: str, body: Mapping[str, Any]) -> AsyncGenerator[Event, None]:
        deadline = self._deadline()
        gap = self.settings.gap_timeout
        async with self._opened(tenant, self._chat_request(body), deadline, gap) as response:
            kind = response.headers.get("content-type", "")
            if not kind.startswith("text/event-stream"):
                raise garbled(f"a stream was asked for, and {kind or 'an untyped body'} came")
            finished = False
            parts = events(response.aiter_raw(), self.settings.max_reply)
            async with aclosing(parts) as found:
                while (event := await self._next(found, deadline)) is not None:
                    if event.done:
                        await _rest(found)
                        return
                    finished = finished or any(c.get("finish_reason") for c in event.choices)
                    yield event
            # Some servers end without saying so; the reply was whole then.
            if not finished:
                raise garbled("the stream broke off before the reply's end")

    async def _next(self, found: AsyncIterator[Event], deadline: float) -> Event | None:
        left = deadline - asyncio.get_running_loop().time()
        gap = self.settings.gap_timeout
        try:
            async with asyncio.timeout(min(left, gap)):
                event = await anext(found, None)
        except TimeoutError:
            raise late(self.settings.timeout if left < gap else gap) from None
        except httpx.HTTPError as error:
            raise garbled(f"the stream broke off ({type(error).__name__})") from error
        except ValueError as error:
            raise garbled(f"the stream has a part that cannot be read: {error}") from None
        if event is not None and event.data.get("error"):
            raise refusal(200, event.data, self.settings.api_key, None)
        return event

    async def _whole(self, tenant: str, request: httpx.Request, needed: str) -> dict[str, Any]:
        deadline = self._deadline()
        async with self._opened(tenant, request, deadline, math.inf) as response:
            body = await self._read(response, deadline)
        try:
            value = json.loads(body)
        except (ValueError, RecursionError):
            raise garbled("the reply is no JSON") from None
        if isinstance(value, dict) and value.get("error"):
            raise refusal(200, value, self.settings.api_key, None)
        if not isinstance(value, dict) or not isinstance(value.get(needed), list):
            raise garbled(f"the reply has no {needed!r}")
        return value

    async def _read(self, response: httpx.Response, deadline: float) -> bytes:
        body = bytearray()
        try:
            async with asyncio.timeout_at(deadline):
                async for part in response.aiter_raw():
                    body += part
                    if len(body) > self.settings.max_reply:
                        raise garbled(f"the reply has over {self.settings.max_reply} bytes")
        except TimeoutError:
            raise late(self.settings.timeout) from None
        except httpx.HTTPError as error:
            raise garbled(f"the reply broke off ({type(error).__name__})") from error
        return bytes(body)

    @asynccontextmanager
    async def _opened(
        self, tenant: str, request: httpx.Request, deadline: float, patience: float
    ) -> AsyncIterator[httpx.Response]:
        """Send a request until a reply of status 200 begins."""
        with self._admitted(tenant):
            response = await self._sent(request, deadline, patience)
            try:
                yield response
            finally:
                await response.aclose()

    async def _sent(
        self, request: httpx.Request, deadline: float, patience: float
    ) -> httpx.Response:
        n_tries = 0
        while True:
            outcome, wait = await self._tried(request, deadline, patience)
            if isinstance(outcome, httpx.Response):
                return outcome
            n_tries += 1
            too_late = asyncio.get_running_loop().time() + wait >= deadline
            if n_tries > self.settings.max_retries or wait > _LONGEST_WAIT or too_late:
                raise outcome
            await asyncio.sleep(wait)

    async def _tried(
        self, request: httpx.Request, deadline: float, patience: float
    ) -> tuple[httpx.Response | Problem, float]:
        """Return a reply that begins, or the problem with seconds until another try is of use."""
        until = min(deadline, asyncio.get_running_loop().time() + patience)
        try:
            async with asyncio.timeout_at(until):
                response = await self._client.send(request, stream=True)
        except TimeoutError:
            return late(min(patience, self.settings.timeout)), math.inf
        except httpx.HTTPError as error:
            _log.warning("the upstream could not be reached: %s", type(error).__name__)
            return unreachable(error), _BACKOFF
        if response.status_code == 200:
            return response, 0.0
        try:
            body = await self._read(response, deadline)
        except Problem:  # the status says enough
            body = b""
        finally:
            await response.aclose()
        wait = _retry_after(response)
        passes = response.status_code == 429 or response.status_code >= 500
        problem = refusal(response.status_code, body, self.settings.api_key, wait)
        return problem, wait if passes and wait is not None else math.inf

    @contextmanager
    def _admitted(self, tenant: str) -> Iterator[None]:
        own, total = self._running[tenant], self._running.total()
        most = self.settings.max_requests
        share = most // (len(self._running) + (own == 0))
        if total >= most or (own >= max(1, share) and total >= most // 2):
            raise Problem(
                429, "overloaded", f"{total} chats are running ({own} of this tenant); ask again "
                "in 1 s", retry_after=1,
            )  # fmt: skip
        self._running[tenant] += 1
        try:
            yield
        finally:
            self._running[tenant] -= 1
            if not self._running[tenant]:
                del self._running[tenant]

    def _chat_request(self, body: Mapping[str, Any]) -> httpx.Request:
        return self._client.build_request(
            "POST", self._url("chat/completions"), content=as_json(body),
            headers={"Content-Type": "application/json"},
        )  # fmt: skip

    def _url(self, path: str) -> str:
        return f"{self.settings.url.rstrip('/')}/{path}"

    def _deadline(self) -> float:
        return asyncio.get_running_loop().time() + self.settings.timeout


async def _rest(found: AsyncIterator[Event]) -> None:
    """Read on to the body's end, so that the connection can be used again."""
    with suppress(TimeoutError, httpx.HTTPError, ValueError):
        async with asyncio.timeout(_CLOSING):
            await anext(found, None)


def _retry_after(response: httpx.Response) -> float | None:
    """Seconds; a date, which few send, counts as not said."""
    try:
        wait = float(response.headers["retry-after"])
    except (KeyError, ValueError):
        return None
    return wait if 0 <= wait < math.inf else None
