"""Short vectors of float32 for compiled kernels, with ``+``, ``-``, ``*`` and ``fma``.

Numba's arrays live in memory, so a loop that adds rows of a table to a small array stores and loads
its sum at every step. A value of type ``Lanes`` stays in a register, and is the machine's widest
vectors put side by side. No operation is contracted or reordered unless ``fma`` says so: a lane has
the bits that the same scalar operations have.

Nothing here checks bounds.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import extending, types
from numba.extending import models, overload, register_model

# Compiled code calls what it makes; to a type checker it is anything.
_intrinsic: Any = extending.intrinsic
_FLOAT = ir.FloatType()
_I32 = ir.IntType(32)


class Lanes(types.Type):
    """``width`` float32 numbers that one register, or a few, holds."""

    def __init__(self, width: int) -> None:
        self.width = width
        super().__init__(name=f"Lanes({width})")


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, lanes: Lanes) -> None:
        super().__init__(manager, lanes, ir.VectorType(_FLOAT, lanes.width))


def _address(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [index])


def _splat(builder: Any, scalar: Any, width: int) -> Any:
    vector = ir.Constant(ir.VectorType(_FLOAT, width), ir.Undefined)
    one = builder.insert_element(vector, scalar, _I32(0))
    zeros = ir.Constant(ir.VectorType(_I32, width), [0] * width)
    return builder.shuffle_vector(one, vector, zeros)


@_intrinsic
def load(typing: Any, array: Any, index: Any, like: Any) -> Any:
    """``load(array, index, like)``: the numbers from ``index`` on, as many as ``like`` has."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        at = _address(context, builder, array, args[0], args[1])
        return builder.load(builder.bitcast(at, args[2].type.as_pointer()), align=4)

    return like(array, types.int64, like), code


@_intrinsic
def store(typing: Any, array: Any, index: Any, value: Any) -> Any:
    """``store(array, index, value)``: put the lanes from ``index`` on."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        at = _address(context, builder, array, args[0], args[1])
        at = builder.bitcast(at, args[2].type.as_pointer())
        builder.store(args[2], at, align=4)
        return context.get_dummy_value()

    return types.void(array, types.int64, value), code


@_intrinsic(prefer_literal=True)
def splat(typing: Any, scalar: Any, width: Any) -> Any:
    """``splat(scalar, width)``: the number in each lane."""
    lanes = Lanes(width.literal_value)

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _splat(builder, args[0], lanes.width)

    return lanes(types.float32, width), code


def _arithmetic(instruction: str) -> Any:
    @_intrinsic
    def operation(typing: Any, a: Any, b: Any) -> Any:
        lanes = a if isinstance(a, Lanes) else b

        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            left, right = (
                value if isinstance(kind, Lanes) else _splat(builder, value, lanes.width)
                for value, kind in zip(args, (a, b), strict=True)
            )
            return getattr(builder, instruction)(left, right)

        return lanes(a, b), code

    return operation


_add, _sub, _mul = (_arithmetic(name) for name in ("fadd", "fsub", "fmul"))


def _operands(a: Any, b: Any) -> bool:
    """Two lanes, or lanes and a float32."""
    kinds = (isinstance(a, Lanes), isinstance(b, Lanes))
    return any(kinds) and (all(kinds) or types.float32 in (a, b))


@overload(operator.add, strict=False)
def _plus(a: Any, b: Any) -> Callable[..., Any] | None:
    return (lambda a, b: _add(a, b)) if _operands(a, b) else None


@overload(operator.sub, strict=False)
def _minus(a: Any, b: Any) -> Callable[..., Any] | None:
    return (lambda a, b: _sub(a, b)) if _operands(a, b) else None


@overload(operator.mul, strict=False)
def _times(a: Any, b: Any) -> Callable[..., Any] | None:
    return (lambda a, b: _mul(a, b)) if _operands(a, b) else None


@_intrinsic
def item(typing: Any, array: Any, index: Any) -> Any:
    """``item(array, index)``: ``array[index]`` for an index that is not negative.

    Numba's own indexing asks at every access whether the index counts from the end; that doubles
    the time of a loop that does little else.
    """

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(_address(context, builder, array, args[0], args[1]))

    return array.dtype(array, types.int64), code


@_intrinsic
def absolute(typing: Any, lanes: Any) -> Any:
    """``absolute(lanes)``: each lane without its sign."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        bits = ir.VectorType(_I32, lanes.width)
        mask = ir.Constant(bits, [0x7FFFFFFF] * lanes.width)
        value = builder.and_(builder.bitcast(args[0], bits), mask)
        return builder.bitcast(value, args[0].type)

    return lanes(lanes), code


@_intrinsic
def occupied(typing: Any, lanes: Any) -> Any:
    """``occupied(lanes)``: whether any lane is not zero."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        zeros = ir.Constant(args[0].type, [0.0] * lanes.width)
        different = builder.fcmp_unordered("!=", args[0], zeros)
        bits = builder.bitcast(different, ir.IntType(lanes.width))
        return builder.icmp_unsigned("!=", bits, bits.type(0))

    return types.boolean(lanes), code


@_intrinsic
def lanes_of(typing: Any, lanes: Any) -> Any:
    """``lanes_of(lanes)``: how many there are, a constant."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.get_constant(types.int64, lanes.width)

    return types.int64(lanes), code


@_intrinsic
def gather(typing: Any, table: Any, index: Any, at: Any, like: Any) -> Any:
    """``gather(table, index, at, like)``: ``table[index[at]]``, ``table[index[at + 1]]`` and so on.

    ``index`` is of int32, and as many of it are read as ``like`` has lanes.
    """

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        width = like.width
        rows = ir.VectorType(_I32, width)
        start = _address(context, builder, index, args[1], args[2])
        rows = builder.load(builder.bitcast(start, rows.as_pointer()), align=4)
        data = context.make_array(table)(context, builder, args[0]).data
        vector = ir.Constant(ir.VectorType(_FLOAT, width), ir.Undefined)
        for lane in range(width):
            row = builder.zext(builder.extract_element(rows, _I32(lane)), ir.IntType(64))
            value = builder.load(builder.gep(data, [row]))
            vector = builder.insert_element(vector, value, _I32(lane))
        return vector

    return like(table, index, types.int64, like), code


@_intrinsic
def fma(typing: Any, factor: Any, lanes: Any, addend: Any) -> Any:
    """``fma(factor, lanes, addend)``: ``factor * lanes + addend``, rounded once.

    The factor is a float32 or lanes.
    """

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = args[1].type
        name = f"llvm.fma.v{lanes.width}f32"
        function = builder.module.globals.get(name) or ir.Function(
            builder.module, ir.FunctionType(kind, [kind] * 3), name
        )
        first = args[0]
        if not isinstance(factor, Lanes):
            first = _splat(builder, first, lanes.width)
        return builder.call(function, [first, args[1], args[2]])

    return lanes(factor if isinstance(factor, Lanes) else types.float32, lanes, lanes), code
