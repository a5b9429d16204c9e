"""zeromem's own methods, through its public interface alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, TypeVar

import zeromem
from zeromem.evaluation.methods.base import first_distinct
from zeromem.evaluation.types import DEPTH, Budget, Found, History, Query
from zeromem.ingest.encode import Encoder
from zeromem.times import EventTime
from zeromem.types import Retrieval

_WIDEST = 8 * DEPTH
T = TypeVar("T")


@dataclass(frozen=True)
class Variant:
    """What a variant of zeromem changes.

    Attributes
    ----------
    options : mapping
        Of ``Memory.retrieve``.
    config : {"run", "paper"}
        The run's configuration, or ``Config.paper()`` whatever the run's is.
    calibrates : bool
        Whether answers are calibrated (eq. 16).
    """

    options: Mapping[str, Any] = field(default_factory=dict)
    config: Literal["run", "paper"] = "run"
    calibrates: bool = True


VARIANTS = {
    "zeromem": Variant(),
    "zeromem-paper": Variant(config="paper"),
    "graph": Variant({"view": "graph"}),
    "hierarchy": Variant({"view": "hierarchy"}),
    "no-closure": Variant({"closure": False}),
    # Neither eq. 15's calibration of evidence nor eq. 16's of answers.
    "no-calibration": Variant({"calibration": False}, calibrates=False),
}


class OpenMemories:
    """The memory in use under each configuration, so that methods share one ingest.

    Parameters
    ----------
    store : Path, optional
        The store file; without one a temporary one, removed on :meth:`close`.
    encoder : Encoder
    device : {"cpu", "cuda"}
    """

    def __init__(self, store: Path | None, encoder: Encoder, device: Any) -> None:
        self._store = store
        self._encoder = encoder
        self._device = device
        self._folder: TemporaryDirectory[str] | None = None
        self._history: History | None = None
        self._open: dict[str, zeromem.Memory] = {}

    def get(self, history: History, label: str, config: zeromem.Config) -> zeromem.Memory:
        """Open and fill a history's memory, once per configuration.

        Parameters
        ----------
        history : History
        label : str
            The configuration's name, part of the scope's.
        config : Config
        """
        if self._history is not history:
            self.leave()
            self._history = history
        if label not in self._open:
            handle = self._open[label] = zeromem.open(
                self._place(),
                scope=f"{label}/{history.name}",
                encoder=self._encoder,
                config=config,
                device=self._device,
            )
            handle.add_many(history.traces)
            handle.stats()  # the index is made on first use: that is ingest and no query's time
        return self._open[label]

    def _place(self) -> Path:
        if self._store is not None:
            return self._store
        if self._folder is None:
            self._folder = TemporaryDirectory(prefix="zeromem-evaluation-")
        return Path(self._folder.name, "memories.zm")

    def leave(self) -> None:
        """Close what is open; a context made for one question is forgotten."""
        for handle in self._open.values():
            if self._history is not None and self._history.ephemeral:
                handle.forget(everything=True)
            handle.close()
        self._open = {}
        self._history = None

    def close(self) -> None:
        """Close what is open and remove the temporary store."""
        self.leave()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


class ZeroMem:
    """One variant as a method.

    Parameters
    ----------
    name : str
        Key of ``VARIANTS``.
    memories : OpenMemories
    paper : bool
        Whether the run's configuration is ``Config.paper()``.
    """

    budgeted = True

    def __init__(self, name: str, memories: OpenMemories, *, paper: bool = False) -> None:
        variant = VARIANTS[name]
        self.name = name
        self.calibrates = variant.calibrates
        self._options = dict(variant.options)
        paper = paper or variant.config == "paper"
        self._label = "paper" if paper else "default"
        self._config = zeromem.Config.paper() if paper else zeromem.Config()
        self._memories = memories
        self._handle: zeromem.Memory | None = None

    def index(self, history: History) -> None:
        """Remember the history; variants of one configuration share the memory."""
        self._handle = self._memories.get(history, self._label, self._config)

    def rank(self, queries: Sequence[Query], depth: int = DEPTH) -> list[tuple[str, ...]]:
        """Return main evidence, a trace's rank being its best piece's."""
        return _by_moment(queries, lambda some, asked_at: self._mains(some, depth, asked_at))

    def find(self, queries: Sequence[Query], budget: Budget) -> list[Found]:
        """Return R(q) within the budget."""

        def ask(some: Sequence[Query], asked_at: EventTime | None) -> list[Found]:
            retrieved = self._ask(some, asked_at, k=budget.k, token_budget=budget.tokens)
            return [Found((r.items,), r.profile) for r in retrieved]

        return _by_moment(queries, ask)

    def share(self, history: History) -> None:
        """Remember the history, so that others find its features."""
        self.index(history)

    def close(self) -> None:
        """Close the memories, which the variants share."""
        self._handle = None
        self._memories.close()

    def _ask(
        self, queries: Sequence[Query], asked_at: EventTime | None, **options: Any
    ) -> list[Retrieval]:
        if self._handle is None:
            raise RuntimeError(f"{self.name}: index(history) must come before queries")
        if asked_at is not None:
            options["reference_time"] = asked_at
        texts = [query.text for query in queries]
        return self._handle.retrieve_batch(texts, **options, **self._options)

    def _mains(
        self, queries: Sequence[Query], depth: int, asked_at: EventTime | None
    ) -> list[tuple[str, ...]]:
        """Read on down the list where pieces of one trace fill places of the first ``depth``."""
        found = self._ask(queries, asked_at, k=depth)
        mains = [first_distinct((e.id for e in r.main), depth) for r in found]
        k = depth
        while k < _WIDEST:
            short = [i for i, r in enumerate(found) if len(mains[i]) < depth and len(r.main) >= k]
            if not short:
                break
            k *= 2
            again = self._ask([queries[i] for i in short], asked_at, k=k)
            for i, retrieval in zip(short, again, strict=True):
                found[i] = retrieval
                mains[i] = first_distinct((e.id for e in retrieval.main), depth)
        return mains


def _by_moment(
    queries: Sequence[Query], ask: Callable[[Sequence[Query], EventTime | None], list[T]]
) -> list[T]:
    """Ask the queries of each moment in one batch; answers in the queries' order."""
    places: dict[EventTime | None, list[int]] = {}
    for i, query in enumerate(queries):
        places.setdefault(query.asked_at, []).append(i)
    found: dict[int, T] = {}
    for asked_at, where in places.items():
        answers = ask([queries[i] for i in where], asked_at)
        found.update(zip(where, answers, strict=True))
    return [found[i] for i in range(len(queries))]
