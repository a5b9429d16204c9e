"""Memory against a plain list, step by step: nothing that one can do in any order is wrong."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from support import HashEncoder, open_memory

import zeromem
from zeromem import importers
from zeromem.errors import DuplicateIdError, InvalidInputError, TraceNotFoundError
from zeromem.times import EventTime
from zeromem.types import StoredTrace, Trace

SCOPES = ("ana", "ben/notes")
SESSIONS = (None, "s1", "s2", "s3")
SPEAKERS = (None, "Ana", "ana", "Ben")
ROLES = ("user", "assistant", "document")
SOURCES = (None, "mail", "chat")
TIMES = (None, "2024", "2025-03", "2025-03-01T10:00+00:00", "2025-03-01T10:05+00:00", "2026-01-01")
TEXTS = (
    "Miso is my new kitten.", "We moved to Lisbon. It is near the river!", "Acme pays well.",
    "Ben plays the piano.", "Tea or coffee?", "Nothing at all",
)  # fmt: skip
IDS = (None, None, None, None, "a", "b", "c", "é/\n")
ALL = 10_000

LIMITS = st.sampled_from(("session", "speaker", "source", "role", "after", "before", "as_of"))
CONDITIONS = st.sampled_from(
    ("ids", "ids", "session", "speaker", "source", "after", "before", "everything")
)

traces = st.builds(
    Trace,
    text=st.builds("{} Number {}.".format, st.sampled_from(TEXTS), st.integers(0, 99)),
    id=st.sampled_from(IDS),
    role=st.sampled_from(ROLES),
    speaker=st.sampled_from(SPEAKERS),
    session=st.sampled_from(SESSIONS),
    time=st.sampled_from([t and EventTime.parse(t) for t in TIMES]),
    source=st.sampled_from(SOURCES),
    metadata=st.sampled_from(({}, {"n": 1})),
)
scopes = st.sampled_from(SCOPES)


class Held:
    """What a scope should hold: traces with their lsns, in order."""

    def __init__(self) -> None:
        self.last = 0
        self.traces: dict[int, Trace] = {}

    def lsn(self, id: str | None) -> int | None:
        return next((n for n, t in self.traces.items() if t.id == id), None)

    def place(self, given: Trace, id: str) -> int | None:
        """Return where a trace is already; raise where its id is another's."""
        lsn = self.lsn(id)
        if lsn is not None and content(self.traces[lsn]) != content(given, id):
            raise DuplicateIdError(id)
        return lsn

    def add(self, given: Trace, id: str) -> int:
        self.last += 1
        self.traces[self.last] = zeromem.types.Trace(**{**fields(given), "id": id})
        return self.last


def fields(trace: Trace) -> dict[str, Any]:
    return {name: getattr(trace, name) for name in trace.__dataclass_fields__}


def content(trace: Trace, id: str | None = None) -> tuple[Any, ...]:
    """All that makes a trace another one: not its metadata."""
    known = fields(trace) | ({"id": id} if id else {})
    return tuple(known[name] for name in sorted(known) if name != "metadata")


def start(trace: Trace) -> datetime | None:
    return None if trace.time is None else trace.time.start


class MemoryMachine(RuleBasedStateMachine):
    """Two scopes of one store, two handles of each, one of them in shared Memories."""

    @initialize(given=st.lists(traces, min_size=4, max_size=9))
    def begin(self, given: list[Trace]) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="zeromem-machine-"))
        self.path = self.folder / "m.zm"
        self.held = {scope: Held() for scope in SCOPES}
        self.open()
        for scope in SCOPES:
            self.add_many(scope, False, given)

    def open(self) -> None:
        self.own = {scope: open_memory(self.path, scope=scope) for scope in SCOPES}
        self.shared = zeromem.Memories(
            self.path, encoder=HashEncoder(), annotator="rules", device="cpu", max_open=1
        )

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.close()
            shutil.rmtree(self.folder)

    def close(self) -> None:
        for memory in self.own.values():
            memory.close()
        self.shared.close()

    def with_memory(self, scope: str, other: bool, call: Any) -> Any:
        if not other:
            return call(self.own[scope])
        with self.shared.use(scope) as memory:
            return call(memory)

    # ---- what changes

    @rule(scope=scopes, other=st.booleans(), given=traces)
    def add(self, scope: str, other: bool, given: Trace) -> None:
        self.add_many(scope, other, [given])

    @rule(scope=scopes, other=st.booleans(), given=st.lists(traces, max_size=5))
    def add_many(self, scope: str, other: bool, given: list[Trace]) -> None:
        held = self.held[scope]
        before = held.last, dict(held.traces)
        expected: list[tuple[str | None, int | None, bool]] = []
        taken = False
        try:
            for one in given:
                name = one.id or made_id(one)
                lsn = held.place(one, name)
                created = lsn is None
                expected.append((name, held.add(one, name) if lsn is None else lsn, created))
        except DuplicateIdError:
            taken = True
            held.last, held.traces = before  # a batch is stored whole or not at all
        if taken:
            with pytest.raises(DuplicateIdError):
                self.with_memory(scope, other, lambda m: m.add_many(given))
        else:
            added = self.with_memory(scope, other, lambda m: m.add_many(given))
            assert [(a.id, a.lsn, a.created) for a in added] == expected
        self.look(scope)

    @rule(scope=scopes, other=st.booleans(), data=st.data())
    def add_again(self, scope: str, other: bool, data: st.DataObject) -> None:
        if kept := self.held[scope].traces:
            lsn = data.draw(st.sampled_from(sorted(kept)))
            (added,) = self.with_memory(scope, other, lambda m: m.add_many([kept[lsn]]))
            assert (added.lsn, added.created) == (lsn, False)

    @rule(scope=scopes, other=st.booleans(), data=st.data(), names=st.sets(CONDITIONS, max_size=2))
    def forget(self, scope: str, other: bool, data: st.DataObject, names: set[str]) -> None:
        held = self.held[scope]
        if not names:
            with pytest.raises(InvalidInputError):
                self.with_memory(scope, other, lambda m: m.forget())
            return
        known = list(held.traces.values())
        values = {
            "ids": st.lists(st.sampled_from([*(t.id for t in known), "unknown"]), max_size=3),
            "session": st.sampled_from(SESSIONS[1:]),
            "speaker": st.sampled_from(("Ana", "ANA", "Ben", "nobody")),
            "source": st.sampled_from(SOURCES[1:]),
            "after": st.sampled_from(TIMES[1:]).map(EventTime.parse),
            "before": st.sampled_from(TIMES[1:]).map(EventTime.parse),
            "everything": st.just(True),
        }
        if "everything" in names:
            names = {"everything"}
        given = {name: data.draw(values[name], label=name) for name in sorted(names)}
        gone = {n for n, t in held.traces.items() if meant(t, given)}
        assert self.with_memory(scope, other, lambda m: m.forget(**given)) == len(gone)
        for lsn in gone:
            del held.traces[lsn]
        self.look(scope)

    @rule(scope=scopes)
    def copy(self, scope: str) -> None:
        """An export, imported into another memory, is the same memory."""
        file = self.folder / "export.jsonl"
        kept = list(self.held[scope].traces.values())
        exported = [s.trace for s in self.own[scope].export()]
        assert exported == kept
        lines = "".join(importers.to_json_line(trace) + "\n" for trace in exported)
        file.write_text(lines, encoding="utf-8", newline="")
        with open_memory() as copy:
            assert len(copy.import_(file, progress=False)) == len(kept)
            assert [s.trace for s in copy.export()] == kept
            assert evidence(copy, "kitten") == evidence(self.own[scope], "kitten")

    @rule(scope=scopes)
    def imported_again(self, scope: str) -> None:
        """An export, imported where it came from, adds nothing."""
        file = self.folder / "again.jsonl"
        lines = [importers.to_json_line(s.trace) + "\n" for s in self.own[scope].export()]
        file.write_text("".join(lines), encoding="utf-8", newline="")
        added = self.own[scope].import_(file, progress=False)
        assert [a.lsn for a in added if not a.created] == list(self.held[scope].traces)

    @rule()
    def reopen(self) -> None:
        self.close()
        self.open()

    @rule()
    def crash(self) -> None:
        """Go on with what is on disk now, as after a crash of this process; nothing is closed."""
        folder = Path(tempfile.mkdtemp(prefix="zeromem-machine-"))
        for file in sorted(self.folder.iterdir()):
            shutil.copy(file, folder)  # nobody writes meanwhile
        self.close()
        shutil.rmtree(self.folder)
        os.rename(folder, self.folder)
        self.open()

    @rule(scope=scopes)
    def half_a_crash(self, scope: str) -> None:
        """A handle is left open, with its index behind, and another takes its place."""
        self.left = self.own[scope]
        self.own[scope] = open_memory(self.path, scope=scope)
        self.left._store.close()

    # ---- what is seen

    def look(self, scope: str) -> None:
        """Whatever one handle changed the other sees at once; both have their indexes from now."""
        kept = self.held[scope].traces
        for other in (False, True):
            found = self.with_memory(scope, other, lambda m: m.retrieve("Miso", k=ALL))
            assert {item.lsn: item.trace for item in found} == kept

    @rule(
        scope=scopes, other=st.booleans(), question=st.sampled_from((*TEXTS, "Where is Ana?")),
        data=st.data(), names=st.sets(LIMITS, max_size=2),
    )  # fmt: skip
    def retrieve(
        self, scope: str, other: bool, question: str, data: st.DataObject, names: set[str]
    ) -> None:
        held = self.held[scope]
        values = {
            "session": st.sampled_from(SESSIONS[1:]), "speaker": st.sampled_from(("Ana", "BEN")),
            "source": st.sampled_from(SOURCES[1:]), "role": st.sampled_from(ROLES),
            "after": st.sampled_from(TIMES[1:]).map(EventTime.parse),
            "before": st.sampled_from(TIMES[1:]).map(EventTime.parse),
            "as_of": st.integers(0, held.last),
        }  # fmt: skip
        given = {name: data.draw(values[name], label=name) for name in sorted(names)}
        plural = ("session", "speaker", "source", "role")
        options = {f"{n}s" if n in plural else n: value for n, value in given.items()}
        found = self.with_memory(scope, other, lambda m: m.retrieve(question, k=ALL, **options))
        seen = {
            n: t
            for n, t in held.traces.items()
            if meant(t, given) and n <= given.get("as_of", held.last)
        }
        for item in found:
            assert item.trace == seen[item.lsn]
            assert item.text == item.trace.text[item.start : item.end]
        assert {item.lsn for item in found} == seen.keys()
        few = self.with_memory(scope, other, lambda m: m.retrieve(question, k=2, **options))
        assert len(few.main) == min(2, len(found.main))

    @rule(
        scope=scopes, other=st.booleans(), order=st.sampled_from(("log", "time")),
        descending=st.booleans(), limit=st.integers(1, 4),
        session=st.sampled_from(("any", *SESSIONS)), source=st.sampled_from((None, "mail")),
    )  # fmt: skip
    def pages(
        self, scope: str, other: bool, order: Any, descending: bool, limit: int,
        session: str | None, source: str | None,
    ) -> None:  # fmt: skip
        sessions = None if session == "any" else [session]
        options = {"order": order, "descending": descending, "limit": limit,
                   "sessions": sessions, "sources": source}  # fmt: skip
        found: list[StoredTrace] = []
        cursor = None
        for _ in itertools.count():
            page = self.with_memory(scope, other, lambda m, c=cursor: m.traces(cursor=c, **options))
            assert len(page.items) <= limit
            found += page.items
            if (cursor := page.cursor) is None:
                break
            assert len(page.items) == limit
        kept = [
            (n, t) for n, t in self.held[scope].traces.items()
            if (sessions is None or in_session(t, session)) and source in (None, t.source)
        ]  # fmt: skip
        far = datetime.max.replace(tzinfo=UTC)
        if order == "time":
            sign = -1 if descending else 1
            timed = sorted(
                (sign * (start(t) or far).timestamp(), sign * n, n) for n, t in kept if t.time
            )
            rest = sorted((sign * n, n) for n, t in kept if not t.time)
            wanted = [n for *_, n in timed] + [n for _, n in rest]
        else:
            wanted = sorted((n for n, _ in kept), reverse=descending)
        assert [s.lsn for s in found] == wanted
        assert all(s.trace == self.held[scope].traces[s.lsn] for s in found)

    @rule(
        scope=scopes, other=st.booleans(), data=st.data(), before=st.integers(0, 3),
        after=st.integers(0, 3),
    )  # fmt: skip
    def around(self, scope: str, other: bool, data: st.DataObject, before: int, after: int) -> None:
        kept = self.held[scope].traces
        lsn = data.draw(st.sampled_from([0, *kept]))
        if not lsn:
            with pytest.raises(TraceNotFoundError):
                self.with_memory(scope, other, lambda m: m.around("unknown"))
            return
        one = kept[lsn]
        found = self.with_memory(
            scope, other, lambda m: m.around(one.id, before=before, after=after)
        )
        session = [n for n, t in kept.items() if place(n, t) == place(lsn, one)]
        at = session.index(lsn)
        assert [s.lsn for s in found] == session[max(0, at - before) : at + after + 1]

    @rule(scope=scopes, other=st.booleans())
    def sessions(self, scope: str, other: bool) -> None:
        wanted: dict[str | None, list[Trace]] = {}
        for trace in self.held[scope].traces.values():
            if trace.session is not None or trace.role != "document":
                wanted.setdefault(trace.session, []).append(trace)
        found = self.with_memory(scope, other, lambda m: m.sessions())
        assert [(s.name, s.n_traces) for s in found] == [(n, len(t)) for n, t in wanted.items()]
        for one, kept in zip(found, wanted.values(), strict=True):
            times = [t.time for t in kept if t.time]
            assert one.first == min((t.start for t in times), default=None)
            assert one.last == max((t.start for t in times), default=None)

    @rule(scope=scopes, other=st.booleans())
    def get_and_stats(self, scope: str, other: bool) -> None:
        kept = self.held[scope].traces
        names = [t.id for t in kept.values()]
        found = self.with_memory(scope, other, lambda m: m.get([*names, "unknown"]))
        assert found == {t.id: t for t in kept.values()}
        stats = self.with_memory(scope, other, lambda m: m.stats())
        assert (stats["traces"], stats["last_lsn"], stats["pending"]) == (
            len(kept), self.held[scope].last, 0,
        )  # fmt: skip

    @precondition(lambda self: hasattr(self, "own"))
    @invariant()
    def scopes_are_those_that_hold_anything(self) -> None:
        assert self.shared.scopes() == sorted(s for s in SCOPES if self.held[s].traces)


def made_id(trace: Trace) -> str:
    """The id that a trace without one gets, told by an empty memory."""
    key = content(trace)
    if key not in _MADE:
        with open_memory() as memory:
            _MADE[key] = memory.add_many([trace])[0].id
    return _MADE[key]


_MADE: dict[Any, str] = {}


def evidence(memory: zeromem.Memory, question: str) -> list[tuple[Any, ...]]:
    return [(e.id, e.text, e.score, e.why) for e in memory.retrieve(question, k=3)]


def parsed(time: str) -> EventTime:
    return EventTime.parse(time)


def place(lsn: int, trace: Trace) -> Any:
    """The session of a trace; a document that names none has one of its own."""
    if trace.session is None and trace.role == "document":
        return lsn
    return trace.session


def in_session(trace: Trace, session: str | None) -> bool:
    """Whether a list of a session has a trace; a document that names none is in no one's."""
    return trace.session == session and (session is not None or trace.role != "document")


def meant(trace: Trace, given: dict[str, Any]) -> bool:
    """Whether `forget` means a trace, or a boundary admits it."""
    after, before = given.get("after"), given.get("before")
    speaker = given.get("speaker")
    exact = all(
        given.get(name) is None or getattr(trace, name) == given[name]
        for name in ("session", "source", "role")
    )
    named = given.get("ids") is None or trace.id in given["ids"]
    spoken = speaker is None or (trace.speaker or "").lower() == speaker.lower()
    timed = (trace.time is not None or (after is None and before is None)) and (
        (after is None or trace.time.start >= after.start)
        and (before is None or trace.time.end <= before.start)
    )
    return exact and named and spoken and timed


def test_memory_is_what_a_list_would_be() -> None:
    run_state_machine_as_test(
        MemoryMachine,
        settings=settings(
            max_examples=int(os.environ.get("ZEROMEM_MACHINE_EXAMPLES", "60")),
            stateful_step_count=30,
        ),
    )
