"""Quantization of a row of floats to int8: the definition of `jq.formats.affine`, by vectors.

    static      saturate(round_half_even(x / scale) + zero_point)            scale given
    symmetric   saturate(round_half_even(x * inv)), inv = 127 / max|x|       from the row
    asymmetric  saturate(round_half_even(x * inv) + zero), inv = 255 / (max - min)

The range includes 0; a row whose scale would be below 2^-126 has scale 1; NaN becomes the code of
0, and a row that holds one has scale NaN.
"""

from dataclasses import dataclass

from jq.base.errors import InternalError
from jq.kernels.tensor import TensorType

SMALLEST_NORMAL = 2.0**-126
# Scales that codes are divided by exactly (`jq.kernels.epilogue.functions.divisor`).
SMALLEST_SCALE, LARGEST_SCALE = 2.0**-70, 2.0**100
STATIC, SYMMETRIC, ASYMMETRIC = "static", "symmetric", "asymmetric"


@dataclass(frozen=True)
class RowQuantization:
    """Attributes:
    scheme: `static` (scale f32 [1] and zero point i32 [1] are operands), `symmetric` or
        `asymmetric` (per row).
    narrow: codes in [-127, 127]; the symmetric divisor is then 127, else 127.5.
    unsigned_zero: the zero point is computed for 0..255 and shifted (`uint8`), which rounds
        differently from computing it for -128..127 (`int8`).
    unsigned: codes are stored in their unsigned view (`q + 128`).
    wide: steps on either side of zero where that is no int8 code, for who writes it otherwise.
    measured: the scale that is given is found at run time: it may be any number.
    """

    scheme: str = SYMMETRIC
    narrow: bool = True
    unsigned_zero: bool = False
    unsigned: bool = False
    wide: int = 0
    measured: bool = False

    def __post_init__(self) -> None:
        if self.scheme not in (STATIC, SYMMETRIC, ASYMMETRIC):
            raise InternalError(f"unknown quantization scheme {self.scheme!r}")

    @property
    def dynamic(self) -> bool:
        return self.scheme != STATIC

    @property
    def low(self) -> int:
        if self.wide:
            return -self.wide
        return -127 if self.narrow and self.scheme != ASYMMETRIC else -128

    @property
    def steps(self) -> float:
        """Codes between the ends of the range that makes the scale."""
        if self.wide:
            return float(self.wide)
        return 255.0 if self.scheme == ASYMMETRIC else (127.0 if self.narrow else 127.5)

    @property
    def operands(self) -> list[TensorType]:
        """The operands of the static scheme, last of a kernel's: scale, zero point."""
        return [] if self.dynamic else [TensorType((1,), "f32"), TensorType((1,), "i32")]

    def results(self, rows: int, columns: int) -> list[TensorType]:
        """Codes, and after them f32 scales and i32 zero points, [rows]."""
        scale = [TensorType((rows,), "f32")] if self.dynamic else []
        zero = [TensorType((rows,), "i32")] if self.scheme == ASYMMETRIC else []
        return [TensorType((rows, columns), "i8"), *scale, *zero]
