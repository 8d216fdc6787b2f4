"""A chain of affine steps and a clamp around a sum, as one chain of integer ops."""

from dataclasses import replace

import numpy as np

from jq.formats.integer_functions import FRACTION, Output
from jq.formats.requantize import DOUBLE, INT32, LARGEST, Rescaling, multiplier
from jq.ir import OPS, Program, evaluate, ir, shape_of
from jq.ir.affine import Affine, backwards
from jq.ir.decisions import rounded_as
from jq.ir.ops.integer_step import IntegerStep, integer_step
from jq.passes.integer._ops import clamps_behind
from jq.passes.integer._sums import sum_of
from jq.passes.integer._values import Sum, clamped, require_int32, saturated, scaled, spread
from jq.passes.integer.float_sums import factor_of, sum_of_two
from jq.target.device_table import Device


# Means of codes as the kernels of AVERAGE_POOL_2D and MEAN of TFLite's reference have them.
#
# AVERAGE_POOL_2D leaves the encoding as it is and rounds ties of codes away from zero:
#
#     (sum + n / 2) / n, or of a negative sum (sum - n / 2) / n, both quotients towards zero
#
# MEAN rescales the sum of `code - zero point`, rounding twice, by the ratio of scales with a
# mantissa that is divided by n, of which what is left is lost:
#
#     (mantissa << k) / n, exponent - k,  k = floor(log2(n))
#
# https://github.com/google-ai-edge/LiteRT (tflite/kernels/internal/reference).
def kernel_mean(
    program: Program, total: Sum, affine: Affine, out: Output, *, mean: bool
) -> ir.Value | None:
    """The codes of a sum by its number of terms (`affine`); None where it is something else."""
    (x,), counts = total.step.operands, np.rint(1 / affine.c)
    scale, zero = float(x.scale.reshape(())), int(x.zero_point.reshape(()))
    same = (scale, zero) == (out.scale, out.zero_point)
    near = np.allclose(affine.c * counts, 1, rtol=1e-6)
    if affine.b.any() or not near or (counts.size > 1 if mean else not same):
        return None
    shape = shape_of(total.value)
    n = spread(program, counts, shape, f"{total.name}:count")
    if mean:
        count = int(counts.reshape(()))
        mantissa, exponent = map(int, multiplier(np.asarray(scale / out.scale)))
        by = min(count.bit_length() - 1, 31 + exponent)
        parts = (mantissa << by) // count, max(exponent - by, 0), max(by - exponent, 0)
        mantissa, *shifts = (spread(program, np.array(v), shape, total.name) for v in parts)
        steps = DOUBLE.rescale(OPS, total.value, mantissa, tuple(shifts))
    else:
        codes = OPS.add(total.value, OPS.mul(n, zero))
        half = OPS.shift_right_signed(n, 1)
        size = OPS.quotient(OPS.add(OPS.abs(codes), half), n)
        negative = OPS.shift_right_signed(codes, 31)  # -1 or 0
        steps = OPS.sub(OPS.mul(size, OPS.add(OPS.add(negative, negative), 1)), zero)
    step = total.step.giving(out).knowing(bias=np.zeros((), np.int64), behind=np.zeros(()))
    step = step.knowing(factor=scale / out.scale / counts, once=1)
    return integer_step(program, saturated(steps, out), step)


def chain(
    program: Program, value: ir.Value, out: Output, name: str, device: Device
) -> ir.Value | None:
    """clamp(c * sum + b), as one integer chain."""
    bounds, value = clamps_behind(program, value)
    out, affine, rescaling = clamped(out, bounds), backwards(program, value), device.rescaling
    floats = rescaling.rounding == "float32"
    if floats and device.xnnpack_sums and (codes := sum_of_two(program, affine, out)) is not None:
        return codes
    total = sum_of(program, affine.source, device)
    if total is None:
        return None
    own = rounded_as(affine.source) if device.factors == "scales" else ""
    if rescaling.rounding != "double" and not (own == "AveragePool" and device.xnnpack_sums):
        own = ""  # of reference kernels, to which XNNPACK leaves pools
    if own and total.step.kind == "sum":
        codes = kernel_mean(program, total, affine, out, mean=own == "Mean")
        if codes is not None:
            return codes
    if once := own == "MatMul":
        rescaling = replace(rescaling, rounding="single")
    real = affine.c * total.factor  # of one step of the sum
    if device.factors == "scales":
        real = _of_scales(program, total.step, real)
    if not np.isfinite(real).all() or (real == 0).any():
        return None
    require_int32(total.bound, total.name)
    factor = factor_of(program, total.step, real, out.scale) if floats else real / out.scale
    bias = np.rint(affine.b / real)
    fits = np.abs(bias).max(initial=0) < 1 << (device.bias_bits - 1)
    if fits and np.max(total.bound + np.abs(bias)) <= INT32.max:
        # Beyond int32 every sum but 0 saturates.
        factor = np.clip(factor, -LARGEST, LARGEST)
        x = total.value
        if bias.any():  # it joins the accumulator in int32
            x = OPS.add(x, spread(program, bias, shape_of(x), f"{total.name}:bias"))
        steps, behind = scaled(program, x, factor, name, rescaling), np.zeros(())
    else:
        bias, behind = np.zeros(()), affine.b / out.scale
        steps = _bias_behind(program, total, factor, behind, rescaling)
    step = total.step.giving(out).knowing(bias=bias.astype(np.int64), factor=factor, behind=behind)
    step = step.knowing(once=1) if once else step
    return integer_step(program, saturated(steps, out), step)


def _of_scales(program: Program, step: IntegerStep, real: np.ndarray) -> np.ndarray:
    """The nearest that is the scale of the one tensor that a step reads times a float32 number."""
    varying = [o for o in step.operands if evaluate(program, o.codes) is None]
    if step.kind in ("add", "subtract", "multiply") or [o.scale.size for o in varying] != [1]:
        return real
    scale = varying[0].scale.astype(np.float64).reshape(())
    return np.asarray(scale * (real / scale).astype(np.float32).astype(np.float64))


def _bias_behind(
    program: Program, total: Sum, factor: np.ndarray, bias: np.ndarray, rescaling: Rescaling
) -> ir.Value:
    """`factor * sum + bias` in whole steps, where the bias is too large for the accumulator.

    Both terms have some fractional bits. A sum that would leave int32 is refused.
    """
    wide, added = factor * (1 << FRACTION), np.rint(bias * (1 << FRACTION))
    require_int32(total.bound * np.maximum(np.abs(wide), 1) + np.abs(added), total.name)
    x = scaled(program, total.value, wide, total.name, rescaling)
    x = OPS.add(x, spread(program, added, shape_of(x), f"{total.name}:bias"))
    return rescaling.shift(OPS, x, -FRACTION)
