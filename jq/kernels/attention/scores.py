"""Scores of an attention: masked sums of products."""

from iree.compiler import ir

from jq.kernels.attention.description import Attention
from jq.kernels.emit.builder import Builder
from jq.kernels.emit.values import lanes_of


def scored(kernel: Attention, b: Builder, sums: ir.Value, mask: ir.Value) -> ir.Value:
    """`scale * sums + mask`, or the kernel's `fill` where the mask is not 0.

    The mask is added last, as in the program: a row whose keys are all hidden by a large number is
    rounded to equal scores. Nothing is multiplied by log2 e, which would overflow: `exp2` does that
    to a difference of scores.
    """
    lanes = lanes_of(sums)
    scale = b.f32(kernel.scale, lanes)
    if kernel.fill is None:
        return b.fma(sums, scale, mask)
    shown = sums if kernel.scale == 1.0 else b.mul(sums, scale)
    return b.select_equal(mask, b.f32(0.0, lanes), shown, b.f32(kernel.fill, lanes))
