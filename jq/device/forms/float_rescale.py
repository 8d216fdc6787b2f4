"""Rescales of an integer program in ONNX Runtime's float32 arithmetic, and scales that keep codes;
ONNX's functions of one number, found by their values.

ONNX Runtime requantizes a sum of products as `round_half_even(f32(sum) * s) + zero point`, with `s
= (input scale * weight scale) / output scale` in float32. Both this and an integer rescale never
fall where the sum grows: they are equal where every code begins at the same sum. Where one does
not, a weight scale a few float32 steps aside may have all codes begin where they should."""

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from jq.formats.arrays import NUMPY
from jq.formats.integer_functions import Output
from jq.formats.pairs import quantized
from jq.formats.requantize import INT32, Rescaling

F32: TypeAlias = np.float32
Found = tuple[str, dict[str, Any]]
STEPS = 6  # of float32 that a scale may be moved by: 2^-21 of it
MARGIN = 1e-3  # steps from a tie, far beyond the errors of float32 functions
NEAR = 3  # sums around the beginning of a code that are tried


def rescaled(x: np.ndarray, factor: np.ndarray, rescaling: Rescaling) -> np.ndarray:
    """The integer program's `x * factor`: int32 of the shape that both broadcast to."""
    x, factor = np.broadcast_arrays(x.astype(np.int32), factor)
    mantissa, left, right = rescaling.split(factor)
    return rescaling.rescale(NUMPY, x, mantissa, (left, right))


def moved(scale: Any, steps: int) -> np.ndarray:
    """Positive float32 numbers, so many steps of float32 aside."""
    return np.asarray((np.asarray(scale, F32).view(np.int32) + np.int32(steps)).view(F32))


def aside() -> Iterator[int]:
    """0, 1, -1, 2, ..."""
    yield 0
    for n in range(1, STEPS + 1):
        yield from (n, -n)


def sum_scales(
    factor: np.ndarray,
    guess: np.ndarray,
    of: Callable[[np.ndarray], np.ndarray],
    out: Output,
    rescaling: Rescaling,
) -> tuple[np.ndarray, int]:
    """Float32 scales of an operand by channel, and how many channels may still differ by one code.

    Args:
        factor: float64 [channels], steps of the result that one unit of a sum is.
        guess: [channels], the scales that the program has.
        of: the runtime's float32 multiplier of a scale."""
    found = result = guess.astype(F32)
    sums, wanted = _beginnings(factor, out, rescaling)
    bad = np.full(len(factor), True)
    for steps in aside():
        tried = moved(found, steps)
        codes = _clipped(np.rint(sums.astype(F32) * of(tried)[:, None]), out)
        good = bad & (codes == wanted).all(1)
        result = np.where(good, tried, result)
        bad &= ~good
        if not bad.any():
            break
    return result, int(bad.sum())


def _beginnings(
    factor: np.ndarray, out: Output, rescaling: Rescaling
) -> tuple[np.ndarray, np.ndarray]:
    """Sums around those where steps of the result change, and the steps: int32 [channels, sums]."""
    steps = np.arange(out.low - out.zero_point, out.high - out.zero_point) + 0.5
    if len(steps) > 512:  # of 16 bits: some
        steps = steps[:: len(steps) // 512]
    middle = np.rint(steps / np.where(factor == 0, 1.0, factor)[:, None])
    around = middle[..., None] + np.arange(-NEAR, NEAR + 1)
    sums = np.clip(around, INT32.min, INT32.max).reshape(len(factor), -1).astype(np.int32)
    return sums, _clipped(rescaled(sums, factor[:, None], rescaling), out)


def _clipped(steps: np.ndarray, out: Output) -> np.ndarray:
    return np.clip(steps, out.low - out.zero_point, out.high - out.zero_point).astype(np.int32)


def function_scale(
    x: np.ndarray, scale: float, codes: np.ndarray, out: Output
) -> np.ndarray | None:
    """The float32 scale with which `QuantizeLinear(DequantizeLinear(x))` gives these codes.

    Args:
        x: int, codes without their zero point; `codes`: those of the result, for each.

    Returns:
        A scale of x next to `scale`; None where there is none."""
    for steps in aside():
        tried = moved(np.array([scale], F32), steps)
        real = x.astype(F32) * tried
        if np.array_equal(quantized(real, out), codes):
            return tried
    return None


def named_function(real: np.ndarray, codes: np.ndarray, out: Output) -> Found | None:
    """The ONNX op, with its attributes, that gives these codes for these numbers in any float32
    implementation; None where none does for sure.

    Args:
        real: float64; `codes`: of each of them."""
    for kind, attributes, function in _candidates():
        with np.errstate(all="ignore"):
            steps = np.asarray(function(real)) / out.scale
            inside = np.clip(steps + out.zero_point, out.low - 1.0, out.high + 1.0)
            safe = np.abs(inside - np.floor(inside) - 0.5) > MARGIN
        found = np.clip(np.rint(inside), out.low, out.high)
        if safe.all() and np.array_equal(found, codes):
            return kind, dict(attributes)
    return None


def _candidates() -> Iterator[tuple[str, Mapping[str, Any], Callable[[np.ndarray], np.ndarray]]]:
    erf = np.vectorize(math.erf, otypes=[np.float64])

    def tangent(x: np.ndarray) -> np.ndarray:
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))

    yield "Relu", {}, lambda x: np.maximum(x, 0)
    yield "Sigmoid", {}, lambda x: 1 / (1 + np.exp(-x))
    yield "Tanh", {}, np.tanh
    yield "HardSwish", {}, lambda x: x * np.clip(x / 6 + 0.5, 0, 1)
    yield "HardSigmoid", {"alpha": 1 / 6, "beta": 0.5}, lambda x: np.clip(x / 6 + 0.5, 0, 1)
    yield "Gelu", {}, lambda x: 0.5 * x * (1 + erf(x / math.sqrt(2)))
    yield "Gelu", {"approximate": "tanh"}, tangent
    yield "Elu", {}, lambda x: np.where(x > 0, x, np.expm1(x))
    yield "Softplus", {}, lambda x: np.logaddexp(x, 0)
    for alpha in (0.01, 0.1, 0.2, 0.3):
        yield "LeakyRelu", {"alpha": alpha}, partial(lambda a, x: np.where(x > 0, x, a * x), alpha)
    yield "Exp", {}, np.exp
    yield "Erf", {}, erf
    yield "Abs", {}, np.abs
    yield "Neg", {}, np.negative
    yield "Sqrt", {}, np.sqrt
