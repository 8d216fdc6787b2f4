"""Scales that are powers of two: e8m0, the exponent plus 127 in int8 bits; 255 is NaN.

Defined by the OCP Microscaling Formats (MX) specification 1.0, sections 5.4.1 and 6.3.
"""

import numpy as np

from jq.base.errors import FormatError
from jq.formats.arrays import NUMPY, Array, ArrayOps
from jq.formats.blocks import full
from jq.formats.elements import Element
from jq.formats.minifloat import QUIET_NAN

I32 = np.int32
SCALE_ROUNDINGS = ("floor", "ceil", "rceil", "even")


def choose(absmax: np.ndarray, element: Element, rounding: str) -> np.ndarray:
    """Codes (int8 bits) of the scales for blocks of largest magnitude `absmax` (float32).

    With emax = floor(log2(largest element)):

    * floor: floor(log2(absmax)) - emax, the specification's choice;
    * ceil: ceil(log2(absmax)) - emax;
    * rceil: ceil(log2(absmax / largest)), the smallest scale that nothing saturates at;
    * even: as floor, of absmax rounded to the element's mantissa.

    A zero block, and one below the range, gets the smallest scale, 2^-127.
    """
    code = np.asarray(biased(NUMPY, absmax, element, rounding))
    if code.max() > 254:
        raise FormatError("a block needs a scale beyond 2^127", hint="use scale_rounding floor")
    return code.astype(np.uint8).view(np.int8)


def biased(ops: ArrayOps, absmax: Array, element: Element, rounding: str) -> Array:
    """The codes that `choose` defines, before they are limited to those that exist.

    Args:
        absmax: float32 of any shape, the largest magnitude of each block, not negative.
        rounding: one of `SCALE_ROUNDINGS`.

    Returns:
        int32 of the same shape, 0 and more; 255 and more have no scale.
    """
    largest = int(np.float32(element.largest).view(I32))
    shape = ops.shape(absmax)

    def const(value: int) -> Array:
        return full(ops, value, shape, I32)

    bits = ops.bitcast(absmax, I32)
    fraction = ops.bit_and(bits, const(0x7FFFFF))
    if rounding == "even":
        bits = ops.add(bits, const(1 << (22 - element.mantissa)))
    code = ops.sub(ops.shift_right(bits, const(23)), const((largest >> 23) - 127))
    if rounding in ("ceil", "rceil"):
        limit = const(largest & 0x7FFFFF if rounding == "rceil" else 0)
        within = ops.equal(ops.maximum(fraction, limit), limit)
        code = ops.add(code, ops.select(within, const(0), const(1)))
    return ops.maximum(code, const(0))


def of_data(ops: ArrayOps, absmax: Array, element: Element, rounding: str) -> Array:
    """Codes for blocks whose largest magnitude is known at run time only.

    Args:
        absmax: float32 of any shape; it may be infinite or NaN.

    Returns:
        int8 bits of the same shape: at most 254, the scale 2^127, and 255, NaN, for a block that
        holds an infinity or NaN.
    """
    shape = ops.shape(absmax)
    code = biased(ops, absmax, element, rounding)
    code = ops.minimum(code, full(ops, 254, shape, I32))
    finite = ops.equal(ops.sub(absmax, absmax), full(ops, 0, shape, np.float32))
    code = ops.select(finite, code, full(ops, 255, shape, I32))
    return ops.convert(code, np.int8)


def opposite(ops: ArrayOps, codes: Array) -> Array:
    """The codes of `1 / scale`, int8 bits of any shape: 254 - code; NaN stays NaN."""
    code, shape = unsigned(ops, codes), ops.shape(codes)
    found = ops.sub(full(ops, 254, shape, I32), code)
    nan = ops.equal(code, full(ops, 255, shape, I32))
    return ops.convert(ops.select(nan, code, found), np.int8)


def unsigned(ops: ArrayOps, codes: Array) -> Array:
    """The codes as int32 in [0, 255], of int8 bits of any shape."""
    return ops.bit_and(ops.convert(codes, I32), full(ops, 255, ops.shape(codes), I32))


def halves(ops: ArrayOps, codes: Array) -> tuple[Array, Array]:
    """Two factors whose product is the scale, both normal numbers: 2^-127 is subnormal, which
    devices take for 0."""
    code, shape = unsigned(ops, codes), ops.shape(codes)
    total = ops.add(code, full(ops, 127, shape, I32))
    first = ops.shift_right(total, full(ops, 1, shape, I32))
    second = ops.sub(total, first)
    nan = ops.equal(code, full(ops, 255, shape, I32))
    bits = [ops.shift_left(e, full(ops, 23, shape, I32)) for e in (first, second)]
    quiet = full(ops, QUIET_NAN, shape, I32)
    return ops.bitcast(ops.select(nan, quiet, bits[0]), np.float32), ops.bitcast(
        bits[1], np.float32
    )


def decode(ops: ArrayOps, codes: Array) -> Array:
    """The scales that codes stand for, `2^(code - 127)` and NaN for 255.

    Args:
        codes: int8 bits of any shape.

    Returns:
        float32 of the same shape; code 0 is 2^-127, a subnormal number.
    """
    shape = ops.shape(codes)

    def const(value: int) -> Array:
        return full(ops, value, shape, I32)

    code = unsigned(ops, codes)
    bits = ops.shift_left(code, const(23))
    bits = ops.select(ops.equal(code, const(0)), const(1 << 22), bits)  # 2^-127 is subnormal
    bits = ops.select(ops.equal(code, const(255)), const(QUIET_NAN), bits)
    return ops.bitcast(bits, np.float32)
