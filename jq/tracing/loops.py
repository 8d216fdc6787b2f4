"""Values that a loop carries without changing them are read from outside instead.

`jax.lax.scan` hands the stacked weights of its layers through the loop as carried values.
Once the body reads them where they are defined, an op in the body can be traced to its weight.
"""

from __future__ import annotations

from jq.ir import at, ir, walk


def hoist_invariants(block: ir.Block) -> None:
    """Drops unchanged carries from every `stablehlo.while` in `block`, innermost loops first."""
    for op in reversed([op for op in walk(block) if op.operation.name == "stablehlo.while"]):
        _hoist(op)


def _hoist(loop: ir.OpView) -> None:
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


def _rebuild(loop: ir.OpView, carried: list[int]) -> None:
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
    old_return.operation.erase()
    for region in new.regions:
        for i in reversed(dropped):
            region.blocks[0].erase_argument(i)
    for i, result in zip(carried, new.results, strict=True):
        loop.results[i].replace_all_uses_with(result)
    loop.operation.erase()
