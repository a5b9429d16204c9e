"""Argument checks shared by all forms of the kernels: each error names argument, value and fix."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from zeromem.errors import InvalidInputError


def as_array(value: Any, name: str, dtype: Any, ndim: int, xp: ModuleType = np) -> Any:
    """Return ``value`` as a C-contiguous array of ``dtype``, without a copy where it is one.

    Parameters
    ----------
    value : array_like
    name : str
        The argument's name, for the message.
    dtype : dtype
        Casts within a kind are made (float16 to float32); others are refused (float to int).
    ndim : int
    xp : module
        The array namespace: numpy or cupy.

    Raises
    ------
    InvalidInputError
    """
    array = xp.asarray(value)
    wanted = np.dtype(dtype)
    if array.ndim != ndim:
        raise InvalidInputError(
            f"{name} must have {ndim} dimension(s), got shape {tuple(array.shape)}"
        )
    if array.dtype != wanted and not np.can_cast(array.dtype, wanted, "same_kind"):
        raise InvalidInputError(f"{name} must be {wanted}, got {array.dtype}; cast it first")
    array = xp.ascontiguousarray(array, dtype=wanted)
    # A memory map may start at any byte; compiled code expects whole elements.
    return array.copy() if xp is np and not array.flags.aligned else array


def check_shape(array: Any, name: str, shape: tuple[int, ...]) -> None:
    """Raise InvalidInputError unless ``array.shape`` is ``shape``."""
    if tuple(array.shape) != shape:
        raise InvalidInputError(f"{name} must have shape {shape}, got {tuple(array.shape)}")


def check_range(value: float, name: str, low: float, high: float) -> None:
    """Raise InvalidInputError unless ``low <= value <= high`` (NaN is outside any range)."""
    if not low <= value <= high:
        raise InvalidInputError(f"{name} must be in [{low:g}, {high:g}], got {value!r}")


def check_csr(
    indptr: Any, indices: Any, *, name: str, shape: tuple[int, int], data: Any = None
) -> None:
    """Raise InvalidInputError unless the arrays are a CSR matrix of ``shape``.

    Compiled kernels index without bounds checks, so every index is looked at here; that costs one
    pass over ``indices``, far less than any kernel that walks them.
    """
    n_rows, n_columns = shape
    check_shape(indptr, f"{name}_indptr", (n_rows + 1,))
    first, last = int(indptr[0]), int(indptr[-1])
    if first != 0 or last != len(indices):
        raise InvalidInputError(
            f"{name}_indptr must run from 0 to len({name}_indices) = {len(indices)}, "
            f"got {first} to {last}"
        )
    if n_rows and int((indptr[1:] - indptr[:-1]).min()) < 0:
        raise InvalidInputError(f"{name}_indptr must not decrease")
    if len(indices):
        low, high = int(indices.min()), int(indices.max())
        if low < 0 or high >= n_columns:
            raise InvalidInputError(
                f"{name}_indices must be in [0, {n_columns}), got {low if low < 0 else high}"
            )
    if data is not None:
        check_shape(data, f"{name}_data", (len(indices),))


def check_mask(mask: Any, shape: tuple[int, ...]) -> None:
    """Raise InvalidInputError unless ``mask`` is (n,) or (b, n)."""
    if tuple(mask.shape) not in (shape, shape[1:]):
        raise InvalidInputError(
            f"mask must have shape {shape[1:]} or {shape}, got {tuple(mask.shape)}"
        )
