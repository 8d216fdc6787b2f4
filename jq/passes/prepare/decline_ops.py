"""Says on each op that the target's device cannot compute on codes why that is so.

    %r = reverse %x        ->        %r = reverse %x {jq.declined = {reason = ..., help = ...}}

With `by_shape` where it exceeds a limit: then no function of several ops computes it, either.
By the limits of the target file alone (`jq.planning.limits`). Ops on weights and constants are left
out: they are computed before the program reaches the device. Contractions are left to the plan,
which asks the same limits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jq.ir import Program, ir
from jq.ir.decisions import decline
from jq.ir.ops.base import Contraction
from jq.ir.ops.lookup import rule_of
from jq.passes.base import Pass, PassContext
from jq.passes.integer._ops import is_float
from jq.planning.limits import refusal


@dataclass(frozen=True)
class DeclineOps(Pass):
    name = "decline-ops"

    def run(self, program: Program, cx: PassContext) -> bool:
        device, changed = cx.target.device, False
        if device.ops is None and not device.limits:
            return False
        computed = set[ir.Value](list(program.body.arguments)[: len(program.inputs)])
        for op in program.walk():
            results = list(op.operation.results)
            inside = op.operation.parent.name != "func.func"
            if not inside and not any(v in computed for v in op.operation.operands):
                continue
            computed.update(results)
            if isinstance(rule_of(op), Contraction) or not _one_float(results):
                continue
            if (found := refusal(op, cx.target)) is not None:
                decline(op, found.reason, found.help, by_shape=found.by_shape)
                changed = True
        return changed


def _one_float(results: list[Any]) -> bool:
    return len(results) == 1 and is_float(results[0])
