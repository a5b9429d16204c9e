"""zeromem's own methods, through its public interface alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

import zeromem
from zeromem.config import Config
from zeromem.evaluation.methods.asked import Asked, AskedAnnotator, AskedEncoder
from zeromem.evaluation.methods.base import first_distinct
from zeromem.evaluation.methods.features import scope_name
from zeromem.evaluation.types import DEPTH, Budget, Found, History, Query
from zeromem.index import Index
from zeromem.ingest.annotate import Annotator, load_annotator
from zeromem.ingest.encode import Encoder
from zeromem.ingest.featurize import Featurizer
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
    config : callable, optional
        Changes the run's configuration.
    calibrates : bool
        Whether answers are calibrated (eq. 16).
    blind : bool
        Whether questions have no vector.
    """

    options: Mapping[str, Any] = field(default_factory=dict)
    config: Callable[[Config], Config] | None = None
    calibrates: bool = True
    blind: bool = False


def without_words(config: Config) -> Config:
    """Switch every lexical signal off: BM25 of all levels, phrases, and what contains them.

    ``episode_best`` sums dense and lexical scores in one signal, so it goes with them. Names of
    speakers and titles stay: they are metadata, in both channels.
    """
    no_words = {
        "turn_lexical": 0.0,
        "window_lexical": 0.0,
        "episode_lexical": 0.0,
        "episode_best": 0.0,
        "phrase": 0.0,
    }
    return replace(
        config,
        graph=replace(
            config.graph, lexical_prior=0.0, refine=replace(config.graph.refine, **no_words)
        ),
        hierarchy=replace(config.hierarchy, score=replace(config.hierarchy.score, **no_words)),
    )


VARIANTS = {
    "zeromem": Variant(),
    "zeromem-paper": Variant(config=lambda _: Config.paper()),
    "graph": Variant({"view": "graph"}),
    "hierarchy": Variant({"view": "hierarchy"}),
    "no-closure": Variant({"closure": False}),
    # Neither eq. 15's calibration of evidence nor eq. 16's of answers.
    "no-calibration": Variant({"calibration": False}, calibrates=False),
    "embedding+lexical": Variant(),
    "embedding": Variant(config=without_words),
    "lexical": Variant(blind=True),
}


class Blind:
    """An encoder that reads traces and gives questions no vector: every turn is alike to them.

    Parameters
    ----------
    encoder : Encoder
        The run's, whose features are read from the store.
    """

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self.fingerprint = encoder.fingerprint
        self.dim = encoder.dim
        self.encode_spans = encoder.encode_spans

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return zeros."""
        return np.zeros((len(texts), self.dim), np.float32)


class OpenMemories:
    """The memory in use under each configuration, so that methods share one ingest.

    Parameters
    ----------
    store : Path, optional
        The store file; without one a temporary one, removed on :meth:`close`.
    encoder : Encoder
    device : {"cpu", "cuda"}
    annotator : Annotator, optional
    asked : Asked, optional
        Keeps vectors and names of questions; by default in memory.

    Attributes
    ----------
    annotator : AskedAnnotator
    """

    def __init__(
        self,
        store: Path | None,
        encoder: Encoder,
        device: Any,
        annotator: Annotator | None = None,
        asked: Asked | None = None,
    ) -> None:
        asked = asked or Asked()
        self._asked = asked
        self._store = store
        self._encoder = AskedEncoder(encoder, asked)
        self._device = device
        self.annotator = AskedAnnotator(annotator or load_annotator(None), asked)
        self._folder: TemporaryDirectory[str] | None = None
        self._history: History | None = None
        self._open: dict[tuple[Config, bool], zeromem.Memory] = {}
        self._lsn: list[int] = []

    def get(
        self, history: History, config: Config | None = None, *, blind: bool = False
    ) -> zeromem.Memory:
        """Open and fill a history's memory, once per configuration.

        Parameters
        ----------
        history : History
        config : Config, optional
        blind : bool
            Whether questions have no vector.
        """
        config = config or Config()
        if self._history is not history:
            self.leave()
            self._history = history
        if (config, blind) not in self._open:
            if blind:
                self.get(history, config)  # fills it; the blind one only reads
            self._open[config, blind] = self._filled(history, config, blind=blind)
        return self._open[config, blind]

    def _filled(self, history: History, config: Config, *, blind: bool) -> zeromem.Memory:
        """Open a memory and take the history in; one that fails is not left half-filled."""
        handle = zeromem.open(
            self._place(),
            scope=self._scope(history, config),
            encoder=Blind(self._encoder) if blind else self._encoder,
            annotator=self.annotator,
            config=config,
            device=self._device,
            read_only=blind,
        )
        self._encoder.asking = self.annotator.asking = False
        try:
            if not blind:
                self._lsn = [added.lsn for added in handle.add_many(history.traces)]
            handle.stats()  # the index is made on first use: that is ingest and no query's time
        except BaseException:
            handle.close()
            raise
        finally:
            self._encoder.asking = self.annotator.asking = True
        return handle

    def check(self) -> None:
        """Raise what the encoder raised, as the engine then answered by words alone."""
        error, self._encoder.error = self._encoder.error, None
        if error is not None:
            raise error

    def index(self, history: History) -> tuple[Index, list[int]]:
        """Return the engine's index of a history, and where its log holds each trace."""
        state = self.get(history)._indexer.current()  # read, never changed
        return state.index, self._lsn

    def _scope(self, history: History, config: Config) -> str:
        """Name a scope by content and models: another encoder's features are not its own."""
        made_by = Featurizer(self.annotator, self._encoder, config.ingest).fingerprint
        digest = blake2b(made_by.encode(), digest_size=8).hexdigest()
        return f"{scope_name(history)}/{digest}"

    def _place(self) -> Path:
        if self._store is not None:
            return self._store
        if self._folder is None:
            self._folder = TemporaryDirectory(prefix="zeromem-evaluation-")
        return Path(self._folder.name, "memories.zm")

    def leave(self) -> None:
        """Close what is open; a context made for one question is forgotten."""
        for (_, blind), handle in self._open.items():
            if self._history is not None and self._history.ephemeral and not blind:
                handle.forget(everything=True)
            handle.close()
        self._open = {}
        self._history = None

    def close(self) -> None:
        """Close what is open and remove the temporary store."""
        self.leave()
        self._asked.close()
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
        self._blind = variant.blind
        run = Config.paper() if paper else Config()
        self._config = variant.config(run) if variant.config else run
        self._memories = memories
        self._handle: zeromem.Memory | None = None

    def index(self, history: History) -> None:
        """Remember the history; variants of one configuration share the memory."""
        self._handle = self._memories.get(history, self._config, blind=self._blind)

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
        found = self._handle.retrieve_batch(texts, **options, **self._options)
        self._memories.check()
        return found

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
