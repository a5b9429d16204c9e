"""How the Numba kernels are compiled: once, for one set of types, serial, without the GIL.

The signatures are explicit, so a kernel is compiled when its module is imported (or read from the
cache on disk), never in the middle of a question, and there is one machine code per kernel: the
same rows give the same bits whether their array is writable or a read-only memory map.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit, types


def kernel(signature: Any, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function for ``signature`` and keep the machine code on disk."""

    def compiled(function: Callable[..., Any]) -> Any:
        try:
            return njit(signature, cache=True, nogil=True, **options)(function)
        except RuntimeError as error:
            # Neither the package's folder nor a cache folder of the user's can be written.
            if "no locator" not in str(error):
                raise
            return njit(signature, nogil=True, **options)(function)

    return compiled


def inner(function: Callable[..., Any]) -> Any:
    """Mark a part of other kernels: it is compiled into them, and is no file of its own to load."""
    return njit(nogil=True)(function)


def _array(dtype: Any, ndim: int, *, readonly: bool = True) -> Any:
    return types.Array(dtype, ndim, "C", readonly=readonly)


def record(*members: Any) -> Any:
    """Type a tuple of arrays that belong together, so that signatures stay readable."""
    return types.Tuple(members)  # type: ignore[no-untyped-call]


BOOL_1 = _array(types.boolean, 1)
U8_1 = _array(types.uint8, 1)
BOOL_2 = _array(types.boolean, 2)
I8_1 = _array(types.int8, 1)
I32_1 = _array(types.int32, 1)
I32_2 = _array(types.int32, 2)
I64_1 = _array(types.int64, 1)
I64_2 = _array(types.int64, 2)
F32_1 = _array(types.float32, 1)
F32_2 = _array(types.float32, 2)
F64_2 = _array(types.float64, 2)
F64_1 = _array(types.float64, 1)
OUT_F32_1 = _array(types.float32, 1, readonly=False)
OUT_F32_2 = _array(types.float32, 2, readonly=False)
OUT_F64_1 = _array(types.float64, 1, readonly=False)
OUT_F64_2 = _array(types.float64, 2, readonly=False)
OUT_I8_1 = _array(types.int8, 1, readonly=False)
OUT_U8_1 = _array(types.uint8, 1, readonly=False)
OUT_I32_1 = _array(types.int32, 1, readonly=False)
OUT_I32_2 = _array(types.int32, 2, readonly=False)
OUT_I64_1 = _array(types.int64, 1, readonly=False)
OUT_I64_2 = _array(types.int64, 2, readonly=False)
OUT_BOOL_2 = _array(types.boolean, 2, readonly=False)
BOOL = types.boolean
I64 = types.int64
F32 = types.float32
F64 = types.float64
VOID = types.void
# Inverted lists, sealed part and tail: see ``zeromem.index.lists.Lists.kernel_args``.
LISTS = record(I64_1, I32_1, F32_1, I32_1, I32_1, I32_1, F32_1)
