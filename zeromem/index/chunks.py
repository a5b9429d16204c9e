"""Half precision vectors that grow by sharing: an immutable value over a list of parts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from zeromem.errors import InvalidInputError
from zeromem.forks import Lock
from zeromem.kernels._check import as_array, check_shape

CHUNK = 8192  # rows of a full part: row r lies in part r >> 13
_MIN_ROOM = 64

F16 = NDArray[np.float16]


class _Room:
    """A buffer that one line of values fills: each sees a prefix, which is never written again."""

    def __init__(self, size: int, dim: int) -> None:
        self.rows: F16 = np.empty((size, dim), np.float16)
        self.used = 0
        self.lock = Lock()

    def append(self, after: int, rows: F16) -> bool:
        """Put ``rows`` behind row ``after``, unless another value did or there is no room."""
        with self.lock:
            end = after + len(rows)
            if self.used != after or end > len(self.rows):
                return False
            self.rows[after:end] = rows
            self.used = end
            return True

    def view(self, stop: int) -> F16:
        view = self.rows[:stop]
        view.flags.writeable = False
        return view


class Chunks:
    """Float16 vectors (n, dim) as parts of :data:`CHUNK` rows, all full but the last.

    An immutable value: :meth:`extended` returns a new one, which shares every full part, and the
    open part too where this value is the newest over it; the new rows then go into room that no
    older value can see. Values may be extended and read from any number of threads.

    Attributes
    ----------
    parts : tuple of (<= CHUNK, dim) float16 arrays
        Read-only and C-contiguous. None is empty.
    addresses : (n_parts,) int64
        Where the parts' data start, for compiled kernels; valid while this value lives.
    dim : int
    """

    __slots__ = ("_n", "_room", "addresses", "dim", "parts")

    parts: tuple[F16, ...]
    addresses: NDArray[np.int64]
    dim: int

    def __init__(
        self,
        parts: tuple[F16, ...],
        dim: int,
        room: _Room | None = None,
        known: NDArray[np.int64] | None = None,
    ) -> None:
        """Take parts over as they are; ``known`` holds the addresses of the first of them."""
        first = np.empty(0, np.int64) if known is None else known
        self.parts = parts
        self.dim = dim
        self.addresses = np.array(
            [*first.tolist(), *(part.ctypes.data for part in parts[len(first) :])], np.int64
        )
        self.addresses.flags.writeable = False
        self._room = room
        self._n = CHUNK * (len(parts) - 1) + len(parts[-1]) if parts else 0

    @classmethod
    def of(cls, array: Any) -> Chunks:
        """Return the rows of an array.

        Parameters
        ----------
        array : (n, dim) float16
            Views of it are kept where it is read-only and C-contiguous, as a memory map is; it is
            copied where it could be written.

        Raises
        ------
        InvalidInputError
        """
        given = np.asarray(array)
        rows: F16 = _half(given, "array")
        if rows.flags.writeable:
            rows = rows.copy() if np.may_share_memory(rows, given) else rows
            rows.flags.writeable = False
        parts = tuple(rows[start : start + CHUNK] for start in range(0, len(rows), CHUNK))
        return cls(parts, rows.shape[1])

    def extended(self, rows: Any) -> Chunks:
        """Return these rows and then ``rows``, which are copied.

        Costs the new rows and the list of parts; where another value has been extended from this
        one already, also a copy of the open part.

        Parameters
        ----------
        rows : (k, dim) float16

        Raises
        ------
        InvalidInputError
        """
        rows = _half(np.asarray(rows), "rows")
        check_shape(rows, "rows", (len(rows), self.dim))
        if not len(rows):
            return self
        n_full = self._n // CHUNK
        full = self.parts[:n_full]
        held = self._n - n_full * CHUNK
        first = rows[: CHUNK - held]
        room = self._room
        if not held or room is None or not room.append(held, first):
            # Doubled, so that rows added one by one are copied once each on average.
            room = _Room(min(CHUNK, max(2 * held, held + len(first), _MIN_ROOM)), self.dim)
            if held:
                room.append(0, self.parts[-1])
            room.append(held, first)
        parts = [*full, room.view(held + len(first))]
        for start in range(len(first), len(rows), CHUNK):
            more = rows[start : start + CHUNK]
            room = _Room(max(len(more), _MIN_ROOM), self.dim)
            room.append(0, more)
            parts.append(room.view(len(more)))
        return Chunks(tuple(parts), self.dim, room, self.addresses[:n_full])

    def __len__(self) -> int:
        return self._n

    def array(self) -> F16:
        """Return all rows as one new (n, dim) float16 array."""
        return np.concatenate([np.empty((0, self.dim), np.float16), *self.parts])

    def take(self, rows: Any) -> NDArray[np.float32]:
        """Return some rows.

        Parameters
        ----------
        rows : (k,) integer
            Each in [0, n), in any order.

        Returns
        -------
        (k, dim) float32

        Raises
        ------
        InvalidInputError
        """
        wanted = as_array(rows, "rows", np.int64, 1)
        if len(wanted) and not 0 <= int(wanted.min()) <= int(wanted.max()) < self._n:
            outside = wanted[(wanted < 0) | (wanted >= self._n)][0]
            raise InvalidInputError(f"rows must be in [0, {self._n}), got {outside}")
        from zeromem.kernels._half import take  # compiles: a memory opens without it

        out = np.empty((len(wanted), self.dim), np.float32)
        take(self.addresses, wanted, out)
        return out


def _half(array: NDArray[Any], name: str) -> F16:
    """Return a C-contiguous float16 array; other dtypes are refused, since they would round."""
    if array.dtype != np.float16:
        raise InvalidInputError(f"{name} must be float16, got {array.dtype}; cast it first")
    rows: F16 = as_array(array, name, np.float16, 2)
    return rows
