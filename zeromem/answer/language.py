"""English grammar for the answer stage: the process's one spaCy pipeline, with parses kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from zeromem.answer.recent import Recent
from zeromem.english import English, english

# spaCy's Doc, Span and Token have no types that mypy could follow.
Doc = Any
Span = Any
Token = Any
NLP = Callable[[str], Doc]

# A question and its parts are read by the reader and by calibration; evidence is kept as sentences.
_KEPT_CHARACTERS = 20_000


class Pipeline:
    """spaCy's pipeline; what is parsed alone is kept for a while.

    Parameters
    ----------
    pipeline : English
    """

    def __init__(self, pipeline: English) -> None:
        self._english = pipeline
        self._docs: Recent[str, Doc] = Recent(_KEPT_CHARACTERS)

    def __call__(self, text: str) -> Doc:
        """Parse one text."""
        doc = self._docs.get(text)
        if doc is None:
            (doc,) = self.many([text])
            self._docs.put(text, doc, len(text) + 1)
        return doc

    def many(self, texts: Sequence[str]) -> list[Doc]:
        """Parse texts together."""
        return self._english.parse(texts)


def parse_all(nlp: NLP, texts: Sequence[str]) -> list[Doc]:
    """Parse texts with any pipeline, in batches where it can."""
    return nlp.many(texts) if isinstance(nlp, Pipeline) else [nlp(t) for t in texts]


def load_nlp() -> NLP:
    """Return spaCy's small English pipeline, the same instance for every caller.

    With an edition of its vocabulary the parses that are kept go as well: one alone would hold it.

    Raises
    ------
    ModelNotFoundError
        Where no package ships it; the message says what to install.
    """
    return _pipeline(english(), english().edition)


@lru_cache(maxsize=1)
def _pipeline(pipeline: English, edition: int) -> Pipeline:
    return Pipeline(pipeline)
