"""Numbers that kernels read inside a loop and outside of it are hidden from the compiler.

    %c = constant dense<0.5> : tensor<1xf32>
    call @jq_quantize_rows(%x, %c)            // and in a loop, too
    ->
    %b = optimization_barrier (constant dense<0.5> : tensor<1xf32>)
    call @jq_quantize_rows(%x, %b)

IREE makes a constant of equal elements anew where it is used, and may put one that stands between
and after loops nowhere.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from jq.ir import Op, Program, at, ir
from jq.ir.build import barrier
from jq.passes.base import PassContext
from jq.passes.iree_mends.mend import Mend

LOOP = "stablehlo.while"


@dataclass(frozen=True)
class ShieldSplats(Mend):
    """A constant that kernels read both in a loop and outside it may be left undefined; a weight
    whose elements are all equal becomes such a constant.
    Trap: traps/test_recurrent.py::test_numbers_of_two_loops
    """

    name = "shield-splats"

    def left(self, program: Program) -> list[list[Any]]:
        found = _read_by_kernels(program).values()
        return [uses for uses in found if len({_in_loop(use.owner) for use in uses}) > 1]

    def run(self, program: Program, cx: PassContext) -> bool:
        found = self.left(program)
        for uses in found:
            shared = _shielded(program, uses[0].owner.operation.operands[uses[0].operand_number])
            for use in uses:
                use.owner.operation.operands[use.operand_number] = shared
        return program.drop_unused_weights() or bool(found)


def _shielded(program: Program, value: Any) -> Any:
    with at(program.body.operations[0]):
        if program.weight_name(value) is None:
            value = value.owner.operation.clone().result
        return barrier(value)


def _read_by_kernels(program: Program) -> dict[Any, list[Any]]:
    """Uses of numbers that are all equal by calls; equal constants, and weights, are one."""
    found = defaultdict(list)
    for value, data in _constants(program):
        calls = [u for u in value.uses if u.owner.name == "func.call"]
        if calls and (number := _element(data)) is not None:
            found[str(value.type), number].extend(calls)
    return found


def _constants(program: Program) -> Iterator[tuple[Any, Any]]:
    """Weights and constants with their data."""
    for name, array in program.weights.items():
        yield program.weight(name), array
    for op in program.walk():
        if op.operation.name == "stablehlo.constant":
            yield op.operation.results[0], op.operation.attributes["value"]


def _element(data: Any) -> Any:
    """The number that all elements are; None where they differ."""
    if isinstance(data, np.ndarray):
        same = data.size and (data == data.flat[0]).all()
        return data.flat[0].item() if same else None
    if isinstance(data, ir.DenseElementsAttr) and data.is_splat:
        return data.get_splat_value().value
    return None


def _in_loop(op: Op) -> bool:
    parent = op.operation.parent
    while parent is not None and parent.name != "func.func":
        if parent.name == LOOP:
            return True
        parent = parent.parent
    return False
