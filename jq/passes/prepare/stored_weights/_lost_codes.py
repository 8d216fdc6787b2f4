"""Weights that come quantized in a form that nobody recognised, by name.

Backwards from a float value that weights alone make: codes are integers of a weight (or 8-bit
floats) that become a float each, or indices of a table with fewer numbers than are looked up, be it
by `gather` or by one-hot rows (compared with all indices). What positions and masks are made from
is none of it: no other comparisons are followed, nor what picks from larger tables."""

import math
from typing import Any

from jq.ir import OPS, Program, at, direction_of, dtype_of, ir, maker, shape_of
from jq.ir.slicing import compute
from jq.passes.prepare.fold_weights import Constant, evaluate_all
from jq.passes.prepare.stored_weights import FLOATS
from jq.planning.operands import unmoved

GATHER, COMPARE = "stablehlo.gather", "stablehlo.compare"
BROADCAST = "stablehlo.broadcast_in_dim"


def lost_codes(program: Program, value: ir.Value, constant: Constant) -> str | None:
    """The weight that holds the codes of a value; None where it is made from floats alone."""
    seen, waiting = set[ir.Value](), [(value, math.prod(shape_of(value)))]
    while waiting:
        at, size = waiting.pop()
        if at in seen:
            continue
        seen.add(at)
        if _one_hot(at):
            waiting += [(_spread(v), size) for v in at.owner.operands]
        elif dtype_of(at).name not in FLOATS:
            # Integers or 8-bit floats, where there is one for each number.
            many = dtype_of(at).kind != "b" and math.prod(shape_of(at)) >= size
            if many and (names := constant.weights(at)):
                return max(names, key=lambda n: (program.weights[n].nbytes, n))
        elif (op := maker(at)) is not None:
            operands = list(op.operands)
            looked_up = op.operation.name == GATHER
            if looked_up and math.prod(shape_of(operands[0])) < size:
                index = math.prod(shape_of(operands[1]))
                width = math.prod(shape_of(at)) // max(index, 1)  # numbers of one index
                waiting.append((operands[1], size // max(width, 1)))
            waiting += [(v, size) for v in (operands[:1] if looked_up else operands)]
    return None


def _one_hot(value: ir.Value) -> bool:
    """True if it says for which index each integer is equal."""
    op = maker(value, COMPARE)
    if op is None or direction_of(op) != "EQ":
        return False
    kinds = [maker(_spread(v)) for v in op.operands]
    return any(kind is not None and kind.operation.name == "stablehlo.iota" for kind in kinds)


def _spread(value: ir.Value) -> ir.Value:
    """The value that is repeated, or only moved."""
    while (op := maker(unmoved(value))) is not None and op.operation.name == BROADCAST:
        value = op.operands[0]
    return unmoved(value)


# Factors of rows or columns that are computed from a quantized weight become numbers.
#
#     %length = sqrt (reduce (multiply %w, %w))        // %w = scale * codes + a @ b
#     divide %w, (broadcast %length)
#     ->
#     divide %w, (broadcast 3.1, 2.9, ...)
#
# DoRA has them: the length of each column of a weight with its update. As numbers they scale the
# product's result (`distribute-products`), and the codes stay.
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
            names = constant.weights(factor) or ()  # integers or 8-bit floats among them
            coded = any(program.weights[n].dtype.name not in FLOATS for n in names)
            if coded and maker(factor) is not None and compute(program, factor) is None:
                factors[factor] = None
    for factor, array in evaluate_all(program, factors).items():
        with at(factor.owner, after=True):
            factor.replace_all_uses_with(OPS.constant(array))
