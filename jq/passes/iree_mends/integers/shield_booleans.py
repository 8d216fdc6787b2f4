"""Truth values that a float product reads as numbers are written down as numbers.

    dot_general (convert %one_hot), %w               // from i1
    ->
    dot_general (optimization_barrier (convert ...)), %w

IREE 3.13 takes the conversion into the product and cannot pack i1: it refuses the whole program
when float products are to be packed, which is then compiled without that (a product in a quarter of
the speed).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jq.ir import Op, Program, at, dtype_of, ir
from jq.ir.ops.base import Movement
from jq.ir.ops.lookup import multiplies, rule_of
from jq.ir.values import maker
from jq.passes.base import Pass, PassContext
from jq.passes.iree_mends.widen_depthwise import barrier


@dataclass(frozen=True)
class ShieldBooleans(Pass):
    name = "shield-booleans"

    def run(self, program: Program, cx: PassContext) -> bool:
        changed = False
        for op in [op for op in program.walk() if multiplies(op)]:
            for i in (0, 1):
                if _is_boolean(op.operation.operands[i]):
                    with at(op):
                        op.operation.operands[i] = barrier(op.operation.operands[i])
                    changed = True
        return changed


def reads_booleans(op: Op) -> bool:
    """Whether a product reads what is converted from truth values."""
    return multiplies(op) and any(map(_is_boolean, list(op.operation.operands)[:2]))


def _is_boolean(value: ir.Value) -> bool:
    """Whether truth values are made numbers, and at most moved from there on."""
    while (op := maker(value)) is not None:
        source = list(op.operation.operands)[:1]
        if op.operation.name == "stablehlo.convert" and dtype_of(source[0]) == np.bool_:
            return True
        if not isinstance(rule_of(op), Movement):
            return False
        value = source[0]
    return False
