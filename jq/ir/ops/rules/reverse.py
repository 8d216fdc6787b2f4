"""A tensor is reversed as it is stored, if no block is cut."""

from jq.ir import Op, Program, dtype_of, ir, shape_of
from jq.ir.build import i64_array, integers, like
from jq.ir.markers import Marker
from jq.ir.ops.base import Axes
from jq.ir.ops.movement import Order, Orders, every_axis, plain, rebuilt
from jq.ir.ops.moves import Movement


class Reverse(Movement):
    op = "reverse"

    def orders(self, op: Op, index: int, order: Order) -> Orders | None:
        return every_axis(op, order, naming=("dimensions",))

    def back(self, op: Op, axes: Axes) -> Axes:
        return axes

    def sink(self, program: Program, op: Op, marker: Marker) -> ir.Value | None:
        enc, axes = marker.encoding, integers(op, "dimensions")
        cut = any(enc.block[a] > 1 and enc.shape[a] % enc.block[a] for a in axes)
        if cut or not plain(marker):
            return None

        def reversed_(part: ir.Value) -> ir.Value:
            longer = [a for a in axes if shape_of(part)[a] > 1]
            if not longer:
                return part
            return like(op, [part], shape_of(part), dtype_of(part), dimensions=i64_array(longer))

        parts = {k: reversed_(v) for k, v in marker.parts.items()}
        return rebuilt(program, marker, enc.shape, enc.block, parts)
