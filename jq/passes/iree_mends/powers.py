"""Powers and angles, to the last places of float32.

Powers of numbers >= 0 are `2^(y log2 x)`, rounded once from float64. The logarithm of 2^e m, with
m next to 1, is `e + 2 atanh((m - 1) / (m + 1)) / log 2`; the power of two is that of the nearest
integer times an exponential of what is left: Taylor series, cut where 1e-11 and 1e-9 remain.
"""

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from jq.ir import OPS, Op, dtype_of, ir, shape_of, stablehlo
from jq.passes.iree_mends.mend import Mend

FRACTION = 52  # bits of a float64 behind its exponent
BIAS = 1023
ATANH = [2 / ((2 * k + 1) * math.log(2)) for k in range(7)]  # of s^2, for |s| <= 0.172
EXP = [math.log(2) ** k / math.factorial(k) for k in range(9)]  # for |f| <= 1/2
BEYOND = 300.0  # exponents that no float32 has


def power(x: ir.Value, y: ir.Value) -> ir.Value:
    """`x^y` of float32 tensors of one shape, where x >= 0; 1^inf and 0^0 are NaN."""
    return _exp2(OPS.mul(OPS.convert(y, np.float64), _log2(OPS.convert(x, np.float64))))


def _log2(x: ir.Value) -> ir.Value:
    bits = OPS.bitcast(x, np.int64)
    # The exponent for which the fraction is between sqrt(1/2) and sqrt(2).
    root = int(np.float64(math.sqrt(0.5)).view(np.int64))
    exponent = OPS.shift_right_signed(
        OPS.sub(bits, OPS.full(x, np.int64(root))), OPS.full(x, np.int64(FRACTION))
    )
    fraction = OPS.sub(bits, OPS.shift_left(exponent, OPS.full(x, np.int64(FRACTION))))
    m, one = OPS.bitcast(fraction, np.float64), OPS.full(x, np.float64(1))
    s = OPS.quotient(OPS.sub(m, one), OPS.add(m, one))
    series = OPS.mul(s, polynomial(ATANH, OPS.mul(s, s)))
    log = OPS.add(OPS.convert(exponent, np.float64), series)
    infinity = OPS.full(x, np.float64(np.inf))
    finite = OPS.compare(x, infinity, "LT")
    log = OPS.select(
        OPS.equal(x, OPS.full(x, np.float64(0))), OPS.full(x, np.float64(-np.inf)), log
    )
    return OPS.select(finite, log, x)  # of infinity, and NaN


def _exp2(x: ir.Value) -> ir.Value:
    x = OPS.minimum(
        OPS.maximum(x, OPS.full(x, np.float64(-BEYOND))), OPS.full(x, np.float64(BEYOND))
    )
    whole = OPS.round_even(x)
    series = polynomial(EXP, OPS.sub(x, whole))
    number = OPS.equal(x, x)
    exponent = OPS.convert(OPS.select(number, whole, OPS.full(x, np.float64(0))), np.int64)
    bits = OPS.shift_left(
        OPS.add(exponent, OPS.full(x, np.int64(BIAS))), OPS.full(x, np.int64(FRACTION))
    )
    return OPS.convert(OPS.mul(series, OPS.bitcast(bits, np.float64)), np.float32)


def polynomial(coefficients: Sequence[float], x: ir.Value) -> ir.Value:
    """From its constant term on."""
    kind = dtype_of(x).type
    series = OPS.full(x, kind(coefficients[-1]))
    for c in reversed(coefficients[:-1]):
        series = OPS.add(OPS.mul(series, x), OPS.full(x, kind(c)))
    return series


# Powers of complex64 numbers in polar coordinates, as XLA takes them.
#
#     x^(c + di) = |x|^c exp(-d arg x) (cos q + i sin q)   with q = c arg x + d log |x|
#
# 0 to a power of positive real part is 0, and anything to the power 0 is 1.
def complex_power(x: ir.Value, y: ir.Value) -> ir.Value:
    (a, b), (c, d) = ((stablehlo.real(v), stablehlo.imag(v)) for v in (x, y))
    size = _size(a, b)
    angle, log = stablehlo.atan2(b, a), stablehlo.log(size)
    turned = OPS.mul(stablehlo.negate(d), angle)
    radius = OPS.mul(power(size, c), stablehlo.exponential(turned))
    turn = OPS.add(OPS.mul(c, angle), OPS.mul(d, log))
    result = [OPS.mul(radius, f(turn)) for f in (stablehlo.cosine, stablehlo.sine)]

    zero, one = OPS.full(a, 0), OPS.full(a, 1)
    vanishes = OPS.bit_and(OPS.equal(size, zero), OPS.compare(c, zero, "GT"))
    nothing = OPS.bit_and(OPS.equal(c, zero), OPS.equal(d, zero))
    real, imaginary = (OPS.select(vanishes, zero, v) for v in result)
    both = [OPS.select(nothing, one, real), OPS.select(nothing, zero, imaginary)]
    return stablehlo.complex(*both)


def _size(a: ir.Value, b: ir.Value) -> ir.Value:
    """|a + bi|, also where the squares would overflow or vanish."""
    a, b = OPS.abs(a), OPS.abs(b)
    long, short = OPS.maximum(a, b), OPS.minimum(a, b)
    zero, one = OPS.full(a, 0), OPS.full(a, 1)
    ratio = OPS.div(short, OPS.select(OPS.equal(long, zero), one, long))
    return OPS.mul(long, stablehlo.sqrt(OPS.add(one, OPS.mul(ratio, ratio))))


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
    Trap: traps/test_refused.py::test_complex_powers
    """

    def finds(self, op: Op) -> bool:
        if op.operation.name != "stablehlo.power":
            return False
        return dtype_of(op.results[0]).name in (*FLOATS, "complex64")

    def rewritten(self, op: Op) -> list[ir.Value]:
        return [_power(op)]


def _power(op: Op) -> ir.Value:
    dtype = dtype_of(op.results[0])
    if dtype.kind == "c":
        return complex_power(*op.operands)
    x, y = (OPS.convert(v, np.float32) for v in op.operands)
    return OPS.convert(_signed(power(OPS.abs(x), y), x, y), dtype)


def _signed(result: ir.Value, x: ir.Value, y: ir.Value) -> ir.Value:
    """The power of x, from that of |x|; -0 counts as negative."""
    full = partial(OPS.full, x)

    def whole(v: ir.Value) -> ir.Value:  # infinity, and all from 2^23 on, are
        return OPS.equal(OPS.round_even(v), v)

    negative = OPS.compare(OPS.bitcast(x, np.int32), full(np.int32(0)), "LT")
    one = full(1.0)  # of 1 by anything, and of anything by 0
    result = OPS.select(OPS.equal(OPS.abs(x), one), one, result)
    result = OPS.select(OPS.equal(y, full(0.0)), one, result)
    odd = OPS.select(whole(OPS.mul(y, full(0.5))), result, OPS.mul(result, full(-1.0)))
    # Zero and infinity have powers of every exponent, and what is 0 has no last place to lose.
    special = OPS.equal(OPS.abs(x), OPS.add(OPS.abs(x), OPS.abs(x)))
    broken = OPS.select(special, result, full(np.nan))
    return OPS.select(negative, OPS.select(whole(y), odd, broken), result)


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
    Trap: traps/test_powers.py::test_the_compilers_own
    """

    def finds(self, op: Op) -> bool:
        if op.operation.name != "stablehlo.atan2":
            return False
        return dtype_of(op.results[0]).name in ("float32", "float16", "bfloat16")

    def rewritten(self, op: Op) -> list[ir.Value]:
        y, x = (OPS.convert(v, np.float32) for v in op.operands)
        return [OPS.convert(_arctangent(y, x), dtype_of(op.results[0]))]


def _arctangent(y: ir.Value, x: ir.Value) -> ir.Value:
    full = partial(OPS.full, y)

    def beyond(angle: tuple[float, float], a: ir.Value) -> ir.Value:
        """`angle - a`: the larger parts first, whose difference rounds once."""
        return OPS.add(OPS.sub(full(angle[0]), a), full(angle[1]))

    one, zero = full(1.0), full(0.0)
    ay, ax = OPS.abs(y), OPS.abs(x)
    steep = OPS.compare(ay, ax, "GT")
    small, large = OPS.select(steep, ax, ay), OPS.select(steep, ay, ax)
    # 0 / 0 is 0 here, and infinity / infinity 1: the octants' own angles. NaN gives NaN.
    alike = OPS.select(OPS.equal(large, zero), zero, one)
    ratio = OPS.select(OPS.equal(small, large), alike, OPS.quotient(small, large))
    square = OPS.mul(ratio, ratio)
    angle = OPS.add(ratio, OPS.mul(ratio, OPS.mul(square, polynomial(COEFFICIENTS, square))))
    angle = OPS.select(steep, beyond(HALF_PI, angle), angle)
    angle = OPS.select(_is_negative(x), beyond(PI, angle), angle)
    return OPS.select(_is_negative(y), OPS.mul(angle, full(-1.0)), angle)


def _is_negative(x: ir.Value) -> ir.Value:
    """True where a number is negative; -0 is, too."""
    zero = OPS.constant(np.asarray(0, np.int32))
    return OPS.compare(OPS.bitcast(x, np.int32), OPS.broadcast(zero, shape_of(x), []), "LT")
