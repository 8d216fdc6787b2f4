"""Numbers without a sign, computed in signed integers of the same bits."""

from typing import Any

import numpy as np

from jq.ir import dtype_of, ir, shape_of, tensor_type
from jq.ir.arrays import StableHloOps

OPS = StableHloOps()


def converted(x: ir.Value, result: np.dtype[Any]) -> ir.Value:
    source = dtype_of(x)
    if source.kind == "u":
        narrow = result.kind in "iu" and result.itemsize <= source.itemsize
        if narrow or result.kind == "b":
            return _narrowed(cast(x, signed(source)), result)
        if result.kind in "iu":
            return cast(widened(x, signed(result)), result)
        return _to(widened(x, np.dtype(f"i{max(4, 2 * source.itemsize)}")), result)
    if source.kind in "iub":
        return _narrowed(x, result)
    return _narrowed(_to(x, np.dtype(f"i{2 * result.itemsize}")), result)


def _narrowed(x: ir.Value, result: np.dtype[Any]) -> ir.Value:
    if result.kind != "u":
        return _to(x, result)
    return cast(_to(x, signed(result)), result)


def _to(x: ir.Value, result: np.dtype[Any]) -> ir.Value:
    """A conversion between any two types."""
    if dtype_of(x) == result:
        return x
    return ir.Operation.create(
        "stablehlo.convert", results=[tensor_type(shape_of(x), result)], operands=[x]
    ).result


def widened(x: ir.Value, wide: np.dtype[Any]) -> ir.Value:
    """The same number as a wider signed integer."""
    source = dtype_of(x)
    bits = OPS.convert(cast(x, signed(source)), wide)
    mask = OPS.constant(np.array(np.iinfo(source).max, wide))
    return OPS.bit_and(bits, OPS.broadcast(mask, shape_of(x), ()))


def shifted(x: ir.Value) -> ir.Value:
    return flipped(cast(x, signed(dtype_of(x))))


def flipped(x: ir.Value) -> ir.Value:
    """The highest bit changed."""
    kind = dtype_of(x)
    high = OPS.broadcast(OPS.constant(np.array(np.iinfo(kind).min, kind)), shape_of(x), ())
    return ir.Operation.create("stablehlo.xor", results=[x.type], operands=[x, high]).result


def signed(kind: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(f"i{kind.itemsize}")


def bits_of(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(signed(array.dtype)).reshape(array.shape)


def cast(x: ir.Value, kind: np.dtype[Any]) -> ir.Value:
    """The same bits with or without a sign."""
    if dtype_of(x) == kind:
        return x
    return ir.Operation.create(
        "stablehlo.bitcast_convert", results=[tensor_type(shape_of(x), kind)], operands=[x]
    ).result
