"""Lexical terms of synthetic texts without bm25s and PyStemmer, for machines that have neither.

Synthetic words are their own stems, so splitting and leaving out stop words is all there is to do;
a test holds it against the real thing. Nothing else may be read with it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec

import invented

_ASKING = "when where what who why which how does did do has have had the a an"
STOP = frozenset(word.lower() for word in (*invented.FUNCTION, *invented.OPENERS, *_ASKING.split()))
# The lexical index keeps question words: they are rare among what people say.
_LEFT_OUT = STOP - frozenset(_ASKING.split()) | {"the", "a", "an"}
_STEMS = {"why": "whi", "does": "doe"}  # the only words that are not their own stems


def terms(texts: Sequence[str]) -> list[list[str]]:
    """Return the terms of synthetic texts, as ``zeromem.text.terms`` would."""
    return [
        [_STEMS.get(word, word) for word in _words(text) if word not in _LEFT_OUT] for text in texts
    ]


def is_stop(term: str) -> bool:
    """Whether a word of a synthetic text carries no content of its own."""
    return term.casefold() in STOP


def _words(text: str) -> list[str]:
    return text.lower().replace(".", " ").replace("?", " ").split()


def stand_in(*, always: bool = False) -> bool:
    """Put these in place of zeromem's own where bm25s or PyStemmer is missing; say whether.

    Parameters
    ----------
    always : bool
        Also where both are installed: a rehearsal takes the way that the real run will take.
    """
    if not always and find_spec("bm25s") is not None and find_spec("Stemmer") is not None:
        return False
    from zeromem import text

    for name, mine in (("terms", terms), ("is_stop", is_stop)):
        real = getattr(text, name)
        for module in list(sys.modules.values()):
            if module.__name__.startswith("zeromem") and getattr(module, name, None) is real:
                setattr(module, name, mine)
    return True
