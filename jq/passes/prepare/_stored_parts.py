"""Codes, scale and zero point that a model's own arithmetic makes a weight from.

    reshape (multiply (reshape (convert %codes : i4)), (broadcast %scale))     blocks of 32

Backwards from a float value that weights alone make: what moves elements moves all the parts,
factors go into the scale, what is subtracted from codes is their zero point, until integers or
8-bit floats are found, or a lookup of numbers in a table. New ops compute the parts in the shape of
the value; `recognize-dequantize` evaluates them, and looks whether they give its numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from jq.formats.fp4 import NORMAL_QUANTILES
from jq.ir import Program, at, dtype_of, ir, shape_of
from jq.ir.arrays import StableHloOps
from jq.ir.build import like
from jq.ir.constants import evaluate
from jq.ir.values import maker
from jq.ops.base import Movement, rule_of

OPS = StableHloOps()
FLOATS = ("float32", "bfloat16", "float16")
WORK = ("stablehlo.multiply", "stablehlo.divide", "stablehlo.subtract", "stablehlo.add")


@dataclass(frozen=True)
class Arriving:
    """`scale * (codes - zero)`, all in the shape of the value; None: 1, and 0.

    `table`: the codes are indices into the quantiles of `nf4`.
    """

    codes: ir.Value
    scale: ir.Value | None = None
    zero: ir.Value | None = None
    table: bool = False

    def moved(self, op: Any) -> Arriving:
        """Every part as a movement moves the value."""
        shape = shape_of(op.operation.results[0])
        rest = list(op.operation.operands)[1:]

        def move(part: ir.Value | None) -> ir.Value | None:
            return None if part is None else like(op, [part, *rest], shape, dtype_of(part))

        codes = move(self.codes)
        assert codes is not None
        return replace(self, codes=codes, scale=move(self.scale), zero=move(self.zero))


def arriving(program: Program, value: ir.Value) -> Arriving | None:
    """The parts of a value that weights alone make, computed right behind it; None where it does
    not come quantized."""
    kind = dtype_of(value)
    if kind.name not in FLOATS:
        return Arriving(value) if kind.kind != "b" and kind.name not in ("float64",) else None
    op = maker(value)
    if op is None:
        return None
    with at(op, after=True):
        return _through(program, op)


def _through(program: Program, op: Any) -> Arriving | None:
    operands, name = list(op.operation.operands), op.operation.name
    if name == "stablehlo.gather":
        return _looked_up(program, op)
    if name in WORK:
        return _computed(program, name, operands)
    if name == "stablehlo.convert":
        return arriving(program, operands[0])
    if isinstance(rule_of(op), Movement):
        found = arriving(program, operands[0])
        if found is not None:
            with at(op, after=True):
                return found.moved(op)
    return None


def _computed(program: Program, name: str, operands: list[ir.Value]) -> Arriving | None:
    sides = [arriving(program, v) for v in operands]
    commutes = name in (WORK[0], WORK[3])
    for found, other in zip(sides if commutes else sides[:1], operands[::-1], strict=False):
        if found is None:
            continue
        by = OPS.convert(other, np.float32)
        if name == "stablehlo.multiply":
            return replace(found, scale=by if found.scale is None else OPS.mul(found.scale, by))
        if name == "stablehlo.divide":
            one = OPS.broadcast(OPS.constant(np.ones((), np.float32)), shape_of(by), [])
            return replace(found, scale=OPS.div(one if found.scale is None else found.scale, by))
        if found.scale is None and found.zero is None:
            zero = by if name == "stablehlo.subtract" else OPS.mul(by, _minus_one(by))
            return replace(found, zero=zero)
    return None


def _minus_one(x: ir.Value) -> ir.Value:
    return OPS.broadcast(OPS.constant(np.array(-1, np.float32)), shape_of(x), [])


def _looked_up(program: Program, op: Any) -> Arriving | None:
    """One number of the table for each index."""
    table, indices = op.operation.operands
    numbers, shape = evaluate(program, table), shape_of(op.operation.results[0])
    nf4 = np.asarray(NORMAL_QUANTILES, np.float32)
    if numbers is None or not np.array_equal(numbers.astype(np.float32), nf4):
        return None
    if math.prod(shape) != math.prod(shape_of(indices)):
        return None
    return Arriving(OPS.reshape(indices, shape), table=True)
