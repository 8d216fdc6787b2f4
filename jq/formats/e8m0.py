"""Scales that are powers of two: e8m0, the exponent plus 127 in int8 bits; 255 is NaN.

Defined by the OCP Microscaling Formats (MX) specification 1.0, sections 5.4.1 and 6.3."""

import numpy as np

from jq.base.errors import FormatError
from jq.formats.arrays import NUMPY, Array, ArrayOps
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

    A zero block, and one below the range, gets the smallest scale, 2^-127."""
    code = np.asarray(biased(NUMPY, absmax, element, rounding))
    if code.max() > 254:
        raise FormatError("a block needs a scale beyond 2^127", hint="use scale_rounding floor")
    return code.astype(np.uint8).view(np.int8)


def biased(ops: ArrayOps, absmax: Array, element: Element, rounding: str) -> Array:
    """Codes int32 of `choose` before they are limited: 255 and more have no scale."""
    largest = int(np.float32(element.largest).view(I32))
    bits = ops.bitcast(absmax, I32)
    fraction = ops.bit_and(bits, 0x7FFFFF)
    if rounding == "even":
        bits = ops.add(bits, 1 << (22 - element.mantissa))
    code = ops.sub(ops.shift_right(bits, 23), (largest >> 23) - 127)
    if rounding in ("ceil", "rceil"):
        limit = largest & 0x7FFFFF if rounding == "rceil" else 0
        within = ops.equal(ops.maximum(fraction, limit), limit)
        code = ops.select(within, code, ops.add(code, 1))
    return ops.maximum(code, 0)


def of_data(ops: ArrayOps, absmax: Array, element: Element, rounding: str) -> Array:
    """Codes (int8 bits) for blocks whose largest magnitude is known at run time only: at most 254,
    the scale 2^127, and 255, NaN, for a block that holds an infinity or NaN."""
    code = ops.minimum(biased(ops, absmax, element, rounding), 254)
    finite = ops.equal(ops.sub(absmax, absmax), 0)
    return ops.convert(ops.select(finite, code, 255), np.int8)


def opposite(ops: ArrayOps, codes: Array) -> Array:
    """The codes of `1 / scale`, int8 bits of any shape: 254 - code; NaN stays NaN."""
    code = unsigned(ops, codes)
    return ops.convert(ops.select(ops.equal(code, 255), code, ops.sub(254, code)), np.int8)


def unsigned(ops: ArrayOps, codes: Array) -> Array:
    """The codes as int32 in [0, 255], of int8 bits of any shape."""
    return ops.bit_and(ops.convert(codes, I32), 255)


def halves(ops: ArrayOps, codes: Array) -> tuple[Array, Array]:
    """Two normal factors of the scale: 2^-127 is subnormal, which devices take for 0."""
    code = unsigned(ops, codes)
    total = ops.add(code, 127)
    half = ops.shift_right(total, 1)
    first, second = (ops.shift_left(e, 23) for e in (half, ops.sub(total, half)))
    first = ops.select(ops.equal(code, 255), QUIET_NAN, first)
    return ops.bitcast(first, np.float32), ops.bitcast(second, np.float32)


def decode(ops: ArrayOps, codes: Array) -> Array:
    """The scales that int8 bits stand for, f32: `2^(code - 127)`, and NaN for 255."""
    code = unsigned(ops, codes)
    bits = ops.shift_left(code, 23)
    bits = ops.select(ops.equal(code, 0), 1 << 22, bits)  # 2^-127 is subnormal
    return ops.bitcast(ops.select(ops.equal(code, 255), QUIET_NAN, bits), np.float32)
