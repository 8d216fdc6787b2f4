"""From int32 sums to codes by one float multiplication, with a residual in codes when there is one.

    steps = f32(sum) * multiplier
    code  = saturate(round_half_even(steps) + zero_point)

and with the codes r of a residual, both terms in units of 2^-fraction steps:

    steps = (round_half_even(f32(sum) * multiplier) + f32(r - residual_zero) * factor) * 2^-fraction

Here `factor` is a whole number below 2^16, so that the product is exact, and the sum of both is
exact wherever its code does not saturate: no rounding depends on whether a compiler fuses the
operations. Steps stay below 2^30.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from jq.formats.arrays import Array, ArrayOps
from jq.formats.blocks import full

F32 = np.float32
MAX_FACTOR = 65535
MAX_FRACTION = 15


@dataclass(frozen=True)
class ResidualScale:
    """How the codes of a residual enter the sum.

    Attributes:
        zero_point: of the residual.
        factor, fraction: one of its steps is `factor * 2^-fraction` steps of the result.
        low, high: bounds of the first term, in units of 2^-fraction (a clamp in front of the sum).
    """

    zero_point: int
    factor: int
    fraction: int
    low: float = -math.inf
    high: float = math.inf

    @staticmethod
    def of(ratio: float, zero_point: int) -> ResidualScale:
        """For scales of residual and result that have this ratio, to 16 bits."""
        _, exponent = math.frexp(ratio)
        fraction = min(MAX_FRACTION, 16 - exponent)
        factor = round(ratio * 2.0**fraction)
        if factor > MAX_FACTOR:
            fraction, factor = fraction - 1, round(ratio * 2.0 ** (fraction - 1))
        return ResidualScale(zero_point, factor, fraction)


@dataclass(frozen=True)
class Rescale:
    """The codes that come out: int8, zero point and bounds (a clamp after the sum)."""

    zero_point: int
    low: int = -128
    high: int = 127
    residual: ResidualScale | None = None

    def codes(
        self, ops: ArrayOps, total: Array, multiplier: Array, residual: Array | None = None
    ) -> Array:
        """The int8 codes.

        Args:
            total: i32.
            multiplier: finite f32 of `total`'s shape, in units of 2^-fraction with a residual.
            residual: i8 of `total`'s shape.
        """
        shape = ops.shape(total)
        steps = ops.mul(ops.convert(total, F32), multiplier)
        if self.residual is not None:
            steps = self._with_residual(ops, steps, residual, self.residual)
        low, high = (full(ops, v - self.zero_point, shape, F32) for v in (self.low, self.high))
        whole = ops.minimum(ops.maximum(ops.round_even(steps), low), high)
        zero = full(ops, self.zero_point, shape, np.int32)
        return ops.convert(ops.add(ops.convert(whole, np.int32), zero), np.int8)

    def _with_residual(self, ops: ArrayOps, steps: Array, codes: Array, r: ResidualScale) -> Array:
        shape = ops.shape(steps)
        first = ops.round_even(steps)
        if math.isfinite(r.low):
            first = ops.maximum(first, full(ops, r.low, shape, F32))
        if math.isfinite(r.high):
            first = ops.minimum(first, full(ops, r.high, shape, F32))
        zero = full(ops, r.zero_point, shape, np.int32)
        centered = ops.convert(ops.sub(ops.convert(codes, np.int32), zero), F32)
        second = ops.mul(centered, full(ops, r.factor, shape, F32))
        return ops.mul(ops.add(first, second), full(ops, 2.0**-r.fraction, shape, F32))
