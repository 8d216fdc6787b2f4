"""The product of quantized operands, as sums of 32 bits."""

import numpy as np

from jq.ir import Op, Program, ir
from jq.ir.markers import DEQUANTIZE, encoding_of
from jq.ir.ops.base import Contraction
from jq.ir.ops.lookup import contraction
from jq.ir.quantized.kinds import (
    UNIFORM_DEQUANTIZE,
    axes_of,
    bits_of,
    element_of,
    parameters,
    storage_of,
)
from jq.ir.quantized.write import SIDES, TYPED, checked, floats, text, widened
from jq.ir.values import maker


def on_products(program: Program, op: Op) -> ir.Value | None:
    """The floats that the sums of a product are."""
    rule = contraction(op.operation.name)
    if rule is None or not rule.sums_products:
        return None
    sources = [
        source
        for v in op.operands
        if (source := maker(v, UNIFORM_DEQUANTIZE)) and DEQUANTIZE in source.attributes
    ]
    if len(sources) < len(op.operands):
        return None
    said = [ir.DictAttr(s.attributes[DEQUANTIZE]) for s in sources]
    kind = _kind(rule, op, said)
    if kind is None:
        return None
    operands = _of_one_width([s.operands[0] for s in sources], said)
    how = {TYPED: text("product"), SIDES: ir.ArrayAttr.get(said)}
    made = checked(op, kind, operands, **how)
    return None if made is None else floats(made)


def _of_one_width(operands: list[ir.Value], said: list[ir.DictAttr]) -> list[ir.Value]:
    """The operands, the narrower ones as the same codes of as many bits as the widest: StableHLO
    multiplies codes of one storage type alone."""
    widths = [storage_of(element_of(v)).width for v in operands]
    shifted = bool(_parameters(said[1])[1].any())
    bits = max(*widths, 16 if shifted else 0)
    return [
        v if width == bits else widened(v, bits, how, centred=shifted and i == 1)
        for i, (v, width, how) in enumerate(zip(operands, widths, said, strict=True))
    ]


def _kind(rule: Contraction, op: Op, said: list[ir.DictAttr]) -> ir.Type | None:
    """The type of the sums; None where they have none."""
    (left, _, left_axes), (right, zeros, axes) = map(_parameters, said)
    result = ir.RankedTensorType(op.results[0].type)
    bits = bits_of(encoding_of(said[1]))
    if left_axes or len(axes) > 1 or str(result.element_type) != "f32":
        return None
    if zeros.any() and (axes or bits > 8):
        return None
    axis = rule.result_axes(op, 1).get(axes[0]) if axes else None
    if axes and axis is None:
        return None
    steps = [f"{s!r}" for s in (left * right).tolist()]
    rest = f", {steps[0]}" if axis is None else f":{axis}, {{{', '.join(steps)}}}"
    element = ir.Type.parse(f"!quant.uniform<i32:f32{rest}>")
    return ir.RankedTensorType.get(result.shape, element, result.encoding)


def _parameters(said: ir.DictAttr) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Scales and zero points (flat), and the axes that they lie along."""
    enc = encoding_of(said)
    given = ir.DictAttr(said["values"])
    values = {a.name: np.array(ir.DenseElementsAttr(a.attr)) for a in given}
    return *parameters(enc, values), axes_of(enc)
