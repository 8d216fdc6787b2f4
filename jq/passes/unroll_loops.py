"""A loop that runs a known number of times becomes its iterations, one after the other.

    while (%i < 3) { %w = dynamic_slice %stack, %i; %x = dot_general %x, %w; ... }
    ->
    %w0 = slice %stack [0:1]; %x1 = dot_general %x, %w0; %w1 = slice %stack [1:2]; ...

So each layer of a `scan` has ranges, tables and multipliers of its own. Only for
`placement=early`, where all of them are constants of the program; not for a loop that runs more
than `limit` times. The copy of an op for iteration k is called NAME[k]. A branch that is known then
(every second layer is another one) takes the place of the choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jq.ir import Program, at, ir, shape_of, walk
from jq.ir.arrays import StableHloOps
from jq.ir.build import NAME, string_attr
from jq.ir.build import replace as replace_op
from jq.ir.cone import compute
from jq.ir.stack import trip_count
from jq.passes.base import Pass, PassContext

OPS = StableHloOps()


@dataclass(frozen=True)
class UnrollLoops(Pass):
    """Options:

    limit: a loop that runs more often stays a loop.
    """

    name = "unroll-loops"
    limit: int = 64

    def run(self, program: Program, cx: PassContext) -> bool:
        if cx.settings.placement != "early":
            return False
        loops = [op for op in program.walk() if op.operation.name == "stablehlo.while"]
        changed = False
        for loop in reversed(loops):  # innermost first
            trips = trip_count(program, loop)
            if trips is not None and trips <= self.limit:
                _unroll(loop, trips)
                changed = True
        if changed:
            for op in program.walk():
                _fix_indices(program, op)
        while _choose(program):
            changed = True
        if changed:
            program.drop_dead()
        return changed


def _unroll(loop: Any, trips: int) -> None:
    values = list(loop.operation.operands)
    for k in range(trips):
        with at(loop):
            values = copied(loop.operation.regions[1].blocks[0], values, f"[{k}]")
    for result, value in zip(loop.operation.results, values, strict=True):
        result.replace_all_uses_with(value)
    loop.operation.erase()


def copied(block: ir.Block, arguments: Sequence[ir.Value], suffix: str) -> list[ir.Value]:
    """Copies a block's ops to the current insertion point, for these arguments; what it returns.

    `suffix` is added to the names of ops.
    """
    values: dict[ir.Value, ir.Value] = dict(zip(block.arguments, arguments, strict=True))
    *ops, last = list(block.operations)
    for op in ops:
        copy = op.operation.clone()
        for inner in (copy, *_inside(copy)):
            for index, value in enumerate(inner.operands):
                inner.operands[index] = values.get(value, value)
            if (name := string_attr(inner, NAME)) is not None:
                inner.attributes[NAME] = ir.StringAttr.get(name + suffix)
        values.update(zip(op.operation.results, copy.results, strict=True))
    return [values.get(v, v) for v in last.operation.operands]


def _inside(op: ir.Operation) -> list[ir.Operation]:
    blocks = [block for region in op.regions for block in region.blocks]
    return [inner.operation for block in blocks for inner in walk(block)]


def _choose(program: Program) -> bool:
    """Puts the branch that is taken in the place of each choice that is known."""
    changed = False
    for op in program.walk():
        if op.operation.name not in ("stablehlo.case", "stablehlo.if"):
            continue
        known = compute(program, op.operation.operands[0])
        if known is None:
            continue
        index, last = int(known.reshape(())), len(op.operation.regions) - 1
        if op.operation.name == "stablehlo.if":
            index = 1 - index
        elif not 0 <= index <= last:
            index = last
        with at(op):
            values = copied(op.operation.regions[index].blocks[0], [], "")
        replace_op(op, values)
        changed = True
        break  # what was walked is gone
    return changed


def _fix_indices(program: Program, op: Any) -> None:
    """A dynamic_slice at a place that is known becomes a slice."""
    if op.operation.name != "stablehlo.dynamic_slice":
        return
    source, *starts = op.operation.operands
    found = [compute(program, v) for v in starts]
    if any(a is None for a in found):
        return
    whole, sizes = shape_of(source), shape_of(op.operation.results[0])
    begin = [
        int(np.clip(a, 0, n - s))
        for a, n, s in zip(found, whole, sizes, strict=True)
        if a is not None
    ]
    with at(op):
        value = OPS.slice(source, begin, [b + s for b, s in zip(begin, sizes, strict=True)])
    replace_op(op, [value])
