"""Readers that a user wrote: found by name, and refused where a run could not use them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from zeromem.errors import InvalidInputError, ZeroMemError

HOW = (
    "a reader is called without arguments and has read(question, evidence, *, profile), which "
    "returns a zeromem.answer.reader.Draft"
)


def make(name: str) -> tuple[Any, str]:
    """Make a reader by ``file.py:Class`` or ``module:Class``.

    Parameters
    ----------
    name : str

    Returns
    -------
    reader : Reader
    fingerprint : str
        Its name, and its attribute ``fingerprint`` where it has one; else the file's digest, so
        that a reader that is changed is asked anew. What else it depends on (weights, files that
        it imports), only its own ``fingerprint`` can say.

    Raises
    ------
    InvalidInputError
        Where it cannot be loaded or made, or has no ``read``.
    """
    place, _, attribute = name.rpartition(":")
    try:
        # Loaded late, as methods are many.
        from zeromem.evaluation.methods.own import users_module

        module = users_module(place)
        build = getattr(module, attribute)
        file = Path(module.__file__ or "")
        digest = hashlib.sha256(file.read_bytes()).hexdigest()[:16]
    except Exception as error:  # whatever the user's own code raises
        raise InvalidInputError(
            f"--reader {name!r} cannot be loaded: {type(error).__name__}: {error}"
        ) from error
    if not callable(build):
        raise InvalidInputError(f"--reader {name!r} is no class: {HOW}; got {build!r}")
    try:
        reader = build()
    except ZeroMemError:
        raise
    except Exception as error:
        raise InvalidInputError(
            f"--reader {name!r} cannot be made: {type(error).__name__}: {error}; {HOW}"
        ) from error
    if not callable(getattr(reader, "read", None)):
        raise InvalidInputError(f"--reader {name!r} has no read: {HOW}")
    said = getattr(reader, "fingerprint", None)
    if said is not None and (not isinstance(said, str) or not said):
        raise InvalidInputError(
            f"--reader {name!r} must have a fingerprint that is a text and not empty, or none; "
            f"got {said!r}"
        )
    # Two readers may well both call themselves "v1"; the folder decides nothing.
    return reader, f"{file.name}:{attribute} {said or f'file={digest}'}"
