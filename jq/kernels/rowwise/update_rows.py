"""Rows of a cache that become others, where a number that is found at run time says: in its place.

    for batch, block of rows in workgroups:
      cache[batch, first + row, :] = new[batch, row, :]

IREE would wait on the host for the number, and record every command of a call anew with it.
Memory-bound: it reads and writes the new rows once."""

import math

from jq.base.errors import InternalError
from jq.kernels.kernel import Kernel
from jq.kernels.machine.tiling import row_block
from jq.kernels.tensor import TensorType

ELEMENTS = ("f32", "f16", "bf16", "i8", "i16", "i32")


class UpdateRows(Kernel):
    """[batch, rows, width], [batch, count, width] of `element`, first row i32 [1] -> the first. The
    first row is held to 0 .. rows - count; a negative one counts as the largest."""

    batch: int
    rows: int
    count: int
    width: int
    element: str = "f32"

    def __post_init__(self) -> None:
        if min(self.batch, self.count, self.width) < 1 or self.count > self.rows:
            raise InternalError(f"no rows to update of {self.label}")
        if self.element not in ELEMENTS:
            raise InternalError(f"no rows of {self.element}")

    @property
    def label(self) -> str:
        return f"{self.batch}x{self.rows}x{self.width}_{self.count}"

    @property
    def operands(self) -> tuple[TensorType, ...]:
        new = TensorType((self.batch, self.count, self.width), self.element)
        return (*self.results, new, TensorType((1,), "i32"))

    @property
    def results(self) -> tuple[TensorType, ...]:
        return (TensorType((self.batch, self.rows, self.width), self.element),)

    @property
    def block(self) -> int:
        """New rows of a workgroup."""
        return row_block(self.count, self.width)

    @property
    def blocks(self) -> int:
        return math.ceil(self.count / self.block)
