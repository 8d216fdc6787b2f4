"""What a gather or a reversal reads of every pixel's channels is copied first.

    gather (reshape (slice %x [0:9, 0:10, 0:1])), %i   // %x : [9, 10, 2]
    ->
    gather (optimization_barrier (reshape (slice ...))), %i

IREE 3.13 reads through the slice, and fails on elements that do not lie side by side. It also reads
through arithmetic that it folds away (`real (complex %a, %b)`). Which ops it folds is not known
here, so this pass looks through every op whose result has as many elements as its operand.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from jq.ir import Op, Program, at, ir, shape_of
from jq.ir.values import maker
from jq.passes.base import Pass, PassContext
from jq.passes.target.widen_depthwise import barrier

READERS = ("stablehlo.gather", "stablehlo.reverse")


@dataclass(frozen=True)
class ShieldSlices(Pass):
    name = "shield-slices"

    def run(self, program: Program, cx: PassContext) -> bool:
        found = [op for op in program.walk_all() if reads_channels(op)]
        for op in found:
            with at(op):
                op.operation.operands[0] = barrier(op.operation.operands[0])
        return bool(found)


def reads_channels(op: Op) -> bool:
    """Whether `op` reads from a slice along the last of three axes or more."""
    if op.operation.name not in READERS:
        return False
    return any(_takes_channels(before) for before in _behind(op.operation.operands[0]))


def _takes_channels(op: Op) -> bool:
    if op.operation.name != "stablehlo.slice":
        return False
    whole = shape_of(op.operation.operands[0])
    return len(whole) > 2 and shape_of(op.operation.results[0])[-1] < whole[-1]


def _behind(value: ir.Value) -> Iterator[Op]:
    """The ops that `value` is made by, as far back as the number of elements stays the same."""
    ahead, seen = [value], {value}
    while ahead:
        value = ahead.pop()
        op = maker(value)
        if op is None or op.operation.name == "stablehlo.optimization_barrier":
            continue
        yield op
        count = prod(shape_of(value))
        for operand in op.operation.operands:
            if operand not in seen and prod(shape_of(operand)) == count:
                seen.add(operand)
                ahead.append(operand)
