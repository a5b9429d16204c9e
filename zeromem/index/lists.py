"""Inverted lists that grow: a sealed CSR, and chains of what came since."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from zeromem.index.columns import Column

Array = NDArray[Any]
# A tail of this many entries, or of this share of the sealed ones, is sealed.
_TAIL = 4096
_SHARE = 0.25


class Lists:
    """Immutable lists of values by key: int32, ascending, with float32 counts where they have any.

    The sealed part is a CSR over the keys that there were when it was sealed. What came later is a
    chain from each key's newest entry to the ones before it, so that adding touches no old value.

    Attributes
    ----------
    kernel_args : tuple
        indptr (n_base_keys + 1,) int64, values (n_base,) int32, counts (n_base,) float32,
        head (n_keys,) int32: the newest tail entry of each key, or -1,
        older (n_tail,) int32: the entry before each, or -1,
        tail_values (n_tail,) int32, tail_counts (n_tail,) float32; counts are empty where the
        lists have none. Keys from n_base_keys on have no sealed part.
    """

    __slots__ = ("_csr", "_older", "_tail_counts", "_tail_values", "counted", "kernel_args")

    def __init__(
        self,
        sealed: tuple[Array, Array, Array],
        head: Array,
        older: Column,
        values: Column,
        counts: Column,
        *,
        counted: bool,
    ) -> None:
        for array in (*sealed, head):
            array.flags.writeable = False
        self._older, self._tail_values, self._tail_counts = older, values, counts
        self._csr = sealed if not len(older) and len(sealed[0]) == len(head) + 1 else None
        self.counted = counted
        self.kernel_args = (*sealed, head, older.array, values.array, counts.array)

    @classmethod
    def empty(cls, *, counted: bool) -> Lists:
        """No key and no value."""
        csr = np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32)
        return cls.sealed(csr, counted=counted)

    @classmethod
    def sealed(cls, csr: tuple[Array, Array, Array], *, counted: bool) -> Lists:
        """Take a CSR as it is; its counts are empty where the lists have none."""
        none = Column(np.zeros(0, np.int32))
        head = np.full(len(csr[0]) - 1, -1, np.int32)
        return cls(csr, head, none, none, Column(np.zeros(0, np.float32)), counted=counted)

    def __len__(self) -> int:
        """Keys."""
        return len(self.kernel_args[3])

    def extended(
        self, n_keys: int, keys: Array, values: Array, counts: Array | None = None
    ) -> Lists:
        """Append values to the lists of keys.

        Parameters
        ----------
        n_keys : int
            At least as many as there are.
        keys : (k,) int
            Below ``n_keys``.
        values : (k,) int
            Above all values that their key has, ascending within a key.
        counts : (k,) float, optional
            Given where the lists have counts.
        """
        if n_keys == len(self) and not len(keys):
            return self
        from zeromem.kernels import lists_cpu  # compiles: a memory opens without it

        head = np.empty(n_keys, np.int32)
        head[: len(self)] = self.kernel_args[3]
        head[len(self) :] = -1

        older = lists_cpu.link(head, np.ascontiguousarray(keys, np.int32), len(self._older))
        longer = Lists(
            self.kernel_args[:3],
            head,
            self._older.extended(older),
            self._tail_values.extended(values),
            self._tail_counts.extended(counts) if counts is not None else self._tail_counts,
            counted=self.counted,
        )
        if len(longer._older) > max(_TAIL, _SHARE * len(self.kernel_args[1])):
            return Lists.sealed(longer.csr(), counted=self.counted)
        return longer

    def of(self, key: int) -> Array:
        """Values of one key, ascending; none of a key that is not there."""
        indptr, sealed, _, head, older, values, _ = self.kernel_args
        found: list[int] = []
        entry = int(head[key]) if 0 <= key < len(head) else -1
        while entry >= 0:
            found.append(int(values[entry]))
            entry = int(older[entry])
        base: Array = (
            sealed[indptr[key] : indptr[key + 1]] if 0 <= key < len(indptr) - 1 else sealed[:0]
        )
        return np.concatenate([base, np.array(found[::-1], np.int32)]) if found else base

    def any(self, keys: Array) -> Array:
        """Whether each key has a value: (k,) bool."""
        indptr, head = self.kernel_args[0], self.kernel_args[3]
        found = np.zeros(len(keys), np.bool_)
        known = keys < len(head)
        found[known] = head[keys[known]] >= 0
        base = keys < len(indptr) - 1
        found[base] |= indptr[keys[base] + 1] > indptr[keys[base]]
        return found

    def csr(self) -> tuple[Array, Array, Array]:
        """All values sealed, made once: indptr (n_keys + 1,), values (n,), counts (n,) or (0,)."""
        if self._csr is None:
            from zeromem.kernels import lists_cpu

            self._csr = lists_cpu.seal(*self.kernel_args)
        return self._csr
