"""Expressions of weights alone are evaluated now, where a contraction reads them.

    dot_general %x, (multiply %w, %mask)  ->  dot_general %x, %w'      // one new weight

Fires when what stands behind an operand, beyond ops that only move elements, is computed from
weights and constants; a weight is then found there and can be quantized. So is a product of weights
and constants (of a state that starts as zeros, say), and a sum of integers (the columns of codes,
that zero points are corrected with) or of windows (how many elements an average is of). It does not
fire on anything that grows: a broadcast of a vector stays what it is. Where a device multiplies by
weights alone, or has integers alone, a matrix that is computed from constants becomes one. Weights
that came quantized are not computed with, but joined (`_join_stored`)."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from jq.base.deep import Steps, deep, every
from jq.ir import NAME, Op, Program, at, dtype_of, func, ir, last_of, maker, shape_of, string_attr
from jq.ir.build import i64_attr, integer
from jq.ir.markers import DEQUANTIZE, match
from jq.ir.ops import Contraction, rule_of
from jq.ir.oracle.xla import XlaExecutable
from jq.passes.base import Pass, PassContext
from jq.passes.prepare._join_stored import join_stored
from jq.planning.operands import unmoved

TAG = "jq.fold"
REDUCED = {"stablehlo.reduce": "i", "stablehlo.reduce_window": "if"}  # of these types
LARGEST = 1 << 20  # elements of a matrix that the model computes from nothing


class FoldWeights(Pass):
    def run(self, program: Program, cx: PassContext) -> bool:
        joined, constant = join_stored(program), Constant(program)
        found: dict[Any, str] = {}
        matrices = not cx.target.device.computes_matrices
        for op in program.walk():
            for value in _results(op):
                names, size = constant.weights(value), math.prod(shape_of(value))
                computed = maker(value, "stablehlo.constant") is None  # as that of a resize
                if matrices and names == set() and computed and size <= LARGEST:
                    found[value] = string_attr(op, NAME) or "constant"
                sizes = {n: a.size for n, a in program.weights.items() if n in (names or ())}
                own = program.weight_name(value) is not None
                if names and not own and size <= sum(sizes.values()):
                    found[value] = max(sizes, key=sizes.__getitem__)
        if not found:
            return joined
        for value, array in evaluate_all(program, found).items():
            value.replace_all_uses_with(program.add_weight(found[value], array))
        program.drop_dead()
        return True


def _results(op: Op) -> list[ir.Value]:
    """The values that are evaluated if weights alone make them."""
    rule, results = rule_of(op), list(op.results)
    if isinstance(rule, Contraction):
        roles = rule.roles(op)
        read = [unmoved(op.operands[role.index]) for role in roles]
        return [*read, *(results if len(roles) > 1 else ())]
    kinds = REDUCED.get(op.operation.name, "")
    return results if len(results) == 1 and dtype_of(results[0]).kind in kinds else []


class Constant:
    """Finds the weights that a value is computed from, if from nothing else; cached by value.

    `stored`: also from weights that are stored quantized, which otherwise stay as they are."""

    def __init__(self, program: Program, stored: bool = False) -> None:
        self.program, self.stored = program, stored
        self.known: dict[Any, set[str] | None] = {}

    @deep
    def weights(self, value: ir.Value) -> Steps[set[str] | None]:
        if value not in self.known:
            self.known[value] = yield from self._compute(value)
        return self.known[value]

    def _compute(self, value: ir.Value) -> Steps[set[str] | None]:
        name = self.program.weight_name(value)
        if name is not None:
            return {name}
        owner = maker(value)
        if owner is None or owner.operation.block != self.program.body:
            return None
        opaque = len(owner.regions) and owner.operation.name not in REDUCED
        if opaque or (match(owner, DEQUANTIZE) and not self.stored):
            return None
        found = yield from every((self, operand) for operand in owner.operands)
        return None if found is None else set().union(*found)


def evaluate_all(program: Program, computed: Iterable[ir.Value]) -> dict[ir.Value, Any]:
    """Values of the program that no input changes, by running a copy; a weight is itself."""
    named = {v: program.weight_name(v) for v in computed}
    known = {v: program.weights[name] for v, name in named.items() if name is not None}
    if not (values := [v for v, name in named.items() if name is None]):
        return known
    for i, value in enumerate(values):
        with at(value.owner):
            value.owner.attributes[TAG] = i64_attr(i)
    copy = program.clone()
    wanted: dict[int, ir.Value] = {}
    for op in copy.walk():
        if TAG in op.attributes:
            wanted[integer(op, TAG)] = op.results[0]
    for value in values:
        del value.owner.attributes[TAG]
    last = last_of(copy.body)
    with at(last):
        func.ReturnOp([wanted[i] for i in range(len(values))])
    last.operation.erase()
    copy.refresh()
    copy.drop_dead()  # the weights that matter, and no others
    blank = [np.zeros(i.shape, i.dtype) for i in copy.inputs]
    return known | dict(zip(values, XlaExecutable(copy)(*blank), strict=True))
