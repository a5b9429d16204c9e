"""LangGraph: a store whose namespaces are the scopes of one file.

>>> import zeromem
>>> from zeromem.integrations.langgraph import ZeroMemStore
>>> memories = zeromem.Memories("agent.zm")  # doctest: +SKIP
>>> store = ZeroMemStore(memories, index={"fields": ["memory"]})  # doctest: +SKIP
>>> store.put(("users", "ana"), "pet", {"memory": "Miso is Ana's kitten"})  # doctest: +SKIP
>>> store.search(("users",), query="Which pets are there?")[0].key  # doctest: +SKIP
'pet'
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime
from itertools import islice
from typing import Any, Literal

from zeromem.asking import Answered, Call, ask
from zeromem.errors import InvalidInputError
from zeromem.integrations._matching import fits, satisfies
from zeromem.integrations._shared import missing
from zeromem.integrations._versions import (
    FRAMEWORK,
    Put,
    every,
    form,
    key_of,
    version,
    versions,
    write,
)
from zeromem.memories import Memories
from zeromem.memory import Memory, featurize
from zeromem.query.evidence import explanation
from zeromem.store.codec import prepare_trace
from zeromem.types import Evidence, Role, Trace

try:
    from langgraph.store.base import (
        BaseStore,
        GetOp,
        Item,
        ListNamespacesOp,
        Op,
        PutOp,
        Result,
        SearchItem,
        SearchOp,
        get_text_at_path,
        validate_op_namespace,
    )
except ImportError as error:
    raise missing("langgraph", "langgraph") from error

Namespace = tuple[str, ...]
# The library forbids periods in labels, so that joined ones name one namespace.
_SCOPE = "langgraph:"
_INDEXED: Role = "document"
_PLAIN: Role = "tool"
_TOGETHER = 256
_CLOSEST = 10


class ZeroMemStore(BaseStore):
    """A LangGraph store over many memories: each namespace is a scope of its own.

    A value is on disk when ``put`` returns. It replaces the one before without a moment in which
    neither is there, whatever fails meanwhile; ``created_at`` stays. Several operations of one
    batch read what was there before its writes, and the last write of a key holds. New values of
    one namespace are stored all or none, those of several one namespace after the other.

    With a query, ``search`` ranks by a memory's own retrieval in each namespace. Scores of a
    namespace are weighted by how close its best sentence is to the query, so that those of many
    compare. Without one it lists items by namespace, each namespace's in the order of creation.

    Parameters
    ----------
    memories : Memories
        Stays the caller's, who closes it.
    index : mapping or False, optional
        ``{"fields": [...]}``: the paths of values that queries search, by default all (``"$"``).
        False searches nothing, unless ``put`` says so for an item. The encoder is the memories'.
    """

    supports_ttl = False

    def __init__(
        self, memories: Memories, *, index: Mapping[str, Any] | Literal[False] | None = None
    ) -> None:
        if not isinstance(memories, Memories):
            raise InvalidInputError(
                f"memories must be a zeromem.Memories, got {memories!r:.80}; make one with "
                "zeromem.Memories(path)"
            )
        self._memories = memories
        self._fields = [] if index is False else _fields(index)

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations; each has its result, in order.

        Raises
        ------
        InvalidNamespaceError
            A label is empty, is no str, or holds a period.
        InvalidInputError
            A value, a filter or a number cannot be used. Nothing was written.
        """
        ops = list(ops)
        puts: dict[Namespace, dict[str, Put]] = defaultdict(dict)
        for op in ops:
            _check(op)
            if isinstance(op, PutOp):
                puts[tuple(op.namespace)][op.key] = self._checked(op)
        found = [self._read(op) for op in ops]
        with ExitStack() as opened:
            written = [
                write(opened.enter_context(self._memories.use(_scope(namespace))), own)
                for namespace, own in puts.items()
            ]
            featurize([added for added in written if added is not None])
        return found

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations in a thread, as :meth:`batch` does."""
        return await asyncio.to_thread(self.batch, ops)

    def _checked(self, op: PutOp) -> Put:
        if op.ttl is not None:
            raise NotImplementedError(f"ttl must be None, got {op.ttl!r}: items do not expire here")
        if op.value is None:
            return Put(None, "", _PLAIN)
        if not isinstance(op.value, Mapping):
            raise InvalidInputError(f"value of {op.key!r} must be a mapping, got {op.value!r:.80}")
        text = _text(dict(op.value), self._fields if op.index is None else op.index, op.key)
        # A trace must have a text. That of the value stays out where it is not to be found.
        return Put(op.value, text or "[not indexed]", _INDEXED if text else _PLAIN)

    def _read(self, op: Op) -> Result:
        match op:
            case PutOp():
                return None
            case GetOp():
                with self._memories.use(_scope(op.namespace)) as memory:
                    held = versions(memory, [op.key]).get(op.key)
                return _item(op.namespace, held[0]) if held else None
            case SearchOp():
                _check_page(op)
                return self._ranked(op) if (op.query or "").strip() else self._listed(op)
            case ListNamespacesOp():
                _check_page(op)
                return self._named(op)
        raise InvalidInputError(f"ops must be GetOp, PutOp, SearchOp or ListNamespacesOp, got {op}")

    def _named(self, op: ListNamespacesOp) -> list[Namespace]:
        conditions = op.match_conditions or ()
        found = [
            n for n in self._under(()) if all(fits(n, c.path, c.match_type) for c in conditions)
        ]
        if op.max_depth is not None:
            found = sorted({n[: op.max_depth] for n in found})
        return found[op.offset : op.offset + op.limit]

    def _under(self, prefix: Namespace) -> list[Namespace]:
        names = (s.removeprefix(_SCOPE) for s in self._memories.scopes() if s.startswith(_SCOPE))
        found = (tuple(name.split(".")) if name else () for name in names)
        return sorted(n for n in found if n[: len(prefix)] == tuple(prefix))

    def _listed(self, op: SearchOp) -> list[SearchItem]:
        items = (i for n in self._under(op.namespace_prefix) for i in self._items(n))
        chosen = (i for i in items if _matches(i, op.filter))
        return list(islice(chosen, op.offset, op.offset + op.limit))

    def _items(self, namespace: Namespace) -> list[SearchItem]:
        newest: dict[str, Trace] = {}
        with self._memories.use(_scope(namespace)) as memory:
            for trace in every(memory):
                known = newest.get(key_of(trace))
                if known is None or version(known) < version(trace):
                    newest[key_of(trace)] = trace
        ordered = sorted(newest.values(), key=lambda t: form(t)["order"])
        return [_found(namespace, trace) for trace in ordered]

    def _ranked(self, op: SearchOp) -> list[SearchItem]:
        if not op.limit:
            return []
        found: list[SearchItem] = []
        rest = iter(self._under(op.namespace_prefix))
        while some := list(islice(rest, _TOGETHER)):
            found += self._asked(some, op)
        found.sort(key=lambda item: -(item.score or 0.0))  # stable: ties by namespace, then rank
        return found[op.offset : op.offset + op.limit]

    def _asked(self, namespaces: Sequence[Namespace], op: SearchOp) -> list[SearchItem]:
        """Ask namespaces together, for more and more until each has told enough, or all."""
        wanted = op.offset + op.limit
        k = max(wanted, _CLOSEST)
        done: dict[Namespace, list[SearchItem]] = {}
        with ExitStack() as opened:
            left = {n: opened.enter_context(self._memories.use(_scope(n))) for n in namespaces}
            while left:
                options = {"k": k, "closure": False, "roles": _INDEXED}
                calls = [Call.of(m, [str(op.query)], options, filtered=True) for m in left.values()]
                for (namespace, memory), (answered,) in zip(
                    list(left.items()), ask(calls), strict=True
                ):
                    hits = [i for i in _hits(namespace, memory, answered) if _matches(i, op.filter)]
                    if len(hits) >= wanted or len(answered.retrieval) < k:
                        done[namespace] = hits
                        del left[namespace]
                k *= 4
        return [item for n in namespaces for item in done[n]]


def _fields(index: Mapping[str, Any] | None) -> list[str]:
    given = {} if index is None else index
    if not isinstance(given, Mapping) or set(given) - {"fields"}:
        raise InvalidInputError(
            f"index must be a mapping with the key 'fields' alone, or False, got {index!r:.80}; "
            "the encoder is given to zeromem.Memories(encoder=…)"
        )
    return ["$"] if given.get("fields") is None else _paths(given["fields"], "index['fields']")


def _paths(given: Any, name: str) -> list[str]:
    if not isinstance(given, list | tuple) or not all(isinstance(p, str) for p in given):
        raise InvalidInputError(f"{name} must be a list of paths such as 'a.b', got {given!r:.80}")
    return list(given)


def _text(value: dict[str, Any], index: Literal[False] | Sequence[str], key: str) -> str:
    """The text of a value that queries search; empty for none."""
    paths = [] if index is False else _paths(index, "index")
    try:  # now, so that nothing of a batch is written where a value of it cannot be
        kept = {FRAMEWORK: {"value": value}}  # as deep within it as it will be
        prepare_trace(Trace(key, metadata=kept), b"value", 0)
    except InvalidInputError as error:
        why = str(error).replace(f"trace 0: metadata[{FRAMEWORK!r}]['value']", "value", 1)
        raise InvalidInputError(f"value of {key!r} cannot be stored: {why}") from None
    texts = (text for path in paths for text in get_text_at_path(value, path))
    return "\n".join(text for text in texts if text.strip())


def _check(op: Op) -> None:
    namespace = op.namespace_prefix if isinstance(op, SearchOp) else getattr(op, "namespace", ())
    if not isinstance(namespace, list | tuple):  # a str would be taken letter by letter
        raise InvalidInputError(f"namespace must be a tuple of labels, got {namespace!r:.80}")
    validate_op_namespace(op)
    if isinstance(op, GetOp | PutOp) and not isinstance(op.key, str):
        raise InvalidInputError(f"key must be a str, got {op.key!r:.80}")


def _check_page(op: SearchOp | ListNamespacesOp) -> None:
    for name in ("limit", "offset"):
        value = getattr(op, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise InvalidInputError(f"{name} must be an integer of at least 0, got {value!r}")


def _matches(item: Item, wanted: Mapping[str, Any] | None) -> bool:
    return all(satisfies(item.value.get(name), part) for name, part in (wanted or {}).items())


def _scope(namespace: Sequence[str]) -> str:
    return _SCOPE + ".".join(namespace)


def _item(namespace: Sequence[str], trace: Trace) -> Item:
    return Item(**_fields_of(namespace, trace))


def _found(namespace: Sequence[str], trace: Trace, score: float | None = None) -> SearchItem:
    return SearchItem(**_fields_of(namespace, trace), score=score)


def _fields_of(namespace: Sequence[str], trace: Trace) -> dict[str, Any]:
    kept = form(trace)
    return {
        "namespace": tuple(namespace),
        "key": key_of(trace),
        "value": kept["value"],
        "created_at": datetime.fromisoformat(kept["created"]),
        "updated_at": datetime.fromisoformat(kept["updated"]),
    }


def _hits(namespace: Namespace, memory: Memory, answered: Answered) -> list[SearchItem]:
    """Items of a namespace, best first: each once, and in its newest version alone."""
    arrays = answered.state.index.arrays
    explained = explanation(answered.ranked, answered.retrieval, arrays, answered.stored)
    # Of the first alone, which every page of a ranking looks at.
    first = explained.items[:_CLOSEST]
    closeness = max((s for item in first for _, s in item.sentences), default=0.0)
    best: dict[str, Evidence] = {}
    for evidence in answered.retrieval:
        if FRAMEWORK in evidence.trace.metadata:
            best.setdefault(key_of(evidence.trace), evidence)
    held = versions(memory, best)
    return [
        _found(namespace, evidence.trace, evidence.score * closeness)
        for key, evidence in best.items()
        if key in held and held[key][0].source == evidence.trace.source
    ]
