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

    Stored sums are of whole blocks: of a weight that shares its scale along other axes too they
    are of no use.
    """
    wanted = tuple(1 if a in contracted else n for a, n in enumerate(shape_of(x.codes)))
    if x.sum is not None and shape_of(x.sum) == wanted:
        return OPS.convert(x.sum, dtype)
    return OPS.reduce_sum(OPS.convert(x.codes, dtype), sorted(contracted))


def real_sums(x: QuantizedOperand, contracted: Axes) -> ir.Value:
    """Sum over `contracted` of the numbers that the codes stand for (without an offset), f32."""
    dtype = np.dtype(np.int64 if dtype_of(x.codes).itemsize > 1 else np.int32)
    sums = block_sums(x, contracted, dtype)
    shape = shape_of(sums)
    if x.zero_point is not None:
        terms = math.prod(shape_of(x.codes)[a] for a in contracted)
        count = OPS.broadcast(OPS.constant(np.asarray(terms, dtype)), shape, [])
        zero = OPS.broadcast(OPS.convert(x.zero_point, dtype), shape, range(len(shape)))
        sums = OPS.sub(sums, OPS.mul(count, zero))
    return OPS.mul(OPS.convert(sums, np.float32), OPS.broadcast(x.scale, shape, range(len(shape))))


def correct(
    acc: ir.Value,
    lhs: QuantizedOperand,
    rhs: QuantizedOperand,
    contracted: tuple[Axes, Axes],
    terms: int,
    spread: tuple[Spread, Spread],
) -> ir.Value:
    """sum((a - za) * (b - zb)) from sum(a * b), all in the accumulator's integers.

    = acc - za * sum(b) - zb * sum(a) + terms * za * zb
    """
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
        count = OPS.broadcast(OPS.constant(np.asarray(terms, dtype)), shape_of(acc), [])
        acc = OPS.add(acc, OPS.mul(count, OPS.mul(zeros[0], zeros[1])))
    return acc


def rescale(
    program: Program,
    acc: ir.Value,
    scales: tuple[ir.Value, ir.Value],
    spread: tuple[Spread, Spread],
    name: str,
) -> ir.Value:
    """float32(acc) * (scale_lhs * scale_rhs): one multiplication of the accumulator.

    Where both scales are known now, and one is a scalar, their product is one constant.
    """
    lhs, rhs = (evaluate(program, s) for s in scales)
    if lhs is not None and rhs is not None and 1 in (lhs.size, rhs.size):
        side = 1 if lhs.size == 1 else 0
        product = (lhs.reshape(-1) * rhs.reshape(-1)).reshape((lhs, rhs)[side].shape)
        factor = spread[side](constant_or_weight(program, product, f"{name}:rescale"))
    else:
        factor = OPS.mul(spread[0](scales[0]), spread[1](scales[1]))
    return OPS.mul(OPS.convert(acc, np.float32), factor)


def constant_or_weight(program: Program, value: np.ndarray, name: str) -> ir.Value:
    """Small data in the text, the rest as a weight of the program."""
    return OPS.constant(value) if value.size <= 16 else program.add_weight(name, value)
