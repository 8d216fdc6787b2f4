"""A cache is updated in its place by a kernel, which reads where.

    %new = dynamic_update_slice %cache, %rows, 0, %position, 0
    ->
    %new = call @jq_update_rows(%cache, %rows, %position)

Where the position of a slice is found at run time, IREE waits for it on the host before it records
what follows. Fires on an input of the program that nothing else reads, and a single axis along
which it is updated in part."""

import math

from jq.ir import NAME, OPS, Op, Program, at, ir, maker, only_user, replace, shape_of, string_attr
from jq.ir.quantized.types import element_of
from jq.kernels import UpdateRows
from jq.kernels.rowwise.update_rows import ELEMENTS
from jq.passes.base import Pass, PassContext
from jq.passes.iree_mends.positions import UPDATE, along, held
from jq.passes.kernels._kernel import call_kernel, isa_of


class KernelUpdates(Pass):
    def run(self, program: Program, cx: PassContext) -> bool:
        isa, changed = isa_of(cx.target), False
        firsts: dict[tuple[ir.Value, int], ir.Value] = {}
        for op in program.walk() if isa else ():
            axis = _axis(program, op) if op.operation.name == UPDATE else None
            if isa and axis is not None:
                most = shape_of(op.operands[0])[axis] - shape_of(op.operands[1])[axis]
                place = op.operands[2 + axis], most
                if place not in firsts:
                    firsts[place] = _first(program, *place)
                with at(op):
                    replace(op, [_update(program, op, axis, isa, firsts[place])])
                changed = True
        return changed


def _axis(program: Program, op: Op) -> int | None:
    """The axis along which rows of an input are updated; None where that is no kernel's."""
    cache = op.operands[0]
    inputs = list(program.main.arguments)[: len(program.inputs)]
    if cache not in inputs or only_user(cache) is None or str(element_of(cache)) not in ELEMENTS:
        return None
    return along(program, op)


def _first(program: Program, position: ir.Value, most: int) -> ir.Value:
    """The first row that is updated, once for all caches, as early as it is known."""
    owner = maker(position)
    block = program.main.entry_block
    with at(block.operations[0]) if owner is None else at(owner, after=True):
        return held(position, most)


def _update(program: Program, op: Op, axis: int, isa: str, first: ir.Value) -> ir.Value:
    cache, new = list(op.operands)[:2]
    shape, count = shape_of(cache), shape_of(new)[axis]
    kernel = UpdateRows(
        isa=isa,
        batch=math.prod(shape[:axis]),
        rows=shape[axis],
        count=count,
        width=math.prod(shape[axis + 1 :]),
        element=str(element_of(cache)),
    )
    name = string_attr(op, NAME) or "update"
    (result,) = call_kernel(program, kernel, [cache, new, first], name)
    return OPS.reshape(result, shape)
