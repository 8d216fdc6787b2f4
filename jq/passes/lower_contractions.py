"""Contractions of dequantized tensors become integer contractions with an explicit rescale.

    dot_general(dequantize(a), dequantize(b)) -> convert(dot_general(a.codes, b.codes)) * scales

The op's own rule says how; what it declines stays float, on the dequantized values.
"""

from __future__ import annotations

from dataclasses import dataclass

from jq.ir import Program, at
from jq.ir.build import replace
from jq.ir.markers import DEQUANTIZE, match
from jq.passes.base import Pass, PassContext
from jq.passes.sink_dequantize import erase_dead
from jq.plan import contractions


@dataclass(frozen=True)
class LowerContractions(Pass):
    name = "lower-contractions"

    def run(self, program: Program, cx: PassContext) -> bool:
        changed = False
        for op, rule in list(contractions(program)):
            markers = [match(op.operands[r.index], DEQUANTIZE) for r in rule.roles(op)]
            if not any(markers):
                continue
            with at(op):
                value = rule.lower(program, op, markers)
            if value is not None:
                replace(op, [value])
                changed = True
        erase_dead(program)
        return changed
