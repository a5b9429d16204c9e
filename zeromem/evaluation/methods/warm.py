"""A first run of methods over a throw-away history, so that no clock counts compilation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zeromem.evaluation.methods import make
from zeromem.evaluation.types import Budget, History, Query
from zeromem.ingest.encode import Encoder
from zeromem.times import EventTime
from zeromem.types import Trace

_SAID = (
    ("Ada", "one", "I moved to Lisbon with Boris on 3 May 2023."),
    ("Boris", "one", "Lisbon was sunny, and we met Clara at the harbour."),
    ("Ada", "two", "Clara has painted the harbour of Lisbon since then."),
    ("Boris", "two", "Last week she sold a painting to Ada."),
)
_QUERIES = (
    Query("When did Ada move to Lisbon?"),
    Query("Who painted the harbour after Boris met Clara?", EventTime.parse("2023-06-01")),
)


def warm(
    names: Sequence[str],
    *,
    encoder: Encoder,
    device: Any = "cpu",
    paper: bool = False,
    budget: Budget | None = None,
) -> None:
    """Run methods once over four turns and two questions, with features that nobody keeps.

    Kernels are compiled and models loaded on first use, once per process: that is no method's
    memory construction. A method that fails here does so without a word; it will fail again
    where failures are counted.

    Parameters
    ----------
    names : sequence of str
        As for :func:`zeromem.evaluation.methods.make`; methods of their own are made, run and
        closed.
    encoder, device, paper
        Those of the run.
    budget : Budget, optional

    Raises
    ------
    InvalidInputError
        Where a name is no method's.
    """
    traces = tuple(
        Trace(
            text,
            id=f"w{i}",
            speaker=speaker,
            session=session,
            time=EventTime.parse(f"2023-05-{10 + i}"),
        )
        for i, (speaker, session, text) in enumerate(_SAID)
    )
    history = History("warm", traces)
    made = make(names, encoder=encoder, device=device, paper=paper)
    try:
        for method in made:
            try:
                method.index(history)
                method.rank(_QUERIES)
                method.find(_QUERIES, budget or Budget())
            except Exception:
                continue
    finally:
        for method in made:
            method.close()
