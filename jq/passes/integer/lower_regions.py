"""Turns what stands between dequantizes and a quantize into integer arithmetic.

    %d = composite "jq.dequantize" %q        %w = composite "jq.dequantize" %codes
    %y = convolution %d, %w;  %b = add %y, %bias;  %r = maximum %b, 0
    %o = composite "jq.quantize" %r
    ->
    %acc = add (convolution %q, %codes : i32), %bias_codes
    %o = clamp(rescale(%acc) + zero_point)

The chain of affine steps becomes the factor of the rescale and a constant in the accumulator,
clamps become the clamp of the result. A function of one tensor is a table of 256 codes. What has no
such form is left as it is; `verify-integer` names it. Only for `placement=early`: elsewhere floats
between products cost nothing, and kernels compute them."""

import re
from functools import partial
from typing import Any

import numpy as np

from jq.base.errors import FormatError, UserError
from jq.formats.integer_functions import Output, tabulated
from jq.ir import OPS, Program, at, dtype_of, ir, is_read, kind_of, maker
from jq.ir.build import NAME, SCOPE, replace, string_attr
from jq.ir.decisions import decline, declined, declined_by_shape, rounded_as
from jq.ir.markers import QUANTIZE, Marker, match
from jq.ir.ops.integer_step import integer_step
from jq.ir.types import number_kind
from jq.ir.values import reached
from jq.passes.base import Pass, PassContext
from jq.passes.integer._comparisons import comparison, finite, place
from jq.passes.integer._floats import kernel_floats
from jq.passes.integer._functions import normalization, quotient, softmax
from jq.passes.integer._ops import apply_to_codes, clamps_behind, is_float
from jq.passes.integer._tables import kernel_table
from jq.passes.integer._values import code_of, ends, index, leaf_of, output_of, step_of, tabled
from jq.passes.integer.chain import chain
from jq.target.device_table import FUNCTIONS, Device
from jq.target.target import Target

HELP = "write it with ops that the docs' page on integer-only programs lists"


class LowerRegions(Pass):
    def run(self, program: Program, cx: PassContext) -> bool:
        changed = _quantized(program, cx.target)
        _erase_unread(program)
        if "table" in cx.target.device.functions:
            changed |= _converted(program)
        if "compare" in cx.target.device.functions:
            changed |= _compared(program, cx.target.device)  # those that no table holds
        _erase_unread(program)
        program.drop_dead()
        return changed


def _quantized(program: Program, target: Target) -> bool:
    changed = False
    for op in list(program.walk()):
        marker = match(op, QUANTIZE)
        out = output_of(program, marker) if marker else None
        if marker is None or out is None:
            continue
        try:
            with at(op):
                codes = _lower(program, marker, op.operands[0], out, target)
        except FormatError as error:
            raise _too_far(marker, out, error) from error
        if codes is not None:
            replace(op, [codes])
            changed = True
    return changed


def _too_far(marker: Marker, out: Output, error: FormatError) -> UserError:
    """The error for values whose steps are too far from those of their result for one rescale."""
    owner = maker(marker.op.operands[0])
    named = string_attr(owner, NAME) if owner is not None else None
    name = named or re.sub(r" result(#\d+)?$", "", marker.tensor or "")  # that of its edge
    return UserError(
        f"its operands cannot be brought to steps of {out.scale:.3g}, those of its result"
        f" ({error.message})",
        op=name or "a value without a name",
        hint="scale weights, constants or data so that they are closer to the result, keep the op"
        " float by a rule, or calibrate on data that uses the range",
    )


def _converted(program: Program) -> bool:
    """Tables of whole numbers: a rounding, whose result has no codes of its own, among them."""
    found = [op for op in program.walk() if kind_of(op) == "stablehlo.convert"]
    changed = False
    for op in [op for op in found if is_float(op.operands[0])]:
        kind = dtype_of(op.results[0])
        if number_kind(kind) not in "ib":
            continue
        wide = np.int32 if np.can_cast(kind, np.int32) else np.int64
        with at(op):
            if (value := _looked_up(program, op.results[0], np.dtype(wide))) is not None:
                op.operands[0], changed = value, True
    return changed


def _compared(program: Program, device: Device) -> bool:
    forms = {"compare": comparison, "reduce": place, "is_finite": finite}
    kinds, changed = {f"stablehlo.{kind}": form for kind, form in forms.items()}, False
    for op in [op for op in program.walk() if kind_of(op) in kinds]:
        with at(op):
            value = kinds[kind_of(op)](program, op, device)
            if value is None and (found := _looked_up(program, op.results[-1], np.dtype(np.int8))):
                value = OPS.compare(found, 0, "NE")  # of a condition
        if value is not None:
            if (made := maker(value)) is not None and NAME in op.attributes:
                made.attributes[SCOPE] = op.attributes[NAME]  # for messages
            op.results[-1].replace_all_uses_with(value)
            changed = True
    return changed


def _erase_unread(program: Program) -> None:
    """Erases what the regions were; composites have to be erased by hand."""
    for op in reversed(list(program.walk())):
        read = is_read(*op.results)
        if op.results and not read and op.operation.name != "stablehlo.custom_call":
            op.operation.erase()


def _lower(
    program: Program, marker: Marker, value: ir.Value, out: Output, target: Target
) -> ir.Value | None:
    """The codes of `value`; None where it or the device has no integer form (told by the op)."""
    inside = reached([value], lambda v: () if ends(v) else v.owner.operands)
    between = [v.owner for v in inside if not ends(v)]  # from dequantizes on
    found = (leaf_of(program, v) for v in (value, *(v for op in between for v in op.operands)))
    device = target.device.for_codes(max(out.high, *(leaf.high for leaf in found if leaf), 0))
    if any(map(declined_by_shape, between)):
        return None
    own = rounded_as(marker.op.results[0], device)
    if own and (codes := kernel_floats(program, value, out, marker.tensor, target.device)):
        return codes
    lacking = []
    forms = _table, softmax, normalization, quotient  # of the first of FUNCTIONS
    for name, form in zip(FUNCTIONS, forms, strict=False):
        codes = form(program, value, out, marker.tensor, device)
        if codes is not None and name in device.functions:
            return codes
        if codes is not None:  # it stays unread, and is erased
            lacking.append(name)
    if not any(map(declined, between)):
        codes = _truth(value, out) or chain(program, value, out, marker.tensor, device)
        if codes is None and lacking:
            decline(value.owner, f"target {target.name} has no {lacking[0]} on codes", HELP)
        return codes
    return None


def _table(
    program: Program, value: ir.Value, out: Output, name: str, device: Device
) -> ir.Value | None:
    """An elementwise function of one tensor, known for every code that it can have; none where
    kernels rescale codes that are clamped alone."""
    found = tabled(program, value)
    if found is None or not is_float(value) or len(found[2]) > device.table_entries:
        return None
    if device.of_tflite and leaf_of(program, clamps_behind(program, value)[1]):
        return None
    leaf, cut, x = found
    with np.errstate(invalid="ignore", over="ignore"):
        steps = np.nan_to_num(apply_to_codes(cut, x) / np.float32(out.scale))
        kind, function = rounded_as(value, device), partial(apply_to_codes, cut)
        own = kernel_table(kind, leaf, function, out, device)
    steps, whole = (steps, {}) if own is None else (own, {"whole": 1})
    codes = tabulated(OPS, index(leaf), steps.astype(np.float64), out, bool(whole))
    step = step_of("table", name, [leaf.operand], value.owner, steps=steps, **whole)
    return integer_step(program, codes, step.giving(out))


def _looked_up(program: Program, value: ir.Value, kind: np.dtype[Any]) -> ir.Value | None:
    """A function of one leaf, from the table of its numbers in a type of integers."""
    found = tabled(program, value)
    if found is None:
        return None
    leaf, cut, x = found
    return OPS.take(apply_to_codes(cut, x).astype(kind), index(leaf))


def _truth(value: ir.Value, out: Output) -> ir.Value | None:
    """0 and 1 made of a condition."""
    op = maker(value, "stablehlo.convert")
    if op is None:
        return None
    condition = op.operands[0]
    if dtype_of(condition) != np.bool_:
        return None
    low, high = (code_of(out, number) for number in (0, 1))
    no, yes = (OPS.full(value, np.dtype(out.dtype).type(c)) for c in (low, high))
    return OPS.select(condition, yes, no)
