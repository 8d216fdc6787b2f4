"""Float convolutions that IREE computes slowly become products with the patches of their input.

    convolution %x[1,28,28,512], %w[1,1,512,1024], stride = [2, 2]
    ->
    dot_general (every second row and column of %x)[196,512], (reshape %w)[512,1024]

With IREE's loop nests for windows of two dimensions a copy of the patches cannot compete. Not in
groups, not where the patches would take more than `LARGEST` bytes, and not where the filter lies in
another order and is no weight: it would be turned at every call. The sum may have another order.
"""

import math
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from jq.ir import Op, Program, at, dtype_name, dtype_of, editing, ir, shape_of
from jq.ir.build import NAME, attributes_of, replace
from jq.ir.ops.dims import by_matrix
from jq.ir.ops.integer import OPS
from jq.ir.ops.layout import Layout
from jq.ir.ops.matrices import NotMatrices
from jq.ir.ops.window import Window
from jq.passes.base import PassContext
from jq.passes.iree_mends.mend import Mend

LARGEST = 64 << 20


@dataclass(frozen=True)
class PatchConvolutions(Mend):
    """Slow: float convolutions of one or three dimensions, or with a stride and a window of one
    element, take many times as long as the product that they are.
    No trap: slow, not wrong
    Report: iree-org/iree#22674
    """

    name = "patch-convolutions"

    def run(self, program: Program, cx: PassContext) -> bool:
        found = [op for op in program.walk() if Layout.match(op)]
        changed = [_lower(program, op) for op in found]
        if any(changed):
            program.drop_dead()
        return any(changed)


def _lower(program: Program, op: Op) -> bool:
    x, w = op.operation.operands
    result, attributes = op.operation.results[0], attributes_of(op)
    shape, types = shape_of(result), {dtype_name(dtype_of(v)) for v in op.operation.operands}
    if types | {dtype_name(dtype_of(result))} not in ({"f32"}, {"bf16"}, {"f16"}):
        return False
    with at(op), suppress(NotMatrices):
        window = Window.of(attributes, shape_of(w))
        features = shape[window.layout.output_feature] or 1
        count, depth = math.prod(shape) // features, math.prod(shape_of(w)) // features
        if not _slow(window) or not 0 < 4 * count * depth <= LARGEST:
            return False
        matrix = _matrix(program, w, window, depth)
        rows = OPS.reshape(window.patches(x), [count, depth])
        product = by_matrix(rows, matrix)
        with editing():
            if NAME in attributes:
                product.owner.attributes[NAME] = attributes[NAME]
        replace(op, [window.result(product, shape)])
        return True
    return False


def _slow(window: Window) -> bool:
    """True if IREE has no loop nest for it: neither two dimensions of a window, nor a product."""
    if len(window.sizes) != 2:
        return True
    if max(window.sizes) == 1:
        return any((*window.interior, *(n - 1 for n in window.strides), *sum(window.padding, ())))
    return min(window.sizes) == 1


def _matrix(program: Program, w: ir.Value, window: Window, depth: int) -> ir.Value:
    """The filter [taps * C, F]."""
    layout = window.layout
    order = [*layout.kernel_spatial, layout.kernel_in, layout.kernel_out]
    if order != sorted(order):
        name = program.weight_name(w)
        array = program.weights.get(name) if name else None
        if not isinstance(array, np.ndarray):
            raise NotMatrices("a filter in another order that is no weight")
        w = program.add_weight(f"{name}:patches", array.transpose(order))
    return OPS.reshape(w, [depth, shape_of(w)[-1]])
