"""Softmax and normalizations of a region, as calls of `jq.formats.integer_functions`."""

import math
from dataclasses import replace
from functools import reduce

import numpy as np

from jq.base.deep import Steps, deep
from jq.formats.arrays import clip
from jq.formats.integer_functions import FRACTION, WIDE, Output, in_units, ratio, unit_rows
from jq.formats.integer_functions import softmax as integer_softmax
from jq.formats.requantize import LARGEST, Rescaling
from jq.ir import OPS, Program, ir, kind_of, maker, shape_of
from jq.ir.affine import compact
from jq.ir.build import NAME, string_attr
from jq.ir.decisions import rounded_as
from jq.ir.ops.integer_step import Operand, integer_step
from jq.ir.ops.selection import splat_of
from jq.ir.slicing import between
from jq.passes.functions import as_normalization
from jq.passes.integer import _values as values
from jq.passes.integer._ops import as_softmax, behind
from jq.passes.integer._tflite import kernel_unit_rows
from jq.passes.prepare.fold_weights import Constant, evaluate_all
from jq.target.device_table import Device

FINEST = 2.0**-17  # steps of what softmax takes: an error of 2^-18 of an exponential
HIDDEN = 4 * WIDE  # of a mask that lies beyond: a score that is added to it does not matter


def softmax(
    program: Program, value: ir.Value, out: Output, name: str, device: Device
) -> ir.Value | None:
    """Softmax that ends in `value`, of what `terms_of` takes apart."""
    if maker(value, "stablehlo.divide") is None:
        return None
    for source in behind(value):
        leaves = [values.leaf_of(program, v) for v in terms_of(program, source)]
        if not leaves or not all(leaves):
            continue
        cut = between(program, source, result=value)
        found = as_softmax(cut) if cut else None
        if found is None:
            continue
        step = max(min(leaf.scale for leaf in leaves if leaf), FINEST)
        x = clip(OPS, _in_steps(program, source, step, device.rescaling), -WIDE, WIDE)
        codes = integer_softmax(OPS, x, step, found.axis, out, device.rescaling)
        terms, hidden = _summed(program, source, step)
        if None in terms:  # of a choice, or with a constant
            return codes
        operands = [leaf.operand for leaf in terms if leaf]
        by = np.array([min(leaf.scale / step, LARGEST) for leaf in terms if leaf])
        made = values.step_of("softmax", name, operands, axis=found.axis, step=step).knowing(by=by)
        if isinstance(hidden, np.ndarray):
            made = made.knowing(hidden=compact(hidden).astype(np.int8))
        elif hidden is not None:
            condition = Operand(hidden[0], np.ones(1, np.float32), np.zeros(1, np.int32))
            made = replace(made.knowing(where=hidden[1]), operands=(*operands, condition))
        return integer_step(program, codes, made.giving(out))
    return None


def _summed(
    program: Program, value: ir.Value, step: float
) -> tuple[list[values.Leaf | None], np.ndarray | tuple[ir.Value, bool] | None]:
    """The terms of a sum, each once for each time that it is added; and where a choice takes a
    constant that is far below in place of it, or adds that: an array, or a condition that depends
    on inputs, and whether it says so where it is true. None: nowhere."""
    leaf, constant = values.leaf_of(program, value), splat_of(program, value)
    if leaf is not None or constant == 0:
        return ([] if leaf is None else [leaf]), None
    if (op := maker(value, "stablehlo.add")) is not None:
        parts = [_summed(program, v, step) for v in op.operands]
        masks = [hidden for _, hidden in parts if hidden is not None]
        known = all(isinstance(mask, np.ndarray) for mask in masks)
        if len(masks) > 1 and not known:
            return [None], None
        hidden = reduce(np.logical_or, masks) if masks and known else next(iter(masks), None)
        return [leaf for terms, _ in parts for leaf in terms], hidden
    op = maker(value, "stablehlo.select")
    if op is None:
        return [None], None
    known = Constant(program).weights(condition := op.operands[0]) is not None
    where = np.asarray(evaluate_all(program, [condition])[condition]) if known else None
    for side in (1, 2):
        constant = splat_of(program, op.operands[side])
        if constant is not None and constant / step < -WIDE:
            terms, hidden = _summed(program, op.operands[3 - side], step)
            near = sum(leaf.largest * leaf.scale / step for leaf in terms if leaf) < WIDE
            whole = known or shape_of(condition) == shape_of(value)
            if not near or hidden is not None or not whole:
                return [None], None
            if where is None:
                return terms, (condition, side == 1)
            return terms, np.broadcast_to(where if side == 1 else ~where, shape_of(value))
    return [None], None


@deep
def terms_of(program: Program, source: ir.Value) -> Steps[list[ir.Value]]:
    """Values that softmax takes each with its own scale: a mask must not widen the steps of scores.

    The terms of a sum of two, and what a select chooses from, but for constants."""
    if maker(source) is None:
        return [source]
    operands = list(source.owner.operands)
    parts = {"stablehlo.add": operands, "stablehlo.select": operands[1:]}.get(kind_of(source.owner))
    if parts is None:
        return [source]
    computed = [v for v in parts if splat_of(program, v) is None]
    if kind_of(source.owner) == "stablehlo.add" and len(computed) < 2:
        return [source]
    found: dict[ir.Value, None] = {}  # each once
    for v in computed:
        found |= dict.fromkeys((yield program, v))
    return list(found)


@deep
def _in_steps(
    program: Program, source: ir.Value, step: float, rescaling: Rescaling
) -> Steps[ir.Value]:
    """The int64 value of a tree of `terms_of` in units of `step`."""
    leaf = values.leaf_of(program, source)
    if leaf is not None:
        return in_units(OPS, values.centered(leaf), leaf.largest, leaf.scale / step, rescaling)
    constant = splat_of(program, source)
    if constant is not None:
        steps = np.rint(constant / step)
        steps = steps if abs(steps) <= WIDE else np.copysign(HIDDEN, steps)
        return OPS.full(source, np.int64(steps))
    operands = list(source.owner.operands)
    first = yield program, operands[-2], step, rescaling
    second = yield program, operands[-1], step, rescaling
    if kind_of(source.owner) == "stablehlo.add":
        return OPS.add(first, second)
    return OPS.select(operands[0], first, second)


def quotient(
    program: Program, value: ir.Value, out: Output, name: str, device: Device
) -> ir.Value | None:
    """One leaf divided by another, with as many fractional bits as `out` leaves room for."""
    if maker(value, "stablehlo.divide") is None:
        return None
    a, b = (values.leaf_of(program, v) for v in value.owner.operands)
    if a is None or b is None:
        return None
    unit = a.scale / b.scale
    furthest = max(out.high - out.zero_point, out.zero_point - out.low) * out.scale
    bits = math.floor(math.log2((1 << 30) * unit / furthest))
    bits = min(max(bits, 0), 61 - a.largest.bit_length())
    above, below = (values.centered(leaf, values.I64) for leaf in (a, b))
    q = OPS.convert(ratio(OPS, above, below, bits), np.int32)
    codes = values.saturated(device.rescaling.by(OPS, q, unit * 2.0**-bits / out.scale), out)
    name = string_attr(value.owner, NAME) or "quotient"
    step = values.step_of(
        "quotient", name, [a.operand, b.operand], value.owner, bits=bits, unit=unit
    )
    return integer_step(program, codes, step.giving(out))


def normalization(
    program: Program, value: ir.Value, out: Output, name: str, device: Device
) -> ir.Value | None:
    """LayerNorm, RMSNorm or rows of unit length, of a leaf, that end in `value`."""
    for source in behind(value):
        leaf = values.leaf_of(program, source)
        if leaf is None:
            continue
        cut, shape = between(program, source, result=value), shape_of(value)
        same = cut is not None and shape_of(source) == shape
        found = as_normalization(cut, shape, unit=True) if cut and same else None
        if found is None:
            continue
        axis, n = len(shape) - 1, shape[-1]
        own = rounded_as(value, device) == "L2Normalization"
        if own and (codes := kernel_unit_rows(program, leaf, out, name)) is not None:
            return codes
        unit = unit_rows(
            OPS,
            values.centered(leaf, values.I64),
            leaf.scale,
            found.epsilon,
            center=found.center,
            axis=axis,
            limits=(leaf.low - leaf.zero_point, leaf.high - leaf.zero_point),
        )
        gamma = np.ones(n) if found.gamma is None else found.gamma.astype(np.float64)
        row = [1] * axis + [n]
        factor = gamma.reshape(row) * math.sqrt(n) * 2.0**-30 / out.scale * (1 << FRACTION)
        y = values.scaled(program, OPS.convert(unit, np.int32), factor, name, device.rescaling)
        beta = np.zeros(n) if found.beta is None else found.beta.astype(np.float64)
        if found.beta is not None:
            steps = np.rint(beta / out.scale * (1 << FRACTION))
            y = OPS.add(y, values.spread(program, steps.reshape(row), shape, f"{name}:beta"))
        codes = values.saturated(device.rescaling.shift(OPS, y, -FRACTION), out)
        step = values.step_of("normalization", name, [leaf.operand]).knowing(
            gamma=gamma, beta=beta, epsilon=found.epsilon, center=found.center, step=leaf.scale
        )
        return integer_step(program, codes, step.giving(out))
    return None
