"""Places of a result's rows: those of sequences, of which the last are left out, and of images in a
frame, the padding that a convolution reads around them.

code code code code code        rows of pixels lie one after the other in a product's result;
code p00  p01  p02  code        in a frame, padding stands between them
code p10  p11  p12  code
code code code code code"""

from dataclasses import dataclass
from typing import ClassVar

from jq.base.errors import InternalError
from jq.kernels.tensor import TensorType


@dataclass(frozen=True)
class Frame:
    """Images [height, width] of pixels, with so many of `code` around them. `padding` is low and
    high, of height and width; `code` is i8, in the view that is stored; 0 around floats."""

    kind: ClassVar[str] = "frame"

    height: int
    width: int
    padding: tuple[tuple[int, ...], ...]
    code: int

    def __post_init__(self) -> None:
        if min(self.height, self.width) < 1 or min(map(min, self.padding)) < 0:
            raise InternalError(f"no frame of {self.padding} around {self.height} x {self.width}")

    @property
    def outer(self) -> tuple[int, int]:
        """Height and width with the padding."""
        (top, bottom), (left, right) = self.padding
        return top + self.height + bottom, left + self.width + right

    def rows(self, pixels: int) -> int:
        """Rows of the result for so many pixels."""
        if pixels % (self.height * self.width):
            raise InternalError(f"{pixels} pixels are no images of {self.height} x {self.width}")
        high, wide = self.outer
        return pixels // (self.height * self.width) * high * wide

    @property
    def lead(self) -> int:
        """Number of the result's rows in front of an image's first pixel."""
        return self.padding[0][0] * self.outer[1] + self.padding[1][0]


@dataclass(frozen=True)
class Batch:
    """`count` products: every operand and result has a leading axis, scalars and vectors too."""

    kind: ClassVar[str] = "batch"
    count: int

    def __post_init__(self) -> None:
        if self.count < 1:
            raise InternalError("a batch of no products")


@dataclass(frozen=True)
class Sequences:
    """Rows lie in sequences of `length`, and only the first ones of each are wanted: as many as the
    kernel's last operand says, i32 [M / length]. What a kernel gives for the others is undefined;
    with `fill` it is 0 (but for numbers that a row has one of: its scale, its zero point)."""

    kind: ClassVar[str] = "sequences"

    length: int
    fill: bool = False

    def operand(self, rows: int) -> TensorType:
        """The type of the counts for so many rows."""
        if rows % self.length:
            raise InternalError(f"{rows} rows are no sequences of {self.length}")
        return TensorType((rows // self.length,), "i32")
