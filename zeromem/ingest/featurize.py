"""Traces to features: annotate, divide, encode, assemble."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from zeromem.config import IngestConfig
from zeromem.errors import EncoderError
from zeromem.forks import Lock
from zeromem.index.features import (
    ASKS,
    FEATURES_VERSION,
    HAS_NUMBER,
    HAS_TIME,
    INSTRUCTS,
    PREFERS,
    Float16,
    Int32,
    TraceFeatures,
    feature_key,
)
from zeromem.ingest.ahead import Ahead, Annotating
from zeromem.ingest.annotate import MAX_NAME, Annotation, Annotator
from zeromem.ingest.encode import Encoder
from zeromem.ingest.encoders.base import Float32, check_vectors, sums_of_tokens, unit
from zeromem.ingest.standing import instructs_reader, states_preference
from zeromem.ingest.turns import Layout, layout, rule_sentences
from zeromem.text import canonical, terms, word_spans
from zeromem.types import Trace

Progress = Callable[[str, int, int], None]

__all__ = ["Featurizer", "Progress", "encoder_prefix", "feature_key"]

# Names in one call of the encoder, between two of which progress moves.
_NAMES = 2048
# Names whose vectors are kept for the traces that come: 6 MB at 384 dimensions.
_KEPT_NAMES = 8192
# A question mark at the end, emoji and closing quotes aside.
_QUESTION = re.compile(r"[?\uff1f\u061f][^\w?]*$")
# A sign that a turn tells a time; what time it is, the answer stage works out.
_TIME = re.compile(
    r"\b(?:today|tonight|tomorrow|yesterday|ago|(?:last|next|this|past|coming|every)\s+(?:\w+\s+)?"
    r"(?:night|morning|evening|day|week|weekend|month|year|spring|summer|autumn|fall|winter)s?"
    r"|(?:mon|tues|wednes|thurs|fri|satur|sun)days?"
    r"|jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|june?|july?|aug(?:ust)?"
    r"|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?"
    r"|(?:19|20)\d\d|\d{1,2}:\d\d|\d{1,2}\s?[ap]m)\b",
    re.IGNORECASE,
)
_NUMBER = re.compile(
    r"\d|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|thirty|forty"
    r"|fifty|hundred|thousand|dozen|twice|once|couple)\b",
    re.IGNORECASE,
)
_PARENTHESIS = (" (", ")")


def encoder_prefix(trace: Trace) -> str:
    """Return what an encoder reads before a turn's own text: its title.

    Not its speaker: a name before each of a speaker's turns makes them all alike, and who speaks
    is matched by the views as what it is (measured on LoCoMo: recall@5 +0.9 without it).
    """
    return f"{trace.title}\n" if trace.title else ""


class Featurizer:
    """Everything that is derived from a trace, in batches.

    Parameters
    ----------
    annotator : Annotator
    encoder : Encoder
    config : IngestConfig
    """

    def __init__(
        self, annotator: Annotator, encoder: Encoder, config: IngestConfig | None = None
    ) -> None:
        self.annotator = annotator
        self.encoder = encoder
        self.config = config or IngestConfig()
        self._names: OrderedDict[str, Float16] = OrderedDict()
        self._names_lock = Lock()

    @property
    def fingerprint(self) -> str:
        """Names all that features depend on beside the trace itself."""
        return (
            f"{self.annotator.fingerprint}|{self.encoder.fingerprint}|v{FEATURES_VERSION}"
            f"|{self.config.max_turn_words}"
        )

    def featurize(
        self,
        traces: Sequence[Trace],
        *,
        known: Mapping[str, Float16] | None = None,
        progress: Progress | None = None,
    ) -> list[TraceFeatures]:
        """Derive the features of each trace; equal traces share one object.

        Parameters
        ----------
        traces : sequence of Trace
        known : mapping, optional
            Canonical entity names to their (dim,) vectors: these are not encoded again.
        progress : callable, optional
            Called with the stage ("annotate", "encode", "entities"), items done and items in all.

        Raises
        ------
        EncoderError
            Where the encoder fails or returns something unusable; nothing is kept then.
        """
        with Ahead(self.annotator) as ahead:
            return self.finish(self.begin(traces, ahead), known=known, progress=progress)

    def begin(self, traces: Sequence[Trace], ahead: Ahead) -> Begun:
        """Begin to annotate traces.

        Parameters
        ----------
        traces : sequence of Trace
        ahead : Ahead
            Of this annotator.
        """
        keys = [feature_key(t) for t in traces]
        unique = dict(zip(keys, traces, strict=True))
        return Begun(keys, list(unique), ahead.begin(list(unique.values())))

    def finish(
        self,
        begun: Begun,
        *,
        known: Mapping[str, Float16] | None = None,
        progress: Progress | None = None,
    ) -> list[TraceFeatures]:
        """Derive the features of what was begun; as :meth:`featurize`."""
        report = progress or _silent
        drafts: list[_Draft] = []
        turns: _Turns = {}
        for traces, annotated in begun.annotating.groups():
            new = [
                _Draft.of(trace, annotation, self.config.max_turn_words)
                for trace, annotation in zip(traces, annotated, strict=True)
            ]
            report("annotate", len(drafts) + len(new), len(begun.unique))
            _add_terms(new)
            self._encode_turns(new, turns)
            drafts += new
            report("encode", len(drafts), len(begun.unique))
        self._encode_entities(drafts, known or {}, report)
        done = {key: d.finish(encoded=True) for key, d in zip(begun.unique, drafts, strict=True)}
        return [done[key] for key in begun.keys]

    def forget_names(self) -> None:
        """Let go of the vectors of names that were met."""
        with self._names_lock:
            self._names.clear()

    def lexical(self, traces: Sequence[Trace]) -> list[TraceFeatures]:
        """Derive what needs no model: terms, rule sentences, speaker and title. Not encoded."""
        drafts = []
        for trace in traces:
            sentences = np.asarray(rule_sentences(trace.text), np.int32).reshape(-1, 2)
            drafts.append(_Draft.of(trace, Annotation(sentences, []), self.config.max_turn_words))
        _add_terms(drafts)
        return [draft.finish(encoded=False) for draft in drafts]

    def _encode_turns(self, drafts: Sequence[_Draft], known: _Turns) -> None:
        places: dict[tuple[str, bytes], list[tuple[_Draft, int]]] = {}
        inputs: list[tuple[str, Int32]] = []
        for draft in drafts:
            draft.allocate(self.encoder.dim)
            for turn in range(len(draft.layout.turns)):
                text, spans = draft.encoder_input(turn)
                key = text, spans.tobytes()
                if key in known:
                    draft.put(turn, *known[key])
                    continue
                # A turn that stands in several traces is encoded once.
                shared = places.setdefault(key, [])
                if not shared:
                    inputs.append((text, spans))
                shared.append((draft, turn))
        if inputs:
            for (key, owners), found in zip(places.items(), self._encoded(inputs), strict=True):
                known[key] = found
                for draft, turn in owners:
                    draft.put(turn, *found)

    def _encoded(self, inputs: Sequence[tuple[str, Int32]]) -> list[tuple[Float16, Float16, int]]:
        """Return the vector, the sentences' vectors and the tokens of each input."""
        dim, source = self.encoder.dim, f"encoder {self.encoder.fingerprint}"
        spans = [s for _, s in inputs]
        lengths = list(map(len, spans))
        n_spans = sum(lengths)
        found = self.encoder.encode_spans([text for text, _ in inputs], spans)
        texts = _half(check_vectors(found.text_vectors, shape=(len(inputs), dim), source=source))
        pieces = check_vectors(found.span_vectors, shape=(n_spans, dim), source=source)
        halves = _half(unit(pieces))
        tokens = sums_of_tokens(found.span_tokens, lengths, source=source).tolist()
        made = []
        first = 0
        for vector, length, n_tokens in zip(texts, lengths, tokens, strict=True):
            made.append((vector, halves[first : first + length], n_tokens))
            first += length
        return made

    def _encode_entities(
        self, drafts: Sequence[_Draft], known: Mapping[str, Float16], report: Progress
    ) -> None:
        wanted = dict.fromkeys(name for d in drafts for name in d.entities)
        vectors = {name: known[name] for name in wanted if name in known}
        with self._names_lock:
            for name in wanted:
                if name not in vectors and name in self._names:
                    vectors[name] = self._names[name]
                    self._names.move_to_end(name)
        names = [name for name in wanted if name not in vectors]
        source = f"encoder {self.encoder.fingerprint}"
        for start in range(0, len(names), _NAMES):
            part = names[start : start + _NAMES]
            rows = self.encoder.encode(part)
            shape = (len(part), self.encoder.dim)
            halves = _half(check_vectors(rows, shape=shape, source=source))
            vectors.update(zip(part, halves, strict=True))
            self._keep(part, halves)
            report("entities", start + len(part), len(names))
        for draft in drafts:
            for row, name in enumerate(draft.entities):
                draft.entity_vectors[row] = vectors[name]

    def _keep(self, names: Sequence[str], rows: Float16) -> None:
        with self._names_lock:
            for name, row in zip(names, rows, strict=True):
                self._names[name] = row.copy()  # a view would hold all of its batch
            while len(self._names) > _KEPT_NAMES:
                self._names.popitem(last=False)


def _silent(stage: str, done: int, total: int) -> None:
    """Report nothing."""


def _half(rows: Float32) -> Float16:
    limit = float(np.finfo(np.float16).max)
    if rows.size and float(np.abs(rows).max()) > limit:
        raise EncoderError(
            f"an encoder's values reach {np.abs(rows).max():g}; float16 ends at {limit:g}"
        )
    return rows.astype(np.float16)


@dataclass(frozen=True, slots=True, eq=False)
class Begun:
    """Traces that are being annotated. Made by :meth:`Featurizer.begin`.

    Attributes
    ----------
    keys : list of bytes
        The feature key of each trace.
    unique : list of bytes
        Each key once, as they are annotated.
    annotating : Annotating
    """

    keys: list[bytes]
    unique: list[bytes]
    annotating: Annotating


# Turns by what an encoder reads of them, with the vectors of text and sentences and the tokens.
_Turns = dict[tuple[str, bytes], tuple[Float16, Float16, int]]


@dataclass(slots=True, eq=False)
class _Draft:
    """The features of one trace while they are being made."""

    trace: Trace
    layout: Layout
    entities: dict[str, str]  # canonical name to label
    mentions: Int32
    turn_tokens: Int32
    sentence_borders: list[int]  # turn t has the sentences from entry t up to entry t + 1
    turn_terms: tuple[str, ...] = ()
    turn_vectors: Float16 = field(default_factory=lambda: np.zeros((0, 0), np.float16))
    sentence_vectors: Float16 = field(default_factory=lambda: np.zeros((0, 0), np.float16))
    entity_vectors: Float16 = field(default_factory=lambda: np.zeros((0, 0), np.float16))

    @classmethod
    def of(cls, trace: Trace, annotation: Annotation, max_words: int) -> _Draft:
        spans = layout(trace.text, map(tuple, annotation.sentences.tolist()), max_words)
        entities, mentions = _mentions(trace, annotation, spans)
        words = [len(word_spans(trace.text[a:z])) for a, z in spans.turns.tolist()]
        # One search for all turns: one for each would read the whole column each time.
        borders = np.searchsorted(
            spans.sentence_turn, np.arange(len(spans.turns) + 1, dtype=np.int32)
        ).tolist()
        draft = cls(trace, spans, entities, mentions, np.asarray(words, np.int32), borders)
        draft.allocate(0)
        return draft

    def allocate(self, dim: int) -> None:
        self.turn_vectors = np.zeros((len(self.layout.turns), dim), np.float16)
        self.sentence_vectors = np.zeros((len(self.layout.sentences), dim), np.float16)
        self.entity_vectors = np.zeros((len(self.entities), dim), np.float16)

    def _sentences_of(self, turn: int) -> slice:
        return slice(self.sentence_borders[turn], self.sentence_borders[turn + 1])

    def encoder_input(self, turn: int) -> tuple[str, Int32]:
        """Return the text an encoder sees for a turn, and its sentences' ranges in that text."""
        start, end = self.layout.turns[turn].tolist()
        prefix = encoder_prefix(self.trace)
        inside = self.layout.sentences[self._sentences_of(turn)]
        return prefix + self.trace.text[start:end], inside - np.int32(start - len(prefix))

    def put(self, turn: int, vector: Float16, sentences: Float16, n_tokens: int) -> None:
        self.turn_vectors[turn] = vector
        self.sentence_vectors[self._sentences_of(turn)] = sentences
        self.turn_tokens[turn] = n_tokens

    def finish(self, *, encoded: bool) -> TraceFeatures:
        return TraceFeatures(
            turns=self.layout.turns,
            turn_terms=self.turn_terms,
            turn_tokens=self.turn_tokens,
            turn_flags=np.asarray(
                [_flags(self.trace.text[a:z]) for a, z in self.layout.turns.tolist()], np.int32
            ),
            sentences=self.layout.sentences,
            sentence_turn=self.layout.sentence_turn,
            entities=tuple(self.entities),
            entity_labels=tuple(self.entities.values()),
            mentions=self.mentions,
            turn_vectors=self.turn_vectors,
            sentence_vectors=self.sentence_vectors,
            entity_vectors=self.entity_vectors,
            encoded=encoded,
        )


def _flags(text: str) -> int:
    """Say what a turn holds that its terms do not tell: the bits of ``turn_flags``."""
    asks = ASKS if _QUESTION.search(text) else 0
    number = HAS_NUMBER if _NUMBER.search(text) else 0
    instructs = INSTRUCTS if instructs_reader(text) else 0
    prefers = PREFERS if states_preference(text) else 0
    return asks | number | instructs | prefers | (HAS_TIME if _TIME.search(text) else 0)


def _add_terms(drafts: Sequence[_Draft]) -> None:
    """Fill in every turn's terms: of the title once per trace, then of the turn's text."""
    heads = terms([d.trace.title or "" for d in drafts])
    rows = iter(terms([d.trace.text[a:z] for d in drafts for a, z in d.layout.turns.tolist()]))
    for draft, head in zip(drafts, heads, strict=True):
        draft.turn_terms = tuple(" ".join(head + next(rows)) for _ in draft.layout.turns)


def _trace_names(trace: Trace) -> dict[str, str]:
    """Return the entities that a trace's metadata names, with their labels.

    A title's closing parenthesis tells homonyms apart ("Persuasion (film)"); texts write the name
    without it, so both forms are the trace's.
    """
    names: dict[str, str] = {}
    title = trace.title or ""
    opening, closing = _PARENTHESIS
    bare = title.rpartition(opening)[0] if title.rstrip().endswith(closing) else ""
    for text, label in ((title, "TITLE"), (bare, "TITLE"), (trace.speaker or "", "SPEAKER")):
        name = canonical(text)
        if 0 < len(name) <= MAX_NAME:
            names.setdefault(name, label)
    return names


def _mentions(trace: Trace, annotation: Annotation, spans: Layout) -> tuple[dict[str, str], Int32]:
    """Return the trace's entities with labels, and their mentions by turn and sentence."""
    if not len(spans.turns):
        return {}, np.zeros((0, 5), np.int32)
    entities = _trace_names(trace)
    n_given = len(entities)
    rows = [(t, -1, e, -1, -1) for t in range(len(spans.turns)) for e in range(n_given)]
    place = {name: row for row, name in enumerate(entities)}
    places = np.asarray([start for start, _, _ in annotation.mentions], np.int64)
    # One search of one dtype for all mentions: one for each would copy the column each time.
    inside = np.searchsorted(spans.sentences[:, 0].astype(np.int64), places, side="right") - 1
    ends = spans.sentences[inside, 1].tolist() if len(spans.sentences) else [0] * len(inside)
    turns = spans.sentence_turn[inside].tolist() if len(spans.sentences) else [0] * len(inside)
    for (start, end, label), sentence, sentence_end, turn in zip(
        annotation.mentions, inside.tolist(), ends, turns, strict=True
    ):
        if sentence < 0:
            continue
        # A sentence that was cut for length may cut a mention: the part within it counts.
        end = min(end, sentence_end)
        name = canonical(trace.text[start:end]) if start < end else ""
        if not 0 < len(name) <= MAX_NAME:
            continue
        if name not in place:
            place[name] = len(place)
            entities[name] = label
        rows.append((turn, sentence, place[name], start, end))
    return entities, np.asarray(rows, np.int32).reshape(-1, 5)
