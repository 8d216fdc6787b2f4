"""Depthwise convolutions whose result is wider than their operands get wide operands.

    convolution(%x : i8, %w : i8) -> i32, one filter a channel
    ->
    convolution(barrier(convert %x : i32), barrier(convert %w : i32)) -> i32

Without the barriers IREE finds the narrow form again.
"""

from dataclasses import dataclass

from jq.ir import Op, dtype_of, shape_of
from jq.ir.arrays import StableHloOps
from jq.ir.build import barrier
from jq.ir.ops.layout import Layout, groups_of
from jq.passes.iree_mends.mend import Mend

OPS = StableHloOps()


@dataclass(frozen=True)
class WidenDepthwise(Mend):
    """A depthwise convolution with operands narrower than its result is garbage, or refused.
    Trap: traps/test_contractions.py::test_narrow_depthwise
    Report: iree-org/iree#11039
    """

    name = "widen-depthwise"

    def finds(self, op: Op) -> bool:
        """One input channel a group, one filter each, and a result wider than the filter."""
        if (d := Layout.match(op)) is None:
            return False
        groups, kernel = groups_of(op), shape_of(op.operands[1])
        depthwise = kernel[d.kernel_in] == 1 and kernel[d.kernel_out] == groups
        return depthwise and groups > 1 and dtype_of(op.operands[1]) != dtype_of(op.results[0])

    def rewritten(self, op: Op) -> None:
        for i in (0, 1):
            wide = OPS.convert(op.operands[i], dtype_of(op.results[0]))
            op.operation.operands[i] = barrier(wide)
