"""A conversion between float types changes the type that is dequantized to.

A value of the codes is rounded once, to the type that is wanted in the end: what lies between is
taken out, also where it is the narrower one (a bfloat16 weight that a float32 product reads).
"""

from jq.ir import Op, Program, dtype_of, ir
from jq.ir.markers import Marker, dequantize
from jq.ir.ops.base import Axes
from jq.ir.ops.moves import Movement


class Convert(Movement):
    op = "convert"

    def applies(self, op: Op) -> bool:
        """To a float type that products are computed in; fp8 and integers change the values."""
        after = dtype_of(op.results[0])
        return after.kind in "fV" and after.itemsize > 1

    def back(self, op: Op, axes: Axes) -> Axes:
        return axes

    def elements(self, program: Program, op: Op) -> tuple[int, ...]:
        return ()  # its numbers are rounded

    def of_one_type(self, op: Op) -> tuple[int, ...]:
        return ()

    def sink(self, program: Program, op: Op, marker: Marker) -> ir.Value | None:
        after = dtype_of(op.results[0])
        return dequantize(program, marker.encoding, marker.parts, after, tensor=marker.tensor)
