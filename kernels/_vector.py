"""Vector instructions for compiled kernels, written out in LLVM's language 16 lanes at a time.

LLVM splits them into what a machine's registers hold. Addresses are integers, as
``array.ctypes.data`` gives them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

LANES = 16

I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
SINGLE, HALF = ir.FloatType(), ir.HalfType()


def vector(element: ir.Type, lanes: int = LANES) -> ir.VectorType:
    """Return the type of ``lanes`` elements side by side."""
    return ir.VectorType(element, lanes)


def instruction(result: Any, *arguments: Any) -> Callable[[Callable[..., Any]], Any]:
    """Make ``emit(context, builder, *values)`` callable in compiled kernels.

    ``result`` and ``arguments`` are Numba's types; what ``emit`` returns is ignored for a void
    result.
    """

    def made(emit: Callable[..., Any]) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            found = emit(context, builder, *values)
            return context.get_dummy_value() if result == types.void else found

        def definition(typing: Any, *given: Any) -> Any:
            return result(*arguments), generate

        # Numba reads the parameters off the function, and takes none of any number.
        names = ["typing", *(f"argument_{i}" for i in range(len(arguments)))]
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters = [inspect.Parameter(name, kind) for name in names]
        definition.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return intrinsic(definition)

    return made


def load(builder: ir.IRBuilder, address: ir.Value, kind: ir.Type, align: int) -> ir.Value:
    """Load a ``kind`` from an address that is a multiple of ``align``."""
    return builder.load(builder.inttoptr(address, kind.as_pointer()), align=align)


def store(builder: ir.IRBuilder, value: ir.Value, address: ir.Value, align: int) -> None:
    """Store ``value`` at an address that is a multiple of ``align``."""
    builder.store(value, builder.inttoptr(address, value.type.as_pointer()), align=align)
