"""Contractions of unsigned integers are computed on signed ones behind a barrier.

    dot_general(%x : ui8, %w) -> dot_general(barrier(convert %x : i32), ...)

IREE 3.13 takes an unsigned operand for a signed one, also through a `convert`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jq.ir import Op, Program, at, dtype_of, ir
from jq.ir.arrays import StableHloOps
from jq.ir.ops.lookup import is_product
from jq.ir.values import maker
from jq.passes.base import Pass, PassContext
from jq.passes.iree_mends.widen_depthwise import barrier

OPS = StableHloOps()


@dataclass(frozen=True)
class ShieldUnsigned(Pass):
    name = "shield-unsigned"

    def run(self, program: Program, cx: PassContext) -> bool:
        changed = False
        for op in program.walk():
            if not is_unsigned(op):
                continue
            result = dtype_of(op.results[0])
            with at(op):
                for i, value in enumerate(op.operands):
                    wide = result if result.kind != "u" else np.dtype(f"i{result.itemsize}")
                    op.operation.operands[i] = barrier(OPS.convert(value, wide))
            changed = True
        return changed


def is_unsigned(op: Op) -> bool:
    """Whether an op is a contraction with an operand that IREE takes for a signed one."""
    return is_product(op) and any(_unsigned(v) for v in op.operands)


def _unsigned(value: ir.Value) -> bool:
    """Whether the value is unsigned, or converted from something unsigned."""
    if dtype_of(value).kind == "u":
        return True
    converted = maker(value, "stablehlo.convert")
    return converted is not None and dtype_of(converted.operands[0]).kind == "u"
