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

_KEPT_CHARACTERS = 200_000


class Pipeline:
    """spaCy's pipeline with the latest parses kept.

    Parameters
    ----------
    pipeline : English
    """

    def __init__(self, pipeline: English) -> None:
        self._english = pipeline
        self._docs: Recent[str, Doc] = Recent(_KEPT_CHARACTERS)

    def __call__(self, text: str) -> Doc:
        """Parse one text."""
        return self.many([text])[0]

    def many(self, texts: Sequence[str]) -> list[Doc]:
        """Parse texts in batches, each distinct one once."""
        docs = {t: d for t in texts if (d := self._docs.get(t)) is not None}
        new = [t for t in dict.fromkeys(texts) if t not in docs]
        for text, doc in zip(new, self._english.parse(new), strict=True):
            docs[text] = self._docs.put(text, doc, len(text) + 1)
        return [docs[t] for t in texts]


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
