"""A convolution whose window is one pixel becomes a product of matrices.

    convolution %x[1,56,56,96], %w[1,1,96,24]  ->  dot_general %x, (reshape %w)[96,24]

The numbers are the same. A product sums blocks of the contracted axis apart, each with a scale of
its own, which a convolution does not: it would stay float where activations have blocks. Not where
strides, padding or groups say which pixels are read, where channels are not the last axis, where
blocks of integers do not divide them, or where settings tell convolutions from products."""

from jq.formats import get_format
from jq.ir import NAME, OPS, Op, Program, create, dtype_of, ir, shape_of, string_attr, tensor_type
from jq.ir.ops.dims import DOT_GENERAL, Dims
from jq.ir.ops.layout import CONVOLUTION, Layout, Window, is_plain
from jq.passes.base import PassContext
from jq.passes.rewrite import Rewrite


class PointwiseProducts(Rewrite):
    def replacement(self, program: Program, op: Op, cx: PassContext) -> list[ir.Value] | None:
        if (layout := Layout.match(op)) is None or not _is_pointwise(op, layout) or _told_apart(cx):
            return None
        x, kernel = op.operands
        *_, channels, filters = layout.kernel_order
        shape = [shape_of(kernel)[a] for a in (channels, filters)]
        wanted = cx.settings.activations
        fmt = get_format(wanted.format)
        size = fmt.block or wanted.block_size
        if fmt.integer_bits and shape[0] > size and shape[0] % size:
            return None
        weight = OPS.reshape(OPS.transpose(kernel, layout.kernel_order), shape)
        dims = {"dot_dimension_numbers": Dims((), ((layout.input_feature, 0),)).attribute()}
        if name := string_attr(op, NAME):
            dims[NAME] = ir.StringAttr.get(name)
        result = op.results[0]
        kind = tensor_type(shape_of(result), dtype_of(result))
        return [create(f"stablehlo.{DOT_GENERAL}", kind, x, weight, **dims)]


def _told_apart(cx: PassContext) -> bool:
    """True if `op_types` has one of the two kinds, or a rule is for one of them."""
    kinds = (CONVOLUTION, DOT_GENERAL)
    asked = [{kind in cx.settings.op_types for kind in kinds}]
    asked += [{rule.matches((kind,)) for kind in kinds} for rule in cx.rules]
    return any(len(answers) > 1 for answers in asked)


def _is_pointwise(op: Op, layout: Layout) -> bool:
    window = Window.of(op, shape_of(op.operands[1]))
    alone = {*window.sizes, *window.strides, *window.spacing} == {1}
    orders = (layout.input_order, layout.output_order)
    in_order = all(order == sorted(order) for order in orders)
    return alone and in_order and is_plain(op) and not any(map(any, window.padding))
