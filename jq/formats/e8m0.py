"""Scales that are powers of two: e8m0, the exponent plus 127 in int8 bits; 255 is NaN.

Defined by the OCP Microscaling Formats (MX) specification 1.0, sections 5.4.1 and 6.3.
"""

from __future__ import annotations

import numpy as np

from jq.errors import FormatError
from jq.formats.arrays import Array, ArrayOps
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
    largest = np.float32(element.largest).view(I32)
    emax = (largest >> I32(23)) - I32(127)
    bits = absmax.view(I32)
    fraction = bits & I32(0x7FFFFF)
    if rounding == "even":
        bits = bits + I32(1 << (22 - element.mantissa))
    code = (bits >> I32(23)) - emax
    if rounding == "ceil":
        code = code + (fraction > 0)
    elif rounding == "rceil":
        code = code + (fraction > largest & I32(0x7FFFFF))
    if code.max() > 254:
        raise FormatError("a block needs a scale beyond 2^127", hint="use scale_rounding floor")
    return np.maximum(code, 0).astype(np.uint8).view(np.int8)


def decode(ops: ArrayOps, codes: Array) -> Array:
    """Float32 scales of int8 bits."""
    shape = ops.shape(codes)

    def const(value: int) -> Array:
        return full(ops, value, shape, I32)

    code = ops.bit_and(ops.convert(codes, I32), const(255))
    bits = ops.shift_left(code, const(23))
    bits = ops.select(ops.equal(code, const(0)), const(1 << 22), bits)  # 2^-127 is subnormal
    bits = ops.select(ops.equal(code, const(255)), const(QUIET_NAN), bits)
    return ops.bitcast(bits, np.float32)
