"""Methods that a user wrote: found by name, and refused where the harness could not run them."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Collection, Sequence
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from types import ModuleType
from typing import Any

from zeromem.errors import InvalidInputError
from zeromem.evaluation.methods.features import FeatureBank
from zeromem.evaluation.types import Method

STEPS = ("index", "rank", "find", "share", "close")
ATTRIBUTES = ("name", "calibrates", "budgeted")
HOW = (
    "a method derives from zeromem.evaluation.RankedList, or has all of "
    "zeromem.evaluation.Method, and is called with the run's FeatureBank"
)


def load(name: str) -> Any:
    """Find what makes a method by ``file.py:Class`` or ``module:Class``.

    Raises
    ------
    InvalidInputError
        Where it cannot be loaded, or is a class that lacks a step of the protocol.
    """
    place, _, attribute = name.rpartition(":")
    try:
        found = getattr(users_module(place), attribute)
    except Exception as error:  # whatever the user's own code raises
        raise InvalidInputError(
            f"method {name!r} cannot be loaded: {type(error).__name__}: {error}"
        ) from error
    if not callable(found):
        raise InvalidInputError(f"method {name!r} is no class: {HOW}; got {found!r}")
    if isinstance(found, type):
        _complete(name, found, STEPS)
    return found


def users_module(place: str) -> ModuleType:
    """Import a module by name, or run a Python file as one."""
    if place.endswith(".py"):
        return _file(place, Path(place).stat().st_mtime_ns)
    return importlib.import_module(place)


@lru_cache(maxsize=64)
def _file(place: str, changed: int) -> ModuleType:
    """Run a Python file as a module, once per version of it."""
    digest = blake2b(f"{Path(place).resolve()} {changed}".encode(), digest_size=6).hexdigest()
    spec = importlib.util.spec_from_file_location(f"{Path(place).stem}_{digest}", place)
    if spec is None or spec.loader is None:
        raise ImportError(f"{place} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their own module up
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[spec.name]
        raise
    return module


def make(name: str, bank: FeatureBank) -> Method:
    """Make a method of the user's own.

    Parameters
    ----------
    name : str
        As for :func:`load`.
    bank : FeatureBank

    Raises
    ------
    InvalidInputError
        Where it cannot be made, or does not keep the protocol.
    """
    build = load(name)
    try:
        method: Method = build(bank)
    except Exception as error:
        raise InvalidInputError(
            f"method {name!r} cannot be made: {type(error).__name__}: {error}; {HOW}"
        ) from error
    _complete(name, method, (*STEPS, *ATTRIBUTES))
    return method


def _complete(name: str, found: Any, parts: Sequence[str]) -> None:
    missing = [part for part in parts if not hasattr(found, part)]
    if missing:
        raise InvalidInputError(f"method {name!r} has no {', '.join(missing)}: {HOW}")


def distinct(names: Sequence[str], made: Sequence[Method], taken: Collection[str]) -> None:
    """Refuse methods whose rows could not be told apart.

    Parameters
    ----------
    names : sequence of str
        As they were asked for.
    made : sequence of Method
    taken : collection of str
        Names of the harness's own methods.

    Raises
    ------
    InvalidInputError
        Where a name is empty or no text, another method's, or one of the harness's own.
    """
    by_name: dict[str, str] = {}
    for given, method in zip(names, made, strict=True):
        name = method.name
        if not isinstance(name, str) or not name.strip():
            raise InvalidInputError(
                f"method {given!r} must have a name that is not empty, got {name!r}: set the "
                "attribute `name` of its class"
            )
        if name in by_name or (name in taken and given not in taken):
            other = by_name.get(name, name)
            raise InvalidInputError(
                f"methods {other!r} and {given!r} are both named {name!r}: set the attribute "
                "`name` of one to something else"
            )
        by_name[name] = given
