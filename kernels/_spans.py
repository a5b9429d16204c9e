"""Checks of span tables, shared by the forms of ``pool``."""

from __future__ import annotations

from typing import Any

from zeromem.errors import InvalidInputError
from zeromem.kernels._check import check_shape


def check_spans(spans: Any, n: int) -> None:
    """Raise InvalidInputError unless every row of ``spans`` is a range within ``[0, n]``."""
    check_shape(spans, "spans", (len(spans), 2))
    if not len(spans):
        return
    bad = (spans[:, 0] < 0) | (spans[:, 1] < spans[:, 0]) | (spans[:, 1] > n)
    if bool(bad.any()):
        row = int(bad.argmax())
        raise InvalidInputError(
            f"spans must be half-open ranges within [0, {n}], "
            f"got ({int(spans[row, 0])}, {int(spans[row, 1])}) in row {row}"
        )
