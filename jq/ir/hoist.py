"""Bringing a value out of loop and branch bodies, combined over every time it was computed.

    while(...) { %x = ...; return ... }
    ->
    %r:n+1 = while(..., %acc = neutral) { %x = ...; return ..., combine(%acc, %x) }

A branch that does not compute the value gives the neutral element."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxlib.mlir import ir

from jq.base.errors import InternalError
from jq.ir.arrays import OPS
from jq.ir.build import attributes_of, barrier
from jq.ir.mlir_context import at, context
from jq.ir.values import CONTROL, LOOP, Op, last_of, maker

Combine = Callable[[ir.Value, ir.Value], ir.Value]


def hoist(value: ir.Value, body: ir.Block, neutral: np.ndarray, combine: Combine) -> ir.Value:
    """`value` as a value of the outermost block `body`; it may be there already."""

    def through_loop(op: Op, block: ir.Block, value: ir.Value) -> ir.Value:
        if block != op.regions[1].blocks[0]:
            raise InternalError("a value of a loop's condition cannot leave the loop")
        with at(op):
            start = OPS.constant(neutral)
        return carried(op, start, lambda total: combine(total, value)).results[-1]

    return outwards(value, body, through_loop, lambda _: OPS.constant(neutral))


def outwards(
    value: ir.Value,
    body: ir.Block,
    through_loop: Callable[[Op, ir.Block, ir.Value], ir.Value],
    neutral: Callable[[ir.Value], ir.Value],
) -> ir.Value:
    """`value` as a value of the outermost block `body`, through one loop or branch after the other.

    Args:
        through_loop: the value outside of a loop, from that in a block of it.
        neutral: builds, in a branch that does not compute the value, what that gives instead."""
    start = value
    while (block := block_of(value)) != body:
        parent: Any = block.owner
        name = parent.operation.name
        if name == "stablehlo.while":
            value = through_loop(parent.opview, block, value)
        elif name in ("stablehlo.case", "stablehlo.if"):
            value = _through_branch(parent.opview, block, value, neutral)
        else:
            raise InternalError(f"a value cannot leave a {name}")
    if value is start:
        return value
    with at(value.owner, after=True):  # an op of its own survives when the loop is rebuilt
        return barrier(value)


def can_leave(op: Op, body: ir.Block) -> bool:
    """True if the results of an op can be brought to `body`: not out of a loop's condition."""
    block = op.operation.block
    while block != body:
        parent: Any = block.owner
        kind = parent.operation.name
        if kind not in CONTROL or (kind == LOOP and block == parent.regions[0].blocks[0]):
            return False
        block = parent.operation.block
    return True


def block_of(value: ir.Value) -> ir.Block:
    op = maker(value)
    return op.operation.block if op else value.owner


def end_with(block: ir.Block, values: Sequence[ir.Value]) -> None:
    """The block gives these values."""
    old = last_of(block).operation
    with at(old):
        ir.Operation.create(old.name, operands=values)
    old.erase()


def return_also(block: ir.Block, value: ir.Value) -> None:
    end_with(block, [*last_of(block).operands, value])


def rebuilt(op: Op, operands: Sequence[ir.Value], kinds: Sequence[ir.Type]) -> ir.Operation:
    """The same op of other operands and results, in front of it; it takes over its regions."""
    old = op.operation
    with at(old):
        given = attributes_of(old)
        new = ir.Operation.create(old.name, kinds, operands, given, regions=len(old.regions))
    for source, target in zip(old.regions, new.regions, strict=True):
        source.blocks[0].append_to(target)
    return new


def with_result(op: Op, operands: list[ir.Value], extra: ir.Type) -> ir.Operation:
    """The same op with one more result; the old one is erased."""
    old = op.operation
    new = rebuilt(old, operands, [*(r.type for r in old.results), extra])
    for before, after in zip(old.results, new.results, strict=False):
        before.replace_all_uses_with(after)
    old.erase()
    return new


def carried(op: Op, start: ir.Value, update: Callable[[ir.Value], ir.Value]) -> ir.Operation:
    """The loop `op` with one more value, its last result: `start`, then `update` of itself."""
    with context():
        for region in op.regions:
            argument = region.blocks[0].add_argument(start.type, op.location)
    block = op.regions[1].blocks[0]
    with at(last_of(block)):
        value = update(argument)
    return_also(block, value)
    return with_result(op, [*op.operands, start], start.type)


def _through_branch(
    op: Op, block: ir.Block, value: ir.Value, neutral: Callable[[ir.Value], ir.Value]
) -> ir.Value:
    """`value` as a result of the branching op; the other branches give `neutral`."""
    for region in op.regions:
        branch = region.blocks[0]
        result = value
        if branch != block:
            with at(last_of(branch)):
                result = neutral(value)
        return_also(branch, result)
    return with_result(op, list(op.operands), value.type).results[-1]
