"""Quantized types on the values between ops, not at the edges alone.

    %d = uniform_dequantize %q                   // !quant.uniform<i8:f32, 0.1:3>
    %y = convolution %d, %w : f32
    %z = maximum (add %y, %bias), 0
    %r = uniform_quantize %z
    ->
    %y = convolution %q, %w : !quant.uniform<i32:f32:3, {...}>
    %z = uniform_quantize (add %y, (uniform_quantize %bias))     // i32 -> i8
    %r = maximum %z, (uniform_quantize 0)

A product has the type of its exact sums: 32 bits, with the product of both scales. What is added
to it is a number of that type, off by half such a step; a number that multiplies it goes into the
scale. Bounds follow the quantize, which keeps the order of numbers. Movements and pools of codes
carry the type of the codes. What an op does to the types of its operands its rule says
(`jq/ir/ops`): `sums_products`, `sums`, `factor`, `limits`, `of_one_type`.

Every op that is written so says what it was, and `open_values` finds it again: a program that is
read back is the one that was written, with the numbers that were added as they were.
"""

from __future__ import annotations

from collections.abc import Callable

from jq.ir import Op, Program, ir
from jq.ir.mlir_context import at
from jq.ir.quantized.codes import on_codes
from jq.ir.quantized.factors import on_factors
from jq.ir.quantized.kinds import UNIFORM_QUANTIZE
from jq.ir.quantized.products import on_products
from jq.ir.quantized.sums import bounded, on_sums
from jq.ir.quantized.write import WIDE, outside

WAYS: tuple[Callable[[Program, Op], ir.Value | None], ...] = (
    on_products,
    on_sums,
    on_factors,
    on_codes,
)


def carry_types(program: Program) -> None:
    """Rewrites in place every op that StableHLO has for the types of its operands."""
    for op in outside(program.walk()):
        with at(op):
            if op.operation.name == UNIFORM_QUANTIZE:
                made = None if WIDE in op.operation.attributes else bounded(program, op)
            else:
                made = next((found for way in WAYS if (found := way(program, op))), None)
            if made:
                op.operation.results[0].replace_all_uses_with(made)
                op.operation.erase()
    program.drop_dead()
