"""Convolutions of bytes read 16-bit inputs where IREE would use Arm's matrix products of bytes.

    convolution(%x : i8, %w : i8) -> i32
    ->
    convolution(barrier(convert %x : i16), convert %w : i16) -> i32

Products read their weights in the other order, and are right. The filter stays stored as it is;
without the barrier IREE finds the narrow form again.
"""

from dataclasses import dataclass

import numpy as np

from jq.base.system.processor import this_processor
from jq.ir import Op, Program, at, dtype_of, shape_of
from jq.ir.arrays import StableHloOps
from jq.ir.build import barrier
from jq.ir.ops.layout import Layout
from jq.passes.base import PassContext
from jq.passes.iree_mends.mend import Mend
from jq.target.target import Target

OPS = StableHloOps()
LLVM = "--iree-llvmcpu-target"


@dataclass(frozen=True)
class WidenConvolutions(Mend):
    """A convolution of bytes for a processor with Arm's matrix products of bytes (`i8mm`): a square
    tile [inputs, outputs] of the filter is taken for [outputs, inputs], and multiplied transposed.
    Trap: kernels/test_arm_convolutions.py::test_filters_are_transposed
    """

    name = "widen-convolutions"

    def run(self, program: Program, cx: PassContext) -> bool:
        if not multiplies_matrices(cx.target):
            return False
        found = [op for op in program.walk() if _may_be_transposed(op)]
        for op in found:
            with at(op):
                x, w = (OPS.convert(v, np.dtype(np.int16)) for v in op.operation.operands)
                op.operation.operands[0], op.operation.operands[1] = barrier(x), w
        return bool(found)


def multiplies_matrices(target: Target) -> bool:
    """True if IREE may use Arm's matrix products of bytes (`i8mm`) for a target."""
    given = dict(flag.partition("=")[::2] for flag in target.flags)
    cpu, here = given.get(f"{LLVM}-cpu", "generic"), this_processor()
    if cpu == "host":
        return here.machine == "aarch64" and "i8mm" in here.flags
    arm = given.get(f"{LLVM}-triple", here.machine).startswith(("aarch64", "arm64"))
    # A processor by its name has what LLVM knows of it.
    return arm and (cpu != "generic" or "+i8mm" in given.get(f"{LLVM}-cpu-features", ""))


def _may_be_transposed(op: Op) -> bool:
    """True if it is a convolution of bytes, and none that IREE takes for a product: a window of one
    element, at every place of the input."""
    if (d := Layout.match(op)) is None:
        return False
    shapes = [shape_of(v) for v in (*op.operation.operands, op.operation.results[0])]
    x, w, y = ([shape[a] for a in axes] for shape, axes in zip(shapes, _spatial(d), strict=True))
    kind, wide = dtype_of(op.operands[0]), dtype_of(op.operation.results[0])
    of_bytes = kind.kind in "iu" and kind.itemsize == 1 < wide.itemsize
    return of_bytes and (max(w, default=1) > 1 or x != y)


def _spatial(d: Layout) -> tuple[tuple[int, ...], ...]:
    return d.input_spatial, d.kernel_spatial, d.output_spatial
