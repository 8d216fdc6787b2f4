"""Arithmetic on bytes that hold integers of 4 or 2 bits."""

from collections.abc import Sequence
from functools import reduce
from typing import Any

import ml_dtypes
import numpy as np

from jq.ir import dtype_of, ir, shape_of, tensor_type
from jq.ir.arrays import StableHloOps
from jq.ir.build import strided_slice

OPS = StableHloOps()
BYTE = np.dtype(np.int8)


def width_of(kind: np.dtype[Any]) -> int:
    return int(ml_dtypes.iinfo(kind).bits)


def bits(x: ir.Value, kind: np.dtype[Any]) -> ir.Value:
    """The lowest bits of bytes, the others zero."""
    return OPS.bit_and(x, full(x, 2 ** width_of(kind) - 1))


def number(x: ir.Value, kind: np.dtype[Any]) -> tuple[ir.Value, ir.Value]:
    """The number that the lowest bits of bytes are, after the only op here that reads `x`."""
    if ml_dtypes.iinfo(kind).min == 0:
        return (masked := bits(x, kind)), masked
    rest = full(x, 8 - width_of(kind))
    return (high := OPS.shift_left(x, rest)), OPS.shift_right_signed(high, rest)


def full(like: ir.Value, value: int) -> ir.Value:
    """One number in the shape of a value."""
    return OPS.broadcast(OPS.constant(np.array(value, BYTE)), shape_of(like), [])


def split(x: ir.Value, kind: np.dtype[Any], shape: Sequence[int]) -> ir.Value:
    """The numbers that lie in wider integers, along a new last axis, the lowest bits first."""
    size = dtype_of(x).itemsize
    whole = _cast(x, [*shape_of(x), *[size][: size > 1]], BYTE)
    shifted = [OPS.shift_right(whole, full(whole, start)) for start in range(0, 8, width_of(kind))]
    parts = [OPS.reshape(number(v, kind)[1], [*shape_of(v), 1]) for v in shifted]
    return OPS.reshape(OPS.concatenate(parts, len(shape_of(whole))), shape)


def join(x: ir.Value, kind: np.dtype[Any], shape: Sequence[int], dtype: np.dtype[Any]) -> ir.Value:
    """The wider integers that numbers along the last axis make up, the lowest bits first."""
    per = 8 // width_of(kind)
    whole = [*shape, *[dtype.itemsize][: dtype.itemsize > 1]]
    groups = OPS.reshape(bits(x, kind), [*whole, per])

    def part(i: int) -> ir.Value:
        start, stop = [*[0] * len(whole), i], [*whole, i + 1]
        one = strided_slice(groups, start, stop, [1] * len(start))
        return OPS.shift_left(one, full(one, i * width_of(kind)))

    joined = reduce(OPS.bit_or, [part(i) for i in range(per)])
    return _cast(OPS.reshape(joined, whole), shape, dtype)


def _cast(x: ir.Value, shape: Sequence[int], dtype: np.dtype[Any]) -> ir.Value:
    if dtype_of(x) == dtype:
        return x
    return ir.Operation.create(
        "stablehlo.bitcast_convert", results=[tensor_type(shape, dtype)], operands=[x]
    ).result
