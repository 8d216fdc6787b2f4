"""Products that sum over nothing and widen are written as multiplications.

    dot_general(%x : 3x5x1xi8, %w : 1x8xi8) -> 3x5x8xi32, contracting a dimension of size 1
    ->
    multiply(broadcast (convert %x), broadcast (convert %w))

IREE 3.13 does the same itself, but loses its conversion, or crashes, where the operand is converted
for another reader as well.
"""

from __future__ import annotations

from dataclasses import dataclass

from jq.ir import Op, Program, at, dtype_of, ir, shape_of
from jq.ir.arrays import StableHloOps
from jq.ir.build import replace
from jq.ir.ops.dims import Dims
from jq.passes.base import Pass, PassContext

OPS = StableHloOps()


@dataclass(frozen=True)
class MultiplyOuter(Pass):
    name = "multiply-outer"

    def run(self, program: Program, cx: PassContext) -> bool:
        found = [op for op in program.walk() if is_outer(op)]
        for op in found:
            with at(op):
                value = _multiplied(op)
            replace(op, [value])
        return bool(found)


def is_outer(op: Op) -> bool:
    """Whether an op is a product with one term, of another type than an operand."""
    dims = Dims.match(op)
    if dims is None:
        return False
    shape = shape_of(op.operation.operands[0])
    types = {dtype_of(v) for v in (*op.operation.operands, op.operation.results[0])}
    return len(types) > 1 and all(shape[a] == 1 for a in dims.contracted(0))


def _multiplied(op: Op) -> ir.Value:
    dims, result = Dims.of(op), op.operation.results[0]
    operands = list(op.operation.operands)
    shapes = [shape_of(v) for v in operands]
    wide = [OPS.convert(v, dtype_of(result)) for v in operands]
    return OPS.mul(*(dims.spread(side, *shapes)(v) for side, v in enumerate(wide)))
