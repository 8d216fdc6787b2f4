"""What stands between dequantizes and a quantize becomes integer arithmetic.

    %d = composite "jq.dequantize" %q        %w = composite "jq.dequantize" %codes
    %y = convolution %d, %w;  %b = add %y, %bias;  %r = maximum %b, 0
    %o = composite "jq.quantize" %r
    ->
    %acc = add (convolution %q, %codes : i32), %bias_codes
    %o = clamp(rescale(%acc) + zero_point)

The chain of affine steps becomes the factor of the rescale and a constant in the accumulator,
clamps become the clamp of the result. A function of one tensor is a table of 256 codes. What
has no such form is left as it is; `verify-integer` names it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from jq.formats.integer_functions import Output
from jq.formats.requantize import clip, splat
from jq.ir import Program, at, ir, shape_of
from jq.ir.affine import backwards
from jq.ir.arrays import StableHloOps
from jq.ir.build import replace
from jq.ir.cone import between, kind_of
from jq.ir.constants import evaluate
from jq.ir.markers import QUANTIZE, Marker, match
from jq.passes._integer_functions import normalization, softmax
from jq.passes._integer_ops import apply_to_codes, clamp_of, is_table
from jq.passes._integer_sums import sum_of
from jq.passes._integer_values import (
    I64,
    Leaf,
    Sum,
    centered,
    leaf_of,
    output_of,
    require_int32,
    scaled,
    spread,
)
from jq.passes.base import Pass, PassContext

OPS = StableHloOps()


@dataclass(frozen=True)
class LowerRegions(Pass):
    name = "lower-regions"

    def run(self, program: Program, cx: PassContext) -> bool:
        changed = False
        for op in list(program.walk()):
            marker = match(op, QUANTIZE)
            out = output_of(program, marker) if marker else None
            if marker is None or out is None:
                continue
            with at(op):
                codes = _lower(program, marker, op.operands[0], out)
            if codes is not None:
                replace(op, [codes])
                changed = True
        _erase_unread(program)
        program.drop_dead()
        return changed


def _erase_unread(program: Program) -> None:
    """Erases what the regions were; composites have to be erased by hand."""
    for op in reversed(list(program.body.operations)):
        read = any(True for r in op.operation.results for _ in r.uses)
        if op.operation.results and not read and op.operation.name != "stablehlo.custom_call":
            op.operation.erase()


def _lower(program: Program, marker: Marker, value: ir.Value, out: Output) -> ir.Value | None:
    """The codes of `value`, or None when it has no integer form."""
    leaf = leaf_of(program, value)
    if leaf is not None and (leaf.scale, leaf.zero_point) == (out.scale, out.zero_point):
        return leaf.codes
    return (
        _table(program, value, out)
        or softmax(program, value, out)
        or normalization(program, value, out, marker.tensor)
        or _concatenate(program, value, out, marker.tensor)
        or _chain(program, value, out, marker.tensor)
    )


def _table(program: Program, value: ir.Value, out: Output) -> ir.Value | None:
    """An elementwise function of one tensor, for every code that it can have."""
    leaf = leaf_of(program, value)
    source = value if leaf else _only_leaf(program, value)
    leaf = leaf or (leaf_of(program, source) if source is not None else None)
    if source is None or leaf is None:
        return None
    x = leaf.scale * (np.arange(-128, 128) - leaf.zero_point)
    if source != value:
        cut = between(program, source, value)
        if cut is None or not is_table(cut):
            return None
        x = apply_to_codes(cut, x)
    with np.errstate(invalid="ignore"):
        steps = np.rint(np.nan_to_num(np.asarray(x, np.float32) / np.float32(out.scale)))
    table = np.clip(steps + out.zero_point, out.low, out.high).astype(np.int8)
    index = OPS.convert(leaf.codes, np.int32)
    return OPS.take(table, OPS.add(index, splat(OPS, 128, index)))


def _only_leaf(program: Program, value: ir.Value) -> ir.Value | None:
    """The one leaf that `value` is computed from, walking back through a few ops."""
    seen: set[Any] = set()
    leaves: set[Any] = set()
    todo = [value]
    while todo and len(seen) < 64:
        v = todo.pop()
        if v in seen:
            continue
        seen.add(v)
        if leaf_of(program, v) is not None:
            leaves.add(v)
        elif not isinstance(v.owner, ir.Block):
            if match(v.owner):
                return None
            todo.extend(v.owner.operation.operands)
    return leaves.pop() if len(leaves) == 1 else None


def _concatenate(program: Program, value: ir.Value, out: Output, name: str) -> ir.Value | None:
    if isinstance(value.owner, ir.Block) or kind_of(value.owner) != "stablehlo.concatenate":
        return None
    leaves = [leaf_of(program, v) for v in value.owner.operation.operands]
    if any(leaf is None for leaf in leaves):
        return None
    parts = [_requantized(program, leaf, out, name) for leaf in leaves if leaf]
    axis = ir.IntegerAttr(value.owner.operation.attributes["dimension"]).value
    return OPS.concatenate(parts, axis)


def _requantized(program: Program, leaf: Leaf, out: Output, name: str) -> ir.Value:
    """Codes with other parameters: one rescale."""
    if (leaf.scale, leaf.zero_point) == (out.scale, out.zero_point):
        return leaf.codes
    x = scaled(program, centered(leaf, I64), np.array(leaf.scale / out.scale), name)
    return _saturated(x, out)


def _saturated(x: ir.Value, out: Output) -> ir.Value:
    code = OPS.add(x, splat(OPS, out.zero_point, x))
    return OPS.convert(clip(OPS, code, out.low, out.high), np.int8)


def _chain(program: Program, value: ir.Value, out: Output, name: str) -> ir.Value | None:
    """clamp(c * sum + b), as one integer chain."""
    low, high, value = _clamps(program, value)
    affine = backwards(program, value)
    total = sum_of(program, affine.source)
    if total is None:
        return None
    real = affine.c * total.factor  # of one step of the sum
    if not np.isfinite(real).all() or (real == 0).any():
        return None
    bias = np.rint(affine.b / real)
    require_int32(total.bound + np.abs(bias), total.name)
    shape, acc = shape_of(total.value), OPS.convert(total.value, I64)
    if bias.any():
        acc = _add_bias(program, total, bias, shape)
    steps = scaled(program, acc, real / out.scale, name)
    return _saturated(steps, _clamped(out, low, high))


def _add_bias(program: Program, total: Sum, bias: np.ndarray, shape: tuple[int, ...]) -> ir.Value:
    """The bias joins the accumulator in int32."""
    vector = spread(program, bias, shape, f"{total.name}:bias")
    return OPS.convert(OPS.add(total.value, OPS.convert(vector, np.int32)), I64)


def _clamps(program: Program, value: ir.Value) -> tuple[float, float, ir.Value]:
    """Bounds of the clamps that end in `value`, and what they clamp."""
    low, high = -math.inf, math.inf
    while not isinstance(value.owner, ir.Block):
        op = value.owner
        found = next(
            ((bounds, x) for x in op.operation.operands if (bounds := clamp_of(program, op, x))),
            None,
        )
        if found is None or evaluate(program, found[1]) is not None:
            break
        (first, last), value = found
        # An earlier clamp: what it gives is clamped by those that we have.
        low, high = min(max(first, low), high), max(min(last, high), low)
    return low, high, value


def _clamped(out: Output, low: float, high: float) -> Output:
    """The codes that are left when real values stay in [low, high]."""

    def code(x: float, end: int) -> int:
        if math.isinf(x):
            return end
        return int(np.clip(np.rint(x / out.scale) + out.zero_point, out.low, out.high))

    return Output(out.scale, out.zero_point, code(low, out.low), code(high, out.high))
