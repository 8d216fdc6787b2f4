"""Integer values while a region is lowered: codes with known parameters, and exact sums."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from jq.base.errors import UserError
from jq.formats import Encoding, affine_format, integer_functions, is_affine
from jq.formats.integer_functions import NO_OUTPUT, Output
from jq.formats.requantize import INT32, Rescaling
from jq.ir import OPS, Op, Program, dtype_of, ir, maker, one_step, shape_of
from jq.ir.markers import DEQUANTIZE, Marker, match
from jq.ir.ops.integer import number_or_weight
from jq.ir.ops.integer_step import IntegerStep, Kind, Operand
from jq.ir.slicing import Cut, between
from jq.ir.values import reached
from jq.passes.integer._ops import Bounds, is_elementwise

I64 = np.dtype(np.int64)


@dataclass(frozen=True)
class Leaf:
    """A dequantized tensor with one scale and zero point: `scale * (codes - zero_point)`."""

    codes: ir.Value
    scale: float
    zero_point: int
    low: int  # smallest and largest code
    high: int

    @property
    def operand(self) -> Operand:
        """It as what a step reads."""
        return Operand(self.codes, np.array([self.scale], np.float32), np.array([self.zero_point]))

    @property
    def largest(self) -> int:
        """Bound on |code - zero point|."""
        return max(self.high - self.zero_point, self.zero_point - self.low)


@dataclass(frozen=True)
class Sum:
    """An exact integer tensor: `factor * value`, |value| <= bound.

    `factor` is float64, of size 1 along the axes on which it does not depend; `bound` likewise."""

    value: ir.Value
    factor: np.ndarray
    bound: np.ndarray
    name: str
    step: IntegerStep  # what it is a sum of; its result is not known yet


def step_of(
    kind: Kind, name: str, operands: Sequence[Operand], op: Op | None = None, **numbers: Any
) -> IntegerStep:
    """A step of these operands, with the op that it is and what else is known of it."""
    step = IntegerStep(kind, name, tuple(operands), NO_OUTPUT).knowing(**numbers)
    return step if op is None else step.of_op(op)


def leaf_of(program: Program, value: ir.Value) -> Leaf | None:
    """The leaf behind a value, when it is a dequantize of plain codes with one scale."""
    marker = match(value, DEQUANTIZE)
    if marker is None or math.prod(marker.encoding.grid) != 1:
        return None
    codes, known = marker.parts["codes"], parameters(program, marker)
    if known is None or shape_of(codes) != marker.encoding.shape:
        return None
    return Leaf(codes, *known, *limits(marker.encoding))


def ends(value: ir.Value) -> bool:
    """True for a dequantized value, and for an argument: a region ends there."""
    return maker(value) is None or match(value.owner) is not None


def tabled(program: Program, value: ir.Value) -> tuple[Leaf, Cut, np.ndarray] | None:
    """The one leaf that `value` depends on, element by element, the function, and the numbers of
    all codes of its type; None where it depends on more."""
    found = reached([value], lambda v: () if ends(v) else v.owner.operands, 64)
    read = [v for v in found if maker(v) is not None and ends(v)]
    leaf = leaf_of(program, read[0]) if len(read) == 1 and read[0] != value else None
    cut = None if leaf is None else between(program, read[0], result=value)
    if leaf is None or cut is None or not is_elementwise(cut):
        return None
    return leaf, cut, leaf.scale * (all_codes(leaf) - leaf.zero_point)


def limits(enc: Encoding) -> tuple[int, int]:
    return affine_format(enc.format).limits(enc)


def parameters(program: Program, marker: Marker) -> tuple[float, int] | None:
    """Scale and zero point of a per-tensor marker, when they are constants."""
    known = one_step(program, marker.parts) if is_affine(marker.encoding.format) else None
    return None if known is None else (float(known[0]), known[1])


def static_parameters(enc: Encoding, scale: float, zero: int | None) -> dict[str, ir.Value]:
    """Constant parts of a quantize of one scale and, where the scheme has it, one zero point."""
    given = {"scale": OPS.constant(np.full(enc.grid, scale, np.float32))}
    if zero is not None and enc.scheme == "asymmetric":
        given["zero_point"] = OPS.constant(np.full(enc.grid, zero, np.int32))
    return given


def output_of(program: Program, marker: Marker) -> Output | None:
    """The output that a per-tensor quantize asks for."""
    if math.prod(marker.encoding.grid) != 1:
        return None
    known = parameters(program, marker)
    ends = limits(marker.encoding)
    return None if known is None else Output(*known, *ends, max(ends) > np.iinfo(np.int8).max)


def code_of(out: Output, x: float) -> int:
    """The code of a real number, which may be infinite, saturated."""
    return int(np.clip(np.rint(x / out.scale) + out.zero_point, out.low, out.high))


def clamped(out: Output, bounds: Bounds) -> Output:
    """The codes that are left of an output when real values stay within bounds."""
    low, high = (code_of(out, x) for x in bounds)
    return replace(out, low=low, high=high)


def saturated(steps: ir.Value, out: Output) -> ir.Value:
    """Codes of whole steps of `out`."""
    return integer_functions.saturated(OPS, steps, out)


def centered(leaf: Leaf, dtype: Any = np.int32) -> ir.Value:
    """`codes - zero_point`."""
    wide = OPS.convert(leaf.codes, dtype)
    return OPS.sub(wide, leaf.zero_point) if leaf.zero_point else wide


def all_codes(leaf: Leaf) -> np.ndarray:
    """Those of a leaf's type, whatever its limits."""
    ends = np.iinfo(dtype_of(leaf.codes))
    return np.arange(ends.min, ends.max + 1)


def index(leaf: Leaf) -> ir.Value:
    """The number of each code of a leaf, from the least of its type on."""
    return OPS.sub(OPS.convert(leaf.codes, np.int32), int(np.iinfo(dtype_of(leaf.codes)).min))


def spread(program: Program, array: Any, shape: Any, name: str, dtype: Any = np.int32) -> ir.Value:
    """A compact integer array over `shape`; a vector becomes a weight of the program."""
    made = partial(number_or_weight, program, name)
    return OPS.spread(np.asarray(array).astype(dtype), shape, made)


def scaled(
    program: Program, x: ir.Value, factor: np.ndarray, name: str, rescaling: Rescaling
) -> ir.Value:
    """`rescale` of an int32 value, or a sum of 64 bits, by real factors known now; int32."""
    shape = shape_of(x)
    mantissa, left, right = rescaling.split(factor, wide=dtype_of(x) == I64)
    by = spread(program, mantissa, shape, f"{name}:multiplier")
    sides = (("left", left), ("right", right))
    shifts = [spread(program, v, shape, f"{name}:{k}") if v.any() else None for k, v in sides]
    return rescaling.rescale(OPS, x, by, (shifts[0], shifts[1]))


def require_int32(bound: np.ndarray, name: str) -> None:
    """Refuses a sum that could leave int32.

    Raises:
        UserError: with the op's name and the largest sum that the weight codes allow."""
    worst = float(np.max(bound, initial=0.0))
    if worst > INT32.max:
        what = f"a sum can reach {worst:.0f}, more than an int32 accumulator holds"
        hint = "keep it float by a rule, or calibrate on data that uses the range"
        raise UserError(what, op=name, hint=hint)
