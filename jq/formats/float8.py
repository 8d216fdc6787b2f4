"""8-bit floats with a scale per tensor, channel or block.

The scale is absmax / largest in `scale_type`, or, where that is float8_e8m0fnu, a power of two
chosen as in the MX formats.
"""

from __future__ import annotations

from jq.formats.base import Encoding
from jq.formats.minifloat import E4M3FN, E5M2
from jq.formats.scaled import Scaled
from jq.formats.scales import FLOAT, POWER_OF_TWO, Scale


class Float8(Scaled):
    """Picks the kind of scale by `enc.scale_type`."""

    def kind(self, enc: Encoding) -> Scale:
        return POWER_OF_TWO if enc.scale_type == "float8_e8m0fnu" else FLOAT


class Float8E4M3FN(Float8):
    name, element = "float8_e4m3fn", E4M3FN
    description = "8-bit floats with 4 exponent bits, scaled"


class Float8E5M2(Float8):
    name, element = "float8_e5m2", E5M2
    description = "8-bit floats with 5 exponent bits, scaled"
