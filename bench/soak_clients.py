"""The clients of a soak: what they ask a server, and what they make of its replies."""

from __future__ import annotations

import asyncio
import json
import random
import time
from array import array
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import aiohttp
from soak_model import Clock, Fact, Scope

K = 5
_KEPT_FAULTS = 10
_LOST = (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError)
_PAGE = 25


@dataclass
class Tally:
    """What happened, by kind of request."""

    requests: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    refused: int = 0
    reconnected: int = 0
    seconds: dict[str, array[float]] = field(default_factory=dict)
    faults: Counter[str] = field(default_factory=Counter)
    told: list[str] = field(default_factory=list)
    traces: Counter[str] = field(default_factory=Counter)

    def fault(self, kind: str, what: str) -> None:
        """Note what must not be."""
        self.faults[kind] += 1
        if self.faults[kind] <= _KEPT_FAULTS:
            self.told.append(f"{kind}: {what}")


class Refused(Exception):
    """The server has too much to do; nothing was done."""


class Tenant:
    """A tenant: its key, its scopes, and a lock for each, which whoever changes it holds.

    One change at a time makes each reply to it known beforehand. Whoever only reads does not wait.
    """

    def __init__(self, name: str, key: str, scopes: Sequence[str], clock: Clock) -> None:
        self.name = name
        self.key = key
        self.scopes = [Scope(name, scope, clock) for scope in scopes]
        self.locks = {scope: asyncio.Lock() for scope in scopes}


class Client:
    """One of many; it sends one request at a time.

    Parameters
    ----------
    http : aiohttp.ClientSession
        Shared by all.
    url : str
    tenants : sequence of Tenant
    clock : Clock
    tally : Tally
    rng : random.Random
    size : int
        Facts that a scope is kept at.
    """

    def __init__(
        self, http: aiohttp.ClientSession, url: str, tenants: Sequence[Tenant], clock: Clock,
        tally: Tally, rng: random.Random, size: int,
    ) -> None:  # fmt: skip
        self._http = http
        self._url = url
        self._tenants = tenants
        self._clock = clock
        self._tally = tally
        self._rng = rng
        self._size = size
        self._again = False

    async def run(self, until: float) -> None:
        """Send requests until a moment of ``time.monotonic``."""
        rng = self._rng
        while time.monotonic() < until:
            # Some tenants have many requests at once, most have few.
            tenant = self._tenants[int(len(self._tenants) * rng.random() ** 2)]
            scope = rng.choice(tenant.scopes)
            work = rng.choices(_WORK, _WEIGHTS)[0]
            try:
                if work not in _WRITING:
                    await work(self, tenant, scope)
                    continue
                async with tenant.locks[scope.name]:
                    if work is not Client._agree and len(scope.live()) > self._size:
                        work = Client._forget
                    await work(self, tenant, scope)
            except Refused:
                await asyncio.sleep(0.5)
            except aiohttp.ClientError as error:
                self._tally.fault("connection", repr(error))
                await asyncio.sleep(0.5)

    # ---- writing, one at a time in a scope

    async def _add(self, tenant: Tenant, scope: Scope) -> None:
        fact = scope.new(self._rng)
        added = await self._sent("add", tenant, scope, [fact], "traces", fact.body())
        self._told("add", scope.acknowledge([fact], [added], again=self._again))

    async def _add_batch(self, tenant: Tenant, scope: Scope) -> None:
        facts = [scope.new(self._rng) for _ in range(self._rng.randint(2, 12))]
        body = {"traces": [fact.body() for fact in facts]}
        reply = await self._sent("add batch", tenant, scope, facts, "traces/batch", body)
        self._told("add batch", scope.acknowledge(facts, reply["added"], again=self._again))

    async def _add_stream(self, tenant: Tenant, scope: Scope) -> None:
        facts = [scope.new(self._rng) for _ in range(self._rng.randint(3, 20))]
        lines = "".join(json.dumps(fact.body()) + "\n" for fact in facts)
        text = await self._sent("add stream", tenant, scope, facts, "traces/stream", lines)
        added = [json.loads(line) for line in text.splitlines()]
        self._told("add stream", scope.acknowledge(facts, added, again=self._again))

    async def _sent(
        self, kind: str, tenant: Tenant, scope: Scope, facts: Sequence[Fact], path: str, body: Any
    ) -> Any:
        try:
            _, reply = await self._send(kind, tenant, scope, "POST", path, body, (200, 201))
        except Refused:
            scope.refuse(facts)
            raise
        self._tally.traces["added"] += len(facts)
        return reply

    async def _add_again(self, tenant: Tenant, scope: Scope) -> None:
        """The same trace again is no new one; the same id with other content is refused."""
        if not (live := scope.live()):
            return
        fact = self._rng.choice(live)
        _, reply = await self._send(
            "add again", tenant, scope, "POST", "traces", fact.body(), (201,)
        )
        if reply != {"id": fact.id, "lsn": fact.lsn, "created": False}:
            self._told("add again", [f"{fact.id} with lsn {fact.lsn} again: {reply}"])
        other = fact.body() | {"text": "something else"}
        await self._send("add taken", tenant, scope, "POST", "traces", other, (409,))

    async def _forget(self, tenant: Tenant, scope: Scope) -> None:
        if not (live := scope.live()):
            return
        rng = self._rng
        one = rng.choice(live)
        match rng.choices(("ids", "session", "speaker", "before", "everything"), (5, 5, 3, 3, 1))[
            0
        ]:
            case "ids":
                meant = rng.sample(live, min(3, len(live)))
                body: dict[str, Any] = {"ids": [fact.id for fact in meant]}
            case "session":
                meant = [fact for fact in live if fact.session == one.session]
                body = {"session": one.session}
            case "speaker":
                meant = [fact for fact in live if fact.speaker == one.speaker]
                body = {"speaker": one.speaker}
            case "before":
                meant = [fact for fact in live if fact.time < one.time]
                body = {"before": one.time}
            case _:
                meant, body = live, {"everything": True}
        scope.leave(meant)
        _, reply = await self._send("forget", tenant, scope, "POST", "forget", body)
        scope.forgotten(meant)
        self._tally.traces["forgotten"] += len(meant)
        if reply["forgotten"] != len(meant) and not self._again:
            self._told("forget", [f"{body} means {len(meant)} traces, the reply is {reply}"])

    async def _agree(self, tenant: Tenant, scope: Scope) -> None:
        """While nobody writes, counts, lists and export are the same."""
        await self._stats(tenant, scope)
        await self._sessions(tenant, scope)
        await self._list(tenant, scope)
        await self._export(tenant, scope)

    # ---- reading

    def _question(self, scope: Scope) -> Fact | None:
        live = scope.live()
        return self._rng.choice(live) if live else None

    async def _retrieve(self, tenant: Tenant, scope: Scope) -> None:
        await self._asked("retrieve", tenant, scope, scope.check_evidence)

    async def _explain(self, tenant: Tenant, scope: Scope) -> None:
        await self._asked("explain", tenant, scope, scope.check_evidence)

    async def _answer(self, tenant: Tenant, scope: Scope) -> None:
        await self._asked("answer", tenant, scope, scope.check_answer)

    async def _asked(
        self, kind: str, tenant: Tenant, scope: Scope, check: Callable[..., list[str]]
    ) -> None:
        if (fact := self._question(scope)) is None:
            return
        start = self._clock.now()
        body = {"question": fact.question, "k": K}
        _, reply = await self._send(kind, tenant, scope, "POST", kind, body)
        self._told(kind, check(reply, fact, start, self._clock.now(), K))

    async def _retrieve_batch(self, tenant: Tenant, scope: Scope) -> None:
        kind, facts = "retrieve batch", [self._question(scope) for _ in range(4)]
        questions = [f.question if f else "Who was told of the lamp?" for f in facts]
        start = self._clock.now()
        body = {"questions": questions, "k": K}
        _, reply = await self._send(kind, tenant, scope, "POST", "retrieve/batch", body)
        end = self._clock.now()
        for fact, found in zip(facts, reply["retrievals"], strict=True):
            self._told(kind, scope.check_evidence(found, fact, start, end, K))

    async def _list(self, tenant: Tenant, scope: Scope) -> None:
        fact = self._question(scope)
        session = fact.session if fact and self._rng.random() < 0.3 else None
        start, cursor, found = self._clock.now(), "", []
        while cursor is not None:
            path = f"traces?limit={_PAGE}"
            path += f"&sessions={session}" if session else ""
            path += f"&cursor={quote(cursor)}" if cursor else ""
            _, page = await self._send("list", tenant, scope, "GET", path)
            found += page["traces"]
            cursor = page["cursor"]
        self._told("list", scope.check_traces(found, start, self._clock.now(), session))

    async def _around(self, tenant: Tenant, scope: Scope) -> None:
        """A trace by its id; for another tenant there is none."""
        if (fact := self._question(scope)) is None:
            return
        other = self._rng.choice([t for t in self._tenants if t is not tenant])
        path = f"trace?id={quote(fact.id)}"
        await self._send("not theirs", other, other.scopes[0], "GET", path, None, (404,))
        start = self._clock.now()
        status, reply = await self._send("trace", tenant, scope, "GET", path, None, (200, 404))
        end = self._clock.now()
        shown = [item["id"] for item in reply["traces"]] if status == 200 else []
        if fact.id in scope.sure(start, end) and shown != [fact.id]:
            self._told("trace", [f"{fact.id} is acknowledged; asked for it, shown are {shown}"])

    async def _stats(self, tenant: Tenant, scope: Scope) -> None:
        start = self._clock.now()
        _, reply = await self._send("stats", tenant, scope, "GET", "stats")
        counts = {"": reply["traces"]}
        self._told("stats", scope.check_counts(counts, start, self._clock.now()))

    async def _sessions(self, tenant: Tenant, scope: Scope) -> None:
        start = self._clock.now()
        _, reply = await self._send("sessions", tenant, scope, "GET", "sessions")
        counts = {one["name"]: one["n_traces"] for one in reply["sessions"]}
        self._told("sessions", scope.check_counts(counts, start, self._clock.now()))

    async def _scopes(self, tenant: Tenant, scope: Scope) -> None:
        start = self._clock.now()
        _, reply = await self._send("scopes", tenant, scope, "GET", "scopes")
        end = self._clock.now()
        sure = {s.name for s in tenant.scopes if s.sure(start, end)}
        if not sure <= set(reply["scopes"]) <= {s.name for s in tenant.scopes}:
            self._told("scopes", [f"{tenant.name} is shown {reply['scopes']}, and holds {sure}"])

    async def _export(self, tenant: Tenant, scope: Scope) -> None:
        await self.export(tenant, scope)

    async def export(self, tenant: Tenant, scope: Scope) -> None:
        """Check a scope's export."""
        start = self._clock.now()
        _, text = await self._send("export", tenant, scope, "GET", "export")
        found = [json.loads(line) for line in text.splitlines()]
        self._told("export", scope.check_traces(found, start, self._clock.now()))

    # ---- HTTP

    async def _send(
        self, kind: str, tenant: Tenant, scope: Scope, method: str, path: str, body: Any = None,
        right: Sequence[int] = (200,),
    ) -> tuple[int, Any]:  # fmt: skip
        headers = {
            "Authorization": f"Bearer {tenant.key}", "Zeromem-Scope": quote(scope.name),
            "Content-Type": "application/json",
        }  # fmt: skip
        data = body if body is None or isinstance(body, str) else json.dumps(body)
        start = time.perf_counter()
        url = f"{self._url}/v1/{path}"
        status, kind_of_text, text = await self._exchanged(method, url, data, headers)
        tally = self._tally
        tally.seconds.setdefault(kind, array("d")).append(time.perf_counter() - start)
        tally.requests[kind] += 1
        tally.statuses[status] += 1
        if status == 429:
            tally.refused += 1
            raise Refused
        if status not in right:
            tally.fault(f"status {status}", f"{method} {path} of {scope.name!r}: {text}")
            raise Refused
        return status, text if "x-ndjson" in kind_of_text else json.loads(text)

    async def _exchanged(
        self, method: str, url: str, data: str | None, headers: Mapping[str, str]
    ) -> tuple[int, str, str]:
        """Send once more where the server had just closed an idle connection, as clients do."""
        self._again = False
        while True:
            try:
                async with self._http.request(method, url, data=data, headers=headers) as response:
                    kind = response.headers.get("Content-Type", "")
                    return response.status, kind, await response.text()
            except _LOST:
                if self._again:
                    raise
                self._again = True
                self._tally.reconnected += 1

    def _told(self, kind: str, wrong: Sequence[str]) -> None:
        for what in wrong:
            self._tally.fault(kind, what)


Work = Callable[[Client, Tenant, Scope], Awaitable[None]]
_SHARES: dict[Work, float] = {
    Client._retrieve: 40, Client._retrieve_batch: 5, Client._explain: 3, Client._answer: 3,
    Client._add: 20, Client._add_batch: 3, Client._add_stream: 2, Client._add_again: 3,
    Client._forget: 3, Client._list: 4, Client._around: 3, Client._stats: 3, Client._sessions: 3,
    Client._scopes: 2, Client._export: 1, Client._agree: 1,
}  # fmt: skip
_WORK, _WEIGHTS = list(_SHARES), list(_SHARES.values())
_WRITING = {
    Client._add, Client._add_batch, Client._add_stream, Client._add_again, Client._forget,
    Client._agree,
}  # fmt: skip
