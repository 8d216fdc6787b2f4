"""Operators on codes that TFLite's kernels round otherwise than the device's rescale does.

Those of LiteRT round twice, whatever the device does. Its default leaves QUANTIZE, LEAKY_RELU and
MEAN of 8 bits to XNNPACK, where that takes the ratio of scales (the first two lines; of MEAN all
in float32). AVERAGE_POOL_2D rounds ties of codes away from zero, its quotients go towards zero;
LiteRT's MEAN divides a mantissa by the number of codes, and loses what is left.

    QUANTIZE, LEAKY_RELU   (m * (code - zero) + 2^7) >> 8, m = rint(2^8 * ratio); below 0 of its own
    MEAN of n codes        rint(sum * ratio / n + (zero' - n * zero * ratio / n))
    FULLY_CONNECTED        round(sum * ratio) in float64, ties away from zero
    AVERAGE_POOL_2D        (sum + n / 2) / n, or of a negative sum (sum - n / 2) / n
    MEAN of LiteRT         by (mantissa << k) / n, exponent - k,  k = floor(log2(n))
    L2_NORMALIZATION       rescales by the inverse root of the sum of squares, one of integers
    SQUARED_DIFFERENCE     rescales both to 7 fractional bits of twice the larger scale, and squares

https://github.com/google-ai-edge/LiteRT (tflite/kernels, tflite/kernels/internal/reference),
https://github.com/google/XNNPACK (qs8-vcvt, qs8-vlrelu, reduce-nd)."""

import math

import numpy as np

from jq.formats.arrays import Array, IntegerOps
from jq.formats.integer_functions import Output
from jq.formats.requantize import DOUBLE, SINGLE, Rescaling, multiplier
from jq.ir import NAME, OPS, Program, dtype_of, ir, maker, shape_of, string_attr
from jq.ir.affine import Affine
from jq.ir.numbers import Number
from jq.ir.ops.integer_step import integer_step
from jq.passes.integer import _values as values
from jq.passes.integer._ops import Bounds
from jq.passes.integer._sums import repeated
from jq.target.device_table import Device

ANY = -math.inf, math.inf
COUNTED = 1 << 14  # codes of a mean whose sums have a table, of up to 16 MB
# What rescales within bounds.
RESCALES = {ANY: "QUANTIZE", (0.0, math.inf): "RELU", (0.0, 6.0): "RELU6"}
RESCALES |= {(-1.0, 1.0): "RELU_N1_TO_1"}
F32, I16, I32 = np.float32, np.iinfo(np.int16), np.iinfo(np.int32)


def _xnnpack(device: Device, *ratios: np.float32) -> bool:
    """True if XNNPACK computes it, which has multipliers for these ratios of scales alone."""
    floats = device.of_tflite and device.rounding == "float32"
    return floats and all(2.0**-8 <= abs(ratio) < 2.0**7 for ratio in ratios)


def kernel_rescale(
    program: Program, value: ir.Value, out: Output, bounds: Bounds, device: Device
) -> tuple[Rescaling, np.ndarray] | None:
    """The rounding and the factor by which one of `RESCALES` makes codes of others; else None."""
    leaf = values.leaf_of(program, value)
    if leaf is None or bounds not in RESCALES or not device.of_tflite:
        return None
    if bounds == (-1.0, 1.0) and max(leaf.high, out.high) > 255:
        return None  # LiteRT has none of 16 bits
    ratio = F32(leaf.scale) / F32(out.scale)
    if bounds != ANY:
        return DOUBLE, np.asarray(ratio, np.float64)
    alike = (leaf.low < 0) == (out.low < 0) and max(leaf.high, out.high) < 256
    if alike and _xnnpack(device, ratio):
        return SINGLE, np.rint(256 * np.float64(ratio)) / 256
    return DOUBLE, np.asarray(leaf.scale / out.scale)


def rounded_away(program: Program, x: ir.Value, factor: np.ndarray, name: str) -> ir.Value | None:
    """`x * factor` of sums below 2^47, rounded once, ties away from zero, and saturated; int32.

    None where `SINGLE` gives the same (sums of int32 that meet no ties), and of factors that are 1
    and more. Products are of 24 by 27 bits, of a factor's 53; units of 2^-51 are left of them."""
    fraction, exponent = np.frexp(factor)
    mantissa, wide = np.ldexp(fraction, 53).astype(np.int64), dtype_of(x) == values.I64
    tied = (mantissa & (1 << 22) - 1 == 0).any()
    if not (wide or tied) or exponent.max() > 0 or exponent.min() < -60 or (factor <= 0).any():
        return None
    parts, shape = (mantissa >> 27, mantissa & (1 << 27) - 1, 2 - exponent), shape_of(x)
    top, rest, by = (Number(values.spread(program, v, shape, name, values.I64)) for v in parts)
    given = Number(OPS.convert(x, values.I64))
    high, low = abs(given) >> 24, abs(given) & (1 << 24) - 1
    below = (high * rest + (low * top << 3) + (low * rest >> 24)) >> 27
    half = Number(OPS.shift_left(1, (by - 1).value))
    size = (high * top + below + half >> by).minimum(1 << 17)
    return (size * ((given >> 63) * 2 + 1)).as_type(np.int32).value


def kernel_mean(
    program: Program, total: values.Sum, affine: Affine, out: Output, own: str, device: Device
) -> ir.Value | None:
    """Codes of a sum by its number of terms (`affine`), of the operator `own`; None of others."""
    (x,), counts = total.step.operands, np.rint(1 / affine.c)
    scale, zero = float(x.scale.reshape(())), int(x.zero_point.reshape(()))
    same, mean = (scale, zero) == (out.scale, out.zero_point), own == "Mean"
    near = np.allclose(affine.c * counts, 1, rtol=1e-6)
    if affine.b.any() or not near or (counts.size > 1 if mean else not same):
        return None
    shape = shape_of(total.value)
    n = values.spread(program, counts, shape, f"{total.name}:count")
    count = int(counts.flat[0])
    ends = np.iinfo(dtype_of(x.codes))
    if mean and ends.bits == 8 and count <= COUNTED and _xnnpack(device):
        least, most = (count * int(end) for end in (ends.min, ends.max))
        factor = F32(scale) / F32(out.scale) * (F32(1) / F32(count))
        added = F32(out.zero_point) - F32(count * zero) * factor
        codes = np.rint(np.arange(least, most + 1).astype(F32) * factor + added)
        table = np.clip(codes, I16.min, I16.max).astype(np.int32) - out.zero_point
        steps = OPS.take(table, OPS.add(total.value, count * zero - least))
    elif mean:
        mantissa, exponent = map(int, multiplier(np.asarray(scale / out.scale)))
        by = min(count.bit_length() - 1, 31 + exponent)
        parts = (mantissa << by) // count, max(exponent - by, 0), max(by - exponent, 0)
        mantissa, *shifts = (values.spread(program, np.array(v), shape, total.name) for v in parts)
        steps = DOUBLE.rescale(OPS, total.value, mantissa, tuple(shifts))
    else:
        codes = OPS.add(total.value, OPS.mul(n, zero))
        half = OPS.shift_right_signed(n, 1)
        size = OPS.quotient(OPS.add(OPS.abs(codes), half), n)
        negative = OPS.shift_right_signed(codes, 31)  # -1 or 0
        steps = OPS.sub(OPS.mul(size, OPS.add(OPS.add(negative, negative), 1)), zero)
    step = total.step.giving(out).knowing(bias=np.zeros((), np.int64), behind=np.zeros(()))
    step = step.knowing(factor=scale / out.scale / counts, own=1)
    return integer_step(program, values.saturated(steps, out), step)


def inverse_root(ops: IntegerOps, x: Array) -> tuple[Array, Array]:
    """`1 / sqrt(x)` of int32 x >= 0, `mantissa * 2^(-31 - right)`, as LiteRT has it; of 0 as of 1.

    Five steps of Newton's method from 1, with 28 fractional bits, of x / 4^k in [1/4, 1)."""
    wide = ops.convert(x, np.int64)
    pairs = ops.shift_right_signed(ops.sub(ops.leading_zeros(wide), 33), 1)  # of bits in front
    fixed = ops.shift_right(ops.shift_left(wide, ops.add(pairs, pairs)), 3)

    def times(a: Array, b: Array) -> Array:
        return ops.shift_right_signed(ops.add(ops.mul(a, b), 1 << 30), 31)

    half = ops.shift_right(ops.add(fixed, 1), 1)
    y = ops.add(ops.sub(wide, wide), 1 << 28)
    for _ in range(5):
        cube = ops.minimum(ops.shift_left(times(times(y, y), y), 6), I32.max)
        y = ops.shift_left(ops.sub(times(3 << 27, y), times(half, cube)), 3)
    y = ops.shift_left(times(y, 1518500250), ops.maximum(ops.sub(pairs, 12), 0))  # sqrt(1/2)
    one = ops.equal(ops.maximum(wide, 1), 1)
    right = ops.select(one, 0, ops.maximum(ops.sub(12, pairs), 0))
    return ops.convert(ops.select(one, I32.max, y), np.int32), ops.convert(right, np.int32)


def kernel_unit_rows(
    program: Program, leaf: values.Leaf, out: Output, name: str
) -> ir.Value | None:
    """Codes of rows divided by their length, in steps of 1/128; None of what the kernel refuses."""
    x = values.centered(leaf)
    shape, axes = shape_of(x), range(len(shape_of(x)))
    given = out.dtype == dtype_of(leaf.codes) == np.int8 and shape[-1] * leaf.largest**2 <= I32.max
    if not given or (out.scale, out.zero_point) != (2.0**-7, 0):
        return None
    mantissa, right = inverse_root(OPS, OPS.reduce_sum(OPS.mul(x, x), [axes[-1]]))
    shifts = OPS.maximum(OPS.sub(7, right), 0), OPS.maximum(OPS.sub(right, 7), 0)
    mantissa, *parts = (OPS.broadcast(v, shape, axes) for v in (mantissa, *shifts))
    steps = DOUBLE.rescale(OPS, x, mantissa, (parts[0], parts[1]))
    step = values.step_of("normalization", name, [leaf.operand], own=1, behind=np.zeros(()))
    return integer_step(program, values.saturated(steps, out), step.giving(out))


def kernel_squares(
    program: Program, affine: Affine, out: Output, rescaling: Rescaling
) -> ir.Value | None:
    """Codes of the squared difference of two leaves, each in units of twice the larger scale, with
    7 fractional bits, on all devices; None of others, and where the kernel refuses the scales."""
    op = maker(affine.source)
    op = op and maker(op.operands[0], "stablehlo.subtract")
    leaves = [repeated(program, v) for v in op.operands] if op else []
    known = [leaf for leaf in leaves if leaf is not None and leaf.high < 256]
    unit = 2 * max((leaf.scale for leaf in known), default=0)
    factor = unit**2 / (out.scale * (1 << 14))
    if op is None or len(known) < 2 or out.wide or (affine.c != 1).any() or affine.b.any():
        return None
    if factor >= 1:
        return None
    first, second = (
        rescaling.by(OPS, OPS.shift_left(values.centered(leaf), 7), leaf.scale / unit)
        for leaf in known
    )
    apart = OPS.sub(first, second)
    steps = rescaling.by(OPS, OPS.mul(apart, apart), factor)
    name, operands = string_attr(op, NAME) or "difference", [leaf.operand for leaf in known]
    step = values.step_of("subtract", name, operands, op, own=1, behind=np.zeros(()))
    return integer_step(program, values.saturated(steps, out), step.giving(out))
