"""A value under a key as a trace: replaced without a moment in which neither version is there.

A key's versions take turns at two ids, so that a key is found by id. The new one is added, then the
old one is forgotten; meanwhile, and after a crash between the two, the newest wins.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import uuid4

from zeromem.errors import DuplicateIdError, StoreError
from zeromem.memory import Appended, Memory
from zeromem.types import Role, Trace

FRAMEWORK = "langgraph"
_PAGE = 1000
_ATTEMPTS = 100


class Put(NamedTuple):
    """What is to be written under a key: nothing (a deletion), or a value with its text."""

    value: Mapping[str, Any] | None
    text: str
    role: Role


def form(trace: Trace) -> dict[str, Any]:
    """What a trace keeps of an item: its value, version, times and place in the order."""
    found: dict[str, Any] = trace.metadata[FRAMEWORK]
    return found


def version(trace: Trace) -> int:
    """The number of a version; the newest of a key has the highest."""
    return int(form(trace)["version"])


def key_of(trace: Trace) -> str:
    """The key whose version a trace is."""
    return (trace.id or "")[2:]


def every(memory: Memory) -> Iterator[Trace]:
    """Yield all versions of all keys."""
    cursor = None
    while True:
        page = memory.traces(limit=_PAGE, cursor=cursor)
        yield from (s.trace for s in page.items if FRAMEWORK in s.trace.metadata)
        cursor = page.cursor
        if cursor is None:
            return


def versions(memory: Memory, keys: Iterable[str]) -> dict[str, list[Trace]]:
    """What is stored under keys, newest first: two versions where a replacement was cut short."""
    found: dict[str, list[Trace]] = defaultdict(list)
    for trace in memory.get([f"{slot}:{key}" for key in keys for slot in (0, 1)]).values():
        if FRAMEWORK in trace.metadata:
            found[key_of(trace)].append(trace)
    return {key: sorted(own, key=version, reverse=True) for key, own in found.items()}


def write(memory: Memory, puts: Mapping[str, Put]) -> Appended | None:
    """Add the new versions at once, then forget the old; newest wins meanwhile.

    Returns
    -------
    Appended, optional
        What was added, whose features are still to be made; None where all are deletions.

    Raises
    ------
    StoreError
        Others wrote the same keys in each of many attempts.
    """
    kept = {key: put for key, put in puts.items() if put.value is not None}
    for _ in range(_ATTEMPTS):
        held = versions(memory, puts)
        _forget(memory, [trace for own in held.values() for trace in own[1:]])
        try:
            # Appending nothing would still make the scope.
            added = memory.append(_new(kept, held)) if kept else None
        except DuplicateIdError:  # another process was faster
            continue
        _forget(memory, [own[0] for own in held.values()])
        return added
    raise StoreError(
        f"keys of scope {memory.scope!r} were written by others in each of {_ATTEMPTS} attempts "
        "to write them; try again"
    )


def _new(puts: Mapping[str, Put], held: Mapping[str, Sequence[Trace]]) -> list[Trace]:
    now, mark = datetime.now(UTC).isoformat(), uuid4().hex
    traces = []
    for place, (key, put) in enumerate(puts.items()):
        old = form(held[key][0]) if key in held else None
        number = old["version"] + 1 if old else 0
        kept = {
            "value": put.value,
            "version": number,
            "created": old["created"] if old else now,
            "updated": now,
            "order": old["order"] if old else [now, place],
        }
        traces.append(
            Trace(
                put.text,
                id=f"{number % 2}:{key}",
                role=put.role,
                source=mark,
                metadata={FRAMEWORK: kept},
            )
        )
    return traces


def _forget(memory: Memory, traces: Iterable[Trace]) -> None:
    """Forget these versions and no later one that has taken an id of theirs meanwhile."""
    by_mark: dict[str | None, list[str]] = defaultdict(list)
    for trace in traces:
        by_mark[trace.source].append(trace.id or "")
    for mark, ids in by_mark.items():
        memory.forget(ids, source=mark)
