"""Rewrites the elementwise functions that IREE 3.13 computes badly, to the last places of float32.

    sine %x       ->  a polynomial of what is left of %x in its octant (`_angles`)
    cosine, tan       likewise
    cbrt %x       ->  a few steps of an iteration, in float64 (`_roots`)
    logistic %x   ->  convert (logistic (convert %x : f32)), for %x of 16 bits

IREE's sine, cosine and tangent lose what is next to zero and everything from 1,000 on, its cube
root of infinity is NaN, and its logistic function of float16 is 0 below -11.
`scripts/suite.py elementwise` measures what remains. float64 stays as it is.
"""

import math
from collections.abc import Callable
from functools import cache, partial

import numpy as np

from jq.ir import OPS, Op, dtype_of, ir, shape_of
from jq.ir.build import like
from jq.passes.iree_mends.mend import Mend
from jq.passes.iree_mends.powers import polynomial

# The cube root of any float32 number, rounded once from float64.
#
#     y^3 = x:   y <- y (y^3 + 2 x) / (2 y^3 + x)
#
# Halley's iteration has three times as many right digits after each step. It starts from a third of
# the bits of x, read as an integer, which is right to a twentieth.
STEPS = 3
BIAS = 127 << 23  # the bits of 1.0


def cube_root(x: ir.Value) -> ir.Value:
    full = partial(OPS.full, x)
    size = OPS.abs(x)
    third = OPS.quotient(OPS.bitcast(size, np.int32), full(np.int32(3)))
    start = OPS.add(third, full(np.int32(2 * BIAS // 3)))
    exact, root = (
        OPS.convert(size, np.float64),
        OPS.convert(OPS.bitcast(start, np.float32), np.float64),
    )
    two = full(np.float64(2))
    for _ in range(STEPS):
        cube = OPS.mul(OPS.mul(root, root), root)
        above, below = OPS.add(cube, OPS.mul(two, exact)), OPS.add(OPS.mul(two, cube), exact)
        root = OPS.mul(root, OPS.quotient(above, below))
    root = OPS.convert(root, np.float32)
    negative = OPS.compare(OPS.bitcast(x, np.int32), full(np.int32(0)), "LT")
    root = OPS.select(negative, OPS.mul(root, full(np.float32(-1))), root)
    # Zero and infinity are their own roots, and so is NaN.
    special = OPS.equal(size, OPS.add(size, size))
    number = OPS.compare(size, full(np.float32(np.inf)), "LT")
    return OPS.select(special, x, OPS.select(number, root, full(np.float32(np.nan))))


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


def sine(x: ir.Value) -> ir.Value:
    quadrant, sin, cos = _octant(x)
    return _kept(x, _turned(quadrant, sin, cos, 0))


def cosine(x: ir.Value) -> ir.Value:
    quadrant, sin, cos = _octant(x)
    return _turned(quadrant, sin, cos, 1)


def tangent(x: ir.Value) -> ir.Value:
    """sin r / cos r, or -cos r / sin r in every second quadrant."""
    quadrant, sin, cos = _octant(x)
    odd = _has_bit(quadrant, 1)
    above, below = OPS.select(odd, cos, sin), OPS.select(odd, _minus(sin), cos)
    return _kept(x, OPS.quotient(above, below))


def _kept(x: ir.Value, result: ir.Value) -> ir.Value:
    """Next to zero both functions are x itself, the sign of a zero with it."""
    return OPS.select(OPS.compare(OPS.abs(x), OPS.full(x, np.float32(2**-13)), "LT"), x, result)


def _octant(x: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
    """The quadrant modulo 4 (i32), and sine and cosine of the rest; NaN where x is not finite."""
    quadrant, rest = _reduced(x)
    square = OPS.mul(rest, rest)
    sin = OPS.add(rest, OPS.mul(rest, OPS.mul(square, polynomial(SINE, square))))
    half = OPS.sub(OPS.full(x, np.float32(1)), OPS.mul(square, OPS.full(x, np.float32(0.5))))
    cos = OPS.add(half, OPS.mul(OPS.mul(square, square), polynomial(COSINE, square)))
    return quadrant, sin, cos


def _turned(quadrant: ir.Value, sin: ir.Value, cos: ir.Value, turn: int) -> ir.Value:
    """The sine of `turn` quadrants more: sin, cos, -sin or -cos."""
    quadrant = OPS.add(quadrant, OPS.full(quadrant, np.int32(turn)))
    found = OPS.select(_has_bit(quadrant, 1), cos, sin)
    return OPS.select(_has_bit(quadrant, 2), _minus(found), found)


def _reduced(x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """The quadrant, an integer that counts modulo 4 (i32), and the rest (f32)."""
    size, wide = OPS.abs(x), OPS.convert(x, np.float64)
    scale, *parts = _factors(size)
    scaled = OPS.mul(wide, scale)
    high, middle, low, last = (OPS.mul(scaled, part) for part in parts)
    high, middle = _modulo4(high), _modulo4(middle)
    turns = OPS.round_even(OPS.add(OPS.add(high, middle), low))
    rest = OPS.add(OPS.add(OPS.add(OPS.sub(high, turns), middle), low), last)
    rest = OPS.convert(OPS.mul(rest, OPS.full(rest, np.float64(np.pi / 2))), np.float32)
    near = OPS.compare(size, OPS.full(size, np.float32(np.pi / 4)), "LT")
    # No integer is defined for what is not finite, whose rest is NaN.
    finite = OPS.equal(turns, turns)
    turns = OPS.select(finite, turns, OPS.full(turns, np.float64(0)))
    quadrant = OPS.convert(turns, np.int32)
    return OPS.select(near, OPS.full(quadrant, np.int32(0)), quadrant), OPS.select(near, x, rest)


def _modulo4(x: ir.Value) -> ir.Value:
    """The rest of x, in [-2, 2], without the nearest multiple of 4; exact."""
    quarter, four = OPS.full(x, np.float64(0.25)), OPS.full(x, np.float64(4))
    return OPS.sub(x, OPS.mul(four, OPS.round_even(OPS.mul(x, quarter))))


def _factors(size: ir.Value) -> list[ir.Value]:
    """The numbers of its group for each number: a power of two, and four parts of 2/pi."""
    groups = [_group(WIDTH * i) for i in range(4)]
    found = [OPS.full(size, np.float64(v)) for v in groups[0]]
    for i, group in enumerate(groups[1:], 1):
        large = OPS.compare(size, OPS.full(size, np.float32(2.0 ** (WIDTH * i))), "GE")
        found = [
            OPS.select(large, OPS.full(size, np.float64(v)), old)
            for v, old in zip(group, found, strict=True)
        ]
    return found


@cache
def _group(start: int) -> tuple[float, ...]:
    """For numbers from `2^start` on: what makes integers of them, and what is to multiply those.

    `2^-shift`, and `2/pi * 2^shift` modulo 4 as three numbers of 29 bits and a small one: integers
    times a multiple of 4 do not count. The first group, from 0 on, has no shift.
    """
    shift = max(start - 23, 0)
    behind = BITS - shift  # bits behind the point
    rest = TWO_OVER_PI & ((1 << (behind + 2)) - 1)
    parts = []
    for end in (27, 56, 85):
        part, rest = divmod(rest, 1 << (behind - end))
        parts.append(math.ldexp(part, -end))
    return 2.0**-shift, *parts, math.ldexp(float(rest), -behind)


def _has_bit(x: ir.Value, bit: int) -> ir.Value:
    mask = OPS.full(x, np.int32(bit))
    return OPS.equal(OPS.bit_and(x, mask), mask)


def _minus(x: ir.Value) -> ir.Value:
    return OPS.mul(x, OPS.full(x, np.float32(-1)))


REWRITTEN: dict[str, Callable[[ir.Value], ir.Value]] = {
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
    Trap: traps/test_functions.py::test_the_compilers_own_cube_root
    """

    def finds(self, op: Op) -> bool:
        name = op.operation.name
        if name not in REWRITTEN and name not in WIDENED:
            return False
        kind = dtype_of(op.results[0]).name
        return kind in NARROW or (kind == "float32" and name in REWRITTEN)

    def rewritten(self, op: Op) -> list[ir.Value]:
        x = OPS.convert(op.operands[0], np.float32)
        build = REWRITTEN.get(op.operation.name)
        result = like(op, [x], shape_of(x), np.float32) if build is None else build(x)
        return [OPS.convert(result, dtype_of(op.results[0]))]
