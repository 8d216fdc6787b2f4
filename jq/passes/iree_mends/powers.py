"""Powers and angles, to the last places of float32.

Powers of numbers >= 0 are `2^(y log2 x)`, rounded once from float64. The logarithm of 2^e m, with m
next to 1, is `e + 2 atanh((m - 1) / (m + 1)) / log 2`; the power of two is that of the nearest
integer times an exponential of what is left: Taylor series, cut where 1e-11 and 1e-9 remain."""

import math
from collections.abc import Sequence

import numpy as np

from jq.ir import OPS, Op, dtype_of, ir, stablehlo
from jq.ir.numbers import Number, where
from jq.passes.iree_mends.mend import Mend

FRACTION = 52  # bits of a float64 behind its exponent
BIAS = 1023
ROOT = int(np.float64(math.sqrt(0.5)).view(np.int64))
ATANH = [2 / ((2 * k + 1) * math.log(2)) for k in range(7)]  # of s^2, for |s| <= 0.172
EXP = [math.log(2) ** k / math.factorial(k) for k in range(9)]  # for |f| <= 1/2
BEYOND = 300.0  # exponents that no float32 has


def power(x: Number, y: Number) -> Number:
    """`x^y` of float32 tensors of one shape, where x >= 0; 1^inf and 0^0 are NaN."""
    return exp2(y.as_type(np.float64) * log2(x.as_type(np.float64)))


def log2(x: Number) -> Number:
    """The binary logarithm of a float64 >= 0."""
    bits = x.bits(np.int64)
    # The exponent for which the fraction is between sqrt(1/2) and sqrt(2).
    exponent = (bits - ROOT) >> FRACTION
    m = (bits - (exponent << FRACTION)).bits(np.float64)
    s = (m - 1) / (m + 1)
    log = exponent.as_type(np.float64) + s * polynomial(ATANH, s * s)
    log = where(x.equals(0), -np.inf, log)
    return where(x < np.inf, log, x)  # of infinity, and NaN


def exp2(x: Number) -> Number:
    """The power of two of a float64, as float32."""
    x = x.maximum(-BEYOND).minimum(BEYOND)
    whole = x.rounded()
    series = polynomial(EXP, x - whole)
    exponent = where(x.equals(x), whole, 0).as_type(np.int64)
    return (series * ((exponent + BIAS) << FRACTION).bits(np.float64)).as_type(np.float32)


def polynomial(coefficients: Sequence[float], x: Number) -> Number:
    """The value of a polynomial, whose constant term comes first."""
    series = Number(x.of(coefficients[-1]))
    for c in reversed(coefficients[:-1]):
        series = series * x + c
    return series


# Powers of complex64 numbers in polar coordinates, as XLA takes them.
#
#     x^(c + di) = |x|^c exp(-d arg x) (cos q + i sin q)   with q = c arg x + d log |x|
#
# 0 to a power of positive real part is 0, and anything to the power 0 is 1.
def complex_power(x: ir.Value, y: ir.Value) -> ir.Value:
    (a, b), (c, d) = ([Number(f(v)) for f in (stablehlo.real, stablehlo.imag)] for v in (x, y))
    size = _size(a, b)
    angle = Number(stablehlo.atan2(b.value, a.value))
    radius = power(size, c) * Number(stablehlo.exponential((-d * angle).value))
    turn = (c * angle + d * Number(stablehlo.log(size.value))).value
    real, imaginary = (radius * Number(f(turn)) for f in (stablehlo.cosine, stablehlo.sine))

    vanishes = size.equals(0) & (c > 0)
    nothing = c.equals(0) & d.equals(0)
    both = where(nothing, 1, where(vanishes, 0, real)), where(nothing | vanishes, 0, imaginary)
    return stablehlo.complex(*(v.value for v in both))


def _size(a: Number, b: Number) -> Number:
    """|a + bi|, also where the squares would overflow or vanish."""
    a, b = abs(a), abs(b)
    long = a.maximum(b)
    ratio = a.minimum(b) / where(long.equals(0), 1, long)
    return long * Number(stablehlo.sqrt((ratio * ratio + 1).value))


#     power %x, %y
#     ->
#     %p = 2^(%y log2 |%x|), in float64
#     %p, where %x is positive or %y is even;  -%p, where %y is odd;  NaN, where it is no integer
#
# Numbers of 16 bits are computed in float32, as on XLA. float64 stays as it is.
FLOATS = ("float32", "float16", "bfloat16")


class PlainPowers(Mend):
    """A power of a negative number is NaN, whatever the exponent.
    Trap: traps/test_powers.py::test_powers_of_negative_numbers
    Report: iree-org/iree#19996

    Powers are off by up to 90 last places of float32.
    Trap: traps/test_functions.py::test_the_compilers_own_powers

    Complex powers of 0 are NaN, and others are off by 3e-6 of their value.
    Trap: traps/test_refused.py::test_complex_powers"""

    def finds(self, op: Op) -> bool:
        if op.operation.name != "stablehlo.power":
            return False
        return dtype_of(op.results[0]).name in (*FLOATS, "complex64")

    def rewritten(self, op: Op) -> list[ir.Value]:
        dtype = dtype_of(op.results[0])
        if dtype.kind == "c":
            return [complex_power(*op.operands)]
        x, y = _singles(op)
        return [OPS.convert(_signed(power(abs(x), y), x, y).value, dtype)]


def _singles(op: Op) -> list[Number]:
    """The operands in float32."""
    return [Number(OPS.convert(v, np.float32)) for v in op.operands]


def _signed(result: Number, x: Number, y: Number) -> Number:
    """The power of x, from that of |x|; -0 counts as negative."""

    def whole(v: Number) -> Number:  # infinity, and all from 2^23 on, are
        return v.rounded().equals(v)

    size = abs(x)
    result = where(size.equals(1), 1, result)  # of 1 by anything, and of anything by 0
    result = where(y.equals(0), 1, result)
    odd = where(whole(y * 0.5), result, -result)
    # Zero and infinity have powers of every exponent, and what is 0 has no last place to lose.
    special = size.equals(size + size)
    broken = where(special, result, np.nan)
    return where(x.is_negative(), where(whole(y), odd, broken), result)


# Rewrites atan2 in ops whose results are exact, to the last places of float32.
#
#     %a = atan2 %y, %x
#     ->
#     %t = min(|%y|, |%x|) / max(|%y|, |%x|),  %r = %t + %t * %t^2 * P(%t^2)
#     %a = %r in the octant that the signs and the larger one of the two name
#
# P is the polynomial of degree 8 with the least largest relative error on [0, 1], 3e-9, found by
# weighted least squares; the result is within 2 last places. float64 stays as it is.
# (atan(t) / t - 1) / t^2 as a polynomial of t^2, from its constant term on.
COEFFICIENTS: tuple[float, ...] = (
    *(-0.3333329908, 0.1999854805, -0.1426423918, 0.1095217265, -0.0840341197),
    *(0.0579569377, -0.03117719375, 0.0109142566, -0.001793543884),
)
# Each as the nearest float32 and what is missing to it.
PI = (3.1415927410125732, -8.742277657347586e-08)
HALF_PI = (1.5707963705062866, -4.371138828673793e-08)


class PlainArctangents(Mend):
    """`atan2` is off by up to 30 last places of float32.
    Trap: traps/test_powers.py::test_the_compilers_own"""

    def finds(self, op: Op) -> bool:
        return op.operation.name == "stablehlo.atan2" and dtype_of(op.results[0]).name in FLOATS

    def rewritten(self, op: Op) -> list[ir.Value]:
        return [OPS.convert(_arctangent(*_singles(op)).value, dtype_of(op.results[0]))]


def _arctangent(y: Number, x: Number) -> Number:
    def beyond(angle: tuple[float, float], a: Number) -> Number:
        """`angle - a`: the larger parts first, whose difference rounds once."""
        return (angle[0] - a) + angle[1]

    ay, ax = abs(y), abs(x)
    steep = ay > ax
    small, large = where(steep, ax, ay), where(steep, ay, ax)
    # 0 / 0 is 0 here, and infinity / infinity 1: the octants' own angles. NaN gives NaN.
    alike = where(large.equals(0), large, 1)
    ratio = where(small.equals(large), alike, small / large)
    square = ratio * ratio
    angle = ratio + ratio * (square * polynomial(COEFFICIENTS, square))
    angle = where(steep, beyond(HALF_PI, angle), angle)
    angle = where(x.is_negative(), beyond(PI, angle), angle)
    return where(y.is_negative(), -angle, angle)
