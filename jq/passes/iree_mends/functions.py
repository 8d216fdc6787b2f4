"""Rewrites the elementwise functions that IREE 3.13 computes badly, to the last places of float32.

    sine %x       ->  a polynomial of what is left of %x in its octant (`_octant`)
    cosine, tan       likewise
    cbrt %x       ->  a power, in float64
    logistic %x   ->  convert (logistic (convert %x : f32)), for %x of 16 bits

IREE's sine, cosine and tangent lose what is next to zero and everything from 1,000 on, its cube
root of infinity is NaN, and its logistic function of float16 is 0 below -11. `scripts/suite.py
elementwise` measures what remains. float64 stays as it is."""

import math
from collections.abc import Callable
from functools import cache

import numpy as np

from jq.ir import OPS, Op, dtype_of, ir, like, shape_of
from jq.ir.numbers import Number, where
from jq.passes.iree_mends.mend import Mend
from jq.passes.iree_mends.powers import exp2, log2, polynomial


def cube_root(x: Number) -> Number:
    """Rounded once from float64."""
    root = exp2(log2(abs(x).as_type(np.float64)) / 3)
    return where(x.is_negative(), -root, root)


# Sine, cosine and tangent of any float32 number, within three last places.
#
# A number x is `k * pi/2 + r` with |r| <= pi/4; k modulo 4 says which of two polynomials of r^2
# gives the result, and its sign. k and r come from the product x * 2/pi modulo 4, which has up to
# 128 bits in front of the point. So 2/pi times a power of two is taken modulo 4 beforehand, in four
# parts (the idea of Payne and Hanek, 1983): the products of x, which has 24 bits, with the first
# three, which have 29, are exact in float64, and the last is small.
# The first 240 bits behind the point of 2/pi.
TWO_OVER_PI = 0xA2F9836E4E441529FC2757D1F534DDC0DB6295993C439041FE5163ABDEBB
BITS = 240
WIDTH = 33  # exponents that share a power of two: 128 of them make four groups
# Of r^2, with the least largest error relative to the function on |r| <= pi/4: 4e-9 and 2e-10.
SINE = (-0.16666655, 0.00833216, -0.00019515)  # (sin r / r - 1) / r^2
COSINE = (0.0416666457, -0.00138873156, 2.44330825e-05)  # (cos r - 1 + r^2 / 2) / r^4


def sine(x: Number) -> Number:
    return _kept(x, _turned(*_octant(x)))


def cosine(x: Number) -> Number:
    quadrant, sin, cos = _octant(x)
    return _turned(quadrant + 1, sin, cos)


def tangent(x: Number) -> Number:
    """sin r / cos r, or -cos r / sin r in every second quadrant."""
    quadrant, sin, cos = _octant(x)
    odd = (quadrant & 1).equals(1)
    return _kept(x, where(odd, cos, sin) / where(odd, -sin, cos))


def _kept(x: Number, result: Number) -> Number:
    """Next to zero both functions are x itself, the sign of a zero with it."""
    return where(abs(x) < 2**-13, x, result)


def _octant(x: Number) -> tuple[Number, Number, Number]:
    """The quadrant modulo 4 (i32), and sine and cosine of the rest; NaN where x is not finite."""
    quadrant, rest = _reduced(x)
    square = rest * rest
    sin = rest + rest * (square * polynomial(SINE, square))
    cos = (1 - square * 0.5) + (square * square) * polynomial(COSINE, square)
    return quadrant, sin, cos


def _turned(quadrant: Number, sin: Number, cos: Number) -> Number:
    """sin, cos, -sin or -cos."""
    found = where((quadrant & 1).equals(1), cos, sin)
    return where((quadrant & 2).equals(2), -found, found)


def _reduced(x: Number) -> tuple[Number, Number]:
    """The quadrant, an integer that counts modulo 4 (i32), and the rest (f32)."""
    size = abs(x)
    scale, *parts = _factors(size)
    scaled = x.as_type(np.float64) * scale
    high, middle, low, last = (scaled * part for part in parts)
    high, middle = _modulo4(high), _modulo4(middle)
    turns = (high + middle + low).rounded()
    rest = (high - turns) + middle + low + last
    rest = (rest * (np.pi / 2)).as_type(np.float32)
    near = size < np.pi / 4
    # No integer is defined for what is not finite, whose rest is NaN.
    quadrant = where(turns.equals(turns), turns, 0).as_type(np.int32)
    return where(near, 0, quadrant), where(near, x, rest)


def _modulo4(x: Number) -> Number:
    """The rest of x, in [-2, 2], without the nearest multiple of 4; exact."""
    return x - 4 * (x * 0.25).rounded()


def _factors(size: Number) -> list[Number]:
    """The numbers of its group for each number: a power of two, and four parts of 2/pi."""
    first, *groups = (_group(WIDTH * i) for i in range(4))
    found = [Number(OPS.full(size.value, np.float64(v))) for v in first]
    for i, group in enumerate(groups, 1):
        large = size >= 2.0 ** (WIDTH * i)
        found = [where(large, v, old) for v, old in zip(group, found, strict=True)]
    return found


@cache
def _group(start: int) -> tuple[float, ...]:
    """Factors for numbers from `2^start` on: to make integers of them, and to multiply those.

    `2^-shift`, and `2/pi * 2^shift` modulo 4 as three numbers of 29 bits and a small one: integers
    times a multiple of 4 do not count. The first group, from 0 on, has no shift."""
    shift = max(start - 23, 0)
    behind = BITS - shift  # bits behind the point
    rest = TWO_OVER_PI & ((1 << (behind + 2)) - 1)
    parts = []
    for end in (27, 56, 85):
        part, rest = divmod(rest, 1 << (behind - end))
        parts.append(math.ldexp(part, -end))
    return 2.0**-shift, *parts, math.ldexp(float(rest), -behind)


REWRITTEN: dict[str, Callable[[Number], Number]] = {
    "stablehlo.sine": sine,
    "stablehlo.cosine": cosine,
    "stablehlo.tan": tangent,
    "stablehlo.cbrt": cube_root,
}
WIDENED = ("stablehlo.logistic",)
NARROW = ("float16", "bfloat16")


class PlainFunctions(Mend):
    """Sines, cosines and tangents lose digits from 1,000 on, are without any from 1e6 on, and
    infinite at 1e20; next to zero they have an absolute error.
    Trap: traps/test_functions.py::test_the_compilers_own

    The cube root of infinity is NaN.
    Trap: traps/test_functions.py::test_the_compilers_own_cube_root"""

    def finds(self, op: Op) -> bool:
        name = op.operation.name
        if name not in REWRITTEN and name not in WIDENED:
            return False
        kind = dtype_of(op.results[0]).name
        return kind in NARROW or (kind == "float32" and name in REWRITTEN)

    def rewritten(self, op: Op) -> list[ir.Value]:
        x = OPS.convert(op.operands[0], np.float32)
        build = REWRITTEN.get(op.operation.name)
        result = build(Number(x)).value if build else like(op, [x], shape_of(x), np.float32)
        return [OPS.convert(result, dtype_of(op.results[0]))]
