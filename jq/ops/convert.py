"""convert(dequantize(parts)) between float types -> dequantize to the new type.

Exact only when the first type is the wider one: bf16(f32(w)) equals bf16 of the codes'
value, which is what the new decode computes.
"""

from __future__ import annotations

from typing import Any

from jq.ir import Program, dtype_of, ir
from jq.ir.markers import Marker, dequantize
from jq.ops.base import Axes, Movement


class Convert(Movement):
    op = "convert"

    def back(self, op: Any, axes: Axes) -> Axes:
        return axes

    def sink(self, program: Program, op: Any, marker: Marker) -> ir.Value | None:
        before, after = dtype_of(op.operands[0]), dtype_of(op.results[0])
        if before.itemsize != 4 or after.itemsize > 4 or after.kind in "iub":
            return None
        return dequantize(program, marker.encoding, marker.parts, after, tensor=marker.tensor)
