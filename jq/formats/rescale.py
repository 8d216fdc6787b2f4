"""Int32 sums to codes by one float multiplication, with a residual in codes when there is one.

    steps = f32(sum) * multiplier
    code  = saturate(round_half_even(steps) + zero_point)

and with the codes r of a residual:

    first = round_half_even(f32(sum) * multiplier)                         [clamped]
    steps = (first * gain + f32(r - residual_zero) * factor) * unit

Here `factor` and `gain` are whole numbers below 2^16, so that the products are exact, and the sum
of both is exact wherever its code does not saturate: no rounding depends on whether a compiler
fuses the operations. Steps stay below 2^30. The first term is in fine units of the result
(`ResidualScale.of`), or in codes of its own, which a model rounds it to (`ResidualScale.between`).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from jq.formats.arrays import Array, ArrayOps, clip
from jq.formats.integer_functions import Output

F32 = np.float32
MAX_FACTOR = 65535
MAX_FRACTION = 15
EXACT = 2**24 // 255  # of gain and factor together: sums of products with codes are exact
TRIES, SPACING = 24, 0.8  # of gains that are tried, each that much below the one before


@dataclass(frozen=True)
class ResidualScale:
    """The scale at which the codes of a residual enter the sum.

    Attributes:
        zero_point: of the residual.
        factor: one of its steps is `factor * unit` steps of the result.
        unit: f32, steps of the result.
        gain: one step of the first term is `gain * unit` steps of the result.
        low, high: bounds of the first term, in its steps (a clamp in front of the sum)."""

    zero_point: int
    factor: int
    unit: float
    gain: int = 1
    low: float = -math.inf
    high: float = math.inf

    @staticmethod
    def of(ratio: float, zero_point: int) -> "ResidualScale":
        """The residual's scale, to 16 bits, whose ratio to that of the result is `ratio`."""
        _, exponent = math.frexp(ratio)
        fraction = min(MAX_FRACTION, 16 - exponent)
        factor = round(ratio * 2.0**fraction)
        if factor > MAX_FACTOR:
            fraction, factor = fraction - 1, round(ratio * 2.0 ** (fraction - 1))
        return ResidualScale(zero_point, factor, 2.0**-fraction)

    @staticmethod
    def between(first: Output, residual: Output, out: Output) -> "ResidualScale | None":
        """The residual's scale of codes which a model adds as floats and quantizes:

            code = saturate(round_half_even((real first + real residual) / scale) + zero_point)

        Proven on every pair of codes; None where no scale gives these codes for all of them."""
        a, b = (
            np.arange(o.low - o.zero_point, o.high - o.zero_point + 1, dtype=F32)
            for o in (first, residual)
        )
        a = a[:, None]
        real = a * F32(first.scale) + b * F32(residual.scale)
        bounds = out.low - out.zero_point, out.high - out.zero_point
        wanted = np.clip(np.rint(real / F32(out.scale)), *bounds)
        ends = (float(v - first.zero_point) for v in (first.low, first.high))
        for gain, factor, unit in _candidates(first.scale, residual.scale, out.scale):
            found = np.rint((a * F32(gain) + b * F32(factor)) * unit)
            if np.array_equal(np.clip(found, *bounds), wanted):
                return ResidualScale(residual.zero_point, factor, float(unit), gain, *ends)
        return None


def _candidates(first: float, residual: float, out: float) -> Iterator[tuple[int, int, np.float32]]:
    """Gains, factors and units. All come next to the scales; which one rounds as the floats do,
    where a sum is next to the middle of two codes, is up to chance."""
    ratio = Fraction(residual) / Fraction(first)
    largest = min(MAX_FACTOR, int(EXACT / (1 + ratio)))
    seen = set()
    for limit in (int(largest * SPACING**i) for i in range(TRIES)):
        best = ratio.limit_denominator(max(limit, 1))
        gain, factor = best.denominator, best.numerator
        if not 0 < factor <= MAX_FACTOR or (gain, factor) in seen:
            continue
        seen.add((gain, factor))
        unit = F32(first / (gain * out))
        below, above = (np.nextafter(unit, F32(end)) for end in (0, np.inf))
        yield from ((gain, factor, u) for u in (unit, below, above))


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
        """The int8 codes of i32 sums; the finite f32 multiplier leads to steps of the first term
        where there is a residual, i8. All have one shape."""
        steps = ops.mul(ops.convert(total, F32), multiplier)
        if self.residual is not None:
            steps = self._with_residual(ops, steps, residual, self.residual)
        zero = self.zero_point
        whole = clip(ops, ops.round_even(steps), self.low - zero, self.high - zero)
        return ops.convert(ops.add(ops.convert(whole, np.int32), zero), np.int8)

    def _with_residual(self, ops: ArrayOps, steps: Array, codes: Array, r: ResidualScale) -> Array:
        first = ops.round_even(steps)
        first = ops.maximum(first, r.low) if math.isfinite(r.low) else first
        first = ops.minimum(first, r.high) if math.isfinite(r.high) else first
        centered = ops.convert(ops.sub(ops.convert(codes, np.int32), r.zero_point), F32)
        first = ops.mul(first, r.gain) if r.gain != 1 else first
        return ops.mul(ops.add(first, ops.mul(centered, r.factor)), r.unit)
