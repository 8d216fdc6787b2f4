"""Convolutions that IREE computes slowly, or in types that are too narrow."""

import math
from contextlib import suppress

import numpy as np

from jq.base.system.processor import this_processor
from jq.ir import OPS, Op, Program, at, dtype_name, dtype_of, ir, maker, shape_of
from jq.ir.build import NAME, attributes_of, barrier
from jq.ir.ops.dims import by_matrix
from jq.ir.ops.geometry import NotMatrices
from jq.ir.ops.layout import Layout, Window, groups_of
from jq.passes.base import PassContext
from jq.passes.iree_mends.mend import BARRIER, Mend, Read, Shield
from jq.passes.rewrite import Rewrite
from jq.target.target import Target

# Float convolutions that IREE computes slowly become products with the patches of their input.
#
#     convolution %x[1,28,28,512], %w[1,1,512,1024], stride = [2, 2]
#     ->
#     dot_general (every second row and column of %x)[196,512], (reshape %w)[512,1024]
#
# With IREE's loop nests for windows of two dimensions a copy of the patches cannot compete. Not in
# groups, not where the patches would take more than `LARGEST` bytes, and not where the filter lies
# in another order and is no weight: it would be turned at every call. The sum may have another
# order.
LARGEST = 64 << 20


class PatchConvolutions(Rewrite, Mend):
    """Slow: float convolutions of one or three dimensions, or with a stride and a window of one
    element, take many times as long as the product that they are.
    No trap: slow, not wrong
    Report: iree-org/iree#22674"""

    def replacement(self, program: Program, op: Op, cx: PassContext) -> list[ir.Value] | None:
        if Layout.match(op) is None:
            return None
        (x, w), shape, attributes = op.operands, shape_of(op.results[0]), attributes_of(op)
        types = {dtype_name(dtype_of(v)) for v in (x, w, op.results[0])}
        if types not in ({"f32"}, {"bf16"}, {"f16"}):
            return None
        with suppress(NotMatrices):
            window = Window.of_product(op, shape_of(w))
            features = shape[window.layout.output_feature] or 1
            count, depth = math.prod(shape) // features, math.prod(shape_of(w)) // features
            if not _slow(window) or not 0 < 4 * count * depth <= LARGEST:
                return None
            matrix = _matrix(program, w, window, depth)
            product = by_matrix(window.patches(x), matrix)
            if NAME in attributes:
                product.owner.attributes[NAME] = attributes[NAME]
            return [window.layout.result(product, shape)]
        return None


def _slow(window: Window) -> bool:
    """True if IREE has no loop nest for it: neither two dimensions of a window, nor a product."""
    if len(window.sizes) != 2:
        return True
    if max(window.sizes) == 1:
        moves = any(n != 1 for n in (*window.strides, *window.spacing))
        return moves or any(map(any, window.padding))
    return min(window.sizes) == 1


def _matrix(program: Program, w: ir.Value, window: Window, depth: int) -> ir.Value:
    """The filter [taps * C, F]."""
    order = window.layout.kernel_order
    if order != sorted(order):
        name = program.weight_name(w)
        array = program.weights.get(name) if name else None
        if not isinstance(array, np.ndarray):
            raise NotMatrices("a filter in another order that is no weight")
        w = program.add_weight(f"{name}:patches", array.transpose(order))
    return OPS.reshape(w, [depth, shape_of(w)[-1]])


# Convolutions of bytes read 16-bit inputs where IREE would use Arm's matrix products of bytes.
#
#     convolution(%x : i8, %w : i8) -> i32
#     ->
#     convolution(barrier(convert %x : i16), convert %w : i16) -> i32
#
# Products read their weights in the other order, and are right. The filter stays stored as it is;
# without the barrier IREE finds the narrow form again.
LLVM = "--iree-llvmcpu-target"


class WidenConvolutions(Mend):
    """A convolution of bytes for a processor with Arm's matrix products of bytes (`i8mm`): a square
    tile [inputs, outputs] of the filter is taken for [outputs, inputs], and multiplied transposed.
    Trap: kernels/test_arm_convolutions.py::test_filters_are_transposed"""

    def run(self, program: Program, cx: PassContext) -> bool:
        if not multiplies_matrices(cx.target):
            return False
        found = [op for op in program.walk() if _may_be_transposed(op)]
        for op in found:
            with at(op):
                x, w = (OPS.convert(v, np.dtype(np.int16)) for v in op.operands)
                op.operands[0], op.operands[1] = barrier(x), w
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
    shapes = [shape_of(v) for v in (*op.operands, op.results[0])]
    spatial = d.input_spatial, d.kernel_spatial, d.output_spatial
    x, w, y = ([shape[a] for a in axes] for shape, axes in zip(shapes, spatial, strict=True))
    kind, wide = dtype_of(op.operands[0]), dtype_of(op.results[0])
    of_bytes = kind.kind in "iu" and kind.itemsize == 1 < wide.itemsize
    return of_bytes and (max(w, default=1) > 1 or x != y)


# Depthwise convolutions whose result is wider than their operands get wide operands.
#
#     convolution(%x : i8, %w : i8) -> i32, one filter a channel
#     ->
#     convolution(barrier(convert %x : i32), barrier(convert %w : i32)) -> i32
#
# Without the barriers IREE finds the narrow form again.
class WidenDepthwise(Mend):
    """A depthwise convolution with operands narrower than its result is garbage, or refused.
    Trap: traps/test_contractions.py::test_narrow_depthwise
    Report: iree-org/iree#11039"""

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
            op.operands[i] = barrier(wide)


MOVED = (BARRIER, *(f"stablehlo.{n}" for n in ("constant", "transpose", "reshape", "reverse")))


class ShieldFilters(Shield):
    """A convolution in groups decodes its filter anew for every pixel.
    No trap: a matter of speed"""

    def finds(self, op: Op) -> list[Read]:
        grouped = Layout.match(op) is not None and groups_of(op) > 1
        made = maker(op.operands[1]) if grouped else None
        return [(op, 1)] if made is not None and made.operation.name not in MOVED else []
