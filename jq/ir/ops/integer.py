"""Arithmetic shared by the contractions: accumulator types, corrections, rescale."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from jq.ir import OPS, Program, dtype_of, evaluate, ir, shape_of
from jq.ir.ops.base import Axes, QuantizedOperand

Spread = Callable[[ir.Value], ir.Value]  # a grid of one operand -> the shape of the result


def accumulator(lhs: QuantizedOperand, rhs: QuantizedOperand) -> Any:
    """The type of sums: int32 for 8-bit operands, int64 as soon as one is wider."""
    wide = max(dtype_of(lhs.codes).itemsize, dtype_of(rhs.codes).itemsize) > 1
    return np.int64 if wide else np.int32


def block_sums(x: QuantizedOperand, contracted: Axes, dtype: Any) -> ir.Value:
    """Sum of the codes over `contracted` (those axes of size 1): stored when known, else computed.
    Stored ones are of whole blocks: of no use where a scale is shared along other axes too."""
    wanted = tuple(1 if a in contracted else n for a, n in enumerate(shape_of(x.codes)))
    if x.sum is not None and shape_of(x.sum) == wanted:
        return OPS.convert(x.sum, dtype)
    return OPS.reduce_sum(OPS.convert(x.codes, dtype), sorted(contracted))


def centred(x: QuantizedOperand, dtype: Any) -> ir.Value:
    """`code - zero point` in a type that holds both."""
    return _less(OPS.convert(x.codes, dtype), x.zero_point, 1)


def centred_sums(x: QuantizedOperand, contracted: Axes, dtype: Any) -> ir.Value:
    """Sum over `contracted` of `code - zero point`."""
    terms = math.prod(shape_of(x.codes)[a] for a in contracted)
    return _less(block_sums(x, contracted, dtype), x.zero_point, terms)


def _less(value: ir.Value, zero: ir.Value | None, terms: int) -> ir.Value:
    if zero is None:
        return value
    shape = shape_of(value)
    zero = OPS.broadcast(OPS.convert(zero, dtype_of(value)), shape, range(len(shape)))
    return OPS.sub(value, OPS.mul(terms, zero) if terms != 1 else zero)


def real_sums(x: QuantizedOperand, contracted: Axes) -> ir.Value:
    """Sum over `contracted` of the numbers that the codes stand for (without an offset), f32."""
    dtype = np.dtype(np.int64 if dtype_of(x.codes).itemsize > 1 else np.int32)
    sums = OPS.convert(centred_sums(x, contracted, dtype), np.float32)
    return OPS.mul(sums, OPS.broadcast(x.scale, shape_of(sums), range(len(shape_of(sums)))))


def correct(
    acc: ir.Value,
    lhs: QuantizedOperand,
    rhs: QuantizedOperand,
    contracted: tuple[Axes, Axes],
    terms: int,
    spread: tuple[Spread, Spread],
) -> ir.Value:
    """sum((a - za) * (b - zb)) from acc = sum(a * b), all in the accumulator's integers: it is
    acc - za * sum(b) - zb * sum(a) + terms * za * zb."""
    dtype = dtype_of(acc)
    zeros = [
        None if x.zero_point is None else s(OPS.convert(x.zero_point, dtype))
        for x, s in zip((lhs, rhs), spread, strict=True)
    ]
    if zeros[0] is not None:
        sums = spread[1](block_sums(rhs, contracted[1], dtype))
        acc = OPS.sub(acc, OPS.mul(zeros[0], sums))
    if zeros[1] is not None:
        sums = spread[0](block_sums(lhs, contracted[0], dtype))
        acc = OPS.sub(acc, OPS.mul(zeros[1], sums))
    if zeros[0] is not None and zeros[1] is not None:
        acc = OPS.add(acc, OPS.mul(terms, OPS.mul(zeros[0], zeros[1])))
    return acc


def rescale(
    program: Program,
    acc: ir.Value,
    scales: tuple[ir.Value, ir.Value],
    spread: tuple[Spread, Spread],
    name: str,
) -> ir.Value:
    """float32(acc) * (scale_lhs * scale_rhs): one multiplication of the accumulator, by a constant
    where both scales are known now, and one is a scalar."""
    lhs, rhs = (evaluate(program, s) for s in scales)
    if lhs is not None and rhs is not None and 1 in (lhs.size, rhs.size):
        side = 1 if lhs.size == 1 else 0
        product = (lhs.reshape(-1) * rhs.reshape(-1)).reshape((lhs, rhs)[side].shape)
        factor = spread[side](constant_or_weight(program, product, f"{name}:rescale"))
    else:
        factor = OPS.mul(spread[0](scales[0]), spread[1](scales[1]))
    return OPS.mul(OPS.convert(acc, np.float32), factor)


def number_or_weight(program: Program, name: str, value: np.ndarray) -> ir.Value:
    """One number in the text, more as a weight of the program."""
    return program.add_weight(name, value) if value.ndim else OPS.constant(value)


def constant_or_weight(program: Program, value: np.ndarray, name: str) -> ir.Value:
    """Small data in the text, the rest as a weight of the program."""
    return OPS.constant(value) if value.size <= 16 else program.add_weight(name, value)
