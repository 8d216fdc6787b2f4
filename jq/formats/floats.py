"""Small floats with scales: MX formats, blocks of 32 along one axis that share a power of two (OCP
Microscaling Formats specification 1.0), and others of 8 and of 4 bits."""

from jq.formats.base import Encoding
from jq.formats.elements import FixedPoint, Table
from jq.formats.minifloat import E2M1, E2M3, E3M2, E4M3FN, E5M2
from jq.formats.scaled import Scaled
from jq.formats.scales import FLOAT, POWER_OF_TWO, TWO_LEVEL, Scale


class Mx(Scaled):
    """Blocks of 32; an axis that 32 does not divide ends in a short block."""

    scales, block, idempotent, in_bfloat16 = POWER_OF_TWO, 32, True, True


class Float4E2M1FN(Mx):
    name, element = "float4_e2m1fn", E2M1
    description = "the same as mxfp4, by the name of its element"


_MX = {
    "mxint8": (FixedPoint(6), "8-bit integers"),
    "mxfp8_e4m3": (E4M3FN, "float8_e4m3fn"),
    "mxfp8_e5m2": (E5M2, "float8_e5m2"),
    "mxfp6_e3m2": (E3M2, "6-bit floats (3 exponent bits)"),
    "mxfp6_e2m3": (E2M3, "6-bit floats (2 exponent bits)"),
    "mxfp4": (E2M1, "4-bit floats"),
}
for name, (element, text) in _MX.items():
    about = f"MX: blocks of 32 {text} with a shared power of two"
    type(name, (Mx,), {"name": name, "element": element, "description": about})


# Quantiles of the normal distribution in [-1, 1]: QLoRA (Dettmers et al., 2023), appendix E.
_NORMAL = """
    -1.0 -0.6961928009986877 -0.5250730514526367 -0.39491748809814453
    -0.28444138169288635 -0.18477343022823334 -0.09105003625154495 0.0
    0.07958029955625534 0.16093020141124725 0.24611230194568634 0.33791524171829224
    0.44070982933044434 0.5626170039176941 0.7229568362236023 1.0
"""
NORMAL_QUANTILES = tuple(map(float, _NORMAL.split()))


class NvFp4(Scaled):
    name, element, scales, block = "nvfp4", E2M1, TWO_LEVEL, 16
    description = "blocks of 16 4-bit floats with a float8_e4m3fn scale and one float32 scale"


class Fp4E2M1(Scaled):
    """Any blocks, where mxfp4 and nvfp4 have one size and narrow scales."""

    name, element = "fp4_e2m1", E2M1
    description = "4-bit floats with 2 exponent bits, scaled"


class Nf4(Scaled):
    """Any blocks; 64 along the contraction is customary."""

    name, element, roundings = "nf4", Table(NORMAL_QUANTILES), ("nearest",)
    description = "4-bit quantiles of the normal distribution, scaled by the largest magnitude"


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
