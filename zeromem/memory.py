"""Memory: the whole flow, from traces to evidence to an answer, readable from top to bottom."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from zeromem import browsing, importers
from zeromem.asking import Answered, Call, ask, combiner_of, question_vectors
from zeromem.backend import Backend, Device, resolve
from zeromem.config import Config
from zeromem.errors import (
    EncoderError,
    FingerprintMismatchError,
    InvalidInputError,
    StaleReadError,
    StoreError,
    TraceNotFoundError,
)
from zeromem.forks import Lock
from zeromem.index import Arrays
from zeromem.index.features import feature_key
from zeromem.indexer import Indexer, State
from zeromem.ingest.annotate import Annotator, load_annotator
from zeromem.ingest.encode import Encoder, load_encoder
from zeromem.ingest.featurize import Featurizer
from zeromem.inputs import (
    as_moment,
    as_options,
    as_trace,
    as_zone,
    check_several,
    chunked,
)
from zeromem.progress import progress_bar
from zeromem.query.evidence import explanation, rows_needed
from zeromem.query.ranked import Ranked
from zeromem.store import ScopeLog, Store
from zeromem.times import EventTime
from zeromem.types import (
    Added,
    Answer,
    Boundary,
    Explanation,
    Retrieval,
    Role,
    SessionSummary,
    StoredTrace,
    TokenUsage,
    Trace,
    TracePage,
)

if TYPE_CHECKING:
    from zeromem.answer import Reader

_log = logging.getLogger(__name__)
_ANSWER_K = 10
_ATTEMPTS = 10
T = TypeVar("T")
When = str | datetime | EventTime


def open(
    path: str | os.PathLike[str] | None = None,
    *,
    scope: str = "default",
    encoder: str | os.PathLike[str] | Encoder | None = None,
    annotator: str | Annotator | None = None,
    config: Config | None = None,
    device: Device = "auto",
    zone: str | tzinfo | None = None,
    read_only: bool = False,
    reencode: bool = False,
) -> Memory:
    """Open a memory, or create one.

    Parameters
    ----------
    path : path-like, optional
        The store file; it may hold many scopes. None keeps everything in a private temporary file
        that goes when the memory is closed.
    scope : str
        Whose memory: a tenant, a user, an agent. Scopes share no statistics and no result.
    encoder : str, path or Encoder, optional
        A model's name or folder, an endpoint's URL, or an object; by default all-MiniLM-L6-v2 on a
        CPU and BGE-M3 on a GPU. See ``zeromem.ingest.encode.load_encoder``.
    annotator : str or Annotator, optional
        A spaCy pipeline's name, "rules", or an object; by default ``en_core_web_sm``.
    config : Config, optional
    device : {"auto", "cpu", "cuda"}
        Where kernels run.
    zone : str or tzinfo, optional
        Zone of times that are given without one. Without it such a time is refused.
    read_only : bool
    reencode : bool
        Where the memory was encoded by another model: encode it anew instead of raising.

    Raises
    ------
    StoreError, CorruptStoreError, SchemaTooNewError
        The file cannot be opened.
    FingerprintMismatchError
        The memory was encoded by another model.
    DeviceError
        ``device="cuda"`` where there is none.
    """
    backend = resolve(device)
    featurizer = Featurizer(
        load_annotator(annotator),
        load_encoder(encoder, backend.device),
        (config or Config()).ingest,
    )
    zone = as_zone(zone)
    store = Store.open(path, read_only=read_only)
    try:
        log = store.scope(scope)
        claim(log, featurizer.fingerprint, reencode=reencode)
        return Memory(
            store, log, featurizer, config or Config(), backend, zone=zone, read_only=read_only
        )
    except BaseException:
        store.close()
        raise


def claim(log: ScopeLog, fingerprint: str, *, reencode: bool = False) -> None:
    """Hold a memory to the model it was encoded with.

    Raises
    ------
    FingerprintMismatchError
    """
    stored = log.fingerprint()
    if stored is None or stored == fingerprint:
        return
    if not reencode:
        raise FingerprintMismatchError(
            f"scope {log.name!r} was encoded with {stored!r} and is opened with {fingerprint!r}; "
            "open it with the encoder and annotator it was made with, or encode it anew: "
            "zeromem.open(…, reencode=True), or `zeromem reencode` on the command line"
        )
    log.drop_features()
    log.set_fingerprint(fingerprint)


class Appended(NamedTuple):
    """Traces that are stored, and whose features are still to be made."""

    memory: Memory
    added: list[Added]
    traces: list[Trace]
    keys: list[bytes]


class Memory:
    """What one scope remembers. Made by :func:`zeromem.open`; safe to use from many threads.

    Attributes
    ----------
    scope : str
    config : Config
    usage : dict of str to TokenUsage
        LLM tokens by stage since it was opened. Nothing under ingest and retrieval can reach an
        LLM, so theirs cannot move.
    """

    def __init__(
        self,
        store: Store,
        log: ScopeLog,
        featurizer: Featurizer,
        config: Config,
        backend: Backend,
        *,
        zone: tzinfo | None = None,
        read_only: bool = False,
        owns_store: bool = True,
    ) -> None:
        self.scope = log.name
        self.config = config
        self._store = store
        self._owns_store = owns_store
        self._log = log
        self._featurizer = featurizer
        self._backend = backend
        self._zone = zone
        self.usage = {stage: TokenUsage() for stage in ("ingest", "retrieval", "answer")}
        self._meter = Lock()
        self._indexer = Indexer(log, featurizer, config, backend, read_only=read_only)
        # Its evidence has been encoded: questions alone are.
        self._encode = question_vectors(featurizer.encoder)
        self._combiner = combiner_of(featurizer.annotator, featurizer.encoder)
        self._reader: Reader | None = None

    # ---- ingest: traces → log → features

    def add(
        self,
        text: str,
        *,
        id: str | None = None,
        role: Role = "user",
        speaker: str | None = None,
        session: str | None = None,
        time: When | None = None,
        title: str | None = None,
        source: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Added:
        """Remember one trace; it is on disk when this returns. Fields as in :class:`Trace`.

        Raises
        ------
        InvalidInputError
            A value cannot be stored; nothing is.
        DuplicateIdError
            The id is taken by a trace with other content.
        StoreError
            The store cannot be written; nothing was acknowledged.
        """
        given = Trace(
            text, id, role, speaker, session, time,  # type: ignore[arg-type]
            title, source, metadata or {},
        )  # fmt: skip
        return self.add_many([given], progress=False)[0]

    def add_many(
        self,
        traces: Iterable[Trace | Mapping[str, Any] | str],
        *,
        progress: bool | None = None,
    ) -> list[Added]:
        """Remember many traces: the fast way. Each batch is stored whole or not at all.

        Parameters
        ----------
        traces : iterable of Trace, mapping or str
            Mappings have the fields of :class:`Trace`. May be a generator: it is read batch by
            batch.
        progress : bool, optional
            A progress bar on stderr; by default where that is a terminal.

        Returns
        -------
        list of Added
            One for each trace, in order. Those that were there already were not added again, so
            that an interrupted import can simply be run again.

        Raises
        ------
        InvalidInputError, DuplicateIdError
            Naming the trace by its place; earlier batches are stored, its own is not.
        """
        check_several("traces", traces, "add takes one")
        done: list[Added] = []
        with progress_bar(traces, "remembering", progress) as bar:
            self._indexer.featurize(self._stored(bar, done), bar.stage)
        return done

    def _stored(
        self, traces: Iterable[Any], done: list[Added]
    ) -> Iterator[tuple[list[Trace], list[bytes]]]:
        """Store batch after batch: each is durable when it comes out, with its feature keys."""
        for start, batch in chunked(traces, self.config.ingest.batch_traces):
            stored = self._append(batch, start)
            done += stored.added
            yield stored.traces, stored.keys

    def append(self, traces: Iterable[Trace | Mapping[str, Any] | str]) -> Appended:
        """Remember traces, all or none, and derive nothing yet: for servers.

        They are on disk when this returns, and found by the next question. Whoever asks it waits
        until their features are made, unless :func:`featurize` has made them, which does so for
        many memories at once.

        Raises
        ------
        InvalidInputError, DuplicateIdError, StoreError
            Nothing is stored.
        """
        check_several("traces", traces, "add takes one")
        return self._append(list(traces), 0)

    def _append(self, batch: Sequence[Any], start: int) -> Appended:
        checked = [as_trace(t, start + i, self._zone) for i, t in enumerate(batch)]
        keys = [feature_key(t) for t in checked]
        added = self._log.append(checked, keys=keys)
        try:
            if checked and self._log.fingerprint() is None:
                self._log.set_fingerprint(self._featurizer.fingerprint)
        except StoreError as error:  # the next batch tries again
            _log.warning("the encoder's name is not written down yet: %s", error)
        return Appended(self, added, checked, keys)

    # ---- retrieve: question → evidence

    def warm_encoder(self) -> None:
        """Load the encoder's weights now, where it can; otherwise they load with its first text."""
        warm = getattr(self._featurizer.encoder, "warm", None)
        if warm is not None and self._log.version().last_lsn:
            with suppress(EncoderError):  # whoever needs a vector is told
                warm()

    def retrieve(
        self,
        question: str,
        *,
        k: int | None = None,
        token_budget: int | None = None,
        view: str | None = None,
        closure: bool = True,
        calibration: bool = True,
        echoes: bool = True,
        sessions: Iterable[str] | str | None = None,
        speakers: Iterable[str] | str | None = None,
        sources: Iterable[str] | str | None = None,
        roles: Iterable[Role] | Role | None = None,
        after: When | None = None,
        before: When | None = None,
        as_of: datetime | str | int | None = None,
        reference_time: When | None = None,
    ) -> Retrieval:
        """Find the evidence for a question, R(q) of eq. 15, best first.

        Parameters
        ----------
        question : str
        k : int, optional
            Most main items |M(q)|; closure adds bounded support to them. By default 5, or with a
            token budget as many as may fit it.
        token_budget : int, optional
            Most encoder tokens of all evidence.
        view : {"graph", "hierarchy"}, optional
            One view alone.
        closure, calibration : bool
            Whether those stages run.
        echoes : bool
            Whether turns that ask the very same, word for word, may be evidence.
        sessions, speakers, sources, roles, after, before, as_of
            The boundary: see :class:`Boundary`. One value or several.
        reference_time : str, datetime or EventTime, optional
            When the question is asked: "last week" in it resolves against this.

        Raises
        ------
        InvalidInputError
        """
        return self.retrieve_batch(
            [question], k=k, token_budget=token_budget, view=view, closure=closure,
            calibration=calibration, echoes=echoes, sessions=sessions, speakers=speakers,
            sources=sources, roles=roles, after=after, before=before, as_of=as_of,
            reference_time=reference_time,
        )[0]  # fmt: skip

    def retrieve_batch(self, questions: Sequence[str], **options: Any) -> list[Retrieval]:
        """Find the evidence for many questions at once; each gets what it would get alone.

        Parameters
        ----------
        questions : sequence of str
        **options
            Those of :meth:`retrieve`, for all questions alike.
        """
        check_several("questions", questions, "retrieve takes one")
        return [answered.retrieval for answered in self._ask(questions, options)]

    def explain(self, question: str, **options: Any) -> Explanation:
        """Say how the evidence for a question came about, and what was left out, and why.

        Parameters
        ----------
        question : str
        **options
            Those of :meth:`retrieve`.
        """
        (found,) = self._ask([question], options, filtered=True)
        return explanation(found.ranked, found.retrieval, found.state.index.arrays, found.stored)

    def _ask(
        self, questions: Sequence[str], given: Mapping[str, Any], *, filtered: bool = False
    ) -> list[Answered]:
        return ask([Call.of(self, questions, given, filtered=filtered)])[0]

    def _state(self, boundary: Boundary) -> State:
        if boundary.as_of is None:
            return self._indexer.current()
        return self._indexer.as_of(boundary.as_of)

    def _arrays(self) -> Arrays:
        return self._indexer.current().index.arrays

    def _read(
        self, found: Sequence[Ranked], state: State, *, filtered: bool
    ) -> dict[int, StoredTrace]:
        arrays = state.index.arrays
        wanted = {lsn for r in found for lsn in rows_needed(r, arrays)}
        if filtered:
            wanted |= {int(arrays.turns.lsn[i.row]) for r in found for i in r.left_out}
        return {s.lsn: s for s in self._log.read(sorted(wanted), expect=state.version)}

    # ---- answer: question → evidence → reader → calibrated answer

    def answer(self, question: str, *, reader: Reader | None = None, **options: Any) -> Answer:
        """Answer a question from its evidence, with citations.

        Parameters
        ----------
        question : str
        reader : Reader, optional
            The only stage that may spend LLM tokens; by default the extractive one, which has no
            LLM. See ``zeromem.readers``.
        **options
            Those of :meth:`retrieve`; ``k`` is 10 by default, where the paper's answers are best,
            and ``echoes`` False: who asked the same before did not know either.

        Raises
        ------
        ReaderError
            The reader could not be reached.
        """
        # Loaded when it is first asked for: who only retrieves needs no reader.
        from zeromem.answer import Reader, answer_from

        if reader is not None and not isinstance(reader, Reader):
            raise InvalidInputError(f"reader must have a method read, got {reader!r}")
        if options.get("token_budget") is None:
            options.setdefault("k", _ANSWER_K)
        options.setdefault("echoes", False)
        retrieval = self.retrieve(question, **options)
        answer = answer_from(
            question,
            retrieval,
            reader or self.reader,
        )
        with self._meter:
            self.usage["answer"] += answer.usage
        return answer

    @property
    def reader(self) -> Reader:
        """The reader that answers where none is given: it quotes, without any LLM."""
        from zeromem.answer import readers
        from zeromem.senses import Stored

        if self._reader is None:
            # Its evidence has been encoded: questions alone are.
            self._reader = readers.extractive(encode=Stored(self._encode, self._arrays))
        return self._reader

    # ---- the log

    def get(self, ids: Iterable[str]) -> dict[str, Trace]:
        """Return traces by id; ids that are not there are left out."""
        check_several("ids", ids, "one goes into a list")
        wanted = list(ids)

        def read() -> dict[str, Trace]:
            found = self._log.find(wanted)
            stored = {s.lsn: s.trace for s in self._log.read(found.values())}
            return {name: stored[lsn] for name, lsn in found.items()}

        return self._steady(read)

    def traces(
        self,
        *,
        order: browsing.Order = "log",
        descending: bool = False,
        limit: int = 100,
        cursor: str | None = None,
        sessions: Iterable[str | None] | str | None = None,
        speakers: Iterable[str] | str | None = None,
        sources: Iterable[str] | str | None = None,
        roles: Iterable[Role] | Role | None = None,
        after: When | None = None,
        before: When | None = None,
    ) -> TracePage:
        """List traces page by page, as they were added or as they happened.

        Parameters
        ----------
        order : {"log", "time"}
            In time, traces without one come last; ties are in the order of the log.
        descending : bool
        limit : int
            Traces of a page, at most 10,000.
        cursor : str, optional
            Of the page before. What is added meanwhile appears where it belongs in the order.
        sessions, speakers, sources, roles, after, before
            As for :meth:`retrieve`; None among the sessions stands for the unnamed one.

        Raises
        ------
        InvalidInputError
        """
        browsing.check_page(order, descending, limit)
        place = browsing.Place.parse(cursor, order, descending=descending)
        named, unnamed = browsing.split_sessions(sessions)
        limits = {
            "sessions": named, "speakers": speakers, "sources": sources, "roles": roles,
            "after": after, "before": before,
        }  # fmt: skip
        _, boundary, _ = as_options(limits, self._zone)

        def read() -> TracePage:
            state = self._indexer.current()
            lsns, end = browsing.page(
                state.index.arrays, boundary, unnamed=unnamed, order=order, descending=descending,
                limit=limit, after=place,
            )  # fmt: skip
            found = self._log.read(lsns, expect=state.version)
            return TracePage(tuple(found), end.text() if end else None)

        return self._steady(read)

    def around(self, id: str, *, before: int = 3, after: int = 3) -> list[StoredTrace]:
        """Return a trace with those before and after it in its session, in the order of the log.

        Raises
        ------
        TraceNotFoundError
            There is no trace with this id.
        """
        browsing.check_count("before", before, 0)
        browsing.check_count("after", after, 0)

        def read() -> list[StoredTrace]:
            state = self._indexer.current()
            lsn = self._log.find([id]).get(id)
            if lsn is None or lsn > state.index.last_lsn:
                raise TraceNotFoundError(
                    f"no trace has the id {id!r}; search, or list traces, to learn ids"
                )
            lsns = browsing.neighbours(state.index.arrays, lsn, before, after)
            return self._log.read(lsns, expect=state.version)

        return self._steady(read)

    def sessions(self) -> list[SessionSummary]:
        """List sessions in order of first appearance; documents that name none are left out."""
        return browsing.sessions(self._indexer.current().index.arrays)

    def _steady(self, read: Callable[[], T]) -> T:
        """Read again where something was forgotten in between."""
        for _ in range(_ATTEMPTS):
            try:
                return read()
            except StaleReadError:
                continue
        raise StaleReadError(
            f"scope {self.scope!r} was changed by others in each of {_ATTEMPTS} attempts to read "
            "it; ask again"
        )

    def forget(
        self,
        ids: Iterable[str] | str | None = None,
        *,
        session: str | None = None,
        speaker: str | None = None,
        source: str | None = None,
        after: When | None = None,
        before: When | None = None,
        everything: bool = False,
    ) -> int:
        """Delete traces and all that was derived from them, for good; done when this returns.

        Conditions narrow each other. A speaker is meant in whatever form the name was written, as
        in a boundary; the rest compares exactly. Backups are outside it.

        Returns
        -------
        int
            How many traces were deleted.

        Raises
        ------
        InvalidInputError
            No condition is given.
        """
        if ids is not None and not isinstance(ids, str):
            check_several("ids", ids, "give one as a str")
        given = (ids, session, speaker, source, after, before)
        if not everything and all(one is None for one in given):
            raise InvalidInputError(
                "forget needs a condition (ids, session, speaker, source, after, before), or "
                "everything=True for the whole scope; got neither"
            )
        lsns = self._log.select(
            ids=[ids] if isinstance(ids, str) else ids,
            sessions=None if session is None else [session],
            speakers=None if speaker is None else self._log.spellings(speaker),
            sources=None if source is None else [source],
            after=as_moment(after, self._zone, "after"),
            before=as_moment(before, self._zone, "before"),
            everything=everything,
        )
        n = self._log.forget(lsns)
        self._indexer.forgotten()
        return n

    def export(self) -> Iterator[StoredTrace]:
        """Yield every trace in the order of the log, word for word.

        ``zeromem.importers.to_json_line(stored.trace)`` writes a line that :meth:`import_` reads.
        """
        return self._log.export()

    def import_(
        self,
        path: str | os.PathLike[str],
        *,
        format: importers.Format | None = None,
        conversation: str | None = None,
        progress: bool | None = None,
    ) -> list[Added]:
        """Remember a file: our JSON Lines, LoCoMo, BEAM, LongMemEval or a plain chat export.

        Parameters
        ----------
        path : path-like
        format : {"jsonl", "locomo", "beam", "longmemeval", "chat"}, optional
            Told from the content by default.
        conversation : str, optional
            Which one of a file that holds several.
        progress : bool, optional
            As for :meth:`add_many`.

        Raises
        ------
        ImportFormatError
            Naming the record and the field. The records before it in earlier batches are stored.
        """
        if not isinstance(path, str | os.PathLike):
            raise InvalidInputError(f"path must be a file's path, got {path!r}")
        traces = importers.load(path, format, conversation=conversation, zone=self._zone)
        return self.add_many(traces, progress=progress)

    def stats(self) -> dict[str, Any]:
        """Count traces, turns, entities, bytes, pending traces; name the models and the device."""
        state = self._indexer.current()
        arrays = state.index.arrays
        return {
            "scope": self.scope,
            **self._log.stats(),
            "turns": len(arrays),
            "sessions": len(arrays.turns.sessions),
            "episodes": int((arrays.episode_of == np.arange(len(arrays))).sum()),
            "sentences": len(arrays.turns.sentence_span),
            "entities": len(arrays.turns.entities),
            "tokens": int(arrays.turns.n_tokens.sum()),
            "dim": state.index.dim,
            "device": self._backend.device,
            "llm_usage": self.usage,
        }

    @property
    def n_bytes(self) -> int:
        """Bytes that its index takes, those mapped from its snapshot included."""
        return self._indexer.n_bytes

    def close(self) -> None:
        """Save the index beside the log, and close the store unless others share it."""
        self._indexer.save()
        self._reader = None  # it leads back here: nothing but a collection would free the arrays
        if self._owns_store:
            self._store.close()

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Memory(scope={self.scope!r}, store={str(self._store.path or ':memory:')!r})"


def retrieve_batch(asked: Sequence[tuple[Memory, str]], **options: Any) -> list[Retrieval]:
    """Ask many memories at once: questions of one memory are answered as one batch.

    Parameters
    ----------
    asked : sequence of (Memory, question)
    **options
        Those of :meth:`Memory.retrieve`, for all alike.

    Returns
    -------
    list of Retrieval
        In the order of ``asked``.
    """
    check_several("asked", asked, "it takes (memory, question) pairs")
    for i, pair in enumerate(asked):
        if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], Memory)):
            raise InvalidInputError(f"asked[{i}] must be a (memory, question) pair, got {pair!r}")
    places: dict[int, list[int]] = {}
    for i, (memory, _) in enumerate(asked):
        places.setdefault(id(memory), []).append(i)
    calls = [
        Call.of(asked[own[0]][0], [asked[i][1] for i in own], options) for own in places.values()
    ]
    found: dict[int, Retrieval] = {}
    for own, answered in zip(places.values(), ask(calls), strict=True):
        found.update((i, one.retrieval) for i, one in zip(own, answered, strict=True))
    return [found[i] for i in range(len(asked))]


def featurize(stored: Sequence[Appended]) -> None:
    """Make the features of what was appended to memories of one store, by one call of the models.

    Where a model fails, the traces stay pending and are tried again by whoever asks.

    Parameters
    ----------
    stored : sequence of Appended
        Of memories with the same models.
    """
    if stored:
        work = [(one.memory._indexer, one.traces, one.keys) for one in stored]
        work[0][0].featurize_others(work)
