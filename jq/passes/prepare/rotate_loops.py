"""A loop's condition on floats is computed in front of the loop, and at the end of its body.

    while(%x = %a) cond { %p = (abs %x < 1); return %p } do { ...; return %y }
    ->
    %q = (abs %a < 1)
    while(%x = %a, %p = %q) cond { return %p } do { ...; %r = (abs %y < 1); return %y, %r }

What a condition computes can then be observed and quantized like everything else. Only for
`placement=early`; a condition on integers stays where it is.
"""

from dataclasses import dataclass

from jq.ir import Op, Program, at, dtype_of, editing, ir
from jq.ir.build import attributes_of
from jq.passes.base import Pass, PassContext
from jq.passes.prepare.unroll_loops import copied


@dataclass(frozen=True)
class RotateLoops(Pass):
    name = "rotate-loops"

    def run(self, program: Program, cx: PassContext) -> bool:
        loops = [op for op in program.walk() if op.operation.name == "stablehlo.while"]
        rotated = [loop for loop in reversed(loops) if _reads_floats(loop)]
        for loop in rotated:
            _rotate(loop)
        if rotated:
            program.drop_dead()
        return bool(rotated)


def _reads_floats(loop: Op) -> bool:
    operations = loop.regions[0].blocks[0].operations
    return any(dtype_of(v).kind in "fV" for op in operations for v in op.operands)


def _rotate(loop: Op) -> None:
    old = loop.operation
    condition, body = (region.blocks[0] for region in old.regions)
    last = body.operations[len(body.operations) - 1].operation
    with at(old):
        (first,) = copied(condition, old.operands, "[first]")
    with at(last):
        (again,) = copied(condition, last.operands, "")
        ir.Operation.create("stablehlo.return", operands=[*last.operands, again])
    last.erase()
    with at(old):
        new = ir.Operation.create(
            old.name,
            results=[*(r.type for r in old.results), first.type],
            operands=[*old.operands, first],
            attributes=attributes_of(old),
            regions=2,
        )
        with editing():
            body.add_argument(first.type, old.location)
        types = [v.type for v in new.operands]
        test = new.regions[0].blocks.append(*types)
        with ir.InsertionPoint(test):
            ir.Operation.create("stablehlo.return", operands=[test.arguments[len(types) - 1]])
    body.append_to(new.regions[1])
    for before, after in zip(old.results, new.results, strict=False):
        before.replace_all_uses_with(after)
    old.erase()
