"""Small floats with scales: MX formats, blocks of 32 along one axis that share a power of two (OCP
Microscaling Formats specification 1.0), and others of 8 and of 4 bits.
"""

from typing import ClassVar

from jq.formats.base import Encoding
from jq.formats.elements import FixedPoint, Table
from jq.formats.minifloat import E2M1, E2M3, E3M2, E4M3FN, E5M2, Minifloat
from jq.formats.scaled import Scaled, block_along, one_block
from jq.formats.scales import FLOAT, POWER_OF_TWO, TWO_LEVEL, Scale


class Mx(Scaled):
    """Blocks of 32; an axis that 32 does not divide ends in a short block."""

    size: ClassVar[int] = 32
    element: ClassVar[FixedPoint | Minifloat]

    def kind(self, enc: Encoding) -> Scale:
        return POWER_OF_TWO

    @property
    def idempotent(self) -> bool:
        return True

    def check(self, enc: Encoding) -> None:
        super().check(enc)
        one_block(enc, self.size)

    def default_block(self, shape: tuple[int, ...], axis: int) -> tuple[int, ...] | None:
        return block_along(axis, self.size, shape)


def _described(element: str) -> str:
    return f"MX: blocks of 32 {element} with a shared power of two"


class MxInt8(Mx):
    name, element = "mxint8", FixedPoint(6)
    description = _described("8-bit integers")


class MxFp8E4M3(Mx):
    name, element = "mxfp8_e4m3", E4M3FN
    description = _described("float8_e4m3fn")


class MxFp8E5M2(Mx):
    name, element = "mxfp8_e5m2", E5M2
    description = _described("float8_e5m2")


class MxFp6E3M2(Mx):
    name, element = "mxfp6_e3m2", E3M2
    description = _described("6-bit floats (3 exponent bits)")


class MxFp6E2M3(Mx):
    name, element = "mxfp6_e2m3", E2M3
    description = _described("6-bit floats (2 exponent bits)")


class MxFp4(Mx):
    name, element = "mxfp4", E2M1
    description = _described("4-bit floats")


class Float4E2M1FN(MxFp4):
    name = "float4_e2m1fn"
    description = "the same as mxfp4, by the name of its element"


# Quantiles of the normal distribution in [-1, 1]: QLoRA (Dettmers et al., 2023), appendix E.
NORMAL_QUANTILES = (
    -1.0,
    -0.6961928009986877,
    -0.5250730514526367,
    -0.39491748809814453,
    -0.28444138169288635,
    -0.18477343022823334,
    -0.09105003625154495,
    0.0,
    0.07958029955625534,
    0.16093020141124725,
    0.24611230194568634,
    0.33791524171829224,
    0.44070982933044434,
    0.5626170039176941,
    0.7229568362236023,
    1.0,
)


class NvFp4(Scaled):
    """Blocks of 16 along one axis."""

    name, element = "nvfp4", E2M1
    description = "blocks of 16 4-bit floats with a float8_e4m3fn scale and one float32 scale"

    def kind(self, enc: Encoding) -> Scale:
        return TWO_LEVEL

    def check(self, enc: Encoding) -> None:
        super().check(enc)
        one_block(enc, 16)

    def default_block(self, shape: tuple[int, ...], axis: int) -> tuple[int, ...] | None:
        return block_along(axis, 16, shape)


class Fp4E2M1(Scaled):
    """Any blocks, where mxfp4 and nvfp4 have one size and narrow scales."""

    name, element = "fp4_e2m1", E2M1
    description = "4-bit floats with 2 exponent bits, scaled"

    def kind(self, enc: Encoding) -> Scale:
        return FLOAT


class Nf4(Scaled):
    """Any blocks; 64 along the contraction is customary."""

    name, element, roundings = "nf4", Table(NORMAL_QUANTILES), ("nearest",)
    description = "4-bit quantiles of the normal distribution, scaled by the largest magnitude"

    def kind(self, enc: Encoding) -> Scale:
        return FLOAT


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
