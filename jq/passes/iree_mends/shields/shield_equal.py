"""Hides from the compiler what is reduced, where it is computed from equal constants alone.

    reduce (convert %w), %w a weight of equal elements
    ->
    reduce (optimization_barrier (convert %w))

IREE writes the one number into the sum: that of [[127, 127, 127]] in int8 was 127.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from jq.ir import Op, Program, ir, shape_of
from jq.ir.values import maker
from jq.passes.iree_mends.mend import Read, Shield
from jq.passes.iree_mends.shields.shield_reductions import is_elementwise

REDUCTIONS = ("stablehlo.reduce", "stablehlo.reduce_window")
MOVES = ("stablehlo.broadcast_in_dim", "stablehlo.reshape", "stablehlo.transpose")


@dataclass(frozen=True)
class ShieldEqual(Shield):
    """A sum, or a window, over what is computed from equal constants alone (`jnp.full((2, 3), 7,
    jnp.int8).astype(jnp.int32).sum(1)`, or a weight of equal elements) adds the number once for
    each vector instead of once for each element.
    Trap: traps/test_contractions.py::test_sums_of_equal_numbers
    """

    name = "shield-equal"

    def values(self, program: Program) -> Iterable[Read]:
        equal = _weights(program)
        for op in program.walk():
            if _gives_equal(op, equal):
                equal.update(op.operation.results)
            if op.operation.name in REDUCTIONS:
                read = list(op.operation.operands)[: len(op.operation.operands) // 2]
                yield from ((op, i) for i, v in enumerate(read) if v in equal and _computed(v))


def _computed(value: ir.Value) -> bool:
    """True if it is more than a constant, which IREE reduces rightly."""
    op = maker(value)
    return op is not None and op.operation.name != "stablehlo.constant"


def _weights(program: Program) -> set[ir.Value]:
    """Those whose elements are one number."""
    return {program.weight(name) for name, data in program.weights.items() if _is_one(data)}


def _is_one(data: object) -> bool:
    if not isinstance(data, np.ndarray) or not data.size:
        return False
    first = data.flat[0]
    return bool(first == data.flat[-1] and (data == first).all())  # the last is read first: cheap


def _gives_equal(op: Op, equal: set[ir.Value]) -> bool:
    """True if all elements of a result are one number, which constants alone decide."""
    name, operands = op.operation.name, op.operation.operands
    if name == "stablehlo.constant":
        data = op.operation.attributes["value"]
        return isinstance(data, ir.DenseElementsAttr) and data.is_splat
    if name == "stablehlo.optimization_barrier" or len(op.operation.results) != 1:
        return False
    if not len(operands) or any(operand not in equal for operand in operands):
        return False
    return name in MOVES or is_elementwise(op) or not shape_of(op.operation.results[0])
