"""Tables of TFLite's operators on one tensor, as LiteRT's kernels compute them in float32.

Of 8 bits they are rounded once, ties away from zero, by XNNPACK to even; SQRT is rounded down, and
RSQRT computed in integers. Of 16 bits a table has 513 entries, 128 codes apart, each less half of
the error in the middle of two; TANH and LOGISTIC have one of the sigmoid, in steps of 1/24.

https://github.com/google-ai-edge/LiteRT (tflite/kernels: activations.cc, elementwise.cc, exp.cc;
internal: common.h), https://github.com/google/XNNPACK (src/reference/unary-elementwise.cc)."""

import math
from collections.abc import Callable

import numpy as np

from jq.formats.arrays import NUMPY
from jq.formats.integer_functions import Output
from jq.formats.requantize import DOUBLE, multiplier, rounding_right_shift
from jq.ir import dtype_of
from jq.passes.integer._tflite import inverse_root
from jq.passes.integer._values import Leaf
from jq.target.device_table import Device

I16 = np.iinfo(np.int16)
XNNPACK = {"Elu", "Sigmoid", "Tanh"}  # those of 8 bits that it has
LOOKED_UP = {*XNNPACK, "Exp", "Gelu", "Log", "Rsqrt"}
Function = Callable[..., np.ndarray]


def kernel_table(
    own: str, leaf: Leaf, function: Function, out: Output, device: Device
) -> np.ndarray | None:
    """Steps of all codes where the operator `own` has an arithmetic of its own, None of others;
    `function` is the operator's in float32 or in float64, rounded to float32."""
    ends = np.iinfo(dtype_of(leaf.codes))
    narrow, scale, to = ends.bits == 8, np.float32(leaf.scale), np.float32(out.scale)
    xnnpack = narrow and device.rounding == "float32"
    x = scale * (d := np.arange(ends.min, ends.max + 1) - leaf.zero_point).astype(np.float32)
    if own == "HardSwish" and narrow:
        return _hard_swish(d, scale, to)
    if own in ("Abs", "LeakyRelu"):
        return _two_slopes(d, scale, to, function, xnnpack and own == "LeakyRelu")
    if own == "Sqrt":
        return np.trunc(np.sqrt(np.maximum(x, 0)) / to)
    if own == "Rsqrt" and narrow:
        return _inverse_root(d, scale, to, out)
    if own not in LOOKED_UP:
        return None
    if own in ("Sigmoid", "Tanh") and not narrow:
        return _sigmoid(d, leaf.scale, own)
    worst = {"Log": out.low - out.zero_point, "Rsqrt": I16.max}
    by = 1 / to if narrow else 65536 / (to * I16.max - to * I16.min)

    def steps(x: np.ndarray) -> np.ndarray:
        y = function(x, np.float32 if own == "Gelu" else np.float64)
        return (np.where(x > 0, y, worst[own] * to) if own in worst else y) * by

    if not narrow:
        return _looked_up(steps, d, scale)
    if xnnpack and own in XNNPACK:
        return np.rint(steps(x) + np.float32(out.zero_point)) - out.zero_point
    return away(steps(x))


def away(x: np.ndarray) -> np.ndarray:
    """The nearest integers, ties away from zero; float32."""
    return np.copysign(np.floor(np.abs(x).astype(np.float64) + 0.5), x).astype(np.float32)


def _looked_up(steps: Function, codes: np.ndarray, scale: np.float32) -> np.ndarray:
    """Codes of 16 bits by a table; zero points are 0."""
    first, last = scale * I16.min, scale * I16.max
    step = (last - first) / 512
    at = first + np.arange(513, dtype=np.float32) * step
    y, middle = steps(at), away(steps(at[:-1] + step / 2))
    between = away((y[1:] + away(y[:-1])) / 2)
    entries = [*away(y[:-1]) - away((between - middle) / 2), *away(steps(np.array([last])))]
    table = np.clip(entries, I16.min, I16.max).astype(np.int64)
    i, part = (codes >> 7) + 256, codes & 127
    slope = (table[i + 1] - table[i]).astype(np.int16).astype(np.int64)
    return (table[i] + ((slope * part + 64) >> 7)).astype(np.int16)


def _sigmoid(d: np.ndarray, scale: float, own: str) -> np.ndarray:
    """LOGISTIC and TANH of 16 bits, of whose table each entry has half of the error behind it."""
    first, middle, last = (65536 / (1 + np.exp(-(np.arange(255) + i) / 24)) for i in (0, 0.5, 1))
    entries = np.rint(first + (middle - (first + last) / 2) / 2)
    table = np.append(entries, 65535).astype(np.int64)
    power, tanh = math.log2(scale), own == "Tanh"
    if abs(power - round(power)) < 1e-3 and 0 <= 12 + round(power) <= tanh:
        by, shift = 3 << (12 + round(power)), 0
    else:
        shift = max(0, math.floor(math.log2(32767 / 2 / (scale * 12288))) + 1)
        by = int(scale * 12288 * 2.0**shift)
    x = (d * by + ((1 << shift) >> 1)) >> shift
    bits = 8 if tanh else 9
    i, part = np.minimum(np.abs(x) >> bits, 254), np.abs(x) & ((1 << bits) - 1)
    y = (table[i] << bits) + part * (table[i + 1] - table[i])
    y = np.where(np.abs(x) >> bits >= 255, 65535 << 8 if tanh else 32767 << 10, y) - (
        1 << bits + 15
    )
    y = np.where(x < 0, -y - 1, y)
    return (y + 128) >> 8 if tanh else (y + (1 << 24) + 512) >> 10


def _two_slopes(
    d: np.ndarray, scale: np.float32, to: np.float32, function: Function, xnnpack: bool
) -> np.ndarray:
    """ABS and LEAKY_RELU: a rescale by a factor for each sign."""
    side, slopes = (d > 0).astype(int), function(np.array([-1, 1])) * np.array([-1, 1], "f4")
    ratios = scale / to * slopes
    if xnnpack and all(2.0**-8 <= abs(ratio) < 2.0**7 for ratio in ratios):
        return np.asarray((np.rint(256 * ratios).astype(int)[side] * d + 128) >> 8)
    mantissa, *shifts = DOUBLE.split((scale * slopes / to)[side])
    return np.asarray(DOUBLE.rescale(NUMPY, d.astype(np.int32), mantissa, (shifts[0], shifts[1])))


def _inverse_root(d: np.ndarray, scale: np.float32, to: np.float32, out: Output) -> np.ndarray:
    """RSQRT of 8 bits, by an integer inverse root with 20 fractional bits."""
    x = np.maximum(d, 0).astype(np.int32)
    mantissa, right = inverse_root(NUMPY, x)
    shifts = np.maximum(20 - right, 0), np.maximum(right - 20, 0)
    y = DOUBLE.rescale(NUMPY, np.ones_like(x), mantissa, shifts)
    factor = 1 / np.float64(np.sqrt(scale) * to) * 2.0**-20
    return np.where(x > 0, DOUBLE.by(NUMPY, y, factor), out.high - out.zero_point)


def _hard_swish(d: np.ndarray, scale: np.float32, to: np.float32) -> np.ndarray | None:
    """None where the kernel refuses the scales."""
    fine = scale / np.float32(128)
    mantissas, (last, first) = multiplier(np.array([fine / to, fine / np.float32(3 / 32768)]))
    by = np.minimum((mantissas.astype(np.int64) + (1 << 15)) >> 16, I16.max)
    x, up = d.astype(np.int64) << 7, max(0, int(first))
    gate = np.clip(x << max(0, up - 1), I16.min, I16.max)
    gate = np.clip((gate * by[1] + (1 << 14)) >> 15 << min(up, 1), I16.min, I16.max)
    gate = rounding_right_shift(NUMPY, gate, max(0, -int(first))) + (1 << 15) >> 1
    product = gate * ((x * by[0] + (1 << 14)) >> 15)
    made = np.sign(product) * (np.abs(product) >> 15)
    return None if last > 0 else np.asarray(rounding_right_shift(NUMPY, made, -int(last)))
