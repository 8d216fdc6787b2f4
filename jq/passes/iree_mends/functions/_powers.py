"""Powers of float32 numbers >= 0, rounded once from float64: `2^(y log2 x)`.

The logarithm of 2^e m, with m next to 1, is `e + 2 atanh((m - 1) / (m + 1)) / log 2`; the power of
two is that of the nearest integer times an exponential of what is left. Both are Taylor series, cut
where 1e-11 and 1e-9 of their value remain.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from jq.ir import ir, shape_of
from jq.ir.arrays import StableHloOps

OPS = StableHloOps()
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
        OPS.sub(bits, _full(x, np.int64(root))), _full(x, np.int64(FRACTION))
    )
    fraction = OPS.sub(bits, OPS.shift_left(exponent, _full(x, np.int64(FRACTION))))
    m, one = OPS.bitcast(fraction, np.float64), _full(x, np.float64(1))
    s = OPS.quotient(OPS.sub(m, one), OPS.add(m, one))
    series = OPS.mul(s, _polynomial(ATANH, OPS.mul(s, s)))
    log = OPS.add(OPS.convert(exponent, np.float64), series)
    infinity = _full(x, np.float64(np.inf))
    finite = OPS.compare(x, infinity, "LT")
    log = OPS.select(OPS.equal(x, _full(x, np.float64(0))), _full(x, np.float64(-np.inf)), log)
    return OPS.select(finite, log, x)  # of infinity, and NaN


def _exp2(x: ir.Value) -> ir.Value:
    x = OPS.minimum(OPS.maximum(x, _full(x, np.float64(-BEYOND))), _full(x, np.float64(BEYOND)))
    whole = OPS.round_even(x)
    series = _polynomial(EXP, OPS.sub(x, whole))
    number = OPS.equal(x, x)
    exponent = OPS.convert(OPS.select(number, whole, _full(x, np.float64(0))), np.int64)
    bits = OPS.shift_left(OPS.add(exponent, _full(x, np.int64(BIAS))), _full(x, np.int64(FRACTION)))
    return OPS.convert(OPS.mul(series, OPS.bitcast(bits, np.float64)), np.float32)


def _polynomial(coefficients: Sequence[float], x: ir.Value) -> ir.Value:
    series = _full(x, np.float64(coefficients[-1]))
    for c in reversed(coefficients[:-1]):
        series = OPS.add(OPS.mul(series, x), _full(x, np.float64(c)))
    return series


def _full(like: ir.Value, value: Any) -> ir.Value:
    return OPS.broadcast(OPS.constant(np.asarray(value)), shape_of(like), [])
