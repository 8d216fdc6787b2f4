"""A chain of affine steps and a clamp around a sum, as one chain of integer ops.

Factors and sums of two tensors may be those of LiteRT's float32 kernels (XNNPACK, qs8-vadd:
https://github.com/google/XNNPACK). Such a sum has a multiplier of 21 bits for each, and one shift:

    (A * (x - zero) + B * (y - zero) + 2^(k - 1)) >> k,  k = 20 - exponent of the larger ratio,
    A = rint(2^k * x's scale / the result's)"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from jq.formats.integer_functions import FRACTION, Output
from jq.formats.pairs import F32, paired
from jq.formats.requantize import DOUBLE, INT32, LARGEST, SINGLE, Rescaling
from jq.ir import NAME, OPS, Program, dtype_of, evaluate, ir, kind_of, maker, shape_of, string_attr
from jq.ir.affine import Affine, backwards
from jq.ir.decisions import rounded_as
from jq.ir.numbers import Number
from jq.ir.ops.integer_step import IntegerStep, integer_step
from jq.passes.integer import _tflite as kernels
from jq.passes.integer import _values as values
from jq.passes.integer._ops import Bounds, clamps_behind
from jq.passes.integer._sums import repeated, sum_of
from jq.target.device_table import Device

MOST = 1 << 47  # of sums of 64 bits
CLOSE = 1e-6  # of a factor to that of a mere sum
BITS = 20  # of the larger multiplier, below its first
LEAST, LARGE = 2.0**-10, 2.0**8  # ratios of scales that XNNPACK takes
CODES = 255  # largest |code - zero point|: sums stay in int32


def chain(
    program: Program, value: ir.Value, out: Output, name: str, device: Device
) -> ir.Value | None:
    """clamp(c * sum + b), as one integer chain."""
    bounds, value = clamps_behind(program, value)
    if device.wide_sums and out.low == 1 - (1 << 15):  # of kernels the type's own end
        out = replace(out, low=out.low - 1)
    out, affine = values.clamped(out, bounds), backwards(program, value)
    own = rounded_as(affine.source, device)
    floats = device.rounding == "float32"
    if floats and device.xnnpack_sums and (codes := sum_of_two(program, affine, out)) is not None:
        return codes
    if rounded_as(affine.source) == "SquaredDifference":
        rescaling = DOUBLE if device.of_tflite else device.rescaling
        return kernels.kernel_squares(program, affine, out, rescaling)
    total = sum_of(program, affine.source, device)
    if total is None:
        return None
    if dtype_of(total.value) != np.int64:
        values.require_int32(total.bound, total.name)
    if floats and not device.xnnpack_sums and (codes := of_pairs(total, affine, out)):
        return integer_step(program, *codes)
    if own and total.step.kind == "sum":
        codes = kernels.kernel_mean(program, total, affine, out, own, device)
        if codes is not None:
            return codes
    scaling = _scaling_of(program, total, affine, out, own, bounds, device)
    return None if scaling is None else _scaled(program, total, affine, out, name, scaling, device)


class _Scaling(NamedTuple):
    real: np.ndarray  # what a unit of a sum is worth; float64
    factor: np.ndarray  # of the sum to its codes
    rounding: Rescaling
    known: dict[str, int]  # what the step tells of it
    away: bool = False  # ties are rounded away from zero


def _scaling_of(
    program: Program,
    total: values.Sum,
    affine: Affine,
    out: Output,
    own: str,
    bounds: Bounds,
    device: Device,
) -> _Scaling | None:
    """The factor of a sum to codes of `out`; of a TFLite operator `own`, that of its kernel."""
    floats, wide = device.rounding == "float32", dtype_of(total.value) == np.int64
    kernel = kernels.kernel_rescale(program, affine.result, out, bounds, device)
    once = own in (("PRelu", "BatchMatMul") if floats else ("MatMul",))  # not as the device does
    real = affine.c * total.factor  # of one step of the sum
    if device.factors == "scales":
        real = _of_scales(program, total.step, real)
    if not np.isfinite(real).all():
        return None
    if kernel:
        rounding, factor = kernel
        return _Scaling(real, factor, rounding, {"own": [*kernels.RESCALES].index(bounds)})
    narrow = floats and own != "BatchMatMul"
    if narrow or (device.of_tflite and total.step.kind == "multiply"):
        factor = factor_of(program, total.step, real, out.scale)
    else:
        factor = real / out.scale
    known = {"wide": 1} if wide else {}
    if once:
        return _Scaling(real, factor, DOUBLE if floats else SINGLE, known | {"own": 1}, not floats)
    return _Scaling(real, factor, device.rescaling, known)


@np.errstate(divide="ignore", invalid="ignore")  # of a factor that is 0, b alone is left
def _scaled(
    program: Program,
    total: values.Sum,
    affine: Affine,
    out: Output,
    name: str,
    scaling: _Scaling,
    device: Device,
) -> ir.Value | None:
    """A sum's codes, its bias in the accumulator if that holds it; None where it would wrap."""
    x, factor, wide = total.value, scaling.factor, dtype_of(total.value) == np.int64
    bias, behind = np.rint(np.where(affine.b, affine.b / scaling.real, 0)), np.zeros(())
    fits = wide or np.abs(bias).max(initial=0) < 1 << (device.bias_bits - 1)
    largest = total.bound + np.abs(bias)
    if wide and np.max(largest * np.abs(factor)) > INT32.max:
        return None
    if fits and np.max(largest) <= (MOST if wide else INT32.max):
        # Beyond int32 every sum but 0 saturates.
        factor = np.clip(factor, -LARGEST, LARGEST)
        if bias.any():  # it joins the accumulator
            added = values.spread(program, bias, shape_of(x), f"{total.name}:bias", dtype_of(x))
            x = OPS.add(x, added)
        steps = kernels.rounded_away(program, x, factor, name) if scaling.away else None
        if wide and scaling.away and steps is None:
            return None
        steps = steps or values.scaled(program, x, factor, name, scaling.rounding)
    else:
        bias, behind = np.zeros(()), affine.b / out.scale
        steps = _bias_behind(program, total, factor, behind, scaling.rounding)
    step = total.step.giving(out).knowing(bias=bias.astype(np.int64), factor=factor, behind=behind)
    return integer_step(program, values.saturated(steps, out), step.knowing(**scaling.known))


def _of_scales(program: Program, step: IntegerStep, real: np.ndarray) -> np.ndarray:
    """The nearest that is the scale of the one tensor that a step reads times a float32 number, or
    the product of two scales, which kernels of matrix products round to float32."""
    varying = [o for o in step.operands if evaluate(program, o.codes) is None]
    sizes = [o.scale.size for o in varying]
    if step.kind == "contraction" and sizes == [1, 1] and real.size == 1:
        return real.astype(np.float32).astype(np.float64)
    if step.kind in ("add", "subtract", "multiply") or sizes != [1]:
        return real
    scale = varying[0].scale.astype(np.float64).reshape(())
    return np.asarray(scale * (real / scale).astype(np.float32).astype(np.float64))


def _bias_behind(
    program: Program, total: values.Sum, factor: np.ndarray, bias: np.ndarray, rescaling: Rescaling
) -> ir.Value:
    """`factor * sum + bias` in whole steps, where the bias is too large for the accumulator.

    Both terms have some fractional bits. A sum that would leave int32 is refused."""
    wide, added = factor * (1 << FRACTION), np.rint(bias * (1 << FRACTION))
    values.require_int32(total.bound * np.maximum(np.abs(wide), 1) + np.abs(added), total.name)
    x = values.scaled(program, total.value, wide, total.name, rescaling)
    x = OPS.add(x, values.spread(program, added, shape_of(x), f"{total.name}:bias"))
    return rescaling.shift(OPS, x, -FRACTION)


def multipliers(scales: np.ndarray, out: float) -> tuple[np.ndarray, int] | None:
    """Those of two tensors and the shift; None where XNNPACK takes no such scales.

    Args:
        scales: float32 [2], may be negative; `out`: of the result."""
    ratios = scales.astype(F32) / F32(out)
    size = np.abs(ratios).astype(np.float64)
    if (size < LEAST).any() or (size >= LARGE).any():
        return None
    shift = BITS - (int(np.frexp(size.max())[1]) - 1)
    return np.rint(np.ldexp(ratios.astype(np.float64), shift)).astype(np.int32), shift


def sum_of_two(program: Program, affine: Affine, out: Output) -> ir.Value | None:
    """The codes of a sum or a difference of two leaves, by a factor for both; None of others."""
    op = maker(affine.source)
    kind = "" if op is None else kind_of(op).removeprefix("stablehlo.")
    if op is None or kind not in ("add", "subtract") or affine.c.size != 1 or affine.b.any():
        return None
    leaves = [repeated(program, v) for v in op.operands]
    known = [leaf for leaf in leaves if leaf is not None and leaf.largest <= CODES]
    if len(known) != 2:
        return None
    signs = np.array([1, -1 if kind == "subtract" else 1])
    scales = np.array([leaf.scale for leaf in known]) * signs * affine.c.reshape(())
    found = multipliers(scales, out.scale)
    if found is None:
        return None
    by, shift = found
    x, y = (Number(values.centered(leaf)) for leaf in known)
    steps = (x * int(by[0]) + y * int(by[1]) + (1 << (shift - 1))) >> shift
    name = string_attr(op, NAME) or kind
    operands = [leaf.operand for leaf in known]
    step = values.step_of("subtract" if kind == "subtract" else "add", name, operands, op)
    nothing = np.zeros((), np.int64)
    numbers = {"bias": nothing, "behind": np.zeros(()), "factor": np.array(2.0**-shift)}
    step = step.knowing(multipliers=by, shift=shift, **numbers)
    return integer_step(program, values.saturated(steps.value, out), step.giving(out))


def of_pairs(total: values.Sum, affine: Affine, out: Output) -> tuple[ir.Value, IntegerStep] | None:
    """The codes of a sum, difference or product of two leaves of 8 bits as ONNX Runtime gives them,
    looked up by both (`jq.formats.pairs`), and the step; None of others."""
    step, real = total.step, affine.c * total.factor
    types = {dtype_of(operand.codes) for operand in step.operands} | {out.dtype}
    one = real.size == affine.b.size == 1 and real.item() != 0
    if step.kind not in ("add", "subtract", "multiply") or types != {np.dtype(np.int8)} or not one:
        return None
    scales = [F32(operand.scale.item()) for operand in step.operands]
    if abs(affine.c.item() - 1) > CLOSE:  # a multiple of it
        many = scales if step.kind != "multiply" else scales[:1]
        scales[: len(many)] = [F32(scale * affine.c.item()) for scale in many]
    factor, bias = real / out.scale, np.rint(affine.b / real)
    zeros = [operand.zero_point.item() for operand in step.operands]
    codes = paired(step.kind, scales, zeros, F32((bias * factor).item() * out.scale), out)
    first, second = (OPS.add(OPS.convert(o.codes, np.int32), 128) for o in step.operands)
    found = OPS.take(codes.astype(np.int8).reshape(-1), OPS.add(OPS.shift_left(first, 8), second))
    numbers = {"bias": bias.astype(np.int64), "factor": factor, "behind": np.zeros(())}
    return found, step.giving(out).knowing(scales=np.array(scales), **numbers)


def factor_of(program: Program, step: IntegerStep, real: np.ndarray, out: float) -> np.ndarray:
    """The factor in float32, computed of scales as the kernels compute it.

    Args:
        real: float64, what a unit of the step's sum is worth."""
    scales = [o.scale.reshape(-1) for o in step.operands if evaluate(program, o.codes) is None]
    if [s.size for s in scales] == [1]:
        weight = (real / scales[0].astype(np.float64)).astype(F32)
        real = scales[0].astype(F32).reshape(()) * weight
    elif step.kind == "multiply" and [s.size for s in scales] == [1, 1]:
        product = F32(scales[0][0]) * F32(scales[1][0])
        if abs(float(product) - real).max() <= 2.0**-22 * product:
            real = np.asarray(product)
    return (np.asarray(real, F32) / F32(out)).astype(np.float64)
