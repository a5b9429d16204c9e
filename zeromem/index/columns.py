"""Columns that grow: an immutable value sees the first rows of a buffer that newer ones share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
_LEAST = 64


class End:
    """Where a shared buffer may be written on: whoever takes the end first is the only writer.

    A list's methods are atomic, so two threads that extend the same value cannot both have it, and
    a fork in the middle leaves no lock behind: what nobody holds any more is copied.
    """

    __slots__ = ("_at",)

    def __init__(self, at: int) -> None:
        self._at = [at]

    def take(self, at: int) -> bool:
        """Claim the right to write from row ``at``; False where another value has gone on."""
        try:
            self._at.remove(at)
        except ValueError:
            return False
        return True

    def put(self, at: int) -> None:
        """Say up to where the buffer is written."""
        self._at.append(at)


class Column:
    """An immutable array that shares its memory with the longer ones made of it.

    Attributes
    ----------
    array : (n, ...)
        Read-only, C-contiguous.
    """

    __slots__ = ("_buffer", "_end", "array")

    def __init__(self, array: Array, buffer: Array | None = None, end: End | None = None) -> None:
        array.flags.writeable = False
        self.array = array
        self._buffer = buffer
        self._end = end

    def __len__(self) -> int:
        return len(self.array)

    def extended(self, rows: Any) -> Column:
        """Append rows, behind the buffer's last ones where this is the newest value of it.

        An older value, a memory map and a full buffer are copied, with room for half as much again,
        so that a row is copied a bounded number of times however the column grows.
        """
        n, k = len(self.array), len(rows)
        if not k:
            return self
        buffer, end = self._buffer, self._end
        # Room first: a claim that comes to nothing would leave the buffer without an end.
        if buffer is None or end is None or n + k > len(buffer) or not end.take(n):
            shape = (max(_LEAST, (n + k) * 3 // 2), *self.array.shape[1:])
            buffer, end = np.empty(shape, self.array.dtype), End(n)
            buffer[:n] = self.array
            end.take(n)
        buffer[n : n + k] = rows
        end.put(n + k)
        return Column(buffer[: n + k], buffer, end)

    def changed(self, at: Array, values: Any, rows: Any) -> Column:
        """Append rows and give older ones other values: a copy, unless there are no older ones."""
        if not len(at):
            return self.extended(rows)
        n = len(self.array)
        array = np.empty((n + len(rows), *self.array.shape[1:]), self.array.dtype)
        array[:n] = self.array
        array[at] = values
        array[n:] = rows
        return Column(array)


class Columns(Mapping[str, Array]):
    """Columns by name, immutable together.

    Parameters
    ----------
    columns : mapping of str to Column
    """

    __slots__ = ("_columns",)

    def __init__(self, columns: Mapping[str, Column]) -> None:
        self._columns = dict(columns)

    @classmethod
    def of(cls, arrays: Mapping[str, Array]) -> Columns:
        """Take arrays as they are, memory maps among them."""
        return cls({name: Column(array) for name, array in arrays.items()})

    def __getitem__(self, name: str) -> Array:
        return self._columns[name].array

    def __iter__(self) -> Any:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def extended(self, **rows: Any) -> Columns:
        """Append rows to the columns that are named."""
        return self._with({name: self._columns[name].extended(new) for name, new in rows.items()})

    def changed(self, name: str, at: Array, values: Any, rows: Any = ()) -> Columns:
        """Append rows to one column and give older ones other values."""
        return self._with({name: self._columns[name].changed(at, values, rows)})

    def replaced(self, **arrays: Array) -> Columns:
        """Put other arrays in place of those of the same name."""
        return self._with({name: Column(array) for name, array in arrays.items()})

    def _with(self, columns: Mapping[str, Column]) -> Columns:
        return Columns({**self._columns, **columns})
