"""Steps that end in codes: from floats, and from int32 sums without floats as integer-only devices
rescale; and AddCodes, a sum of two kinds of codes before it is rounded."""

from typing import ClassVar

from jq.base.errors import InternalError
from jq.formats.requantize import Rounding
from jq.kernels.epilogue.step import COLUMN, ELEMENT, SCALAR, Accesses, Step


class ToCodes(Step, shared=True):
    """A step that ends in codes in [low, high]; `unsigned` stores `code + 128`."""

    result: ClassVar[str] = "i8"
    bits: ClassVar[int] = 8
    packs: ClassVar[bool] = True
    low: int = -128
    high: int = 127
    unsigned: bool = False

    def __post_init__(self) -> None:
        end = 1 << (self.bits - 1)
        if not -end <= self.low <= self.high < end:
            raise InternalError(f"codes {self.low}..{self.high} do not fit int{self.bits}")
        if self.unsigned and self.bits > 8:
            raise InternalError(f"codes of {self.bits} bits have no unsigned view")

    @property
    def shift(self) -> int:
        """Offset of a stored code: what is stored is code + shift."""
        return 128 if self.unsigned else 0


class Quantize(ToCodes):
    """`saturate(round_half_even(v) + zero_point)` with v = `y / scale`, or `y` itself; NaN is 0.
    The scale (in [2^-70, 2^100]) and the zero point are operands, so that layers share a kernel.
    `divide=False`: the step before multiplied by `scale_in * scale_weight / scale_out` already. A
    relu is a bound of the code at the zero point. With `per_column` both are by column: products
    that are one have results of their own. Without `exact` the quotient may be off by 2^-23 of its
    size, and y is a number: for what has an error of its own (`Gelu` with `codes`)."""

    divide: bool = True
    per_column: bool = False
    exact: bool = True

    @property
    def operands(self) -> Accesses:
        how = COLUMN if self.per_column else SCALAR
        zero_point = (how, "i32")
        return ((how, "f32"), zero_point) if self.divide else (zero_point,)


class WideQuantize(Quantize):
    """`Quantize` to codes of 16 bits."""

    result: ClassVar[str] = "i16"
    bits: ClassVar[int] = 16
    packs: ClassVar[bool] = False
    low: int = -(2**15)
    high: int = 2**15 - 1


class AddCodes(Step):
    """`(round_half_even(y) [clamped] [* gain] + f32(codes - zero_point) * factor) * unit`.
    Operands: codes by element, factor (a whole number), unit, the zero point, two bounds if
    `bounded`, and the gain (a whole number) if `gained`."""

    unsigned: bool = False
    bounded: bool = False
    gained: bool = False

    @property
    def operands(self) -> Accesses:
        more = ((SCALAR, "f32"),) * (2 * self.bounded + self.gained)
        return ((ELEMENT, "i8"), (SCALAR, "f32"), (SCALAR, "f32"), (SCALAR, "i32"), *more)


class RoundToCodes(ToCodes):
    """`saturate(round_half_even(y) + zero_point)`, |y| < 2^30; the zero point is an operand."""

    kind: ClassVar[str] = "codes"
    takes: ClassVar[Accesses] = ((SCALAR, "i32"),)


class Rescale(ToCodes):
    """`saturate(rescale(y) + zero_point)` of int32 sums, as `jq.formats.requantize` defines it.
    Operands: mantissas, left shifts if `left`, right shifts of at most 31, the zero point."""

    source: ClassVar[str] = "i32"
    packs: ClassVar[bool] = False
    long: ClassVar[bool] = True
    rounding: Rounding = "double"
    left: bool = False

    @property
    def operands(self) -> Accesses:
        return ((COLUMN, "i32"),) * (2 + self.left) + ((SCALAR, "i32"),)


class WideRescale(Rescale):
    """`Rescale` to codes of 16 bits."""

    result: ClassVar[str] = "i16"
    bits: ClassVar[int] = 16
