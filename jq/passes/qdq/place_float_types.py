"""A contraction that stays float is computed in the float type that a rule gives it.

    dot_general %x, %w : f32  ->  dot_general (convert %x), (convert %w) : bf16 x bf16 -> f32

Products are summed in float32. Ops that read the same value share one conversion.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from jq.ir import Program, at, dtype_of, ir, shape_of
from jq.ir.arrays import StableHloOps
from jq.ir.build import like, replace
from jq.passes.base import Pass, PassContext
from jq.planning.operands import contractions, op_name

OPS = StableHloOps()


@dataclass(frozen=True)
class PlaceFloatTypes(Pass):
    name = "place-float-types"

    def run(self, program: Program, cx: PassContext) -> bool:
        wanted = {op.name: np.dtype(op.float_type) for op in cx.plan.ops if op.float_type}
        shared: dict[Any, ir.Value] = {}
        changed = False
        for op, rule in list(contractions(program)):
            dtype = wanted.get(op_name(op))
            if dtype is None:
                continue
            operands = list(op.operands)
            with at(op):
                for role in rule.roles(op):
                    value = operands[role.index]
                    key = (value, dtype, op.operation.block)
                    if key not in shared:
                        shared[key] = OPS.convert(value, dtype)
                    operands[role.index] = shared[key]
                result = op.results[0]
                total = dtype if len(rule.roles(op)) == 1 else np.dtype(np.float32)
                new = like(op, operands, shape_of(result), total)
                new = OPS.convert(new, dtype_of(result))
            replace(op, [new])
            changed = True
        return changed
