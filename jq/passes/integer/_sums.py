"""Exact integer values of sums and products of leaves: what a chain of integers begins with."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from jq.formats.requantize import DOUBLE, INT32, Rescaling, rounding_right_shift
from jq.ir import OPS, Op, Program, dtype_of, evaluate, ir, kind_of, maker, shape_of
from jq.ir.build import NAME, integers, string_attr
from jq.ir.decisions import rounded_as
from jq.ir.markers import DEQUANTIZE, match
from jq.ir.ops.base import Contraction, QuantizedOperand, codes_of
from jq.ir.ops.geometry import of_window
from jq.ir.ops.integer_step import Operand
from jq.ir.ops.lookup import rule_of
from jq.ir.ops.selection import reduce_like, reduction
from jq.passes.integer._values import I64, Leaf, Sum, centered, leaf_of, require_int32, step_of
from jq.target.device_table import Device

# So many fractional bits a sum of two tensors keeps, one tensor alone, and a product; fewer where
# wide codes would leave int32.
SUM_BITS, LEAF_BITS, PRODUCT_BITS = 20, 16, 8
WIDTH = 30  # bits of a value that is rescaled, without its sign


def sum_of(program: Program, value: ir.Value, device: Device) -> Sum | None:
    """The integer sum that a value is, or None."""
    leaf = leaf_of(program, value)
    if leaf is not None:
        return _fraction(leaf, 0 if device.of_tflite else LEAF_BITS)
    if maker(value) is None:
        return None
    op = value.owner
    kind, name = kind_of(op), string_attr(op, NAME) or kind_of(op)
    if isinstance(rule := rule_of(op), Contraction):
        return _contraction(program, op, rule, name, device.wide_sums)
    leaves = [repeated(program, v) for v in op.operands]
    known = [leaf for leaf in leaves if leaf is not None]
    if kind in ("stablehlo.add", "stablehlo.subtract") and len(known) == 2:
        return _sum(op, known, name, device.rescaling)
    if kind == "stablehlo.multiply" and len(known) == 2:
        plain = device.of_tflite or device.rounding == "float32"
        return _product(op, *known, name=name, bits=0 if plain else PRODUCT_BITS)
    if known and reduction(program, op) == "add":
        wide = device.wide_sums and known[0].high > 255 and not rounded_as(value, device)
        return _reduced(op, known[0], name, wide)
    return None


def repeated(program: Program, value: ir.Value) -> Leaf | None:
    """A leaf, or one that is repeated along axes, as a stored constant is."""
    if (op := maker(value, "stablehlo.broadcast_in_dim")) is None:
        return leaf_of(program, value)
    leaf, axes = repeated(program, op.operands[0]), integers(op, "broadcast_dimensions")
    return leaf and replace(leaf, codes=OPS.broadcast(leaf.codes, shape_of(value), axes))


def _bits(wanted: int, largest: int) -> int:
    """Number of bits, at most `wanted`, by which integers up to `largest` can be shifted left."""
    return min(wanted, WIDTH - (largest - 1).bit_length())


def _fraction(leaf: Leaf, bits: int) -> Sum:
    bits = _bits(bits, leaf.largest)
    value = DOUBLE.shift(OPS, centered(leaf), bits)  # exact
    bound = np.array(float(leaf.largest << bits))
    step = step_of("rescale", "rescale", [leaf.operand], bits=bits)
    return Sum(value, np.array(leaf.scale / (1 << bits)), bound, "rescale", step)


def _sum(op: Op, leaves: Sequence[Leaf], name: str, rescaling: Rescaling) -> Sum:
    """Both terms in units of twice the larger scale, with fractional bits."""
    unit = 2 * max(leaf.scale for leaf in leaves)
    bits = _bits(SUM_BITS, max(leaf.largest for leaf in leaves))
    first, second = (
        rescaling.by(OPS, rescaling.shift(OPS, centered(leaf), bits), leaf.scale / unit)
        for leaf in leaves
    )
    minus = kind_of(op) == "stablehlo.subtract"
    value = OPS.sub(first, second) if minus else OPS.add(first, second)
    operands = [leaf.operand for leaf in leaves]
    step = step_of("subtract" if minus else "add", name, operands, op, bits=bits, unit=unit)
    largest = sum(leaf.largest * leaf.scale / unit for leaf in leaves)
    bound = np.array(math.ceil(largest * (1 << bits)) + 2.0)
    require_int32(bound, name)
    return Sum(value, np.array(unit / (1 << bits)), bound, name, step)


def _product(op: Op, a: Leaf, b: Leaf, *, name: str, bits: int) -> Sum:
    largest = a.largest * b.largest
    bits = _bits(bits, largest)
    wide = I64 if largest > INT32.max else np.dtype(np.int32)
    value = OPS.mul(centered(a, wide), centered(b, wide))
    value = _halved(value, -bits) if bits < 0 else DOUBLE.shift(OPS, value, bits)
    bound = np.array(largest * 2.0**bits + 1)
    factor, small = np.array(a.scale * b.scale / 2.0**bits), OPS.convert(value, np.int32)
    step = step_of("multiply", name, [a.operand, b.operand], op, bits=bits)
    return Sum(small, factor, bound, name, step)


def _halved(x: ir.Value, bits: int) -> ir.Value:
    """The int64 value `x / 2^bits`, rounded."""
    return rounding_right_shift(OPS, x, bits) if bits else x


def _reduced(op: Op, leaf: Leaf, name: str, wide: bool) -> Sum:
    before, after = shape_of(op.operands[0]), shape_of(op.results[0])
    terms = math.prod(before) // max(1, math.prod(after))
    if kind_of(op) == "stablehlo.reduce_window":
        terms = math.prod(ir.DenseI64ArrayAttr(op.attributes["window_dimensions"]))
    bound = np.array(float(terms * leaf.largest))
    x = centered(leaf, I64 if wide else np.int32)
    total = _of_tiles(op, x) or reduce_like(op, x, "stablehlo.add", 0)
    step = step_of("sum", name, [leaf.operand], op)
    return Sum(total, np.array(leaf.scale), bound, name, step)


def _of_tiles(op: Op, x: ir.Value) -> ir.Value | None:
    """Sums of windows that lie side by side and fill the tensor, as sums along axes, which IREE
    computes in vectors; None of others."""
    g, sizes = of_window(op), shape_of(op.results[0])
    filled = tuple(n * w for n, w in zip(sizes, g.window, strict=False)) == shape_of(x)
    if (
        max(g.window, default=1) == 1
        or not filled
        or np.any(g.padding)
        or g.window != g.stride
        or {*g.dilation, *g.interior} != {1}
    ):
        return None
    split = [n for pair in zip(sizes, g.window, strict=True) for n in pair]
    return OPS.reduce_sum(OPS.reshape(x, split), range(1, len(split), 2), keep=False)


@dataclass(frozen=True)
class IntegerProduct:
    """A contraction of codes on both sides: what one step of its sum is worth, and how far the
    sum can go; compact in the shape of the result."""

    sides: tuple[QuantizedOperand, QuantizedOperand]
    factor: np.ndarray
    bound: np.ndarray

    @staticmethod
    def of(program: Program, op: Op, rule: Contraction) -> "IntegerProduct | None":
        """None where parameters are not known now."""
        roles = rule.roles(op)
        sides = [codes_of(match(op.operands[r.index], DEQUANTIZE)) for r in roles]
        if len(sides) != 2 or sides[0] is None or sides[1] is None:
            return None
        scales = enumerate(evaluate(program, c.scale) for c in sides if c)
        factors = [s if s is None else _along(op, rule, i, s.astype(np.float64)) for i, s in scales]
        bounds = [_bound(program, op, rule, i, c) for i, c in enumerate(sides) if c]
        if any(f is None for f in factors) or any(b is None for b in bounds):
            return None
        factor = factors[0] * factors[1]  # type: ignore[operator]
        bound = _accumulated(rule.terms(op), bounds)  # type: ignore[arg-type]
        return IntegerProduct((sides[0], sides[1]), factor, bound)


def _contraction(program: Program, op: Op, rule: Contraction, name: str, whole: bool) -> Sum | None:
    """`whole`: sums of 64 bits are rescaled as they are."""
    product = IntegerProduct.of(program, op, rule)
    value = None if product is None else rule.accumulate(op, *product.sides)
    if product is None or value is None or shape_of(value) != shape_of(op.results[0]):
        return None
    factor, bound = product.factor, product.bound
    operands = [_operand(program, side) for side in product.sides]
    if dtype_of(value) == np.int64 and not whole:
        # A sum of wide codes, in units that leave 30 bits.
        bits = max(0, math.ceil(math.log2(max(1.0, float(bound.max())))) - WIDTH)
        small = OPS.convert(_halved(value, bits), np.int32)
        step = step_of("contraction", name, operands, op, bits=-bits)
        return Sum(small, factor * 2.0**bits, bound / 2.0**bits + 1, name, step)
    return Sum(value, factor, bound, name, step_of("contraction", name, operands, op))


def _operand(program: Program, side: QuantizedOperand) -> Operand:
    """A side of a product whose parameters are known (`IntegerProduct.of`) as a step reads it."""
    scale = np.asarray(evaluate(program, side.scale), np.float32)
    zero = None if side.zero_point is None else evaluate(program, side.zero_point)
    return Operand(side.codes, scale, np.zeros(1, np.int32) if zero is None else zero)


def _along(op: Op, rule: Contraction, index: int, grid: np.ndarray) -> np.ndarray | None:
    """An operand's grid with the result's axes; None where it varies along another one."""
    if grid.size == 1:
        return grid.reshape(())
    axes = rule.result_axes(op, index)
    if any(n > 1 for a, n in enumerate(grid.shape) if a not in axes):
        return None
    sizes = [1] * len(shape_of(op.results[0]))
    order = sorted(axes, key=lambda a: axes[a])
    for a in order:
        sizes[axes[a]] = grid.shape[a]
    rest = [a for a in range(grid.ndim) if a not in axes]
    return grid.transpose([*order, *rest]).reshape(sizes)


def _bound(
    program: Program, op: Op, rule: Contraction, index: int, side: QuantizedOperand
) -> tuple[float, np.ndarray | None] | None:
    """Largest |code - zero point| of an operand; for a weight also sum |code| per channel."""
    zero: np.ndarray | None = np.zeros((), np.int32)
    if side.zero_point is not None:
        zero = evaluate(program, side.zero_point)
    codes = evaluate(program, side.codes)
    if zero is None:
        return None
    if codes is None:
        limits = np.iinfo(dtype_of(side.codes))
        return float(max(limits.max - zero.min(), zero.max() - limits.min)), None
    contracted = tuple(sorted(rule.roles(op)[index].contracted))
    size = np.abs(np.subtract(codes, zero, dtype=np.int32))  # codes have at most 16 bits
    total = size.sum(axis=contracted, keepdims=True, dtype=np.int64).astype(np.float64)
    kept = rule.result_axes(op, index)
    lost = tuple(a for a in range(total.ndim) if a not in kept)
    largest = total.max(lost, keepdims=True, initial=0.0)
    return float(size.max(initial=0)), _along(op, rule, index, largest)


def _accumulated(terms: int, bounds: Sequence[tuple[float, np.ndarray | None]]) -> np.ndarray:
    """The largest sum of products: from the weight's own codes where there is a weight."""
    (left, left_sum), (right, right_sum) = bounds
    if right_sum is not None:
        return left * right_sum
    return right * left_sum if left_sum is not None else np.array(terms * left * right)
