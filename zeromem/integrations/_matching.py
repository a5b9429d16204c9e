"""LangGraph's filters and patterns of namespaces, as its stores define them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from zeromem.errors import InvalidInputError

_EQUALITY: Mapping[str, Callable[[Any, Any], bool]] = {"$eq": operator.eq, "$ne": operator.ne}
_ORDER: Mapping[str, Callable[[float, float], bool]] = {
    "$gt": operator.gt, "$gte": operator.ge, "$lt": operator.lt, "$lte": operator.le,
}  # fmt: skip


def satisfies(value: Any, wanted: Any) -> bool:
    """Whether a field's value meets what a filter says of it.

    Parameters
    ----------
    value : object
        None where the field is missing.
    wanted : object
        A value to equal, part by part; or a mapping of operators (``$eq``, ``$ne``, ``$gt``,
        ``$gte``, ``$lt``, ``$lte``) to operands, which must all hold. Order is that of numbers;
        what is no number is in no order.

    Raises
    ------
    InvalidInputError
        For an unknown operator, or an operand of an order that is no number.
    """
    if isinstance(wanted, Mapping):
        if any(isinstance(name, str) and name.startswith("$") for name in wanted):
            # All of them are looked at, so that a wrong one is told whatever the others say.
            return all([_holds(value, name, operand) for name, operand in wanted.items()])
        return isinstance(value, Mapping) and all(
            satisfies(value.get(name), part) for name, part in wanted.items()
        )
    if isinstance(wanted, list | tuple):
        return (
            isinstance(value, list | tuple)
            and len(value) == len(wanted)
            and all(map(satisfies, value, wanted))
        )
    return bool(value == wanted)


def _holds(value: Any, name: str, operand: Any) -> bool:
    if name in _EQUALITY:
        return _EQUALITY[name](value, operand)
    if name not in _ORDER:
        raise InvalidInputError(
            f"filter has the operator {name!r}; it may be one of {', '.join([*_EQUALITY, *_ORDER])}"
        )
    limit, number = _number(operand), _number(value)
    if limit is None:
        raise InvalidInputError(f"filter: {name} compares numbers, got {operand!r}")
    return number is not None and _ORDER[name](number, limit)


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def fits(namespace: Sequence[str], path: Sequence[str], where: str) -> bool:
    """Whether a namespace begins (``where="prefix"``) or ends ("suffix") with a path.

    A label ``*`` of the path stands for any.
    """
    if where not in ("prefix", "suffix"):
        raise InvalidInputError(f"match_type must be 'prefix' or 'suffix', got {where!r}")
    if len(namespace) < len(path):
        return False
    part = namespace[: len(path)] if where == "prefix" else namespace[len(namespace) - len(path) :]
    return all(wanted in ("*", label) for label, wanted in zip(part, path, strict=True))
