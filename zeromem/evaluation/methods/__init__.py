"""Retrieval methods side by side: each indexes a history and finds evidence for queries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from zeromem.errors import InvalidInputError
from zeromem.evaluation.methods import own
from zeromem.evaluation.methods.asked import Asked
from zeromem.evaluation.methods.chunks import Chunks
from zeromem.evaluation.methods.features import FeatureBank, open_bank
from zeromem.evaluation.methods.grep import Grep
from zeromem.evaluation.methods.linear_rag import LinearRag
from zeromem.evaluation.methods.long_context import LongContext
from zeromem.evaluation.methods.pagerank import IgraphPageRank
from zeromem.evaluation.methods.plain import SCORERS, Baseline
from zeromem.evaluation.methods.zero_mem import VARIANTS, OpenMemories, ZeroMem
from zeromem.evaluation.types import Method
from zeromem.ingest.annotate import Annotator, load_annotator
from zeromem.ingest.encode import Encoder

DESCRIPTIONS: dict[str, str] = {
    "zeromem": "both views, fused, closed and calibrated",
    "zeromem-paper": "the same with Config.paper(): eq. 3-15 to the letter",
    "graph": "zeromem's relational view alone",
    "hierarchy": "zeromem's local view alone",
    "no-closure": "zeromem without eq. 14",
    "no-calibration": "zeromem without eq. 15's calibration and eq. 16's",
    "embedding+lexical": "zeromem, as a row of the table of channels",
    "embedding": "zeromem without its lexical signals",
    "lexical": "zeromem with questions that have no vector",
    "grep": "the question's words over raw text, the most words first, then the latest",
    "bm25": "BM25 over turns",
    "dense": "cosine over turns",
    "bm25+dense": "both, min-max normalised, summed",
    "bm25+dense+windows": "the same four over turns and three-turn windows",
    "bm25+dense+user": "bm25+dense and a bonus for what the user said",
    "hybrid": "bm25+dense+windows and a bonus for the one speaker that the question names",
    "rag": "2,048-token chunks, the top five by cosine, read whole",
    "long-llm": "no retrieval: the reader reads everything in windows of 8,192 tokens",
    "linear-rag": "entity activation and PageRank after LinearRAG's published equations",
    "igraph-ppr": "zeromem's graph and reset vector, walked by python-igraph",
}
NAMES: tuple[str, ...] = tuple(DESCRIPTIONS)

_OVER_TURNS: dict[str, Callable[[FeatureBank], Method]] = {
    "grep": Grep,
    "rag": Chunks,
    "long-llm": LongContext,
}
_NAMING = (LinearRag.name, IgraphPageRank.name)


def describe() -> dict[str, str]:
    """Return each method's name and what it does, in one line."""
    return dict(DESCRIPTIONS)


def check(names: Sequence[str]) -> None:
    """Refuse names of no method, and classes that lack a part of the protocol.

    Raises
    ------
    InvalidInputError
    """
    if not names:
        raise InvalidInputError(f"methods must name at least one of {', '.join(NAMES)}")
    for name in names:
        if name not in NAMES and ":" not in name:
            raise InvalidInputError(
                f"a method must be one of {', '.join(NAMES)}, or file.py:Class or module:Class, "
                f"got {name!r}"
            )
        if name not in NAMES:
            own.load(name)


def make(
    names: Sequence[str],
    *,
    encoder: Encoder,
    store: Path | None = None,
    device: Any = "cpu",
    paper: bool = False,
    annotator: str | Annotator | None = None,
) -> list[Method]:
    """Make methods that share one encoder, one set of features and one ingest.

    Parameters
    ----------
    names : sequence of str
        Of ``NAMES``, or of the user's own as ``file.py:Class`` or ``module:Class``.
    encoder : Encoder
    store : Path, optional
        A store that keeps features for later runs; vectors and names of questions are kept in a
        file beside it.
    device : {"cpu", "cuda"}
    paper : bool
        Whether zeromem's variants run with ``Config.paper()``.
    annotator : str or Annotator, optional
        What finds names for zeromem and whatever else has a graph; by default spaCy's.

    Raises
    ------
    InvalidInputError
        Where a name is no method's, or a method of the user's own lacks a part of the protocol or
        has a name that is empty or another's.
    """
    check(names)
    named_by = load_annotator(annotator)
    if store is None or not store.exists():
        # Models load on first use, which is nobody's memory construction. What a store keeps may
        # need none.
        encoder.encode(["warm"])
        if any(name in VARIANTS or name in _NAMING for name in names):
            named_by.annotate(["Warm."])
    asked = Asked(None if store is None else store.with_name(f"{store.name}.asked"))
    memories = OpenMemories(store, encoder, device, named_by, asked)
    bank = open_bank(encoder, store, asked)

    def one(name: str) -> Method:
        if name in SCORERS:
            return Baseline(name, bank)
        if name in VARIANTS:
            return ZeroMem(name, memories, paper=paper)
        if name in _OVER_TURNS:
            return _OVER_TURNS[name](bank)
        if name == LinearRag.name:
            return LinearRag(bank, annotator=named_by, names=memories.annotator)
        if name == IgraphPageRank.name:
            return IgraphPageRank(bank, memories)
        return own.make(name, bank)

    given = list(dict.fromkeys(names))
    made: list[Method] = []
    try:
        for name in given:
            made.append(one(name))
        own.distinct(given, made, NAMES)
    except BaseException:
        memories.close()
        bank.close()
        raise
    return made
