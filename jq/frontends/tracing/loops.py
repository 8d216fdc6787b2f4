"""Moves what is the same in every step of a loop out of it, and computes it there.

`jax.lax.scan` hands the stacked weights of its layers through the loop as carried values.
Once the body reads them where they are defined, an op in the body can be traced to its weight;
also where the body first joins several weights, or reads another part of one.
"""

import math

from jq.ir import Op, at, dtype_of, ir, shape_of, walk
from jq.ir.hoist import block_of
from jq.ir.types import number_kind

_DRAWN = ("stablehlo.rng", "stablehlo.rng_bit_generator", "stablehlo.composite")


def hoist_invariants(block: ir.Block) -> None:
    """Drops unchanged carries from every `stablehlo.while` in `block`, and moves out what is
    computed from nothing that changes, innermost loops first."""
    for op in _loops(block):
        _hoist(op)
    for op in _loops(block):
        for inner in list(op.regions[1].blocks[0].operations):
            if _is_fixed(inner.operation):
                inner.operation.move_before(op.operation)


def _loops(block: ir.Block) -> list[ir.OpView]:
    return [op for op in walk(block) if op.operation.name == "stablehlo.while"][::-1]


def _is_fixed(op: Op) -> bool:
    """True if an op of a loop's body makes a float from values of outside, and none that is larger
    than those."""
    if not op.operands or len(op.results) != 1 or len(op.regions) or op.name in _DRAWN:
        return False
    outside = all(block_of(v) != op.block for v in op.operands)
    sizes = [math.prod(shape_of(v)) for v in (op.results[0], *op.operands)]
    return outside and number_kind(dtype_of(op.results[0])) == "f" and sizes[0] <= sum(sizes[1:])


def _hoist(loop: Op) -> None:
    cond, body = (region.blocks[0] for region in loop.regions)
    terminator = body.operations[len(body.operations) - 1]
    carried = []
    for i, (value, result) in enumerate(zip(terminator.operands, loop.results, strict=True)):
        if value != body.arguments[i]:
            carried.append(i)
            continue
        outer = loop.operands[i]
        for same in (cond.arguments[i], body.arguments[i], result):
            same.replace_all_uses_with(outer)
    if 0 < len(carried) < len(loop.results):
        _rebuild(loop, carried)


def _rebuild(loop: Op, carried: list[int]) -> None:
    """The same loop with only the operands `carried`."""
    with at(loop):
        new = ir.Operation.create(
            "stablehlo.while",
            results=[loop.results[i].type for i in carried],
            operands=[loop.operands[i] for i in carried],
            attributes=dict(loop.attributes.items()),
            regions=2,
        )
    dropped = [i for i in range(len(loop.results)) if i not in carried]
    for region, target in zip(loop.regions, new.regions, strict=True):
        block = region.blocks[0]
        block.append_to(target)
    body = new.regions[1].blocks[0]
    old_return = body.operations[len(body.operations) - 1]
    with at(old_return):
        ir.Operation.create("stablehlo.return", operands=[old_return.operands[i] for i in carried])
    old_return.erase()
    for region in new.regions:
        for i in reversed(dropped):
            region.blocks[0].erase_argument(i)
    for i, result in zip(carried, new.results, strict=True):
        loop.results[i].replace_all_uses_with(result)
    loop.erase()
