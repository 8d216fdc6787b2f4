"""Factors of rows or columns that are computed from a quantized weight become numbers.

    %length = sqrt (reduce (multiply %w, %w))        // %w = scale * codes + a @ b
    divide %w, (broadcast %length)
    ->
    divide %w, (broadcast 3.1, 2.9, ...)

DoRA has them: the length of each column of a weight with its update. As numbers they scale the
product's result (`distribute-products`), and the codes stay.
"""

import math
from typing import Any

from jq.ir import Program, at, ir, shape_of
from jq.ir.build import constant as constant_op
from jq.ir.slicing import compute
from jq.ir.values import maker
from jq.passes.prepare.fold_weights import Constant, evaluate_all
from jq.passes.prepare.stored_weights import FLOATS

SCALED = ("stablehlo.multiply", "stablehlo.divide")
FEWER = 8  # times, than what they scale


def fold_factors(program: Program) -> None:
    """Evaluates them; those that are constants already stay as they are."""
    constant, factors = Constant(program), dict[Any, None]()
    for op in program.walk():
        if op.operation.name not in SCALED or not constant.weights(op.results[0]):
            continue
        size = math.prod(shape_of(op.results[0]))
        for value in op.operands:
            spread = maker(value, "stablehlo.broadcast_in_dim")
            factor = None if spread is None else spread.operands[0]
            if factor is None or FEWER * math.prod(shape_of(factor)) > size:
                continue
            if _of_codes(program, factor, constant) and compute(program, factor) is None:
                factors[factor] = None
    for factor, array in zip(
        factors, evaluate_all(program, list(factors)) if factors else (), strict=True
    ):
        with at(factor.owner, after=True):
            factor.replace_all_uses_with(constant_op(array))


def _of_codes(program: Program, value: ir.Value, constant: Constant) -> bool:
    """True if weights alone make a value, integers or 8-bit floats among them."""
    names = constant.weights(value) or ()
    return maker(value) is not None and any(
        program.weights[n].dtype.name not in FLOATS for n in names
    )
