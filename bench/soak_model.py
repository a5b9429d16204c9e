"""What a server must hold and may say, as plain dicts: the model that the soak checks replies by.

Requests overlap, so each has a start and an end on one clock of ticks. What was acknowledged before
a request began, and not asked to be forgotten before it ended, must be seen by it. What was
acknowledged as forgotten before it began must not. What lies between may be seen or not.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from invented import COMMON, invented, speakers

Reply = Mapping[str, Any]
_FRIENDS = speakers(12)
_FIRST_DAY = datetime(2001, 1, 1, tzinfo=UTC)
_SESSIONS = 6
# Forgotten facts that are still known, so that a request which began before may show them. No
# request is so slow that as many are forgotten of its scope meanwhile.
_REMEMBERED = 500


@dataclass(slots=True, eq=False)
class Fact:
    """One trace, a question that it alone answers, and the ticks of its life."""

    id: str
    text: str
    question: str
    session: str
    speaker: str
    time: str
    sent: int
    stored: int | None = None
    leaving: int | None = None
    gone: int | None = None
    lsn: int = 0

    def body(self) -> dict[str, Any]:
        """Return it as it is sent."""
        fields = ("id", "text", "session", "speaker", "time")
        return {name: getattr(self, name) for name in fields}


class Clock:
    """Ticks, and serial numbers of facts."""

    def __init__(self) -> None:
        self._ticks = count(1)
        self._serials = count()

    def now(self) -> int:
        return next(self._ticks)

    def serial(self) -> int:
        return next(self._serials)


class Scope:
    """One scope of one tenant: what was sent, acknowledged and forgotten.

    Parameters
    ----------
    tenant, name : str
    clock : Clock
        That of all scopes: every name in a fact is in no other one.
    """

    def __init__(self, tenant: str, name: str, clock: Clock) -> None:
        self.tenant = tenant
        self.name = name
        self._clock = clock
        self.facts: dict[str, Fact] = {}
        self._forgotten: deque[Fact] = deque()

    # ---- what happens

    def new(self, rng: random.Random) -> Fact:
        """Make a fact that is about to be sent."""
        serial = self._clock.serial()
        (word,) = invented(serial, serial + 1, ("an",))
        name, friend = word.capitalize(), rng.choice(_FRIENDS)
        what, where = rng.sample(COMMON, 2)
        fact = Fact(
            id=f"{self.tenant}:{serial}",
            text=f"{name} keeps the {what} near the {where}. {friend} was told of it.",
            question=f"Where does {name} keep the {what}?",
            session=f"s{serial // 8 % _SESSIONS}",
            speaker=friend,
            time=(_FIRST_DAY + timedelta(minutes=serial)).isoformat(timespec="minutes"),
            sent=self._clock.now(),
        )
        self.facts[fact.id] = fact
        return fact

    def acknowledge(
        self, facts: Sequence[Fact], added: Sequence[Reply], *, again: bool = False
    ) -> list[str]:
        """Note that facts are stored, as the reply says; return what is wrong with it.

        Where they were sent ``again`` they may have been there already.
        """
        if [one.get("id") for one in added] != [fact.id for fact in facts]:
            return [f"sent were {[fact.id for fact in facts]}, the reply is {added}"]
        last = max((f.lsn for f in self.facts.values()), default=0)
        now = self._clock.now()
        wrong = []
        for fact, one in zip(facts, added, strict=True):
            if not (one["created"] or again) or one["lsn"] <= last:
                wrong.append(f"{fact.id} is new, and its reply is {dict(one)} after lsn {last}")
            fact.stored = now
            fact.lsn = last = one["lsn"]
        return wrong

    def refuse(self, facts: Iterable[Fact]) -> None:
        """Note that nothing of facts was stored."""
        for fact in facts:
            self._bury(fact)

    def leave(self, facts: Iterable[Fact]) -> None:
        """Note that facts are about to be forgotten."""
        now = self._clock.now()
        for fact in facts:
            fact.leaving = now

    def forgotten(self, facts: Iterable[Fact]) -> None:
        """Note that facts are forgotten."""
        for fact in facts:
            self._bury(fact)

    def _bury(self, fact: Fact) -> None:
        fact.gone = self._clock.now()
        self._forgotten.append(fact)
        while len(self._forgotten) > _REMEMBERED:
            del self.facts[self._forgotten.popleft().id]

    # ---- what may be seen

    def live(self) -> list[Fact]:
        """Acknowledged facts that nobody is about to forget."""
        return [f for f in self.facts.values() if f.stored is not None and f.leaving is None]

    def sure(self, start: int, end: int) -> set[str]:
        """Ids that every reply to a request of these ticks must know."""
        return {f.id for f in self.facts.values() if _is_sure(f, start, end)}

    def _item(self, item: Reply, start: int, end: int, *, part: bool) -> str | None:
        """Say what is wrong with a trace, or with a part of one, that a reply shows."""
        fact = self.facts.get(item["id"])
        if fact is None:
            return f"a trace that was never sent here, or long forgotten: {dict(item)}"
        if fact.gone is not None and fact.gone < start:
            return f"{fact.id} is forgotten, or was refused, and is shown"
        if fact.sent > end:
            return f"{fact.id} is shown before it was sent"
        text = fact.text[item["start"] : item["end"]] if part else fact.text
        if item["text"] != text or not text:
            return f"{fact.id} says {text!r}, and is shown as {item['text']!r}"
        for name in ("session", "speaker", "time"):
            if item[name] != getattr(fact, name):
                return f"{fact.id} has {name} {getattr(fact, name)!r}, shown is {item[name]!r}"
        if fact.lsn and item["lsn"] != fact.lsn:
            return f"{fact.id} has lsn {fact.lsn}, shown is {item['lsn']}"
        return None

    # ---- checks: each returns what is wrong

    def check_evidence(
        self, found: Reply, asked: Fact | None, start: int, end: int, k: int
    ) -> list[str]:
        """Check a retrieval: verbatim, of this scope, and with what was asked for."""
        evidence = found["evidence"]
        wrong = [w for item in evidence if (w := self._item(item, start, end, part=True))]
        if len({item["id"] for item in evidence}) != len(evidence):
            wrong.append(f"evidence comes twice: {[item['id'] for item in evidence]}")
        main = [item["id"] for item in evidence if item["kind"] == "main"]
        if len(main) > k:
            wrong.append(f"{len(main)} main items at k={k}")
        if asked is not None and _is_sure(asked, start, end) and asked.id not in main:
            wrong.append(f"{asked.id} is acknowledged and not found by {asked.question!r}: {main}")
        return wrong

    def check_answer(self, given: Reply, asked: Fact, start: int, end: int, k: int) -> list[str]:
        """Check an answer: its evidence, and its citations in that."""
        wrong = self.check_evidence(given, asked, start, end, k)
        shown = {item["id"] for item in given["evidence"]}
        for cited in given["citations"]:
            fact = self.facts.get(cited["id"])
            if cited["id"] not in shown:
                wrong.append(f"cited is {cited['id']}, which is no evidence")
            elif fact is not None and cited["text"] != fact.text[cited["start"] : cited["end"]]:
                wrong.append(f"cited of {fact.id} is {cited['text']!r}, it says {fact.text!r}")
        return wrong

    def check_traces(
        self, traces: Sequence[Reply], start: int, end: int, session: str | None = None
    ) -> list[str]:
        """Check a whole list or export, or that of one session."""
        wrong = [w for item in traces if (w := self._item(item, start, end, part=False))]
        lsns = [item["lsn"] for item in traces]
        if lsns != sorted(set(lsns)):
            wrong.append(f"traces are out of order: {lsns}")
        sure = self.sure(start, end)
        if session is not None:
            sure = {id for id in sure if self.facts[id].session == session}
            if others := {item["session"] for item in traces} - {session}:
                wrong.append(f"session {session!r} lists traces of {others}")
        if missing := sure - {item["id"] for item in traces}:
            wrong.append(f"acknowledged and missing: {sorted(missing)}")
        return wrong

    def check_counts(self, counts: Mapping[str, int], start: int, end: int) -> list[str]:
        """Check how many traces each session is said to have, or ``""`` all together."""
        wrong = []
        sure, possible = self._by_session(start, end, sure=True), self._by_session(start, end)
        for name in possible.keys() | counts.keys():
            least, most, told = sure.get(name, 0), possible.get(name, 0), counts.get(name, 0)
            if ("" in counts) == (name == "") and not least <= told <= most:
                wrong.append(f"session {name!r} has {told} traces, and {least} to {most} are right")
        return wrong

    def _by_session(self, start: int, end: int, *, sure: bool = False) -> dict[str, int]:
        found = {"": 0}
        for fact in self.facts.values():
            seen = _is_sure(fact, start, end) if sure else fact.gone is None or fact.gone > start
            if seen:
                found[""] += 1
                found[fact.session] = found.get(fact.session, 0) + 1
        return found


def _is_sure(fact: Fact, start: int, end: int) -> bool:
    return (
        fact.stored is not None
        and fact.stored < start
        and (fact.leaving is None or fact.leaving > end)
    )
