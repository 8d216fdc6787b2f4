"""The amount of arithmetic in a program's contractions."""

import math
from dataclasses import dataclass

from jq.ir import Op, Program, shape_of, stablehlo
from jq.ir.ops.dims import Dims

DOT, CONVOLUTION = "stablehlo.dot_general", "stablehlo.convolution"


@dataclass(frozen=True)
class Work:
    """Operations of one call, two for a multiply-add; a loop's body counts once."""

    products: int
    convolutions: int

    @property
    def total(self) -> int:
        return self.products + self.convolutions


def work_of(program: Program) -> Work:
    """The operations of all products and convolutions of one call; a loop's body counts once."""
    totals = {DOT: 0, CONVOLUTION: 0}
    for op in program.walk():
        if op.operation.name in totals:
            totals[op.operation.name] += operations(op)
    return Work(totals[DOT], totals[CONVOLUTION])


def operations(op: Op) -> int:
    """Those of one product, two for a multiply-add."""
    lhs, rhs = (shape_of(v) for v in list(op.operands)[:2])
    if op.operation.name == DOT:
        depth = math.prod(lhs[a] for a, _ in Dims.of(op).contract)
    else:
        numbers = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
        depth = math.prod(rhs) // max(1, rhs[numbers.kernel_output_feature_dimension])
    return 2 * math.prod(shape_of(op.results[0])) * depth
