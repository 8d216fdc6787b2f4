"""Float functions inside kernels, each with its bound, and their exact NumPy counterparts."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from iree.compiler import ir

from jq.kernels.emit import Builder, lanes_of
from jq.kernels.emit.vector_ops import VectorOps
from jq.kernels.epilogue.steps import LOG2_E, phi
from jq.kernels.machine.isa import Isa
from jq.kernels.tensor import Array

# Adding 1.5 * 2^23 rounds a float below 2^22 to an integer, half to even, into its low bits.
MAGIC = 12582912.0
MAGIC_BITS = 0x4B400000
# Of quotients below 2^8 that are off by 3/2 2^-23 of their size.
DOUBT = int(np.float32(0.5 - 2.0**-14).view(np.int32))


def rounded_bits(b: Builder, y: ir.Value, low: ir.Value, high: ir.Value) -> ir.Value:
    """`MAGIC_BITS + round_half_even(y)` as i32, y (not NaN) bounded by whole numbers: first, which
    gives the same integers, and keeps the sum exact."""
    bounded = b.min(b.max(y, low), high)
    return b.reinterpret(b.add(bounded, b.f32(MAGIC, lanes_of(y))), "i32")


def round_small(b: Builder, y: ir.Value) -> ir.Value:
    """`round_half_even(y)` in f32 of |y| < 2^22, everywhere."""
    magic = b.f32(MAGIC, lanes_of(y))
    return b.sub(b.add(y, magic), magic)


def to_codes(
    b: Builder, steps: ir.Value, zero_point: ir.Value, shift: int = 0, kind: str = "i8"
) -> ir.Value:
    """`round_half_even(steps) + zero_point + shift` as i8 or i16 bits, for bounded steps. The zero
    point (i32, all lanes) is added in integers; low 16 bits of `MAGIC_BITS` are 0."""
    bits = b.reinterpret(b.add(steps, b.f32(MAGIC, lanes_of(steps))), "i32")
    offset = b.add(zero_point, b.i32(shift, lanes_of(steps))) if shift else zero_point
    return b.truncate(b.add(bits, offset), kind)


@dataclass(frozen=True)
class Divisor:
    """Constants of a division in front of a rounding, the same in every lane; see `divisor`."""

    negative: ir.Value
    inverse: ir.Value
    tail: ir.Value
    low: ir.Value
    high: ir.Value

    def steps(self, b: Builder, y: ir.Value) -> ir.Value:
        """`y / scale`, rounded once, where its rounding to an integer is within the bounds; else
        something that rounds to the bound; 0 for NaN."""
        zero = b.f32(0.0, lanes_of(y))
        bounded = b.select_equal(y, y, self._bounded(b, y), zero)
        quotient = b.fma(bounded, self.inverse, b.mul(bounded, self.tail))
        return b.fma(b.fma(self.negative, quotient, bounded), self.inverse, quotient)

    def near(self, b: Builder, y: ir.Value) -> ir.Value:
        """Within 2^-23 of the size of `y / scale`, or what rounds to the bound; NaN for NaN."""
        return b.mul(self._bounded(b, y), self.inverse)

    def _bounded(self, b: Builder, y: ir.Value) -> ir.Value:
        return b.min(self.high, b.max(self.low, y))


def doubt(b: Builder, near: ir.Value) -> ir.Value:
    """Bits by lane, above `DOUBT` where `Divisor.near` may round to another integer than
    `Divisor.steps`: within 2^-14 of a half, as one lane in 2^13 is, and for NaN."""
    return b.reinterpret(b.abs(b.sub(near, b.round_to_whole(near))), "i32")


def divisor(b: Builder, scale: ir.Value, low: ir.Value, high: ir.Value) -> Divisor:
    """Division by `scale`, a number in [2^-70, 2^100], bounded by whole numbers of at most 2^17.

    The inverse is rounded once, and `tail` is what that rounding took off, so that the first
    quotient is one of the two floats around the exact one; by Markstein's theorem one correction
    by its exact remainder then rounds correctly. The remainder does not fall below the normal
    numbers: quotients below 1/4 round to 0 in any case."""
    lanes = lanes_of(scale)
    one, quarter = b.f32(1.0, lanes), b.f32(0.25, lanes)
    negative, inverse = b.sub(b.f32(0.0, lanes), scale), b.div(one, scale)
    tail = b.mul(b.fma(negative, inverse, one), inverse)
    # A quarter beyond a bound rounds to it, whatever the product's rounding.
    ends = b.mul(b.sub(low, quarter), scale), b.mul(b.add(high, quarter), scale)
    return Divisor(negative, inverse, tail, *ends)


def exp2(b: Builder, x: ir.Value, factor: float, most: float = 128.0) -> ir.Value:
    """`2^(factor x)`, relative error below 2e-7 and that of the factor's rounding; 0 below 2^-127,
    infinity above 2^128, NaN for NaN. `most=inf`: no product is above 127.

    The product is `n + f`, n the nearest integer, and not rounded itself: nothing overflows that a
    caller has not multiplied. `2^f` is a polynomial of degree 5 on [-1/2, 1/2] (relative error
    7.5e-8 before rounding); the low bits of the sum that finds n are the exponent of 2^n."""
    lanes = lanes_of(x)
    low, high = sorted((-127.0 / factor, most / factor))
    bounded = x
    if low > -math.inf:
        bounded = b.max(b.f32(low, lanes), bounded)  # NaN stays, as the second operand
    if high < math.inf:
        bounded = b.min(b.f32(high, lanes), bounded)
    wide, magic = b.f32(factor, lanes), b.f32(MAGIC + 127, lanes)
    shifted = b.fma(bounded, wide, magic)
    fraction = b.fma(bounded, wide, b.sub(magic, shifted))
    scale = b.reinterpret(b.shift_left(b.reinterpret(shifted, "i32"), 23), "f32")
    power = b.f32(EXP2[-1], lanes)
    for coefficient in EXP2[-2::-1]:
        power = b.fma(power, fraction, b.f32(coefficient, lanes))
    return b.mul(power, scale)


def gelu(b: Builder, isa: Isa, x: ir.Value, approximate: bool) -> ir.Value:
    """`x / 2 + |x| h(|x|)` within 6e-5, h a parabola a segment.

    The coefficients of a segment are lanes of registers; `x` may be several registers. The last
    segment is the constant 1/2, so that large |x| give exactly x or 0. It has the same bits on all
    instruction sets, as `gelu_for_codes`: an odd polynomial of degree 17, which needs no table,
    takes as long on AVX2."""
    lanes = lanes_of(x)
    size = b.abs(x)
    inside = b.min(size, b.f32((SEGMENTS - 1) / SEGMENTS_IN_ONE, lanes))
    # The nearest whole number of segments, in the low bits: all that is looked at.
    bits = b.fma(inside, b.f32(SEGMENTS_IN_ONE, lanes), b.f32(MAGIC, lanes))
    half = _parabola(b, isa, _gelu_segments(approximate), bits, inside)
    return b.fma(size, half, b.mul(x, b.f32(0.5, lanes)))


def gelu_for_codes(b: Builder, isa: Isa, x: ir.Value, approximate: bool) -> ir.Value:
    """`max(x, 0) + g(|x|)` within 7e-5, g a parabola a segment; 0 for NaN. Segments
    are 1/4 wide, so that a sum finds them; products, which hold up those of integers, are only the
    parabola's two."""
    lanes = lanes_of(x)
    size = b.abs(x)
    inside = b.min(size, b.f32(NEGLIGIBLE, lanes))
    last = b.min(size, b.f32((SEGMENTS - 1) / 4, lanes))
    bits = b.add(last, b.f32(MAGIC / 4, lanes))
    tail = _parabola(b, isa, _gelu_tails(approximate), bits, inside)
    return b.add(b.max(x, b.f32(0.0, lanes)), tail)


def _parabola(b: Builder, isa: Isa, rows: Array, bits: ir.Value, x: ir.Value) -> ir.Value:
    """The parabola in x that a float's low bits number; `rows`: constant, slope, square of each."""
    ops = VectorOps(b, isa)
    index = ops.array(b.reinterpret(bits, "i32"), (lanes_of(bits),), np.int32)
    constant, slope, square = (ops.take(column, index).value for column in rows.T)
    return b.fma(b.fma(square, x, slope), x, constant)


@cache
def _gelu_segments(approximate: bool) -> Array:
    """Parabolas through `Phi(x) - 1/2` at the Chebyshev points of every segment."""
    ends = [(max(0.0, i - 0.5), i + 0.5) for i in range(SEGMENTS - 1)]
    rows = [
        _through(low / SEGMENTS_IN_ONE, high / SEGMENTS_IN_ONE, lambda x: phi(x, approximate) - 0.5)
        for low, high in ends
    ]
    return np.array([*rows, [0.5, 0.0, 0.0]]).astype(np.float32)


@cache
def _gelu_tails(approximate: bool) -> Array:
    """Parabolas through `gelu(x) - x`, x >= 0; the last segment ends where that is next to 0."""
    ends = [(max(0.0, i - 0.5) / 4, (i + 0.5) / 4) for i in range(SEGMENTS)]
    ends[-1] = (ends[-1][0], NEGLIGIBLE)
    rows = [_through(*both, lambda x: -x * phi(-x, approximate)) for both in ends]
    return np.array(rows).astype(np.float32)


def _through(low: float, high: float, function: Callable[[Array], Array]) -> Array:
    """The parabola through a function's values at the three Chebyshev points."""
    x = (low + high) / 2 + (high - low) / 2 * np.cos(np.pi * np.array([1, 3, 5]) / 6)
    found: Array = np.polynomial.polynomial.polyfit(x, function(x), 2)
    return found


def silu(b: Builder, x: ir.Value) -> ir.Value:
    """`x / (1 + 2^(-x log2 e))`; error below `5e-7 * max(1, |x|)`; NaN for -infinity."""
    return b.div(x, b.add(exp2(b, x, -LOG2_E), b.f32(1.0, lanes_of(x))))


SEGMENTS, SEGMENTS_IN_ONE = 16, 3.4  # of |x| in `gelu`: an error of 4.5e-5
NEGLIGIBLE = 4.4  # from here on GELU is taken for that of this number, but for x itself

# Minimax fit, relative, lowest power first.
EXP2 = (
    1.0000001192092896,
    0.6931469440460205,
    0.24022120237350464,
    0.05550713464617729,
    0.009675540961325169,
    0.001327645150013268,
)
