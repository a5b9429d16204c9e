"""zeromem's own methods, through its public interface alone."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.data import Memory
from harness.methods import DEPTH, Outcome, Ranking, first_distinct
from zeromem.ingest.encode import Encoder
from zeromem.types import Retrieval

# What each ablation leaves out.
VARIANTS: dict[str, dict[str, Any]] = {
    "zeromem": {},
    "zeromem-paper": {"paper": True},
    "graph": {"view": "graph"},
    "hierarchy": {"view": "hierarchy"},
    "no-closure": {"closure": False},
    "no-calibration": {"calibration": False},
}
_WIDEST = 8 * DEPTH


class OpenMemories:
    """The memory in use under each configuration, so that methods share one ingest.

    Parameters
    ----------
    store : Path
        The store file.
    encoder : Encoder
    device : str
    """

    def __init__(self, store: Path, encoder: Encoder, device: str) -> None:
        self._store = store
        self._encoder = encoder
        self._device = device
        self._memory: Memory | None = None
        self._open: dict[str, Any] = {}

    def get(self, memory: Memory, *, paper: bool) -> tuple[Any, float]:
        """Open and fill a memory, once.

        Returns
        -------
        handle : zeromem.Memory
        seconds : float
            That this took; 0 where it was open.
        """
        if self._memory is not memory:
            self.close()
            self._memory = memory
        label = "paper" if paper else "default"
        if label in self._open:
            return self._open[label], 0.0
        import zeromem

        start = time.perf_counter()
        handle = zeromem.open(
            self._store,
            scope=f"{label}/{memory.name}",
            encoder=self._encoder,
            config=zeromem.Config.paper() if paper else zeromem.Config(),
            device=self._device,
        )
        self._open[label] = handle
        handle.add_many(memory.traces)
        handle.stats()  # the index is made on first use, which belongs to ingest and not to a query
        return handle, time.perf_counter() - start

    def close(self) -> None:
        """Close what is open; a context made for one question is forgotten."""
        for handle in self._open.values():
            if self._memory is not None and self._memory.ephemeral:
                handle.forget(everything=True)
            handle.close()
        self._open = {}
        self._memory = None


class ZeroMem:
    """One variant as a method.

    Parameters
    ----------
    name : str
        Key of ``VARIANTS``.
    memories : OpenMemories
    token_budget : int
        Of R(q).
    k : int, optional
        Main items behind R(q); by default as many as fit the budget, for every variant alike.
    paper : bool
        Whether every variant runs with ``Config.paper()``.
    """

    def __init__(
        self,
        name: str,
        memories: OpenMemories,
        token_budget: int,
        *,
        k: int | None = None,
        paper: bool = False,
    ) -> None:
        self.name = name
        self._options = dict(VARIANTS[name])
        self._paper = self._options.pop("paper", paper)
        self._evidence_k = k
        self._memories = memories
        self._budget = token_budget

    def rank(self, memory: Memory, questions: Sequence[str]) -> Outcome:
        """Ask all questions in one batch; only the main retrieval is timed."""
        handle, ingest_seconds = self._memories.get(memory, paper=self._paper)
        start = time.perf_counter()
        found = handle.retrieve_batch(questions, k=DEPTH, **self._options)
        query_seconds = time.perf_counter() - start
        mains = self._distinct(handle, questions, found)
        evidence = handle.retrieve_batch(
            questions, k=self._evidence_k, token_budget=self._budget, **self._options
        )
        rankings = tuple(
            Ranking(main, tuple((item.id, item.n_tokens) for item in items))
            for main, items in zip(mains, evidence, strict=True)
        )
        return Outcome(rankings, ingest_seconds, query_seconds)

    def _distinct(
        self, handle: Any, questions: Sequence[str], found: list[Retrieval]
    ) -> list[tuple[str, ...]]:
        """Read on down the list where pieces of one trace fill places of the first ``DEPTH``."""
        mains = [first_distinct(e.id for e in r.main) for r in found]
        k = DEPTH
        while k < _WIDEST:
            short = [i for i, r in enumerate(found) if len(mains[i]) < DEPTH and len(r.main) >= k]
            if not short:
                break
            k *= 2
            again = handle.retrieve_batch([questions[i] for i in short], k=k, **self._options)
            for i, retrieval in zip(short, again, strict=True):
                found[i] = retrieval
                mains[i] = first_distinct(e.id for e in retrieval.main)
        return mains

    def share(self, memory: Memory) -> float:
        """Add the memory, so that others find its features."""
        return self._memories.get(memory, paper=self._paper)[1]

    def close(self) -> None:
        """Close the memories; the variants share them."""
        self._memories.close()
