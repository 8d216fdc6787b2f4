"""A tensor is transposed as it is stored."""

from jq.ir import Op, Program, ir, shape_of
from jq.ir.arrays import OPS
from jq.ir.build import integers
from jq.ir.markers import Marker
from jq.ir.ops.base import Axes
from jq.ir.ops.movement import plain, rebuilt
from jq.ir.ops.moves import Movement


class Transpose(Movement):
    op = "transpose"

    def back(self, op: Op, axes: Axes) -> Axes:
        order = integers(op, "permutation")
        return frozenset(order[a] for a in axes)

    def sink(self, program: Program, op: Op, marker: Marker) -> ir.Value | None:
        if not plain(marker):
            return None
        order = integers(op, "permutation")
        parts = {k: OPS.transpose(v, order) for k, v in marker.parts.items()}
        block = tuple(marker.encoding.block[a] for a in order)
        return rebuilt(program, marker, shape_of(op.results[0]), block, parts)
