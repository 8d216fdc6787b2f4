"""Steps of epilogues in NumPy: what each computes, by its description alone."""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch

import ml_dtypes
import numpy as np

from jq.formats.arrays import NUMPY
from jq.formats.requantize import Rescaling
from jq.kernels.epilogue import code_steps, steps
from jq.kernels.epilogue.step import Step
from jq.kernels.epilogue.steps import phi

Array = np.ndarray


def applied(epilogue: Sequence[Step], y: Array, operands: Sequence[Sequence[Array]]) -> Array:
    """All steps; `operands` holds each one's arrays in broadcastable form."""
    for step, arrays in zip(epilogue, operands, strict=True):
        y = computed(step, y, arrays)
    return y


@singledispatch
def computed(step: Step, y: Array, operands: Sequence[Array]) -> Array:
    """The step; operands broadcast against `y`."""
    raise NotImplementedError(type(step))


def _signed(stored: Array, unsigned: bool) -> Array:
    """The codes that are stored in either view."""
    codes = stored.astype(np.int32)
    return (codes & 255) - 128 if unsigned else codes


def _stored(step: code_steps.ToCodes, rounded: Array) -> Array:
    """Whole numbers as the codes in memory."""
    codes = np.clip(rounded, step.low, step.high).astype(f"int{step.bits}")
    return codes ^ np.int8(-128) if step.unsigned else codes


@computed.register
def _(step: steps.Dequantize, y: Array, operands: Sequence[Array]) -> Array:
    scale = operands[1] * operands[0] if step.per_row else operands[0]
    return y.astype(np.float32) * scale


@computed.register
def _(step: steps.JoinDigits, y: Array, operands: Sequence[Array]) -> Array:
    *scales, high = operands
    plain = steps.Dequantize(per_row=step.per_row)
    return computed(plain, 256 * high.astype(np.int64) + y, scales)


@computed.register
def _(step: steps.ColumnScale, y: Array, operands: Sequence[Array]) -> Array:
    return y * operands[0]


@computed.register(steps.Bias)
@computed.register(steps.Residual)
def _(step: Step, y: Array, operands: Sequence[Array]) -> Array:
    return y + operands[0]


@computed.register
def _(step: steps.Scale, y: Array, operands: Sequence[Array]) -> Array:
    return y * (operands[1] * operands[0])


@computed.register
def _(step: steps.ZeroPoint, y: Array, operands: Sequence[Array]) -> Array:
    return y - operands[1] * operands[0]


@computed.register
def _(step: steps.HalfResidual, y: Array, operands: Sequence[Array]) -> Array:
    return y + operands[0]


@computed.register
def _(step: steps.QuantizedResidual, y: Array, operands: Sequence[Array]) -> Array:
    codes = _signed(operands[0], step.unsigned) - operands[2]
    return y + codes.astype(np.float32) * operands[1]


@computed.register
def _(step: steps.FakeQuantize, y: Array, operands: Sequence[Array]) -> Array:
    scale, zero, decoded = operands
    value = y / scale
    rounded = np.rint(np.where(np.isnan(value), np.float32(0), value))
    codes = np.clip(rounded, (step.low - zero), (step.high - zero))
    return codes.astype(np.float32) * decoded


@computed.register
def _(step: steps.Clamp, y: Array, operands: Sequence[Array]) -> Array:
    low = -np.inf if step.low is None else step.low
    high = np.inf if step.high is None else step.high
    return np.clip(y, np.float32(low), np.float32(high))


@computed.register
def _(step: steps.RoundToHalves, y: Array, operands: Sequence[Array]) -> Array:
    bits = y.astype(ml_dtypes.bfloat16).view(np.int16)
    return bits & np.int16(0x7FFF) if step.ordered else bits


@computed.register
def _(step: steps.Gelu, y: Array, operands: Sequence[Array]) -> Array:
    wide = np.asarray(y, np.float64)
    result = (wide * phi(wide, step.approximate)).astype(np.float32)
    return np.where(np.isnan(result), np.float32(0), result) if step.codes else result


@computed.register
def _(step: steps.Silu, y: Array, operands: Sequence[Array]) -> Array:
    wide = np.asarray(y, np.float64)
    return (wide * np.exp(-np.logaddexp(0, -wide))).astype(np.float32)


@computed.register
def _(step: code_steps.Quantize, y: Array, operands: Sequence[Array]) -> Array:
    value = y / operands[0] if step.divide else y
    return _stored(step, np.rint(np.where(np.isnan(value), np.float32(0), value)) + operands[-1])


@computed.register
def _(step: code_steps.AddCodes, y: Array, operands: Sequence[Array]) -> Array:
    stored, factor, unit, zero, *more = operands
    codes = _signed(stored, step.unsigned) - zero
    y = np.rint(y)
    if step.bounded:
        y = np.clip(y, *more[:2])
    if step.gained:
        y = y * more[-1]
    return (y + codes.astype(np.float32) * factor) * unit


@computed.register
def _(step: code_steps.RoundToCodes, y: Array, operands: Sequence[Array]) -> Array:
    return _stored(step, np.rint(y) + operands[0])


@computed.register
def _(step: code_steps.Rescale, y: Array, operands: Sequence[Array]) -> Array:
    mantissa, *shifts, zero = (np.broadcast_to(x, y.shape) for x in operands)
    left = shifts[0] if step.left else None
    rescaled = Rescaling(step.rounding).rescale(NUMPY, y, mantissa, (left, shifts[-1]))
    return _stored(step, rescaled.astype(np.int64) + zero)
