"""Floats between the codes of a TFLite file, as LiteRT computes them: tables of all codes.

One tensor is looked up by its codes, two of 8 bits by both, with a table for each place where
constants vary. The QUANTIZE behind them has an arithmetic of its own:

    XNNPACK's, of 8 bits         rint(x * (1 / scale)), ties to even
    LiteRT's default, of 16      x * (1 / scale) and a half towards zero, of which it takes eight
    its reference kernel         round(x / scale), ties away from zero

https://github.com/google-ai-edge/LiteRT (tflite/kernels/internal/reference/quantize.h),
https://github.com/google/XNNPACK (f32-qs8-vcvt)."""

import math
from dataclasses import replace

import numpy as np

from jq.base.errors import LOG
from jq.formats.integer_functions import Output, tabulated
from jq.ir import OPS, Program, ir, kind_of, maker, shape_of
from jq.ir.affine import compact
from jq.ir.decisions import rounded_as
from jq.ir.ops.integer_step import integer_step
from jq.ir.pointwise import ELEMENTWISE
from jq.ir.slicing import Cut, between
from jq.ir.values import reached
from jq.passes.integer import _values as values
from jq.passes.integer._sums import repeated
from jq.passes.integer._tables import away
from jq.target.device_table import Device

MOST, FURTHEST = 1 << 18, 64  # entries of a table; values between codes
# In kernels not always the nearest numbers.
_NAMES = (
    "cosine exponential exponential_minus_one log log_plus_one logistic power rsqrt sine tan tanh"
)
NEAR = {f"stablehlo.{name}" for name in _NAMES.split()} | {"chlo.erf", "chlo.erfc"}


def kernel_floats(
    program: Program, value: ir.Value, out: Output, name: str, device: Device
) -> ir.Value | None:
    """Codes of floats that are computed element by element; None of others."""
    leaves = dict[ir.Value, values.Leaf]()

    def behind(v: ir.Value) -> list[ir.Value]:
        leaf = None if maker(v) is None else repeated(program, v)
        leaves.update({v: leaf} if leaf else {})
        return [] if leaf or maker(v) is None else list(v.owner.operands)

    reached([value], behind, FURTHEST)
    if not leaves:
        return None
    whole = Cut(value, value, (), {})
    cut = whole if value in leaves else between(program, *leaves, result=value)
    kinds = {kind_of(op) for op in cut.ops} if cut else {""}
    known = {v: compact(array) for v, array in cut.constants.items()} if cut else {}
    places = np.broadcast_shapes([1] * len(shape_of(value)), *(a.shape for a in known.values()))
    codes, count = [values.all_codes(leaf) for leaf in leaves.values()], math.prod(places)
    fits = kinds <= ELEMENTWISE and math.prod([count, *map(len, codes)]) <= MOST
    # Of XNNPACK's HARD_SWISH, which has one rounding less, and of 16 bits few codes are others.
    fused = cut is not None and any(rounded_as(op.results[0]) == "HardSwish" for op in cut.ops)
    few = (out.high > 255 or fused) and device.rounding == "float32"
    if not fits or few or kinds & NEAR:
        text = f"{name}: codes may differ from LiteRT's (floats between codes)"
        LOG.warning("%s", text)
        program.tell(text)
    if cut is None or not fits:
        return None
    known = {v: a.reshape(*a.shape, *[1] * len(leaves)) for v, a in known.items()}
    at = np.arange(count).reshape(places)
    index = values.spread(program, at, shape_of(value), f"{name}:place") if count > 1 else None
    for i, (v, leaf) in enumerate(leaves.items(), 1):
        x = leaf.scale * (codes[i - 1] - leaf.zero_point)
        known[v] = x.astype(np.float32).reshape(-1, *[1] * (len(leaves) - i))
        inner = values.index(leaf)
        index = inner if index is None else OPS.add(OPS.mul(index, x.size), inner)
    y = np.broadcast_to(
        replace(cut, constants=known)(known[cut.source]), [*places, *map(len, codes)]
    )
    steps = _quantized(y.reshape(-1), out, device)
    kind: values.Kind = "table" if y.size == len(codes[0]) else "table_of_several"
    operands = [leaf.operand for leaf in leaves.values()]
    step = values.step_of(kind, name, operands, maker(value), steps=steps, whole=1)
    table = tabulated(OPS, index, steps, out, whole=True)
    return integer_step(program, table, step.giving(out))


def _quantized(x: np.ndarray, out: Output, device: Device) -> np.ndarray:
    """Steps of float32 numbers. Of what is none, and beyond 32 bits, kernels give an end."""
    scale, largest = np.float32(out.scale), np.float32(1 << 31)
    wide, default = out.high > 255, device.rounding == "float32"
    with np.errstate(over="ignore", invalid="ignore"):
        real = x * np.float32(1 / scale) if default else x / scale
        if default and not wide:
            return np.where(np.isnan(real), largest, np.rint(real)).astype(np.float64)
        steps = np.trunc(real + np.copysign(np.float32(0.5), real)) if default else away(real)
        # x86 converts them to -2^31, and a sum with a zero point below 0 wraps.
        end = largest if out.zero_point < 0 else -largest
        return np.where(abs(steps) < largest, steps, end).astype(np.float64)
