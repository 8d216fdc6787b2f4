"""A convolution whose result becomes codes is one step from codes to codes.

    %y = convolution (dequantize %x), (dequantize %w)
    %b = add %y, %bias;  %s = add %b, (dequantize %r);  %c = maximum %s, 0
    %q = composite "jq.quantize" %c
    ->
    %q = composite "jq.requantize" %x, %w, ..., %bias.i32, %multiplier, %r

A model may round what it adds to codes of its own first, `add (dequantize (quantize %b)), ...`; so
does the step.

The bias joins the int32 sum, and one float multiplication takes it to steps of the result (see
`jq.formats.rescale`): its bits do not depend on how a compiler fuses float operations, and a kernel
needs three operations in the place of twenty. Fires where scales are known now, one an activation;
on what nobody else reads; on codes of 8 bits (those of 16 are summed in int64), where no sum can
leave int32. Where the model alone says how its tensors are quantized, only if codes stay those that
it says, but for sums next to the middle of two: with a bias that is whole in steps of the sum, and
no residual but one that is added to codes."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from jq.formats.integer_functions import Output
from jq.formats.requantize import INT32
from jq.formats.rescale import Rescale, ResidualScale
from jq.ir import NAME, Program, at, dtype_of, ir, maker, only_user, shape_of, string_attr, users
from jq.ir.affine import Affine, backwards
from jq.ir.build import replace as replace_op
from jq.ir.markers import DEQUANTIZE, QUANTIZE, Marker, match
from jq.ir.ops.base import Contraction, codes_of
from jq.ir.ops.lookup import makes_feature_map, rule_of
from jq.ir.requantize import requantize
from jq.passes.base import Pass, PassContext
from jq.passes.integer._ops import Bounds, clamps_behind
from jq.passes.integer._sums import IntegerProduct
from jq.passes.integer._values import Leaf, clamped, leaf_of, output_of
from jq.passes.rewrite import erase_dead
from jq.planning.decisions import QuantPlan

LARGEST = 2.0**30  # steps; a conversion to int32 does not overflow
NEARLY = 2.0**-14  # steps of the result that a bias may be off by rounding, to be a whole number
INT8 = np.iinfo(np.int8)


class Requantize(Pass):
    def run(self, program: Program, cx: PassContext) -> bool:
        own, changed = cx.settings.activations.calibrated, False
        for op in reversed(list(program.walk())):  # a sum before what it adds
            read = any(users(result) for result in op.results)
            marker = match(op, QUANTIZE) if read else None
            out = output_of(program, marker) if marker else None
            if marker is None or out is None or out.dtype != np.int8:
                continue
            chain = _Chain.of(program, op.operands[0])
            if chain is None or (chain.approximate and not own):
                continue
            codes = _lower(program, chain, out, op, cx.plan, whole=not own)
            if codes is not None:
                replace_op(op, [codes])
                changed = True
        erase_dead(program)
        program.drop_dead()
        return changed


@dataclass(frozen=True)
class _Chain:
    """`clamp(inner clamp(c * convolution + b) + residual)`, read by nobody else on the way.

    Attributes:
        rounded: codes that the first term of the sum is rounded to, and `first` what they are then.
    """

    affine: Affine
    outer: Bounds
    inner: Bounds = (-math.inf, math.inf)
    residual: Leaf | None = None
    rounded: Output | None = None
    first: Leaf | None = None

    @property
    def approximate(self) -> bool:
        """True if the residual's scale is rounded to 16 bits."""
        return self.residual is not None and self.rounded is None

    @staticmethod
    def of(program: Program, value: ir.Value) -> "_Chain | None":
        outer, value = clamps_behind(program, value, alone=True)
        found = _sum_behind(program, value)
        if found is None:
            affine = _convolved(program, value)
            return None if affine is None else _Chain(affine, outer)
        for leaf, other in found:
            rounded, first, other = _rounded_codes(program, other)
            inner, source = clamps_behind(program, other, alone=True)
            affine = _convolved(program, source)
            if affine is not None:
                return _Chain(affine, outer, inner, leaf, rounded, first)
        return None


def _lower(
    program: Program, chain: _Chain, out: Output, at_op: Any, planned: QuantPlan, whole: bool
) -> ir.Value | None:
    """The codes; `whole`: the bias has to be a whole number of steps of the sum."""
    op = chain.affine.source.owner
    rule, name = rule_of(op), string_attr(op, NAME) or ""
    assert isinstance(rule, Contraction)
    plan = planned.by_name.get(name)
    sides = [match(op.operands[r.index], DEQUANTIZE) for r in rule.roles(op)]
    quantized = plan is None or all(r.index in plan.operands for r in rule.roles(op))
    with at(at_op):  # packed codes are unpacked
        product = IntegerProduct.of(program, op, rule) if quantized and all(sides) else None
    if product is None or dtype_of(chain.affine.result) != np.float32:
        return None
    rescale = _rescale(chain, out)
    if rescale is None or any(dtype_of(side.codes).itemsize > 1 for side in product.sides):
        return None
    step = chain.rounded.scale if chain.rounded else out.scale
    unit = step * (rescale.residual.unit if rescale.residual and not chain.rounded else 1.0)
    axis = rule.result_axes(op, 1).popitem()[1]
    vectors = _channel_vectors(chain.affine, product, unit, step, axis, whole)
    if vectors is None:
        return None

    def accumulate(copy: Any, markers: list[Marker | None]) -> ir.Value:
        lhs, rhs = (codes_of(m) for m in markers)
        total = None if lhs is None or rhs is None else rule.accumulate(copy, lhs, rhs)
        assert total is not None
        return total

    with at(at_op):
        given = tuple(map(program.add_weight, (f"{name}:bias", f"{name}:multiplier"), vectors))
        residual = chain.residual.codes if chain.residual else None
        markers = [m for m in sides if m is not None]
        return requantize(program, op, markers, accumulate, rescale, axis, given, residual)


def _rounded_codes(
    program: Program, value: ir.Value
) -> tuple[Output | None, Leaf | None, ir.Value]:
    """The codes a value is rounded to, their encoding, and the rounded value; the value itself
    where it is not made of codes that nothing else reads."""
    leaf = leaf_of(program, value)
    marker = match(leaf.codes, QUANTIZE) if leaf else None
    out = output_of(program, marker) if marker else None
    if leaf is None or marker is None or out is None or out.dtype != np.int8:
        return None, None, value
    alone = only_user(value) is not None and only_user(leaf.codes) is not None
    if out.zero_point != leaf.zero_point or not alone:
        return None, None, value
    return out, leaf, marker.op.operands[0]


def _sum_behind(program: Program, value: ir.Value) -> list[tuple[Leaf, ir.Value]] | None:
    """The two ways to see a sum as codes and something else; None for what is no such sum."""
    if maker(value, "stablehlo.add") is None:
        return None
    a, b = value.owner.operands
    pairs = [(leaf_of(program, x), y) for x, y in ((a, b), (b, a))]
    known = [(leaf, y) for leaf, y in pairs if leaf is not None and leaf.high <= INT8.max]
    return known if known and only_user(value) is not None else None


def _convolved(program: Program, value: ir.Value) -> Affine | None:
    """The affine steps after a convolution."""
    affine = backwards(program, value)
    steps = [affine.source, *(op.results[0] for op in affine.ops)]
    source = maker(affine.source)
    if source is None or not makes_feature_map(source):
        return None
    return affine if all(only_user(v) is not None for v in steps) else None


def _channel_vectors(
    affine: Affine, product: IntegerProduct, unit: float, step: float, axis: int, whole: bool
) -> tuple[np.ndarray, np.ndarray] | None:
    """i32 bias and f32 multiplier along `axis`; None where they vary along others, are too large,
    or the bias is to be `whole` and is not."""
    shape = shape_of(affine.result)
    real = np.asarray(affine.c * product.factor)
    if not np.isfinite(real).all() or (real == 0).any():
        return None
    bias = np.rint(affine.b / real)
    if whole and np.abs(bias * real - affine.b).max() > NEARLY * step:
        return None
    total = np.max(product.bound + np.abs(bias))
    multiplier = (real / unit).astype(np.float32)
    normal = np.abs(multiplier) >= np.finfo(np.float32).tiny
    if not total <= INT32.max or not normal.all() or total * np.abs(real).max() / step > LARGEST:
        return None
    wide = [a.reshape((1,) * (len(shape) - a.ndim) + a.shape) for a in (bias, multiplier)]
    if any(n != 1 for a in wide for i, n in enumerate(a.shape) if i != axis):
        return None
    first, second = (np.broadcast_to(a.reshape(-1), [shape[axis]]) for a in wide)
    return first.astype(np.int32), second.astype(np.float32)


def _rescale(chain: _Chain, out: Output) -> Rescale | None:
    out = clamped(out, chain.outer)
    found = Rescale(out.zero_point, out.low, out.high)
    if chain.residual is None:
        return found
    leaf = chain.residual
    if chain.rounded and chain.first:
        first = replace(clamped(chain.rounded, chain.inner), scale=chain.first.scale)
        added = Output(leaf.scale, leaf.zero_point, leaf.low, leaf.high)
        between = ResidualScale.between(first, added, out)
        return replace(found, residual=between) if between else None
    scale = ResidualScale.of(leaf.scale / out.scale, leaf.zero_point)
    unit = out.scale * scale.unit
    bounds = [bound if math.isinf(bound) else float(round(bound / unit)) for bound in chain.inner]
    return replace(found, residual=replace(scale, low=bounds[0], high=bounds[1]))
